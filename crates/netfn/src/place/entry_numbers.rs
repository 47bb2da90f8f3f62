//! Allocator of entry numbers: a freed number is in quarantine until no packet can name it, and is then reset in the
//! element.

use std::collections::{BTreeSet, VecDeque};

use pathcall_wire::Instant;

use super::EntryNumber;

/// Entry numbers of a table.
#[derive(Debug, Clone)]
pub(super) struct EntryNumbers {
    first: EntryNumber,
    count: u32,
    /// First number that was never allocated.
    next_unused: EntryNumber,
    available: VecDeque<EntryNumber>,
    quarantined: VecDeque<(Instant, EntryNumber)>,
    resetting: BTreeSet<EntryNumber>,
}

impl EntryNumbers {
    pub(super) fn new(first: EntryNumber, count: u32) -> Self {
        let (available, quarantined, resetting) = (VecDeque::new(), VecDeque::new(), BTreeSet::new());
        Self { first, count, next_unused: first, available, quarantined, resetting }
    }

    /// Allocates a number; the one freed longest ago first.
    pub(super) fn take(&mut self) -> Option<EntryNumber> {
        if self.next_unused - self.first < self.count {
            self.next_unused += 1;
            return Some(self.next_unused - 1);
        }
        self.available.pop_front()
    }

    /// Frees a number, which is in quarantine until the given time.
    pub(super) fn free_after(&mut self, number: EntryNumber, until: Instant) {
        self.quarantined.push_back((until, number));
    }

    /// Ends the quarantines that are over, and returns their numbers; the element has to reset them.
    pub(super) fn end_quarantines(&mut self, now: Instant) -> impl Iterator<Item = EntryNumber> + use<> {
        let over = self.quarantined.iter().take_while(|(until, _)| *until <= now).count();
        let numbers: Vec<_> = self.quarantined.drain(..over).map(|(_, number)| number).collect();
        self.resetting.extend(&numbers);
        numbers.into_iter()
    }

    /// Makes a number available after the element has reset it.
    pub(super) fn reset(&mut self, number: EntryNumber) {
        if self.resetting.remove(&number) {
            self.available.push_back(number);
        }
    }

    /// Makes the numbers that wait for a reset available, as the element has restarted.
    pub(super) fn restarted(&mut self) {
        self.available.extend(std::mem::take(&mut self.resetting));
    }

    pub(super) fn owns(&self, number: EntryNumber) -> bool {
        (self.first..self.first + self.count).contains(&number)
    }

    /// End of the next quarantine.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.quarantined.front().map(|(until, _)| *until)
    }
}
