//! Open-loop load by one [`Caller`]: calls at their times, measured from those times on.

use std::collections::HashMap;
use std::fmt::Display;
use std::time::Duration;

use anyhow::{Result, ensure};
use apps_load::{Latencies, Random};
use bytes::Bytes;
use pathcall_endpoint::clone::{Ask, Caller, CallerConfig, CallerStats, Event, Options};
use pathcall_wire::{Instant, MAX_FRAME};

use super::{Load, Party, Roads};

/// Bytes of a request: a key.
const REQUEST: [u8; 16] = [7; 16];

/// What calls came to.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Of calls that count.
    pub(crate) latencies: Latencies,
    /// Of them, those that failed, and those that there was no room for.
    pub(crate) failed: u64,
    /// Why the first of them did.
    why: Option<String>,
    /// For how long calls were made that count.
    pub(crate) time: Duration,
    pub(crate) stats: CallerStats,
    /// When each was answered, from the beginning of that time.
    ended: Vec<Duration>,
}

impl Answers {
    /// That no call has failed.
    ///
    /// # Errors
    /// How many have, and why the first did.
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

    /// Calls answered in a second, while calls were made.
    pub(crate) fn rate(&self) -> f64 {
        self.ended.iter().filter(|at| **at < self.time).count() as f64 / self.time.as_secs_f64()
    }

    /// Calls answered in each step of that time.
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

/// Makes calls as planned.
pub(super) fn call(party: &Party, roads: &Roads, config: CallerConfig, load: &Load) -> Result<Answers> {
    let (Party { socket, .. }, Load { scheme, plan, deadline, waits, .. }) = (party, *load);
    let options = Options { deadline, ..scheme.options() };
    let mut caller = Caller::new(socket.now(), config);
    let (mut random, mut answers, mut made) = (Random::new(plan.seed), Answers::default(), HashMap::new());
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
        while let Some(event) = caller.event() {
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
            let ask = Ask { request: Bytes::from_static(&REQUEST), options };
            if made.len() >= plan.in_flight_max {
                answers.fail(u64::from(next >= counts_from), &"more are under way than may be");
            } else {
                made.insert(caller.ask(now, ask)?, next);
            }
            next = next + random.exponential(between);
        }
        while let Some((to, len)) = caller.transmit(socket.now(), &mut frame) {
            roads.send(socket, to, &frame[..len]);
        }
    }
    answers.time = plan.measured;
    answers.stats = caller.stats();
    Ok(answers)
}
