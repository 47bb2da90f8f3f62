//! What stands between callers and servers: the switch program, or LÆDGE's coordinator, each behind the same loop.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::Result;
use pathcall_endpoint::clone::{Pool, To};
use pathcall_models::clone::{Coordinator, CoordinatorConfig, Scheme};
use pathcall_program::{Action, Endpoint, Program, Size};
use pathcall_wire::{Instant, MAX_FRAME};

use super::{CALLER, INCARNATION, Party, Roads};
use crate::net::thread_cpu;

/// The program takes these registers for maps, which nobody uses here.
const SMALL: Size = Size { rows: 1, lanes: 1, slots: 1 };
const SWITCH: NonZeroU16 = NonZeroU16::MIN;
/// Calls that may wait at the coordinator.
const QUEUE_MAX: usize = 1 << 16;
/// An answer that has not come for so long won't.
const LOST_AFTER: Duration = Duration::from_secs(5);

enum Middle {
    Element(Box<Program>),
    Coordinator(Box<Coordinator>),
}

/// Steers until it is told to end, but for the time of an outage, after which it knows nothing of before. The time of
/// a processor that it took.
pub(super) fn steer(
    party: &Party,
    roads: &Roads,
    (pool, scheme, workers): (Pool, Scheme, usize),
    outage: Option<(Duration, Duration)>,
) -> Result<Duration> {
    let Party { socket, .. } = party;
    let mut middle = Middle::new(pool.clone(), scheme, workers)?;
    let mut outage = outage.map(|(from, until)| (Instant(0) + from, Instant(0) + until));
    let mut frame = [0; MAX_FRAME];
    // Looked at after all that has come was taken: what wakes for the end may be among it.
    while !party.ends() {
        let fails = outage.map(|(from, _)| from);
        socket.wait(middle.deadline().into_iter().chain(fails).min())?;
        if let Some((_, until)) = outage.filter(|(from, _)| *from <= socket.now()) {
            if !lose(party, until)? {
                return Ok(thread_cpu());
            }
            (middle, outage) = (Middle::new(pool.clone(), scheme, workers)?, None);
        }
        while let Some(len) = socket.receive(&mut frame)? {
            middle.take(party, roads, &mut frame[..len]);
        }
        if let Middle::Coordinator(coordinator) = &mut middle {
            coordinator.poll(socket.now());
            while let Some((to, len)) = coordinator.transmit(socket.now(), &mut frame) {
                roads.send(socket, to, &frame[..len]);
            }
        }
    }
    Ok(thread_cpu())
}

/// Loses what comes until then; whether it goes on.
fn lose(party: &Party, until: Instant) -> Result<bool> {
    let Party { socket, .. } = party;
    let mut frame = [0; MAX_FRAME];
    while socket.now() < until {
        socket.wait(Some(until))?;
        while socket.receive(&mut frame)?.is_some() {}
        if party.ends() {
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
        let mut program = Program::new(SMALL);
        program.set_switch_id(SWITCH);
        let Pool { gaid, version, servers } = pool;
        let endpoints = servers.iter().copied().chain([CALLER]);
        let tables = program.tables_mut();
        tables.install_pool(pathcall_program::Pool { gaid, version, servers: servers.clone() })?;
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

    fn take(&mut self, Party { socket, .. }: &Party, roads: &Roads, frame: &mut [u8]) {
        match self {
            Self::Coordinator(coordinator) => coordinator.receive(socket.now(), frame),
            Self::Element(program) => {
                let mut action = program.process(socket.now(), frame, false).action;
                if let Action::Clone(to) = action {
                    roads.send(socket, To::Endpoint(to), frame);
                    action = program.recirculate(frame).action;
                }
                if let Action::Forward(to) = action {
                    roads.send(socket, To::Endpoint(to), frame);
                }
            }
        }
    }
}
