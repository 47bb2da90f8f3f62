//! Locks or votes on the endpoint's own interface: an owner on host 1, a caller on host 2.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pathcall_driver::client::MapHandle;
use pathcall_endpoint::map::{ClearPolicy, Key, Operation};
use pathcall_wire::ForwardTarget;

use super::endpoint_app::{AppKind, EndpointApp, FlowTerms};
use super::{ElementTestbed, Party};
use crate::net::{Stopwatch, percentiles};

/// Vote threshold that is never reached: each vote is counted, and none decides.
pub(super) const UNREACHED_THRESHOLD: u32 = 1 << 30;

/// Kind of agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgreementKind {
    /// A free lock is taken and released.
    Lock,
    /// A vote is counted, below the threshold.
    Vote,
}

/// Sort of an application that needs one row with one lane.
pub(super) fn sort(kind: AgreementKind) -> AppKind {
    let (locks, votes) = (kind == AgreementKind::Lock, kind == AgreementKind::Vote);
    AppKind { threshold: 0, clear: ClearPolicy::Copy, locks, votes, rows: 64, width: 1, terms: FlowTerms::default() }
}

/// Caller and owner of an agreement, with the path between them.
pub(crate) struct Agreement {
    kind: AgreementKind,
    application: EndpointApp,
}

impl Agreement {
    /// Starts owner and caller on their parties. `poll_time`: time for which calls poll for their answers.
    pub(crate) fn start(
        stage: &ElementTestbed,
        kind: AgreementKind,
        server: Party,
        caller: Party,
        poll_time: Duration,
    ) -> Result<Self> {
        Ok(Self { kind, application: EndpointApp::start(stage, sort(kind), server, vec![caller], poll_time)? })
    }

    /// Median and 99th percentile of a call, without the first tenth, and processor time of all parties per call. In
    /// microseconds.
    pub(crate) fn turn(&self, calls: usize) -> Result<[f64; 3]> {
        let (handle, caller) = self.application.callers.first().context("no caller")?;
        let (kind, calling, before) = (self.kind, handle.clone(), handle.stats());
        let watch = Stopwatch::start();
        let mut took = caller.run(move || call(calling, kind, calls))?;
        let cpu = watch.cpu_us(calls);
        let after = handle.stats();
        let by_element = after.lanes_element - before.lanes_element;
        let by_server = after.lanes_software - before.lanes_software;
        let (right, wrong) =
            if self.application.by_element { (by_element, by_server) } else { (by_server, by_element) };
        // The first call discovers the element.
        ensure!(wrong <= 2 && right > wrong, "{right} answers by who should give them, {wrong} by others");
        let [p50, p99] = percentiles(took.split_off(calls / 10))?;
        Ok([p50, p99, cpu])
    }
}

async fn call(handle: MapHandle, kind: AgreementKind, calls: usize) -> Result<Vec<Duration>> {
    let key = || vec![Key::from("key")];
    let mut took = Vec::with_capacity(calls);
    for _ in 0..calls {
        let threshold = if kind == AgreementKind::Lock { 1 } else { UNREACHED_THRESHOLD };
        let to = if kind == AgreementKind::Lock { ForwardTarget::Src } else { ForwardTarget::Server };
        let operation = Operation::Count { keys: key(), threshold, to };
        let began = Instant::now();
        handle.call(operation).await?;
        took.push(began.elapsed());
        if kind == AgreementKind::Lock {
            handle.call(Operation::Clear { keys: key(), tokens: Vec::new() }).await?;
        }
    }
    Ok(took)
}
