//! Uncommitted additions of a caller, kept so that they can be repeated after a loss of the element.
//!
//! The acknowledgement of a frame names its generation; the server has the values when this generation is committed.
//! Until then the caller keeps the call. If the epoch ends first, all uncommitted additions of the call are sent again,
//! past the element; then a notice to the server says that all are repeated.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use super::super::super::{Ack, CallError, EpochChange, Operation, Output};
use super::super::{CallId, ClientConfig, ClientStats, Flow, Item};
use super::call::{KeyedCall, KeyedOp, PairEncoding};
use super::{KeyedCalls, OWN_CALLS};

/// Time after which the caller requests a commit.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// Numbers of kept pairs: at the first, the caller requests a commit at once; at the second, it sends no new pairs
/// before a commit.
const PAIRS: (usize, usize) = (1 << 18, 1 << 20);

/// Finished calls with uncommitted additions.
#[derive(Default)]
pub(super) struct Unacked {
    /// Finished calls with frames in uncommitted generations.
    calls: VecDeque<KeyedCall>,
    pairs: usize,
    /// Last committed generation of this epoch.
    committed: u32,
    /// Time of the next commit request, and the pause after it.
    next_request: Option<(Instant, Duration)>,
    /// Last generation whose commit was requested.
    requested: u32,
    /// Calls whose awaited commit has arrived.
    acked: VecDeque<(CallId, Result<Output, CallError>)>,
    /// Calls that repeat lost additions of an ended epoch.
    repeating: BTreeSet<CallId>,
    /// Notice that the caller owes the server.
    owed_notice: OwedNotice,
    /// Whether there was a keyed call.
    pub(super) used: bool,
    closing: bool,
}

/// Notice that the caller owes the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum OwedNotice {
    #[default]
    Nothing,
    /// All lost additions of ended epochs are repeated.
    Settled,
    /// Nothing of this caller remains in the element.
    Leaving,
    /// The notice is sent and not answered yet.
    Sent { epoch: u32, leaving: bool },
}

impl Unacked {
    /// Records that generations up to `committed` are committed.
    pub(super) fn mark_committed(&mut self, committed: u32) {
        if committed <= self.committed {
            return;
        }
        self.committed = committed;
        let Self { calls, pairs, acked, .. } = self;
        calls.retain_mut(|call| {
            let keep = call.uncommitted(committed).is_some();
            if !keep {
                *pairs -= call.keys.len();
                acked.extend(call.waiting_caller.map(|id| (id, call.outcome())));
            }
            keep
        });
        if self.calls.is_empty() {
            self.next_request = None;
        }
    }

    /// Keeps a finished call if it has uncommitted frames.
    pub(super) fn retain_if_uncommitted(&mut self, now: Instant, id: CallId, call: KeyedCall) {
        self.repeating.remove(&id);
        if call.uncommitted(self.committed).is_none() || mutant::on(Mutant::ForgetUncommitted) {
            return;
        }
        self.pairs += call.keys.len();
        // A call whose generation is requested already waits for this commit.
        let waits = call.waiting_caller.is_some() && call.uncommitted(self.requested).is_some();
        self.calls.push_back(call);
        let soon = self.closing || self.pairs >= PAIRS.0 || waits;
        let at = now + if soon { Duration::ZERO } else { FLUSH_AFTER };
        self.next_request =
            Some(self.next_request.map_or((at, Duration::ZERO), |(earlier, pause)| (earlier.min(at), pause)));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_request.map(|(at, _)| at)
    }

    /// Whether new pairs must wait for a commit.
    pub(super) fn is_full(&self) -> bool {
        self.pairs >= PAIRS.1
    }

    /// Records a call that repeats lost additions of an ended epoch.
    pub(super) fn mark_repeating(&mut self, id: CallId) {
        self.repeating.insert(id);
    }

    pub(super) fn is_repeating(&self, id: CallId) -> bool {
        self.repeating.contains(&id)
    }

    /// Last generation known to be committed.
    pub(super) fn committed(&self) -> u32 {
        self.committed
    }

    /// Next call whose awaited commit has arrived.
    pub(super) fn next_committed_call(&mut self) -> Option<(CallId, Result<Output, CallError>)> {
        self.acked.pop_front()
    }

    /// Records that the call has no waiting caller any more.
    pub(super) fn cancel(&mut self, id: CallId) {
        self.calls
            .iter_mut()
            .filter(|call| call.waiting_caller == Some(id))
            .for_each(|call| call.waiting_caller = None);
    }

    /// Calls with a waiting caller.
    pub(super) fn drain(self) -> impl Iterator<Item = CallId> {
        self.calls.into_iter().filter_map(|call| call.waiting_caller).chain(self.acked.into_iter().map(|(id, _)| id))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.repeating.is_empty() && self.owed_notice == OwedNotice::Nothing
    }

    /// Notice to send now, if any; `idle`: there is no other call.
    pub(super) fn peek(&self, config: &ClientConfig, idle: bool) -> Option<Item> {
        let done = self.repeating.is_empty();
        let epoch = config.epoch;
        match self.owed_notice {
            OwedNotice::Settled if done => Some(Item::Settled { epoch, leaving: false }),
            OwedNotice::Leaving if done && idle && self.calls.is_empty() => {
                Some(Item::Settled { epoch, leaving: true })
            }
            _ => None,
        }
    }
}

impl KeyedCalls {
    /// Generation whose commit is to be requested now, if any.
    pub(in super::super) fn due_commit_request(&mut self, now: Instant, config: &ClientConfig) -> Option<u32> {
        let (at, pause) = self.unacked.next_request.filter(|(at, _)| *at <= now)?;
        self.unacked.next_request = None;
        let generation = self.unacked.calls.iter().filter_map(|call| call.uncommitted(self.unacked.committed)).max()?;
        self.unacked.requested = generation;
        let pause = (pause * 2).clamp(config.timing.rto_initial, config.timing.rto_max);
        self.unacked.next_request = Some((at.max(now) + pause, pause));
        Some(generation)
    }

    /// Handles the commit of generations up to this one.
    pub(in super::super) fn on_commit(&mut self, generation: u32) {
        self.unacked.mark_committed(generation);
    }

    /// Records that a frame with [`Item::Settled`] is sent.
    pub(in super::super) fn on_settled_sent(&mut self, config: &ClientConfig) {
        let leaving = self.unacked.owed_notice == OwedNotice::Leaving;
        let sent = OwedNotice::Sent { epoch: config.epoch, leaving };
        self.unacked.owed_notice = if self.unacked.closing && !leaving { OwedNotice::Leaving } else { sent };
    }

    /// Handles the answer to a notice.
    pub(in super::super) fn on_settled_answer(&mut self, item: Item) {
        if let Item::Settled { epoch, leaving } = item
            && self.unacked.owed_notice == (OwedNotice::Sent { epoch, leaving })
        {
            self.unacked.owed_notice = OwedNotice::Nothing;
        }
    }

    /// Packs the pairs in these lanes of a frame into new frames, and ends the old frame. Returns the number of pairs.
    pub(super) fn resend_pairs(&mut self, id: CallId, index: u32, lanes: u32, config: &ClientConfig) -> usize {
        let Some(mut call) = self.calls.remove(&id) else { return 0 };
        let frame = &mut call.frames[index as usize];
        frame.generation = None;
        if !std::mem::replace(&mut frame.done, true) {
            call.open -= 1;
        }
        let pairs = call.pairs_of(index as usize, lanes);
        if !pairs.is_empty() {
            self.pack(&mut call, &pairs, config);
            if !self.ready.contains(&id) {
                self.ready.push_front(id);
            }
        }
        self.calls.insert(id, call);
        pairs.len()
    }

    /// Applies a change of epoch. For frames in flight, the record says what was committed; for acknowledged frames,
    /// the generation. All other additions are repeated.
    pub(in super::super) fn renew(
        &mut self,
        now: Instant,
        renewal: &EpochChange,
        flows: &mut [Flow<Item>],
        config: &ClientConfig,
        stats: &mut ClientStats,
    ) {
        self.clock = now;
        self.key_cache.reset();
        self.repack_unsent(config);
        // Before any release, which must go to the server now.
        self.claim();
        for (number, flow) in flows.iter_mut().enumerate() {
            let in_flight: Vec<(u32, Item)> = flow.items().collect();
            for (seq, item) in in_flight {
                let Item::Keyed(id, index) = item else { continue };
                match self.calls.get(&id).map(|call| call.frames[index as usize].encoding) {
                    Some(PairEncoding::Mapped) => {}
                    Some(PairEncoding::Lock) => {
                        self.requeue_lost_lock(id, index);
                        flow.remove(seq);
                        self.finish_if_done(now, id, config);
                        continue;
                    }
                    _ => continue,
                }
                // A read in flight has no answer, even if the element has seen it.
                let reads = self.is_read(id);
                let applied =
                    renewal.applied.iter().filter(|_| !reads).find(|a| a.flow as usize == number && a.seq == seq);
                let lanes = applied.map_or(u32::MAX, |applied| applied.overflowed_lanes);
                let again = self.resend_pairs(id, index, lanes, config);
                if again > 0 && !reads {
                    // Another caller may have read the element's sum.
                    self.unacked.mark_repeating(id);
                }
                flow.remove(seq);
                self.finish_if_done(now, id, config);
            }
        }
        self.repeat_open(renewal, config, stats);
        self.repeat_finished(now, renewal, config, stats);
        let unacked = &mut self.unacked;
        (unacked.committed, unacked.next_request, unacked.requested) = (0, None, 0);
        unacked.owed_notice = OwedNotice::Settled;
    }

    /// Ends a lock frame in flight to an element whose epoch has ended. An acquisition is tried again at the server; a
    /// release is complete.
    fn requeue_lost_lock(&mut self, id: CallId, index: u32) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let (i, _) = call.lock_of(index as usize);
        call.frames[index as usize].done = true;
        call.open -= 1;
        if matches!(call.op, KeyedOp::Count { .. }) {
            call.requeue_locks(vec![i]);
        }
    }

    /// Repeats lost acknowledged frames of open calls.
    fn repeat_open(&mut self, renewal: &EpochChange, config: &ClientConfig, stats: &mut ClientStats) {
        let open: Vec<CallId> = self.calls.keys().copied().collect();
        for id in open {
            let frames = self.calls.get(&id).map_or(0, |call| call.frames.len());
            for index in 0..frames {
                let Some(frame) = self.calls.get_mut(&id).map(|call| &mut call.frames[index]) else { continue };
                let lost = frame.generation.take().is_some_and(|generation| generation > renewal.committed);
                if lost {
                    let lanes = !frame.overflowed_lanes;
                    stats.lanes_element -= self.resend_pairs(id, index as u32, lanes, config) as u64;
                    self.unacked.mark_repeating(id);
                }
            }
        }
    }

    /// Repeats lost frames of finished calls.
    fn repeat_finished(&mut self, now: Instant, renewal: &EpochChange, config: &ClientConfig, stats: &mut ClientStats) {
        self.unacked.pairs = 0;
        for mut call in std::mem::take(&mut self.unacked.calls) {
            let frames = call.frames.iter().enumerate();
            let gone = |generation| generation > renewal.committed || mutant::on(Mutant::RepeatCommitted);
            let lost = frames.filter(|(_, frame)| frame.generation.is_some_and(gone));
            let pairs = lost.flat_map(|(index, frame)| call.pairs_of(index, !frame.overflowed_lanes));
            let pairs: Vec<_> = pairs.map(|i| (call.keys[i as usize].clone(), call.values[i as usize])).collect();
            if pairs.is_empty() {
                self.unacked.acked.extend(call.waiting_caller.map(|id| (id, call.outcome())));
                continue;
            }
            stats.lanes_element -= pairs.len() as u64;
            self.own += 1;
            let id = call.waiting_caller.unwrap_or(CallId(OWN_CALLS | self.own));
            let mut again = KeyedCall::new(Operation::Add { pairs, modify: call.modify, get: false, ack: Ack::Server });
            (again.detached, again.error) = (call.waiting_caller.is_none(), call.error);
            self.unacked.repeating.insert(id);
            self.queue_call(now, id, again, config);
        }
    }

    /// Whether the caller is closing.
    pub(in super::super) fn is_closing(&self) -> bool {
        self.unacked.closing
    }

    /// Starts closing. The notice that nothing remains is sent without an element, too: there may be one by now of
    /// which this caller does not know.
    pub(in super::super) fn close(&mut self, now: Instant) {
        let unacked = &mut self.unacked;
        unacked.closing = true;
        if !unacked.calls.is_empty() {
            unacked.next_request = Some((now, Duration::ZERO));
        }
        if unacked.used && unacked.owed_notice != OwedNotice::Settled && !mutant::on(Mutant::LeavesNotSent) {
            unacked.owed_notice = OwedNotice::Leaving;
        }
    }
}
