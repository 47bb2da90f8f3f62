//! Workers whose arrays are summed (SyncAgtr) by the endpoint's own interface: an owner on host 1, each worker
//! on a host after it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pathcall_endpoint::driver::client::MapHandle;
use pathcall_endpoint::map::{Lanes, Modify, Operation, Output};
use pathcall_wire::LINEAR_LANES;

use super::by_hand::{Application, Sort};
use super::{Begun, Stage, Waiting};

/// One window of frames fits the queue of a link; the four of a channel that is not told otherwise do not.
const FLOWS: u32 = 1;
/// As pathcall's servers ask for.
const ROWS: u32 = pathcall::server::ROWS;
/// Values repeat after so many.
const PERIOD: usize = 1009;

pub(crate) struct Workers(Application);

impl Workers {
    /// Hosts of a bed with so many workers.
    pub(crate) fn hosts(workers: usize) -> usize {
        1 + workers
    }

    /// The hosts that workers are on.
    pub(crate) fn at(workers: usize) -> impl Iterator<Item = usize> {
        2..2 + workers
    }

    pub(crate) fn start(stage: &Stage, workers: usize) -> Result<Self> {
        let threshold = workers as u32;
        let width = LINEAR_LANES as u16;
        let sort = Sort { threshold, locks: false, votes: false, rows: ROWS, width, flows: FLOWS };
        let server = stage.host(1, Waiting::Blocking, None)?;
        let callers = Self::at(workers).map(|k| stage.host(k, Waiting::Blocking, None)).collect::<Result<_>>()?;
        Ok(Self(Application::start(stage, sort, server, callers, Duration::ZERO)?))
    }

    /// All workers have arrays summed, so many one after the other; how long one takes.
    pub(crate) fn turn(&self, values: usize, calls: usize) -> Result<Duration> {
        let part: Vec<i32> = (0..values).map(|i| (i % PERIOD) as i32).collect();
        let threshold = self.0.callers.len() as u32;
        let before = self.by_element();
        let mut parts = Vec::new();
        for _ in &self.0.callers {
            // A call takes its array: what it is given is made before the clock starts.
            parts.push(vec![Lanes::Narrow(part.clone()); calls]);
        }
        let began = Instant::now();
        let begin = |((handle, party), parts): (&(MapHandle, _), _)| {
            let handle = handle.clone();
            let party: &super::Party = party;
            party.begin(move || sum(handle, threshold, parts))
        };
        let begun: Vec<Begun<Vec<Lanes>>> = self.0.callers.iter().zip(parts).map(begin).collect();
        let sums = begun.into_iter().map(Begun::wait).collect::<Result<Vec<_>>>()?;
        let took = began.elapsed();
        for sums in sums.iter().flatten() {
            let right = |(i, sum): (usize, i64)| sum == (i % PERIOD) as i64 * i64::from(threshold);
            ensure!(sums.len() == values && sums.iter().enumerate().all(right), "wrong sums");
        }
        let (by_element, all) = (self.by_element() - before, (values * calls) as u64 * u64::from(threshold));
        let right = if self.0.by_element { by_element >= all / 2 } else { by_element == 0 };
        ensure!(right, "{by_element} of {all} values were added in the element");
        Ok(took / calls as u32)
    }

    fn by_element(&self) -> u64 {
        self.0.callers.iter().map(|(handle, _)| handle.stats().lanes_element).sum()
    }
}

async fn sum(handle: MapHandle, threshold: u32, parts: Vec<Lanes>) -> Result<Vec<Lanes>> {
    let mut all = Vec::new();
    for lanes in parts {
        let operation = Operation::Sum { lanes, modify: Modify::default(), threshold };
        match handle.call(operation).await.context("a worker's call")? {
            Output::Sums(sums) => all.push(sums),
            other => anyhow::bail!("{other:?} instead of sums"),
        }
    }
    Ok(all)
}
