//! Invariant checks of late binding: a device takes a request only with room, and only if no other one ends it sooner;
//! no request waits for a device that has stopped answering.

use pathcall_place::select::SelectionReason;
use pathcall_place::{Config, Dispatch, LearnedTimes, Path, PathId, SelectionStrategy, Selector};
use pathcall_wire::Instant;

use super::checker::{PlaceChecker, PlaceViolation};

/// Time from which a path is stalled: it has messages, and none has ended for some times its usual time.
#[derive(Debug)]
pub(super) struct StallModel {
    /// Time of the last end of a message, or of the first message of an idle path.
    progress: Instant,
    /// Usual time of a message, in nanoseconds.
    usual_ns: u64,
    /// Time without an end after which it is stalled, in nanoseconds.
    stall_ns: u64,
}

impl StallModel {
    pub(super) fn new(path: &Path, config: &Config) -> Self {
        let mut stall = Self { progress: Instant(0), usual_ns: path.traverse_ns + path.noise_ns, stall_ns: 0 };
        stall.set_limit(config);
        stall
    }

    fn set_limit(&mut self, config: &Config) {
        self.stall_ns = (self.usual_ns * u64::from(config.stall_factor)).max(config.stall_ns_min);
    }
}

impl PlaceChecker<'_> {
    /// Records that a message is sent over a path with this number of messages in flight.
    pub(super) fn record_flight(&mut self, now: Instant, path: PathId, in_flight: u32) {
        if in_flight == 0 {
            self.stalls[usize::from(path.0)].progress = now;
        }
    }

    /// Records that a message of a path was answered after `total_ns`, or failed.
    pub(super) fn record_flight_end(&mut self, now: Instant, path: PathId, total_ns: Option<u64>) {
        let stall = &mut self.stalls[usize::from(path.0)];
        stall.progress = now;
        if let Some(total_ns) = total_ns {
            stall.usual_ns = stall.usual_ns - stall.usual_ns / 8 + total_ns / 8;
            stall.set_limit(&self.plan.config);
        }
    }

    /// Checks that the selector has left each stalled path that requests wait for. `waiting`: requests that are not in
    /// flight, by type.
    pub(super) fn check_stalls(
        &self,
        now: Instant,
        selector: &Selector,
        waiting: &[u32],
    ) -> Result<(), PlaceViolation> {
        // Otherwise some wait for others, and their types may have nothing in the common queue.
        let all_queued = selector.waiting() > 0 && selector.waiting() == waiting.iter().sum::<u32>();
        if self.plan.strategy != SelectionStrategy::Late || !all_queued {
            return Ok(());
        }
        let kinds = self.paths.kinds.iter().zip(waiting).filter(|(_, waiting)| **waiting > 0);
        for path in kinds.flat_map(|(kind, _)| kind.first.0..kind.first.0 + kind.count) {
            let (state, stall) = (selector.state(PathId(path)), &self.stalls[usize::from(path)]);
            let counts = state.in_flight > 0 && state.left_until.is_none();
            // The selector is asked one nanosecond after the limit.
            if counts && now.0 > stall.progress.0 + stall.stall_ns + 1 {
                let quiet = now.since(stall.progress).as_nanos() as u64;
                return Err(PlaceViolation::Stalled { path, quiet, most: stall.stall_ns });
            }
        }
        Ok(())
    }

    /// Estimates of late binding, by path; none with other strategies.
    pub(super) fn learned(&self, selector: &Selector) -> Vec<LearnedTimes> {
        let paths = 0..self.paths.paths.len() as u16;
        if self.plan.strategy == SelectionStrategy::Late {
            paths.filter_map(|path| selector.state(PathId(path)).learned).collect()
        } else {
            Vec::new()
        }
    }

    /// Checks that a device took a request from the common queue only if it had room, and no other one would have ended
    /// the request sooner, after all that wait. `before`: estimates before the selection.
    pub(super) fn check_binding(
        &self,
        before: &[LearnedTimes],
        selector: &Selector,
        request: usize,
        dispatch: &Dispatch,
    ) -> Result<(), PlaceViolation> {
        let path = dispatch.path.0;
        let Some(own) = before.get(usize::from(path)).filter(|_| dispatch.reason == SelectionReason::Best) else {
            return Ok(());
        };
        if !own.has_room {
            return Err(PlaceViolation::NoRoom { request, path });
        }
        let gap_max = before.iter().map(|times| times.gap_ns).max().unwrap_or(0);
        let waiting_ns = u64::from(selector.waiting() + 1).saturating_mul(gap_max);
        let kind = &self.paths.kinds[usize::from(self.plan.requests[request].kind.0)];
        let others = (kind.first.0..kind.first.0 + kind.count).filter(|other| {
            let usable = selector.state(PathId(*other)).left_until.is_none();
            usable && own.is_tried && before[usize::from(*other)].is_tried
        });
        for other in others {
            let sooner = before[usize::from(other)].expected_ns.saturating_add(waiting_ns);
            if own.expected_ns > sooner {
                return Err(PlaceViolation::Sooner { request, path, expected: own.expected_ns, other, sooner });
            }
        }
        Ok(())
    }
}
