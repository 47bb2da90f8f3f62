//! State of a member at the owner.

use super::super::CommittedFrame;
use super::durable::ResumeSecret;
use super::{Member, Permissions};
use crate::flow::FlowRepeatFilter;

/// State of a member.
pub(super) struct MemberState {
    pub(super) member: Member,
    pub(super) worker: u16,
    pub(super) seen: FlowRepeatFilter,
    /// State of the ended epoch that the caller must be told, from a change of epoch until the notice.
    pub(super) ended: Option<EndedEpoch>,
    pub(super) may: Permissions,
    /// Whether the caller has repeated its lost additions of ended epochs.
    pub(super) settled: bool,
    /// Whether the caller reported that nothing of it remains in the element and that it is leaving.
    pub(super) clean: bool,
    /// Whether the caller gets no further sums and must join again.
    pub(super) failed: bool,
    /// Whether the caller's frames are carried through gRPC, past any element.
    pub(super) carried: bool,
    /// Whether the element is on the route to the caller (inline), as detected in this epoch.
    pub(super) inline: bool,
    /// Oldest chunk without a result, as reported in this epoch (not with clear policy *copy*).
    pub(super) oldest: Option<u64>,
    /// With a store: notices of ended epochs that the caller has not confirmed.
    pub(super) told: Vec<EndedEpoch>,
    /// With a store: secret by which the caller resumes.
    pub(super) secret: ResumeSecret,
}

impl MemberState {
    /// State of a member that has just joined.
    pub(super) fn new(member: Member) -> Self {
        Self {
            member,
            worker: 0,
            seen: FlowRepeatFilter::default(),
            ended: None,
            may: Permissions::ALL,
            settled: true,
            clean: false,
            failed: false,
            carried: false,
            inline: false,
            oldest: None,
            told: Vec::new(),
            secret: ResumeSecret::default(),
        }
    }
}

/// Data of a leaving caller that may remain in the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftover {
    /// No data.
    Clean,
    /// Possibly uncommitted values.
    Uncommitted,
    /// Possibly lost values of an ended epoch that the caller has not repeated.
    Unsettled,
}

/// State at the end of the epoch that a caller knows.
#[derive(Debug, Default, Clone)]
pub(super) struct EndedEpoch {
    pub(super) epoch: u32,
    pub(super) committed: u32,
    pub(super) applied: Vec<CommittedFrame>,
}
