//! Sharing of the elements' memory among applications that together want more than there is.
//!
//! ```text
//!   a claim below its share ─▶ recall from idle applications and from those above theirs ─▶ owners yield ─▶ new parts
//! ```
//!
//! As long as there is enough, memory is given first come, first served (NetRPC §5.2.2). If not, applications that were
//! idle for a while (`idle`) give all of theirs back, and then each application on the element gets its fair share
//! (`shares`). An owner is told before its memory moves (`recall`).
//!
//! **Hysteresis.** Shares change only when a claim is more than an eighth below its fair share. Memory is taken from
//! those that are more than an eighth above theirs, and from others only if that is not enough. An application whose
//! share has changed keeps it for a while, unless a newcomer has nothing.

use std::cmp::Reverse;
use std::time::Duration;

use pathcall_proto::v1::MemoryRecall;
use pathcall_wire::Instant;

use super::shares::{MemoryClaim, MemorySize, fair_rows, rows_within};
use super::{Application, ControllerState, Element, Lease, ROWS_MIN, Ranges};

/// Time from a change until memory is shared out again: applications that start together are handled together.
const SHARE_PAUSE: Duration = Duration::from_secs(1);
/// Part of a fair share by which an application's memory may differ from it.
const TOLERANCE: u32 = 8;

/// Application with a claim on an element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimant {
    pub(super) gaid: u32,
    pub(super) claim: MemoryClaim,
    /// Present rows.
    pub(super) present: u32,
    /// Fair share, rows.
    pub(super) fair: u32,
}

impl Claimant {
    fn is_newcomer(&self) -> bool {
        self.present == 0
    }

    /// Whether it has clearly less than its share.
    fn is_below(&self) -> bool {
        is_below(self.present, self.fair)
    }

    /// Whether it has clearly more than its share.
    fn is_above(&self) -> bool {
        is_below(self.fair, self.present)
    }
}

impl ControllerState {
    /// Notes a change after which memory may have to be shared out anew.
    pub(super) fn note_memory_change(&mut self) {
        self.share_within(SHARE_PAUSE);
    }

    fn share_within(&mut self, time: Duration) {
        let at = self.now + time;
        self.share_at = Some(self.share_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Times at which [`Self::share_memory`] is due.
    pub(super) fn sharing_deadlines(&self) -> impl Iterator<Item = Instant> + '_ {
        let recalls = self.applications.values().filter_map(|application| application.recall);
        // A recall that is over waits for the others of its element.
        let recalls = recalls.filter(|recall| !self.is_over(recall)).map(|recall| recall.until);
        let polls = self.elements.values().filter_map(|element| element.poll_at);
        recalls.chain(polls).chain(self.share_at)
    }

    /// Ends recalls that are over, and begins those that are due.
    pub(super) fn share_memory(&mut self) {
        self.poll_last_frames();
        self.end_recalls();
        if self.share_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.share_at = None;
        let newcomers = self.newcomers_by_element();
        for id in self.elements.keys().copied().collect::<Vec<_>>() {
            let newcomers: Vec<_> = newcomers.iter().filter(|(_, on)| *on == id).map(|(gaid, _)| *gaid).collect();
            self.share_out(id, &newcomers);
        }
        self.end_recalls();
    }

    /// Applications that want memory and have none, each with the element on which it would get most.
    pub(super) fn newcomers_by_element(&self) -> Vec<(u32, u32)> {
        let wants = |a: &&Application| {
            matches!(a.lease, Lease::Held(_)) && a.record.memory.is_none() && !a.parked && self.wanted_rows(a) > 0
        };
        let mut newcomers: Vec<_> =
            self.applications.values().filter(wants).map(|a| (a.since, a.record.gaid)).collect();
        newcomers.sort_unstable();
        let mut chosen: Vec<(u32, u32)> = Vec::new();
        for (_, gaid) in newcomers {
            let mut best = (0, 0);
            for &id in self.elements.keys().filter(|id| self.may_use(gaid, **id)) {
                let mut others: Vec<_> = chosen.iter().filter(|(_, on)| *on == id).map(|(gaid, _)| *gaid).collect();
                others.push(gaid);
                let rows = self.claimants(id, &others, &[]).last().map_or(0, |claimant| claimant.fair);
                best = if rows > best.0 { (rows, id) } else { best };
            }
            chosen.extend((best.0 > 0).then_some((gaid, best.1)));
        }
        chosen
    }

    /// Whether an application can be offered memory of an element.
    pub(super) fn may_use(&self, gaid: u32, id: u32) -> bool {
        let (Some(application), Some(element)) = (self.applications.get(&gaid), self.elements.get(&id)) else {
            return false;
        };
        let serves = element.serving && element.width_for(application).is_some();
        serves && !element.refused.contains(&gaid) && !application.silent.contains(&element.record.boot_id)
    }

    /// Rows that an application may have, of those that it requests.
    pub(super) fn wanted_rows(&self, application: &Application) -> u32 {
        let record = &application.record;
        let quota = self.policy.quota(&record.name).map(|quota| rows_within(quota, record.width));
        quota.map_or(record.rows, |quota| quota.min(record.rows))
    }

    /// Claims on an element with their fair shares: of its applications, in the order in which they came, then of
    /// newcomers; without those of `excluded`.
    pub(super) fn claimants(&self, id: u32, newcomers: &[u32], excluded: &[u32]) -> Vec<Claimant> {
        let Some(element) = self.elements.get(&id) else { return Vec::new() };
        let mut holders = self.installed_on(id);
        holders.sort_by_key(|gaid| self.applications.get(gaid).map(|application| application.since));
        let claimant = |gaid: u32| {
            let application = self.applications.get(&gaid)?;
            let rows = self.wanted_rows(application);
            let claim = MemoryClaim {
                rows,
                rows_min: ROWS_MIN.min(rows),
                width: element.width_for(application)?.max(1),
                weight: self.policy.weight(&application.record.name),
            };
            let present = application.record.memory.map_or(0, |memory| memory.rows);
            Some(Claimant { gaid, claim, present, fair: 0 })
        };
        let all = holders.into_iter().chain(newcomers.iter().copied()).filter(|gaid| !excluded.contains(gaid));
        let mut claimants: Vec<_> = all.filter_map(claimant).collect();
        let fair = fair_rows(element.memory_size(), &claimants.iter().map(|one| one.claim).collect::<Vec<_>>());
        claimants.iter_mut().zip(fair).for_each(|(claimant, fair)| claimant.fair = fair);
        claimants
    }

    /// Fair share of an application, rows; 0 if it has no memory.
    pub(super) fn fair_share(&self, gaid: u32) -> u32 {
        let Some(id) = self.element_of(gaid) else { return 0 };
        let claimants = self.claimants(id, &[], &[]);
        claimants.iter().find(|claimant| claimant.gaid == gaid).map_or(0, |claimant| claimant.fair)
    }

    /// Begins the recalls that give the claims on an element their shares, or gives memory that is free.
    fn share_out(&mut self, id: u32, newcomers: &[u32]) {
        let is_recalling = self.installed_on(id).iter().any(|gaid| self.recall_of(*gaid).is_some());
        if is_recalling || self.elements.get(&id).is_none_or(|element| !element.serving) {
            return;
        }
        let all = self.claimants(id, newcomers, &[]);
        let limit = if self.has_need(&all) { self.policy.idle } else { self.policy.idle_max };
        let is_idle = |gaid: &u32| self.applications.get(gaid).is_some_and(|application| application.idle >= limit);
        let idle: Vec<_> = all.iter().map(|claimant| claimant.gaid).filter(is_idle).collect();
        let claimants = self.claimants(id, newcomers, &idle);
        if claimants.iter().any(|one| one.is_below() && !self.may_change(one)) {
            self.share_within(self.policy.settle);
        }
        let moving = self.moving(id, &idle, &claimants);
        let has_newcomer = claimants.iter().any(|one| one.is_newcomer() && one.fair > 0);
        if idle.is_empty() && moving.is_empty() && has_newcomer {
            return self.assign_parts(id, newcomers);
        }
        for gaid in idle {
            self.recall(gaid, MemoryRecall::Idle);
        }
        for gaid in moving {
            self.recall(gaid, MemoryRecall::Share);
        }
    }

    /// Applications whose parts have to move for the shares.
    fn moving(&self, id: u32, idle: &[u32], claimants: &[Claimant]) -> Vec<u32> {
        let has_need = self.has_need(claimants);
        let has_newcomer = claimants.iter().any(|one| one.is_newcomer() && one.fair > 0);
        let moves = |one: &&Claimant| {
            let may_change = self.may_change(one);
            let differs = one.is_above() && (may_change || has_newcomer) || one.is_below() && may_change;
            !one.is_newcomer() && (one.present > one.claim.rows || has_need && differs)
        };
        let mut moving: Vec<_> = claimants.iter().filter(moves).map(|one| one.gaid).collect();
        let others = claimants.iter().filter(|one| !one.is_newcomer() && !moving.contains(&one.gaid));
        let mut others: Vec<_> =
            others.map(|one| (Reverse(i64::from(one.present) - i64::from(one.fair)), one.gaid)).collect();
        others.sort_unstable();
        // The free parts may be too small. Each time twice as many of the others move, those with most above their
        // shares first.
        let mut more = 1;
        while has_need && !others.is_empty() && !self.fits_after(id, idle, &moving, claimants) {
            moving.extend(others.drain(..others.len().min(more)).map(|(_, gaid)| gaid));
            more *= 2;
        }
        moving
    }

    /// Whether a claim is so far below its share that memory must be shared out anew.
    fn has_need(&self, claimants: &[Claimant]) -> bool {
        claimants.iter().any(|one| one.is_below() && self.may_change(one))
    }

    /// Whether the share of an application has not changed just now.
    fn may_change(&self, claimant: &Claimant) -> bool {
        let moved_at = self.applications.get(&claimant.gaid).and_then(|application| application.moved_at);
        claimant.is_newcomer() || moved_at.is_none_or(|at| self.now.since(at) >= self.policy.settle)
    }

    /// Whether moving parts and newcomers get most of their shares once the memory of idle and moving ones is free.
    fn fits_after(&self, id: u32, idle: &[u32], moving: &[u32], claimants: &[Claimant]) -> bool {
        let Some(mut element) = self.elements.get(&id).cloned() else { return false };
        for gaid in idle.iter().chain(moving) {
            if let Some(memory) = self.applications.get(gaid).and_then(|application| application.record.memory) {
                element.rows.release(memory.row_base);
                element.lanes.release(memory.lane_base);
            }
        }
        let parts: Vec<_> =
            claimants.iter().filter(|one| one.is_newcomer() || moving.contains(&one.gaid)).copied().collect();
        element.parts(&parts).into_iter().filter(|(part, _)| part.fair > 0).all(|(part, rows)| {
            let got = element.take_part(rows, part.claim.width, 0).map_or(0, |(_, _, rows)| rows);
            !is_below(got, part.fair)
        })
    }
}

impl Element {
    fn memory_size(&self) -> MemorySize {
        MemorySize { rows: self.record.rows, lanes: self.record.lanes }
    }

    /// Rows of each part when free memory is shared out among claimants, the largest part first.
    pub(super) fn parts(&self, claimants: &[Claimant]) -> Vec<(Claimant, u32)> {
        let free = |ranges: &Ranges, all: u32| all.saturating_sub(ranges.used());
        let free = MemorySize { rows: free(&self.rows, self.record.rows), lanes: free(&self.lanes, self.record.lanes) };
        let claim =
            |one: &Claimant| MemoryClaim { rows: one.fair, rows_min: one.claim.rows_min.min(one.fair), ..one.claim };
        let rows = fair_rows(free, &claimants.iter().map(claim).collect::<Vec<_>>());
        let mut parts: Vec<_> = claimants.iter().copied().zip(rows).collect();
        parts.sort_by_key(|(one, rows)| Reverse(u64::from(*rows) * u64::from(one.claim.width)));
        parts
    }

    /// Reserves up to `rows` rows, if there are at least `rows_min` in one piece: first row, first lane, and rows.
    pub(super) fn take_part(&mut self, rows: u32, width: u32, rows_min: u32) -> Option<(u32, u32, u32)> {
        let rows = rows.min(self.rows.largest()).min(self.lanes.largest() / width);
        if rows == 0 || rows < rows_min {
            return None;
        }
        Some((self.rows.take(rows)?, self.lanes.take(rows * width)?, rows))
    }
}

/// Whether `rows` is clearly less than `share`.
fn is_below(rows: u32, share: u32) -> bool {
    rows + rows / TOLERANCE < share
}
