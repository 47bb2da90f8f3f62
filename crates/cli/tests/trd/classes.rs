//! Why TRD and tshark differ on a segment: a rule for each class, which the packets have to satisfy.

use std::fmt;

use super::function::Kind;
use super::segments::Segment;
use super::tshark::Verdict;

/// `REORDER_US` of `trd.p4c`.
const REORDER_US: u64 = 3000;

/// What a segment's two verdicts come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Both say that it was sent again, or both that it was not.
    Agreed,
    /// Came by twice: tshark takes whatever comes within a round trip of the newest segment for out of order, and does not
    /// remember what it has seen; to TRD only what was missing can be out of order.
    Twice,
    /// Lost before this place and sent again while others followed: tshark counts from the newest segment, and takes
    /// whatever comes within a round trip of it for out of order; TRD counts from when the gap opened.
    Hurried,
    /// Overtaken, and asked for meanwhile: tshark believes the acknowledgements, TRD the gap's age.
    Asked,
    /// Overtaken by more than `REORDER_US`: too late for TRD, not for tshark.
    Late,
}

impl Class {
    /// Those that the captures must show; the other one is rare.
    pub const SHOWN: [Self; 3] = [Self::Twice, Self::Hurried, Self::Late];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agreed => "agreed",
            Self::Twice => "came by twice while others followed",
            Self::Hurried => "sent again while others followed",
            Self::Asked => "overtaken and asked for",
            Self::Late => "overtaken for long",
        })
    }
}

/// The class that the segment is of.
///
/// # Errors
/// If they differ, and no rule holds.
pub fn class(segment: &Segment, ours: Kind, theirs: Verdict) -> Result<Class, ()> {
    let is_ours = ours == Kind::Retransmitted;
    if is_ours == theirs.is_retransmission() {
        return Ok(Class::Agreed);
    }
    let again = segment.was_sent_again();
    let hurried = segment.newest_us < segment.round_trip_us;
    match (ours, theirs, segment.missing_us) {
        (Kind::Retransmitted, Verdict::OutOfOrder, None) if again && hurried => Ok(Class::Twice),
        (Kind::Retransmitted, Verdict::OutOfOrder, Some(REORDER_US..)) if again && hurried => Ok(Class::Hurried),
        (Kind::Retransmitted, Verdict::OutOfOrder, Some(REORDER_US..)) if !again && hurried => Ok(Class::Late),
        (Kind::OutOfOrder, Verdict::Fast, Some(..REORDER_US)) if !again && segment.asked => Ok(Class::Asked),
        _ => Err(()),
    }
}
