//! End of an owner with a store, and the owner that takes over.
//!
//! ```text
//! crash ─► callers lose their streams ─► suspended ─────────────► resume ─► go on
//!    └────► down ─► take over, with what is on the disk ─► memory ──┘
//! ```

use std::time::Duration;

use super::failing::SUSPENSION;
use super::{MapEvent, MapWorld};
use crate::map::checker::MapViolation;
use crate::map::node::MapNodeId;

/// Limit on the time after which a caller asks the owner that has taken over.
const RESUMED_WITHIN: Duration = Duration::from_millis(300);

impl MapWorld<'_> {
    /// Ends an owner. Its machine takes no frames until another owner is there.
    pub(super) fn crash_owner(&mut self, index: usize) {
        let crash = self.scenario.owner_crashes[index];
        let (application, node) = (crash.application, MapNodeId::Owner(crash.application));
        self.time.node_line(node, || format!("CRASHES {crash:?}"));
        self.counts.owner_crashes += 1;
        let owner = &mut self.nodes.owners[application];
        let life = owner.crash();
        let until = self.time.now + crash.down;
        self.nodes.host(node).stop(until);
        self.time.push(until, MapEvent::TakeOver(application, life));
        for number in 0..self.nodes.callers[application].len() {
            let at = self.time.now + self.controller.random.up_to(crash.noticed_max);
            self.time.push(at, MapEvent::Detach(application, number, life));
        }
    }

    /// Starts an owner from the disk of the former one, unless that has been started again since.
    pub(super) fn take_over(&mut self, application: usize, life: u32) -> Result<(), MapViolation> {
        let node = MapNodeId::Owner(application);
        if let Some(later) = self.busy_until(node) {
            self.time.push(later, MapEvent::TakeOver(application, life));
            return Ok(());
        }
        if self.nodes.owners[application].life() != life {
            return Ok(());
        }
        let (epoch, memory) = self.controller.next_epoch(application);
        let now = self.local_time(node);
        let mut effects = std::mem::take(&mut self.effects);
        let restored = self.nodes.owners[application].take_over(now, epoch, &mut effects);
        restored.map_err(|error| MapViolation::Restore { node, error })?;
        self.time.node_line(node, || format!("TAKES OVER in epoch {epoch}"));
        self.carry_out(node, effects, false)?;
        if memory {
            self.time.after(self.controller.random.up_to(SUSPENSION), MapEvent::RequestMemory(application));
        }
        let life = self.nodes.owners[application].life();
        for number in 0..self.nodes.callers[application].len() {
            let at = self.time.now + self.controller.random.up_to(RESUMED_WITHIN);
            self.time.push(at, MapEvent::Resume(application, number, life));
        }
        // Queries wait for nobody any more: they are asked again.
        for id in std::mem::take(&mut self.nodes.owners[application].unanswered) {
            let keys = self.scenario.applications[application].queries.get(id.0 as usize);
            let keys = keys.and_then(|query| query.keys.clone());
            self.on_owner(application, |owner, now, effects| owner.query_again(now, id, keys, effects))?;
        }
        Ok(())
    }

    /// A caller learns that its stream to the owner is broken.
    pub(super) fn detach(&mut self, application: usize, number: usize, life: u32) {
        let is_of_former = self.nodes.callers[application][number].owner <= life;
        if self.nodes.owners[application].life() == life && is_of_former {
            self.controller.forget_updates(application, number);
            self.nodes.callers[application][number].suspend();
        }
    }

    /// A caller continues with the owner that has taken over.
    pub(super) fn resume(&mut self, application: usize, number: usize, life: u32) -> Result<(), MapViolation> {
        let (node, owner) = (MapNodeId::Caller(application, number), MapNodeId::Owner(application));
        if let Some(later) = self.later(owner).max(self.later(node)) {
            self.time.push(later, MapEvent::Resume(application, number, life));
            return Ok(());
        }
        if self.nodes.callers[application][number].owner >= life {
            // It has joined since.
            return Ok(());
        }
        // It may not have learnt yet that its stream is broken.
        self.detach(application, number, life);
        let plan = &self.scenario.applications[application].callers[number];
        let state = &mut self.nodes.callers[application][number];
        let Some(epoch) = state.suspended_epoch().filter(|_| self.nodes.owners[application].life() == life) else {
            return Ok(());
        };
        let now = self.local_time(owner);
        let owner_state = &mut self.nodes.owners[application];
        let Some((new, change)) = owner_state.resume(now, plan, epoch) else {
            return Err(MapViolation::NotResumed { node });
        };
        self.windows.renewed(plan.endpoint, change.rows);
        self.time.renewal(node, &change);
        let now = self.local_time(node);
        let mut effects = std::mem::take(&mut self.effects);
        let state = &mut self.nodes.callers[application][number];
        state.owner = life;
        state.resume(now, &new, &change, &mut effects);
        self.set_alarm(owner);
        self.carry_out(node, effects, false)
    }
}
