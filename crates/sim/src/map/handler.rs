//! Handler of an owner whose sums are for the server: it takes some time for each sum, and answers with other values.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use pathcall_endpoint::map::Lanes;
use pathcall_endpoint::map::server::{MapServer, ReachedPosition, ReachedSum, SumEvent};
use pathcall_wire::Instant;

use super::node::{Effects, NodeReport};
use super::scenario::{ApplicationPlan, Step};
use crate::random::Random;

/// Properties of an application's handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandlerPlan {
    /// Limit on the time of a call.
    pub time_max: Duration,
    /// Whether it gets whole arrays: no chunk has a result before all chunks of its call have sums.
    pub whole: bool,
}

/// Calls of one application's handler in progress.
pub(crate) struct Handler {
    plan: HandlerPlan,
    random: Random,
    /// Results by the time at which they are ready.
    running: BTreeMap<(Instant, ReachedPosition), Lanes>,
    /// Chunks that were handled since the latest failure.
    handled: BTreeSet<u64>,
    /// First chunks of the calls, if it gets whole arrays.
    calls: Vec<u64>,
    /// Sums that wait for others of their call.
    waiting: BTreeMap<u64, ReachedSum>,
}

impl Handler {
    /// Handler of an application, of which it knows the steps.
    pub(crate) fn new(plan: HandlerPlan, application: &ApplicationPlan) -> Self {
        let steps = application.callers.first().map_or(&[][..], |caller| &caller.steps);
        let next = |first: &mut u64, step: &Step| {
            let chunk = *first;
            *first += step.work.chunks(application.width);
            Some(chunk)
        };
        let mut calls: Vec<u64> = steps.iter().scan(0, next).collect();
        calls.push(steps.iter().map(|step| step.work.chunks(application.width)).sum());
        Self {
            plan,
            random: Random::new(application.incarnation.into()),
            running: BTreeMap::new(),
            handled: BTreeSet::new(),
            calls,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes the sums of the server, and sends the results that are ready.
    pub(crate) fn exchange(&mut self, now: Instant, server: &mut MapServer, effects: &mut Effects) {
        while let Some(event) = server.next_sum_event() {
            match event {
                SumEvent::Reached(sum) => self.take(now, sum, effects),
                // The workers repeat the step.
                SumEvent::Failed => {
                    self.handled.clear();
                    self.waiting.clear();
                }
            }
        }
        self.begin_calls(now, server.chunks_at_once().into());
        while let Some(entry) = self.running.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, position), result) = entry.remove_entry();
            server.answer_sum(now, position, &result, effects);
        }
    }

    /// Takes a sum, which waits for the other sums of its call if the handler gets whole arrays.
    fn take(&mut self, now: Instant, sum: ReachedSum, effects: &mut Effects) {
        let chunk = sum.position.chunk;
        if !self.handled.insert(chunk) {
            effects.reports.push(NodeReport::HandledAgain(chunk));
        }
        match self.call_of(chunk) {
            Some(_) if self.plan.whole => drop(self.waiting.insert(chunk, sum)),
            _ => self.begin(now, &sum),
        }
    }

    /// Begins to handle the sums of complete calls, and of calls with more than `most` chunks.
    fn begin_calls(&mut self, now: Instant, most: u64) {
        let mut at = 0;
        while let Some((&chunk, _)) = self.waiting.range(at..).next() {
            at = chunk + 1;
            let Some(call) = self.call_of(chunk) else { continue };
            // The number of rows may have grown since some of the call's sums were handled alone.
            let (len, has) = (call.end - call.start, self.handled.range(call.clone()).count() as u64);
            if len > most || has == len {
                let ready: Vec<_> = call.filter_map(|chunk| self.waiting.remove(&chunk)).collect();
                ready.iter().for_each(|sum| self.begin(now, sum));
            }
        }
    }

    /// Chunks of the call that has this chunk.
    fn call_of(&self, chunk: u64) -> Option<Range<u64>> {
        let end = self.calls.partition_point(|first| *first <= chunk);
        Some(self.calls[end.checked_sub(1)?]..*self.calls.get(end)?)
    }

    fn begin(&mut self, now: Instant, sum: &ReachedSum) {
        let ready = now + self.random.up_to(self.plan.time_max);
        self.running.insert((ready, sum.position), sum.sums.iter().map(result).collect());
    }

    /// Time of the next result.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running.first_key_value().map(|((ready, _), _)| *ready)
    }
}

/// Result of the handler for a lane: another one for each sum, and some need 64 bits.
pub(crate) fn result(sum: i64) -> i64 {
    sum ^ if sum & 7 == 3 { 1 << 40 } else { 0x58 }
}
