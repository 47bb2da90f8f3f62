//! Link with outages. An outage affects one direction, so a partition may be asymmetric.

use pathcall_wire::Instant;

use super::{FrameArrival, LinkModel, LinkOutcome, LossCause};
use crate::node::MapNodeId;

/// Time in which some links carry nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Sender of the links; `None`: every node.
    pub from: Option<MapNodeId>,
    /// Receiver of the links; `None`: every node.
    pub to: Option<MapNodeId>,
    /// First instant.
    pub since: Instant,
    /// First instant after it.
    pub until: Instant,
}

impl Outage {
    /// Whether the outage affects this link.
    #[must_use]
    pub fn of(&self, from: MapNodeId, to: MapNodeId) -> bool {
        self.from.is_none_or(|node| node == from) && self.to.is_none_or(|node| node == to)
    }
}

/// Link with outages.
#[derive(Debug)]
pub struct CutLink<L> {
    inner: L,
    spans: Vec<(Instant, Instant)>,
}

impl<L: LinkModel> CutLink<L> {
    /// Wraps a link; each span is the first instant of an outage and the first instant after it.
    #[must_use]
    pub fn new(inner: L, spans: Vec<(Instant, Instant)>) -> Self {
        Self { inner, spans }
    }
}

impl<L: LinkModel> LinkModel for CutLink<L> {
    fn transmit(&mut self, now: Instant, len: usize, arrivals: &mut Vec<FrameArrival>) -> LinkOutcome {
        if self.spans.iter().any(|(since, until)| (*since..*until).contains(&now)) {
            return LinkOutcome { lost: Some(LossCause::Cut), ..LinkOutcome::default() };
        }
        self.inner.transmit(now, len, arrivals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Wire, WireSpec};
    use crate::random::Random;

    #[test]
    fn frames_are_lost_during_outage() {
        let wire = Wire::new(WireSpec::default(), Random::new(1));
        let mut link = CutLink::new(wire, vec![(Instant(10), Instant(20)), (Instant(30), Instant(31))]);
        let mut passes = |now| link.transmit(Instant(now), 1, &mut Vec::new()).lost != Some(LossCause::Cut);
        assert_eq!([9, 10, 19, 20, 30, 31].map(&mut passes), [true, false, false, true, false, true]);
    }

    #[test]
    fn outage_affects_one_direction() {
        let (caller, owner) = (MapNodeId::Caller(0, 1), MapNodeId::Owner(0));
        let outage = Outage { from: Some(caller), to: None, since: Instant(0), until: Instant(1) };
        assert!(outage.of(caller, owner) && outage.of(caller, MapNodeId::Element(0)));
        assert!(!outage.of(owner, caller));
    }
}
