//! Ways to make a call that can be compared (NetClone §5.1.3).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pathcall_endpoint::clone::{Balance, Hedge, Options};

/// What can be compared, by one name each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// A random server, past the element: the paper's baseline.
    Random,
    /// The servers in turn, past the element.
    RoundRobin,
    /// The shorter queue of two: RackSched's power of two choices, in the element.
    Shortest,
    /// A random server, and another one if the first takes long: gRPC's hedging policy.
    Hedging,
    /// Two random servers at once, by the caller: C-Clone.
    ClientClone,
    /// A coordinator that clones to idle servers and queues if there are none: LÆDGE.
    Coordinator,
    /// NetClone: the element clones to two idle servers, or else the first of them gets the call.
    Clone,
    /// NetClone with RackSched: or else the shorter queue gets it.
    CloneShortest,
}

impl Scheme {
    /// Each of them.
    pub const ALL: [Self; 8] = [
        Self::Random,
        Self::RoundRobin,
        Self::Shortest,
        Self::Hedging,
        Self::ClientClone,
        Self::Coordinator,
        Self::Clone,
        Self::CloneShortest,
    ];

    /// Its name.
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
        }
    }

    /// The options of a call that is made this way; the rest is as usual.
    #[must_use]
    pub fn options(self) -> Options {
        let usual = Options { clone: false, ..Options::default() };
        match self {
            Self::Random => usual,
            Self::RoundRobin => Options { balance: Balance::RoundRobin, ..usual },
            Self::Shortest => Options { balance: Balance::Shortest, ..usual },
            Self::Hedging => {
                Options { hedge: Some(Hedge { delay: Duration::from_millis(10), max_attempts: 2 }), ..usual }
            }
            Self::ClientClone => Options { twice: true, ..usual },
            Self::Coordinator => Options { clone: true, steered: true, ..usual },
            Self::Clone => Options { clone: true, ..usual },
            Self::CloneShortest => Options { clone: true, balance: Balance::Shortest, ..usual },
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No scheme has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no scheme is called {0:?}; there are: {all}", all = Scheme::ALL.map(Scheme::name).join(", "))]
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
    fn every_scheme_is_found_by_its_name() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(scheme));
        }
        let error = "best".parse::<Scheme>().expect_err("there is none").to_string();
        assert!(error.contains("\"best\"") && error.contains("netclone+jsq"), "{error}");
    }
}
