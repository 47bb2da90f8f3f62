//! What a packet costs a function's parts, in memory: nothing of it has travelled by a link.
//!
//! ```text
//! alone  ── one machine runs the function in one piece: interpreter and handler
//! hit    ── the element in the kernel works on the packet itself
//! request ─► server ─► response ── the element sends it, a server's handler works on it, the element takes it back
//! ```
//!
//! The kernel says how long its runs take (`BPF_PROG_TEST_RUN`). Hits are many runs, one after another; a request or a
//! response is another packet afterwards, so each is run once, and the middle of many counts.

use std::hint::black_box;

use anyhow::{Context, Result, ensure};
use pathcall_function::exec::Output;
use pathcall_function::handler::Handler;
use pathcall_function::ir::{Entry, Match, TableId};
use pathcall_function::run::{Oracle, SERVER_PORT};
use pathcall_function::serve::{Answer, Server};
use pathcall_xdp::function::{Config, XdpFunction};

use super::frames::{Flow, HEADERS, Mix, udp};
use super::parts::{Function, PORT_IN, responses};
use super::routes::{Prefix, Random, Zipf};
use super::thread_time;
use crate::harness::Bench;

/// Exponent of Zipf's law over flows.
pub(crate) const ALPHA: f64 = 0.99;
/// Flows of a run.
pub(crate) const FLOWS: usize = 1 << 14;
pub(crate) const FLOWS_QUICK: usize = 1 << 8;
/// 192.0.2.0/28, as the function has it.
pub(crate) const POOL: u32 = 0xc000_0200;
/// Packets of one.
const PACKETS: usize = 1 << 17;
const PACKETS_QUICK: usize = 1 << 10;
/// Packets that are run once each.
const SINGLE: usize = 1 << 12;
const SINGLE_QUICK: usize = 1 << 6;
/// Runs of one hit.
const RUNS: u32 = 1 << 20;
const RUNS_QUICK: u32 = 1 << 12;
/// A route's packet lives for fewer runs than this.
const TTL_RUNS: u32 = 250;
/// Packets at most that are run so: the kernel takes milliseconds to begin with each.
const TTL_PACKETS: u32 = 128;
/// When all of it happens.
const NOW_US: u64 = 1 << 20;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// `XDP_TX`: it leaves.
const LEFT: u32 = 3;

/// Nanoseconds of a packet that goes to a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote {
    pub(crate) request: f64,
    pub(crate) server: f64,
    pub(crate) response: f64,
}

impl Remote {
    /// All of it.
    pub(crate) fn whole(&self) -> f64 {
        self.request + self.server + self.response
    }
}

/// A function, what its tables hold, and its packets.
pub(crate) struct Ready {
    function: Function,
    /// What servers hold from the beginning.
    entries: Vec<(TableId, Entry)>,
    /// What the element holds, for hits.
    placed: Vec<(TableId, Entry)>,
    flows: Vec<Flow>,
    /// Whether a packet can go round through the same flows without end: it costs nothing of it.
    lives: bool,
}

/// A random order of so many numbers that leads from each to another, and through all.
pub(crate) fn cycle(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = Random(5);
    // Sattolo's shuffle leaves one cycle.
    for i in (1..count).rev() {
        order.swap(i, random.next() as usize % i);
    }
    order
}

impl Ready {
    /// Flows from inside, each with an entry that makes it the next flow: a packet passes by all of them.
    pub(crate) fn snat(count: usize) -> Result<Self> {
        let next = cycle(count);
        Self::mapped(count, |flows, n| (flows[next[n]].src, flows[next[n]].sport))
    }

    /// The same flows, with addresses and ports of the pool.
    pub(crate) fn pooled(count: usize) -> Result<Self> {
        Self::mapped(count, |_, n| (POOL + (n % 14) as u32 + 1, 1024 + (n / 14) as u16))
    }

    fn mapped(count: usize, to: impl Fn(&[Flow], usize) -> (u32, u16)) -> Result<Self> {
        let function = Function::read("snat", count.max(1024) as u32)?;
        let flows: Vec<Flow> = (0..count).map(Flow::inside).collect();
        let table = function.table("nat_out")?;
        let entry = |(n, flow): (usize, &Flow)| {
            let keys = [(flow.src.into(), 32), (flow.sport.into(), 16), (17, 8)];
            let keys = keys.map(|(value, prefix_bits)| Match { value, prefix_bits }).to_vec();
            let (addr, port) = to(&flows, n);
            (table, function.entry(table, keys, vec![addr.into(), port.into()]))
        };
        let placed = flows.iter().enumerate().map(entry).collect();
        Ok(Self { function, entries: Vec::new(), placed, flows, lives: true })
    }

    /// Addresses within these routes, of which the element holds as many as it has room for, these among them.
    pub(crate) fn gateway(count: usize, routes: &[Prefix], room: usize) -> Result<Self> {
        let function = Function::gateway(room as u32)?;
        let table = function.table("routes")?;
        let entries: Vec<_> = routes.iter().map(|route| (table, function.route(table, *route))).collect();
        let mut random = Random(7);
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
        Ok(Self { function, entries, placed, flows, lives: false })
    }

    /// A function that sends all to the server.
    pub(crate) fn forward() -> Result<Self> {
        let flows = (0..FLOWS_QUICK).map(Flow::inside).collect();
        Ok(Self { function: Function::forward()?, entries: Vec::new(), placed: Vec::new(), flows, lives: true })
    }

    /// A frame of each flow, as long as a mix has them.
    pub(crate) fn frames(&self, mix: &Mix) -> Vec<Vec<u8>> {
        let mut random = Random(11);
        self.flows.iter().map(|flow| udp(*flow, mix.draw(&mut random), MAC)).collect()
    }

    /// All parts, with what their tables hold.
    pub(crate) fn rig(&self) -> Result<Rig> {
        Ok(Rig {
            alone: self.function.alone(&self.entries)?,
            server: self.function.server(&self.entries)?,
            missing: self.element(&[])?,
            holding: self.element(&self.placed)?,
            flows: self.flows.clone(),
            lives: self.lives,
        })
    }

    /// Frames, as they go to the server and as they come back.
    pub(crate) fn load(&self, bench: &Bench, rig: &mut Rig, frames: Vec<Vec<u8>>) -> Result<Load> {
        let requests = self.function.requests(&frames)?;
        let answers = responses(&mut rig.server, &requests)?;
        let trace = trace(frames.len(), bench.size(PACKETS, PACKETS_QUICK));
        let load = Load { frames, requests, answers, trace };
        // Each flow once before what counts.
        rig.alone(&Load { trace: (0..load.frames.len()).collect(), ..load.clone() })?;
        Ok(load)
    }

    fn element(&self, placed: &[(TableId, Entry)]) -> Result<XdpFunction> {
        let config = Config { testing: true, local_port: None, storage: None };
        let mut element = XdpFunction::load(&self.function.split.element, &config)?;
        self.function.prepare(&mut element, placed)?;
        Ok(element)
    }

    /// The element in the kernel, by interfaces, with what it is to hold.
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

/// A function's parts, ready to run.
pub(crate) struct Rig {
    alone: Oracle<Handler>,
    server: Server<Handler>,
    missing: XdpFunction,
    holding: XdpFunction,
    flows: Vec<Flow>,
    lives: bool,
}

/// Packets of a run.
#[derive(Clone)]
pub(crate) struct Load {
    frames: Vec<Vec<u8>>,
    requests: Vec<Vec<u8>>,
    answers: Vec<Vec<u8>>,
    /// Which of them comes when.
    trace: Vec<usize>,
}

impl Rig {
    /// In one piece: nanoseconds of a packet.
    pub(crate) fn alone(&mut self, load: &Load) -> Result<f64> {
        let mut left = 0;
        let began = thread_time();
        for at in &load.trace {
            self.alone.process(NOW_US, PORT_IN, &load.frames[*at], &mut |output| left += usize::from(leaves(&output)));
        }
        let took = thread_time() - began;
        ensure!(left == load.trace.len(), "{left} of {} packets left", load.trace.len());
        Ok(took.as_nanos() as f64 / load.trace.len() as f64)
    }

    /// By way of a server.
    pub(crate) fn remote(&mut self, quick: bool, load: &Load) -> Result<Remote> {
        let mut frame = Vec::new();
        let began = thread_time();
        for at in &load.trace {
            frame.clear();
            frame.extend_from_slice(&load.requests[*at]);
            ensure!(self.server.handle(NOW_US, &mut frame) == Answer::Send, "a request is refused");
            black_box(&frame);
        }
        let server = (thread_time() - began).as_nanos() as f64 / load.trace.len() as f64;
        let count = if quick { SINGLE_QUICK } else { SINGLE }.min(load.frames.len());
        let mut once = |packets: &[Vec<u8>], port| -> Result<f64> {
            let mut took = Vec::with_capacity(count);
            for packet in &packets[..count] {
                // Says at which port it comes.
                self.missing.run(NOW_US, port, packet, &mut |_| {})?;
                took.push(self.missing.repeat(packet, 1)?.each.as_nanos() as f64);
            }
            took.sort_by(f64::total_cmp);
            Ok(took[count / 2])
        };
        Ok(Remote { request: once(&load.frames, PORT_IN)?, server, response: once(&load.answers, SERVER_PORT)? })
    }

    /// By the element alone; the packet that is left says whether it was a hit.
    pub(crate) fn hit(&mut self, quick: bool) -> Result<f64> {
        let runs = if quick { RUNS_QUICK } else { RUNS };
        if self.lives {
            let frame = udp(self.flows[0], HEADERS + 18, MAC);
            return hits(&mut self.holding, &frame, runs);
        }
        // A hop takes one of a packet's lives: many packets, some runs each.
        let (mut sum, packets) = (0.0, (runs / TTL_RUNS).min(TTL_PACKETS) as usize);
        for flow in self.flows.iter().cycle().take(packets) {
            let mut frame = udp(*flow, HEADERS + 18, MAC);
            frame[22] = 255;
            sum += hits(&mut self.holding, &frame, TTL_RUNS)?;
        }
        Ok(sum / packets as f64)
    }
}

fn hits(element: &mut XdpFunction, frame: &[u8], runs: u32) -> Result<f64> {
    // Says at which port it comes.
    element.run(NOW_US, PORT_IN, frame, &mut |_| {})?;
    let ran = element.repeat(frame, runs)?;
    ensure!(ran.action == LEFT && ran.packet.len() == frame.len(), "no hit: {ran:?}");
    Ok(ran.each.as_nanos() as f64)
}

fn leaves(output: &Output<'_>) -> bool {
    matches!(output, Output::Packet { .. })
}

/// Which flow each packet is of.
pub(crate) fn trace(flows: usize, packets: usize) -> Vec<usize> {
    let (zipf, mut random) = (Zipf::new(flows, ALPHA), Random(13));
    (0..packets).map(|_| zipf.draw(&mut random)).collect()
}

/// The element's program in the kernel; why not, said aloud, where that is not permitted.
pub(crate) fn permitted(bench: &Bench) -> bool {
    let function = Function::forward().and_then(|function| {
        let config = Config { testing: true, local_port: None, storage: None };
        XdpFunction::load(&function.split.element, &config).context("the kernel takes no program")
    });
    if let Err(error) = &function {
        bench.says(&format!("not made: {error:#}"));
    }
    function.is_ok()
}
