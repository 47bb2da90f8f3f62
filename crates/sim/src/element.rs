//! The element: a [`Program`] with its tables filled as the controller would.

use pathcall_endpoint::map::Dest;
use pathcall_endpoint::map::Outbox;
use pathcall_program::{Action, Application, Endpoint, Program, Size, TableError, Verdict};
use pathcall_wire::{Base, Instant};

use crate::party::{Decision, Effects, Party};
use crate::scenario::{ApplicationPlan, CallerPlan, Memory};
use crate::switch::Switch;

/// The element of all applications.
pub(crate) struct Element {
    switch: Switch,
    /// Who hears what is for all callers of an application: (gaid, endpoint).
    members: Vec<(u32, u32)>,
}

impl Element {
    /// An element that knows the owners of these applications, and holds memory for those that have some.
    pub(crate) fn new(number: usize, switch: Switch, applications: &[ApplicationPlan]) -> Result<Self, TableError> {
        let mut element = Self { switch, members: Vec::new() };
        for plan in applications.iter().filter(|plan| plan.element() == number) {
            element.install(plan, plan.memory, plan.epoch)?;
        }
        Ok(element)
    }

    /// It has lost all that it held.
    pub(crate) fn forget(&mut self, size: Size) {
        *self = Self { switch: self.switch.lost(|| Program::new(size)), members: Vec::new() };
    }

    /// Lets an application in, with memory if it has some.
    pub(crate) fn install(
        &mut self,
        plan: &ApplicationPlan,
        memory: Option<Memory>,
        epoch: u32,
    ) -> Result<(), TableError> {
        self.switch.change(|tables| {
            if let Some(memory) = memory {
                tables.install(Application {
                    gaid: plan.gaid,
                    epoch,
                    owner: plan.endpoint,
                    row_base: memory.row_base,
                    rows: memory.rows,
                    lane_base: memory.lane_base,
                    width: memory.width.into(),
                })?;
                tables.authenticate(plan.gaid, plan.token_key)?;
            }
            let (endpoint, incarnation, gaid) = (plan.endpoint, plan.incarnation, plan.gaid);
            tables.set_endpoint(Endpoint { endpoint, incarnation, gaid, slot_base: 0, slots: 0 })
        })
    }

    /// Lets a caller's frames in, and what is for all callers out to it.
    pub(crate) fn register(
        &mut self,
        plan: &ApplicationPlan,
        memory: Option<Memory>,
        caller: &CallerPlan,
    ) -> Result<(), TableError> {
        if self.switch.look(|program| program.tables().endpoint(plan.endpoint).is_none()) {
            // It has just started: the controller will tell it of all that have joined.
            return Ok(());
        }
        let (endpoint, incarnation, gaid) = (caller.endpoint, caller.incarnation, plan.gaid);
        let (slot_base, slots) = (caller.slot_base, caller.flows);
        let entry = Endpoint { endpoint, incarnation, gaid, slot_base, slots };
        self.switch.change(|tables| tables.set_endpoint(entry))?;
        if memory.is_none() {
            // Not installed: the element passes on what callers send, and is sent nothing for all of them.
            return Ok(());
        }
        self.members.retain(|(_, endpoint)| *endpoint != caller.endpoint);
        self.members.push((plan.gaid, caller.endpoint));
        let group: Vec<u32> = self.members.iter().filter(|(gaid, _)| *gaid == plan.gaid).map(|(_, e)| *e).collect();
        self.switch.change(|tables| tables.set_group(plan.gaid, &group))
    }
}

impl Element {
    /// An application has no memory here any more.
    pub(crate) fn remove(&mut self, plan: &ApplicationPlan) {
        // It may have restarted meanwhile, and not know it.
        let known = self.switch.change(|tables| tables.remove(plan.gaid).is_ok());
        self.members.retain(|(gaid, _)| !(known && *gaid == plan.gaid));
    }

    /// Frames refused for their token since it started.
    pub(crate) fn unauthentic(&self) -> u64 {
        self.switch.look(|program| program.counters().drop_unauthentic)
    }

    /// Whether a frame that passes by is addressed to an endpoint of an application here.
    pub(crate) fn knows_addressee(&self, frame: &[u8]) -> bool {
        let addressee = |base: Base<&[u8]>| {
            let known = |program: &Program| program.tables().endpoint(base.dst()).map(|endpoint| endpoint.gaid);
            self.switch.look(known) == Some(base.gaid())
        };
        Base::new_checked(frame).is_ok_and(addressee)
    }

    /// A caller is gone.
    pub(crate) fn release(&mut self, caller: &CallerPlan) {
        self.switch.change(|tables| tables.remove_endpoint(caller.endpoint));
        self.members.retain(|(_, endpoint)| *endpoint != caller.endpoint);
    }
}

impl Party for Element {
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects) {
        let Verdict { action, len } = self.switch.process(now, frame, marked);
        effects.decision = Some(Decision::Element(action));
        let frame = &mut frame[..len];
        match action {
            Action::Forward(endpoint) => effects.send(Dest::Endpoint(endpoint), frame),
            Action::Clone(endpoint) => {
                effects.send(Dest::Endpoint(endpoint), frame);
                if let Action::Forward(other) = self.switch.recirculate(frame).action {
                    effects.send(Dest::Endpoint(other), frame);
                }
            }
            Action::Multicast(gaid) => self.switch.look(|program| {
                let tables = program.tables();
                tables.copies(gaid, frame, |member, frame| effects.send(Dest::Endpoint(member), frame));
            }),
            Action::Drop(_) => {}
        }
    }

    /// An element has no timers.
    fn wake(&mut self, _now: Instant, _effects: &mut Effects) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }
}
