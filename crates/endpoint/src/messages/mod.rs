//! Messages of any length between nodes over UDP: each arrives whole, once or not at all.
//!
//! ```text
//! send ─▶ OutgoingSession, per peer ── parts, in a flow's window ──▶ IncomingSession, per sender ─▶ Arrived
//!              ▲ ◀──────────────── acknowledgements ─────────────────┘
//!              └ no part received: Undelivered; perhaps received: no event
//! ```
//!
//! This is the transport of *delegate* over plain UDP (DPC §4.6), beside TCP and QUIC. [`pathcall_wire::messages`]
//! describes its sessions; a [`Flow`] does retransmission and congestion control (NetRPC §5.1). The message with the
//! fewest remaining bytes is sent first, and one part in eight is of the oldest message: so a small reply does not wait
//! for a large one, and a large one makes progress.
//!
//! A node that has a key signs every frame, and drops frames without the right token
//! (`pathcall_wire::messages::token`). A replayed frame has a valid token, but no effect: its part number or its
//! session is known. A replayed *gone* may concern another node's session: a session ends only if it gets no
//! acknowledgement afterwards.
//!
//! [`Flow`]: crate::flow::Flow

mod incoming;
mod outgoing;
mod stats;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;
use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::link::LinkSecret;
use pathcall_wire::messages::{Greeting, GreetingRepr, MessageFrame, MessageKind, PART, SIGNED_PART, token};
use pathcall_wire::{Instant, TokenKey};

use crate::flow::FlowTiming;
use incoming::SessionReceiver;
use outgoing::OutgoingSession;
pub use stats::Stats;

/// Longest message, bytes.
pub const MESSAGE_MAX: usize = 256 << 20;

/// First bytes of a long message that its progress events contain.
pub const HEAD_MAX: usize = 256;
/// Shortest wait before a probe for missing acknowledgements: less than the resolution of most runtimes' timers, more
/// than the answer time of a host with a free processor.
const EARLY_PROBE: Duration = Duration::from_micros(250);

/// Configuration of a node's messages.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Id of the node, drawn anew at each start.
    pub node: u64,
    /// Random seed of the session numbers.
    pub seed: [u64; 2],
    /// Limits of the flows' timers.
    pub timing: FlowTiming,
    /// Time after which an unused session is ended. Receivers keep it for twice as long: so they know every session
    /// that its sender still uses, unless clocks differ by a factor of two.
    pub idle: Duration,
    /// Bytes that may wait to be sent to one peer; a message that would exceed them is refused.
    pub queue: usize,
    /// Bytes of partial messages; a part that would exceed them is refused for now, except for one message at a time.
    pub memory: usize,
    /// Parts of one session, after which a new session begins.
    pub session_parts: u32,
    /// Function that writes the waiting time of a message into its first bytes, each time that they are sent.
    pub wait: Option<fn(&mut [u8], Duration)>,
    /// Key that signs frames.
    pub key: Option<TokenKey>,
}

impl Config {
    /// Creates a configuration with defaults that suit most nodes.
    #[must_use]
    pub fn new(node: u64, seed: [u64; 2]) -> Self {
        Self {
            node,
            seed,
            timing: FlowTiming { early: Some(EARLY_PROBE), ..FlowTiming::default() },
            idle: Duration::from_secs(30),
            queue: 1 << 30,
            memory: 1 << 30,
            session_parts: 1 << 31,
            wait: None,
            key: None,
        }
    }

    /// Message bytes in one part.
    fn part(&self) -> usize {
        if self.key.is_some() { SIGNED_PART } else { PART }
    }

    /// Sends a greeting, signed if there is a key.
    fn send_greeting(&self, to: SocketAddr, greeting: &GreetingRepr, out: &mut impl FnMut(SocketAddr, &[u8])) {
        let mut room = [0; Greeting::LEN + TOKEN_LEN];
        greeting.emit(&mut room);
        out(to, token::append_token(self.key.as_ref(), &mut room, Greeting::LEN));
    }
}

/// Event of a node's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A complete message has arrived.
    Arrived {
        /// Node id that the sender claims.
        node: u64,
        /// Address of the sender, to which answers go.
        from: SocketAddr,
        /// Bytes of the message.
        message: Bytes,
    },
    /// A message was not delivered, and never will be.
    Undelivered {
        /// Destination of the message.
        to: SocketAddr,
        /// Head of the message.
        head: Bytes,
    },
    /// A message of several parts makes progress, to or from a peer; reported from time to time.
    Progress {
        /// Address of the peer.
        peer: SocketAddr,
        /// First bytes of an incoming message, [`HEAD_MAX`] at most, if they have arrived.
        arriving: Option<Bytes>,
    },
}

/// Table with keys that strangers may choose, hashed with a secret seed. A hash function that withstands more would
/// cost more than the rest of a small message.
type SeededTable<K, V> = HashMap<K, V, FixedState>;

/// All messages of one node.
#[derive(Debug)]
pub struct Messages {
    config: Config,
    secret: LinkSecret,
    numbers_drawn: u64,
    outgoing: SeededTable<SocketAddr, OutgoingSession>,
    /// Peers with frames to send now.
    ready: VecDeque<SocketAddr>,
    receiver: SessionReceiver,
    events: VecDeque<Event>,
    /// Time of the next wake-up, not later than the first deadline.
    wake: Option<Instant>,
    stats: Stats,
}

impl Messages {
    /// Creates a node without sessions.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let secret = LinkSecret::new(config.seed);
        let hash = FixedState::with_seed(secret.token(SocketAddr::from(([0; 4], 0)), 0));
        Self {
            config,
            secret,
            numbers_drawn: 0,
            outgoing: SeededTable::with_hasher(hash),
            ready: VecDeque::new(),
            receiver: SessionReceiver::new(hash),
            events: VecDeque::new(),
            wake: None,
            stats: Stats::default(),
        }
    }

    /// Sets the key: frames are signed with it from now on, and others dropped; without a key, signed frames are
    /// dropped. A message in flight is lost if the length of its parts changes by that.
    pub fn set_key(&mut self, now: Instant, key: Option<TokenKey>) {
        let part = self.config.part();
        self.config.key = key;
        if self.config.part() != part {
            let peers: Vec<SocketAddr> = self.outgoing.keys().copied().collect();
            peers.into_iter().for_each(|to| self.restart_session(now, to));
        }
    }

    /// Key that signs frames.
    #[must_use]
    pub fn key(&self) -> Option<TokenKey> {
        self.config.key
    }

    /// Sends a message: its head, then its payload.
    pub fn send(&mut self, now: Instant, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.stats.sent += 1;
        let Self { numbers_drawn, secret, config, .. } = self;
        let outgoing = self
            .outgoing
            .entry(to)
            .or_insert_with(|| OutgoingSession::new(to, draw_number(secret, numbers_drawn, to), config, now));
        let head = Bytes::copy_from_slice(head);
        match outgoing.enqueue(now, head, payload.clone(), &self.config) {
            Ok(()) => self.ready.extend(outgoing.mark_ready()),
            Err(head) => {
                self.stats.undelivered += 1;
                self.events.push_back(Event::Undelivered { to, head });
            }
        }
    }

    /// Handles a frame; `ce`: the network marked it. Answers go to `out` at once, other frames at the next
    /// [`poll`](Self::poll).
    pub fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        frame: &[u8],
        ce: bool,
        out: &mut impl FnMut(SocketAddr, &[u8]),
    ) {
        if !token::admits(self.config.key.as_ref(), frame) {
            self.stats.unauthenticated += 1;
            return;
        }
        let handled = match MessageFrame::parse(frame) {
            Ok(MessageFrame::Hello(hello)) => {
                let key = self.draw_number(from);
                let key = self.receiver.handle_hello(now, from, &hello, key);
                self.wake_by(now + 2 * self.config.idle);
                let welcome = GreetingRepr::new(MessageKind::Welcome, self.config.node, hello.session, key);
                self.config.send_greeting(from, &welcome, out);
                true
            }
            Ok(MessageFrame::Part(part, bytes)) => {
                let part = incoming::ReceivedPart { part, bytes, ce };
                let known =
                    self.receiver.handle_part(now, from, &part, &self.config, &mut self.events, &mut self.stats);
                if !known {
                    let gone = GreetingRepr::new(MessageKind::Gone, self.config.node, 0, part.part.key);
                    self.config.send_greeting(from, &gone, out);
                }
                known
            }
            Ok(MessageFrame::Welcome(welcome)) => {
                self.apply_to_session(from, |outgoing| outgoing.handle_welcome(now, &welcome))
            }
            Ok(MessageFrame::Acks(acks, seqs)) => {
                let Self { outgoing, events, ready, .. } = self;
                let outgoing = outgoing.get_mut(&from).filter(|outgoing| outgoing.is_session(acks.session));
                let known = outgoing.is_some();
                if let Some(outgoing) = outgoing {
                    outgoing.handle_acks(now, &acks, seqs, events);
                    ready.extend(outgoing.mark_ready());
                }
                known
            }
            Ok(MessageFrame::Gone(gone)) => {
                let outgoing = self.outgoing.get_mut(&from).filter(|outgoing| outgoing.is_key(gone.key));
                let known = outgoing.is_some();
                if let Some(outgoing) = outgoing {
                    if self.config.key.is_some() && outgoing.suspect_end(now) {
                        self.ready.extend(outgoing.mark_ready());
                    } else {
                        self.restart_session(now, from);
                    }
                }
                known
            }
            Err(_) => false,
        };
        self.stats.ignored += u64::from(!handled);
    }

    /// Sends what is due, and acknowledges received parts.
    pub fn poll(&mut self, now: Instant, out: &mut impl FnMut(SocketAddr, &[u8])) {
        self.acknowledge(out);
        self.send_due(now, out);
    }

    /// Acknowledges received parts.
    fn acknowledge(&mut self, out: &mut impl FnMut(SocketAddr, &[u8])) {
        self.receiver.acknowledge(self.config.key.as_ref(), out);
    }

    /// Returns whether acknowledgements may wait for a moment: no sender waits for them.
    #[must_use]
    pub fn can_hold_acks(&self) -> bool {
        self.receiver.can_hold_acks()
    }

    /// Sends what is due, and the acknowledgements to the peers that get a message. The others wait for
    /// [`poll`](Self::poll), which has to follow soon.
    pub fn send_due(&mut self, now: Instant, out: &mut impl FnMut(SocketAddr, &[u8])) {
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = self.receiver.expire(now, &self.config);
            self.ready.extend(self.outgoing.values_mut().filter_map(|outgoing| outgoing.mark_ready()));
        }
        while let Some(to) = self.ready.pop_front() {
            let Some(outgoing) = self.outgoing.get_mut(&to) else { continue };
            let mut sends = false;
            let state = outgoing.poll(now, &self.config, &mut self.stats, &mut |to, frame: &[u8]| {
                sends = true;
                out(to, frame);
            });
            if sends {
                self.receiver.acknowledge_peer(to, self.config.key.as_ref(), out);
            }
            match state {
                outgoing::SessionState::Active(deadline) => {
                    if let Some(at) = deadline {
                        self.wake_by(at);
                    }
                }
                outgoing::SessionState::Exhausted => self.restart_session(now, to),
                outgoing::SessionState::Ended => self.remove_peer(to),
            }
        }
    }

    /// Time of the next [`poll`](Self::poll), unless a frame arrives or a message is sent before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.ready.is_empty() { self.wake } else { Some(Instant(0)) }
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns whether an event is pending.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Counters of this node.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns whether all messages were acknowledged or abandoned.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outgoing.values().all(OutgoingSession::is_idle)
    }

    /// Number of sessions, of both directions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.outgoing.len() + self.receiver.sessions()
    }

    /// Applies a peer's frame to its session, and marks the session as ready if it had an effect.
    fn apply_to_session(&mut self, from: SocketAddr, apply: impl FnOnce(&mut OutgoingSession) -> bool) -> bool {
        let Some(outgoing) = self.outgoing.get_mut(&from) else { return false };
        let handled = apply(outgoing);
        if handled {
            self.ready.extend(outgoing.mark_ready());
        }
        handled
    }

    /// Ends the session; messages not begun move to a new one.
    fn restart_session(&mut self, now: Instant, to: SocketAddr) {
        let session = self.draw_number(to);
        let Some(outgoing) = self.outgoing.get_mut(&to) else { return };
        self.stats.lost += outgoing.restart_session(now, session, &self.config);
        self.ready.extend(outgoing.mark_ready());
    }

    /// Removes a peer that does not answer, or to which nothing was sent for long.
    fn remove_peer(&mut self, to: SocketAddr) {
        let Some(outgoing) = self.outgoing.remove(&to) else { return };
        let (lost, heads) = outgoing.into_undelivered();
        self.stats.lost += lost;
        self.stats.undelivered += heads.len() as u64;
        self.events.extend(heads.into_iter().map(|head| Event::Undelivered { to, head }));
    }

    fn wake_by(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Draws an unguessable number; never 0.
    fn draw_number(&mut self, of: SocketAddr) -> u64 {
        draw_number(&self.secret, &mut self.numbers_drawn, of)
    }
}

fn draw_number(secret: &LinkSecret, numbers_drawn: &mut u64, of: SocketAddr) -> u64 {
    *numbers_drawn += 1;
    secret.token(of, *numbers_drawn).max(1)
}

#[cfg(test)]
mod tests;
