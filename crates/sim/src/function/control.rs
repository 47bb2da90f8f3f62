//! Control channel between controller, element and servers: reliable and in order.

use pathcall_netfn::place::{self, LeaseOutput};
use pathcall_netfn::scale;
use pathcall_netfn::serve::Groups;
use pathcall_wire::Instant;

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
                    self.checker.routes(self.time.now, id, Some(&server.tables.routes));
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
            ControllerMessage::Place(place::Output::Release { number, .. }) => server.released(self.time.now, number),
            ControllerMessage::Scale(scale::Output::Group { version, buckets, old, .. }) => {
                let old = old.as_ref().map(|(version, buckets)| (*version, buckets.as_slice()));
                server.group(Groups::new(version, &buckets, old));
            }
            ControllerMessage::Scale(scale::Output::Drain { idle, .. }) => server.drain(self.time.now, idle),
            ControllerMessage::Scale(scale::Output::Give { block: (partition, block), .. }) => {
                server.give(block, self.scaler.partitions()[partition].values(block));
            }
            ControllerMessage::Scale(scale::Output::Take { block: (_, block), .. }) => server.take(block),
            ControllerMessage::Place(_) | ControllerMessage::Scale(_) => {}
        }
        self.exchange_leases(id);
    }

    /// Sends a control message; delivery is reliable and in order.
    pub(super) fn control(&mut self, event: FunctionEvent) {
        self.time.after(self.plan.control, event);
    }

    /// Sends a message of the controller to the process of a server that it knows.
    fn control_server(&mut self, server: u16, message: ControllerMessage) {
        let incarnation = self.known[usize::from(server)];
        self.control(FunctionEvent::ToServer { server, incarnation, message });
    }

    /// Handles outputs and timers of the controller.
    pub(super) fn controller(&mut self) {
        // The output of one may be input to the other: loop until both have none.
        while self.handle_placer_output() || self.handle_scaler_output() {}
        let next = [self.placer.poll_timeout(), self.scaler.poll_timeout()];
        for (which, next) in next.into_iter().enumerate() {
            let next = next.map(|next| next.max(Instant(self.time.now.0 + 1)));
            let event = if which == 0 { FunctionEvent::PlacerWake } else { FunctionEvent::ScalerWake };
            self.time.wake_at(next, &mut self.wakes[which], event);
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
            | place::Output::Release { server, .. } => self.control_server(server, ControllerMessage::Place(output)),
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
                self.time.line(|| format!("{event:?}"));
                match event {
                    scale::Event::Up(server) => self.placer.handle(self.time.now, place::Input::ServerUp(server)),
                    scale::Event::Down { server, .. } => {
                        self.placer.handle(self.time.now, place::Input::ServerDown(server))
                    }
                    // The flows of an overdue server may lose their state.
                    scale::Event::Overdue { .. } => self.checker.record_state_loss(self.time.now),
                    _ => {}
                }
            }
            scale::Output::Group { server, .. }
            | scale::Output::Give { server, .. }
            | scale::Output::Take { server, .. }
            | scale::Output::Drain { server, .. } => self.control_server(server, ControllerMessage::Scale(output)),
        }
        true
    }
}
