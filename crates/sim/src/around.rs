//! What is around a world that is one of several: the element that all share, machines, links, and what others do for it.

use std::rc::Rc;
use std::time::Duration;

use pathcall_wire::Instant;

use crate::switch::Switch;

/// The host that an element is: on a machine of its own, behind all others.
pub(crate) const ELEMENT: usize = usize::MAX;

/// A machine is not there for the others for a while: it stands still, or nothing comes to it or from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spell {
    /// Which; as many as there are machines for hosts: the element.
    pub machine: usize,
    /// From when on.
    pub since: Instant,
    /// Until when.
    pub until: Instant,
}

/// What is around a world. By itself it has nothing around it.
#[derive(Clone, Default)]
pub(crate) struct Around {
    /// The element.
    pub(crate) switch: Option<Switch>,
    /// Machines, on which the hosts of all worlds are.
    pub(crate) machines: usize,
    /// When they stand still.
    pub(crate) pauses: Rc<[Spell]>,
    /// When nothing comes to them or from them.
    pub(crate) cuts: Rc<[Spell]>,
    /// From when and until when a network function stands before the element.
    pub(crate) front: (Instant, Instant),
    /// The machine with an accelerator, where a selector of paths has the work of servers done.
    pub(crate) placed: Option<usize>,
    /// For how long others may hold up what somebody waits for.
    pub(crate) patience: Duration,
    /// Failures of the element that others tell of, the last ones of the plan.
    pub(crate) failures: usize,
}

impl Around {
    /// The machine of a host.
    pub(crate) fn machine(&self, host: usize) -> usize {
        if host == ELEMENT { self.machines } else { host % self.machines.max(1) }
    }

    /// Until when a host stands still, if it does.
    pub(crate) fn stands(&self, now: Instant, host: usize) -> Option<Instant> {
        let machine = self.machine(host);
        let now_there = |spell: &&Spell| spell.machine == machine && (spell.since..spell.until).contains(&now);
        self.pauses.iter().filter(now_there).map(|spell| spell.until).max()
    }

    /// For how long machines stand still, all together.
    pub(crate) fn stands_for(&self) -> Duration {
        self.pauses.iter().map(|spell| spell.until.since(spell.since)).sum()
    }

    /// Whether nothing passes between two hosts, or between a host and the element.
    pub(crate) fn is_cut(&self, now: Instant, from: Option<usize>, to: Option<usize>) -> bool {
        let (from, to) = (from.map(|host| self.machine(host)), to.map(|host| self.machine(host)));
        let spells = self.cuts.iter().filter(|spell| (spell.since..spell.until).contains(&now));
        from != to && spells.into_iter().any(|spell| [from, to].contains(&Some(spell.machine)))
    }

    /// Whether something stands before the element.
    pub(crate) fn has_front(&self, now: Instant) -> bool {
        (self.front.0..self.front.1).contains(&now)
    }

    /// Whether the work of a host is done by ways that a selector chooses.
    pub(crate) fn is_placed(&self, host: usize) -> bool {
        self.placed == Some(self.machine(host))
    }
}
