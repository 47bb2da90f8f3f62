//! Server: a thread with the queue of [`CloneWorker`], whose workers sleep instead of working.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::Result;
use apps_load::{Jitter, Random, Service};
use bytes::Bytes;
use pathcall_endpoint::clone::{CloneWorker, CloneWorkerConfig, PoolRequestId};
use pathcall_wire::{Instant, MAX_FRAME};

use super::socket::Socket;
use super::{PartyAddresses, RackParty};

/// Answer bytes: a value.
const ANSWER: [u8; 64] = [7; 64];

/// Distribution of service times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitDistribution {
    pub(crate) service: Service,
    pub(crate) jitter: Jitter,
}

/// Runs a server until it is stopped.
pub(super) fn serve(
    party: &RackParty,
    addresses: &PartyAddresses,
    config: CloneWorkerConfig,
    waits: WaitDistribution,
    seed: u64,
) -> Result<()> {
    let RackParty { socket, .. } = party;
    let (mut worker, mut random) = (CloneWorker::new(config), Random::new(seed));
    let mut due: BinaryHeap<Reverse<(Instant, PoolRequestId)>> = BinaryHeap::new();
    let mut frame = [0; MAX_FRAME];
    // Checked after all frames are received, because the frame that wakes for the stop may be among them.
    while !party.should_stop() {
        let next = due.peek().map(|Reverse((at, _))| *at);
        socket.wait(next.into_iter().chain(worker.deadline()).min())?;
        while let Some(len) = socket.receive(&mut frame)? {
            worker.receive(socket.now(), &frame[..len]);
            begin(socket, &mut worker, &mut due, waits, &mut random);
        }
        let now = socket.now();
        worker.poll(now);
        while let Some(&Reverse((at, id))) = due.peek()
            && at <= now
        {
            due.pop();
            worker.finish(id, Bytes::from_static(&ANSWER))?;
            begin(socket, &mut worker, &mut due, waits, &mut random);
        }
        while let Some((to, len)) = worker.transmit(now, &mut frame) {
            addresses.send(socket, to, &frame[..len]);
        }
    }
    Ok(())
}

fn begin(
    socket: &Socket,
    worker: &mut CloneWorker,
    due: &mut BinaryHeap<Reverse<(Instant, PoolRequestId)>>,
    WaitDistribution { service, jitter }: WaitDistribution,
    random: &mut Random,
) {
    while let Some(work) = worker.begin_next(socket.now()) {
        let time = service.draw(random);
        due.push(Reverse((socket.now() + jitter.draw(time, random), work.id)));
    }
}
