//! Cost of a packet in the parts of a function, in memory, without links.
//!
//! ```text
//! hit    ── the element in the kernel processes the packet alone
//! request ─► server ─► response ── from the element through a server's handler back to the element
//! ```
//!
//! The kernel reports the time of its runs (`BPF_PROG_TEST_RUN`). Hits are many consecutive runs. A request or a
//! response changes the packet, so each is run once, and the median of many is taken.

use std::hint::black_box;

use anyhow::{Context, Result, ensure};
use pathcall_netfn::handler::CHandler;
use pathcall_netfn::run::{Oracle, SERVER_PORT};
use pathcall_netfn::serve::{FrameAnswer, HandlerServer};
use pathcall_p4::exec::Output;
use pathcall_p4::ir::{Match, TableEntry, TableId};
use pathcall_xdp::function::{Config, XdpFunction};

use super::frames::{Flow, HEADERS, Mix, udp};
use super::native::{NativeLoad, NativeProgram};
use super::parts::{CompiledFunction, PORT_IN, responses};
use super::routes::{Prefix, XorShift, Zipf};
use super::thread_time;
use crate::harness::Bench;

/// Exponent of Zipf's law over flows.
pub(crate) const ALPHA: f64 = 0.99;
/// Flows of a run.
pub(crate) const FLOWS: usize = 1 << 14;
pub(crate) const FLOWS_QUICK: usize = 1 << 8;
/// Address pool 192.0.2.0/28 of the function.
pub(crate) const POOL: u32 = 0xc000_0200;
/// Packets of a run through a server.
const PACKETS: usize = 1 << 17;
const PACKETS_QUICK: usize = 1 << 10;
/// Packets that are run once each.
const SINGLE: usize = 1 << 12;
const SINGLE_QUICK: usize = 1 << 6;
/// Runs of one hit.
const RUNS: u32 = 1 << 20;
const RUNS_QUICK: u32 = 1 << 12;
/// Maximum number of runs of a packet with routes, because of its TTL.
const TTL_RUNS: u32 = 250;
/// Maximum number of such packets: the kernel takes milliseconds to start each.
const TTL_PACKETS: u32 = 128;
/// Time of all packets.
const NOW_US: u64 = 1 << 20;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// `XDP_TX`: the packet leaves.
const LEFT: u32 = 3;

/// Nanoseconds of a packet that passes a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteCost {
    pub(crate) request: f64,
    pub(crate) server: f64,
    pub(crate) response: f64,
}

impl RemoteCost {
    /// Sum of all parts.
    pub(crate) fn whole(&self) -> f64 {
        self.request + self.server + self.response
    }
}

/// Function with the content of its tables, and its packets.
pub(crate) struct LoadedFunction {
    /// Name in the native program.
    name: &'static str,
    function: CompiledFunction,
    /// Initial entries of the servers.
    entries: Vec<(TableId, TableEntry)>,
    /// Entries of the element, for hits.
    placed: Vec<(TableId, TableEntry)>,
    flows: Vec<Flow>,
    /// True if a packet can cycle through the flows without end, unchanged in TTL.
    is_endless: bool,
}

/// Random permutation of `count` numbers with a single cycle.
pub(crate) fn cycle(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = XorShift(5);
    // Sattolo's shuffle gives one cycle.
    for i in (1..count).rev() {
        order.swap(i, random.next() as usize % i);
    }
    order
}

impl LoadedFunction {
    /// Flows from inside, each with an entry that maps it to the next flow: a packet passes all flows.
    pub(crate) fn snat(count: usize) -> Result<Self> {
        let next = cycle(count);
        Self::mapped(count, |flows, n| (flows[next[n]].src, flows[next[n]].sport))
    }

    /// The same flows, with addresses and ports of the pool.
    pub(crate) fn pooled(count: usize) -> Result<Self> {
        Self::mapped(count, |_, n| (POOL + (n % 14) as u32 + 1, 1024 + (n / 14) as u16))
    }

    fn mapped(count: usize, to: impl Fn(&[Flow], usize) -> (u32, u16)) -> Result<Self> {
        let function = CompiledFunction::read("snat", count.max(1024) as u32)?;
        let flows: Vec<Flow> = (0..count).map(Flow::inside).collect();
        let table = function.table("nat_out")?;
        let entry = |(n, flow): (usize, &Flow)| {
            let keys = [(flow.src.into(), 32), (flow.sport.into(), 16), (17, 8)];
            let keys = keys.map(|(value, prefix_bits)| Match { value, prefix_bits }).to_vec();
            let (addr, port) = to(&flows, n);
            (table, function.entry(table, keys, vec![addr.into(), port.into()]))
        };
        let placed = flows.iter().enumerate().map(entry).collect();
        Ok(Self { name: "snat", function, entries: Vec::new(), placed, flows, is_endless: true })
    }

    /// Addresses within these routes. The element contains as many routes as fit, including those of the addresses.
    pub(crate) fn gateway(count: usize, routes: &[Prefix], room: usize) -> Result<Self> {
        let function = CompiledFunction::gateway(room as u32)?;
        let table = function.table("routes")?;
        let entries: Vec<_> = routes.iter().map(|route| (table, function.route(table, *route))).collect();
        let mut random = XorShift(7);
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < count.min(routes.len() / 2) {
            chosen.insert(random.next() as usize % routes.len());
        }
        let more = (0..routes.len()).filter(|at| !chosen.contains(at)).take(room.saturating_sub(chosen.len()));
        let placed = chosen.iter().copied().chain(more).map(|at| entries[at].clone()).collect();
        let flow = |(n, at): (usize, &usize)| {
            let (value, len) = routes[*at];
            let dst = value | random.next() & u32::MAX.checked_shr(len.into()).unwrap_or(0);
            Flow { dst, ..Flow::inside(n) }
        };
        let flows = chosen.iter().enumerate().map(flow).collect();
        Ok(Self { name: "fib", function, entries, placed, flows, is_endless: false })
    }

    /// Function that sends all packets to the server.
    pub(crate) fn forward() -> Result<Self> {
        let flows = (0..FLOWS_QUICK).map(Flow::inside).collect();
        Ok(Self {
            name: "forward",
            function: CompiledFunction::forward()?,
            entries: Vec::new(),
            placed: Vec::new(),
            flows,
            is_endless: true,
        })
    }

    /// Frame of each flow, with lengths of a mix.
    pub(crate) fn frames(&self, mix: &Mix) -> Vec<Vec<u8>> {
        let mut random = XorShift(11);
        self.flows.iter().map(|flow| udp(*flow, mix.draw(&mut random), MAC)).collect()
    }

    /// All parts, with the content of their tables.
    pub(crate) fn parts(&self) -> Result<FunctionParts> {
        Ok(FunctionParts {
            alone: self.function.alone(&self.entries)?,
            server: self.function.server(&self.entries)?,
            empty_element: self.element(&[])?,
            filled_element: self.element(&self.placed)?,
            flows: self.flows.clone(),
            is_endless: self.is_endless,
        })
    }

    /// Frames, as requests to the server and as its responses.
    pub(crate) fn load(&self, bench: &Bench, parts: &mut FunctionParts, frames: Vec<Vec<u8>>) -> Result<PacketTrace> {
        let requests = self.function.requests(&frames)?;
        let answers = responses(&mut parts.server, &requests)?;
        let trace = trace(frames.len(), bench.size(PACKETS, PACKETS_QUICK));
        Ok(PacketTrace { frames, requests, answers, trace })
    }

    /// The same packets for the native program, which has to make the same of them: it gets the routes, or the
    /// addresses and ports that the handler has chosen.
    pub(crate) fn native<'a>(
        &self,
        program: &'a NativeProgram,
        parts: &mut FunctionParts,
        load: &PacketTrace,
    ) -> Result<NativeLoad<'a>> {
        let left = parts.left(load)?;
        let route = |(_, entry): &(TableId, TableEntry)| {
            let Match { value, prefix_bits } = entry.keys[1];
            [value as u32, prefix_bits.into(), entry.args[0] as u32, 0]
        };
        let mapping = |(flow, frame): (&Flow, &Vec<u8>)| {
            let addr = u32::from_be_bytes([frame[26], frame[27], frame[28], frame[29]]);
            [flow.src, u32::from(flow.sport) | 17 << 16, addr, u16::from_be_bytes([frame[34], frame[35]]).into()]
        };
        let table: Vec<[u32; 4]> = match self.name {
            "snat" => self.flows.iter().zip(&left).map(mapping).collect(),
            _ => self.entries.iter().map(route).collect(),
        };
        program.load(self.name, &table, &load.frames, &load.trace, &left)
    }

    fn element(&self, placed: &[(TableId, TableEntry)]) -> Result<XdpFunction> {
        let config = Config { testing: true, local_port: None, storage: None };
        let mut element = XdpFunction::load(&self.function.split.element, &config)?;
        self.function.prepare(&mut element, placed)?;
        Ok(element)
    }

    /// Element in the kernel, by interfaces, with its entries.
    pub(crate) fn by_interfaces(&self) -> Result<XdpFunction> {
        let config = Config { testing: false, local_port: None, storage: None };
        let mut element = XdpFunction::load(&self.function.split.element, &config)?;
        self.function.prepare(&mut element, &self.placed)?;
        Ok(element)
    }

    pub(crate) fn flows(&self) -> &[Flow] {
        &self.flows
    }
}

/// Parts of a function, ready to run.
pub(crate) struct FunctionParts {
    alone: Oracle<CHandler>,
    server: HandlerServer<CHandler>,
    empty_element: XdpFunction,
    filled_element: XdpFunction,
    flows: Vec<Flow>,
    is_endless: bool,
}

/// Packets of a run.
pub(crate) struct PacketTrace {
    frames: Vec<Vec<u8>>,
    requests: Vec<Vec<u8>>,
    answers: Vec<Vec<u8>>,
    /// Index of the packet at each step.
    trace: Vec<usize>,
}

impl FunctionParts {
    /// Each frame as it leaves the unsplit function.
    fn left(&mut self, load: &PacketTrace) -> Result<Vec<Vec<u8>>> {
        let one = |frame: &Vec<u8>| {
            let mut left = None;
            self.alone.process(NOW_US, PORT_IN, frame, &mut |output| {
                if let Output::Packet { bytes, .. } = output {
                    left = Some(bytes.to_vec());
                }
            });
            left.context("a packet did not leave")
        };
        load.frames.iter().map(one).collect()
    }

    /// Nanoseconds per packet through a server.
    pub(crate) fn remote(&mut self, quick: bool, load: &PacketTrace) -> Result<RemoteCost> {
        let mut frame = Vec::new();
        let began = thread_time();
        for at in &load.trace {
            frame.clear();
            frame.extend_from_slice(&load.requests[*at]);
            ensure!(self.server.handle(NOW_US, &mut frame) == FrameAnswer::Send, "the server rejected a request");
            black_box(&frame);
        }
        let server = (thread_time() - began).as_nanos() as f64 / load.trace.len() as f64;
        let count = if quick { SINGLE_QUICK } else { SINGLE }.min(load.frames.len());
        let mut once = |packets: &[Vec<u8>], port| -> Result<f64> {
            let mut took = Vec::with_capacity(count);
            for packet in &packets[..count] {
                // Sets the input port.
                self.empty_element.run(NOW_US, port, packet, &mut |_| {})?;
                took.push(self.empty_element.repeat(packet, 1)?.each.as_nanos() as f64);
            }
            took.sort_by(f64::total_cmp);
            Ok(took[count / 2])
        };
        Ok(RemoteCost { request: once(&load.frames, PORT_IN)?, server, response: once(&load.answers, SERVER_PORT)? })
    }

    /// Nanoseconds per packet in the element alone; the remaining packet is checked to be a hit.
    pub(crate) fn hit(&mut self, quick: bool) -> Result<f64> {
        let runs = if quick { RUNS_QUICK } else { RUNS };
        if self.is_endless {
            let frame = udp(self.flows[0], HEADERS + 18, MAC);
            return run_hits(&mut self.filled_element, &frame, runs);
        }
        // Each hop reduces the TTL of a packet: many packets, several runs each.
        let (mut sum, packets) = (0.0, (runs / TTL_RUNS).min(TTL_PACKETS) as usize);
        for flow in self.flows.iter().cycle().take(packets) {
            let mut frame = udp(*flow, HEADERS + 18, MAC);
            frame[22] = 255;
            sum += run_hits(&mut self.filled_element, &frame, TTL_RUNS)?;
        }
        Ok(sum / packets as f64)
    }
}

fn run_hits(element: &mut XdpFunction, frame: &[u8], runs: u32) -> Result<f64> {
    // Sets the input port.
    element.run(NOW_US, PORT_IN, frame, &mut |_| {})?;
    let ran = element.repeat(frame, runs)?;
    ensure!(ran.action == LEFT && ran.packet.len() == frame.len(), "no hit: {ran:?}");
    Ok(ran.each.as_nanos() as f64)
}

/// Flow of each packet.
pub(crate) fn trace(flows: usize, packets: usize) -> Vec<usize> {
    let (zipf, mut random) = (Zipf::new(flows, ALPHA), XorShift(13));
    (0..packets).map(|_| zipf.draw(&mut random)).collect()
}

/// True if the element's program in the kernel is available; otherwise prints the reason.
pub(crate) fn xdp_available(bench: &Bench) -> bool {
    let function = CompiledFunction::forward().and_then(|function| {
        let config = Config { testing: true, local_port: None, storage: None };
        XdpFunction::load(&function.split.element, &config).context("the kernel rejected the program")
    });
    if let Err(error) = &function {
        bench.print_note(&format!("not made: {error:#}"));
    }
    function.is_ok()
}
