//! Sending side of a message session: takes messages, sends parts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::messages::{AcksRepr, GreetingRepr, MessageKind, PART, Part, PartRepr, token};
use pathcall_wire::{Instant, MAX_FRAME};

use super::incoming::PROGRESS_INTERVAL;
use super::{Config, Event, MESSAGE_MAX, Stats};
use crate::flow::{Due, Flow};

/// One part in this many is of the oldest message.
const OLDEST_INTERVAL: u32 = 8;
/// Retransmission timeouts without an acknowledgement after which a session ends that was reported as gone.
const SUSPECT_TIMEOUTS: u32 = 4;

/// Messages to one peer, and the session that carries them.
#[derive(Debug)]
pub(super) struct OutgoingSession {
    to: SocketAddr,
    session: u64,
    /// Key of the receiver, once it has welcomed the session.
    key: Option<u64>,
    /// Start of the session, and time of the next hello.
    started: Instant,
    next_hello: Instant,
    hellos: u32,
    flow: Flow<PartPosition>,
    messages: BTreeMap<u32, Message>,
    /// Messages with unsent parts: remaining bytes, and number.
    unsent: BTreeSet<(u32, u32)>,
    next: u32,
    /// Bytes of all messages.
    bytes: usize,
    parts: u32,
    /// Time of the last acknowledgement, or of the start.
    last_ack: Instant,
    /// Time at which the session ends unless a part is acknowledged before: a frame reported it as gone.
    suspected_until: Option<Instant>,
    last_progress: Instant,
    /// Whether the session is queued as ready to send.
    ready: bool,
}

/// Position of a part in flight: message number and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartPosition {
    message: u32,
    offset: u32,
}

#[derive(Debug)]
struct Message {
    /// Time at which the message was enqueued.
    since: Instant,
    head: Bytes,
    payload: Bytes,
    total: u32,
    /// Bytes sent at least once.
    sent: u32,
    /// Parts in flight.
    open: u32,
}

/// State of a session after a poll.
pub(super) enum SessionState {
    /// Active; to be polled again at this time.
    Active(Option<Instant>),
    /// The session has used all its part numbers.
    Exhausted,
    /// The peer does not answer, or nothing was sent for long.
    Ended,
}

impl OutgoingSession {
    pub(super) fn new(to: SocketAddr, session: u64, config: &Config, now: Instant) -> Self {
        Self {
            to,
            session,
            key: None,
            started: now,
            next_hello: now,
            hellos: 0,
            flow: Flow::new(config.timing),
            messages: BTreeMap::new(),
            unsent: BTreeSet::new(),
            next: 0,
            bytes: 0,
            parts: 0,
            last_ack: now,
            suspected_until: None,
            last_progress: now,
            ready: false,
        }
    }

    /// Enqueues a message; returns its head if the queue is full.
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

    /// Marks the session as ready; returns its address if it was not.
    pub(super) fn mark_ready(&mut self) -> Option<SocketAddr> {
        (!std::mem::replace(&mut self.ready, true)).then_some(self.to)
    }

    /// Handles the receiver's welcome; returns whether it belongs to this session.
    pub(super) fn handle_welcome(&mut self, now: Instant, welcome: &GreetingRepr) -> bool {
        let is_current = welcome.session == self.session && self.key.is_none();
        if is_current {
            self.key = Some(welcome.key);
            self.last_ack = now;
        }
        is_current
    }

    pub(super) fn is_key(&self, key: u64) -> bool {
        self.key == Some(key)
    }

    /// Handles a report that the receiver does not know the session; false when no part is in flight that would prove
    /// the contrary.
    pub(super) fn suspect_end(&mut self, now: Instant) -> bool {
        let waits = self.flow.in_flight() > 0;
        if waits {
            self.suspected_until.get_or_insert(now + SUSPECT_TIMEOUTS * self.flow.timeout());
        }
        waits
    }

    pub(super) fn is_session(&self, session: u64) -> bool {
        self.session == session
    }

    /// Handles acknowledgements of parts.
    pub(super) fn handle_acks(
        &mut self,
        now: Instant,
        acks: &AcksRepr,
        seqs: &[[u8; 4]],
        events: &mut VecDeque<Event>,
    ) {
        for (index, seq) in seqs.iter().enumerate() {
            let marked = acks.marked >> index & 1 == 1;
            let Some(position) = self.flow.ack(now, u32::from_be_bytes(*seq), marked) else { continue };
            (self.last_ack, self.suspected_until) = (now, None);
            let Some(message) = self.messages.get_mut(&position.message) else { continue };
            message.open -= 1;
            if message.total as usize > PART && now.since(self.last_progress) >= PROGRESS_INTERVAL {
                self.last_progress = now;
                events.push_back(Event::Progress { peer: self.to, arriving: None });
            }
            if message.open == 0 && message.sent == message.total {
                self.bytes -= message.total as usize;
                self.messages.remove(&position.message);
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
    ) -> SessionState {
        self.ready = false;
        let Some(key) = self.key else { return self.send_greeting(now, config, out) };
        if self.suspected_until.is_some_and(|over| over <= now) {
            return SessionState::Exhausted;
        }
        let mut frame = [0; MAX_FRAME];
        while let Some(due) = self.flow.due(now) {
            let Due::Resend(seq, position) = due else { return SessionState::Ended };
            stats.retransmits += 1;
            self.emit(now, (key, seq), position, config, &mut frame, out);
        }
        // Messages that were not begun are left to the next session, if one is needed.
        let full = self.parts >= config.session_parts || self.suspected_until.is_some();
        while self.flow.can_send()
            && let Some(position) = self.next_part(full, config.part() as u32)
        {
            self.parts += 1;
            let seq = self.flow.send(now, position);
            self.emit(now, (key, seq), position, config, &mut frame, out);
        }
        match self.flow.deadline() {
            Some(at) => SessionState::Active(Some(self.suspected_until.map_or(at, |over| over.min(at)))),
            // No part is in flight, and no message was begun.
            None if !self.unsent.is_empty() => SessionState::Exhausted,
            None if now.since(self.last_ack) >= config.idle => SessionState::Ended,
            None => SessionState::Active(Some(self.last_ack + config.idle)),
        }
    }

    /// Sends a hello until it is answered.
    fn send_greeting(
        &mut self,
        now: Instant,
        config: &Config,
        out: &mut impl FnMut(SocketAddr, &[u8]),
    ) -> SessionState {
        // The time in which this process stood still does not count.
        self.started = now.min(self.started + now.since(self.next_hello));
        if now.since(self.started) >= config.timing.give_up {
            return SessionState::Ended;
        }
        if self.next_hello <= now {
            config.send_greeting(self.to, &GreetingRepr::new(MessageKind::Hello, config.node, self.session, 0), out);
            let pause = config.timing.rto_initial.saturating_mul(1 << self.hellos.min(8));
            self.next_hello = now + pause.min(config.timing.rto_max);
            self.hellos += 1;
        }
        SessionState::Active(Some(self.next_hello.min(self.started + config.timing.give_up)))
    }

    /// Next part to send: of the message with the fewest remaining bytes, from time to time of the oldest; with
    /// `only_begun`, of a message that was begun.
    fn next_part(&mut self, only_begun: bool, longest: u32) -> Option<PartPosition> {
        let begun = |number: u32| self.messages.get(&number).is_some_and(|message| message.sent > 0);
        let number = if only_begun {
            self.unsent.iter().map(|&(_, number)| number).find(|number| begun(*number))?
        } else if self.parts % OLDEST_INTERVAL == OLDEST_INTERVAL - 1 {
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
        Some(PartPosition { message: number, offset })
    }

    fn emit(
        &self,
        now: Instant,
        (key, seq): (u64, u32),
        position: PartPosition,
        config: &Config,
        frame: &mut [u8; MAX_FRAME],
        out: &mut impl FnMut(SocketAddr, &[u8]),
    ) {
        let Some(message) = self.messages.get(&position.message) else { return };
        let part = PartRepr::new(key, seq, position.message, position.offset, message.total);
        part.emit(frame);
        let len = Part::LEN + part.bytes(config.part());
        message.copy(position.offset as usize, &mut frame[Part::LEN..len]);
        if let (0, Some(wait)) = (position.offset, config.wait) {
            wait(&mut frame[Part::LEN..len], now.since(message.since));
        }
        out(self.to, token::append_token(config.key.as_ref(), frame, len));
    }

    /// Moves the messages that were not begun to a new session; returns the number of lost messages.
    pub(super) fn restart_session(&mut self, now: Instant, session: u64, config: &Config) -> u64 {
        let before = self.messages.len();
        let messages = std::mem::take(&mut self.messages);
        let fresh = Self::new(self.to, session, config, now);
        *self = Self { ready: self.ready, ..fresh };
        for message in messages.into_values().filter(|message| message.sent == 0) {
            // All of them fitted before.
            let _ = self.enqueue(message.since, message.head, message.payload, config);
        }
        (before - self.messages.len()) as u64
    }

    /// Number of messages that may have arrived, and the heads of those that cannot have.
    pub(super) fn into_undelivered(self) -> (u64, Vec<Bytes>) {
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
