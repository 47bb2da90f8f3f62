//! The end of a run, and what a stranger says before it.

use pathcall_program::{Action, Application};
use pathcall_wire::{Base, CloneFrame, Kind};

use super::judge::{self, Wrong};
use super::world::World;
use crate::clone;
use crate::part::Part;

impl World<'_> {
    /// All parts are over: whether each was right, and the whole.
    pub(super) fn over(&mut self) -> Result<(), Wrong> {
        if let Some(map) = &mut self.map {
            map.over()?;
        }
        if let Some(clone) = &mut self.clone {
            clone.over()?;
        }
        if let Some(delegate) = &mut self.delegate {
            delegate.over()?;
        }
        if let Some(function) = &mut self.function {
            function.over()?;
        }
        if let Some(place) = &mut self.place {
            place.over()?;
        }
        if self.work.open() > 0 {
            return Err(Wrong::Unended(self.work.open()));
        }
        self.switch.look(|program| self.switch.passed(|passed| judge::counters(program, passed)))?;
        self.pool_is_there()?;
        self.take_out()
    }

    /// Whether the program knows the pool as it was told of it.
    fn pool_is_there(&self) -> Result<(), Wrong> {
        let Some(pool) = self.clone.as_ref().and_then(clone::world::World::installed) else { return Ok(()) };
        let known = self.switch.look(|program| {
            let mut pools = program.tables().pools();
            pools.any(|(known, ..)| {
                (known.gaid, known.version) == (pool.gaid, pool.version) && known.servers == pool.servers
            })
        });
        if known { Ok(()) } else { Err(Wrong::Forgotten) }
    }

    /// The controller takes everybody out: nothing of them is left.
    fn take_out(&self) -> Result<(), Wrong> {
        let (applications, pools, endpoints) = self.switch.look(|program| {
            let tables = program.tables();
            let applications: Vec<Application> = tables.applications().map(|(application, ..)| application).collect();
            let pools: Vec<u32> = tables.pools().map(|(pool, ..)| pool.gaid).collect();
            let endpoints: Vec<u32> = tables.endpoints().map(|endpoint| endpoint.endpoint).collect();
            (applications, pools, endpoints)
        });
        self.switch.change(|tables| {
            for gaid in applications.iter().map(|application| application.gaid).chain(pools) {
                let removed = tables.remove(gaid);
                debug_assert!(removed.is_ok(), "{removed:?}");
            }
            // Of applications without memory here only endpoints were known.
            endpoints.into_iter().for_each(|endpoint| tables.remove_endpoint(endpoint));
        });
        self.switch.look(|program| judge::nothing_is_left(program, &applications))
    }

    /// A stranger has heard a frame and says the same in the name of another ability's application or pool: nothing of
    /// it may be admitted.
    pub(super) fn stranger(&mut self) -> Result<(), Wrong> {
        let mut bytes = self.switch.passed(|passed| passed.last.clone());
        let Ok(base) = Base::new_checked(bytes.as_slice()) else { return Ok(()) };
        let Ok(kind) = Kind::parse(base.kind()) else { return Ok(()) };
        let of_clone = CloneFrame::new_checked(bytes.as_slice()).is_ok();
        let Some((gaid, src, dst)) = (if of_clone { self.names_of_map() } else { self.names_of_clone() }) else {
            return Ok(());
        };
        let Ok(mut base) = Base::new_checked(bytes.as_mut_slice()) else { return Ok(()) };
        base.set_gaid(gaid);
        base.set_src(src.0);
        base.set_src_incarnation(src.1);
        base.set_dst(dst);
        self.tally.strange += 1;
        let before = self.switch.look(judge::admitted);
        let verdict = self.switch.process(self.now, &mut bytes, false);
        self.say(&format!(
            "a stranger sends {kind:?} in the name of {gaid}, from {} to {dst}: {:?}",
            src.0, verdict.action
        ));
        // It may be passed on, as what is not admitted is.
        let passed_on = matches!(verdict.action, Action::Forward(to) if to == dst);
        let admitted = self.switch.look(judge::admitted) != before;
        if admitted || !(passed_on || matches!(verdict.action, Action::Drop(_))) {
            return Err(Wrong::Admitted { kind, gaid });
        }
        Ok(())
    }

    /// The pool, somebody who calls it, and somebody whom it has.
    fn names_of_clone(&mut self) -> Option<(u32, (u32, u32), u32)> {
        let callers = self.plan.clone.as_ref()?.callers.len();
        let servers = self.plan.clone.as_ref()?.servers.len();
        let (caller, server) = (self.random.index(callers), self.random.index(servers));
        Some(clone::part::names(caller, server))
    }

    /// An application, a caller of it, and its owner.
    fn names_of_map(&mut self) -> Option<(u32, (u32, u32), u32)> {
        let applications = &self.plan.map.as_ref()?.applications;
        let plan = &applications[self.random.index(applications.len())];
        let caller = &plan.callers[self.random.index(plan.callers.len())];
        Some((plan.gaid, (caller.endpoint, caller.incarnation), plan.endpoint))
    }
}
