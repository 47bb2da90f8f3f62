//! Map as a part of a combined run: failures of the shared element, and datagrams that pass the network function.

use pathcall_wire::Instant;

use super::MapWorld;
use crate::map::checker::MapViolation;
use crate::map::network::Datagram;
use crate::map::node::MapNodeId;

impl MapWorld<'_> {
    /// Fails the shared element: index of the failure in the scenario.
    pub(crate) fn element_fails(&mut self, now: Instant, index: usize) {
        self.time.now = now;
        self.fail(index);
    }

    /// Delivers a datagram that has passed the network function in front of the element.
    pub(crate) fn deliver_passed(&mut self, now: Instant, datagram: Datagram) -> Result<(), MapViolation> {
        self.time.now = now;
        self.arrive(MapNodeId::Element(0), datagram)
    }

    /// Records datagrams that were lost in the network function.
    pub(crate) fn held_back(&mut self, now: Instant, datagrams: u64) {
        self.time.now = self.time.now.max(now);
        self.in_air -= datagrams;
    }

    /// Records a datagram that the network function repeated.
    pub(crate) fn repeated(&mut self) {
        self.in_air += 1;
    }
}
