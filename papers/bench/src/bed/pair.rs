//! Two applications at once on the same hosts, links and element, as in NetRPC Fig. 8 and 9: one sums arrays of
//! two workers (SyncAgtr), the other counts under keys (AsyncAgtr), from the same two hosts to the same third.
//!
//! ```text
//! lead   both                    what is looked at
//! ├──────┼───────────────────────┤
//! sums ──────────────────────────►
//!        counts ─────────────────►
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use pathcall_endpoint::driver::client::MapHandle;
use pathcall_endpoint::map::{Ack, ClearPolicy, Key, Lanes, Modify, Operation, Output};
use pathcall_wire::{KEYED_WIDTH, LINEAR_LANES};
use tokio::task::JoinSet;

use super::by_hand::{Application, Sent, Sort, Terms};
use super::workers::ROWS;
use super::{Begun, Party, Stage, Waiting};

/// Hosts that both applications call from.
pub(crate) const CALLERS: usize = 2;
/// Their server's, and theirs.
pub(crate) const HOSTS: usize = 1 + CALLERS;
/// Values of an array, and pairs of a call: two of either are more frames than a link lets wait.
const VALUES: usize = 1 << 16;
const PAIRS: usize = 1 << 13;
/// Calls of a caller that are under way at once: the next one need not wait for the last answer.
const OUTSTANDING: u64 = 2;

/// When what begins, and how often it is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course {
    /// The first application is alone.
    pub(crate) lead: Duration,
    /// Both are there.
    pub(crate) both: Duration,
    pub(crate) step: Duration,
}

/// What the first and the second have sent by a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample<T> {
    pub(crate) at: Duration,
    pub(crate) of: [T; 2],
}

impl Course {
    /// Starts one, later the other, and looks at regular times until the end.
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
            // The time until the next look is what is measured.
            thread::sleep(self.step.saturating_sub(began.elapsed() - at));
        }
    }
}

/// The two applications.
pub(crate) struct Pair([Application; 2]);

impl Pair {
    pub(crate) fn start(stage: &Stage, terms: Terms) -> Result<Self> {
        let sums = Sort {
            threshold: CALLERS as u32,
            clear: ClearPolicy::Copy,
            locks: false,
            votes: false,
            rows: ROWS,
            width: LINEAR_LANES as u16,
            terms: Terms { nth: 0, ..terms },
        };
        let counts = Sort { threshold: 0, width: KEYED_WIDTH as u16, terms: Terms { nth: 1, ..terms }, ..sums };
        let start = |sort| {
            let server = stage.host(1, Waiting::Blocking, None)?;
            let callers = (2..=HOSTS).map(|k| stage.host(k, Waiting::Blocking, None)).collect::<Result<_>>()?;
            Application::start(stage, sort, server, callers, Duration::ZERO)
        };
        Ok(Self([start(sums)?, start(counts)?]))
    }

    /// Both do what they can, and are looked at; `look` gets what they have sent.
    pub(crate) fn run<T>(
        &self,
        course: Course,
        mut look: impl FnMut([Sent; 2]) -> Result<T>,
    ) -> Result<Vec<Sample<Sent>>> {
        let paces = [Pace::default(), Pace::default()];
        let begin = |which: usize| self.begin(which, &paces[which]);
        let (samples, begun) = course.run(begin, || {
            let sent = [0, 1].map(|which| self.0[which].sent());
            look(sent)?;
            Ok(sent)
        })?;
        paces.iter().for_each(Pace::end);
        begun.into_iter().flatten().try_for_each(Begun::wait)?;
        Ok(samples)
    }

    /// All callers of an application call until it is to end.
    fn begin(&self, which: usize, pace: &Pace) -> Vec<Begun<()>> {
        let begin = |(handle, party): &(MapHandle, Party)| {
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

/// Every so manieth call of a caller.
async fn calls(which: usize, handle: MapHandle, pace: Pace, first: u64) -> Result<()> {
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
    let output = handle.call(Operation::Sum { lanes, modify: Modify::default(), threshold }).await?;
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

/// How many calls all callers of an application make: as many as any of them has begun at the end.
#[derive(Debug, Clone, Default)]
struct Pace(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    begun: u64,
    ended: bool,
}

impl Pace {
    /// Whether this call, counted from 0, is made.
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
