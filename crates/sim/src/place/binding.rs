//! Invariant checks of late binding: a device takes a request only with room, and only if no other one ends it sooner.

use pathcall_place::select::SelectionReason;
use pathcall_place::{Dispatch, LearnedTimes, PathId, SelectionStrategy, Selector};

use super::checker::{PlaceChecker, PlaceViolation};

impl PlaceChecker<'_> {
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
