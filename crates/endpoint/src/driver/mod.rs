//! Where the state machines meet the operating system: a task for each endpoint, fed by commands,
//! by frames and by its own deadline.

pub mod client;
pub mod link;
pub mod server;

use std::future::pending;
use std::net::SocketAddr;
use std::time;

use link::Link;
use pathcall_wire::Instant;
use tokio::sync::mpsc;

/// Batches received before the endpoint sends and looks at its commands again.
const BATCHES: usize = 8;

/// An endpoint as the task sees it.
trait Party: Send + 'static {
    type Command: Send + 'static;
    fn command(&mut self, now: Instant, command: Self::Command);
    /// Takes a frame; `ce`: the network below marked it.
    fn handle(&mut self, now: Instant, frame: &mut [u8], ce: bool, send: impl FnMut(SocketAddr, &[u8]));
    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8]));
    /// Gives out what was finished.
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
async fn run<P: Party>(mut party: P, mut link: Link, mut commands: mpsc::UnboundedReceiver<P::Command>) -> bool {
    let origin = time::Instant::now();
    let now = || Instant(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut closed: Option<time::Instant> = None;
    while closed.is_none_or(|at| !party.is_idle() && at.elapsed() < CLOSING_MAX) {
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
            () = timer => {}
        }
        party.poll(now(), |to, frame| link.queue(to, frame));
        link.flush();
        party.settle();
    }
    party.is_idle()
}

fn receive<P: Party>(party: &mut P, link: &mut Link, now: Instant) {
    for _ in 0..BATCHES {
        let received = link.exchange(|out, _, ce, frame| {
            party.handle(now, frame, ce, |to, frame| out.queue(to, frame));
        });
        // An error here is about one datagram (an unreachable peer, say); its flow will notice.
        if !matches!(received, Ok(1..)) {
            break;
        }
    }
}
