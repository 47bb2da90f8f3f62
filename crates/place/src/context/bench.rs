//! A device at work for a context: jobs in and out, what waits for room, and what does not come back.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use pathcall_wire::Instant;

use super::rooms::{Rooms, Shared};
use crate::Role;
use crate::device::{Completion, FunctionId, Job, JobError, Refused, RefusedReason};

/// A function as a device has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) function: FunctionId,
    /// Bytes of its longest answer, if that is longer than the request.
    pub(super) answer_max: usize,
}

/// What is to be done.
#[derive(Debug)]
pub(super) struct Order<T> {
    pub(super) task: Task,
    pub(super) input: Bytes,
    /// Whether its request has trips behind it: those go before requests that begin.
    pub(super) goes_on: bool,
    /// Comes back with the result.
    pub(super) of: T,
}

/// A processor is given jobs for so long beforehand, and more than that wait where those that go on can pass them.
const BEFOREHAND: Duration = Duration::from_micros(100);

/// What became of it.
#[derive(Debug)]
pub(super) struct Finished<T> {
    pub(super) of: T,
    pub(super) result: Result<Bytes, WorkError>,
    /// How long it lay until it was looked at, nanoseconds: that is no time of the device.
    pub(super) lay_ns: u64,
}

/// Why nothing came of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WorkError {
    #[error("{0}")]
    Job(#[from] JobError),
    #[error("the device did not answer within {} ms", .0.as_millis())]
    Stalled(Duration),
    #[error("{0}")]
    Refused(String),
}

/// What a device has done for a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BenchStats {
    /// Jobs that it was given.
    pub jobs: u64,
    /// Jobs that it answered.
    pub done: u64,
    /// Jobs that failed: wrong lengths, errors, refusals.
    pub failed: u64,
    /// Jobs that it did not answer in time.
    pub stalled: u64,
    /// Answers of those that came later.
    pub late: u64,
    /// Requests whose own function refuses them.
    pub app_errors: u64,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    of: Option<T>,
}

/// A device, and all of its jobs.
#[derive(Debug)]
pub(super) struct Bench<T> {
    pub(super) device: Shared,
    pub(super) role: Role,
    rooms: Rooms,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Jobs that the device has, in the order in which it got them.
    given: VecDeque<(u64, Instant)>,
    in_device: usize,
    waiting: VecDeque<Order<T>>,
    /// How many of those, the first ones, go on.
    going_on: usize,
    ready: VecDeque<Finished<T>>,
    stall: Option<Duration>,
    /// Time between two completions of a device that is busy, smoothed.
    gap: Duration,
    last: Instant,
    done: Sender<Completion>,
    pub(super) completions: Receiver<Completion>,
    pub(super) stats: BenchStats,
}

impl<T> Bench<T> {
    /// `stall`: a job that the device does not answer within that time, and what those before it take, has failed.
    pub(super) fn new(device: Shared, role: Role, jobs_max: usize, stall: Option<Duration>) -> Self {
        let max = jobs_max.min(device.info().jobs_max).max(1);
        // As many may be late as are in time.
        let (done, completions) = bounded(4 * max);
        let slots = (0..max).map(|_| Slot { generation: 0, of: None }).collect();
        Self {
            rooms: Rooms::new(4 * max),
            slots,
            free: (0..max as u32).rev().collect(),
            given: VecDeque::new(),
            in_device: 0,
            waiting: VecDeque::new(),
            going_on: 0,
            ready: VecDeque::new(),
            stall,
            gap: Duration::ZERO,
            last: Instant(0),
            done,
            completions,
            stats: BenchStats::default(),
            device,
            role,
        }
    }

    /// Takes an order: it is given to the device now, or when there is room.
    pub(super) fn start(&mut self, now: Instant, order: Order<T>) {
        if order.goes_on {
            self.waiting.insert(self.going_on, order);
            self.going_on += 1;
        } else {
            self.waiting.push_back(order);
        }
        self.give(now);
    }

    /// What was finished since. Drain it.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Finished<T>> {
        while let Ok(completion) = self.completions.try_recv() {
            self.completed(now, completion);
        }
        self.expire(now);
        self.give(now);
        self.ready.pop_front()
    }

    /// Whether something is finished that was not polled for yet.
    pub(super) fn has_finished(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When it is to be polled, if nothing comes before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stall?;
        self.given.front().map(|(_, due)| *due)
    }

    /// Jobs that it has, or that wait for it.
    pub(super) fn held(&self) -> usize {
        self.in_device + self.waiting.len() + self.ready.len()
    }

    /// Jobs that the device is to have.
    fn depth(&self) -> usize {
        if self.role == Role::Acc {
            return usize::MAX;
        }
        let beforehand = BEFOREHAND.as_nanos() / self.gap.as_nanos().max(1);
        usize::try_from(beforehand).unwrap_or(usize::MAX).max(2 * self.device.info().slots)
    }

    /// The first of those that wait.
    fn next(&mut self) -> Option<Order<T>> {
        self.going_on = self.going_on.saturating_sub(1);
        self.waiting.pop_front()
    }

    fn give(&mut self, now: Instant) {
        while let Some(order) = self.waiting.front().filter(|_| self.in_device < self.depth()) {
            let Some(&at) = self.free.last() else { return };
            let bytes = order.input.len().max(order.task.answer_max);
            let region = match self.rooms.take(&*self.device, bytes) {
                Ok(Some(region)) => region,
                // What comes back makes room; nothing may be to come.
                Ok(None) if self.in_device > 0 => return,
                Ok(None) => return self.refuse("all of its memory is in use, or lost".into()),
                Err(error) => {
                    self.refuse(error.to_string());
                    continue;
                }
            };
            let Some(Order { task, input, goes_on, of }) = self.next() else { return };
            let slot = &mut self.slots[at as usize];
            let tag = (u64::from(slot.generation) << 32) | u64::from(at);
            let job = Job { tag, function: task.function, input: input.clone(), region, done: self.done.clone() };
            match self.device.submit(job) {
                Ok(()) => {
                    self.free.pop();
                    slot.of = Some(of);
                    self.stats.jobs += 1;
                    if self.in_device == 0 {
                        self.last = now;
                    }
                    self.in_device += 1;
                    let ahead = u32::try_from(self.in_device).unwrap_or(u32::MAX);
                    let due = now + self.stall.unwrap_or_default() + self.gap.saturating_mul(ahead.saturating_mul(4));
                    self.given.push_back((tag, due));
                }
                Err(Refused { job, reason }) => {
                    match job {
                        Some(job) => self.rooms.put(job.region),
                        None => self.rooms.lost(),
                    }
                    if matches!(reason, RefusedReason::Full(_)) && self.in_device > 0 {
                        self.waiting.push_front(Order { task, input, goes_on, of });
                        self.going_on += usize::from(goes_on);
                        return;
                    }
                    self.stats.failed += 1;
                    self.ready.push_back(Finished {
                        of,
                        result: Err(WorkError::Refused(reason.to_string())),
                        lay_ns: 0,
                    });
                }
            }
        }
    }

    fn refuse(&mut self, why: String) {
        if let Some(Order { of, .. }) = self.next() {
            self.stats.failed += 1;
            self.ready.push_back(Finished { of, result: Err(WorkError::Refused(why)), lay_ns: 0 });
        }
    }

    fn completed(&mut self, now: Instant, completion: Completion) {
        let Completion { tag, region, result, at } = completion;
        if region.is_none() {
            self.rooms.lost();
        }
        let Some(of) = self.take(tag) else {
            // Its memory may be used again.
            self.stats.late += 1;
            region.into_iter().for_each(|region| self.rooms.put(region));
            return;
        };
        self.gap = self.gap - self.gap / 8 + now.since(self.last) / 8;
        self.last = now;
        let result = match (result, region) {
            (Ok(bytes), Some(region)) => {
                self.stats.done += 1;
                Ok(self.rooms.answer(region, bytes))
            }
            (Ok(_), None) => Err(JobError::Device("the answer's memory is lost".into())),
            (Err(error), region) => {
                region.into_iter().for_each(|region| self.rooms.put(region));
                Err(error)
            }
        };
        match &result {
            Ok(_) => {}
            Err(JobError::App(_)) => self.stats.app_errors += 1,
            Err(_) => self.stats.failed += 1,
        }
        let lay_ns = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ready.push_back(Finished { of, result: result.map_err(WorkError::Job), lay_ns });
        self.forget_done();
    }

    /// Jobs that are not answered in time have failed; those behind them wait no longer for them.
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
                self.ready.push_back(Finished { of, result: Err(WorkError::Stalled(stall)), lay_ns: 0 });
            }
            self.forget_done();
        }
    }

    fn forget_done(&mut self) {
        while let Some(&(tag, _)) = self.given.front() {
            let slot = &self.slots[tag as u32 as usize];
            if slot.generation == (tag >> 32) as u32 && slot.of.is_some() {
                return;
            }
            self.given.pop_front();
        }
    }

    /// Whose job it was, if nobody has given it up.
    fn take(&mut self, tag: u64) -> Option<T> {
        let at = tag as u32;
        let slot = self.slots.get_mut(at as usize).filter(|slot| slot.generation == (tag >> 32) as u32)?;
        let of = slot.of.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(at);
        self.in_device -= 1;
        Some(of)
    }
}
