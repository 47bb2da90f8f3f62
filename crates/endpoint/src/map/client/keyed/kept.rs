//! What only the element has of this caller, kept so that it can be repeated.
//!
//! A frame that the element acknowledged is in the generation that the acknowledgement names; the
//! server has it once that is committed. Until then its call is kept: when the epoch ends first,
//! everything of it that was not committed is added again, past the element, and the server is told
//! when that is done (NOTES: "Values that only the element holds").

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use super::super::super::{Ack, CallError, Operation, Output, Renewal};
use super::super::{CallId, ClientConfig, ClientStats, Flow, Item};
use super::call::{Call, Road, Work};
use super::{KeyedCalls, OWN_CALLS};

/// What the element alone has is made the server's after this time.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// Pairs kept from which on that is wanted at once, and at which no more are sent until it is done.
const PAIRS: (usize, usize) = (1 << 18, 1 << 20);

#[derive(Default)]
pub(super) struct Kept {
    /// Finished calls with frames in generations that are not committed.
    calls: VecDeque<Call>,
    pairs: usize,
    /// Generations of this epoch up to this are the server's.
    committed: u32,
    /// When the server is asked to commit, and the pause after that.
    ask: Option<(Instant, Duration)>,
    /// The last generation that it was asked for.
    asked: u32,
    /// Calls that waited for a commit which has come.
    acked: VecDeque<(CallId, Result<Output, CallError>)>,
    /// Calls that repeat what an ended epoch had.
    repeating: BTreeSet<CallId>,
    /// What the server is still to be told.
    owed: Owed,
    /// There was a keyed call.
    pub(super) used: bool,
    closing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Owed {
    #[default]
    Nothing,
    /// That everything of ended epochs is repeated.
    Settled,
    /// That nothing is left behind.
    Leaving,
    /// It was told, and has not answered.
    Told { epoch: u32, leaving: bool },
}

impl Kept {
    /// The generations that the element says are committed.
    pub(super) fn heard(&mut self, committed: u32) {
        if committed <= self.committed {
            return;
        }
        self.committed = committed;
        let Self { calls, pairs, acked, .. } = self;
        calls.retain_mut(|call| {
            let keep = call.uncommitted(committed).is_some();
            if !keep {
                *pairs -= call.keys.len();
                acked.extend(call.waits.map(|id| (id, call.outcome())));
            }
            keep
        });
        if self.calls.is_empty() {
            self.ask = None;
        }
    }

    /// A call is over: it is kept if the element alone has something of it.
    pub(super) fn finished(&mut self, now: Instant, id: CallId, call: Call) {
        self.repeating.remove(&id);
        if call.uncommitted(self.committed).is_none() || mutant::on(Mutant::ForgetUncommitted) {
            return;
        }
        self.pairs += call.keys.len();
        // Calls that finish in a generation which is asked for already share its commit.
        let waits = call.waits.is_some() && call.uncommitted(self.asked).is_some();
        self.calls.push_back(call);
        let soon = self.closing || self.pairs >= PAIRS.0 || waits;
        let at = now + if soon { Duration::ZERO } else { FLUSH_AFTER };
        self.ask = Some(self.ask.map_or((at, Duration::ZERO), |(earlier, pause)| (earlier.min(at), pause)));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ask.map(|(at, _)| at)
    }

    /// Whether no more pairs may be sent until some are committed.
    pub(super) fn is_full(&self) -> bool {
        self.pairs >= PAIRS.1
    }

    /// A call that repeats what an ended epoch had.
    pub(super) fn repeat(&mut self, id: CallId) {
        self.repeating.insert(id);
    }

    pub(super) fn repeats(&self, id: CallId) -> bool {
        self.repeating.contains(&id)
    }

    /// The last generation that is the server's, as far as is known.
    pub(super) fn committed(&self) -> u32 {
        self.committed
    }

    /// The next call that waited for a commit and need not any more.
    pub(super) fn next_acked(&mut self) -> Option<(CallId, Result<Output, CallError>)> {
        self.acked.pop_front()
    }

    /// Nobody waits for this call any more.
    pub(super) fn cancel(&mut self, id: CallId) {
        self.calls.iter_mut().filter(|call| call.waits == Some(id)).for_each(|call| call.waits = None);
    }

    /// Calls that somebody waits for.
    pub(super) fn drain(self) -> impl Iterator<Item = CallId> {
        self.calls.into_iter().filter_map(|call| call.waits).chain(self.acked.into_iter().map(|(id, _)| id))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.repeating.is_empty() && self.owed == Owed::Nothing
    }

    /// What the server is to be told now; `idle`: there is no other call.
    pub(super) fn peek(&self, config: &ClientConfig, idle: bool) -> Option<Item> {
        let done = self.repeating.is_empty();
        let epoch = config.epoch;
        match self.owed {
            Owed::Settled if done => Some(Item::Settled { epoch, leaving: false }),
            Owed::Leaving if done && idle && self.calls.is_empty() => Some(Item::Settled { epoch, leaving: true }),
            _ => None,
        }
    }
}

impl KeyedCalls {
    /// The generation to ask the server for, if it is time.
    pub(in super::super) fn flush(&mut self, now: Instant, config: &ClientConfig) -> Option<u32> {
        let (at, pause) = self.kept.ask.filter(|(at, _)| *at <= now)?;
        self.kept.ask = None;
        let generation = self.kept.calls.iter().filter_map(|call| call.uncommitted(self.kept.committed)).max()?;
        self.kept.asked = generation;
        let pause = (pause * 2).clamp(config.timing.rto_initial, config.timing.rto_max);
        self.kept.ask = Some((at.max(now) + pause, pause));
        Some(generation)
    }

    /// Generations up to this are the server's.
    pub(in super::super) fn commit(&mut self, generation: u32) {
        self.kept.heard(generation);
    }

    /// The frame with [`Item::Settled`] is on its way.
    pub(in super::super) fn settling(&mut self, config: &ClientConfig) {
        let leaving = self.kept.owed == Owed::Leaving;
        let told = Owed::Told { epoch: config.epoch, leaving };
        self.kept.owed = if self.kept.closing && !leaving { Owed::Leaving } else { told };
    }

    /// The server has answered it.
    pub(in super::super) fn settled(&mut self, item: Item) {
        if let Item::Settled { epoch, leaving } = item
            && self.kept.owed == (Owed::Told { epoch, leaving })
        {
            self.kept.owed = Owed::Nothing;
        }
    }

    /// Sends the pairs in these lanes of a frame again, as new frames, and ends the old one.
    pub(super) fn again(&mut self, id: CallId, index: u32, lanes: u32, config: &ClientConfig) -> usize {
        let Some(mut call) = self.calls.remove(&id) else { return 0 };
        let frame = &mut call.frames[index as usize];
        frame.generation = None;
        if !std::mem::replace(&mut frame.done, true) {
            call.open -= 1;
        }
        let pairs = call.pairs_of(index as usize, lanes);
        if !pairs.is_empty() {
            self.plan(&mut call, &pairs, config.element);
            if !self.ready.contains(&id) {
                self.ready.push_front(id);
            }
        }
        self.calls.insert(id, call);
        pairs.len()
    }

    /// The epoch is another. In flight: the record says what was applied and committed; acknowledged:
    /// the generation says it. All else is added again.
    pub(in super::super) fn renew(
        &mut self,
        now: Instant,
        renewal: &Renewal,
        flows: &mut [Flow<Item>],
        config: &ClientConfig,
        stats: &mut ClientStats,
    ) {
        self.book.start_anew();
        self.plan_anew(config);
        // Before anything is given back: a release must not go to where the lock was.
        self.claim();
        for (number, flow) in flows.iter_mut().enumerate() {
            let in_flight: Vec<(u32, Item)> = flow.items().collect();
            for (seq, item) in in_flight {
                let Item::Keyed(id, index) = item else { continue };
                match self.calls.get(&id).map(|call| call.frames[index as usize].road) {
                    Some(Road::Mapped) => {}
                    Some(Road::Lock) => {
                        self.give_up_lock(id, index);
                        flow.remove(seq);
                        self.settle(now, id, config);
                        continue;
                    }
                    _ => continue,
                }
                let applied = renewal.applied.iter().find(|a| a.flow as usize == number && a.seq == seq);
                self.again(id, index, applied.map_or(u32::MAX, |applied| applied.left_out), config);
                flow.remove(seq);
                self.settle(now, id, config);
            }
        }
        self.repeat_open(renewal, config, stats);
        self.repeat_kept(now, renewal, config, stats);
        let kept = &mut self.kept;
        (kept.committed, kept.ask, kept.asked) = (0, None, 0);
        kept.owed = Owed::Settled;
    }

    /// A frame of a lock on its way to an element whose epoch has ended: an acquiring is tried again
    /// where locks are now, a release has nothing left to release.
    fn give_up_lock(&mut self, id: CallId, index: u32) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let (i, _) = call.lock_of(index as usize);
        call.frames[index as usize].done = true;
        call.open -= 1;
        if matches!(call.work, Work::Count { .. }) {
            call.line_up(vec![i]);
        }
    }

    /// Calls that go on: their acknowledged frames.
    fn repeat_open(&mut self, renewal: &Renewal, config: &ClientConfig, stats: &mut ClientStats) {
        let open: Vec<CallId> = self.calls.keys().copied().collect();
        for id in open {
            let frames = self.calls.get(&id).map_or(0, |call| call.frames.len());
            for index in 0..frames {
                let Some(frame) = self.calls.get_mut(&id).map(|call| &mut call.frames[index]) else { continue };
                let lost = frame.generation.take().is_some_and(|generation| generation > renewal.committed);
                if lost {
                    let lanes = !frame.left_out;
                    stats.lanes_element -= self.again(id, index as u32, lanes, config) as u64;
                }
            }
        }
    }

    /// Calls that are over.
    fn repeat_kept(&mut self, now: Instant, renewal: &Renewal, config: &ClientConfig, stats: &mut ClientStats) {
        self.kept.pairs = 0;
        for mut call in std::mem::take(&mut self.kept.calls) {
            let frames = call.frames.iter().enumerate();
            let gone = |generation| generation > renewal.committed || mutant::on(Mutant::RepeatCommitted);
            let lost = frames.filter(|(_, frame)| frame.generation.is_some_and(gone));
            let pairs = lost.flat_map(|(index, frame)| call.pairs_of(index, !frame.left_out));
            let pairs: Vec<_> = pairs.map(|i| (call.keys[i as usize].clone(), call.values[i as usize])).collect();
            if pairs.is_empty() {
                self.kept.acked.extend(call.waits.map(|id| (id, call.outcome())));
                continue;
            }
            stats.lanes_element -= pairs.len() as u64;
            self.own += 1;
            let id = call.waits.unwrap_or(CallId(OWN_CALLS | self.own));
            let mut again = Call::new(Operation::Add { pairs, modify: call.modify, get: false, ack: Ack::Server });
            (again.detached, again.error) = (call.waits.is_none(), call.error);
            self.kept.repeating.insert(id);
            self.enter(now, id, again, config);
        }
    }

    /// Whether no further call comes.
    pub(in super::super) fn is_closing(&self) -> bool {
        self.kept.closing
    }

    /// No further call comes. That nothing is left behind is said without an element, too: there may be one by now,
    /// and then only this caller knows that it has not heard of it.
    pub(in super::super) fn close(&mut self, now: Instant) {
        let kept = &mut self.kept;
        kept.closing = true;
        if !kept.calls.is_empty() {
            kept.ask = Some((now, Duration::ZERO));
        }
        if kept.used && kept.owed != Owed::Settled && !mutant::on(Mutant::LeavesUnsaid) {
            kept.owed = Owed::Leaving;
        }
    }
}
