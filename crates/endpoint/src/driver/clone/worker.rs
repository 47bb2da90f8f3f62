//! A server's queue: [`Works::next`] gives what is to be worked on, [`Replies::finish`] takes the reply.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_wire::{Instant, TokenKey};
use tokio::sync::mpsc;

use super::super::Party;
use super::super::link::Link;
use super::super::shared::{Owned, Shared};
use super::{Desk, Learnt, Table, sender, switch_id};
use crate::clone::{Blame, MESSAGE_MAX, To, Work, WorkId, Worker, WorkerConfig, WorkerStats};
use crate::tables::ByNumber;

/// Elements whose requests come here at most.
const ROADS_MAX: usize = 16;

enum Command {
    Finish(WorkId, Bytes, Bytes),
    Fail(WorkId, Bytes, Bytes, Blame),
    Drop(WorkId),
    Renew(Table, u16),
}

/// A handle to a server's queue; it stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct WorkerHandle(Arc<Owned<Queue>>);

/// What is to be done.
#[derive(Debug)]
pub enum Order {
    /// To be worked on, at once: there are never more than [`WorkerConfig::begun_max`].
    Begin(Work),
    /// Its caller wants no answer to it any more. It is at work until it is finished or dropped all the same.
    Unwanted(WorkId),
    /// It was given up while it waited, and is not to be worked on.
    GivenUp(Work),
}

/// What is to be worked on.
pub struct Works {
    orders: mpsc::UnboundedReceiver<Order>,
    replies: Replies,
}

/// Takes replies; what was begun is answered also when the queue stops.
#[derive(Clone)]
pub struct Replies(Arc<Shared<Queue>>);

impl Works {
    /// What is next; `None` when the queue has stopped.
    pub async fn next(&mut self) -> Option<Order> {
        self.orders.recv().await
    }

    /// Where replies go.
    #[must_use]
    pub fn replies(&self) -> Replies {
        self.replies.clone()
    }
}

impl Replies {
    /// A request is done; `instead` is the reply if that is too long for frames.
    pub fn finish(&self, id: WorkId, reply: Bytes, instead: Bytes) {
        // A queue that has stopped answers nobody.
        let _ = self.0.command(Command::Finish(id, reply, instead));
    }

    /// A request has failed here, and another server's answer is better: `reply` says why. `instead` is as in
    /// [`finish`](Self::finish).
    pub fn fail(&self, id: WorkId, reply: Bytes, instead: Bytes, blame: Blame) {
        // A queue that has stopped answers nobody.
        let _ = self.0.command(Command::Fail(id, reply, instead, blame));
    }

    /// A request is not done, and will not be: its caller asks again.
    pub fn drop_work(&self, id: WorkId) {
        let _ = self.0.command(Command::Drop(id));
    }
}

impl fmt::Debug for Works {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Works").finish_non_exhaustive()
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").finish_non_exhaustive()
    }
}

impl WorkerHandle {
    /// Starts the queue on the current tokio runtime. `key` is what signs the pool's frames, if they carry tokens.
    #[must_use]
    pub fn spawn(config: WorkerConfig, table: Table, key: Option<TokenKey>, link: Link) -> (Self, Works) {
        let (give, orders) = mpsc::unbounded_channel();
        let queue = Queue {
            worker: Worker::new(config),
            table,
            desk: Desk::new(key),
            callers: Learnt::default(),
            roads: ByNumber::default(),
            give: Some(give),
        };
        let shared = Shared::new(queue, link);
        tokio::spawn(Arc::clone(&shared).run());
        let replies = Replies(Arc::clone(&shared));
        (Self(Arc::new(Owned(shared))), Works { orders, replies })
    }

    /// The pool has changed; this server is at place `sid`.
    pub fn renew(&self, table: Table, sid: u16) {
        let _ = self.0.command(Command::Renew(table, sid));
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        let shared = self.0.lock();
        let stats = shared.party.worker.stats();
        WorkerStats { ignored: stats.ignored + shared.party.desk.unauthentic, ..stats }
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.lock().party.worker.waiting()
    }
}

struct Queue {
    worker: Worker,
    table: Table,
    desk: Desk,
    /// Callers whose requests came past the element.
    callers: Learnt,
    /// Where requests come from that others than the pool's element have decided about, by switch id.
    roads: ByNumber<u16, SocketAddr>,
    /// None when it is to stop.
    give: Option<mpsc::UnboundedSender<Order>>,
}

impl Queue {
    /// Notes where answers to a request that is admitted go.
    fn note(&mut self, from: SocketAddr, frame: &[u8]) {
        match sender(frame) {
            Some((caller, 0)) => self.callers.note(caller, from),
            Some((_, switch)) if self.roads.len() < ROADS_MAX || self.roads.contains_key(&switch) => {
                self.roads.insert(switch, from);
            }
            Some(_) | None => {}
        }
    }

    /// Gives out what a worker is free for.
    fn begin(&mut self, now: Instant) {
        while let Some(work) = self.worker.begin(now) {
            let id = work.id;
            if self.give.as_ref().is_none_or(|give| give.send(Order::Begin(work)).is_err()) {
                // Nobody works here any more.
                self.worker.drop_work(id);
            }
        }
        while let Some(id) = self.worker.unwanted() {
            // Whoever has stopped has nothing at work.
            let _ = self.give.as_ref().map(|give| give.send(Order::Unwanted(id)));
        }
        while let Some(work) = self.worker.given_up() {
            let _ = self.give.as_ref().map(|give| give.send(Order::GivenUp(work)));
        }
    }

    /// Where a frame goes: to the pool's element what that has decided about, whatever a request said of where it
    /// is; by the road of its request what another one has.
    fn road(&self, to: To, frame: &[u8]) -> Option<SocketAddr> {
        let To::Endpoint(caller) = to else {
            let switch = switch_id(frame)?;
            let its_own = self.table.element.filter(|_| switch == self.table.switch_id);
            return its_own.or_else(|| self.roads.get(&switch).copied()).or(self.table.element);
        };
        self.callers.find(caller)
    }
}

impl Party for Queue {
    type Command = Command;

    fn command(&mut self, _: Instant, command: Command, _: impl FnMut(SocketAddr, &[u8])) {
        match command {
            // What is done twice, or was never begun, is of a handle that is not this queue's.
            Command::Fail(id, reply, _, blame) if reply.len() <= MESSAGE_MAX => {
                let _ = self.worker.fail(id, reply, blame);
            }
            Command::Finish(id, reply, instead) | Command::Fail(id, reply, instead, _) => {
                let reply = if reply.len() > MESSAGE_MAX { instead } else { reply };
                let _ = self.worker.finish(id, reply);
            }
            Command::Drop(id) => self.worker.drop_work(id),
            Command::Renew(table, sid) => {
                self.worker.moved(sid);
                self.table = table;
            }
        }
    }

    fn handle(&mut self, now: Instant, from: SocketAddr, frame: &mut [u8], _: bool, _: impl FnMut(SocketAddr, &[u8])) {
        if self.desk.admits(frame) {
            self.note(from, frame);
            self.worker.receive(now, frame);
            // At once: what a worker is free for does not wait, and a clone that comes in the same batch is wanted.
            self.begin(now);
        }
    }

    fn poll(&mut self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8])) {
        self.worker.poll(now);
        self.begin(now);
        while let Some((to, len)) = self.worker.transmit(now, &mut self.desk.frame) {
            if let Some(at) = self.road(to, &self.desk.frame[..len]) {
                send(at, self.desk.leaving(len));
            }
        }
    }

    fn settle(&mut self) {}

    fn deadline(&self) -> Option<Instant> {
        self.worker.deadline()
    }

    fn element(&self) -> Option<SocketAddr> {
        self.table.element
    }

    fn close(&mut self, _: Instant) {
        self.give = None;
    }

    /// What was begun is to be answered.
    fn is_idle(&self) -> bool {
        self.worker.is_empty()
    }

    fn forsake(&mut self) {
        self.give = None;
    }
}
