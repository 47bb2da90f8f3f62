//! Open-loop load by one caller: calls start at scheduled times, and latencies count from these times.

use std::collections::HashMap;
use std::fmt::Display;
use std::time::Duration;

use anyhow::{Result, ensure};
use apps_load::{Latencies, Random};
use bytes::Bytes;
use pathcall_endpoint::clone::{CloneCall, CloneCaller, CloneCallerConfig, CloneCallerStats, CloneOptions, Event};
use pathcall_wire::{Instant, MAX_FRAME};

use super::{PartyAddresses, RackLoad, RackParty};

/// Request bytes: a key.
const REQUEST: [u8; 16] = [7; 16];

/// Results of calls.
#[derive(Debug, Default)]
pub(crate) struct CallAnswers {
    /// Latencies of measured calls.
    pub(crate) latencies: Latencies,
    /// Measured calls that failed, or had no room in the caller.
    pub(crate) failed: u64,
    /// Reason of the first failure.
    why: Option<String>,
    /// Length of the measured time.
    pub(crate) time: Duration,
    pub(crate) stats: CloneCallerStats,
    /// Time of each answer, from the start of the measured time.
    ended: Vec<Duration>,
}

impl CallAnswers {
    /// Checks that no call has failed.
    ///
    /// # Errors
    /// Returns the number of failed calls and the reason of the first failure.
    pub(crate) fn all(&self) -> Result<()> {
        ensure!(self.failed == 0, "{} calls failed: {}", self.failed, self.why.as_deref().unwrap_or_default());
        Ok(())
    }

    fn fail(&mut self, calls: u64, why: &dyn Display) {
        self.failed += calls;
        if calls > 0 {
            self.why.get_or_insert_with(|| why.to_string());
        }
    }

    /// Calls answered per second of the measured time.
    pub(crate) fn rate(&self) -> f64 {
        self.ended.iter().filter(|at| **at < self.time).count() as f64 / self.time.as_secs_f64()
    }

    /// Calls answered in each step of the measured time.
    pub(crate) fn timeline(&self, step: Duration) -> Vec<u64> {
        let mut counts = vec![0; (self.time.as_nanos() / step.as_nanos()) as usize];
        for at in &self.ended {
            if let Some(count) = counts.get_mut((at.as_nanos() / step.as_nanos()) as usize) {
                *count += 1;
            }
        }
        counts
    }
}

/// Makes the planned calls.
pub(super) fn call(
    party: &RackParty,
    addresses: &PartyAddresses,
    config: CloneCallerConfig,
    load: &RackLoad,
) -> Result<CallAnswers> {
    let (RackParty { socket, .. }, RackLoad { scheme, plan, deadline, waits, .. }) = (party, *load);
    let options = CloneOptions { deadline, ..scheme.options() };
    let mut caller = CloneCaller::new(socket.now(), config);
    let (mut random, mut answers, mut made) = (Random::new(plan.seed), CallAnswers::default(), HashMap::new());
    let between = Duration::from_secs_f64(1.0 / plan.rate);
    let began = socket.now();
    let (counts_from, end) = (began + plan.warm, began + plan.warm + plan.measured);
    let mut next = began + random.exponential(between);
    let mut frame = [0; MAX_FRAME];
    while next < end || waits && !caller.is_empty() {
        let due = (next < end).then_some(next);
        socket.wait(due.into_iter().chain(caller.deadline()).min())?;
        while let Some(len) = socket.receive(&mut frame)? {
            caller.receive(socket.now(), &frame[..len]);
        }
        let now = socket.now();
        caller.poll(now);
        while let Some(event) = caller.next_event() {
            let (Event::Answered(id, _) | Event::Failed(id, _)) = event;
            let meant: Option<Instant> = made.remove(&id);
            let Some(meant) = meant.filter(|meant| *meant >= counts_from) else { continue };
            match event {
                Event::Answered(..) => {
                    answers.latencies.record(now.since(meant));
                    answers.ended.push(now.since(counts_from));
                }
                Event::Failed(_, failure) => answers.fail(1, &failure),
            }
        }
        while next < end && next <= now {
            let ask = CloneCall { request: Bytes::from_static(&REQUEST), options };
            if made.len() >= plan.in_flight_max {
                answers.fail(u64::from(next >= counts_from), &"more are under way than may be");
            } else {
                made.insert(caller.start_call(now, ask)?, next);
            }
            next = next + random.exponential(between);
        }
        while let Some((to, len)) = caller.transmit(socket.now(), &mut frame) {
            addresses.send(socket, to, &frame[..len]);
        }
    }
    answers.time = plan.measured;
    answers.stats = caller.stats();
    Ok(answers)
}
