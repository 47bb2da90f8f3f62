//! How entries leave the element: unused, replaced, recalled, or with their servers or the element itself.

use pathcall_wire::{Instant, Mutant, mutant};

use super::placer::{Placed, Placer, Stage, Why};
use super::{Command, EntryNumber, Given, Mode, Output, ServerId};

impl Placer {
    /// The server has it back as soon as the element does not have it any more.
    pub(super) fn recall(&mut self, now: Instant, server: ServerId, number: EntryNumber) {
        match self.entries.get(&number).map(|placed| &placed.stage) {
            None => self.outputs.push_back(Output::Release { server, number }),
            Some(Stage::Asked { waiting, .. }) => {
                for server in waiting.clone() {
                    self.outputs.push_back(Output::Release { server, number });
                }
                let placed = &self.entries[&number];
                self.asked.remove(&(self.tables[placed.table].facts.table, placed.key.clone()));
                self.stats.recalled += 1;
                self.release(now, number, false);
            }
            Some(Stage::Inserting | Stage::In(_)) => self.leave(number, Why::Recalled),
            Some(Stage::Giving(_) | Stage::Leaving) => {}
        }
    }

    /// Has an entry leave the element: at once, or when its servers have its values of registers. Until then packets
    /// carry them.
    pub(super) fn leave(&mut self, number: EntryNumber, why: Why) {
        let Some((table, keys)) = self.matches(number) else { return };
        match why {
            Why::Aged => self.stats.aged += 1,
            Why::Replaced => self.stats.replaced += 1,
            Why::Recalled => self.stats.recalled += 1,
        }
        self.unlist(number, why == Why::Replaced);
        let Some(placed) = self.entries.get_mut(&number) else { return };
        if self.tables[placed.table].facts.handed {
            placed.stage = Stage::Giving(placed.holders.iter().copied().collect());
            self.giving.insert((table, keys.clone()));
            self.commands.push(Command::Mode { table, keys, number, mode: Mode::Pending });
        } else {
            self.remove(number);
        }
    }

    pub(super) fn remove(&mut self, number: EntryNumber) {
        let Some((table, keys)) = self.matches(number) else { return };
        let Some(placed) = self.entries.get_mut(&number) else { return };
        placed.stage = Stage::Leaving;
        self.tables[placed.table].taken -= 1;
        self.giving.remove(&(table, keys.clone()));
        self.commands.push(Command::Remove { table, keys, number });
    }

    /// An entry is not used any more, and these are its values; none, if it never had any.
    pub(super) fn give(&mut self, number: EntryNumber, given: Option<Given>) {
        let stage = self.entries.get(&number).map(|placed| &placed.stage);
        let Some(Stage::Giving(servers)) = stage else { return };
        match given {
            Some(given) if !servers.is_empty() && !mutant::on(Mutant::FunctionValuesKept) => {
                let give = |server: &ServerId| Output::Give { server: *server, given: given.clone() };
                self.outputs.extend(servers.iter().map(give));
            }
            _ => self.remove(number),
        }
    }

    pub(super) fn taken(&mut self, server: ServerId, number: EntryNumber) {
        if let Some(Placed { stage: Stage::Giving(servers), .. }) = self.entries.get_mut(&number)
            && servers.remove(&server)
            && servers.is_empty()
        {
            self.remove(number);
        }
    }

    /// Takes an entry off the lists of what is in the element.
    pub(super) fn unlist(&mut self, number: EntryNumber, note: bool) {
        let Some(placed) = self.entries.get(&number) else { return };
        let Some(entry) = &placed.entry else { return };
        let place = &mut self.tables[placed.table];
        let listed = (place.facts.table, entry.keys.clone());
        if self.by_match.get(&listed) != Some(&number) {
            return;
        }
        self.by_match.remove(&listed);
        let bits: Vec<u16> = entry.keys.iter().map(|key| key.prefix_bits).collect();
        if let Some(count) = place.prefixes.get_mut(&bits) {
            *count -= 1;
            if *count == 0 {
                place.prefixes.remove(&bits);
            }
        }
        if note {
            if place.returns.len() >= 4 * place.facts.capacity as usize {
                place.returns.clear();
            }
            *place.returns.entry(listed.1).or_default() += 1;
        }
    }

    /// Gives an entry back to its servers; its number lies fallow.
    pub(super) fn release(&mut self, now: Instant, number: EntryNumber, left: bool) {
        let Some(placed) = self.entries.remove(&number) else { return };
        for server in placed.holders {
            self.outputs.push_back(Output::Release { server, number });
        }
        let place = &mut self.tables[placed.table];
        if !left {
            place.taken -= 1;
        }
        place.numbers.give(number, now + self.config.reuse_after);
    }

    /// Everything that the element had is its servers' again.
    pub(super) fn restarted(&mut self, now: Instant) {
        let numbers: Vec<EntryNumber> = self.entries.keys().copied().collect();
        for number in numbers {
            let placed = &self.entries[&number];
            if let Stage::Asked { waiting, .. } = &placed.stage {
                let release = |server: &ServerId| Output::Release { server: *server, number };
                self.outputs.extend(waiting.iter().map(release));
            }
            let left = placed.stage == Stage::Leaving;
            self.release(now, number, left);
        }
        self.by_match.clear();
        self.giving.clear();
        self.asked.clear();
        self.batches.clear();
        self.commands.clear();
        // Not yet polled: a batch for the element as it was.
        self.outputs.retain(|output| !matches!(output, Output::Element { .. }));
        self.tables.iter_mut().for_each(|place| {
            place.prefixes.clear();
            place.numbers.restarted();
        });
        self.told = None;
    }

    /// Who is gone answers no more, and what the element has of it goes with it.
    pub(super) fn server_down(&mut self, now: Instant, server: ServerId) {
        self.servers.remove(&server);
        let (mut heard, mut orphans, mut given) = (Vec::new(), Vec::new(), Vec::new());
        for (number, placed) in &mut self.entries {
            let held = !placed.holders.is_empty();
            placed.holders.retain(|holder| *holder != server);
            if held && placed.holders.is_empty() {
                orphans.push(*number);
            }
            match &mut placed.stage {
                Stage::Asked { waiting, .. } => {
                    if waiting.remove(&server) {
                        heard.push(*number);
                    }
                }
                Stage::Giving(servers) => {
                    if servers.remove(&server) && servers.is_empty() {
                        given.push(*number);
                    }
                }
                Stage::Inserting | Stage::In(_) | Stage::Leaving => {}
            }
        }
        given.into_iter().for_each(|number| self.remove(number));
        // Nobody would say when these change, and others get the values that they hold.
        for number in orphans {
            if matches!(self.entries[&number].stage, Stage::Inserting | Stage::In(_)) {
                self.leave(number, Why::Recalled);
            }
        }
        heard.into_iter().for_each(|number| self.answered(now, number));
    }
}
