//! Classes of differences between TRD and tshark, each with a rule that the packets have to satisfy.

use std::fmt;

use super::function::Kind;
use super::segments::Segment;
use super::tshark::Verdict;

/// Value of `REORDER_US` in `trd.p4c`.
const REORDER_US: u64 = 3000;

/// Comparison of the two verdicts on a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Both say retransmission, or both do not.
    Agreed,
    /// Duplicate of a seen segment. tshark remembers no segments, and takes any segment within a round trip of the
    /// newest one for out of order; for TRD only a missing segment can be out of order.
    Duplicate,
    /// Lost before the capture point and retransmitted while others followed. tshark measures from the newest segment,
    /// and takes any within a round trip of it for out of order; TRD measures from the opening of the gap.
    EarlyRetransmission,
    /// Overtaken, and asked for by duplicate acknowledgements: tshark trusts the acknowledgements, TRD the age of the
    /// gap.
    AskedFor,
    /// Overtaken by more than `REORDER_US`: too late for TRD, not for tshark.
    Late,
}

impl Class {
    /// Classes that the captures must show; the other one is rare.
    pub const SHOWN: [Self; 3] = [Self::Duplicate, Self::EarlyRetransmission, Self::Late];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agreed => "agreed",
            Self::Duplicate => "came by twice while others followed",
            Self::EarlyRetransmission => "sent again while others followed",
            Self::AskedFor => "overtaken and asked for",
            Self::Late => "overtaken for long",
        })
    }
}

/// Classifies a segment.
///
/// # Errors
/// Returns an error if the verdicts differ and no rule holds.
pub fn class(segment: &Segment, ours: Kind, theirs: Verdict) -> Result<Class, ()> {
    let is_ours = ours == Kind::Retransmitted;
    if is_ours == theirs.is_retransmission() {
        return Ok(Class::Agreed);
    }
    let again = segment.was_sent_again();
    let hurried = segment.newest_us < segment.round_trip_us;
    match (ours, theirs, segment.missing_us) {
        (Kind::Retransmitted, Verdict::OutOfOrder, None) if again && hurried => Ok(Class::Duplicate),
        (Kind::Retransmitted, Verdict::OutOfOrder, Some(REORDER_US..)) if again && hurried => {
            Ok(Class::EarlyRetransmission)
        }
        (Kind::Retransmitted, Verdict::OutOfOrder, Some(REORDER_US..)) if !again && hurried => Ok(Class::Late),
        (Kind::OutOfOrder, Verdict::Fast, Some(..REORDER_US)) if !again && segment.asked => Ok(Class::AskedFor),
        _ => Err(()),
    }
}
