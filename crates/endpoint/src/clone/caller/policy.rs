//! Policies of calls between which a caller chooses, and what it reports of its choice.

use std::fmt;

/// How the calls of a method are sent, from the cheapest policy to the dearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ClonePolicy {
    /// One request, to a random server.
    #[default]
    Random,
    /// One request, to the shorter queue of two.
    Shortest,
    /// The same, and hedges after a learned delay.
    Hedged,
    /// To two idle servers at once, or to the shorter queue of two.
    Cloned,
}

/// Number of policies.
pub(super) const POLICIES: usize = 4;

impl ClonePolicy {
    /// All policies.
    pub const ALL: [Self; POLICIES] = [Self::Random, Self::Shortest, Self::Hedged, Self::Cloned];

    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Shortest => "shortest",
            Self::Hedged => "hedged",
            Self::Cloned => "cloned",
        }
    }

    /// Whether calls may have extra requests before an answer is overdue.
    pub(super) const fn sends_extra(self) -> bool {
        matches!(self, Self::Hedged | Self::Cloned)
    }
}

/// Why a method has its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PolicyReason {
    /// The method has had too few calls to compare policies.
    #[default]
    FewCalls,
    /// Its p99 is lower than that of policies with fewer requests.
    LowerP99,
    /// No policy with more requests has a lower p99.
    FewestRequests,
    /// Another policy was worse than one request to a random server.
    OtherWorse,
    /// Requests wait at the servers, where extra ones would make others wait.
    ServersBusy,
}

impl fmt::Display for PolicyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FewCalls => "too few calls to compare policies",
            Self::LowerP99 => "its p99 is lower than that of policies with fewer requests",
            Self::FewestRequests => "no policy with more requests has a lower p99",
            Self::OtherWorse => "another policy was worse than a random server",
            Self::ServersBusy => "requests wait at the servers",
        })
    }
}

/// Policy of a method, as its caller chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PolicyStats {
    /// Chosen policy.
    pub policy: ClonePolicy,
    /// Why it is chosen.
    pub reason: PolicyReason,
    /// Periods so far, in the order of [`ClonePolicy::ALL`].
    pub periods: [u64; POLICIES],
    /// Times that another policy was chosen.
    pub changes: u64,
}
