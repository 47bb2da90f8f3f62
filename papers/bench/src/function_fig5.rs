//! `function-fig5`: throughput of a server without work over the packet length (CLIP Fig. 5), and of the element's
//! part: measured in memory, see `packet_cost`. Beside them, a native program that copies each frame: see `native`.

use anyhow::Result;

use crate::harness::{Bench, Figure, Kind};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-fig5",
    about: "packets that a server passes on, and the element's part of it, over length",
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

    use crate::function::frames::Mix;
    use crate::function::native::NativeProgram;
    use crate::function::packet_cost::{LoadedFunction, xdp_available};
    use crate::harness::{Bench, Better, Metric, Panel, Panels, PlotLine};

    const WORDS: &str = "The paper (§VII-B, Fig. 5): \"As the packet size increases, a higher throughput in Gbps is attained. \
        This trend is attributed to the nature of software-based processing, which operates on a packet-by-packet basis and \
        can process a fixed number of packets per second.\" \
        Here a server reads frames from memory and runs an empty handler in its sandbox for each; the element's part is \
        request and response.";
    const LENGTHS: [usize; 6] = [64, 128, 256, 512, 1024, 1500];

    pub(super) fn run(bench: &mut Bench) -> Result<()> {
        if !xdp_available(bench) {
            return Ok(());
        }
        let native = NativeProgram::compile();
        if let Err(error) = &native {
            bench.print_note(&format!("no rows beside native C: {error:#}"));
        }
        let ready = LoadedFunction::forward()?;
        let parts = RefCell::new(ready.parts()?);
        let names = ["the element's part", "a server"];
        let mut lines: Vec<PlotLine> = names.map(|name| PlotLine { name: name.to_owned(), points: Vec::new() }).into();
        let quick = bench.size(false, true);
        for length in LENGTHS {
            let mix = Mix { name: "", lengths: [(length, 100), (length, 0), (length, 0), (length, 0)] };
            let load = ready.load(bench, &mut parts.borrow_mut(), ready.frames(&mix))?;
            let bits = length as f64 * 8.0;
            let last = RefCell::new([0.0; 2]);
            let rate = |which: usize, took_ns: f64| {
                last.borrow_mut()[which] = bits / took_ns;
                Ok([bits / took_ns])
            };
            let metric = |peer| Metric::new(format!("{length} B: a server"), peer, "Gbit/s", Better::Higher);
            if let Ok(native) = &native {
                let native = ready.native(native, &mut parts.borrow_mut(), &load)?;
                let server = || rate(1, parts.borrow_mut().remote(quick, &load)?.server);
                bench.compare([metric("native C that copies")], server, || Ok([bits / native.packet_ns()?]))?;
            }
            bench.compare(
                [metric("the element's part")],
                || rate(1, parts.borrow_mut().remote(quick, &load)?.server),
                || {
                    let remote = parts.borrow_mut().remote(quick, &load)?;
                    rate(0, remote.request + remote.response)
                },
            )?;
            lines.iter_mut().zip(*last.borrow()).for_each(|(line, rate)| line.points.push((length as f64, rate)));
        }
        let (x, y) = ("bytes", "Gbit/s");
        let panel = Panel { title: "throughput".to_owned(), x, y, logarithmic: true, lines };
        bench.show_panels(Panels { name: "throughput", words: WORDS, panels: vec![panel] });
        Ok(())
    }
}
