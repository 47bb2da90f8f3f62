//! Two concurrent applications on the same hosts, links and element, as in NetRPC Fig. 8 and 9: one sums arrays of two
//! workers (SyncAgtr), the other adds values by key (AsyncAgtr), from the same two hosts to the same third.
//!
//! ```text
//! lead   both                    phases of a run
//! ├──────┼───────────────────────┤
//! sums ──────────────────────────►
//!        counts ─────────────────►
//! ```

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use pathcall_driver::client::MapHandle;
use pathcall_endpoint::map::{Ack, ClearPolicy, Key, Lanes, Modify, Operation, Output};
use pathcall_wire::{ForwardTarget, KEYED_WIDTH, LINEAR_LANES};
use tokio::task::JoinSet;

use super::endpoint_app::{AppKind, EndpointApp, FlowTerms, SentCounters};
use super::workers::ROWS;
use super::{ElementTestbed, Party, RunningJob, WaitMode};

/// Hosts with callers of both applications.
pub(crate) const CALLERS: usize = 2;
/// Hosts of the callers and of the server.
pub(crate) const HOSTS: usize = 1 + CALLERS;
/// Values of an array, and pairs of a call: two calls of either kind have more frames than fit into the queue of a
/// link.
const VALUES: usize = 1 << 16;
const PAIRS: usize = 1 << 13;
/// Concurrent calls of a caller: the next call need not wait for the last answer.
const OUTSTANDING: u64 = 2;

/// Schedule of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    /// Time of the first application alone.
    pub(crate) lead: Duration,
    /// Time of both applications.
    pub(crate) both: Duration,
    pub(crate) step: Duration,
}

/// Counters of the first and the second application at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample<T> {
    pub(crate) at: Duration,
    pub(crate) of: [T; 2],
}

impl Schedule {
    /// Starts one application, later the other, and samples both at regular times until the end.
    pub(crate) fn run<T, B>(
        self,
        begin: impl Fn(usize) -> B,
        mut look: impl FnMut() -> Result<[T; 2]>,
    ) -> Result<(Vec<Sample<T>>, Vec<B>)> {
        let (mut samples, mut begun) = (Vec::new(), vec![begin(0)]);
        let began = Instant::now();
        loop {
            let at = began.elapsed();
            samples.push(Sample { at, of: look()? });
            if at >= self.lead && begun.len() == 1 {
                begun.push(begin(1));
            }
            if at >= self.lead + self.both {
                return Ok((samples, begun));
            }
            // The interval until the next sample is measured.
            thread::sleep(self.step.saturating_sub(began.elapsed() - at));
        }
    }
}

/// Pair of applications.
pub(crate) struct Pair([EndpointApp; 2]);

impl Pair {
    pub(crate) fn start(stage: &ElementTestbed, terms: FlowTerms) -> Result<Self> {
        let sums = AppKind {
            threshold: CALLERS as u32,
            clear: ClearPolicy::Copy,
            locks: false,
            votes: false,
            rows: ROWS,
            width: LINEAR_LANES as u16,
            terms: FlowTerms { index: 0, ..terms },
        };
        let counts =
            AppKind { threshold: 0, width: KEYED_WIDTH as u16, terms: FlowTerms { index: 1, ..terms }, ..sums };
        let start = |sort| {
            let server = stage.host(1, WaitMode::Blocking, None)?;
            let callers =
                (2..=HOSTS).map(|k| stage.host(k, WaitMode::Blocking, None).map(Rc::new)).collect::<Result<_>>()?;
            EndpointApp::start(stage, sort, server, callers, Duration::ZERO)
        };
        Ok(Self([start(sums)?, start(counts)?]))
    }

    /// Runs both applications at full load; `look` samples their counters.
    pub(crate) fn run<T>(
        &self,
        schedule: Schedule,
        mut look: impl FnMut([SentCounters; 2]) -> Result<T>,
    ) -> Result<Vec<Sample<SentCounters>>> {
        let paces = [CallPace::default(), CallPace::default()];
        let begin = |which: usize| self.begin(which, &paces[which]);
        let (samples, begun) = schedule.run(begin, || {
            let sent = [0, 1].map(|which| self.0[which].sent());
            look(sent)?;
            Ok(sent)
        })?;
        paces.iter().for_each(CallPace::end);
        begun.into_iter().flatten().try_for_each(RunningJob::wait)?;
        Ok(samples)
    }

    /// Starts all callers of an application, which call until its end.
    fn begin(&self, which: usize, pace: &CallPace) -> Vec<RunningJob<()>> {
        let begin = |(handle, party): &(MapHandle, Rc<Party>)| {
            let (handle, pace) = (handle.clone(), pace.clone());
            party.begin(move || async move {
                let mut calling = JoinSet::new();
                for first in 0..OUTSTANDING {
                    calling.spawn(calls(which, handle.clone(), pace.clone(), first));
                }
                while let Some(done) = calling.join_next().await {
                    done??;
                }
                Ok(())
            })
        };
        self.0[which].callers.iter().map(begin).collect()
    }
}

/// Calls of one caller, from `first` in steps of [`OUTSTANDING`].
async fn calls(which: usize, handle: MapHandle, pace: CallPace, first: u64) -> Result<()> {
    let (lanes, pairs) = (Lanes::Narrow((0..VALUES as i32).collect()), pairs());
    let mut call = first;
    while pace.makes(call) {
        match which {
            0 => sum(&handle, lanes.clone()).await?,
            _ => count(&handle, pairs.clone()).await?,
        }
        call += OUTSTANDING;
    }
    Ok(())
}

/// One worker's part of a sum.
async fn sum(handle: &MapHandle, lanes: Lanes) -> Result<()> {
    let threshold = CALLERS as u32;
    let output =
        handle.call(Operation::Sum { lanes, modify: Modify::default(), threshold, to: ForwardTarget::All }).await?;
    let Output::Sums(sums) = output else { bail!("{output:?} instead of sums") };
    let right = |(i, sum): (usize, i64)| sum == (CALLERS * i) as i64;
    ensure!(sums.len() == VALUES && sums.iter().enumerate().all(right), "wrong sums");
    Ok(())
}

async fn count(handle: &MapHandle, pairs: Vec<(Key, i64)>) -> Result<()> {
    handle.call(Operation::Add { pairs, modify: Modify::default(), get: false, ack: Ack::Element }).await?;
    Ok(())
}

fn pairs() -> Vec<(Key, i64)> {
    (0..PAIRS).map(|i| (Key::from(format!("key-{i}").as_str()), 1)).collect()
}

/// Number of calls of an application's callers: all callers make as many as the first of them has begun at the end.
#[derive(Debug, Clone, Default)]
struct CallPace(Arc<Mutex<PaceState>>);

#[derive(Debug, Default)]
struct PaceState {
    begun: u64,
    ended: bool,
}

impl CallPace {
    /// True if the call with this index, from 0, is made.
    fn makes(&self, call: u64) -> bool {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !calls.ended {
            calls.begun = calls.begun.max(call + 1);
        }
        call < calls.begun
    }

    fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
    }
}
