//! `testbed-vote`: latency of a counted vote between hosts of a testbed: see [`latency`].

use anyhow::Result;

use crate::harness::{Bench, Figure, Kind};
use crate::testbed::agreement::AgreementKind;
use crate::testbed::latency;

pub(crate) const FIGURE: Figure = Figure {
    name: "testbed-vote",
    about: "a vote cast and counted, between hosts of a testbed",
    kind: Kind::Measured,
    run,
};

fn run(bench: &mut Bench) -> Result<()> {
    latency::run(bench, AgreementKind::Vote)
}
