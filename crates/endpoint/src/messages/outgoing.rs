//! The sender's end of a session: messages in, parts out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::messages::{AcksRepr, GreetingRepr, MessageKind, PART, Part, PartRepr, token};
use pathcall_wire::{Instant, MAX_FRAME};

use super::incoming::UNDERWAY;
use super::{Config, Event, MESSAGE_MAX, Stats};
use crate::flow::{Due, Flow};

/// Of so many parts, one is of the oldest message.
const OLDEST_TURN: u32 = 8;
/// A session that somebody said to be over is, after so many time-outs of retransmission without an acknowledgement.
const DOUBT: u32 = 4;

/// Messages to one peer, and the session that they go by.
#[derive(Debug)]
pub(super) struct Outgoing {
    to: SocketAddr,
    session: u64,
    /// The receiver's key, when it has welcomed the session.
    key: Option<u64>,
    /// When the session was begun, and when the hello is said again.
    began: Instant,
    hello: Instant,
    hellos: u32,
    flow: Flow<Place>,
    messages: BTreeMap<u32, Message>,
    /// Messages with parts that were not sent yet: bytes left, and number.
    unsent: BTreeSet<(u32, u32)>,
    next: u32,
    /// Bytes of all messages.
    bytes: usize,
    parts: u32,
    /// When something was last acknowledged, or begun.
    active: Instant,
    /// It is over then, unless something is acknowledged before: somebody said that its receiver knows nothing of it.
    doubted: Option<Instant>,
    told: Instant,
    /// It is in the line of those that have something to send.
    ready: bool,
}

/// What is in flight: a message's number, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    message: u32,
    offset: u32,
}

#[derive(Debug)]
struct Message {
    /// When it was to be sent.
    since: Instant,
    head: Bytes,
    payload: Bytes,
    total: u32,
    /// Bytes sent at least once.
    sent: u32,
    /// Parts in flight.
    open: u32,
}

/// How a session stands.
pub(super) enum State {
    /// It goes on, and wants to be polled by then.
    Goes(Option<Instant>),
    /// It has had all parts that it may have.
    Full,
    /// Nobody answers, or nothing was sent for long.
    Over,
}

impl Outgoing {
    pub(super) fn new(to: SocketAddr, session: u64, config: &Config, now: Instant) -> Self {
        Self {
            to,
            session,
            key: None,
            began: now,
            hello: now,
            hellos: 0,
            flow: Flow::new(config.timing),
            messages: BTreeMap::new(),
            unsent: BTreeSet::new(),
            next: 0,
            bytes: 0,
            parts: 0,
            active: now,
            doubted: None,
            told: now,
            ready: false,
        }
    }

    /// Takes a message; gives back the head of one that there is no room for.
    pub(super) fn enqueue(
        &mut self,
        since: Instant,
        head: Bytes,
        payload: Bytes,
        config: &Config,
    ) -> Result<(), Bytes> {
        let total = head.len().saturating_add(payload.len());
        if total == 0 || total > MESSAGE_MAX || self.bytes.saturating_add(total) > config.queue {
            return Err(head);
        }
        self.bytes += total;
        // At most MESSAGE_MAX.
        let total = total as u32;
        self.unsent.insert((total, self.next));
        self.messages.insert(self.next, Message { since, head, payload, total, sent: 0, open: 0 });
        self.next += 1;
        Ok(())
    }

    /// Its address, if it is not in line yet.
    pub(super) fn mark_ready(&mut self) -> Option<SocketAddr> {
        (!std::mem::replace(&mut self.ready, true)).then_some(self.to)
    }

    /// The receiver's welcome; whether it is one.
    pub(super) fn welcome(&mut self, now: Instant, welcome: &GreetingRepr) -> bool {
        let ours = welcome.session == self.session && self.key.is_none();
        if ours {
            self.key = Some(welcome.key);
            self.active = now;
        }
        ours
    }

    pub(super) fn is_key(&self, key: u64) -> bool {
        self.key == Some(key)
    }

    /// Doubts that its receiver knows it; false when nothing would show that it does.
    pub(super) fn doubt(&mut self, now: Instant) -> bool {
        let waits = self.flow.in_flight() > 0;
        if waits {
            self.doubted.get_or_insert(now + DOUBT * self.flow.time_out());
        }
        waits
    }

    pub(super) fn is_session(&self, session: u64) -> bool {
        self.session == session
    }

    /// Parts of this session that have come.
    pub(super) fn acks(&mut self, now: Instant, acks: &AcksRepr, seqs: &[[u8; 4]], events: &mut VecDeque<Event>) {
        for (index, seq) in seqs.iter().enumerate() {
            let marked = acks.marked >> index & 1 == 1;
            let Some(place) = self.flow.ack(now, u32::from_be_bytes(*seq), marked) else { continue };
            (self.active, self.doubted) = (now, None);
            let Some(message) = self.messages.get_mut(&place.message) else { continue };
            message.open -= 1;
            if message.total as usize > PART && now.since(self.told) >= UNDERWAY {
                self.told = now;
                events.push_back(Event::Underway { peer: self.to, arriving: None });
            }
            if message.open == 0 && message.sent == message.total {
                self.bytes -= message.total as usize;
                self.messages.remove(&place.message);
            }
        }
    }

    /// Sends what is due.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        config: &Config,
        stats: &mut Stats,
        out: &mut impl FnMut(SocketAddr, &[u8]),
    ) -> State {
        self.ready = false;
        let Some(key) = self.key else { return self.greet(now, config, out) };
        if self.doubted.is_some_and(|over| over <= now) {
            return State::Full;
        }
        let mut frame = [0; MAX_FRAME];
        while let Some(due) = self.flow.due(now) {
            let Due::Again(seq, place) = due else { return State::Over };
            stats.retransmits += 1;
            self.emit(now, (key, seq), place, config, &mut frame, out);
        }
        // What is not begun goes by the next session, if it comes to that.
        let full = self.parts >= config.session_parts || self.doubted.is_some();
        while self.flow.can_send()
            && let Some(place) = self.next_part(full, config.part() as u32)
        {
            self.parts += 1;
            let seq = self.flow.send(now, place);
            self.emit(now, (key, seq), place, config, &mut frame, out);
        }
        match self.flow.deadline() {
            Some(at) => State::Goes(Some(self.doubted.map_or(at, |over| over.min(at)))),
            // Nothing is in flight, and nothing was begun.
            None if !self.unsent.is_empty() => State::Full,
            None if now.since(self.active) >= config.idle => State::Over,
            None => State::Goes(Some(self.active + config.idle)),
        }
    }

    /// Says hello, until it is answered.
    fn greet(&mut self, now: Instant, config: &Config, out: &mut impl FnMut(SocketAddr, &[u8])) -> State {
        // Whoever stood still itself has neither asked nor heard.
        self.began = now.min(self.began + now.since(self.hello));
        if now.since(self.began) >= config.timing.give_up {
            return State::Over;
        }
        if self.hello <= now {
            config.greet(self.to, &GreetingRepr::new(MessageKind::Hello, config.node, self.session, 0), out);
            let pause = config.timing.rto_initial.saturating_mul(1 << self.hellos.min(8));
            self.hello = now + pause.min(config.timing.rto_max);
            self.hellos += 1;
        }
        State::Goes(Some(self.hello.min(self.began + config.timing.give_up)))
    }

    /// The part to send next: of the message with the least left, now and then of the oldest; of one that was
    /// begun, if no other may be.
    fn next_part(&mut self, only_begun: bool, longest: u32) -> Option<Place> {
        let begun = |number: u32| self.messages.get(&number).is_some_and(|message| message.sent > 0);
        let number = if only_begun {
            self.unsent.iter().map(|&(_, number)| number).find(|number| begun(*number))?
        } else if self.parts % OLDEST_TURN == OLDEST_TURN - 1 {
            let unsent = |(_, message): &(&u32, &Message)| message.sent < message.total;
            *self.messages.iter().find(unsent)?.0
        } else {
            self.unsent.first()?.1
        };
        let message = self.messages.get_mut(&number)?;
        let offset = message.sent;
        self.unsent.remove(&(message.total - offset, number));
        message.sent += message.total.saturating_sub(offset).min(longest);
        message.open += 1;
        if message.sent < message.total {
            self.unsent.insert((message.total - message.sent, number));
        }
        Some(Place { message: number, offset })
    }

    fn emit(
        &self,
        now: Instant,
        (key, seq): (u64, u32),
        place: Place,
        config: &Config,
        frame: &mut [u8; MAX_FRAME],
        out: &mut impl FnMut(SocketAddr, &[u8]),
    ) {
        let Some(message) = self.messages.get(&place.message) else { return };
        let part = PartRepr::new(key, seq, place.message, place.offset, message.total);
        part.emit(frame);
        let len = Part::LEN + part.bytes(config.part());
        message.copy(place.offset as usize, &mut frame[Part::LEN..len]);
        if let (0, Some(wait)) = (place.offset, config.wait) {
            wait(&mut frame[Part::LEN..len], now.since(message.since));
        }
        out(self.to, token::seal(config.key.as_ref(), frame, len));
    }

    /// Another session for what was not begun; how many messages were, and are lost.
    pub(super) fn begin_anew(&mut self, now: Instant, session: u64, config: &Config) -> u64 {
        let before = self.messages.len();
        let messages = std::mem::take(&mut self.messages);
        let fresh = Self::new(self.to, session, config, now);
        *self = Self { ready: self.ready, ..fresh };
        for message in messages.into_values().filter(|message| message.sent == 0) {
            // There was room for all of them.
            let _ = self.enqueue(message.since, message.head, message.payload, config);
        }
        (before - self.messages.len()) as u64
    }

    /// How many messages may have come, and the heads of those that can't have.
    pub(super) fn give_back(self) -> (u64, Vec<Bytes>) {
        let all = self.messages.len();
        let unsent = self.messages.into_values().filter(|message| message.sent == 0);
        let heads: Vec<Bytes> = unsent.map(|message| message.head).collect();
        ((all - heads.len()) as u64, heads)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.messages.is_empty()
    }
}

impl Message {
    /// Copies the bytes from `offset` on.
    fn copy(&self, offset: usize, to: &mut [u8]) {
        let head = self.head.get(offset..).unwrap_or_default();
        let (first, second) = to.split_at_mut(head.len().min(to.len()));
        first.copy_from_slice(&head[..first.len()]);
        let at = offset.saturating_sub(self.head.len());
        second.copy_from_slice(&self.payload[at..at + second.len()]);
    }
}
