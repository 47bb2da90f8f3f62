//! Incidents of the function simulation: faults, and commands of the operator.

use pathcall_netfn::place;
use pathcall_netfn::scale;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{ActionId, Match, TableEntry};

use super::plan::FunctionIncident;
use super::program::PacketKind;
use super::world::{FunctionEvent, FunctionWorld};

impl FunctionWorld<'_> {
    pub(super) fn incident(&mut self, index: usize) {
        let (_, incident) = &self.plan.incidents[index];
        self.time.line(|| format!("{incident:?}"));
        match incident {
            FunctionIncident::Death(server, away) => {
                self.servers[usize::from(*server)] = None;
                self.checker.routes(self.time.now, *server, None);
                self.checker.record_state_loss(self.time.now);
                self.time.after(*away, FunctionEvent::Back(*server));
            }
            FunctionIncident::Restart => self.element_is_lost(),
            FunctionIncident::Want(servers) => {
                self.scaler.handle(self.time.now, scale::Input::SetWanted(servers.clone()));
            }
            FunctionIncident::Route(value, bits, hop) => {
                self.routes.insert((*bits, *value), *hop);
                for id in 0..self.servers.len() {
                    let Some(server) = &mut self.servers[id] else { continue };
                    let keys = vec![Match { value: (*value).into(), prefix_bits: *bits }];
                    let table = PacketKind::Route.table();
                    let action = ActionId(table.0 + 1);
                    let entry = TableEntry { keys, action, args: vec![(*hop).into()] };
                    server.holder.add(&server.tables, table, entry);
                    self.exchange_leases(id as u16);
                }
            }
        }
    }

    pub(super) fn element_is_lost(&mut self) {
        self.element = Interpreter::new(&self.program).expect("the program runs");
        self.boot += 1;
        self.installer.restarted();
        self.checker.record_state_loss(self.time.now);
        self.control(FunctionEvent::ToPlacer { element: None, input: place::Input::ElementRestarted });
        self.control(FunctionEvent::ToScaler { element: None, input: scale::Input::ElementRestarted });
    }
}
