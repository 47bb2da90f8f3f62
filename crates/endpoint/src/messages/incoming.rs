//! The receivers' ends of sessions: parts in, messages and acknowledgements out.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;
use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::messages::{ACKS_MAX, Acks, AcksRepr, GreetingRepr, PART, PartRepr, token};
use pathcall_wire::{Instant, TokenKey, W_MAX};

use super::{Config, Event, HEAD_MAX, MESSAGE_MAX, Stats, Table};
use crate::flow::{Seen, SeenSet};

/// Sessions that nothing was sent in yet: whoever says hello need not be where it says.
const UNPROVEN_MAX: usize = 256;
/// Messages of one session that have come in part.
const PARTIAL_MAX: usize = 256;
/// A message of several parts that gets on is told of so often.
pub(super) const UNDERWAY: Duration = Duration::from_millis(50);

/// All of a node.
#[derive(Debug)]
pub(super) struct Receiver {
    /// By key.
    sessions: Table<u64, Incoming>,
    /// Keys by what a hello says.
    named: Table<(SocketAddr, u64), u64>,
    /// The session of each address that something has come from.
    proven: Table<SocketAddr, u64>,
    /// Keys of those that nothing has come in, oldest first.
    unproven: VecDeque<u64>,
    /// Keys of those with something to acknowledge.
    acking: Vec<u64>,
    /// Bytes of messages that have come in part.
    bytes: usize,
    /// The same by the host that they come from.
    held: Table<IpAddr, usize>,
    /// The one message that goes on though there is no room, or else many that have come in part would wait for
    /// each other; and when it last did.
    favoured: Option<(u64, u32, Instant)>,
}

#[derive(Debug)]
struct Incoming {
    from: SocketAddr,
    node: u64,
    session: u64,
    /// Something has come: its sender is where it says.
    proven: bool,
    seen: SeenSet,
    partial: HashMap<u32, Partial>,
    /// Numbers to acknowledge, and whether they were marked.
    acks: Vec<(u32, bool)>,
    heard: Instant,
}

/// A message that has come in part.
#[derive(Debug)]
struct Partial {
    told: Instant,
    bytes: Vec<u8>,
    got: usize,
    total: u32,
}

/// A part as it came.
pub(super) struct Arrival<'a> {
    pub(super) part: PartRepr,
    pub(super) bytes: &'a [u8],
    pub(super) ce: bool,
}

impl Receiver {
    pub(super) fn new(hash: FixedState) -> Self {
        let (sessions, proven) = (Table::with_hasher(hash), Table::with_hasher(hash));
        let (named, held) = (Table::with_hasher(hash), Table::with_hasher(hash));
        let (unproven, acking, bytes, favoured) = Default::default();
        Self { sessions, named, proven, unproven, acking, bytes, held, favoured }
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes of messages that have come in part.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A hello; the key of its session, `drawn` if it is new.
    pub(super) fn hello(&mut self, now: Instant, from: SocketAddr, hello: &GreetingRepr, drawn: u64) -> u64 {
        if let Some(known) = self.named.get(&(from, hello.session)) {
            return *known;
        }
        if self.unproven.len() == UNPROVEN_MAX
            && let Some(oldest) = self.unproven.pop_front()
        {
            self.forget(oldest);
        }
        self.unproven.push_back(drawn);
        self.named.insert((from, hello.session), drawn);
        self.sessions.insert(drawn, Incoming::new(now, from, hello));
        drawn
    }

    /// A part; false when there is no such session.
    pub(super) fn part(
        &mut self,
        now: Instant,
        from: SocketAddr,
        arrival: &Arrival<'_>,
        config: &Config,
        events: &mut VecDeque<Event>,
        stats: &mut Stats,
    ) -> bool {
        let key = arrival.part.key;
        let Some(session) = self.sessions.get_mut(&key).filter(|session| session.from == from) else { return false };
        if !session.proven {
            session.proven = true;
            self.unproven.retain(|other| *other != key);
            // A sender that begins another session has done with the last one.
            if let Some(last) = self.proven.insert(from, key) {
                self.forget(last);
            }
        }
        let room = self.room(now, from.ip(), &arrival.part, config);
        let Some(session) = self.sessions.get_mut(&key) else { return false };
        session.heard = now;
        let Some(grown) = session.take(now, arrival, room, events, stats) else {
            stats.refused += 1;
            return true;
        };
        if session.acks.len() == 1 {
            self.acking.push(key);
        }
        let goes_on = self.favoured.is_some() && session.partial.contains_key(&arrival.part.message);
        self.count(from.ip(), grown);
        let favoured = self.favoured.filter(|(of, message, _)| (*of, *message) == (key, arrival.part.message));
        if favoured.is_some() {
            self.favoured = goes_on.then_some((key, arrival.part.message, now));
        }
        true
    }

    /// How many bytes a part's message from that host may grow by. No host holds more than it leaves free: one that sends
    /// beginnings only does not take what others need (a dynamic threshold: Choudhury and Hahne, ToN 1998).
    fn room(&mut self, now: Instant, host: IpAddr, part: &PartRepr, config: &Config) -> usize {
        let held = self.held.get(&host).copied().unwrap_or_default();
        let room = config.memory.saturating_sub(self.bytes).saturating_sub(held);
        if room >= W_MAX as usize * PART {
            return room;
        }
        let (.., since) = *self.favoured.get_or_insert((part.key, part.message, now));
        if now.since(since) >= config.timing.give_up {
            self.favoured = Some((part.key, part.message, now));
        }
        if self.favoured.is_some_and(|(of, which, _)| (of, which) == (part.key, part.message)) {
            MESSAGE_MAX
        } else {
            room
        }
    }

    /// There are so many bytes more, or less, from a host.
    fn count(&mut self, host: IpAddr, grown: isize) {
        if grown == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add_signed(grown);
        let held = self.held.entry(host).or_default();
        *held = held.saturating_add_signed(grown);
        if *held == 0 {
            self.held.remove(&host);
        }
    }

    fn forget(&mut self, key: u64) {
        let Some(session) = self.sessions.remove(&key) else { return };
        self.count(session.from.ip(), -(session.bytes() as isize));
        self.named.remove(&(session.from, session.session));
        self.favoured.take_if(|(of, ..)| *of == key);
        if self.proven.get(&session.from) == Some(&key) {
            self.proven.remove(&session.from);
        }
    }

    /// Acknowledges what has come.
    pub(super) fn acknowledge(&mut self, key: Option<&TokenKey>, out: &mut impl FnMut(SocketAddr, &[u8])) {
        for session in self.acking.drain(..) {
            let Some(session) = self.sessions.get_mut(&session) else { continue };
            for acks in session.acks.chunks(ACKS_MAX) {
                let mut frame = [0; Acks::LEN + 4 * ACKS_MAX + TOKEN_LEN];
                let mut marked = 0;
                for (index, (seq, ce)) in acks.iter().enumerate() {
                    marked |= u64::from(*ce) << index;
                    frame[Acks::LEN + 4 * index..][..4].copy_from_slice(&seq.to_be_bytes());
                }
                AcksRepr::new(session.session, marked).emit(&mut frame);
                out(session.from, token::seal(key, &mut frame, Acks::LEN + 4 * acks.len()));
            }
            session.acks.clear();
        }
    }

    /// Forgets sessions that nothing came in for long; when there may be others.
    pub(super) fn expire(&mut self, now: Instant, config: &Config) -> Option<Instant> {
        let keep = 2 * config.idle;
        let silent = |(key, session): (&u64, &Incoming)| (now.since(session.heard) >= keep).then_some(*key);
        let over: Vec<u64> = self.sessions.iter().filter_map(silent).collect();
        over.iter().for_each(|key| self.forget(*key));
        self.unproven.retain(|key| !over.contains(key));
        self.sessions.values().map(|session| session.heard + keep).min()
    }
}

impl Incoming {
    fn new(now: Instant, from: SocketAddr, hello: &GreetingRepr) -> Self {
        Self {
            from,
            node: hello.node,
            session: hello.session,
            proven: false,
            seen: SeenSet::default(),
            partial: HashMap::new(),
            acks: Vec::new(),
            heard: now,
        }
    }

    /// Takes a part, and has it acknowledged; by how many bytes there are more of messages that have come in
    /// part. `None`: there is no room for it, or its sender is confused: it is as if it had not come.
    fn take(
        &mut self,
        now: Instant,
        Arrival { part, bytes, ce }: &Arrival<'_>,
        room: usize,
        events: &mut VecDeque<Event>,
        stats: &mut Stats,
    ) -> Option<isize> {
        let known = self.partial.get(&part.message);
        let (there, len) = (known.map_or(0, |known| known.bytes.len()), part.offset as usize + bytes.len());
        let grown = len.saturating_sub(there);
        let sane = part.total as usize <= MESSAGE_MAX
            && known.is_none_or(|known| known.total == part.total)
            // Nobody has more than a window in flight: what is in between has come, or is to come now.
            && part.offset as usize <= there + W_MAX as usize * PART;
        let fits = grown <= room && (known.is_some() || self.partial.len() < PARTIAL_MAX);
        if !sane || !fits {
            return None;
        }
        match self.seen.meet(0, part.seq) {
            Seen::New => {}
            Seen::Repeat => {
                stats.repeats += 1;
                self.acks.push((part.seq, *ce));
                return Some(0);
            }
            // Its sender knows that it has come.
            Seen::Stale => {
                stats.repeats += 1;
                return Some(0);
            }
        }
        self.acks.push((part.seq, *ce));
        if part.total as usize == bytes.len() {
            self.arrived(Bytes::copy_from_slice(bytes), events, stats);
            return Some(0);
        }
        let message = self.partial.entry(part.message).or_insert_with(|| Partial::new(now, part.total));
        if message.bytes.len() < len {
            message.bytes.resize(len, 0);
        }
        message.bytes[part.offset as usize..len].copy_from_slice(bytes);
        message.got += bytes.len();
        if message.got < part.total as usize {
            if now.since(message.told) >= UNDERWAY {
                message.told = now;
                // Zeros, if its first part is still to come: no message begins like that.
                let arriving = Bytes::copy_from_slice(&message.bytes[..message.bytes.len().min(HEAD_MAX)]);
                events.push_back(Event::Underway { peer: self.from, arriving: Some(arriving) });
            }
            return Some(grown as isize);
        }
        let message = self.partial.remove(&part.message)?.bytes;
        self.arrived(message.into(), events, stats);
        Some(-(there as isize))
    }

    fn arrived(&self, message: Bytes, events: &mut VecDeque<Event>, stats: &mut Stats) {
        stats.arrived += 1;
        events.push_back(Event::Arrived { node: self.node, from: self.from, message });
    }

    fn bytes(&self) -> usize {
        self.partial.values().map(|message| message.bytes.len()).sum()
    }
}

impl Partial {
    fn new(now: Instant, total: u32) -> Self {
        Self { told: now, bytes: Vec::new(), got: 0, total }
    }
}
