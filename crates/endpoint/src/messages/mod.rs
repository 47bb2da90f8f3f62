//! Messages of any length between nodes, over UDP: each arrives whole, once or not at all.
//!
//! ```text
//! send ─▶ Outgoing, one a peer ── parts, in a flow's window ──▶ Incoming, one a sender ─▶ Arrived
//!              ▲ ◀──────────────── acknowledgements ─────────────────┘
//!              └ a message that nobody took: Undelivered; one that may have been taken: nothing is said
//! ```
//!
//! What *delegate* has below it on plain UDP (DPC §4.6), beside TCP and QUIC. Sessions as
//! [`pathcall_wire::messages`] describes them; retransmission and congestion control are a [`Flow`]'s
//! (NetRPC §5.1). The shortest message that is left goes first, and one part in eight is of the oldest: a
//! small reply does not wait for a large one, and a large one gets there.
//!
//! A node that has a key signs every frame, and takes none without the right token (`pathcall_wire::messages::token`).
//! A frame that was recorded and is sent again has one, and no effect: a part's number was met, a session is known. A
//! recorded *gone* may be another node's: a session is over only if nothing in it is acknowledged after that.
//!
//! [`Flow`]: crate::flow::Flow

mod incoming;
mod outgoing;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;
use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::link::Secret;
use pathcall_wire::messages::{Greeting, GreetingRepr, MessageFrame, MessageKind, PART, SIGNED_PART, token};
use pathcall_wire::{Instant, TokenKey};

use crate::flow::Timing;
use incoming::Receiver;
use outgoing::Outgoing;

/// Bytes of the longest message.
pub const MESSAGE_MAX: usize = 256 << 20;

/// Bytes of a message's beginning that are told while it is on its way.
pub const HEAD_MAX: usize = 256;
/// A probe of what was not acknowledged waits for so long at least: less than the timers of most runtimes tell
/// apart, more than a host takes that has a processor.
const EARLY: Duration = Duration::from_micros(250);

/// What a node decides for itself.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The node's id, another one at each start.
    pub node: u64,
    /// What session numbers are made of: drawn at random.
    pub seed: [u64; 2],
    /// Bounds of the flows' timers.
    pub timing: Timing,
    /// A session that nothing was sent in for so long is ended. Receivers keep it for twice as long: so they
    /// know of each one that its sender believes in, as long as clocks are not off by half.
    pub idle: Duration,
    /// Bytes that may wait to be sent to one peer; a message that would make it more is refused.
    pub queue: usize,
    /// Bytes of messages that have come in part; what would make it more is not taken yet, but of one message
    /// that finds it so.
    pub memory: usize,
    /// Parts of one session: then another begins.
    pub session_parts: u32,
    /// Puts into the beginning of a message how long it has waited here, each time that it is sent.
    pub wait: Option<fn(&mut [u8], Duration)>,
    /// What frames are signed with.
    pub key: Option<TokenKey>,
}

impl Config {
    /// What suits most nodes.
    #[must_use]
    pub fn new(node: u64, seed: [u64; 2]) -> Self {
        Self {
            node,
            seed,
            timing: Timing { early: Some(EARLY), ..Timing::default() },
            idle: Duration::from_secs(30),
            queue: 1 << 30,
            memory: 1 << 30,
            session_parts: 1 << 31,
            wait: None,
            key: None,
        }
    }

    /// Bytes of a message in a part.
    fn part(&self) -> usize {
        if self.key.is_some() { SIGNED_PART } else { PART }
    }

    /// A greeting as it leaves.
    fn greet(&self, to: SocketAddr, greeting: &GreetingRepr, out: &mut impl FnMut(SocketAddr, &[u8])) {
        let mut room = [0; Greeting::LEN + TOKEN_LEN];
        greeting.emit(&mut room);
        out(to, token::seal(self.key.as_ref(), &mut room, Greeting::LEN));
    }
}

/// What became of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// One has come, whole.
    Arrived {
        /// The id that its sender claims.
        node: u64,
        /// Where it came from, and answers go to.
        from: SocketAddr,
        /// All of it.
        message: Bytes,
    },
    /// One was not delivered, and never will be.
    Undelivered {
        /// Where it should have gone.
        to: SocketAddr,
        /// Its head.
        head: Bytes,
    },
    /// A message of several parts is on its way from or to there: said now and then while it gets on.
    Underway {
        /// From or to where.
        peer: SocketAddr,
        /// How a message begins that comes from there, if that is known: [`HEAD_MAX`] bytes at most.
        arriving: Option<Bytes>,
    },
}

/// What a node's messages came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages that were to be sent.
    pub sent: u64,
    /// Messages that came.
    pub arrived: u64,
    /// Messages that were given back.
    pub undelivered: u64,
    /// Messages whose session ended while they were on their way: they may have come, or not.
    pub lost: u64,
    /// Parts sent again.
    pub retransmits: u64,
    /// Parts that had come before.
    pub repeats: u64,
    /// Parts that there was no room for.
    pub refused: u64,
    /// Frames that are none, or of no session.
    pub ignored: u64,
    /// Frames with a wrong token or none, or with one where nodes have no key: nothing was made of them. By TCP,
    /// connections that were ended for that.
    pub unauthenticated: u64,
}

/// A table whose keys strangers may choose, so its hash has a seed that they do not know. One that holds against more
/// than that would cost more than the rest of a small message.
type Table<K, V> = HashMap<K, V, FixedState>;

/// All messages of one node.
#[derive(Debug)]
pub struct Messages {
    config: Config,
    secret: Secret,
    drawn: u64,
    outgoing: Table<SocketAddr, Outgoing>,
    /// Peers with something to send now.
    ready: VecDeque<SocketAddr>,
    receiver: Receiver,
    events: VecDeque<Event>,
    /// Not later than the first deadline.
    wake: Option<Instant>,
    stats: Stats,
}

impl Messages {
    /// A node that has neither sent nor heard anything.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let secret = Secret::new(config.seed);
        let hash = FixedState::with_seed(secret.token(SocketAddr::from(([0; 4], 0)), 0));
        Self {
            config,
            secret,
            drawn: 0,
            outgoing: Table::with_hasher(hash),
            ready: VecDeque::new(),
            receiver: Receiver::new(hash),
            events: VecDeque::new(),
            wake: None,
            stats: Stats::default(),
        }
    }

    /// Signs with this key from now on, and takes only what is signed with it; with none, only what is not signed.
    /// Messages that have left in part are lost when parts get another length by that.
    pub fn set_key(&mut self, now: Instant, key: Option<TokenKey>) {
        let part = self.config.part();
        self.config.key = key;
        if self.config.part() != part {
            let peers: Vec<SocketAddr> = self.outgoing.keys().copied().collect();
            peers.into_iter().for_each(|to| self.begin_anew(now, to));
        }
    }

    /// What frames are signed with.
    #[must_use]
    pub fn key(&self) -> Option<TokenKey> {
        self.config.key
    }

    /// Takes a message: its head, then its payload.
    pub fn send(&mut self, now: Instant, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.stats.sent += 1;
        let Self { drawn, secret, config, .. } = self;
        let outgoing =
            self.outgoing.entry(to).or_insert_with(|| Outgoing::new(to, draw(secret, drawn, to), config, now));
        let head = Bytes::copy_from_slice(head);
        match outgoing.enqueue(now, head, payload.clone(), &self.config) {
            Ok(()) => self.ready.extend(outgoing.mark_ready()),
            Err(head) => {
                self.stats.undelivered += 1;
                self.events.push_back(Event::Undelivered { to, head });
            }
        }
    }

    /// Takes a frame; `ce`: the network marked it. Answers go to `out`, others at the next [`poll`](Self::poll).
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
        let taken = match MessageFrame::parse(frame) {
            Ok(MessageFrame::Hello(hello)) => {
                let key = self.draw(from);
                let key = self.receiver.hello(now, from, &hello, key);
                self.wake_by(now + 2 * self.config.idle);
                let welcome = GreetingRepr::new(MessageKind::Welcome, self.config.node, hello.session, key);
                self.config.greet(from, &welcome, out);
                true
            }
            Ok(MessageFrame::Part(part, bytes)) => {
                let part = incoming::Arrival { part, bytes, ce };
                let known = self.receiver.part(now, from, &part, &self.config, &mut self.events, &mut self.stats);
                if !known {
                    let gone = GreetingRepr::new(MessageKind::Gone, self.config.node, 0, part.part.key);
                    self.config.greet(from, &gone, out);
                }
                known
            }
            Ok(MessageFrame::Welcome(welcome)) => self.opens(from, |outgoing| outgoing.welcome(now, &welcome)),
            Ok(MessageFrame::Acks(acks, seqs)) => {
                let Self { outgoing, events, ready, .. } = self;
                let outgoing = outgoing.get_mut(&from).filter(|outgoing| outgoing.is_session(acks.session));
                let known = outgoing.is_some();
                if let Some(outgoing) = outgoing {
                    outgoing.acks(now, &acks, seqs, events);
                    ready.extend(outgoing.mark_ready());
                }
                known
            }
            Ok(MessageFrame::Gone(gone)) => {
                let outgoing = self.outgoing.get_mut(&from).filter(|outgoing| outgoing.is_key(gone.key));
                let known = outgoing.is_some();
                if let Some(outgoing) = outgoing {
                    if self.config.key.is_some() && outgoing.doubt(now) {
                        self.ready.extend(outgoing.mark_ready());
                    } else {
                        self.begin_anew(now, from);
                    }
                }
                known
            }
            Err(_) => false,
        };
        self.stats.ignored += u64::from(!taken);
    }

    /// Sends what is due, and acknowledges what has come.
    pub fn poll(&mut self, now: Instant, out: &mut impl FnMut(SocketAddr, &[u8])) {
        self.receiver.acknowledge(self.config.key.as_ref(), out);
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = self.receiver.expire(now, &self.config);
            self.ready.extend(self.outgoing.values_mut().filter_map(|outgoing| outgoing.mark_ready()));
        }
        while let Some(to) = self.ready.pop_front() {
            let Some(outgoing) = self.outgoing.get_mut(&to) else { continue };
            let state = outgoing.poll(now, &self.config, &mut self.stats, out);
            match state {
                outgoing::State::Goes(deadline) => {
                    if let Some(at) = deadline {
                        self.wake_by(at);
                    }
                }
                outgoing::State::Full => self.begin_anew(now, to),
                outgoing::State::Over => self.drop_peer(to),
            }
        }
    }

    /// When [`poll`](Self::poll) is to be called next, if nothing comes and nothing is to be sent.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.ready.is_empty() { self.wake } else { Some(Instant(0)) }
    }

    /// What has happened since.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether something has happened.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What came of it all so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Whether all that was sent was acknowledged, or given up.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outgoing.values().all(Outgoing::is_idle)
    }

    /// Sessions, of both kinds.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.outgoing.len() + self.receiver.sessions()
    }

    /// What a peer said lets its session go on.
    fn opens(&mut self, from: SocketAddr, said: impl FnOnce(&mut Outgoing) -> bool) -> bool {
        let Some(outgoing) = self.outgoing.get_mut(&from) else { return false };
        let taken = said(outgoing);
        if taken {
            self.ready.extend(outgoing.mark_ready());
        }
        taken
    }

    /// The session is over; what was not begun goes by the next one.
    fn begin_anew(&mut self, now: Instant, to: SocketAddr) {
        let session = self.draw(to);
        let Some(outgoing) = self.outgoing.get_mut(&to) else { return };
        self.stats.lost += outgoing.begin_anew(now, session, &self.config);
        self.ready.extend(outgoing.mark_ready());
    }

    /// Nobody answers there, or nothing was sent for long.
    fn drop_peer(&mut self, to: SocketAddr) {
        let Some(outgoing) = self.outgoing.remove(&to) else { return };
        let (lost, heads) = outgoing.give_back();
        self.stats.lost += lost;
        self.stats.undelivered += heads.len() as u64;
        self.events.extend(heads.into_iter().map(|head| Event::Undelivered { to, head }));
    }

    fn wake_by(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// A number that nobody else can guess; never 0.
    fn draw(&mut self, of: SocketAddr) -> u64 {
        draw(&self.secret, &mut self.drawn, of)
    }
}

fn draw(secret: &Secret, drawn: &mut u64, of: SocketAddr) -> u64 {
    *drawn += 1;
    secret.token(of, *drawn).max(1)
}

#[cfg(test)]
mod tests;
