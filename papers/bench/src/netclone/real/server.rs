//! A server: a thread with the queue of [`Worker`], whose workers wait instead of working.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::Result;
use apps_load::{Jitter, Random, Service};
use bytes::Bytes;
use pathcall_endpoint::clone::{WorkId, Worker, WorkerConfig};
use pathcall_wire::{Instant, MAX_FRAME};

use super::socket::Socket;
use super::{Party, Roads};

/// Bytes of an answer: a value.
const ANSWER: [u8; 64] = [7; 64];

/// How long calls take at a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    pub(crate) service: Service,
    pub(crate) jitter: Jitter,
}

/// Serves until it is told to end.
pub(super) fn serve(party: &Party, roads: &Roads, config: WorkerConfig, waits: Waits, seed: u64) -> Result<()> {
    let Party { socket, .. } = party;
    let (mut worker, mut random) = (Worker::new(config), Random::new(seed));
    let mut due: BinaryHeap<Reverse<(Instant, WorkId)>> = BinaryHeap::new();
    let mut frame = [0; MAX_FRAME];
    // Looked at after all that has come was taken: what wakes for the end may be among it.
    while !party.ends() {
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
            roads.send(socket, to, &frame[..len]);
        }
    }
    Ok(())
}

fn begin(
    socket: &Socket,
    worker: &mut Worker,
    due: &mut BinaryHeap<Reverse<(Instant, WorkId)>>,
    Waits { service, jitter }: Waits,
    random: &mut Random,
) {
    while let Some(work) = worker.begin(socket.now()) {
        let time = service.draw(random);
        due.push(Reverse((socket.now() + jitter.draw(time, random), work.id)));
    }
}
