//! State machine of a caller of an application.
//!
//! A call becomes numbered items of a few reliable flows (sub-tasks, NetRPC §4): chunks of an array (`sum`), frames of
//! keyed pairs (`keyed`) or of ballots (`votes`). Answers come from the element or from the server. Sequence numbers
//! match answers to items; row and round match results that the element multicasts.
//!
//! [`MapClient::start`] begins a call, [`MapClient::poll`] sends what is due, [`MapClient::handle`] (`receive`) takes
//! answers, and [`MapClient::next_event`] returns the outcome. `frames` writes the frames.
//!
//! A caller greets the server after joining, so that it detects blocked UDP before its first call. Later, missing
//! answers show it. A greeting also detects an element on the route (inline): greeting and answer have the flag
//! `NOT_ADMITTED`, and only an element on the route clears it. The caller repeats the greeting in each epoch.

mod config;
mod frames;
mod keyed;
mod receive;
mod resume;
mod sum;
mod votes;

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::{FrameKind, Instant, MAX_UNSIGNED, Mutant, TokenKey, mutant};

use super::bypass::Bypass;
use super::{CallError, Dest, EpochChange, FrameSink, Operation, Output};
use crate::flow::{Due, Flow};
use crate::token::FrameAuth;
pub use config::{ClientConfig, ClientStats};
use keyed::KeyedCalls;
pub use resume::NewOwner;
use sum::SumCalls;
use votes::VoteCalls;

/// Id of a call of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Item of a flow, with the data to write its frame again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    /// Chunk in the sequence of sums of the application.
    Chunk(u64),
    /// Frame of a keyed call.
    Keyed(CallId, u32),
    /// Frame of a call that counts or clears ballots.
    Vote(CallId, u32),
    /// Notice that all lost additions of the previous epoch are repeated; `leaving`: nothing of this caller remains in
    /// the element.
    Settled { epoch: u32, leaving: bool },
    /// Greeting that tests the path to the server.
    Hello,
}

/// Position of an item: flow and sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowPosition {
    pub(crate) flow: u32,
    pub(crate) seq: u32,
}

/// Reachability of the server past the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerReachability {
    /// Not known yet.
    #[default]
    Unknown,
    /// The server has answered.
    Answers,
    /// The server has not answered for the silence time.
    Silent,
}

/// State machine of a caller. After each input, call [`MapClient::poll`], then [`MapClient::next_event`] until it
/// returns `None`, then wait until [`MapClient::deadline`].
pub struct MapClient {
    config: ClientConfig,
    guard: FrameAuth,
    flows: Vec<Flow<Item>>,
    /// First flow to try for the next item.
    cursor: usize,
    /// Earliest time of the next report that the element is silent.
    next_silence_report: Instant,
    reach: ServerReachability,
    /// Frames from the server that bypass the inline element, and whether the bypass lasts.
    bypass: Bypass,
    bypassed: bool,
    /// Whether a greeting is to be sent.
    hello_pending: bool,
    /// Time of the next progress report (*shadow*, *lazy*), and the pause after it.
    progress_report: Option<(Instant, Duration)>,
    sums: SumCalls,
    keyed: KeyedCalls,
    votes: VoteCalls,
    events: VecDeque<(CallId, Result<Output, CallError>)>,
    /// Whether there is no owner at present.
    suspended: bool,
    /// Error that ended this client; all calls fail with it.
    broken: Option<CallError>,
    stats: ClientStats,
    scratch: Box<[u8]>,
}

impl MapClient {
    /// Idle caller.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        let flows = (0..config.flows.max(1)).map(|_| Flow::new(config.timing)).collect();
        Self {
            flows,
            cursor: 0,
            next_silence_report: Instant(0),
            reach: ServerReachability::Unknown,
            bypass: Bypass::default(),
            bypassed: false,
            hello_pending: false,
            progress_report: None,
            sums: SumCalls::new(&config),
            keyed: KeyedCalls::default(),
            votes: VoteCalls::default(),
            events: VecDeque::new(),
            suspended: false,
            broken: None,
            stats: ClientStats::default(),
            scratch: vec![0; MAX_UNSIGNED].into_boxed_slice(),
            guard: FrameAuth::default(),
            config,
        }
    }

    /// Sets the key of the application's frames; `None`: frames have no tokens.
    #[must_use]
    pub fn authenticate(self, key: Option<TokenKey>) -> Self {
        Self { guard: FrameAuth::new(key), ..self }
    }

    /// Starts a call. An event reports its outcome.
    pub fn start(&mut self, now: Instant, id: CallId, operation: Operation) {
        let started = match (&self.broken, operation) {
            (Some(error), _) => Err(error.clone()),
            (None, Operation::Sum { lanes, modify, threshold, to }) => {
                self.sums.start(id, lanes, modify, (threshold, to))
            }
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

    /// Number of the first chunk of the next sum.
    #[must_use]
    pub fn next_sum_chunk(&self) -> u64 {
        self.sums.next_chunk()
    }

    /// Cancels a call; no event follows. Frames already sent are completed, so that peers do not see half of a call.
    /// Locks that are still granted to the call are released.
    pub fn cancel(&mut self, now: Instant, id: CallId) {
        if !self.sums.cancel(id) && !self.votes.cancel(now, id, &self.config) {
            self.keyed.cancel(now, id, &self.config);
        }
    }

    /// Session in which this caller holds locks, by its own clock. The caller holds exactly the locks that were granted
    /// in this session and not released.
    #[must_use]
    pub fn session(&self, now: Instant) -> Option<u32> {
        self.keyed.session(now, &self.config)
    }

    /// Sends new frames and due retransmissions.
    pub fn poll(&mut self, now: Instant, out: &mut impl FrameSink) {
        if self.suspended {
            return;
        }
        let mut guard = std::mem::take(&mut self.guard);
        self.send(now, &mut guard.signing(out));
        self.guard = guard;
    }

    fn send(&mut self, now: Instant, out: &mut impl FrameSink) {
        for flow in 0..self.flows.len() {
            while let Some(due) = self.flows[flow].due(now) {
                match due {
                    Due::Resend(seq, item) => {
                        self.stats.retransmits += 1;
                        self.check_silence(now, flow, seq, item, out);
                        self.emit(now, FlowPosition { flow: flow as u32, seq }, item, out);
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
            self.report_silent_element(now, out);
        }
        self.send_progress(now, out);
        while let Some(len) = self.sums.emit_requested_sums(&self.config, &mut self.scratch) {
            self.send_scratch(len, out);
        }
        self.keyed.check_lease(now, &self.config);
        self.keyed.run_retries(now, &self.config);
        self.votes.run_timers(now, &self.config);
        self.send_commit_request(now, out);
        if !self.keep_lease(now, out) {
            return;
        }
        while let Some(flow) = self.free_flow() {
            let Some(item) = self.next_item(now) else { break };
            let seq = self.flows[flow].send(now, item);
            let position = FlowPosition { flow: flow as u32, seq };
            match item {
                Item::Chunk(_) => self.sums.on_sent(position),
                Item::Keyed(..) => self.keyed.on_sent(),
                Item::Vote(..) => self.votes.on_sent(),
                Item::Settled { .. } => self.keyed.on_settled_sent(&self.config),
                Item::Hello => self.hello_pending = false,
            }
            self.cursor = (flow + 1) % self.flows.len();
            self.emit(now, position, item, out);
        }
        if self.flows.iter().all(Flow::is_exhausted) && self.next_item(now).is_some() {
            // The item could never be sent.
            self.fail(CallError::SequenceExhausted);
        }
    }

    /// Next item to send.
    fn next_item(&self, now: Instant) -> Option<Item> {
        let keyed = self.keyed.peek(now, &self.config);
        match keyed {
            _ if self.hello_pending => Some(Item::Hello),
            // First, as soon as it is true: other callers wait for it.
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

    /// Applies a change of epoch: the element has restarted, its memory has moved, another element serves, or there is
    /// no element. Additions that were lost with the ended epoch are repeated; calls continue.
    pub fn renew(&mut self, now: Instant, renewal: &EpochChange) {
        let EpochChange { epoch, element, slot_base, rows, era, .. } = *renewal;
        self.config = ClientConfig { epoch, element, inline: false, slot_base, rows, era, ..self.config };
        self.hello_pending |= element;
        self.progress_report = self.sums.oldest_open_position().map(|_| (now, self.config.timing.rto_initial));
        (self.bypass, self.bypassed) = Default::default();
        if self.broken.is_some() || self.keyed.is_closing() && mutant::on(Mutant::RenewalsUnheardInClosing) {
            return;
        }
        self.keyed.renew(now, renewal, &mut self.flows, &self.config, &mut self.stats);
        self.votes.renew(&mut self.flows, &self.config);
        for position in self.sums.renew(element, rows) {
            self.flows[position.flow as usize].resend_now(now, position.seq);
        }
        self.resend_all(now);
        self.finish_keyed();
    }

    /// Sends a greeting; [`MapClient::reach`] gives the result.
    pub fn greet(&mut self) {
        self.hello_pending = true;
    }

    /// Reachability of the server.
    #[must_use]
    pub fn reach(&self) -> ServerReachability {
        self.reach
    }

    /// Records that frames to the server use another path from now on. All items in flight are sent again with fresh
    /// timers.
    pub fn reroute(&mut self, now: Instant) {
        self.reach = ServerReachability::Unknown;
        self.resend_all(now);
    }

    /// Reports the element to the server as silent if an item had no answer for the silence time. After twice this
    /// time, or if the item does not use the element, the server counts as silent.
    fn check_silence(&mut self, now: Instant, flow: usize, seq: u32, item: Item, out: &mut impl FrameSink) {
        let by_element = self.config.element && !matches!(item, Item::Settled { .. } | Item::Hello);
        let (unheard, silent) = (self.flows[flow].silence(now, seq), self.config.timing.silent);
        if by_element && unheard >= silent {
            self.report_silent_element(now, out);
        }
        if unheard >= if by_element { silent * 2 } else { silent } {
            self.reach = ServerReachability::Silent;
        }
    }

    /// Reports the element to the server as silent, unless reported recently.
    fn report_silent_element(&mut self, now: Instant, out: &mut impl FrameSink) {
        if now >= self.next_silence_report {
            self.next_silence_report = now + self.config.timing.rto_max;
            self.send_control(FrameKind::MapSilent, 0, out);
        }
    }

    /// Resends all items in flight.
    fn resend_all(&mut self, now: Instant) {
        for flow in &mut self.flows {
            let seqs: Vec<u32> = flow.items().map(|(seq, _)| seq).collect();
            seqs.into_iter().for_each(|seq| flow.resend_now(now, seq));
        }
    }

    /// Closes the caller: uncommitted additions are committed, then the server gets a notice that nothing of this
    /// caller remains in the element. Complete when [`MapClient::is_idle`].
    pub fn close(&mut self, now: Instant) {
        self.keyed.close(now);
        self.votes.close(&self.config);
    }

    /// Next time at which [`MapClient::poll`] must be called, if no input comes before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.suspended {
            return None;
        }
        let report = self.progress_report.map(|(at, _)| at);
        let keyed = [self.keyed.deadline(&self.config), self.votes.deadline(), report];
        self.flows.iter().filter_map(Flow::deadline).chain(keyed.into_iter().flatten()).min()
    }

    /// Next finished call with its outcome.
    pub fn next_event(&mut self) -> Option<(CallId, Result<Output, CallError>)> {
        self.events.pop_front()
    }

    /// Whether no item is in flight or waiting.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sums.is_idle() && self.keyed.is_idle() && self.votes.is_idle()
    }

    /// Counters of this caller.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.stats
    }

    /// Whether a new caller should replace this one: a flow has used `numbers` sequence numbers, and no locks are held
    /// or requested, which a new caller would lose.
    #[must_use]
    pub fn needs_successor(&self, numbers: u32) -> bool {
        self.flows.iter().any(|flow| flow.numbers_used() >= numbers) && !self.keyed.has_locks()
    }

    /// Error that ended this client, if any.
    #[must_use]
    pub fn failure(&self) -> Option<&CallError> {
        self.broken.as_ref()
    }

    /// Fails all present and future calls. The endpoint must join the application again.
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
