//! Workers whose arrays are summed (SyncAgtr) on the endpoint's own interface: an owner on host 1, each worker on a
//! host after it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pathcall_driver::client::MapHandle;
use pathcall_endpoint::map::gradient::{GradientFormat, GradientState, GradientSum};
use pathcall_endpoint::map::{ClearPolicy, Lanes, Modify, Operation, Output};
use pathcall_wire::{ForwardTarget, LINEAR_LANES};

use super::endpoint_app::{AppKind, EndpointApp, FlowTerms};
use super::{ElementTestbed, Party, RunningJob, WaitMode};

/// Default number of rows of Pathcall's servers.
pub(super) const ROWS: u32 = pathcall::layer::DEFAULT_ROWS;
/// Share of values in a full frame: 1,024 of 1,170 bytes.
pub(crate) const VALUES_SHARE: f64 = 1024.0 / 1170.0;
/// Period of the values.
const PERIOD: usize = 1009;

pub(crate) struct Workers(EndpointApp);

impl Workers {
    /// Number of hosts for `workers` workers.
    pub(crate) fn hosts(workers: usize) -> usize {
        1 + workers
    }

    /// Hosts of the workers.
    pub(crate) fn at(workers: usize) -> impl Iterator<Item = usize> {
        2..2 + workers
    }

    pub(crate) fn start(stage: &ElementTestbed, workers: usize) -> Result<Self> {
        Self::clearing(stage, workers, ClearPolicy::Copy)
    }

    /// Starts workers with a clear policy, with equal numbers of chunks in flight.
    pub(crate) fn clearing(stage: &ElementTestbed, workers: usize, clear: ClearPolicy) -> Result<Self> {
        let threshold = workers as u32;
        let rows = if clear == ClearPolicy::Shadow { 2 * ROWS } else { ROWS };
        let width = LINEAR_LANES as u16;
        let terms = FlowTerms::default();
        let sort = AppKind { threshold, clear, locks: false, votes: false, rows, width, terms };
        let server = stage.host(1, WaitMode::Blocking, None)?;
        let callers =
            Self::at(workers).map(|k| stage.host(k, WaitMode::Blocking, None).map(Rc::new)).collect::<Result<_>>()?;
        Ok(Self(EndpointApp::start(stage, sort, server, callers, Duration::ZERO)?))
    }

    /// Sums arrays of all workers, `calls` times one after the other; returns the time of one sum.
    pub(crate) fn turn(&self, values: usize, calls: usize) -> Result<Duration> {
        let all = (values * calls * self.0.callers.len()) as u64;
        let before = self.by_element();
        let took = self.sum(&(0..values).map(|i| (i % PERIOD) as i32).collect::<Vec<_>>(), calls)?;
        let by_element = self.by_element() - before;
        let right = if self.0.by_element { by_element >= all / 2 } else { by_element == 0 };
        ensure!(right, "{by_element} of {all} values were added in the element");
        Ok(took)
    }

    /// Sums this array, in the element or, if sums need 64 bits, at the server.
    pub(crate) fn sum(&self, part: &[i32], calls: usize) -> Result<Duration> {
        let threshold = self.0.callers.len() as u32;
        let mut parts = Vec::new();
        for _ in &self.0.callers {
            // A call consumes its array, so arrays are created before the clock starts.
            parts.push(vec![Lanes::Narrow(part.to_vec()); calls]);
        }
        let began = Instant::now();
        let begin = |((handle, party), parts): (&(MapHandle, Rc<Party>), _)| {
            let handle = handle.clone();
            party.begin(move || sums(handle, threshold, parts))
        };
        let begun: Vec<RunningJob<Vec<Lanes>>> = self.0.callers.iter().zip(parts).map(begin).collect();
        let all = begun.into_iter().map(RunningJob::wait).collect::<Result<Vec<_>>>()?;
        let took = began.elapsed();
        for sums in all.iter().flatten() {
            let right = |(sum, value): (i64, &i32)| sum == i64::from(*value) * i64::from(threshold);
            ensure!(sums.len() == part.len() && sums.iter().zip(part).all(right), "wrong sums");
        }
        Ok(took / calls as u32)
    }

    /// Sums gradients in small values, `calls` times one after the other, and compares the results of all workers.
    pub(crate) fn gradients(&self, format: GradientFormat, values: usize, calls: usize) -> Result<()> {
        let begin = |(number, (handle, party)): (usize, &(MapHandle, Rc<Party>))| {
            let (handle, size) = (handle.clone(), 1.0 / (1 + number) as f32);
            let gradient: Vec<f32> = (0..values).map(|i| ((i % PERIOD) as f32 - 500.0) * size).collect();
            party.begin(move || gradient_sums(handle, format, gradient, calls))
        };
        let begun: Vec<RunningJob<Vec<f32>>> = self.0.callers.iter().enumerate().map(begin).collect();
        let all = begun.into_iter().map(RunningJob::wait).collect::<Result<Vec<_>>>()?;
        ensure!(all.iter().all(|sums| *sums == all[0]), "workers have different sums");
        Ok(())
    }

    /// Values of all workers added by the element so far.
    pub(crate) fn by_element(&self) -> u64 {
        self.0.callers.iter().map(|(handle, _)| handle.stats().lanes_element).sum()
    }
}

async fn gradient_sums(
    handle: MapHandle,
    format: GradientFormat,
    gradient: Vec<f32>,
    calls: usize,
) -> Result<Vec<f32>> {
    let (mut state, mut last) = (GradientState::default(), Vec::new());
    for _ in 0..calls {
        let mut sum = GradientSum::new(format, &state, gradient.clone())?;
        while let Some(operation) = sum.operation() {
            match handle.call(operation).await.context("call of a worker failed")? {
                Output::Sums(sums) => sum.take(&sums)?,
                other => anyhow::bail!("{other:?} instead of sums"),
            }
        }
        last = sum.finish(&mut state);
    }
    Ok(last)
}

async fn sums(handle: MapHandle, threshold: u32, parts: Vec<Lanes>) -> Result<Vec<Lanes>> {
    let mut all = Vec::new();
    for lanes in parts {
        let operation = Operation::Sum { lanes, modify: Modify::default(), threshold, to: ForwardTarget::All };
        match handle.call(operation).await.context("call of a worker failed")? {
            Output::Sums(sums) => all.push(sums),
            other => anyhow::bail!("{other:?} instead of sums"),
        }
    }
    Ok(all)
}
