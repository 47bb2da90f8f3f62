//! Unsplit function, one instance per loss of state: flows that lost their state continue in a fresh instance.

use std::collections::BTreeMap;

use super::allocated_values::AllocatedValues;
use super::flow_keys;
use super::plan::FunctionKind;
use super::routes;
use super::{Function, OutputItem, routes::RouteChange};
use pathcall_netfn::handler::CHandler;
use pathcall_netfn::run::Oracle;
use pathcall_netfn::serve::FunctionHandler as _;
use pathcall_p4::exec::Output;

/// Output with its flow.
pub type FlowOutput = (Vec<u8>, OutputItem);

/// Collector of outputs, as plain packets by flow.
pub struct OutputCollector<'a> {
    pub kind: FunctionKind,
    pub names: &'a mut AllocatedValues,
    /// Packets of the plan by their key.
    pub packets: &'a BTreeMap<(u16, u16), Vec<u8>>,
    pub left: &'a mut Vec<FlowOutput>,
    pub wrong: &'a mut Option<String>,
}

impl OutputCollector<'_> {
    pub fn take(&mut self, output: Output<'_>) {
        match output {
            Output::Packet { port, bytes } => {
                let packet = super::frame::packet_key(bytes).and_then(|mark| self.packets.get(&mark));
                let plain = match (self.kind, packet) {
                    (FunctionKind::Snat, Some(packet)) => self.names.undo_translation(bytes, packet),
                    _ => Ok(bytes.to_vec()),
                };
                match plain {
                    Ok(plain) => self.left.push((flow_keys::flow(self.kind, &plain), OutputItem::Packet(port, plain))),
                    Err(wrong) => drop(self.wrong.get_or_insert(wrong)),
                }
            }
            Output::Digest { name, values } => {
                self.left.push((flow_keys::digest_flow(values), OutputItem::Digest(name.to_owned(), values.to_vec())));
            }
            Output::Dropped(_) => {}
        }
    }
}

/// Unsplit function, and a second one in which the handler handles every packet, which must agree.
pub struct UnsplitFunction {
    pub oracle: Oracle<CHandler>,
    by_handler: Option<Oracle<CHandler>>,
}

impl UnsplitFunction {
    pub fn new(function: &Function) -> Result<Self, String> {
        let oracle = Oracle::new(&function.program, function.handler()?).map_err(|error| error.to_string())?;
        // With allocated values, both would have to allocate the same ones.
        let by_handler = match function.kind {
            FunctionKind::Trd | FunctionKind::Knock | FunctionKind::Fib => {
                Some(Oracle::by_handler(&function.program, function.handler()?).map_err(|error| error.to_string())?)
            }
            FunctionKind::Snat | FunctionKind::Smooth => None,
        };
        let mut whole = Self { oracle, by_handler };
        if function.kind == FunctionKind::Fib {
            for oracle in whole.each() {
                routes::install_next_hops(&function.program, oracle.execution_mut());
            }
            for entry in routes::initial_routes(&function.program) {
                whole.route(function, &RouteChange::Put(entry));
            }
        }
        Ok(whole)
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Oracle<CHandler>> {
        [&mut self.oracle].into_iter().chain(self.by_handler.as_mut())
    }

    /// Applies a change of routes.
    pub fn route(&mut self, function: &Function, change: &RouteChange) {
        let table = routes::routes_table(&function.program);
        for oracle in self.each() {
            let _there = match change {
                RouteChange::Put(entry) => oracle.handler().put(table, entry),
                RouteChange::Withdraw(keys) => oracle.handler().remove(table, keys),
            };
        }
    }

    /// Runs a packet.
    pub fn process(
        &mut self,
        now_us: u64,
        port: u16,
        packet: &[u8],
        sink: &mut OutputCollector<'_>,
    ) -> Result<(), String> {
        self.oracle.expire(now_us);
        let before = sink.left.len();
        self.oracle.process(now_us, port, packet, &mut |output| sink.take(output));
        let Some(by_handler) = &mut self.by_handler else { return Ok(()) };
        by_handler.expire(now_us);
        let mut left = Vec::new();
        let mut other = OutputCollector { left: &mut left, names: sink.names, wrong: sink.wrong, ..*sink };
        by_handler.process(now_us, port, packet, &mut |output| other.take(output));
        if left == sink.left[before..] {
            return Ok(());
        }
        Err(format!("the handler alone gives {left:x?}, with its entries {:x?}", &sink.left[before..]))
    }
}
