//! Removal of entries from the element: unused, replaced or recalled ones, or after the failure of a server or the
//! element.

use pathcall_wire::{Instant, Mutant, mutant};

use super::placer::{PlacedEntry, Placer, RemovalReason, Stage};
use super::{Command, EntryMode, EntryNumber, EntryValues, Output, ServerId};

impl Placer {
    /// Handles a recall: the entry is released to the server as soon as the element has removed it.
    pub(super) fn handle_recall(&mut self, now: Instant, server: ServerId, number: EntryNumber) {
        match self.entries.get(&number).map(|placed| &placed.stage) {
            None => self.outputs.push_back(Output::Release { server, number }),
            Some(Stage::LeaseRequested { waiting, .. }) => {
                for server in waiting.clone() {
                    self.outputs.push_back(Output::Release { server, number });
                }
                let placed = &self.entries[&number];
                self.lease_requests.remove(&(self.tables[placed.table].facts.table, placed.key.clone()));
                self.stats.recalled += 1;
                self.release(now, number, false);
            }
            Some(Stage::Inserting | Stage::Placed(_)) => self.start_removal(number, RemovalReason::Recalled),
            Some(Stage::ReturningValues(_) | Stage::Removing) => {}
        }
    }

    /// Starts the removal of an entry: at once, or after its servers have received its register values. Until then
    /// packets carry the values.
    pub(super) fn start_removal(&mut self, number: EntryNumber, reason: RemovalReason) {
        let Some((table, keys)) = self.matches(number) else { return };
        match reason {
            RemovalReason::Aged => self.stats.aged += 1,
            RemovalReason::Replaced => self.stats.replaced += 1,
            RemovalReason::Recalled => self.stats.recalled += 1,
        }
        self.remove_from_index(number, reason == RemovalReason::Replaced);
        let Some(placed) = self.entries.get_mut(&number) else { return };
        if self.tables[placed.table].facts.has_values {
            placed.stage = Stage::ReturningValues(placed.holders.iter().copied().collect());
            self.returning_values.insert((table, keys.clone()));
            self.commands.push(Command::Mode { table, keys, number, mode: EntryMode::Pending });
        } else {
            self.remove(number);
        }
    }

    pub(super) fn remove(&mut self, number: EntryNumber) {
        let Some((table, keys)) = self.matches(number) else { return };
        let Some(placed) = self.entries.get_mut(&number) else { return };
        placed.stage = Stage::Removing;
        self.tables[placed.table].taken -= 1;
        self.returning_values.remove(&(table, keys.clone()));
        self.commands.push(Command::Remove { table, keys, number });
    }

    /// Handles the final register values of an entry that is no longer used; `None` if it never had any.
    pub(super) fn handle_final_values(&mut self, number: EntryNumber, given: Option<EntryValues>) {
        let stage = self.entries.get(&number).map(|placed| &placed.stage);
        let Some(Stage::ReturningValues(servers)) = stage else { return };
        match given {
            Some(given) if !servers.is_empty() && !mutant::on(Mutant::FunctionValuesKept) => {
                let give = |server: &ServerId| Output::Give { server: *server, given: given.clone() };
                self.outputs.extend(servers.iter().map(give));
            }
            _ => self.remove(number),
        }
    }

    pub(super) fn handle_taken(&mut self, server: ServerId, number: EntryNumber) {
        if let Some(PlacedEntry { stage: Stage::ReturningValues(servers), .. }) = self.entries.get_mut(&number)
            && servers.remove(&server)
            && servers.is_empty()
        {
            self.remove(number);
        }
    }

    /// Removes an entry from the indices of the element's content.
    pub(super) fn remove_from_index(&mut self, number: EntryNumber, note: bool) {
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

    /// Releases an entry to its servers; its number is not reused for a while.
    pub(super) fn release(&mut self, now: Instant, number: EntryNumber, left: bool) {
        let Some(placed) = self.entries.remove(&number) else { return };
        for server in placed.holders {
            self.outputs.push_back(Output::Release { server, number });
        }
        let place = &mut self.tables[placed.table];
        if !left {
            place.taken -= 1;
        }
        place.numbers.free_after(number, now + self.config.reuse_after);
    }

    /// Handles a restart of the element: releases all entries to their servers.
    pub(super) fn handle_element_restart(&mut self, now: Instant) {
        let numbers: Vec<EntryNumber> = self.entries.keys().copied().collect();
        for number in numbers {
            let placed = &self.entries[&number];
            if let Stage::LeaseRequested { waiting, .. } = &placed.stage {
                let release = |server: &ServerId| Output::Release { server: *server, number };
                self.outputs.extend(waiting.iter().map(release));
            }
            let left = placed.stage == Stage::Removing;
            self.release(now, number, left);
        }
        self.by_match.clear();
        self.returning_values.clear();
        self.lease_requests.clear();
        self.batches.clear();
        self.commands.clear();
        // Batches that were not polled yet were for the element before its restart.
        self.outputs.retain(|output| !matches!(output, Output::Element { .. }));
        self.tables.iter_mut().for_each(|place| {
            place.prefixes.clear();
            place.numbers.restarted();
        });
        self.sent_threshold = None;
    }

    /// Handles the failure of a server: open questions to it are answered, and its entries leave the element.
    pub(super) fn handle_server_down(&mut self, now: Instant, server: ServerId) {
        self.servers.remove(&server);
        let (mut unblocked, mut orphans, mut given) = (Vec::new(), Vec::new(), Vec::new());
        for (number, placed) in &mut self.entries {
            let held = !placed.holders.is_empty();
            placed.holders.retain(|holder| *holder != server);
            if held && placed.holders.is_empty() {
                orphans.push(*number);
            }
            match &mut placed.stage {
                Stage::LeaseRequested { waiting, .. } => {
                    if waiting.remove(&server) {
                        unblocked.push(*number);
                    }
                }
                Stage::ReturningValues(servers) => {
                    if servers.remove(&server) && servers.is_empty() {
                        given.push(*number);
                    }
                }
                Stage::Inserting | Stage::Placed(_) | Stage::Removing => {}
            }
        }
        given.into_iter().for_each(|number| self.remove(number));
        // No server is left that would report changes of these entries, and others may get the values that they hold.
        for number in orphans {
            if matches!(self.entries[&number].stage, Stage::Inserting | Stage::Placed(_)) {
                self.start_removal(number, RemovalReason::Recalled);
            }
        }
        unblocked.into_iter().for_each(|number| self.finish_lease_request(now, number));
    }
}
