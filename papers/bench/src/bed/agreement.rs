//! Locks or votes by the endpoint's own interface: an owner on host 1, a caller on host 2.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pathcall_endpoint::driver::client::MapHandle;
use pathcall_endpoint::map::{ClearPolicy, Key, Operation};
use pathcall_wire::Target;

use super::by_hand::{Application, Sort, Terms};
use super::{Party, Stage};
use crate::net::{Watch, percentiles};

/// Votes that no turn casts: each is counted, and none decides.
pub(super) const NEVER: u32 = 1 << 30;

/// What is agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A lock that is free is taken, and given back.
    Lock,
    /// A vote is counted, below the threshold.
    Vote,
}

/// A lock or a ballot takes a row, and one lane of it.
pub(super) fn sort(kind: Kind) -> Sort {
    let (locks, votes) = (kind == Kind::Lock, kind == Kind::Vote);
    Sort { threshold: 0, clear: ClearPolicy::Copy, locks, votes, rows: 64, width: 1, terms: Terms::default() }
}

/// A caller, its owner, and what is between them.
pub(crate) struct Agreement {
    kind: Kind,
    application: Application,
}

impl Agreement {
    /// Between the owner's party and the caller's. `look`: calls look for their answers themselves for so long.
    pub(crate) fn start(stage: &Stage, kind: Kind, server: Party, caller: Party, look: Duration) -> Result<Self> {
        Ok(Self { kind, application: Application::start(stage, sort(kind), server, vec![caller], look)? })
    }

    /// Median and 99th percentile of a call, of which the first tenth warms up; and the time of all processors
    /// for a call. In microseconds.
    pub(crate) fn turn(&self, calls: usize) -> Result<[f64; 3]> {
        let (handle, caller) = self.application.callers.first().context("there is a caller")?;
        let (kind, calling, before) = (self.kind, handle.clone(), handle.stats());
        let watch = Watch::start();
        let mut took = caller.run(move || call(calling, kind, calls))?;
        let cpu = watch.cpu_us(calls);
        let after = handle.stats();
        let by_element = after.lanes_element - before.lanes_element;
        let by_server = after.lanes_software - before.lanes_software;
        let (right, wrong) =
            if self.application.by_element { (by_element, by_server) } else { (by_server, by_element) };
        // The first call of all learns that there is an element.
        ensure!(wrong <= 2 && right > wrong, "{right} answers by who should give them, {wrong} by others");
        let [p50, p99] = percentiles(took.split_off(calls / 10))?;
        Ok([p50, p99, cpu])
    }
}

async fn call(handle: MapHandle, kind: Kind, calls: usize) -> Result<Vec<Duration>> {
    let key = || vec![Key::from("key")];
    let mut took = Vec::with_capacity(calls);
    for _ in 0..calls {
        let threshold = if kind == Kind::Lock { 1 } else { NEVER };
        let to = if kind == Kind::Lock { Target::Src } else { Target::Server };
        let operation = Operation::Count { keys: key(), threshold, to };
        let began = Instant::now();
        handle.call(operation).await?;
        took.push(began.elapsed());
        if kind == Kind::Lock {
            handle.call(Operation::Clear { keys: key(), tokens: Vec::new() }).await?;
        }
    }
    Ok(took)
}
