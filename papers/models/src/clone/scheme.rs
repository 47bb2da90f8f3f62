//! Schemes of calls for the comparison (NetClone §5.1.3).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pathcall_endpoint::clone::{Balance, CloneOptions, Hedge, HedgeAfter};

/// Scheme of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Random server, without the element: the paper's baseline.
    Random,
    /// Servers in turn, without the element.
    RoundRobin,
    /// Shorter queue of two, chosen by the element: RackSched's power of two choices.
    Shortest,
    /// Random server, and another one after a delay: gRPC's hedging policy.
    Hedging,
    /// Two random servers at once, chosen by the caller: C-Clone.
    ClientClone,
    /// Coordinator that clones to idle servers, or queues the call if none is idle: LÆDGE.
    Coordinator,
    /// NetClone: the element clones to two idle servers; otherwise the first server of the group receives the call.
    Clone,
    /// NetClone with RackSched: if the element does not clone, the shorter queue receives the call.
    CloneShortest,
    /// Shorter queue of two, and another server for the slowest tenth of the calls, after a learned delay; the
    /// answer cancels the slower request.
    LearnedHedging,
    /// Policy that each caller chooses from the latencies that it measures: random, the shorter queue, learned hedging,
    /// or cloning if the budget allows an extra request for each call.
    Automatic,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Self; 10] = [
        Self::Random,
        Self::RoundRobin,
        Self::Shortest,
        Self::Hedging,
        Self::ClientClone,
        Self::Coordinator,
        Self::Clone,
        Self::CloneShortest,
        Self::LearnedHedging,
        Self::Automatic,
    ];

    /// Name of the scheme.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::Shortest => "jsq",
            Self::Hedging => "hedging",
            Self::ClientClone => "c-clone",
            Self::Coordinator => "laedge",
            Self::Clone => "netclone",
            Self::CloneShortest => "netclone+jsq",
            Self::LearnedHedging => "learned-hedging",
            Self::Automatic => "automatic",
        }
    }

    /// Whether callers send extra requests while all servers are slow: gRPC and C-Clone do.
    #[must_use]
    pub const fn sends_extra_while_slow(self) -> bool {
        matches!(self, Self::Hedging | Self::ClientClone)
    }

    /// Options of a call with this scheme; other options have their defaults.
    #[must_use]
    pub fn options(self) -> CloneOptions {
        let usual = CloneOptions { clone: false, ..CloneOptions::default() };
        match self {
            Self::Random => usual,
            Self::RoundRobin => CloneOptions { balance: Balance::RoundRobin, ..usual },
            Self::Shortest => CloneOptions { balance: Balance::Shortest, ..usual },
            Self::Hedging => {
                let after = HedgeAfter::Delay(Duration::from_millis(10));
                CloneOptions { hedge: Some(Hedge { after, max_attempts: 2 }), ..usual }
            }
            Self::ClientClone => CloneOptions { send_to_two: true, ..usual },
            Self::Coordinator => CloneOptions { clone: true, through_element: true, ..usual },
            Self::Clone => CloneOptions { clone: true, ..usual },
            Self::CloneShortest => CloneOptions { clone: true, balance: Balance::Shortest, ..usual },
            Self::LearnedHedging => {
                let hedge = Hedge { after: HedgeAfter::Share(100), max_attempts: 2 };
                CloneOptions { balance: Balance::Shortest, hedge: Some(hedge), cancel: true, ..usual }
            }
            Self::Automatic => CloneOptions { automatic: true, cancel: true, ..usual },
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Unknown name of a scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown scheme {0:?}; known schemes: {all}", all = Scheme::ALL.map(Scheme::name).join(", "))]
pub struct ParseSchemeError(pub String);

impl FromStr for Scheme {
    type Err = ParseSchemeError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name).ok_or_else(|| ParseSchemeError(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_names_round_trip() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(scheme));
        }
        let error = "best".parse::<Scheme>().expect_err("an unknown scheme").to_string();
        assert!(error.contains("\"best\"") && error.contains("netclone+jsq"), "{error}");
    }
}
