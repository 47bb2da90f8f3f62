//! Environment of a world: the shared element, machines, links, and interactions with other worlds.

use std::rc::Rc;
use std::time::Duration;

use pathcall_wire::Instant;

use crate::element_program::ElementProgram;

/// Host index of the element, which has a machine of its own.
pub(crate) const ELEMENT: usize = usize::MAX;

/// Time in which a machine is paused or cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineOutage {
    /// Index of the machine; the last index is the element's.
    pub machine: usize,
    /// First instant.
    pub since: Instant,
    /// First instant after it.
    pub until: Instant,
}

/// Environment of a world. The default is empty: the world runs alone.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    /// Shared element.
    pub(crate) switch: Option<ElementProgram>,
    /// Number of machines that the hosts of all worlds run on.
    pub(crate) machines: usize,
    /// Pauses of machines.
    pub(crate) pauses: Rc<[MachineOutage]>,
    /// Times at which a machine neither sends nor receives.
    pub(crate) cuts: Rc<[MachineOutage]>,
    /// Start and end of the time in which frames to the element pass a network function.
    pub(crate) front: (Instant, Instant),
    /// Machine with an accelerator, whose servers' work runs on selected paths.
    pub(crate) placed: Option<usize>,
    /// Time that other worlds may add to a wait.
    pub(crate) wait_limit: Duration,
    /// Number of failures, at the end of the plan's list, that the combined world triggers itself.
    pub(crate) failures: usize,
}

impl Environment {
    /// Machine that a host runs on.
    pub(crate) fn machine(&self, host: usize) -> usize {
        if host == ELEMENT { self.machines } else { host % self.machines.max(1) }
    }

    /// End of the pause that a host is in, if any.
    pub(crate) fn pause_end(&self, now: Instant, host: usize) -> Option<Instant> {
        let machine = self.machine(host);
        let now_there =
            |outage: &&MachineOutage| outage.machine == machine && (outage.since..outage.until).contains(&now);
        self.pauses.iter().filter(now_there).map(|outage| outage.until).max()
    }

    /// Total time of all pauses.
    pub(crate) fn total_pause(&self) -> Duration {
        self.pauses.iter().map(|outage| outage.until.since(outage.since)).sum()
    }

    /// Whether the link between two hosts, or a host and the element, is cut.
    pub(crate) fn is_cut(&self, now: Instant, from: Option<usize>, to: Option<usize>) -> bool {
        let (from, to) = (from.map(|host| self.machine(host)), to.map(|host| self.machine(host)));
        let outages = self.cuts.iter().filter(|outage| (outage.since..outage.until).contains(&now));
        from != to && outages.into_iter().any(|outage| [from, to].contains(&Some(outage.machine)))
    }

    /// Whether frames to the element pass a network function now.
    pub(crate) fn has_front(&self, now: Instant) -> bool {
        (self.front.0..self.front.1).contains(&now)
    }

    /// Whether the work of a host runs on selected paths.
    pub(crate) fn is_placed(&self, host: usize) -> bool {
        self.placed == Some(self.machine(host))
    }
}
