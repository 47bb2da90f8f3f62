//! Control channel between controller, element and servers: reliable and in order.

use pathcall_netfn::place::{self, LeaseOutput};
use pathcall_netfn::scale;
use pathcall_netfn::serve::Groups;
use pathcall_wire::Instant;

use super::server::values;
use super::world::{ControllerMessage, FunctionEvent, FunctionWorld};

impl FunctionWorld<'_> {
    /// Sends the lease messages of a server to the controller, and adds the entries that the leases allow.
    pub(super) fn exchange_leases(&mut self, id: u16) {
        let mut words = Vec::new();
        let Some(server) = &mut self.servers[usize::from(id)] else { return };
        while let Some(output) = server.holder.poll() {
            match output {
                LeaseOutput::Leased { number, entry } => words.push(place::Input::Leased { server: id, number, entry }),
                LeaseOutput::Recall { number } => words.push(place::Input::Recall { server: id, number }),
                LeaseOutput::Add { entry, .. } => {
                    let key = (entry.keys[0].prefix_bits, entry.keys[0].value as u32);
                    server.tables.routes.insert(key, entry.args[0] as u32);
                    self.checker.routes(self.now, id, Some(&server.tables.routes));
                }
            }
        }
        for input in words {
            self.control(FunctionEvent::ToPlacer { element: None, input });
        }
    }

    /// Delivers a message of the controller to a server.
    pub(super) fn deliver_to_server(&mut self, id: u16, incarnation: u32, message: ControllerMessage) {
        let at = usize::from(id);
        if incarnation != self.incarnations[at] {
            return;
        }
        let Some(server) = &mut self.servers[at] else { return };
        match message {
            ControllerMessage::Place(place::Output::Lease { table, key, number, .. }) => {
                server.lease(table, &key, number);
            }
            ControllerMessage::Place(place::Output::Give { given, .. }) => {
                server.given(&given);
                let input = place::Input::Taken { server: id, number: given.number };
                self.control(FunctionEvent::ToPlacer { element: None, input });
            }
            ControllerMessage::Place(place::Output::Release { number, .. }) => server.released(self.now, number),
            ControllerMessage::Scale(scale::Output::Group { version, buckets, old, .. }) => {
                let old = old.as_ref().map(|(version, buckets)| (*version, buckets.as_slice()));
                server.group(Groups::new(version, &buckets, old));
            }
            ControllerMessage::Scale(scale::Output::Drain { idle, .. }) => server.drain(self.now, idle),
            ControllerMessage::Scale(scale::Output::Give { block: (partition, block), .. }) => {
                server.give(block, values(&self.scaler.partitions()[partition], block));
            }
            ControllerMessage::Scale(scale::Output::Take { block: (_, block), .. }) => server.take(block),
            ControllerMessage::Place(_) | ControllerMessage::Scale(_) => {}
        }
        self.exchange_leases(id);
    }

    /// Sends a control message; delivery is reliable and in order.
    pub(super) fn control(&mut self, event: FunctionEvent) {
        self.queue.push(self.now + self.plan.control, event);
    }

    /// Handles outputs and timers of the controller.
    pub(super) fn controller(&mut self) {
        // The output of one may be input to the other: loop until both have none.
        while self.handle_placer_output() || self.handle_scaler_output() {}
        let next = [self.placer.poll_timeout(), self.scaler.poll_timeout()];
        for (which, next) in next.into_iter().enumerate() {
            let Some(next) = next.map(|next| next.max(Instant(self.now.0 + 1))) else { continue };
            if self.wakes[which].is_none_or(|wake| next < wake) {
                self.wakes[which] = Some(next);
                self.queue.push(next, if which == 0 { FunctionEvent::PlacerWake } else { FunctionEvent::ScalerWake });
            }
        }
    }

    fn handle_placer_output(&mut self) -> bool {
        let Some(output) = self.placer.poll() else { return false };
        match output {
            place::Output::Element { batch, commands } => {
                self.control(FunctionEvent::Place { element: self.known_boot, batch, commands });
            }
            place::Output::Lease { server, .. }
            | place::Output::Give { server, .. }
            | place::Output::Release { server, .. } => {
                let incarnation = self.known[usize::from(server)];
                self.control(FunctionEvent::ToServer {
                    server,
                    incarnation,
                    message: ControllerMessage::Place(output),
                });
            }
        }
        true
    }

    fn handle_scaler_output(&mut self) -> bool {
        let Some(output) = self.scaler.poll() else { return false };
        match output {
            scale::Output::Element { batch, commands } => {
                self.control(FunctionEvent::Scale { element: self.known_boot, batch, commands });
            }
            scale::Output::Event(event) => {
                self.say(|| format!("{event:?}"));
                match event {
                    scale::Event::Up(server) => self.placer.handle(self.now, place::Input::ServerUp(server)),
                    scale::Event::Down { server, .. } => self.placer.handle(self.now, place::Input::ServerDown(server)),
                    // The flows of an overdue server may lose their state.
                    scale::Event::Overdue { .. } => self.checker.record_state_loss(self.now),
                    _ => {}
                }
            }
            scale::Output::Group { server, .. }
            | scale::Output::Give { server, .. }
            | scale::Output::Take { server, .. }
            | scale::Output::Drain { server, .. } => {
                let incarnation = self.known[usize::from(server)];
                self.control(FunctionEvent::ToServer {
                    server,
                    incarnation,
                    message: ControllerMessage::Scale(output),
                });
            }
        }
        true
    }
}
