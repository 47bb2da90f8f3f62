//! A link that carries nothing for some time: one direction of it, so a partition may be asymmetric.

use pathcall_wire::Instant;

use super::{Arrival, Fate, Link, Loss};
use crate::party::Node;

/// A time during which some links carry nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Links from this node; `None`: from any.
    pub from: Option<Node>,
    /// Links to this node; `None`: to any.
    pub to: Option<Node>,
    /// First instant.
    pub since: Instant,
    /// First instant after it.
    pub until: Instant,
}

impl Outage {
    /// Whether it is one of this link.
    #[must_use]
    pub fn of(&self, from: Node, to: Node) -> bool {
        self.from.is_none_or(|node| node == from) && self.to.is_none_or(|node| node == to)
    }
}

/// A link with its outages.
#[derive(Debug)]
pub struct Cut<L> {
    inner: L,
    spans: Vec<(Instant, Instant)>,
}

impl<L: Link> Cut<L> {
    /// `inner`, but for these times: first instant, and first instant after it.
    #[must_use]
    pub fn new(inner: L, spans: Vec<(Instant, Instant)>) -> Self {
        Self { inner, spans }
    }
}

impl<L: Link> Link for Cut<L> {
    fn carry(&mut self, now: Instant, len: usize, arrivals: &mut Vec<Arrival>) -> Fate {
        if self.spans.iter().any(|(since, until)| (*since..*until).contains(&now)) {
            return Fate { lost: Some(Loss::Cut), ..Fate::default() };
        }
        self.inner.carry(now, len, arrivals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Wire, WireSpec};
    use crate::random::Random;

    #[test]
    fn nothing_passes_during_an_outage() {
        let wire = Wire::new(WireSpec::default(), Random::new(1));
        let mut link = Cut::new(wire, vec![(Instant(10), Instant(20)), (Instant(30), Instant(31))]);
        let mut passes = |now| link.carry(Instant(now), 1, &mut Vec::new()).lost != Some(Loss::Cut);
        assert_eq!([9, 10, 19, 20, 30, 31].map(&mut passes), [true, false, false, true, false, true]);
    }

    #[test]
    fn an_outage_has_a_direction() {
        let (caller, owner) = (Node::Caller(0, 1), Node::Owner(0));
        let outage = Outage { from: Some(caller), to: None, since: Instant(0), until: Instant(1) };
        assert!(outage.of(caller, owner) && outage.of(caller, Node::Element(0)));
        assert!(!outage.of(owner, caller));
    }
}
