//! `netclone-fig9`: with two, four and six servers (NetClone Fig. 9), in virtual time.

use anyhow::Result;
use pathcall_models::clone::Scheme;

use crate::harness::{Bench, Figure, Kind, Panels};
use crate::netclone::model::{HIGH, exp, rack};
use crate::netclone::{CEILING, Case, Curves};

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig9",
    about: "simulated: latency over load with 2, 4 and 6 servers",
    kind: Kind::Simulated,
    run,
};

const SCHEMES: [Scheme; 2] = [Scheme::Random, Scheme::Clone];
const WORDS: &str = "The paper (§5.3.2, Fig. 9): \"NetClone maintains lower tail latency than the baseline regardless of the \
    number of servers. […] When the number of worker servers is two or four, NetClone shows worse latency at very high \
    loads.\"";

fn run(bench: &mut Bench) -> Result<()> {
    let mut panels = Vec::new();
    for servers in [2, 4, 6] {
        let (name, workload) = exp(HIGH);
        let title = format!("{servers} servers, {name}");
        let case = Case { title, testbed: rack(servers), workload, schemes: &SCHEMES };
        let curves = Curves::of(bench, &case);
        curves.improvement(bench, Scheme::Clone, Scheme::Random, None);
        curves.ceiling(bench, Scheme::Clone, Scheme::Random, Some(CEILING));
        panels.push(curves.panel());
    }
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}
