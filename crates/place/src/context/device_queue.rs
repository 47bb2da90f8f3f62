//! Job queue of one device of a context: submission, back pressure, completions and timeouts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use pathcall_wire::Instant;

use super::buffer_pool::BufferPool;
use super::pending::SlotTable;
use crate::DeviceRole;
use crate::device::{Completion, ComputeDevice, FunctionId, Job, JobError, JobRefusal, RefusedJob};

/// Function as a device has loaded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadedTask {
    pub(super) function: FunctionId,
    /// Maximum answer length in bytes, if larger than the request.
    pub(super) answer_max: usize,
}

/// Work item for a device.
#[derive(Debug)]
pub(super) struct WorkItem<T> {
    pub(super) task: LoadedTask,
    pub(super) input: Bytes,
    /// Whether it belongs to a later trip of its request; these go before requests that begin.
    pub(super) is_continuation: bool,
    /// Identity of the owner, returned with the result.
    pub(super) of: T,
}

/// Amount of work that a processor's queue holds in advance; the rest waits here, where later trips can pass it.
const QUEUE_AHEAD: Duration = Duration::from_micros(100);

/// Result of a work item.
#[derive(Debug)]
pub(super) struct FinishedWork<T> {
    pub(super) of: T,
    pub(super) result: Result<Bytes, WorkError>,
    /// Time from the completion until it was polled, in nanoseconds; it does not count as time of the device.
    pub(super) unpolled_ns: u64,
}

/// Error of a work item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WorkError {
    #[error("{0}")]
    Job(#[from] JobError),
    #[error("the device did not answer within {} ms", .0.as_millis())]
    Stalled(Duration),
    #[error("{0}")]
    Refused(String),
}

/// Statistics of a device in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceStats {
    /// Jobs that were submitted to the device.
    pub jobs: u64,
    /// Jobs that the device completed.
    pub done: u64,
    /// Jobs that failed: wrong lengths, errors, refusals.
    pub failed: u64,
    /// Jobs without an answer in time.
    pub stalled: u64,
    /// Answers that came after the timeout.
    pub late: u64,
    /// Requests that the application's own function refused.
    pub app_errors: u64,
}

/// Device with all of its jobs.
#[derive(Debug)]
pub(super) struct DeviceQueue<T> {
    pub(super) device: Arc<dyn ComputeDevice>,
    pub(super) role: DeviceRole,
    buffers: BufferPool,
    /// Owners of the jobs in the device; the id of a slot is the job's tag.
    jobs: SlotTable<T>,
    free: Vec<u32>,
    /// Submitted jobs, in the order of submission, with their deadlines.
    given: VecDeque<(u64, Instant)>,
    waiting: VecDeque<WorkItem<T>>,
    /// Number of items at the front of `waiting` that belong to later trips.
    continuations: usize,
    ready: VecDeque<FinishedWork<T>>,
    stall: Option<Duration>,
    /// Smoothed time between two completions of a busy device.
    gap: Duration,
    last: Instant,
    done: Sender<Completion>,
    pub(super) completions: Receiver<Completion>,
    pub(super) stats: DeviceStats,
}

impl<T> DeviceQueue<T> {
    /// Creates the queue. A job fails if the device does not answer within `stall` plus the time that the jobs before
    /// it take.
    pub(super) fn new(
        device: Arc<dyn ComputeDevice>,
        role: DeviceRole,
        jobs_max: usize,
        stall: Option<Duration>,
    ) -> Self {
        let max = jobs_max.min(device.info().jobs_max).max(1);
        // The number of late answers may equal that of timely ones.
        let (done, completions) = bounded(4 * max);
        Self {
            buffers: BufferPool::new(4 * max),
            jobs: SlotTable::new(max),
            free: (0..max as u32).rev().collect(),
            given: VecDeque::new(),
            waiting: VecDeque::new(),
            continuations: 0,
            ready: VecDeque::new(),
            stall,
            gap: Duration::ZERO,
            last: Instant(0),
            done,
            completions,
            stats: DeviceStats::default(),
            device,
            role,
        }
    }

    /// Adds a work item and submits it as soon as the device has room.
    pub(super) fn start(&mut self, now: Instant, order: WorkItem<T>) {
        if order.is_continuation {
            self.waiting.insert(self.continuations, order);
            self.continuations += 1;
        } else {
            self.waiting.push_back(order);
        }
        self.give(now);
    }

    /// Next finished work item. Call until it returns `None`.
    pub(super) fn poll(&mut self, now: Instant) -> Option<FinishedWork<T>> {
        while let Ok(completion) = self.completions.try_recv() {
            self.completed(now, completion);
        }
        self.expire(now);
        self.give(now);
        self.ready.pop_front()
    }

    /// Whether a finished work item waits to be polled.
    pub(super) fn has_finished(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Time at which `poll` must be called if nothing happens before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stall?;
        self.given.front().map(|(_, due)| *due)
    }

    /// Number of jobs at the device or in the queues.
    pub(super) fn held(&self) -> usize {
        self.jobs.len() + self.waiting.len() + self.ready.len()
    }

    /// Number of jobs that the device may have.
    fn depth(&self) -> usize {
        if self.role.is_acc() {
            return usize::MAX;
        }
        let jobs_ahead = QUEUE_AHEAD.as_nanos() / self.gap.as_nanos().max(1);
        usize::try_from(jobs_ahead).unwrap_or(usize::MAX).max(2 * self.device.info().slots)
    }

    /// Removes the first waiting work item.
    fn next(&mut self) -> Option<WorkItem<T>> {
        self.continuations = self.continuations.saturating_sub(1);
        self.waiting.pop_front()
    }

    fn give(&mut self, now: Instant) {
        while let Some(order) = self.waiting.front().filter(|_| self.jobs.len() < self.depth()) {
            let Some(&at) = self.free.last() else { return };
            let bytes = order.input.len().max(order.task.answer_max);
            let region = match self.buffers.take(&*self.device, bytes) {
                Ok(Some(region)) => region,
                // A completion frees memory; without jobs in the device none will come.
                Ok(None) if self.jobs.len() > 0 => return,
                Ok(None) => return self.refuse("all of its memory is in use, or lost".into()),
                Err(error) => {
                    self.refuse(error.to_string());
                    continue;
                }
            };
            let Some(WorkItem { task, input, is_continuation, of }) = self.next() else { return };
            let tag = self.jobs.id(at);
            let job = Job { tag, function: task.function, input: input.clone(), region, done: self.done.clone() };
            match self.device.submit(job) {
                Ok(()) => {
                    self.free.pop();
                    self.stats.jobs += 1;
                    if self.jobs.len() == 0 {
                        self.last = now;
                    }
                    self.jobs.insert(at, of);
                    let ahead = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
                    let due = now + self.stall.unwrap_or_default() + self.gap.saturating_mul(ahead.saturating_mul(4));
                    self.given.push_back((tag, due));
                }
                Err(RefusedJob { job, reason }) => {
                    match job {
                        Some(job) => self.buffers.put(job.region),
                        None => self.buffers.record_loss(),
                    }
                    if matches!(reason, JobRefusal::Full(_)) && self.jobs.len() > 0 {
                        self.waiting.push_front(WorkItem { task, input, is_continuation, of });
                        self.continuations += usize::from(is_continuation);
                        return;
                    }
                    self.stats.failed += 1;
                    self.fail(of, WorkError::Refused(reason.to_string()));
                }
            }
        }
    }

    fn refuse(&mut self, reason: String) {
        if let Some(WorkItem { of, .. }) = self.next() {
            self.stats.failed += 1;
            self.fail(of, WorkError::Refused(reason));
        }
    }

    fn fail(&mut self, of: T, error: WorkError) {
        self.ready.push_back(FinishedWork { of, result: Err(error), unpolled_ns: 0 });
    }

    fn completed(&mut self, now: Instant, completion: Completion) {
        let Completion { tag, region, result, at } = completion;
        if region.is_none() {
            self.buffers.record_loss();
        }
        let Some(of) = self.take(tag) else {
            // The memory can be used again.
            self.stats.late += 1;
            region.into_iter().for_each(|region| self.buffers.put(region));
            return;
        };
        self.gap = self.gap - self.gap / 8 + now.since(self.last) / 8;
        self.last = now;
        let result = match (result, region) {
            (Ok(bytes), Some(region)) if bytes > region.output_max => {
                let error = JobError::Length { expected: format!("at most {}", region.output_max), got: bytes };
                self.buffers.put(region);
                Err(error)
            }
            (Ok(bytes), Some(region)) => {
                self.stats.done += 1;
                Ok(self.buffers.answer(region, bytes))
            }
            (Ok(_), None) => Err(JobError::Device("the answer's memory is lost".into())),
            (Err(error), region) => {
                region.into_iter().for_each(|region| self.buffers.put(region));
                Err(error)
            }
        };
        match &result {
            Ok(_) => {}
            Err(JobError::App(_)) => self.stats.app_errors += 1,
            Err(_) => self.stats.failed += 1,
        }
        let unpolled_ns = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ready.push_back(FinishedWork { of, result: result.map_err(WorkError::Job), unpolled_ns });
        self.forget_done();
    }

    /// Fails the jobs whose deadline has passed, so that those behind them do not wait for them.
    fn expire(&mut self, now: Instant) {
        let Some(stall) = self.stall else { return };
        self.forget_done();
        while let Some(&(tag, due)) = self.given.front() {
            if due > now {
                return;
            }
            self.given.pop_front();
            if let Some(of) = self.take(tag) {
                self.stats.stalled += 1;
                self.fail(of, WorkError::Stalled(stall));
            }
            self.forget_done();
        }
    }

    fn forget_done(&mut self) {
        while let Some(&(tag, _)) = self.given.front() {
            if self.jobs.find(tag).is_some() {
                return;
            }
            self.given.pop_front();
        }
    }

    /// Owner of a job, unless the job has timed out.
    fn take(&mut self, tag: u64) -> Option<T> {
        let at = self.jobs.find(tag)?;
        self.free.push(at);
        self.jobs.remove(at)
    }
}
