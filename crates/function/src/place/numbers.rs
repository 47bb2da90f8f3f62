//! Numbers of entries: free, given, fallow until no packet can still name them, then reset in the element.

use std::collections::{BTreeSet, VecDeque};

use pathcall_wire::Instant;

use super::EntryNumber;

/// The numbers of a table.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    first: EntryNumber,
    count: u32,
    /// Never given so far: from here on.
    fresh: EntryNumber,
    free: VecDeque<EntryNumber>,
    fallow: VecDeque<(Instant, EntryNumber)>,
    resetting: BTreeSet<EntryNumber>,
}

impl Numbers {
    pub(super) fn new(first: EntryNumber, count: u32) -> Self {
        let (free, fallow, resetting) = (VecDeque::new(), VecDeque::new(), BTreeSet::new());
        Self { first, count, fresh: first, free, fallow, resetting }
    }

    /// One that nobody has; those least lately used first.
    pub(super) fn take(&mut self) -> Option<EntryNumber> {
        if self.fresh - self.first < self.count {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.free.pop_front()
    }

    /// Takes one back, fallow until then.
    pub(super) fn give(&mut self, number: EntryNumber, until: Instant) {
        self.fallow.push_back((until, number));
    }

    /// Those whose time is over: the element is to reset them.
    pub(super) fn fallow_until(&mut self, now: Instant) -> impl Iterator<Item = EntryNumber> + use<> {
        let over = self.fallow.iter().take_while(|(until, _)| *until <= now).count();
        let numbers: Vec<_> = self.fallow.drain(..over).map(|(_, number)| number).collect();
        self.resetting.extend(&numbers);
        numbers.into_iter()
    }

    /// The element has reset it.
    pub(super) fn reset(&mut self, number: EntryNumber) {
        if self.resetting.remove(&number) {
            self.free.push_back(number);
        }
    }

    /// The element has reset them all, by itself.
    pub(super) fn restarted(&mut self) {
        self.free.extend(std::mem::take(&mut self.resetting));
    }

    pub(super) fn owns(&self, number: EntryNumber) -> bool {
        (self.first..self.first + self.count).contains(&number)
    }

    /// When the next one's time is over.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.fallow.front().map(|(until, _)| *until)
    }
}
