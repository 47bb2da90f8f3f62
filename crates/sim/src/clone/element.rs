//! Network element of the clone simulator: the switch program, each of whose verdicts is checked.

use pathcall_endpoint::clone::Pool;
use pathcall_program::clone::CloneSize;
use pathcall_program::{Action, Endpoint, Profile, Program, Reason, Size};
use pathcall_wire::{CloneFlags, CloneFrame, Flags, Instant, Kind, clone};

use super::judge::Wrong;
use super::plan::Plan;
use super::world::GAID;
use crate::switch::Switch;

/// The switch program, and what the controller has told it.
pub(super) struct Element {
    switch: Switch,
    /// Whether it is told of the pool again once it has lost it: not while it is silent.
    pub(super) silent: bool,
    /// The pool that it was told of last.
    version: u32,
    servers: Vec<u32>,
}

/// A frame that leaves for an endpoint.
pub(super) struct Leaving {
    pub(super) to: u32,
    pub(super) bytes: Vec<u8>,
    /// Whether it stands for a request that goes to two servers.
    pub(super) cloned: bool,
}

impl Element {
    /// One that has just started; `shared`: the element of several worlds, which stands there.
    pub(super) fn new(plan: &Plan, shared: Option<Switch>) -> Self {
        let switch = shared.unwrap_or_else(|| Switch::own(blank(plan, Size { rows: 0, lanes: 0, slots: 0 })));
        Self { switch, silent: false, version: 0, servers: Vec::new() }
    }

    /// The same once it has lost all that it knew.
    pub(super) fn lost(&self, plan: &Plan) -> Self {
        let switch = self.switch.lost(|| blank(plan, Size { rows: 0, lanes: 0, slots: 0 }));
        Self::new(plan, Some(switch))
    }

    /// The controller tells it who is there.
    pub(super) fn install(&mut self, pool: &Pool, endpoints: &[(u32, u32)]) -> Result<(), String> {
        self.version = pool.version;
        self.servers.clone_from(&pool.servers);
        self.switch.change(|tables| {
            for &(endpoint, incarnation) in endpoints {
                let entry = Endpoint { endpoint, incarnation, gaid: GAID, slot_base: 0, slots: 0 };
                tables.set_endpoint(entry).map_err(|error| error.to_string())?;
            }
            let Pool { gaid, version, servers } = pool.clone();
            let pool = pathcall_program::Pool { gaid, version, servers };
            tables.install_pool(pool).map_err(|error| error.to_string())
        })
    }

    /// What it was told of the pool last, since it lost what it knew.
    pub(super) fn installed(&self) -> Option<Pool> {
        let told = !self.servers.is_empty() || self.version > 0;
        told.then(|| Pool { gaid: GAID, version: self.version, servers: self.servers.clone() })
    }

    /// Second answers that it has stopped since it started.
    pub(super) fn filtered(&self) -> u64 {
        self.switch.look(|program| program.counters().drop_filtered)
    }

    /// Takes a frame; what leaves at once.
    pub(super) fn receive(&mut self, now: Instant, mut bytes: Vec<u8>) -> Result<Vec<Leaving>, Wrong> {
        let before = bytes.clone();
        let loads = self.loads();
        let verdict = self.switch.process(now, &mut bytes, false);
        bytes.truncate(verdict.len);
        let mut leaving = Vec::new();
        match verdict.action {
            Action::Forward(to) => leaving.push(Leaving { to, bytes, cloned: false }),
            Action::Clone(to) => {
                let mut copy = bytes.clone();
                leaving.push(Leaving { to, bytes, cloned: true });
                if let Action::Forward(to) = self.switch.recirculate(&mut copy).action {
                    leaving.push(Leaving { to, bytes: copy, cloned: false });
                }
            }
            Action::Multicast(_) | Action::Drop(_) => {}
        }
        self.watch(&before, verdict.action, &leaving, loads.as_deref())?;
        Ok(leaving)
    }

    fn loads(&self) -> Option<Vec<u16>> {
        self.switch.look(|program| program.tables().loads(GAID).ok().map(|(loads, _)| loads.to_vec()))
    }

    /// Whether what the program did is what its tables say.
    fn watch(&self, before: &[u8], action: Action, leaving: &[Leaving], loads: Option<&[u16]>) -> Result<(), Wrong> {
        self.switch.look(|program| match program.tables().loads(GAID) {
            Ok((loads, shadows)) if loads != shadows => {
                Err(Wrong::Shadow { loads: loads.to_vec(), shadows: shadows.to_vec() })
            }
            _ => Ok(()),
        })?;
        let (Some(loads), Ok(frame)) = (loads, CloneFrame::new_checked(before)) else { return Ok(()) };
        let (base, head) = (frame.base(), frame.head());
        let current = base.epoch() == self.version;
        if frame.kind() == Kind::CloneCancel && !current && !leaving.is_empty() {
            return Err(Wrong::StaleCancel(base.seq()));
        }
        if frame.kind() != Kind::CloneRequest || head.parts() > 1 {
            return Ok(());
        }
        if action == Action::Drop(Reason::Stale) {
            return Err(Wrong::Dropped(base.seq()));
        }
        let load = |endpoint: u32| {
            self.servers.iter().position(|server| *server == endpoint).and_then(|sid| loads.get(sid)).copied()
        };
        if let Action::Clone(_) = action
            && leaving.iter().any(|leaving| load(leaving.to) != Some(0))
        {
            return Err(Wrong::ClonedBusy(base.seq()));
        }
        let Action::Forward(to) = action else { return Ok(()) };
        let admitted = leaving.iter().all(|leaving| {
            CloneFrame::new_checked(leaving.bytes.as_slice())
                .is_ok_and(|frame| !frame.base().has(Flags::NOT_ADMITTED) && frame.head().switch_id() != 0)
        });
        if !admitted {
            return Ok(());
        }
        if head.flags() & CloneFlags::DIRECT != 0 {
            return if to == base.dst() { Ok(()) } else { Err(Wrong::Steered(base.seq())) };
        }
        let pair = clone::pair(head.grp(), self.servers.len()).filter(|_| current);
        if let Some((one, other)) = pair
            && head.flags() & CloneFlags::SHORTEST != 0
            && load(to) > loads.get(usize::from(one)).min(loads.get(usize::from(other))).copied()
        {
            return Err(Wrong::Longer(base.seq()));
        }
        Ok(())
    }
}

/// A program with these tables beside those for calls, of which it knows nothing yet.
pub(crate) fn blank(plan: &Plan, size: Size) -> Program {
    let clones: CloneSize = plan.size;
    let mut program = Program::with_clones(size, clones, Profile::FullSequence);
    program.number_after(plan.numbered);
    program
}
