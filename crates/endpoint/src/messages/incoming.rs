//! Receiving side of message sessions: takes parts, delivers messages and acknowledgements.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;
use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::messages::{ACKS_MAX, Acks, AcksRepr, GreetingRepr, PART, PartRepr, token};
use pathcall_wire::{Instant, TokenKey, W_MAX};

use super::{Config, Event, HEAD_MAX, MESSAGE_MAX, SeededTable, Stats};
use crate::flow::{FlowRepeatFilter, SeqClass};

/// Sessions without any part yet: the source address of their hello may be forged.
const UNPROVEN_MAX: usize = 256;
/// Sessions whose acknowledgements may wait at a time.
const HELD_ACKS_MAX: usize = 16;
/// Partial messages of one session at most.
const PARTIAL_MAX: usize = 256;
/// Interval of the progress events of a long message.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// Receiving side of all sessions of a node.
#[derive(Debug)]
pub(super) struct SessionReceiver {
    /// Sessions by key.
    sessions: SeededTable<u64, IncomingSession>,
    /// Keys by the address and session number of the hello.
    key_by_hello: SeededTable<(SocketAddr, u64), u64>,
    /// Session of each address from which a part has come.
    session_by_address: SeededTable<SocketAddr, u64>,
    /// Keys of the sessions without any part, oldest first.
    unproven_keys: VecDeque<u64>,
    /// Keys of the sessions with parts to acknowledge.
    sessions_to_ack: Vec<u64>,
    /// A part of a longer message, whose next part may wait for it, is to be acknowledged.
    acks_urgent: bool,
    /// Bytes of partial messages.
    bytes: usize,
    /// Bytes of partial messages by source host.
    held_by_host: SeededTable<IpAddr, usize>,
    /// Message that may grow beyond the memory limit, with the time of its last progress: without it, many partial
    /// messages could wait for each other.
    privileged: Option<(u64, u32, Instant)>,
}

#[derive(Debug)]
struct IncomingSession {
    from: SocketAddr,
    node: u64,
    session: u64,
    /// Whether a part has come: then the sender's address is proven.
    is_proven: bool,
    filter: FlowRepeatFilter,
    partial: HashMap<u32, Partial>,
    /// Sequence numbers to acknowledge, with their congestion marks.
    acks: Vec<(u32, bool)>,
    last_part: Instant,
}

/// Message of which some parts have arrived.
#[derive(Debug)]
struct Partial {
    last_progress: Instant,
    bytes: Vec<u8>,
    got: usize,
    total: u32,
}

/// Part as it was received.
pub(super) struct ReceivedPart<'a> {
    pub(super) part: PartRepr,
    pub(super) bytes: &'a [u8],
    pub(super) ce: bool,
}

impl SessionReceiver {
    pub(super) fn new(hash: FixedState) -> Self {
        let (sessions, session_by_address) = (SeededTable::with_hasher(hash), SeededTable::with_hasher(hash));
        let (key_by_hello, held_by_host) = (SeededTable::with_hasher(hash), SeededTable::with_hasher(hash));
        let (unproven_keys, sessions_to_ack, bytes, privileged) = Default::default();
        Self {
            sessions,
            key_by_hello,
            session_by_address,
            unproven_keys,
            sessions_to_ack,
            acks_urgent: false,
            bytes,
            held_by_host,
            privileged,
        }
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes of partial messages.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Handles a hello; returns the key of its session, which is `new_key` if the session is new.
    pub(super) fn handle_hello(&mut self, now: Instant, from: SocketAddr, hello: &GreetingRepr, new_key: u64) -> u64 {
        if let Some(known) = self.key_by_hello.get(&(from, hello.session)) {
            return *known;
        }
        if self.unproven_keys.len() == UNPROVEN_MAX
            && let Some(oldest) = self.unproven_keys.pop_front()
        {
            self.forget(oldest);
        }
        self.unproven_keys.push_back(new_key);
        self.key_by_hello.insert((from, hello.session), new_key);
        self.sessions.insert(new_key, IncomingSession::new(now, from, hello));
        new_key
    }

    /// Handles a part; false when there is no such session.
    pub(super) fn handle_part(
        &mut self,
        now: Instant,
        from: SocketAddr,
        received: &ReceivedPart<'_>,
        config: &Config,
        events: &mut VecDeque<Event>,
        stats: &mut Stats,
    ) -> bool {
        let key = received.part.key;
        let Some(session) = self.sessions.get_mut(&key).filter(|session| session.from == from) else { return false };
        if !session.is_proven {
            session.is_proven = true;
            self.unproven_keys.retain(|other| *other != key);
            // A sender that begins a new session has ended the previous one.
            if let Some(last) = self.session_by_address.insert(from, key) {
                self.forget(last);
            }
        }
        let room = self.growth_limit(now, from.ip(), &received.part, config);
        let Some(session) = self.sessions.get_mut(&key) else { return false };
        session.last_part = now;
        let Some(grown) = session.add_part(now, received, room, events, stats) else {
            stats.refused += 1;
            return true;
        };
        self.acks_urgent |= received.part.total as usize > received.bytes.len();
        if session.acks.len() == 1 {
            self.sessions_to_ack.push(key);
        }
        let continues = self.privileged.is_some() && session.partial.contains_key(&received.part.message);
        self.count(from.ip(), grown);
        let privileged = self.privileged.filter(|(of, message, _)| (*of, *message) == (key, received.part.message));
        if privileged.is_some() {
            self.privileged = continues.then_some((key, received.part.message, now));
        }
        true
    }

    /// Bytes by which a message from a host may grow. No host may hold more than it leaves free, so that a host which
    /// sends only first parts cannot exhaust the memory (a dynamic threshold: Choudhury and Hahne, ToN 1998).
    fn growth_limit(&mut self, now: Instant, host: IpAddr, part: &PartRepr, config: &Config) -> usize {
        let held = self.held_by_host.get(&host).copied().unwrap_or_default();
        let room = config.memory.saturating_sub(self.bytes).saturating_sub(held);
        if room >= W_MAX as usize * PART {
            return room;
        }
        let (.., since) = *self.privileged.get_or_insert((part.key, part.message, now));
        if now.since(since) >= config.timing.give_up {
            self.privileged = Some((part.key, part.message, now));
        }
        if self.privileged.is_some_and(|(of, which, _)| (of, which) == (part.key, part.message)) {
            MESSAGE_MAX
        } else {
            room
        }
    }

    /// Adds to the bytes in memory from a host.
    fn count(&mut self, host: IpAddr, grown: isize) {
        if grown == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add_signed(grown);
        let held = self.held_by_host.entry(host).or_default();
        *held = held.saturating_add_signed(grown);
        if *held == 0 {
            self.held_by_host.remove(&host);
        }
    }

    fn forget(&mut self, key: u64) {
        let Some(session) = self.sessions.remove(&key) else { return };
        self.count(session.from.ip(), -(session.bytes() as isize));
        self.key_by_hello.remove(&(session.from, session.session));
        self.privileged.take_if(|(of, ..)| *of == key);
        if self.session_by_address.get(&session.from) == Some(&key) {
            self.session_by_address.remove(&session.from);
        }
    }

    /// Sends the pending acknowledgements.
    pub(super) fn acknowledge(&mut self, key: Option<&TokenKey>, out: &mut impl FnMut(SocketAddr, &[u8])) {
        self.acks_urgent = false;
        for session in self.sessions_to_ack.drain(..) {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.acknowledge(key, out);
            }
        }
    }

    /// Sends the pending acknowledgements to one peer.
    pub(super) fn acknowledge_peer(
        &mut self,
        peer: SocketAddr,
        key: Option<&TokenKey>,
        out: &mut impl FnMut(SocketAddr, &[u8]),
    ) {
        let session = self.session_by_address.get(&peer).and_then(|session| self.sessions.get_mut(session));
        session.into_iter().for_each(|session| session.acknowledge(key, out));
    }

    /// Returns whether no sender waits for the pending acknowledgements.
    pub(super) fn can_hold_acks(&self) -> bool {
        !self.acks_urgent && self.sessions_to_ack.len() <= HELD_ACKS_MAX
    }

    /// Drops sessions without recent parts; returns the time of the next expiry.
    pub(super) fn expire(&mut self, now: Instant, config: &Config) -> Option<Instant> {
        let keep = 2 * config.idle;
        let silent = |(key, session): (&u64, &IncomingSession)| (now.since(session.last_part) >= keep).then_some(*key);
        let over: Vec<u64> = self.sessions.iter().filter_map(silent).collect();
        over.iter().for_each(|key| self.forget(*key));
        self.unproven_keys.retain(|key| !over.contains(key));
        self.sessions.values().map(|session| session.last_part + keep).min()
    }
}

impl IncomingSession {
    fn new(now: Instant, from: SocketAddr, hello: &GreetingRepr) -> Self {
        Self {
            from,
            node: hello.node,
            session: hello.session,
            is_proven: false,
            filter: FlowRepeatFilter::default(),
            partial: HashMap::new(),
            acks: Vec::new(),
            last_part: now,
        }
    }

    /// Sends the pending acknowledgements.
    fn acknowledge(&mut self, key: Option<&TokenKey>, out: &mut impl FnMut(SocketAddr, &[u8])) {
        for acks in self.acks.chunks(ACKS_MAX) {
            let mut frame = [0; Acks::LEN + 4 * ACKS_MAX + TOKEN_LEN];
            let mut marked = 0;
            for (index, (seq, ce)) in acks.iter().enumerate() {
                marked |= u64::from(*ce) << index;
                frame[Acks::LEN + 4 * index..][..4].copy_from_slice(&seq.to_be_bytes());
            }
            AcksRepr::new(self.session, marked).emit(&mut frame);
            out(self.from, token::append_token(key, &mut frame, Acks::LEN + 4 * acks.len()));
        }
        self.acks.clear();
    }

    /// Adds a part and acknowledges it; returns by how many bytes the partial messages grew. `None`: there is no memory
    /// for the part, or it is inconsistent; then it is ignored.
    fn add_part(
        &mut self,
        now: Instant,
        ReceivedPart { part, bytes, ce }: &ReceivedPart<'_>,
        room: usize,
        events: &mut VecDeque<Event>,
        stats: &mut Stats,
    ) -> Option<isize> {
        let known = self.partial.get(&part.message);
        let (known_len, len) = (known.map_or(0, |known| known.bytes.len()), part.offset as usize + bytes.len());
        let grown = len.saturating_sub(known_len);
        let consistent = part.total as usize <= MESSAGE_MAX
            && known.is_none_or(|known| known.total == part.total)
            // A sender has at most one window in flight: the parts in between have arrived, or are in flight.
            && part.offset as usize <= known_len + W_MAX as usize * PART;
        let fits = grown <= room && (known.is_some() || self.partial.len() < PARTIAL_MAX);
        if !consistent || !fits {
            return None;
        }
        match self.filter.classify(0, part.seq) {
            SeqClass::New => {}
            SeqClass::Repeat => {
                stats.repeats += 1;
                self.acks.push((part.seq, *ce));
                return Some(0);
            }
            // The sender has received the acknowledgement.
            SeqClass::Stale => {
                stats.repeats += 1;
                return Some(0);
            }
        }
        self.acks.push((part.seq, *ce));
        if part.total as usize == bytes.len() {
            self.deliver(Bytes::copy_from_slice(bytes), events, stats);
            return Some(0);
        }
        let message = self.partial.entry(part.message).or_insert_with(|| Partial::new(now, part.total));
        if message.bytes.len() < len {
            message.bytes.resize(len, 0);
        }
        message.bytes[part.offset as usize..len].copy_from_slice(bytes);
        message.got += bytes.len();
        if message.got < part.total as usize {
            if now.since(message.last_progress) >= PROGRESS_INTERVAL {
                message.last_progress = now;
                // Zeros if the first part is missing: no message begins like that.
                let arriving = Bytes::copy_from_slice(&message.bytes[..message.bytes.len().min(HEAD_MAX)]);
                events.push_back(Event::Progress { peer: self.from, arriving: Some(arriving) });
            }
            return Some(grown as isize);
        }
        let message = self.partial.remove(&part.message)?.bytes;
        self.deliver(message.into(), events, stats);
        Some(-(known_len as isize))
    }

    fn deliver(&self, message: Bytes, events: &mut VecDeque<Event>, stats: &mut Stats) {
        stats.arrived += 1;
        events.push_back(Event::Arrived { node: self.node, from: self.from, message });
    }

    fn bytes(&self) -> usize {
        self.partial.values().map(|message| message.bytes.len()).sum()
    }
}

impl Partial {
    fn new(now: Instant, total: u32) -> Self {
        Self { last_progress: now, bytes: Vec::new(), got: 0, total }
    }
}
