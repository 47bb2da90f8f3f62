//! Recall of an application's memory by the controller: the owner commits what the element holds, then yields.
//!
//! ```text
//!   grant with recall ─▶ harvest ─▶ registration with the yielded epoch ─▶ grant: another part, or none
//!                                                       idle: next call ─▶ registration ─▶ memory again
//! ```
//!
//! Calls continue meanwhile. What the element takes after the harvest is repeated by its callers at the change of
//! epoch, as after any other one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pathcall_proto::v1::{ApplicationGrant, MemoryRecall};

use super::OwnedApplication;

/// Time limit of the harvest. The controller waits a little longer.
const HARVEST_MAX: Duration = Duration::from_secs(2);

/// Latest epoch that was recalled, and latest one that was yielded.
#[derive(Debug, Default)]
pub(super) struct RecalledEpochs {
    recalled: AtomicU32,
    yielded: AtomicU32,
}

impl OwnedApplication {
    /// Epoch whose memory the controller may take; 0 if there is none.
    pub(in super::super) fn yielded_epoch(&self) -> u32 {
        self.recalled.yielded.load(Ordering::Relaxed)
    }

    /// Begins to give the memory of a grant back, if the controller recalls it.
    pub(super) fn on_recall(&self, grant: &ApplicationGrant) {
        let (recall, epoch) = (grant.recall(), grant.epoch);
        if recall == MemoryRecall::Unspecified || self.recalled.recalled.swap(epoch, Ordering::Relaxed) == epoch {
            return;
        }
        let Some(owned) = self.this.upgrade() else { return };
        tokio::spawn(async move {
            if let Some(active) = owned.active() {
                // The answer does not matter: an epoch may end at any time. The harvest leaves little to be repeated.
                let _ = tokio::time::timeout(HARVEST_MAX, active.handle.query(Some(Vec::new()))).await;
            }
            owned.give_back(epoch, recall == MemoryRecall::Idle);
        });
    }

    /// Requests memory for the first caller, if the controller has recalled that of the first registration.
    pub(super) fn ask_if_recalled(&self) {
        if self.recalled.recalled.load(Ordering::Relaxed) != 0 {
            self.ask_anew.notify_one();
        }
    }

    fn give_back(&self, epoch: u32, is_idle: bool) {
        let application = self.application.name;
        tracing::info!(application, epoch, is_idle, "giving element memory back to the controller");
        self.recalled.yielded.store(epoch, Ordering::Relaxed);
        let active = self.active();
        // Without callers, the application starts with the grant that it has at its first one.
        if let Some(active) = active.filter(|_| is_idle && self.choice.set_idle(true)) {
            let (owned, mut used) = (self.this.clone(), active.handle.watch_use());
            tokio::spawn(async move {
                if used.changed().await.is_ok()
                    && let Some(owned) = owned.upgrade()
                    && owned.choice.set_idle(false)
                {
                    owned.ask_anew.notify_one();
                }
            });
        }
        self.ask_anew.notify_one();
    }
}
