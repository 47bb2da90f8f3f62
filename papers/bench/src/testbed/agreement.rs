//! Locks or votes on the endpoint's own interface: an owner on host 1, one or two callers on host 2.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pathcall_driver::client::MapHandle;
use pathcall_endpoint::map::{Ack, ClearPolicy, Key, Operation};
use pathcall_wire::ForwardTarget;

use super::endpoint_app::{AppKind, EndpointApp, FlowTerms};
use super::{ElementTestbed, Party};
use crate::net::{Stopwatch, percentiles};

/// Votes that decide a ballot, and its voters.
pub(super) const VOTERS: usize = 2;

/// Kind of agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgreementKind {
    /// A free lock is taken and released.
    Lock,
    /// Two callers vote in one ballot, and both wait for the decision.
    Vote,
}

/// Sort of an application that needs one row with one lane.
pub(super) fn sort(kind: AgreementKind) -> AppKind {
    let (locks, votes) = (kind == AgreementKind::Lock, kind == AgreementKind::Vote);
    AppKind { threshold: 0, clear: ClearPolicy::Copy, locks, votes, rows: 64, width: 1, terms: FlowTerms::default() }
}

/// Callers and owner of an agreement, with the path between them.
pub(crate) struct Agreement {
    kind: AgreementKind,
    application: EndpointApp,
}

impl Agreement {
    /// Starts the owner, and the callers of the agreement on one party. `poll_time`: time for which calls poll for
    /// their answers.
    pub(crate) fn start(
        stage: &ElementTestbed,
        kind: AgreementKind,
        server: Party,
        caller: Party,
        poll_time: Duration,
    ) -> Result<Self> {
        let (caller, callers) = (Rc::new(caller), if kind == AgreementKind::Vote { VOTERS } else { 1 });
        let callers = (0..callers).map(|_| Rc::clone(&caller)).collect();
        Ok(Self { kind, application: EndpointApp::start(stage, sort(kind), server, callers, poll_time)? })
    }

    /// Median and 99th percentile of an agreement, without the first tenth, and processor time of all parties for one.
    /// In microseconds.
    pub(crate) fn turn(&self, calls: usize) -> Result<[f64; 3]> {
        let (_, caller) = self.application.callers.first().context("no caller")?;
        let handles: Vec<MapHandle> = self.application.callers.iter().map(|(handle, _)| handle.clone()).collect();
        let (kind, calling, before) = (self.kind, handles.clone(), processed(&handles));
        let watch = Stopwatch::start();
        let mut took = caller.run(move || call(calling, kind, calls))?;
        let cpu = watch.cpu_us(calls);
        let after = processed(&handles);
        let [by_element, by_server] = [0, 1].map(|place| after[place] - before[place]);
        let (right, wrong) =
            if self.application.by_element { (by_element, by_server) } else { (by_server, by_element) };
        // The first call discovers the element.
        ensure!(wrong <= 2 && right > wrong, "{right} answers by who should give them, {wrong} by others");
        let [p50, p99] = percentiles(took.split_off(calls / 10))?;
        Ok([p50, p99, cpu])
    }
}

/// Values of all callers so far, processed by the element and by the server.
fn processed(handles: &[MapHandle]) -> [u64; 2] {
    let stats = handles.iter().map(MapHandle::stats);
    stats.fold([0, 0], |[element, server], stats| [element + stats.lanes_element, server + stats.lanes_software])
}

/// Times of agreements. After each, the key is cleared, outside of its time.
async fn call(handles: Vec<MapHandle>, kind: AgreementKind, calls: usize) -> Result<Vec<Duration>> {
    let key = || vec![Key::from("key")];
    let (threshold, to, ack) = (handles.len() as u32, ForwardTarget::Src, Ack::Element);
    let count = || Operation::Count { keys: key(), threshold, to, ack };
    let mut took = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        match (kind, &handles[..]) {
            (AgreementKind::Lock, [one]) => drop(one.call(count()).await?),
            (AgreementKind::Vote, [one, other]) => {
                tokio::try_join!(one.call(count()), other.call(count()))?;
            }
            _ => bail!("{} callers", handles.len()),
        }
        took.push(began.elapsed());
        handles[0].call(Operation::Clear { keys: key(), tokens: Vec::new() }).await?;
    }
    Ok(took)
}
