//! What goes between the controller, the element and servers: nothing is lost there, and nothing overtakes.

use pathcall_function::place::{self, HolderOutput};
use pathcall_function::scale;
use pathcall_function::serve::Groups;
use pathcall_wire::Instant;

use super::server::values;
use super::world::{Happening, Word, World};

impl World<'_> {
    /// What a server's leases have to say goes to the controller; what may be added is added.
    pub(super) fn holder(&mut self, id: u16) {
        let mut words = Vec::new();
        let Some(server) = &mut self.servers[usize::from(id)] else { return };
        while let Some(output) = server.holder.poll() {
            match output {
                HolderOutput::Leased { number, entry } => {
                    words.push(place::Input::Leased { server: id, number, entry })
                }
                HolderOutput::Recall { number } => words.push(place::Input::Recall { server: id, number }),
                HolderOutput::Add { entry, .. } => {
                    let key = (entry.keys[0].prefix_bits, entry.keys[0].value as u32);
                    server.tables.routes.insert(key, entry.args[0] as u32);
                    self.judge.routes(self.now, id, Some(&server.tables.routes));
                }
            }
        }
        for input in words {
            self.control(Happening::ToPlacer { element: None, input });
        }
    }

    /// The controller's word.
    pub(super) fn told(&mut self, id: u16, incarnation: u32, word: Word) {
        let at = usize::from(id);
        if incarnation != self.incarnations[at] {
            return;
        }
        let Some(server) = &mut self.servers[at] else { return };
        match word {
            Word::Place(place::Output::Lease { table, key, number, .. }) => {
                server.lease(table, &key, number);
            }
            Word::Place(place::Output::Give { given, .. }) => {
                server.given(&given);
                let input = place::Input::Taken { server: id, number: given.number };
                self.control(Happening::ToPlacer { element: None, input });
            }
            Word::Place(place::Output::Release { number, .. }) => server.released(self.now, number),
            Word::Scale(scale::Output::Group { version, buckets, old, .. }) => {
                let old = old.as_ref().map(|(version, buckets)| (*version, buckets.as_slice()));
                server.group(Groups::new(version, &buckets, old));
            }
            Word::Scale(scale::Output::Drain { idle, .. }) => server.drain(self.now, idle),
            Word::Scale(scale::Output::Give { block: (partition, block), .. }) => {
                server.give(block, values(&self.scaler.partitions()[partition], block));
            }
            Word::Scale(scale::Output::Take { block: (_, block), .. }) => server.take(block),
            Word::Place(_) | Word::Scale(_) => {}
        }
        self.holder(id);
    }

    /// Something that goes by way of the controller's connections: nothing is lost, nothing overtakes.
    pub(super) fn control(&mut self, happening: Happening) {
        self.queue.push(self.now + self.plan.control, happening);
    }

    /// What the controller has to say, and its timers.
    pub(super) fn controller(&mut self) {
        // What one says may be the other's business: until both are silent.
        while self.placer_says() || self.scaler_says() {}
        let next = [self.placer.poll_timeout(), self.scaler.poll_timeout()];
        for (which, next) in next.into_iter().enumerate() {
            let Some(next) = next.map(|next| next.max(Instant(self.now.0 + 1))) else { continue };
            if self.wakes[which].is_none_or(|wake| next < wake) {
                self.wakes[which] = Some(next);
                self.queue.push(next, if which == 0 { Happening::PlacerWake } else { Happening::ScalerWake });
            }
        }
    }

    fn placer_says(&mut self) -> bool {
        let Some(output) = self.placer.poll() else { return false };
        match output {
            place::Output::Element { batch, commands } => {
                self.control(Happening::Place { element: self.known_boot, batch, commands });
            }
            place::Output::Lease { server, .. }
            | place::Output::Give { server, .. }
            | place::Output::Release { server, .. } => {
                let incarnation = self.known[usize::from(server)];
                self.control(Happening::ToServer { server, incarnation, word: Word::Place(output) });
            }
        }
        true
    }

    fn scaler_says(&mut self) -> bool {
        let Some(output) = self.scaler.poll() else { return false };
        match output {
            scale::Output::Element { batch, commands } => {
                self.control(Happening::Scale { element: self.known_boot, batch, commands });
            }
            scale::Output::Event(event) => {
                self.say(|| format!("{event:?}"));
                match event {
                    scale::Event::Up(server) => self.placer.handle(self.now, place::Input::ServerUp(server)),
                    scale::Event::Down { server, .. } => {
                        self.placer.handle(self.now, place::Input::ServerDown(server))
                    }
                    // Their state is where nobody goes any more.
                    scale::Event::Overdue { .. } => self.judge.shaken(self.now),
                    _ => {}
                }
            }
            scale::Output::Group { server, .. }
            | scale::Output::Give { server, .. }
            | scale::Output::Take { server, .. }
            | scale::Output::Drain { server, .. } => {
                let incarnation = self.known[usize::from(server)];
                self.control(Happening::ToServer { server, incarnation, word: Word::Scale(output) });
            }
        }
        true
    }
}
