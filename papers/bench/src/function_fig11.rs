//! `function-fig11`: throughput of SNAT and of the gateway's routes over six mixes of traffic (CLIP Fig. 11), from what a
//! packet costs each part, measured in memory: see `work`.

use anyhow::Result;

use crate::harness::{Bench, Figure};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-fig11",
    about: "SNAT and routes over six mixes, split, alone, and all in the element",
    run,
};

#[cfg(feature = "xdp")]
fn run(bench: &mut Bench) -> Result<()> {
    measured::run(bench)
}

#[cfg(not(feature = "xdp"))]
fn run(bench: &mut Bench) -> Result<()> {
    bench.says("not made: the bench was built without XDP (XDP=1)");
    Ok(())
}

#[cfg(feature = "xdp")]
mod measured {
    use std::cell::RefCell;

    use anyhow::Result;
    use pathcall_function::place::Strategy;
    use pathcall_models::function::Match;

    use crate::function::frames::{MIXES, Mix};
    use crate::function::work::{ALPHA, FLOWS, FLOWS_QUICK, Ready, Rig, permitted};
    use crate::function::{placed, routes};
    use crate::harness::{Bench, Better, Line, Metric, Panel, Panels};

    const WORDS: &str = "The paper (§VII-C, Fig. 11): \"Compared to the software-based implementation, CLIP achieves 1.36× to \
        4.05× higher throughput for SNAT and 2.85× to 16.06× higher throughput for FIB.\" Here a packet's time is summed over \
        the processors of element and server, measured in memory; which packets hit is the real controller's choice, \
        simulated.";
    /// The table's room, as a share of the flows: as for the paper's latencies.
    const ROOM: f64 = 0.65;
    const ROUTES_QUICK: usize = 20_000;

    /// A function, and what the paper gained with it: least and most.
    struct Case {
        name: &'static str,
        kind: Match,
        gains: (f64, f64),
    }

    pub(super) fn run(bench: &mut Bench) -> Result<()> {
        if !permitted(bench) {
            return Ok(());
        }
        let flows = bench.size(FLOWS, FLOWS_QUICK);
        let snat = Case { name: "SNAT", kind: Match::Exact, gains: (1.36, 4.05) };
        let mut panels = vec![mixes(bench, &snat, &Ready::snat(flows)?)?];
        let routes = routes::table(bench);
        let routes = &routes[..bench.size(routes.len(), ROUTES_QUICK)];
        let fib = Case { name: "FIB", kind: Match::Longest, gains: (2.85, 16.06) };
        panels.push(mixes(bench, &fib, &Ready::gateway(flows, routes, flows)?)?);
        bench.show_panels(Panels { name: "throughput", words: WORDS, panels });
        Ok(())
    }

    fn mixes(bench: &mut Bench, case: &Case, ready: &Ready) -> Result<Panel> {
        let measured = placed(bench, case.kind, Strategy::Threshold, ALPHA, Some(ROOM));
        let hits = measured.iter().map(|one| one.hits).sum::<f64>() / measured.len() as f64;
        bench.says(&format!("{}: {:.1} % of the packets hit in the element", case.name, hits * 100.0));
        let rig = RefCell::new(ready.rig()?);
        let names = ["split", "a server alone", "all in the element"];
        let mut lines: Vec<Line> = names.map(|name| Line { name: name.to_owned(), points: Vec::new() }).into();
        let mut best = 0.0f64;
        for (at, mix) in MIXES.iter().enumerate() {
            let rates = one(bench, case, ready, &rig, mix, hits)?;
            best = best.max(rates[0] / rates[1]);
            lines.iter_mut().zip(rates).for_each(|(line, rate)| line.points.push((at as f64 + 1.0, rate)));
        }
        let metric = Metric::new(format!("{}, at best: gain", case.name), "a server alone", "x", Better::Higher);
        bench.row(metric.expect(case.gains.1), &[best], &[1.0]);
        let (x, y) = ("mix, as in the table", "packets, millions a second");
        Ok(Panel { title: case.name.to_owned(), x, y, logarithmic: true, lines })
    }

    /// Millions of packets a second: split, alone, in the element.
    fn one(
        bench: &mut Bench,
        case: &Case,
        ready: &Ready,
        rig: &RefCell<Rig>,
        mix: &Mix,
        hits: f64,
    ) -> Result<[f64; 3]> {
        let load = ready.load(bench, &mut rig.borrow_mut(), ready.frames(mix))?;
        let (quick, last) = (bench.size(false, true), RefCell::new([0.0; 3]));
        let note = |which: usize, rate: f64| {
            last.borrow_mut()[which] = rate;
            Ok([rate])
        };
        let split = || {
            let mut rig = rig.borrow_mut();
            let (hit, remote) = (rig.hit(quick)?, rig.remote(quick, &load)?);
            note(0, 1e3 / (hits * hit + (1.0 - hits) * remote.whole()))
        };
        let metric = |peer| {
            let name = format!("{}, {} ({:.0} B)", case.name, mix.name, mix.mean());
            Metric::new(name, peer, "Mpps/CPU", Better::Higher)
        };
        let alone = metric("a server alone").expect(case.gains.0);
        bench.compare([alone], split, || note(1, 1e3 / rig.borrow_mut().alone(&load)?))?;
        let ideal = metric("all in the element").peer_is_limit();
        bench.compare([ideal], split, || note(2, 1e3 / rig.borrow_mut().hit(quick)?))?;
        let rates = *last.borrow();
        Ok(rates)
    }
}
