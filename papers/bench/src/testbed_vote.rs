//! `testbed-vote`: a vote cast and counted, between hosts of a testbed: see [`latency`].

use anyhow::Result;

use crate::bed::agreement::Kind;
use crate::bed::latency;
use crate::harness::{Bench, Figure};

pub(crate) const FIGURE: Figure =
    Figure { name: "testbed-vote", about: "a vote cast and counted, between hosts of a testbed", run };

fn run(bench: &mut Bench) -> Result<()> {
    latency::run(bench, Kind::Vote)
}
