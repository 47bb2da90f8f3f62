//! `function-fig6`: change of the server group without packet loss (CLIP Fig. 6): SNAT in virtual time, with the real
//! element (the interpreter), servers and controller. A lost packet, or a flow with a changed address, fails the
//! figure.
//!
//! ```text
//! set 1  ├──────────────────────────┤             group {1} until 15 s, then {2}
//! set 2  ├────────────────────────────────────┤   existing flows stay with server 1
//! set 3, 4           ├────────────────────────┤   new flows go to server 2
//! ```

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use pathcall_netfn::place::{self, PlacementStrategy};
use pathcall_netfn::run::{Config, System};
use pathcall_p4::exec::Output;

use crate::function::frames::{Flow, has_correct_checksums, udp};
use crate::function::parts::{CompiledFunction, PORT_IN};
use crate::harness::{Bench, Better, Curves, Figure, Kind, Metric, PlotLine};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-fig6",
    about: "simulated: the group of servers changes under traffic",
    kind: Kind::Simulated,
    run,
};

/// Flows of a set, from four hosts. Flows of one host use one server.
const FLOWS_OF_SET: usize = 64;
/// Start and end of each set's flows, seconds (§VII-B).
const SETS: [(u64, u64); 4] = [(1, 31), (1, 40), (16, 40), (16, 40)];
const CHANGE_S: u64 = 15;
const END_S: u64 = 40;
/// Packets per second of a set; the paper has a million.
const RATE: u64 = 1000;
const RATE_QUICK: u64 = 100;
const LOOK_EVERY_US: u64 = 500_000;
/// Latency to a server or back (§VII-B: 9 µs round trip).
const SERVER_LATENCY_US: u64 = 5;

/// Packets that have left: count, and rewritten source of each flow.
#[derive(Default)]
struct Departures {
    packets: u64,
    sources: BTreeMap<u16, [u8; 6]>,
    changed: u64,
    lost: u64,
}

impl Departures {
    fn take(&mut self, output: Output<'_>) {
        match output {
            Output::Packet { bytes, .. } => {
                // The destination port identifies the flow.
                let flow = u16::from_be_bytes([bytes[36], bytes[37]]);
                let source = [bytes[26], bytes[27], bytes[28], bytes[29], bytes[34], bytes[35]];
                self.packets += 1;
                let known = *self.sources.entry(flow).or_insert(source);
                self.changed += u64::from(known != source || !has_correct_checksums(bytes));
            }
            Output::Dropped(_) => self.lost += 1,
            Output::Digest { .. } => {}
        }
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    let rate = bench.size(RATE, RATE_QUICK);
    let function = CompiledFunction::read("snat", 1024)?;
    let element = pathcall_p4::interp::Interpreter::new(&function.split.element)?;
    let handlers = vec![function.handler()?, function.handler()?];
    let place = place::Config { strategy: PlacementStrategy::None, ..place::Config::default() };
    let config = Config { place, ..Config::default() };
    let mut system = System::new(function.split.clone(), element, handlers, 1, &config, |_| SERVER_LATENCY_US);
    let (mut left, mut sent, mut served) = (Departures::default(), 0, Vec::new());
    let mut lines: Vec<PlotLine> = ["server 1", "server 2", "all that left"]
        .map(|name| PlotLine { name: name.to_owned(), points: Vec::new() })
        .into();
    let (mut before, mut changed) = ([0; 3], false);
    let gap_us = 1_000_000 / rate;
    for now_us in (0..END_S * 1_000_000).step_by(gap_us as usize) {
        if now_us >= CHANGE_S * 1_000_000 && !changed {
            system.advance(now_us, &mut |output| left.take(output));
            system.set_wanted(vec![1]);
            changed = true;
        }
        for (set, (from, to)) in SETS.into_iter().enumerate() {
            if (from * 1_000_000..to * 1_000_000).contains(&now_us) {
                let flow = set * FLOWS_OF_SET + (now_us / gap_us) as usize % FLOWS_OF_SET;
                let flow = Flow { dport: 1000 + flow as u16, ..Flow::inside(flow) };
                system.process(now_us, PORT_IN, &udp(flow, 100, [2; 6]), &mut |output| left.take(output));
                sent += 1;
            }
        }
        if now_us % LOOK_EVERY_US < gap_us {
            let mut now = [0, 0, left.packets];
            system.servers().zip(&mut now).for_each(|(server, now)| *now = server.stats().requests);
            let seconds = LOOK_EVERY_US as f64 / 1e6;
            for ((line, now), before) in lines.iter_mut().zip(now).zip(before) {
                line.points.push((now_us as f64 / 1e6, (now - before) as f64 / seconds));
            }
            served.push((now_us / 1_000_000, [now[0] - before[0], now[1] - before[1]]));
            before = now;
        }
    }
    system.finish(&mut |output| left.take(output));
    ensure!(left.lost == 0 && left.packets == sent, "{} of {sent} packets left", left.packets);
    ensure!(left.changed == 0, "{} packets have a wrong source", left.changed);

    let all = |name: &str, unit| Metric::new(name, "all", unit, Better::Higher).expect(1.0);
    bench.row(all("packets that left, of those that came", "packets"), &[left.packets as f64], &[sent as f64]);
    let kept = left.sources.len() as f64;
    bench.row(all("flows that kept their address and port", "flows"), &[kept], &[(SETS.len() * FLOWS_OF_SET) as f64]);
    let share = |seconds: std::ops::Range<u64>, server: usize| {
        let within = served.iter().filter(|(at, _)| seconds.contains(at));
        let of = within.fold([0, 0], |sum, (_, now)| [sum[0] + now[0], sum[1] + now[1]]);
        of[server] as f64 / (of[0] + of[1]).max(1) as f64 * 100.0
    };
    let row = |name: &str| Metric::new(name, "of its flows, all", "%", Better::Higher);
    bench.row(row("after the change: on server 1, sets 1 and 2"), &[share(20..30, 0)], &[50.0]);
    bench.row(row("after the change: on server 2, sets 3 and 4"), &[share(20..30, 1)], &[50.0]);
    let about =
        format!("the group becomes server 2 at {CHANGE_S} s; set 1 ends at 31 s; {rate} packets a second of a set");
    let (x, y) = ("seconds", "packets a second");
    bench.show(Curves { name: "over-time", about, x, y, lines });
    Ok(())
}
