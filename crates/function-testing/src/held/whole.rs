//! The function in one piece, as often as states of flows were lost: who lost his goes on in a fresh one.

use std::collections::BTreeMap;

use super::keys;
use super::names::Names;
use super::plan::Kind;
use super::routes;
use super::{Function, Item, routes::Change};
use pathcall_function::exec::Output;
use pathcall_function::handler::Handler;
use pathcall_function::run::Oracle;
use pathcall_function::serve::Handler as _;

/// What left, and with which flow.
pub type Left = (Vec<u8>, Item);

/// Takes outputs in, as plain packets by their flows.
pub struct Sink<'a> {
    pub kind: Kind,
    pub names: &'a mut Names,
    /// Packets of the plan by their mark.
    pub packets: &'a BTreeMap<(u16, u16), Vec<u8>>,
    pub left: &'a mut Vec<Left>,
    pub wrong: &'a mut Option<String>,
}

impl Sink<'_> {
    pub fn take(&mut self, output: Output<'_>) {
        match output {
            Output::Packet { port, bytes } => {
                let packet = super::frame::mark(bytes).and_then(|mark| self.packets.get(&mark));
                let plain = match (self.kind, packet) {
                    (Kind::Snat, Some(packet)) => self.names.plain(bytes, packet),
                    _ => Ok(bytes.to_vec()),
                };
                match plain {
                    Ok(plain) => self.left.push((keys::flow(self.kind, &plain), Item::Packet(port, plain))),
                    Err(wrong) => drop(self.wrong.get_or_insert(wrong)),
                }
            }
            Output::Digest { name, values } => {
                self.left.push((keys::told(values), Item::Digest(name.to_owned(), values.to_vec())));
            }
            Output::Dropped(_) => {}
        }
    }
}

/// One function in one piece, and the same with its handler alone, which has to agree.
pub struct Whole {
    pub oracle: Oracle<Handler>,
    by_handler: Option<Oracle<Handler>>,
}

impl Whole {
    pub fn new(function: &Function) -> Result<Self, String> {
        let oracle = Oracle::new(&function.program, function.handler()?).map_err(|error| error.to_string())?;
        // Where values are allocated, the two would have to agree on them.
        let by_handler = match function.kind {
            Kind::Trd | Kind::Knock | Kind::Fib => {
                Some(Oracle::by_handler(&function.program, function.handler()?).map_err(|error| error.to_string())?)
            }
            Kind::Snat | Kind::Smooth => None,
        };
        let mut whole = Self { oracle, by_handler };
        if function.kind == Kind::Fib {
            for oracle in whole.each() {
                routes::equip(&function.program, oracle.execution_mut());
            }
            for entry in routes::initial(&function.program) {
                whole.route(function, &Change::Put(entry));
            }
        }
        Ok(whole)
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Oracle<Handler>> {
        [&mut self.oracle].into_iter().chain(self.by_handler.as_mut())
    }

    /// Changes a route.
    pub fn route(&mut self, function: &Function, change: &Change) {
        let table = routes::mirrored(&function.program);
        for oracle in self.each() {
            let _there = match change {
                Change::Put(entry) => oracle.handler().put(table, entry),
                Change::Withdraw(keys) => oracle.handler().remove(table, keys),
            };
        }
    }

    /// Works on a packet.
    pub fn process(&mut self, now_us: u64, port: u16, packet: &[u8], sink: &mut Sink<'_>) -> Result<(), String> {
        self.oracle.expire(now_us);
        let before = sink.left.len();
        self.oracle.process(now_us, port, packet, &mut |output| sink.take(output));
        let Some(by_handler) = &mut self.by_handler else { return Ok(()) };
        by_handler.expire(now_us);
        let mut left = Vec::new();
        let mut other = Sink { left: &mut left, names: sink.names, wrong: sink.wrong, ..*sink };
        by_handler.process(now_us, port, packet, &mut |output| other.take(output));
        if left == sink.left[before..] {
            return Ok(());
        }
        Err(format!("the handler alone gives {left:x?}, with its entries {:x?}", &sink.left[before..]))
    }
}
