//! Middle between callers and servers: the switch program, or LÆDGE's coordinator, in the same loop.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::Result;
use pathcall_endpoint::clone::{CloneDestination, Pool};
use pathcall_models::clone::{Coordinator, CoordinatorConfig, Scheme};
use pathcall_program::{Endpoint, FrameAction, Size, SwitchProgram};
use pathcall_wire::{Instant, MAX_FRAME};

use super::{CALLER, INCARNATION, PartyAddresses, RackParty};
use crate::net::thread_cpu;

/// Minimum size of the program's map registers, which are unused here.
const SMALL: Size = Size { rows: 1, lanes: 1, slots: 1 };
const SWITCH: NonZeroU16 = NonZeroU16::MIN;
/// Maximum number of calls queued at the coordinator.
const QUEUE_MAX: usize = 1 << 16;
/// Time after which a missing answer counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(5);

enum Middle {
    Element(Box<SwitchProgram>),
    Coordinator(Box<Coordinator>),
}

/// Runs the middle until it is stopped; an outage drops all frames and resets its state. Returns its processor time.
pub(super) fn run_middle(
    party: &RackParty,
    addresses: &PartyAddresses,
    (pool, scheme, workers): (Pool, Scheme, usize),
    outage: Option<(Duration, Duration)>,
) -> Result<Duration> {
    let RackParty { socket, .. } = party;
    let mut middle = Middle::new(pool.clone(), scheme, workers)?;
    let mut outage = outage.map(|(from, until)| (Instant(0) + from, Instant(0) + until));
    let mut frame = [0; MAX_FRAME];
    // Checked after all frames are received, because the frame that wakes for the stop may be among them.
    while !party.should_stop() {
        let fails = outage.map(|(from, _)| from);
        socket.wait(middle.deadline().into_iter().chain(fails).min())?;
        if let Some((_, until)) = outage.filter(|(from, _)| *from <= socket.now()) {
            if !run_outage(party, until)? {
                return Ok(thread_cpu());
            }
            (middle, outage) = (Middle::new(pool.clone(), scheme, workers)?, None);
        }
        while let Some(len) = socket.receive(&mut frame)? {
            middle.process_frame(party, addresses, &mut frame[..len]);
        }
        if let Middle::Coordinator(coordinator) = &mut middle {
            coordinator.poll(socket.now());
            while let Some((to, len)) = coordinator.transmit(socket.now(), &mut frame) {
                addresses.send(socket, to, &frame[..len]);
            }
        }
    }
    Ok(thread_cpu())
}

/// Drops all frames until `until`; false if the party is to stop.
fn run_outage(party: &RackParty, until: Instant) -> Result<bool> {
    let RackParty { socket, .. } = party;
    let mut frame = [0; MAX_FRAME];
    while socket.now() < until {
        socket.wait(Some(until))?;
        while socket.receive(&mut frame)?.is_some() {}
        if party.should_stop() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Middle {
    fn new(pool: Pool, scheme: Scheme, workers: usize) -> Result<Self> {
        if scheme == Scheme::Coordinator {
            return Ok(Self::Coordinator(Box::new(Coordinator::new(CoordinatorConfig {
                pool,
                switch_id: SWITCH.get(),
                workers,
                queue_max: QUEUE_MAX,
                lost_after: LOST_AFTER,
                seed: 1,
            }))));
        }
        let mut program = SwitchProgram::new(SMALL);
        program.set_switch_id(SWITCH);
        let Pool { gaid, version, servers } = pool;
        let endpoints = servers.iter().copied().chain([CALLER]);
        let tables = program.tables_mut();
        tables.install_pool(pathcall_program::InstalledPool { gaid, version, servers: servers.clone() })?;
        for endpoint in endpoints {
            tables.set_endpoint(Endpoint { endpoint, incarnation: INCARNATION, gaid, slot_base: 0, slots: 0 })?;
        }
        Ok(Self::Element(Box::new(program)))
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Element(_) => None,
            Self::Coordinator(coordinator) => coordinator.deadline(),
        }
    }

    fn process_frame(&mut self, RackParty { socket, .. }: &RackParty, addresses: &PartyAddresses, frame: &mut [u8]) {
        match self {
            Self::Coordinator(coordinator) => coordinator.receive(socket.now(), frame),
            Self::Element(program) => {
                let mut action = program.process(socket.now(), frame, false).action;
                if let FrameAction::Clone(to) = action {
                    addresses.send(socket, CloneDestination::Endpoint(to), frame);
                    action = program.recirculate(frame).action;
                }
                if let FrameAction::Forward(to) = action {
                    addresses.send(socket, CloneDestination::Endpoint(to), frame);
                }
            }
        }
    }
}
