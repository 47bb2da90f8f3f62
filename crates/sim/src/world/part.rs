//! The run beside others: what others do to the element that they share, and what comes through what stands before it.

use pathcall_wire::Instant;

use super::World;
use crate::judge::Failure;
use crate::network::Datagram;
use crate::party::Node;

impl World<'_> {
    /// The element that is shared fails: the n-th failure of the scenario.
    pub(crate) fn element_fails(&mut self, now: Instant, index: usize) {
        self.now = now;
        self.fail(index);
    }

    /// What has passed what stands before the element comes to it.
    pub(crate) fn passed(&mut self, now: Instant, datagram: Datagram) -> Result<(), Failure> {
        self.now = now;
        self.arrive(Node::Element(0), datagram)
    }

    /// So many datagrams did not pass.
    pub(crate) fn held_back(&mut self, now: Instant, datagrams: u64) {
        self.now = self.now.max(now);
        self.in_air -= datagrams;
    }

    /// One comes that came before.
    pub(crate) fn repeated(&mut self) {
        self.in_air += 1;
    }
}
