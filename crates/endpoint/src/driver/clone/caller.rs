//! A caller: [`CallerHandle::ask`] from anywhere, frames by one socket.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pathcall_wire::clone::{groups, pair};
use pathcall_wire::{CloneFrame, Instant, Kind, TokenKey};
use tokio::sync::oneshot;

use super::super::Party;
use super::super::link::Link;
use super::super::shared::{Owned, Shared};
use super::{Desk, Table};
use crate::clone::{Answer, Ask, AskError, CallId, Caller, CallerConfig, CallerStats, Event, Failure, To};
use crate::tables::ByNumber;

/// Why a call was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It can't be made.
    #[error(transparent)]
    Refused(#[from] AskError),
    /// It failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The caller has stopped.
    #[error("the caller has stopped")]
    Stopped,
}

type Reply = oneshot::Sender<Result<Answer, CallError>>;

enum Command {
    Ask(u64, Ask, Reply),
    GiveUp(u64),
    Renew(Table),
}

/// A handle to the caller of one pool. When the last clone is dropped the endpoint stops.
#[derive(Debug, Clone)]
pub struct CallerHandle {
    handle: Arc<Handle>,
    busy_poll: Duration,
}

/// What all clones share.
#[derive(Debug)]
struct Handle {
    shared: Owned<Calls>,
    next: AtomicU64,
}

impl CallerHandle {
    /// Starts the caller on the current tokio runtime. Its pool is `table`'s; `key` is what signs the pool's
    /// frames, if they carry tokens.
    #[must_use]
    pub fn spawn(config: CallerConfig, table: Table, key: Option<TokenKey>, link: Link) -> Self {
        let config = CallerConfig { pool: table.pool.clone(), ..config };
        let calls = Calls {
            // A driver's time begins with it.
            caller: Caller::new(Instant::default(), config),
            table,
            desk: Desk::new(key),
            asked: ByNumber::default(),
            waiting: ByNumber::default(),
        };
        let shared = Shared::new(calls, link);
        tokio::spawn(Arc::clone(&shared).run());
        Self { handle: Arc::new(Handle { shared: Owned(shared), next: AtomicU64::new(0) }), busy_poll: Duration::ZERO }
    }

    /// Calls look for their answers themselves for so long before they wait. Tasks that are ready have
    /// precedence over each look.
    #[must_use]
    pub fn busy_poll(self, busy_poll: Duration) -> Self {
        Self { busy_poll, ..self }
    }

    /// Makes one call. Dropping the future gives it up: servers that may have it are told so.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn ask(&self, ask: Ask) -> Result<Answer, CallError> {
        let Handle { shared, next } = &*self.handle;
        let number = next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let mut guard = GiveUpOnDrop { number, calls: Some(shared) };
        shared.command(Command::Ask(number, ask, reply)).map_err(|_| CallError::Stopped)?;
        if !self.busy_poll.is_zero() {
            shared.look_for(&answer, self.busy_poll).await;
        }
        let answer = answer.await.unwrap_or(Err(CallError::Stopped));
        guard.calls = None;
        answer
    }

    /// The pool has changed, or where somebody in it is.
    pub fn renew(&self, table: Table) {
        // One that has stopped calls nobody.
        let _ = self.handle.shared.command(Command::Renew(table));
    }

    /// A way to tell it of changes that does not keep it running.
    #[must_use]
    pub fn teller(&self) -> CallerTeller {
        CallerTeller(Arc::downgrade(&self.handle))
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> CallerStats {
        let shared = self.handle.shared.lock();
        let stats = shared.party.caller.stats();
        CallerStats { ignored: stats.ignored + shared.party.desk.unauthentic, ..stats }
    }

    /// Whether the element answers, as far as is known.
    #[must_use]
    pub fn by_element(&self) -> bool {
        let state = self.handle.shared.lock();
        state.party.table.element.is_some() && state.party.caller.by_element()
    }
}

/// Tells a caller of changes of its pool.
#[derive(Debug, Clone)]
pub struct CallerTeller(Weak<Handle>);

impl CallerTeller {
    /// As [`CallerHandle::renew`]; false when the caller has stopped.
    pub fn renew(&self, table: Table) -> bool {
        self.0.upgrade().is_some_and(|caller| caller.shared.command(Command::Renew(table)).is_ok())
    }
}

struct GiveUpOnDrop<'a> {
    number: u64,
    calls: Option<&'a Shared<Calls>>,
}

impl Drop for GiveUpOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(calls) = self.calls {
            // A task that has ended has nothing to give up.
            let _ = calls.command(Command::GiveUp(self.number));
        }
    }
}

struct Calls {
    caller: Caller,
    table: Table,
    desk: Desk,
    asked: ByNumber<u64, CallId>,
    waiting: ByNumber<CallId, (u64, Reply)>,
}

impl Calls {
    /// Where the frame of `len` bytes goes. Without an element one for it goes where an element that clones
    /// nothing would send it: to the pair's first server.
    fn road(&mut self, to: To, len: usize) -> Option<SocketAddr> {
        let server = match (to, self.table.element) {
            (To::Endpoint(server), _) => server,
            (To::Element, Some(element)) => return Some(element),
            (To::Element, None) => {
                let servers = &self.table.pool.servers;
                let mut frame = CloneFrame::new_checked(&mut self.desk.frame[..len]).ok()?;
                if frame.base().dst() == 0 {
                    let grp = frame.head().grp().checked_rem(groups(servers.len()))?;
                    let (first, second) = pair(grp, servers.len())?;
                    // Who has it already is named by a cancellation, which is for the other one.
                    let other = frame.kind() == Kind::CloneCancel && frame.head().sid() == first;
                    let sid = if other { second } else { first };
                    frame.base_mut().set_dst(*servers.get(usize::from(sid))?);
                }
                frame.base().dst()
            }
        };
        self.table.server(server)
    }

    fn end(&mut self, call: CallId, outcome: Result<Answer, CallError>) {
        if let Some((number, reply)) = self.waiting.remove(&call) {
            self.asked.remove(&number);
            // Nobody waits any more: the call was dropped in this very moment.
            let _ = reply.send(outcome);
        }
    }
}

impl Party for Calls {
    type Command = Command;

    fn command(&mut self, now: Instant, command: Command, _: impl FnMut(SocketAddr, &[u8])) {
        match command {
            Command::Ask(number, ask, reply) => match self.caller.ask(now, ask) {
                Ok(call) => {
                    self.asked.insert(number, call);
                    self.waiting.insert(call, (number, reply));
                }
                Err(error) => drop(reply.send(Err(error.into()))),
            },
            Command::GiveUp(number) => {
                if let Some(call) = self.asked.remove(&number) {
                    self.waiting.remove(&call);
                    self.caller.give_up(call);
                }
            }
            Command::Renew(table) => {
                let other = table.pool != self.table.pool;
                self.table = table;
                if other {
                    self.caller.pool(now, self.table.pool.clone());
                }
            }
        }
    }

    fn handle(&mut self, now: Instant, _: SocketAddr, frame: &mut [u8], _: bool, _: impl FnMut(SocketAddr, &[u8])) {
        if self.desk.admits(frame) {
            self.caller.receive(now, frame);
        }
    }

    fn poll(&mut self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8])) {
        self.caller.poll(now);
        while let Some((to, len)) = self.caller.transmit(now, &mut self.desk.frame) {
            if let Some(at) = self.road(to, len) {
                send(at, self.desk.leaving(len));
            }
        }
    }

    fn settle(&mut self) {
        while let Some(event) = self.caller.event() {
            match event {
                Event::Answered(call, answer) => self.end(call, Ok(answer)),
                Event::Failed(call, failure) => self.end(call, Err(failure.into())),
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.caller.deadline()
    }

    fn element(&self) -> Option<SocketAddr> {
        self.table.element
    }

    fn close(&mut self, _: Instant) {}

    /// Whoever asked has dropped the handle, and waits for nothing.
    fn is_idle(&self) -> bool {
        true
    }

    fn forsake(&mut self) {
        self.asked.clear();
        self.waiting.clear();
    }
}
