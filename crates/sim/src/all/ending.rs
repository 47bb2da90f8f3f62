//! End of a combined run: final checks, removal of all registrations, and frames of the attacker.

use pathcall_program::{FrameAction, InstalledApplication};
use pathcall_wire::{Base, CloneFrame, FrameKind};

use super::checker::{self, CombinedViolation};
use super::world::{CombinedWorld, each_part};
use crate::clone;
use crate::timeline::SteppedRun;

impl CombinedWorld<'_> {
    /// Runs the final checks of every part, and of the whole.
    pub(super) fn check_end(&mut self) -> Result<(), CombinedViolation> {
        each_part!(self, part, _name => part.check_end()?);
        if self.work.open() > 0 {
            return Err(CombinedViolation::Unended(self.work.open()));
        }
        self.switch.with_program(|program| self.switch.traffic(|traffic| checker::counters(program, traffic)))?;
        self.check_pool()?;
        self.remove_registrations()
    }

    /// Checks that the element's program still has the pool that was last installed.
    fn check_pool(&self) -> Result<(), CombinedViolation> {
        let Some(pool) = self.clone.as_ref().and_then(clone::world::CloneWorld::installed) else { return Ok(()) };
        let known = self.switch.with_program(|program| {
            let mut pools = program.tables().pools();
            pools.any(|(known, ..)| {
                (known.gaid, known.version) == (pool.gaid, pool.version) && known.servers == pool.servers
            })
        });
        if known { Ok(()) } else { Err(CombinedViolation::Forgotten) }
    }

    /// Removes all registrations, as the controller would, and checks that no state is left in the element.
    fn remove_registrations(&self) -> Result<(), CombinedViolation> {
        let (applications, pools, endpoints) = self.switch.with_program(|program| {
            let tables = program.tables();
            let applications: Vec<InstalledApplication> =
                tables.applications().map(|(application, ..)| application).collect();
            let pools: Vec<u32> = tables.pools().map(|(pool, ..)| pool.gaid).collect();
            let endpoints: Vec<u32> = tables.endpoints().map(|endpoint| endpoint.endpoint).collect();
            (applications, pools, endpoints)
        });
        self.switch.with_tables(|tables| {
            for gaid in applications.iter().map(|application| application.gaid).chain(pools) {
                let removed = tables.remove(gaid);
                debug_assert!(removed.is_ok(), "{removed:?}");
            }
            // Of applications without memory in this element, only the endpoints were registered.
            endpoints.into_iter().for_each(|endpoint| tables.remove_endpoint(endpoint));
        });
        self.switch.with_program(|program| checker::check_no_state_left(program, &applications))
    }

    /// Sends a copy of an overheard frame under the ids of another ability's application or pool. The element must
    /// not admit it.
    pub(super) fn check_stranger_rejected(&mut self) -> Result<(), CombinedViolation> {
        let mut bytes = self.switch.traffic(|traffic| traffic.last.clone());
        let Ok(base) = Base::new_checked(bytes.as_slice()) else { return Ok(()) };
        let Ok(kind) = FrameKind::parse(base.kind()) else { return Ok(()) };
        let of_clone = CloneFrame::new_checked(bytes.as_slice()).is_ok();
        let Some((gaid, src, dst)) = (if of_clone { self.names_of_map() } else { self.names_of_clone() }) else {
            return Ok(());
        };
        let Ok(mut base) = Base::new_checked(bytes.as_mut_slice()) else { return Ok(()) };
        base.set_gaid(gaid);
        base.set_src(src.0);
        base.set_src_incarnation(src.1);
        base.set_dst(dst);
        self.counts.strange += 1;
        let before = self.switch.with_program(checker::admitted);
        let verdict = self.switch.process(self.time.now, &mut bytes, false);
        self.say(format!(
            "a stranger sends {kind:?} in the name of {gaid}, from {} to {dst}: {:?}",
            src.0, verdict.action
        ));
        // A frame that is not admitted may be forwarded.
        let passed_on = matches!(verdict.action, FrameAction::Forward(to) if to == dst);
        let admitted = self.switch.with_program(checker::admitted) != before;
        if admitted || !(passed_on || matches!(verdict.action, FrameAction::Drop(_))) {
            return Err(CombinedViolation::Admitted { kind, gaid });
        }
        Ok(())
    }

    /// Ids of the pool, of one of its callers and of one of its servers.
    fn names_of_clone(&mut self) -> Option<(u32, (u32, u32), u32)> {
        let callers = self.plan.clone.as_ref()?.callers.len();
        let servers = self.plan.clone.as_ref()?.servers.len();
        let (caller, server) = (self.random.index(callers), self.random.index(servers));
        Some(clone::part::names(caller, server))
    }

    /// Ids of an application, of one of its callers and of its owner.
    fn names_of_map(&mut self) -> Option<(u32, (u32, u32), u32)> {
        let applications = &self.plan.map.as_ref()?.applications;
        let plan = &applications[self.random.index(applications.len())];
        let caller = &plan.callers[self.random.index(plan.callers.len())];
        Some((plan.gaid, (caller.endpoint, caller.incarnation), plan.endpoint))
    }
}
