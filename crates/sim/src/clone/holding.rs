//! Hedges that elements hold: the plan, the holder of an element, and the checks of what it sends.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_endpoint::clone::{CloneAnswer, CloneOptions, Hedge, HedgeAfter};
use pathcall_program::{CallName, FrameAction, HedgeCounters, HeldHedges, HeldHedgesSize, SwitchProgram};
use pathcall_wire::clone::PART;
use pathcall_wire::{CloneFlags, CloneFrame, Flags, FrameKind, Instant};

use super::element::{Element, OutgoingFrame};
use super::plan::{CloneCallPlan, ClonePlan};
use super::violation::CloneViolation;
use super::world::{CloneEvent, CloneNode, CloneWorld, GAID};
use crate::random::{Chance, Random};

/// Calls that a holder knows: all of a plan.
const CALLS: usize = 1 << 12;

/// Hedges that elements hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldPlan {
    /// Copies that fit; 0: the elements hold none, although callers believe so.
    pub copies: usize,
}

impl HoldPlan {
    /// Size of the memory for hedges; `None`: the elements hold none.
    pub(super) fn size(self) -> Option<HeldHedgesSize> {
        (self.copies > 0).then_some(HeldHedgesSize { copies: self.copies, calls: CALLS })
    }
}

/// Lets the elements of some plans hold hedges, and makes more calls of these plans hedged.
pub(super) fn with_holding(mut plan: ClonePlan) -> ClonePlan {
    let mut random = Random::new(plan.seed ^ 0x686f_6c64_6865_6467);
    if !matches!(plan.seed % 8, 6 | 7) && plan.seed % 16 != 13 || plan.slow.is_some() || plan.slow_way.is_some() {
        return plan;
    }
    let copies = if plan.is_calm() { random.pick(&[0, 256, 256]) } else { random.pick(&[0, 1, 4, 256, 256]) };
    plan.holding = Some(HoldPlan { copies });
    let calm = plan.is_calm();
    if calm && random.percent(70) {
        plan.servers.iter_mut().for_each(|server| server.fails = Chance(0));
    }
    for call in plan.calls.iter_mut().filter(|call| !call.options.automatic) {
        let after = HedgeAfter::Delay(Duration::from_micros(random.range(1..=50) * 100));
        if random.percent(60) {
            call.options.hedge = Some(Hedge { after, max_attempts: if random.percent(80) { 2 } else { 3 } });
        }
        if let Some(hedge) = &mut call.options.hedge {
            call.options.through_element = true;
            if calm {
                (hedge.max_attempts, call.request) = (2, call.request.min(PART / 2));
                hedge.after = if hedge.after == HedgeAfter::Delay(Duration::ZERO) { after } else { hedge.after };
            }
        }
    }
    plan
}

/// Calls of which an element may hold hedges, as it has seen them.
pub(super) struct ElementHolder {
    calls: BTreeMap<CallName, SeenCall>,
    /// Next wake-up.
    pub(super) wake: Option<Instant>,
}

/// Call as an element has seen it since its start.
#[derive(Debug, Clone, Copy)]
struct SeenCall {
    /// Server that got the first request, and the time at which a hedge may leave.
    first: u32,
    due: Instant,
    is_answered: bool,
    /// Hedges that were sent.
    sent: u32,
}

impl ElementHolder {
    pub(super) fn new(plan: &ClonePlan) -> Option<Self> {
        plan.holding.and_then(HoldPlan::size)?;
        Some(Self { calls: BTreeMap::new(), wake: None })
    }

    /// Records a frame that the element has forwarded.
    pub(super) fn record(&mut self, now: Instant, action: FrameAction, frame: &[u8]) {
        let FrameAction::Forward(to) = action else { return };
        let Ok(frame) = CloneFrame::new_checked(frame) else { return };
        let (base, head) = (frame.base(), frame.head());
        let name = |caller, incarnation| CallName { gaid: base.gaid(), caller, incarnation, seq: base.seq() };
        if base.has(Flags::NOT_ADMITTED) || base.has(Flags::CROSS) {
            return;
        }
        match frame.kind() {
            FrameKind::CloneRequest if base.round() != 0 && head.parts() == 1 => {
                let due = now + Duration::from_micros(base.round().into());
                let seen = SeenCall { first: to, due, is_answered: false, sent: 0 };
                self.calls.entry(name(base.src(), base.src_incarnation())).or_insert(seen);
            }
            FrameKind::CloneReply if head.flags() & CloneFlags::FAILED == 0 => {
                if let Some(seen) = self.calls.get_mut(&name(base.dst(), base.dst_incarnation())) {
                    seen.is_answered = true;
                }
            }
            _ => {}
        }
    }
}

/// Checks a hedge that an element sends to `to`.
fn check_hedge(
    now: Instant,
    calls: &mut BTreeMap<CallName, SeenCall>,
    states: &BTreeMap<u32, u16>,
    bytes: &[u8],
    to: u32,
) -> Result<(), CloneViolation> {
    let Ok(frame) = CloneFrame::new_checked(bytes) else { return Err(CloneViolation::HedgeUnasked(to)) };
    let base = frame.base();
    let (caller, incarnation, seq) = (base.src(), base.src_incarnation(), base.seq());
    let Some(seen) = calls.get_mut(&CallName { gaid: GAID, caller, incarnation, seq }) else {
        return Err(CloneViolation::HedgeUnasked(seq));
    };
    seen.sent += 1;
    if seen.is_answered {
        return Err(CloneViolation::HedgeAnswered(seq));
    }
    if seen.sent > 1 {
        return Err(CloneViolation::HedgeTwice(seq));
    }
    if to == seen.first {
        return Err(CloneViolation::HedgeToFirst(seq));
    }
    if now < seen.due {
        return Err(CloneViolation::HedgeEarly(seq));
    }
    let least = states.iter().filter(|(server, _)| **server != seen.first).map(|(_, state)| *state).min();
    if states.get(&to).copied() > least { Err(CloneViolation::HedgeToBusy(seq)) } else { Ok(()) }
}

impl Element {
    /// Sends the hedges that are due, and checks each.
    fn send_hedges(&mut self, now: Instant) -> Result<Vec<OutgoingFrame>, CloneViolation> {
        let Self { holder: Some(holder), switch, .. } = self else { return Ok(Vec::new()) };
        let states = switch.with_program(server_states);
        let (mut leaving, mut checked) = (Vec::new(), Ok(()));
        switch.send_hedges(now, |to, bytes| {
            if checked.is_ok() {
                checked = check_hedge(now, &mut holder.calls, &states, bytes, to);
            }
            leaving.push(OutgoingFrame { to, bytes: bytes.to_vec(), cloned: true });
        });
        checked.map(|()| leaving)
    }

    /// Time of the next hedge.
    fn next_hedge(&self) -> Option<Instant> {
        self.switch.with_program(|program| program.hedges().and_then(HeldHedges::deadline))
    }

    /// Counters of hedges.
    fn hedge_counters(&self) -> HedgeCounters {
        self.switch.with_program(|program| program.hedges().map(|hedges| hedges.counters_of(GAID)).unwrap_or_default())
    }
}

/// State of each server that the element can reach, by endpoint.
fn server_states(program: &SwitchProgram) -> BTreeMap<u32, u16> {
    let tables = program.tables();
    let pool = tables.pools().find(|(pool, ..)| pool.gaid == GAID).map(|(pool, ..)| &pool.servers[..]);
    let loads = tables.loads(GAID).map_or(&[][..], |(loads, _)| loads);
    let states = pool.unwrap_or_default().iter().zip(loads).map(|(server, report)| (*server, report.state));
    states.filter(|(server, _)| tables.endpoint(*server).is_some()).collect()
}

impl CloneWorld<'_> {
    /// Sends the hedges that are due at an element, and sets its timer.
    pub(super) fn send_hedges(&mut self, index: usize) -> Result<(), CloneViolation> {
        let now = self.time.now;
        for frame in self.elements[index].send_hedges(now)? {
            self.counts.hedges += 1;
            self.forward_frame(index, &frame)?;
        }
        let next = self.elements[index].next_hedge();
        if let Some(holder) = &mut self.elements[index].holder {
            self.time.wake_at(next, &mut holder.wake, CloneEvent::Wake(CloneNode::Element(index)));
        }
        Ok(())
    }

    /// Checks the counts of hedges after a run without faults: callers report no more than were sent, and send none
    /// themselves if the elements have held all.
    pub(super) fn check_hedges(&self) -> Result<(), CloneViolation> {
        if self.plan.holding.is_none() || !self.plan.is_calm() {
            return Ok(());
        }
        let counters = self.elements.iter().map(Element::hedge_counters);
        let (sent, full) =
            counters.fold((0, 0), |(sent, full), counters| (sent + counters.hedges_sent, full + counters.hedges_full));
        let stats = self.callers.iter().map(|(caller, _)| caller.stats());
        let reported: u64 = stats.clone().map(|stats| stats.hedged_by_element).sum();
        if reported > sent {
            return Err(CloneViolation::HedgesReported { reported, sent });
        }
        let own: u64 = stats.map(|stats| stats.hedged).sum();
        let must_hold = self.plan.holding.is_some_and(|holding| holding.copies > 0)
            && full == 0
            && self.pool.servers.len() > 1
            && !self.plan.calls.iter().any(|call| call.options.automatic)
            && self.callers.iter().all(|(caller, _)| caller.stats().silent == 0);
        if must_hold && own > 0 { Err(CloneViolation::HedgedToo(own)) } else { Ok(()) }
    }

    /// Checks that a call without faults that took long was hedged: by the element, or by the caller if the element
    /// holds no hedges.
    pub(super) fn check_hedged(&self, call: usize, answer: &CloneAnswer) -> Result<(), CloneViolation> {
        let CloneCallPlan { options, caller, .. } = &self.plan.calls[call];
        let CloneOptions { hedge: Some(Hedge { after: HedgeAfter::Delay(delay), max_attempts }), .. } = *options else {
            return Ok(());
        };
        let must = self.plan.holding.is_some()
            && self.plan.is_calm()
            && options.idempotent
            && !options.automatic
            && max_attempts > 1
            && self.pool.servers.len() > 1
            && self.checker.is_generous(*caller)
            && self.plan.servers.iter().all(|server| server.fails == Chance(0))
            && self.callers[*caller].0.stats().silent == 0;
        // The report that the element holds none takes up to six hops from the request on.
        let late = answer.latency > delay + self.plan.delay.1 * 6 + Duration::from_micros(1);
        if must && late && answer.requests < 2 { Err(CloneViolation::NotHedged(call)) } else { Ok(()) }
    }
}
