//! `netclone-fig8`: comparison with C-Clone and LÆDGE (NetClone Fig. 8), in virtual time: five servers of 15 workers,
//! and a sixth machine for LÆDGE's coordinator.

use anyhow::Result;
use pathcall_models::clone::Scheme;

use crate::harness::{Bench, Figure, Kind, Panels};
use crate::netclone::model::{HIGH, exp, rack};
use crate::netclone::{Case, Curves};

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig8",
    about: "simulated: latency over load beside C-Clone and LÆDGE",
    kind: Kind::Simulated,
    run,
};

const SERVERS: usize = 5;
const SCHEMES: [Scheme; 4] = [Scheme::Random, Scheme::Coordinator, Scheme::ClientClone, Scheme::Clone];
const WORDS: &str = "The paper (§5.3.1, Fig. 8): \"NetClone provides high throughput, while LÆDGE and C-Clone exhibit low \
    throughput. […] LÆDGE performs even worse than C-Clone since it relies on a CPU-based coordinator to clone requests.\" \
    Here, too, a coordinator handles one message after the other.";

fn run(bench: &mut Bench) -> Result<()> {
    let (name, workload) = exp(HIGH);
    let case = Case { title: name.to_owned(), testbed: rack(SERVERS), workload, schemes: &SCHEMES };
    let curves = Curves::of(bench, &case);
    // The paper's ceiling is higher than the others': an expected ratio of at least 1.
    curves.ceiling(bench, Scheme::Clone, Scheme::Coordinator, Some(1.0));
    curves.ceiling(bench, Scheme::Clone, Scheme::ClientClone, Some(1.0));
    curves.ceiling(bench, Scheme::Clone, Scheme::Random, None);
    curves.improvement(bench, Scheme::Clone, Scheme::Random, None);
    bench.show_panels(Panels { name: "latency", words: WORDS, panels: vec![curves.panel()] });
    Ok(())
}
