//! Emulated device: right answers, delayed according to a model; for experiments and fault injection.
//!
//! ```text
//! submit ─▶ queue ─▶ a thread: answer by the host's function, due time by Timeline ─▶ heap ─▶ Completion when due
//! ```
//!
//! The device sleeps until an answer is due, so its only cost is that of the host's functions. A real device does not
//! wait for a processor of the host; `punctual` therefore asks the kernel to run the thread as soon as it is due.

mod punctual;
pub mod timeline;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::thread;
use std::time::{Duration, Instant as Clock};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use pathcall_wire::Instant;

use super::pool::{HostDevice, HostJob, JOBS_MAX, run};
use super::{Completion, DeviceKind, JobError};
use crate::model::SLOTS_MAX;
pub use timeline::{Rate, Timeline};

/// Fault of an emulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmulatedFault {
    /// Jobs are accepted, but never completed.
    Disappears,
    /// Jobs fail because the device is gone.
    Gone,
    /// Jobs fail.
    Fails,
    /// Answers have a wrong length: too long by this many bytes, or too short.
    Length(isize),
    /// Jobs take this many times longer.
    Slow(u32),
}

/// Fault for the jobs `from..from + count`, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlantedFault {
    /// First affected job.
    pub from: u64,
    /// Number of affected jobs.
    pub count: u64,
    /// Kind of the fault.
    pub fault: EmulatedFault,
}

impl PlantedFault {
    /// Fault of all jobs from this one on.
    #[must_use]
    pub const fn forever(from: u64, fault: EmulatedFault) -> Self {
        Self { from, count: u64::MAX, fault }
    }
}

/// Emulated device, with the slot time of each function's jobs.
pub type Emulated = HostDevice<Duration>;

impl Emulated {
    /// Starts the device's thread.
    ///
    /// # Errors
    /// An error of the system if the thread does not start.
    pub fn start(name: &str, rate: Rate, faults: Vec<PlantedFault>) -> io::Result<Self> {
        let (slots, timeline) = (rate.slots.clamp(1, SLOTS_MAX), Timeline::new(rate.clone()));
        let time = move |function: &str| rate.job(function);
        let (device, queue) = Self::new(DeviceKind::Emulated, format!("emulated ({name})"), slots, JOBS_MAX, time);
        let timer = Timer { timeline, faults, origin: Clock::now(), taken: 0, due: BinaryHeap::new() };
        thread::Builder::new().name(format!("place-{name}")).spawn(move || timer.run(&queue))?;
        Ok(device)
    }
}

/// Completion with its due time.
struct DueCompletion {
    at: Instant,
    /// Sequence number; orders jobs that are due at the same time.
    number: u64,
    completion: Completion,
    done: Sender<Completion>,
}

impl PartialEq for DueCompletion {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for DueCompletion {}

impl PartialOrd for DueCompletion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DueCompletion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Thread of the device.
struct Timer {
    timeline: Timeline,
    faults: Vec<PlantedFault>,
    origin: Clock,
    /// Number of jobs taken so far.
    taken: u64,
    due: BinaryHeap<Reverse<DueCompletion>>,
}

impl Timer {
    /// Runs until all senders are gone and all jobs are completed.
    fn run(mut self, queue: &Receiver<HostJob<Duration>>) {
        punctual::request_punctual_scheduling();
        loop {
            let now = self.now();
            while self.due.peek().is_some_and(|Reverse(due)| due.at <= now) {
                let Reverse(due) = self.due.pop().expect("a device exists");
                due.completion.send(&due.done);
            }
            let next = self.due.peek().map(|Reverse(due)| due.at);
            let job = match next {
                Some(at) => queue.recv_deadline(self.origin + Duration::from_nanos(at.0)),
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(job) => self.take(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match next {
                    Some(at) => thread::sleep(at.since(self.now())),
                    None => return,
                },
            }
        }
    }

    fn take(&mut self, (function, takes, mut job): HostJob<Duration>) {
        let (now, number) = (self.now(), self.taken);
        self.taken += 1;
        let planted = self.faults.iter().find(|p| number.checked_sub(p.from).is_some_and(|n| n < p.count));
        let fault = planted.map(|planted| planted.fault);
        if fault == Some(EmulatedFault::Disappears) {
            return;
        }
        let mut result = run(&function, &job.input, &mut job.region);
        match (fault, &mut result) {
            (Some(EmulatedFault::Gone), _) => result = Err(JobError::Device("the device is gone".into())),
            (Some(EmulatedFault::Fails), _) => result = Err(JobError::Device("planted: it failed".into())),
            (Some(EmulatedFault::Length(by)), Ok(bytes)) => {
                let (length, got) = (function.1, bytes.saturating_add_signed(by));
                if got > job.region.output_max || !length.allows(job.input.len(), got) {
                    result = Err(JobError::length(length, job.input.len(), job.region.output_max, got));
                } else {
                    *bytes = got;
                }
            }
            _ => {}
        }
        let times = if let Some(EmulatedFault::Slow(times)) = fault { times } else { 1 };
        let at = self.timeline.admit(now, takes, job.input.len(), times);
        let completion = Completion::now(job.tag, Some(job.region), result);
        self.due.push(Reverse(DueCompletion { at, number, completion, done: job.done }));
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
