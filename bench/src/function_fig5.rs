//! `function-fig5`: what passing packets on costs, by the element alone and by way of a server that does nothing (CLIP Fig. 5),
//! over their length: measured in memory, see [`work`](crate::function::work).

use anyhow::Result;

use crate::harness::{Bench, Figure};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-fig5",
    about: "packets passed on by the element, and by way of servers, over length",
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

    use crate::function::frames::Mix;
    use crate::function::work::{Ready, permitted};
    use crate::harness::{Bench, Better, Line, Metric, Panel, Panels};

    const WORDS: &str = "The paper (§VII-B, Fig. 5): \"As the packet size increases, a higher throughput in Gbps is attained. \
        This trend is attributed to the nature of software-based processing, which operates on a packet-by-packet basis and \
        can process a fixed number of packets per second.\" Here servers are threads that get frames from memory, one \
        processor each, and a function that does nothing runs in its sandbox for each packet.";
    const LENGTHS: [usize; 6] = [64, 128, 256, 512, 1024, 1500];

    pub(super) fn run(bench: &mut Bench) -> Result<()> {
        if !permitted(bench) {
            return Ok(());
        }
        let ready = Ready::forward()?;
        let rig = RefCell::new(ready.rig()?);
        let names = ["element alone", "two servers", "one server"];
        let mut lines: Vec<Line> = names.map(|name| Line { name: name.to_owned(), points: Vec::new() }).into();
        let quick = bench.size(false, true);
        for length in LENGTHS {
            let mix = Mix { name: "", lengths: [(length, 100), (length, 0), (length, 0), (length, 0)] };
            let load = ready.load(bench, &mut rig.borrow_mut(), ready.frames(&mix))?;
            let bits = length as f64 * 8.0;
            let last = RefCell::new([0.0; 3]);
            // The element's program before and behind the server is the same work as passing a packet on by itself.
            let element = || {
                let remote = rig.borrow_mut().remote(quick, &load)?;
                last.borrow_mut()[0] = bits / remote.request;
                Ok([bits / remote.request])
            };
            let server = |count: usize| {
                let (rig, load, last) = (&rig, &load, &last);
                move || {
                    let remote = rig.borrow_mut().remote(quick, load)?;
                    let rate = bits * count as f64 / remote.server;
                    last.borrow_mut()[3 - count] = rate;
                    Ok([rate])
                }
            };
            let metric = |of, peer| Metric::new(format!("{length} B: {of}"), peer, "Gbit/s", Better::Higher);
            bench.compare([metric("one server", "element alone").peer_is_limit()], server(1), element)?;
            bench.compare([metric("two servers", "one server")], server(2), server(1))?;
            lines.iter_mut().zip(*last.borrow()).for_each(|(line, rate)| line.points.push((length as f64, rate)));
        }
        let (x, y) = ("bytes", "Gbit/s");
        let panel = Panel { title: "throughput".to_owned(), x, y, logarithmic: true, lines };
        bench.show_panels(Panels { name: "throughput", words: WORDS, panels: vec![panel] });
        Ok(())
    }
}
