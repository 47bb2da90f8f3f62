//! Where the state machines meet the operating system: a task for each endpoint, fed by commands,
//! by frames and by its own deadline. Frames come and go by a [`link`], or in a stream that a
//! [`carrier`] writes where UDP does not get through.

pub mod carrier;
pub mod client;
pub mod link;
pub mod server;

use std::future::pending;
use std::net::SocketAddr;
use std::time;

use carrier::Batch;
use link::Link;
use pathcall_wire::{Base, Flags, Instant};
use tokio::sync::mpsc;

/// Batches received before the endpoint sends and looks at its commands again.
const BATCHES: usize = 8;

/// An endpoint as the task sees it.
trait Party: Send + 'static {
    type Command: Send + 'static;
    fn command(&mut self, now: Instant, command: Self::Command);
    fn handle(&mut self, now: Instant, frame: &[u8], send: impl FnMut(SocketAddr, &[u8]));
    /// Takes frames that came by a stream.
    fn carried(&mut self, now: Instant, batch: &Batch, send: impl FnMut(SocketAddr, &[u8]));
    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8]));
    /// Gives out what was finished, and what is to be carried.
    fn settle(&mut self);
    fn deadline(&self) -> Option<Instant>;
    /// Nobody commands it any more.
    fn close(&mut self, now: Instant);
    /// Whether nothing is left to be driven to its end.
    fn is_idle(&self) -> bool;
}

/// Driving what was begun to its end takes no longer than this.
const CLOSING_MAX: time::Duration = time::Duration::from_secs(10);

/// Drives a party until nobody can command it any more and it is idle; whether it became idle.
async fn run<P: Party>(
    mut party: P,
    mut link: Link,
    mut commands: mpsc::UnboundedReceiver<P::Command>,
    mut batches: mpsc::Receiver<Batch>,
) -> bool {
    let origin = time::Instant::now();
    let now = || Instant(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut closed: Option<time::Instant> = None;
    loop {
        party.poll(now(), |to, frame| link.queue(to, frame));
        link.flush();
        party.settle();
        if closed.is_some_and(|at| party.is_idle() || at.elapsed() >= CLOSING_MAX) {
            return party.is_idle();
        }
        let deadline = party.deadline().map(|at| origin + time::Duration::from_nanos(at.0));
        let deadline = deadline.into_iter().chain(closed.map(|at| at + CLOSING_MAX)).min();
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            command = commands.recv(), if closed.is_none() => match command {
                Some(command) => {
                    party.command(now(), command);
                    while let Ok(command) = commands.try_recv() {
                        party.command(now(), command);
                    }
                }
                None => {
                    closed = Some(time::Instant::now());
                    party.close(now());
                }
            },
            ready = link.readable() => {
                if ready.is_err() {
                    return false;
                }
                receive(&mut party, &mut link, now());
            }
            // As long as the party lives, somebody may carry.
            Some(batch) = batches.recv() => party.carried(now(), &batch, |to, frame| link.queue(to, frame)),
            () = timer => {}
        }
    }
}

fn receive<P: Party>(party: &mut P, link: &mut Link, now: Instant) {
    for _ in 0..BATCHES {
        let received = link.exchange(|out, _, ce, frame| {
            // A mark by the network below counts like one by the element.
            if let (true, Ok(mut base)) = (ce, Base::new_checked(&mut *frame)) {
                let flags = base.flags() | Flags::ECN;
                base.set_flags(flags);
            }
            party.handle(now, frame, |to, frame| out.queue(to, frame));
        });
        // An error here is about one datagram (an unreachable peer, say); its flow will notice.
        if !matches!(received, Ok(1..)) {
            break;
        }
    }
}
