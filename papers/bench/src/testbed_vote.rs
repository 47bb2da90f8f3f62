//! `testbed-vote`: latency of a decided vote between hosts of a testbed: see [`latency`].

use anyhow::Result;

use crate::harness::{Bench, Figure, Kind};
use crate::testbed::agreement::AgreementKind;
use crate::testbed::latency;

pub(crate) const FIGURE: Figure = Figure {
    name: "testbed-vote",
    about: "two votes cast and decided, between hosts of a testbed",
    kind: Kind::Measured,
    run,
};

fn run(bench: &mut Bench) -> Result<()> {
    latency::run(bench, AgreementKind::Vote)
}
