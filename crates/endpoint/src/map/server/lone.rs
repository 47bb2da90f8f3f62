//! Lone callers: plain gRPC clients, whose calls the owner makes for them as a member of its own.
//!
//! ```text
//! plain gRPC call ─► start ──► MapClient ─frames─► MapServer      (in memory: no socket, and no frame is lost)
//!          outcome ◄─ event ◄─ MapClient ◄─frames─ MapServer
//! ```
//!
//! The member sends past the element, so the rules for callers without an element hold: while it is a member, the server
//! counts all ballots. It joins at the first call, and leaves when no call has begun for [`IDLE_MAX`] and all have ended.
//!
//! A vote waits in a flow until its ballot is decided, which may never happen. So a session makes `SESSION_FRAMES` frames
//! at most; then a new session begins, and the old one leaves when its calls have ended.

use std::collections::BTreeSet;
use std::time::Duration;

use pathcall_wire::{Instant, TokenKey};

use super::super::client::{CallId, ClientConfig, MapClient};
use super::super::{CallError, Dest, FrameSink, Operation, Output};
use super::{MapServer, Member};
use crate::flow::FlowRepeatFilter;

/// Time after the start of the latest call after which a member without open calls leaves.
pub const IDLE_MAX: Duration = Duration::from_secs(10);
/// Maximum number of frames of one session, unless its first call needs more: half of the windows of all flows.
const SESSION_FRAMES: usize = FLOWS * 128;
/// Flows of a session.
const FLOWS: usize = FlowRepeatFilter::MAX_FLOWS;
/// Maximum number of sessions with open calls.
const SESSIONS_MAX: usize = 64;

/// Calls of plain gRPC clients. After each input, call [`LoneCallers::poll`], then [`LoneCallers::next_event`] until it
/// returns `None`, then wait until [`LoneCallers::deadline`].
pub struct LoneCallers {
    key: Option<TokenKey>,
    sessions: Vec<LoneSession>,
    /// Incarnation of the latest session.
    incarnation: u32,
}

/// Member that makes calls, and its frames under way.
struct LoneSession {
    member: Member,
    client: MapClient,
    /// Frames for the client, and frames that it has sent.
    inbox: FrameQueue,
    outbox: FrameQueue,
    /// Number of frames so far, at most.
    frames: usize,
    /// Calls without an outcome.
    calls: BTreeSet<CallId>,
    /// Start or cancellation of the latest call.
    used: Instant,
}

impl LoneCallers {
    /// No calls. `key` signs the application's frames, if they carry tokens.
    #[must_use]
    pub fn new(key: Option<TokenKey>) -> Self {
        Self { key, sessions: Vec::new(), incarnation: 0 }
    }

    /// Starts a call of a keyed application; an event has its outcome. `draw_id` gives the id of a new member.
    ///
    /// # Errors
    /// [`CallError::LoneCallsFull`]: the call has no effect.
    pub fn start(
        &mut self,
        now: Instant,
        server: &mut MapServer,
        draw_id: impl FnOnce() -> u32,
        id: CallId,
        operation: Operation,
    ) -> Result<(), CallError> {
        let frames = match &operation {
            Operation::Count { keys, .. } | Operation::Clear { keys, .. } | Operation::Read { keys, .. } => keys.len(),
            Operation::Add { pairs, .. } => pairs.len(),
            Operation::Sum { .. } => 0,
        };
        if !self.sessions.last().is_some_and(|session| session.has_room(frames)) {
            if self.sessions.len() >= SESSIONS_MAX {
                return Err(CallError::LoneCallsFull);
            }
            self.incarnation += 1;
            self.sessions.push(LoneSession::join(now, server, (draw_id(), self.incarnation), self.key)?);
        }
        if let Some(session) = self.sessions.last_mut() {
            session.frames += frames;
            session.used = now;
            session.calls.insert(id);
            session.client.start(now, id, operation);
        }
        Ok(())
    }

    /// Cancels a call whose client is gone. What its frames did remains.
    pub fn cancel(&mut self, now: Instant, id: CallId) {
        if let Some(session) = self.sessions.iter_mut().find(|session| session.calls.contains(&id)) {
            session.calls.remove(&id);
            session.used = now;
            session.client.cancel(now, id);
        }
    }

    /// Takes a frame of the owner for one of the members; false if it is for another endpoint.
    pub fn take_frame(&mut self, to: Dest, frame: &[u8]) -> bool {
        let session = self.sessions.iter_mut().find(|session| to == Dest::Endpoint(session.member.endpoint));
        session.map(|session| session.inbox.push(frame)).is_some()
    }

    /// Exchanges all frames with the owner; `out` gets those for other endpoints. Then idle members leave.
    pub fn poll(&mut self, now: Instant, server: &mut MapServer, out: &mut impl FrameSink) {
        loop {
            for session in &mut self.sessions {
                session.exchange(now);
            }
            let Some(from) = self.sessions.iter().position(|session| !session.outbox.is_empty()) else { break };
            let mut sent = std::mem::take(&mut self.sessions[from].outbox);
            let mut router = LoneRouter { lone: &mut *self, out: &mut *out };
            sent.drain(|frame| server.handle(now, frame, &mut router));
        }
        let last = self.sessions.last().map(|session| session.member.endpoint);
        self.sessions.retain(|session| {
            let replaced = Some(session.member.endpoint) != last;
            let leaves = session.calls.is_empty() && (replaced || now.since(session.used) >= IDLE_MAX);
            if leaves {
                server.leave(now, session.member.endpoint);
            }
            !leaves
        });
    }

    /// Tells the members of the owner's new terms, see [`MapServer::renew`].
    pub fn renew(&mut self, now: Instant, server: &mut MapServer, terms: u64) {
        for session in &mut self.sessions {
            session.member.terms = terms;
            if let Some(change) = server.take_epoch_change(session.member) {
                session.client.renew(now, &change);
            }
        }
    }

    /// Next finished call with its outcome.
    pub fn next_event(&mut self) -> Option<(CallId, Result<Output, CallError>)> {
        self.sessions.iter_mut().find_map(|session| {
            let (id, outcome) = session.client.next_event()?;
            session.calls.remove(&id);
            Some((id, outcome))
        })
    }

    /// Next time at which [`LoneCallers::poll`] must be called, if no input comes before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let leave = |session: &LoneSession| session.calls.is_empty().then(|| session.used + IDLE_MAX);
        self.sessions.iter().flat_map(|session| [session.client.deadline(), leave(session)]).flatten().min()
    }

    /// Number of members.
    #[must_use]
    pub fn members(&self) -> usize {
        self.sessions.len()
    }
}

impl LoneSession {
    fn join(
        now: Instant,
        server: &mut MapServer,
        (endpoint, incarnation): (u32, u32),
        key: Option<TokenKey>,
    ) -> Result<Self, CallError> {
        let (element, slot_base, flows, terms) = (false, 0, FLOWS as u32, server.shared.terms);
        let member = Member { endpoint, incarnation, element, slot_base, flows, terms };
        let joined = server.join(now, member)?;
        let config = &server.shared.config;
        let config = ClientConfig {
            gaid: config.gaid,
            epoch: config.epoch,
            endpoint,
            incarnation,
            server: config.endpoint,
            server_incarnation: config.incarnation,
            flows: member.flows,
            rows: joined.rows,
            width: joined.width,
            worker: joined.worker,
            votes: config.votes,
            clear: config.clear,
            start_chunk: joined.start_chunk,
            lease: config.lease,
            era: joined.era,
            timing: config.timing,
            ..ClientConfig::default()
        };
        let client = MapClient::new(config).authenticate(key);
        let (inbox, outbox) = Default::default();
        Ok(Self { member, client, inbox, outbox, frames: 0, calls: BTreeSet::new(), used: now })
    }

    fn has_room(&self, frames: usize) -> bool {
        self.client.failure().is_none() && (self.frames == 0 || self.frames + frames <= SESSION_FRAMES)
    }

    /// Passes the received frames to the client, and collects the frames that it sends.
    fn exchange(&mut self, now: Instant) {
        let Self { client, inbox, outbox, .. } = self;
        inbox.drain(|frame| client.handle(now, frame));
        client.poll(now, outbox);
    }
}

/// Router of the owner's frames: to a member, or out.
struct LoneRouter<'a, S> {
    lone: &'a mut LoneCallers,
    out: &'a mut S,
}

impl<S: FrameSink> FrameSink for LoneRouter<'_, S> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        if !self.lone.take_frame(to, frame) {
            self.out.send(to, frame);
        }
    }
}

/// Frames under way, in order.
#[derive(Default)]
struct FrameQueue {
    bytes: Vec<u8>,
    /// End of each frame in `bytes`.
    ends: Vec<usize>,
}

impl FrameQueue {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Passes all frames on, and removes them.
    fn drain(&mut self, mut pass: impl FnMut(&[u8])) {
        let mut start = 0;
        for end in self.ends.drain(..) {
            pass(&self.bytes[start..end]);
            start = end;
        }
        self.bytes.clear();
    }
}

impl FrameSink for FrameQueue {
    fn send(&mut self, _: Dest, frame: &[u8]) {
        self.push(frame);
    }
}
