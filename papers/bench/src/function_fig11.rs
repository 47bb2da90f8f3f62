//! `function-fig11`: throughput of SNAT and of the gateway's routes over six traffic mixes (CLIP Fig. 11), from the
//! cost of a packet in each part, measured in memory: see `packet_cost`. The peer is the same function written by hand
//! in C for a server: see `native`.

use anyhow::Result;

use crate::harness::{Bench, Figure, Kind};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-fig11",
    about: "SNAT and routes over six mixes, split, in native C, and all in the element",
    kind: Kind::Measured,
    run,
};

#[cfg(feature = "xdp")]
fn run(bench: &mut Bench) -> Result<()> {
    measured::run(bench)
}

#[cfg(not(feature = "xdp"))]
fn run(bench: &mut Bench) -> Result<()> {
    bench.print_note("not made: the bench was built without XDP (XDP=1)");
    Ok(())
}

#[cfg(feature = "xdp")]
mod measured {
    use std::cell::RefCell;

    use anyhow::Result;
    use pathcall_models::function::MatchKind;
    use pathcall_netfn::place::PlacementStrategy;

    use crate::function::frames::{MIXES, Mix};
    use crate::function::native::NativeProgram;
    use crate::function::packet_cost::{ALPHA, FLOWS, FLOWS_QUICK, FunctionParts, LoadedFunction, xdp_available};
    use crate::function::{placed, routes};
    use crate::harness::{Bench, Better, Metric, Panel, Panels, PlotLine};

    const WORDS: &str = "The paper (§VII-C, Fig. 11): \"Compared to the software-based implementation, CLIP achieves 1.36× to \
        4.05× higher throughput for SNAT and 2.85× to 16.06× higher throughput for FIB.\" Here a packet's time is summed over \
        the processors of element and server, measured in memory; which packets hit is the real controller's choice, \
        simulated.";
    const NATIVE: &str = "native C on a server alone";
    /// Room of the table, as a share of the flows: as for the paper's latencies.
    const ROOM: f64 = 0.65;
    const ROUTES_QUICK: usize = 20_000;

    /// Function with the paper's least gain.
    struct FunctionCase {
        name: &'static str,
        kind: MatchKind,
        gain: f64,
    }

    pub(super) fn run(bench: &mut Bench) -> Result<()> {
        if !xdp_available(bench) {
            return Ok(());
        }
        let native = match NativeProgram::compile() {
            Ok(native) => native,
            Err(error) => {
                bench.print_note(&format!("not made: {error:#}"));
                return Ok(());
            }
        };
        let flows = bench.size(FLOWS, FLOWS_QUICK);
        let snat = FunctionCase { name: "SNAT", kind: MatchKind::Exact, gain: 1.36 };
        let mut panels = vec![mixes(bench, &snat, &LoadedFunction::snat(flows)?, &native)?];
        let routes = routes::table(bench);
        let routes = &routes[..bench.size(routes.len(), ROUTES_QUICK)];
        let fib = FunctionCase { name: "FIB", kind: MatchKind::Longest, gain: 2.85 };
        panels.push(mixes(bench, &fib, &LoadedFunction::gateway(flows, routes, flows)?, &native)?);
        bench.show_panels(Panels { name: "throughput", words: WORDS, panels });
        Ok(())
    }

    fn mixes(bench: &mut Bench, case: &FunctionCase, ready: &LoadedFunction, native: &NativeProgram) -> Result<Panel> {
        let measured = placed(bench, case.kind, PlacementStrategy::Threshold, ALPHA, Some(ROOM));
        let hits = measured.iter().map(|one| one.hits).sum::<f64>() / measured.len() as f64;
        bench.print_note(&format!("{}: {:.1} % of the packets hit in the element", case.name, hits * 100.0));
        let parts = RefCell::new(ready.parts()?);
        let names = ["split", "native C alone", "all in the element"];
        let mut lines: Vec<PlotLine> = names.map(|name| PlotLine { name: name.to_owned(), points: Vec::new() }).into();
        for (at, mix) in MIXES.iter().enumerate() {
            let rates = one(bench, case, ready, &parts, (mix, hits), native)?;
            lines.iter_mut().zip(rates).for_each(|(line, rate)| line.points.push((at as f64 + 1.0, rate)));
        }
        let (x, y) = ("mix, as in the table", "packets, millions a second");
        Ok(Panel { title: case.name.to_owned(), x, y, logarithmic: true, lines })
    }

    /// Millions of packets per second: split, by native C alone, in the element.
    fn one(
        bench: &mut Bench,
        case: &FunctionCase,
        ready: &LoadedFunction,
        parts: &RefCell<FunctionParts>,
        (mix, hits): (&Mix, f64),
        native: &NativeProgram,
    ) -> Result<[f64; 3]> {
        let load = ready.load(bench, &mut parts.borrow_mut(), ready.frames(mix))?;
        let (quick, last) = (bench.size(false, true), RefCell::new([0.0; 3]));
        let note = |which: usize, rate: f64| {
            last.borrow_mut()[which] = rate;
            Ok([rate])
        };
        let split = || {
            let mut parts = parts.borrow_mut();
            let (hit, remote) = (parts.hit(quick)?, parts.remote(quick, &load)?);
            note(0, 1e3 / (hits * hit + (1.0 - hits) * remote.whole()))
        };
        let metric = |peer| {
            let name = format!("{}, {} ({:.0} B)", case.name, mix.name, mix.mean());
            Metric::new(name, peer, "Mpps/CPU", Better::Higher)
        };
        let native = ready.native(native, &mut parts.borrow_mut(), &load)?;
        let alone = metric(NATIVE).expect(case.gain);
        bench.compare([alone], split, || note(1, 1e3 / native.packet_ns()?))?;
        let ideal = metric("all in the element").peer_is_limit();
        bench.compare([ideal], split, || note(2, 1e3 / parts.borrow_mut().hit(quick)?))?;
        let rates = *last.borrow();
        Ok(rates)
    }
}
