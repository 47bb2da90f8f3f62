//! Reads of keys: in the element if the caller has the key's base, otherwise at the server.
//!
//! The server lends the base of a key for one generation, and for a limited time ([`READ_LEASE`]). The value is the sum
//! of base and register, if the element's answer names the same generation. Otherwise values have moved from the register
//! to the base meanwhile, and the caller asks for the base again. After a few attempts it asks for the whole value.

use pathcall_wire::pairs::{self, PairAnswer, PairStatus};
use pathcall_wire::policy::ReadMode;
use pathcall_wire::{FrameKind, Instant, MapFrame, Mutant, mutant};

use super::super::super::lease::{READ_LEASE, holder_lease};
use super::super::super::{CallError, Key};
use super::super::{CallId, ClientConfig, ClientStats};
use super::call::{Frame, KeyedCall, KeyedOp, NONE, PairEncoding};
use super::{AnswerEffect, KeyedCalls};

/// Number of attempts to read registers of one call before the server is asked for whole values.
const ATTEMPTS_MAX: u32 = 3;

/// Base of a key, lent by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LentBase {
    /// Value without the register of `generation`.
    value: i64,
    generation: u32,
    /// Time until which it may be used.
    until: Instant,
    /// Whether it is right until then. Otherwise it was right when it was lent.
    claimed: bool,
}

impl KeyedCalls {
    /// Base of a key for a read in the element, if the caller has one.
    pub(super) fn base_for(&self, key: &Key, read: ReadMode) -> Option<LentBase> {
        let base = self.key_cache.base(key)?;
        let lent = base.until > self.clock || mutant::on(Mutant::ReadAfterLease);
        let usable = lent && base.generation > self.unacked.committed();
        (usable && (base.claimed || read == ReadMode::Recent)).then_some(base)
    }

    /// Whether a call reads keys.
    pub(in super::super) fn is_read(&self, id: CallId) -> bool {
        self.calls.get(&id).is_some_and(|call| call.read().is_some())
    }

    /// Handles the answer to a frame of a read.
    pub(super) fn on_read_answer(
        &mut self,
        now: Instant,
        (id, index): (CallId, u32),
        sent: &Frame,
        frame: &MapFrame<&[u8]>,
        config: &ClientConfig,
        stats: &mut ClientStats,
    ) -> Option<AnswerEffect> {
        let answers: Vec<_> = match frame.kind() {
            FrameKind::MapPairsAck => pairs::answers(frame.payload()).collect(),
            _ => Vec::new(),
        };
        let is_whole = sent.encoding == PairEncoding::Whole;
        let is_complete = if is_whole { answers.len() == sent.members.len() } else { frame.keyed(0).is_some() };
        if !is_complete {
            return None;
        }
        let mut call = self.calls.remove(&id)?;
        let again = if is_whole {
            let until = sent.sent + holder_lease(READ_LEASE);
            self.take_values(&mut call, sent, &answers, frame, until, config)
        } else {
            self.unacked.mark_committed(frame.map().index());
            self.take_registers(now, &mut call, sent, frame, stats)
        };
        if !again.is_empty() {
            call.misses += u32::from(!is_whole);
            self.pack(&mut call, &again, config);
            if !self.ready.contains(&id) {
                self.ready.push_back(id);
            }
        }
        call.frames[index as usize].done = true;
        call.open -= 1;
        self.calls.insert(id, call);
        self.finish_if_done(now, id, config);
        Some(AnswerEffect::Done)
    }

    /// Takes values and bases of the server. Returns the pairs to read again.
    fn take_values(
        &mut self,
        call: &mut KeyedCall,
        sent: &Frame,
        answers: &[PairAnswer],
        frame: &MapFrame<&[u8]>,
        until: Instant,
        config: &ClientConfig,
    ) -> Vec<u32> {
        let current = frame.base().epoch() == config.epoch && frame.base().round() == self.key_cache.version();
        let claimed = call.read() == Some(ReadMode::Linearizable);
        let mut again = Vec::new();
        for (at, answer) in sent.members.clone().zip(answers) {
            let i = call.order[at];
            match answer.status {
                PairStatus::Mapped => {
                    let key = &call.keys[i as usize];
                    if current {
                        self.key_cache.learn(key, answer);
                        let base = LentBase { value: answer.value, generation: frame.map().index(), until, claimed };
                        self.key_cache.learn_base(key, base);
                    }
                    again.push(i);
                }
                PairStatus::Moved => {
                    let reason = "a caller ended before the server had its additions, and the element failed";
                    call.error = Some(CallError::DataLoss { reason });
                }
                _ => call.apply_answer(i, answer),
            }
        }
        again
    }

    /// Adds registers of the element to the bases. Returns the pairs to read again.
    fn take_registers(
        &mut self,
        now: Instant,
        call: &mut KeyedCall,
        sent: &Frame,
        frame: &MapFrame<&[u8]>,
        stats: &mut ClientStats,
    ) -> Vec<u32> {
        let generation = frame.base().round();
        let mut again = Vec::new();
        for (lane, at) in sent.members.clone().enumerate() {
            let i = call.order[at];
            let Some((_, register)) = frame.keyed(lane).filter(|_| i != NONE) else { continue };
            let base = call.bases.get(i as usize).copied().unwrap_or_default();
            let same = base.generation == generation || mutant::on(Mutant::ReadOfOtherGeneration);
            let lent = base.until > now || mutant::on(Mutant::ReadAfterLease);
            if frame.marked(lane) || !same || !lent {
                self.key_cache.forget_base(&call.keys[i as usize]);
                again.push(i);
                continue;
            }
            stats.lanes_element += 1;
            let value = if mutant::on(Mutant::ReadWithoutBase) { 0 } else { base.value };
            match value.checked_add(i64::from(register)) {
                Some(value) => call.set_result(i, value),
                None => call.error = Some(CallError::Overflow { position: i as usize }),
            }
        }
        again
    }
}

impl KeyedCall {
    /// What the answer must contain, if the call reads keys.
    pub(super) fn read(&self) -> Option<ReadMode> {
        match self.op {
            KeyedOp::Read(read) => Some(read),
            _ => None,
        }
    }

    /// Whether the server is asked for whole values: registers have changed too often.
    pub(super) fn wants_whole(&self, config: &ClientConfig) -> bool {
        self.misses >= ATTEMPTS_MAX || !config.element
    }

    /// Records the base that a read in the element is to complete.
    pub(super) fn set_base(&mut self, i: u32, base: LentBase) {
        self.bases.resize(self.keys.len(), LentBase::default());
        self.bases[i as usize] = base;
    }
}
