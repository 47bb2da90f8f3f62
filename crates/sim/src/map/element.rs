//! Element of the map simulation: a [`SwitchProgram`] with tables that are configured as the controller would.

use pathcall_endpoint::map::Dest;
use pathcall_endpoint::map::FrameSink;
use pathcall_program::{
    Endpoint, FrameAction, FrameVerdict, InstalledApplication, Size, SwitchProgram, TableChangeError,
};
use pathcall_wire::{Base, Instant};

use super::node::{Effects, FrameDecision, SimulatedNode};
use super::scenario::{ApplicationPlan, MapCallerPlan, RegisterRange};
use crate::element_program::ElementProgram;

/// Element of several applications.
pub(crate) struct Element {
    switch: ElementProgram,
    /// Receivers of an application's multicasts: (gaid, endpoint).
    members: Vec<(u32, u32)>,
}

impl Element {
    /// Creates an element that knows the owners of these applications and has memory for those with some.
    pub(crate) fn new(
        number: usize,
        switch: ElementProgram,
        applications: &[ApplicationPlan],
    ) -> Result<Self, TableChangeError> {
        let mut element = Self { switch, members: Vec::new() };
        for plan in applications.iter().filter(|plan| plan.element() == number) {
            element.install(plan, plan.incarnation, plan.memory, plan.epoch)?;
        }
        Ok(element)
    }

    /// Removes all state.
    pub(crate) fn clear_state(&mut self, size: Size) {
        *self = Self { switch: self.switch.lost(|| SwitchProgram::new(size)), members: Vec::new() };
    }

    /// Installs an application, with memory if it has some.
    pub(crate) fn install(
        &mut self,
        plan: &ApplicationPlan,
        incarnation: u32,
        memory: Option<RegisterRange>,
        epoch: u32,
    ) -> Result<(), TableChangeError> {
        self.switch.with_tables(|tables| {
            if let Some(memory) = memory {
                tables.install(InstalledApplication {
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
            let (endpoint, gaid) = (plan.endpoint, plan.gaid);
            tables.set_endpoint(Endpoint { endpoint, incarnation, gaid, slot_base: 0, slots: 0 })
        })
    }

    /// Registers a caller: the element admits its frames and sends it multicasts.
    pub(crate) fn register(
        &mut self,
        plan: &ApplicationPlan,
        memory: Option<RegisterRange>,
        caller: &MapCallerPlan,
    ) -> Result<(), TableChangeError> {
        if self.switch.with_program(|program| program.tables().endpoint(plan.endpoint).is_none()) {
            // The element has just restarted; the controller will register all members again.
            return Ok(());
        }
        let (endpoint, incarnation, gaid) = (caller.endpoint, caller.incarnation, plan.gaid);
        let (slot_base, slots) = (caller.slot_base, caller.flows);
        let entry = Endpoint { endpoint, incarnation, gaid, slot_base, slots };
        self.switch.with_tables(|tables| tables.set_endpoint(entry))?;
        if memory.is_none() {
            // Without memory the element forwards the caller's frames and sends no multicasts.
            return Ok(());
        }
        self.members.retain(|(_, endpoint)| *endpoint != caller.endpoint);
        self.members.push((plan.gaid, caller.endpoint));
        let group: Vec<u32> = self.members.iter().filter(|(gaid, _)| *gaid == plan.gaid).map(|(_, e)| *e).collect();
        self.switch.with_tables(|tables| tables.set_group(plan.gaid, &group))
    }

    /// Removes the memory of an application.
    pub(crate) fn remove(&mut self, plan: &ApplicationPlan) {
        // The element may have restarted since, without the application.
        let known = self.switch.with_tables(|tables| tables.remove(plan.gaid).is_ok());
        self.members.retain(|(gaid, _)| !(known && *gaid == plan.gaid));
    }

    /// Number of frames that were dropped for their token since the start.
    pub(crate) fn unauthentic(&self) -> u64 {
        self.switch.with_program(|program| program.counters().drop_unauthentic)
    }

    /// Whether a passing frame is addressed to an endpoint of an application here.
    pub(crate) fn has_addressee(&self, frame: &[u8]) -> bool {
        let addressee = |base: Base<&[u8]>| {
            let known = |program: &SwitchProgram| program.tables().endpoint(base.dst()).map(|endpoint| endpoint.gaid);
            self.switch.with_program(known) == Some(base.gaid())
        };
        Base::new_checked(frame).is_ok_and(addressee)
    }

    /// Removes a caller.
    pub(crate) fn release(&mut self, caller: &MapCallerPlan) {
        self.switch.with_tables(|tables| tables.remove_endpoint(caller.endpoint));
        self.members.retain(|(_, endpoint)| *endpoint != caller.endpoint);
    }
}

impl SimulatedNode for Element {
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects) {
        let FrameVerdict { action, len } = self.switch.process(now, frame, marked);
        effects.decision = Some(FrameDecision::Element(action));
        let frame = &mut frame[..len];
        match action {
            FrameAction::Forward(endpoint) => effects.send(Dest::Endpoint(endpoint), frame),
            FrameAction::Clone(endpoint) => {
                effects.send(Dest::Endpoint(endpoint), frame);
                if let FrameAction::Forward(other) = self.switch.recirculate(frame).action {
                    effects.send(Dest::Endpoint(other), frame);
                }
            }
            FrameAction::Multicast(gaid) => self.switch.with_program(|program| {
                let tables = program.tables();
                tables.copies(gaid, frame, |member, frame| effects.send(Dest::Endpoint(member), frame));
            }),
            FrameAction::Drop(_) => {}
        }
    }

    /// Elements have no timers.
    fn wake(&mut self, _now: Instant, _effects: &mut Effects) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }
}
