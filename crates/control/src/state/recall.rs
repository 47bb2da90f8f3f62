//! Recalls: an owner is told to give its memory back, commits what the element holds, and yields; then the memory moves.
//!
//! ```text
//!   recall ─▶ owner commits, yields │ time limit ─▶ withdrawal, new epoch ─▶ new part, or none if it was idle
//! ```
//!
//! All recalls of one element end together, so that their memory is shared out as a whole. The new epoch makes the move
//! safe even if the owner has not answered.

use pathcall_proto::v1::MemoryRecall;
use pathcall_wire::Instant;

use super::application::next_epoch;
use super::sharing::Claimant;
use super::{ControllerState, Lease, MemoryRecord};

/// Recall of an application's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecallInProgress {
    pub(super) reason: MemoryRecall,
    /// Time at which the controller takes the memory without the owner's answer.
    pub(super) until: Instant,
    /// Whether the owner has committed what the element held.
    pub(super) yielded: bool,
}

impl ControllerState {
    /// Tells an owner to give its memory back.
    pub(super) fn recall(&mut self, gaid: u32, reason: MemoryRecall) {
        let until = self.now + self.policy.recall;
        let Some(application) = self.applications.get_mut(&gaid) else { return };
        // Nobody answers for an owner that is gone.
        let until = if matches!(application.lease, Lease::Held(_)) { until } else { self.now };
        application.recall = Some(RecallInProgress { reason, until, yielded: false });
        application.unreported = true;
        self.answer_when_confirmed(gaid);
    }

    /// Records that an owner has committed what the element held in this epoch.
    pub(super) fn on_yielded(&mut self, gaid: u32, epoch: u32) {
        if let Some(application) = self.applications.get_mut(&gaid).filter(|a| a.record.epoch == epoch)
            && let Some(recall) = &mut application.recall
        {
            recall.yielded = true;
            self.end_recalls();
        }
    }

    pub(super) fn recall_of(&self, gaid: u32) -> Option<RecallInProgress> {
        self.applications.get(&gaid)?.recall
    }

    pub(super) fn is_over(&self, recall: &RecallInProgress) -> bool {
        recall.yielded || recall.until <= self.now
    }

    /// Moves the memory of each element whose recalls are over.
    pub(super) fn end_recalls(&mut self) {
        for id in self.elements.keys().copied().collect::<Vec<_>>() {
            let recalls: Vec<_> = self.installed_on(id).iter().filter_map(|gaid| self.recall_of(*gaid)).collect();
            if recalls.is_empty() || !recalls.iter().all(|recall| self.is_over(recall)) {
                continue;
            }
            let newcomers = self.newcomers_by_element().into_iter().filter(|(_, on)| *on == id).map(|(gaid, _)| gaid);
            let newcomers: Vec<_> = newcomers.collect();
            self.assign_parts(id, &newcomers);
        }
    }

    /// Takes recalled memory of an element, and gives new parts to the applications that had it, and to newcomers. The
    /// others keep theirs.
    pub(super) fn assign_parts(&mut self, id: u32, newcomers: &[u32]) {
        let recalled = self.installed_on(id).into_iter().filter_map(|gaid| Some((gaid, self.recall_of(gaid)?.reason)));
        let recalled: Vec<_> = recalled.collect();
        let idle = recalled.iter().filter(|(_, reason)| *reason == MemoryRecall::Idle).map(|(gaid, _)| *gaid);
        let idle: Vec<_> = idle.collect();
        let parts = self.claimants(id, newcomers, &idle).into_iter();
        let moves = |one: &Claimant| one.present == 0 || recalled.iter().any(|(gaid, _)| *gaid == one.gaid);
        let parts: Vec<_> = parts.filter(moves).collect();
        for &(gaid, reason) in &recalled {
            self.withdraw(gaid);
            if let Some(application) = self.applications.get_mut(&gaid) {
                application.parked |= reason == MemoryRecall::Idle;
            }
        }
        let Some(element) = self.elements.get_mut(&id) else { return };
        let parts = element.parts(&parts).into_iter();
        let taken: Vec<_> =
            parts.map(|(one, rows)| (one, element.take_part(rows, one.claim.width, one.claim.rows_min))).collect();
        for (Claimant { gaid, claim, present, .. }, part) in taken {
            if let Some((row_base, lane_base, rows)) = part {
                let memory = MemoryRecord { element: id, row_base, rows, lane_base, width: claim.width };
                self.assign(gaid, memory, present > 0);
            }
            self.answer_when_confirmed(gaid);
        }
        for gaid in idle {
            self.answer_when_confirmed(gaid);
        }
    }

    fn assign(&mut self, gaid: u32, memory: MemoryRecord, had_memory: bool) {
        if let Some(application) = self.applications.get_mut(&gaid) {
            application.moved_at = Some(self.now);
            if !had_memory {
                // Otherwise the epoch has grown with the withdrawal.
                application.record.epoch = next_epoch(application.record.epoch);
            }
        }
        self.grant(gaid, memory);
    }
}
