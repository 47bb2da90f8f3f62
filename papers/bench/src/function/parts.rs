//! Functions of the project in the parts that figures run: unsplit, element program, servers.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use pathcall_netfn::handler::{self, CHandler};
use pathcall_netfn::installer::Installer;
use pathcall_netfn::place::{self, EntryNumber};
use pathcall_netfn::run::{Oracle, SERVER_PORT};
use pathcall_netfn::scale::{self, TopologyDevice};
use pathcall_netfn::serve::{FrameAnswer, FunctionHandler as _, HandlerServer};
use pathcall_p4::exec::{Execution, Output};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{Match, Program, TableEntry, TableId};
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::{SplitFunction, SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Input, Sources, compile};
use pathcall_wire::function::FunctionFrame;

/// Ports at which packets arrive and leave.
pub(crate) const PORT_IN: u16 = 0;
pub(crate) const PORT_OUT: u16 = 1;
/// MAC addresses that a gateway writes: next hop, and its own.
pub(crate) const HOP: u64 = 0x0200_0000_00fe;
const OWN: u64 = 0x0200_0000_00fd;

/// Function that forwards each packet through a server without work (CLIP Fig. 5).
const FORWARD: &str = "#include <inet.p4>
request { @flow bit<32> src; }
response { bit<8> done; }
void remote_handler(in request req, out response res) { res->done = 1; }
struct metadata { }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) {
    apply { req.src = hdr.ipv4.srcAddr; flight = true; }
}
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) {
    apply { sm.egress_spec = sm.ingress_port ^ 1; }
}
#include <pipeline.p4>
";

/// Function, unsplit and split.
pub(crate) struct CompiledFunction {
    pub(crate) sources: Sources,
    pub(crate) whole: Program,
    pub(crate) split: SplitFunction,
}

impl CompiledFunction {
    /// `functions/<name>.p4c`, for an element with `entries` entries.
    pub(crate) fn read(name: &str, entries: u32) -> Result<Self> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../functions").join(format!("{name}.p4c"));
        Self::of(path.as_path().into(), entries, |_| {})
    }

    /// Function of Fig. 5.
    pub(crate) fn forward() -> Result<Self> {
        Self::of(Input::Text { name: "forward.p4c".into(), text: FORWARD.into() }, 1, |_| {})
    }

    /// Gateway, with a group of four next hops behind one port.
    pub(crate) fn gateway(entries: u32) -> Result<Self> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../functions/fib.p4c");
        Self::of(path.as_path().into(), entries, |program| {
            let mut put = |table: &str, key: u128, args: Vec<u128>| {
                let table = program.tables.iter_mut().find(|of| of.name.ends_with(table));
                let table = table.expect("a table of the function");
                let keys = vec![Match { value: key, prefix_bits: 16 }];
                table.entries.push(TableEntry { keys, action: table.actions[0], args });
            };
            put("groups", 1, vec![0, 4]);
            (0..4).for_each(|hop| put("hops", hop, vec![PORT_OUT.into(), HOP.into(), OWN.into()]));
        })
    }

    fn of(input: Input, entries: u32, fill: impl FnOnce(&mut Program)) -> Result<Self> {
        let mut sources = Sources::default();
        let mut whole =
            compile(&mut sources, input).map_err(|wrong| anyhow!("{}", DiagnosticReport(&wrong, &sources)))?;
        fill(&mut whole);
        let target = SplitTarget { function: 1, sizes: Sizes { entries, ..Sizes::default() }, phv_bits: None };
        let split = split(&whole, &target)?;
        Ok(Self { sources, whole, split })
    }

    /// Table with this name in the program.
    pub(crate) fn table(&self, name: &str) -> Result<TableId> {
        let at = self.whole.tables.iter().position(|table| table.name.ends_with(name));
        Ok(TableId(at.with_context(|| format!("no table {name}"))? as u32))
    }

    /// Entry with the table's first action.
    pub(crate) fn entry(&self, table: TableId, keys: Vec<Match>, args: Vec<u128>) -> TableEntry {
        TableEntry { keys, action: self.whole.tables[table.0 as usize].actions[0], args }
    }

    /// Route of tenant 0 to the gateway's group.
    pub(crate) fn route(&self, table: TableId, (value, len): (u32, u8)) -> TableEntry {
        let keys = vec![Match { value: 0, prefix_bits: 16 }, Match { value: value.into(), prefix_bits: len.into() }];
        self.entry(table, keys, vec![1])
    }

    /// Instance of the function's handler.
    pub(crate) fn handler(&self) -> Result<CHandler> {
        let place = |at| {
            let (line, column) = self.sources.position(at);
            Some((self.sources.name(at.file).to_owned(), line, column)).filter(|(name, ..)| !name.is_empty())
        };
        Ok(CHandler::start(&self.whole, &place, &handler::Config::default(), &handler::cache_dir(), 0)?)
    }

    /// Unsplit function on one machine.
    pub(crate) fn alone(&self, entries: &[(TableId, TableEntry)]) -> Result<Oracle<CHandler>> {
        let mut oracle = Oracle::new(&self.whole, self.handler()?)?;
        for (table, entry) in entries {
            ensure!(oracle.handler().put(*table, entry), "the handler has no room");
        }
        oracle.expire(0);
        Ok(oracle)
    }

    /// Server that owns all values.
    pub(crate) fn server(&self, entries: &[(TableId, TableEntry)]) -> Result<HandlerServer<CHandler>> {
        let mut server = HandlerServer::new(0, &self.split, self.handler()?);
        for (at, partition) in self.whole.partitions.iter().enumerate() {
            server.set_ranges(at, &[(partition.first, partition.last)]);
        }
        entries.iter().for_each(|(table, entry)| server.add(*table, entry.clone()));
        Ok(server)
    }

    /// Configures an element to use the server, and to contain these entries.
    pub(crate) fn prepare(&self, element: &mut dyn Execution, entries: &[(TableId, TableEntry)]) -> Result<()> {
        let generated = &self.split.generated;
        let device = TopologyDevice { name: "s1".into(), port: SERVER_PORT, mac: [2, 0, 0, 0, 1, 0], capacity: 1 };
        let mut installer = Installer::new(&self.split.element, generated.balance.clone(), vec![device]);
        element.set_register(generated.address, 0, OWN.into());
        let keys = vec![Match { value: SERVER_PORT.into(), prefix_bits: 9 }];
        element.insert(generated.servers, &TableEntry { keys, action: generated.from_server, args: Vec::new() })?;
        let buckets = 0..1 << generated.balance.sizes.buckets_log2;
        let group = |bucket| scale::Command::Group { version: 1, bucket, server: Some(0), stays: true };
        let version = scale::Command::Version { version: 1, previous: false };
        installer.scale(element, &buckets.map(group).chain([version]).collect::<Vec<_>>());
        let mut next: Vec<EntryNumber> = Vec::new();
        let mut commands = Vec::new();
        for (table, entry) in entries {
            let facts = generated.balance.tables.iter().position(|mirrored| mirrored.table == *table);
            let at = facts.context("entry of a table that is not mirrored")?;
            next.resize(generated.balance.tables.len(), 0);
            let number = generated.balance.tables[at].first_number + next[at];
            next[at] += 1;
            commands.push(place::Command::Insert { table: *table, entry: entry.clone(), number });
        }
        let outcome = installer.place(element, &commands);
        ensure!(outcome.refused.is_empty(), "the element refused {} entries", outcome.refused.len());
        Ok(())
    }

    /// Requests that an element without entries sends to the server for these packets. Without a sequence number:
    /// server and element accept such a packet any number of times.
    pub(crate) fn requests(&self, frames: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let mut element = Interpreter::new(&self.split.element)?;
        self.prepare(&mut element, &[])?;
        let slot = self.split.generated.balance.vars.number.slot;
        let number = self.split.layout.travelling.iter().find(|field| field.slot == Some(slot)).context("no number")?;
        let request = |frame: &Vec<u8>| {
            let mut sent = None;
            element.process(1 << 20, PORT_IN, frame, &mut |output| {
                if let Output::Packet { port: SERVER_PORT, bytes } = output {
                    sent = Some(bytes.to_vec());
                }
            });
            let mut request = sent.context("no request")?;
            number.write(FunctionFrame::new_checked(&mut request[..], self.split.layout.length)?.header_mut(), 0);
            Ok(request)
        };
        frames.iter().map(request).collect()
    }
}

/// Responses of a server to requests.
pub(crate) fn responses(server: &mut HandlerServer<CHandler>, requests: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let answer = |request: &Vec<u8>| {
        let mut frame = request.clone();
        ensure!(server.handle(1 << 20, &mut frame) == FrameAnswer::Send, "the server rejected a request");
        Ok(frame)
    };
    requests.iter().map(answer).collect()
}
