//! `netclone-fig10`: combination with RackSched's shorter queue (NetClone Fig. 10), in virtual time: six servers of 15
//! workers, or three of 15 and three of 8.

use anyhow::Result;
use pathcall_models::clone::CloneTestbed;
use pathcall_models::clone::Scheme;

use crate::harness::{Bench, Figure, Kind, Panels};
use crate::netclone::model::{HIGH, bimodal, exp, paper};
use crate::netclone::{Case, Curves};

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig10",
    about: "simulated: cloning and the shorter queue, unlike servers",
    kind: Kind::Simulated,
    run,
};

const SCHEMES: [Scheme; 4] = [Scheme::Random, Scheme::Shortest, Scheme::Clone, Scheme::CloneShortest];
const WORDS: &str = "The paper (§5.4, Fig. 10): \"NetClone with RackSched achieves the best performance, thanks to RackSched's \
    ability to handle possible load imbalances between worker servers. NetClone with RackSched performs better with \
    heterogeneous workloads than with homogeneous workloads. […] In homogeneous workloads, NetClone with RackSched is worse \
    than NetClone at very high loads.\"";

fn run(bench: &mut Bench) -> Result<()> {
    let mut panels = Vec::new();
    let unlike = CloneTestbed { workers: [15, 8].repeat(3), ..CloneTestbed::default() };
    for (servers, testbed, unlike) in [("alike", paper(), false), ("unlike", unlike, true)] {
        for (name, workload) in [exp(HIGH), bimodal(HIGH)] {
            let title = format!("servers {servers}, {name}");
            let case = Case { title, testbed: testbed.clone(), workload, schemes: &SCHEMES };
            let curves = Curves::of(bench, &case);
            // With unequal servers, the combination should be at least as good as either scheme alone.
            let expected = unlike.then_some(1.0);
            curves.improvement(bench, Scheme::CloneShortest, Scheme::Clone, expected);
            curves.improvement(bench, Scheme::CloneShortest, Scheme::Shortest, expected);
            curves.improvement(bench, Scheme::CloneShortest, Scheme::Random, None);
            panels.push(curves.panel());
        }
    }
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}
