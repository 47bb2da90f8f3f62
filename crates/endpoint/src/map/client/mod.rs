//! One caller of one application.
//!
//! A call becomes numbered items of a few reliable flows (its sub-tasks, NetRPC §4): chunks of an
//! array (`sum`) or frames of keyed pairs (`keyed`). Answers come from the element, in
//! passing, or from the server, and are matched by sequence number or, for results that the
//! element multicasts, by row and round.

mod acks;
mod config;
mod doors;
mod frame;
mod keyed;
mod reach;
mod sum;
mod votes;
mod words;

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::{Flags, Instant, Kind, MAX_UNSIGNED, MapFlags, MapFrame, Mutant, mutant};

use super::bypass::Bypass;
use super::{CallError, Dest, Operation, Outbox, Output, Renewal};
use crate::flow::{Due, Flow};
use crate::token::Guard;
pub use config::{ClientConfig, ClientStats};
use keyed::KeyedCalls;
pub use reach::Reach;
use sum::{Outcome, SumCalls};
use votes::VoteCalls;

/// Names a call of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What a flow carries: enough to write the frame again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    /// A chunk of the application's endless array of sums.
    Chunk(u64),
    /// A frame of a keyed call.
    Keyed(CallId, u32),
    /// A frame of a call that counts up to a threshold.
    Vote(CallId, u32),
    /// What the epoch before this one had held is repeated; `leaving`: and there is nothing more.
    Settled { epoch: u32, leaving: bool },
    /// Whether the server hears this caller, and is heard.
    Hello,
}

/// Where an item is: which flow, under which number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) flow: u32,
    pub(crate) seq: u32,
}

/// The state machine of a caller. After each input: [`MapClient::poll`], then
/// [`MapClient::next_event`] until there is none, then wait until [`MapClient::deadline`].
pub struct MapClient {
    config: ClientConfig,
    guard: Guard,
    flows: Vec<Flow<Item>>,
    /// Flow that is asked first for room.
    cursor: usize,
    /// The server is not told again before it that the element is silent.
    next_doubt: Instant,
    reach: Reach,
    /// Frames that the element should have admitted on their way here; and whether they come for long.
    bypass: Bypass,
    bypassed: bool,
    /// The server is to be asked whether it hears this caller.
    greets: bool,
    /// When it is to be told where this worker stands, and the pause after that.
    standing: Option<(Instant, Duration)>,
    sums: SumCalls,
    keyed: KeyedCalls,
    votes: VoteCalls,
    events: VecDeque<(CallId, Result<Output, CallError>)>,
    /// Set once nothing can be done any more; every call gets it.
    broken: Option<CallError>,
    stats: ClientStats,
    scratch: Box<[u8]>,
}

impl MapClient {
    /// A caller with nothing to do.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        let flows = (0..config.flows.max(1)).map(|_| Flow::new(config.timing)).collect();
        Self {
            flows,
            cursor: 0,
            next_doubt: Instant(0),
            reach: Reach::Unknown,
            bypass: Bypass::default(),
            bypassed: false,
            greets: false,
            standing: None,
            sums: SumCalls::new(&config),
            keyed: KeyedCalls::default(),
            votes: VoteCalls::default(),
            events: VecDeque::new(),
            broken: None,
            stats: ClientStats::default(),
            scratch: vec![0; MAX_UNSIGNED].into_boxed_slice(),
            guard: Guard::default(),
            config,
        }
    }

    /// Takes a call. Its outcome comes as an event.
    pub fn start(&mut self, now: Instant, id: CallId, operation: Operation) {
        let started = match (&self.broken, operation) {
            (Some(error), _) => Err(error.clone()),
            (None, Operation::Sum { lanes, modify, threshold }) => self.sums.start(id, lanes, modify, threshold),
            (None, operation @ (Operation::Count { .. } | Operation::Clear { .. })) if self.config.votes => {
                self.keyed.note_use();
                self.votes.start(id, operation, &self.config)
            }
            (None, operation) => self.keyed.start(now, id, operation, &self.config),
        };
        match started {
            Ok(None) => {}
            Ok(Some(output)) => self.finish(id, Ok(output)),
            Err(error) => self.finish(id, Err(error)),
        }
    }

    /// The caller no longer waits. What was begun is driven to its end, so that peers are not left
    /// with half of it (NOTES: "Fallback means the same answer"); a lock that is still granted is
    /// given back. No event follows.
    pub fn cancel(&mut self, now: Instant, id: CallId) {
        if !self.sums.cancel(id) && !self.votes.cancel(now, id, &self.config) {
            self.keyed.cancel(now, id, &self.config);
        }
    }

    /// In which session this caller holds locks, by its own clock: what was granted in it and not given
    /// back is its own, and nothing else.
    #[must_use]
    pub fn session(&self, now: Instant) -> Option<u32> {
        self.keyed.session(now, &self.config)
    }

    fn take(&mut self, now: Instant, bytes: &[u8]) -> Option<()> {
        let frame = MapFrame::new_checked(bytes).ok()?;
        let base = frame.base();
        // The server's answers past the element, and its word on a round, are the same in every epoch.
        let lasting = base.has(Flags::FROM_SERVER)
            && (base.has(Flags::CROSS) || matches!(frame.kind(), Kind::MapResult | Kind::MapSoft | Kind::MapError));
        let ours = base.gaid() == self.config.gaid
            && (lasting || base.epoch() == self.config.epoch)
            && base.dst() == self.config.endpoint
            && (base.dst_incarnation() == self.config.incarnation || mutant::on(Mutant::ClientIncarnation));
        if !ours || self.broken.is_some() {
            return None;
        }
        let past = Flags::FROM_SERVER | Flags::NOT_ADMITTED;
        if base.flags() & (past | Flags::CROSS) == past && base.epoch() == self.config.epoch && self.config.element {
            self.bypassed |= self.bypass.met(now, self.config.timing.silent);
        }
        let ecn = base.has(Flags::ECN);
        match frame.kind() {
            Kind::MapResult => {
                match self.sums.result(&frame, &mut self.stats)? {
                    Outcome::Done(place) => drop(self.flows[place.flow as usize].ack(now, place.seq, ecn)),
                    Outcome::Beyond(place) => self.flows[place.flow as usize].nudge(now, place.seq),
                }
                while let Some((id, sums)) = self.sums.next_done() {
                    self.finish(id, Ok(Output::Sums(sums)));
                }
            }
            Kind::MapSoft if frame.map().has(MapFlags::COUNT) => {
                self.votes.decided(now, &frame, &self.config);
                self.finish_votes();
            }
            // A counter reached its threshold: ask again now.
            Kind::MapSoft if !frame.map().has(MapFlags::ROUND) => {
                let (flow, seq, _) = self.sent(&frame)?;
                self.flows[flow].nudge(now, seq);
            }
            Kind::MapSoft => {
                let place = self.sums.software(&frame)?;
                self.flows[place.flow as usize].nudge(now, place.seq);
            }
            Kind::MapHeld => {
                let (flow, seq, item) = self.sent(&frame)?;
                let holds = self.flows[flow].held(now, seq);
                if let Item::Chunk(chunk) = item
                    && self.sums.goes_past(chunk, holds)
                {
                    self.flows[flow].nudge(now, seq);
                }
            }
            Kind::MapAck if self.has_said_where_it_stands(&frame) => {}
            Kind::MapAck | Kind::MapPairsAck => self.acknowledged(now, &frame, ecn)?,
            Kind::MapRefused => {
                let (flow, seq, item) = self.sent(&frame)?;
                let Item::Keyed(id, index) = item else { return None };
                self.keyed.refused(id, index, base.round(), &self.config)?;
                self.flows[flow].remove(seq);
            }
            Kind::MapLent => self.keyed.lent(now, &frame, &self.config)?,
            Kind::MapCommit => {
                self.keyed.commit(base.round());
                self.finish_keyed();
            }
            Kind::MapWithdraw => self.keyed.will_withdraw(&frame, &self.config),
            Kind::MapError => {
                let error = CallError::from_frame(&frame)?;
                self.fail(error);
            }
            _ => return None,
        }
        Some(())
    }

    /// Sends what may be sent and what is due again.
    fn send(&mut self, now: Instant, out: &mut impl Outbox) {
        for flow in 0..self.flows.len() {
            while let Some(due) = self.flows[flow].due(now) {
                match due {
                    Due::Again(seq, item) => {
                        self.stats.retransmits += 1;
                        self.doubt(now, flow, seq, item, out);
                        self.emit(now, Place { flow: flow as u32, seq }, item, out);
                    }
                    Due::GiveUp(_) => {
                        let who = if self.config.element { "the element or the server" } else { "the server" };
                        let millis = self.config.timing.give_up.as_millis() as u64;
                        self.fail(CallError::Unreachable { who, millis });
                        return;
                    }
                }
            }
        }
        if std::mem::take(&mut self.bypassed) {
            self.tell_silent(now, out);
        }
        self.say_where_it_stands(now, out);
        while let Some(len) = self.sums.give(&self.config, &mut self.scratch) {
            self.hand_out(len, out);
        }
        self.keyed.look_at_lease(now, &self.config);
        self.keyed.wake(now, &self.config);
        self.votes.wake(now, &self.config);
        self.flush(now, out);
        if !self.keep_lease(now, out) {
            return;
        }
        while let Some(flow) = self.free_flow() {
            let Some(item) = self.next_item(now) else { break };
            let seq = self.flows[flow].send(now, item);
            let place = Place { flow: flow as u32, seq };
            match item {
                Item::Chunk(_) => self.sums.sent(place),
                Item::Keyed(..) => self.keyed.sent(),
                Item::Vote(..) => self.votes.sent(),
                Item::Settled { .. } => self.keyed.settling(&self.config),
                Item::Hello => self.greets = false,
            }
            self.cursor = (flow + 1) % self.flows.len();
            self.emit(now, place, item, out);
        }
        if self.flows.iter().all(Flow::is_over) && self.next_item(now).is_some() {
            // It would wait for ever.
            self.fail(CallError::Spent);
        }
    }

    /// What is to be sent next.
    fn next_item(&self, now: Instant) -> Option<Item> {
        let keyed = self.keyed.peek(now, &self.config);
        match keyed {
            _ if self.greets => Some(Item::Hello),
            // Before all else, as soon as it is true: others wait for it.
            Some(Item::Settled { leaving: true, .. }) if self.votes.is_idle() => keyed,
            Some(Item::Settled { leaving: false, .. }) if !self.votes.is_claiming() => keyed,
            Some(Item::Settled { .. }) => self.sums.peek().or_else(|| self.votes.peek()),
            _ => self.sums.peek().or_else(|| self.votes.peek()).or(keyed),
        }
    }

    fn free_flow(&self) -> Option<usize> {
        let n = self.flows.len();
        (0..n).map(|i| (self.cursor + i) % n).find(|i| self.flows[*i].can_send())
    }

    /// The epoch has changed: the element has restarted, its memory has moved, another serves, or
    /// there is none. What only the ended epoch had is repeated; calls go on.
    pub fn renew(&mut self, now: Instant, renewal: &Renewal) {
        let Renewal { epoch, element, slot_base, era, .. } = *renewal;
        self.config = ClientConfig { epoch, element, inline: false, slot_base, era, ..self.config };
        self.greets |= element;
        self.standing = self.sums.stands().map(|_| (now, self.config.timing.rto_initial));
        (self.bypass, self.bypassed) = Default::default();
        if self.broken.is_some() || self.keyed.is_closing() && mutant::on(Mutant::RenewalsUnheardInClosing) {
            return;
        }
        self.keyed.renew(now, renewal, &mut self.flows, &self.config, &mut self.stats);
        self.votes.renew(&mut self.flows, &self.config);
        for place in self.sums.renew(element) {
            self.flows[place.flow as usize].nudge(now, place.seq);
        }
        self.nudge_all(now);
        self.finish_keyed();
    }

    /// No further call comes: what only the element has is made the server's, and then the server is
    /// told that this caller leaves nothing behind. Done when it [`MapClient::is_idle`].
    pub fn close(&mut self, now: Instant) {
        self.keyed.close(now);
        self.votes.close(&self.config);
    }

    /// When [`MapClient::poll`] is to be called next, if nothing comes before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let standing = self.standing.map(|(at, _)| at);
        let keyed = [self.keyed.deadline(&self.config), self.votes.deadline(), standing];
        self.flows.iter().filter_map(Flow::deadline).chain(keyed.into_iter().flatten()).min()
    }

    /// The next finished call.
    pub fn next_event(&mut self) -> Option<(CallId, Result<Output, CallError>)> {
        self.events.pop_front()
    }

    /// Whether nothing is in flight or waiting to be sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sums.is_idle() && self.keyed.is_idle() && self.votes.is_idle()
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.stats
    }

    /// Whether a flow has used up so many of its numbers, and nothing is lost if another caller does what is to come:
    /// locks are a caller's own.
    #[must_use]
    pub fn is_spent(&self, numbers: u32) -> bool {
        self.flows.iter().any(|flow| flow.numbered() >= numbers) && !self.keyed.has_locks()
    }

    /// Why this client can do nothing any more, if so.
    #[must_use]
    pub fn broken(&self) -> Option<&CallError> {
        self.broken.as_ref()
    }

    /// Fails every call, now and from now on: the place in the application is lost, and only
    /// joining it again gives a sure one.
    fn fail(&mut self, error: CallError) {
        for id in self.sums.drain().into_iter().chain(self.keyed.drain()).chain(self.votes.drain()) {
            self.finish(id, Err(error.clone()));
        }
        self.flows.iter_mut().for_each(|flow| *flow = Flow::new(self.config.timing));
        self.broken = Some(error);
    }

    fn finish_votes(&mut self) {
        while let Some((id, outcome)) = self.votes.next_done() {
            self.finish(id, outcome);
        }
    }

    fn finish_keyed(&mut self) {
        while let Some((id, outcome)) = self.keyed.next_done() {
            self.finish(id, outcome);
        }
    }

    fn finish(&mut self, id: CallId, outcome: Result<Output, CallError>) {
        self.stats.calls += 1;
        self.events.push_back((id, outcome));
    }
}

#[cfg(test)]
mod tests;
