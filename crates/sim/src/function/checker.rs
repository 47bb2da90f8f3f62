//! Invariant checks of function: the split function must behave as the whole function would.
//!
//! Checks per flow, in the order of sending: *count* returns the number of the last processed packet (one that was
//! lost later may have been processed or not); a value belongs to one flow until the flow ends or is idle; a next hop
//! is in the table of some server at some time between sending and leaving. If links reorder packets, each number is
//! returned at most once, and values stay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_wire::Instant;

use super::plan::{ENTRY_IDLE, FunctionPlan};
use super::program::{Packet, PacketKind};
use super::server::{MirroredTables, SimulatedServer};
use crate::random::Chance;

/// Time after a death or a restart in which flows are not checked.
const SETTLE_TIME: Duration = Duration::from_millis(60);
/// Time in which the old next hop of a route may still be used, by packets in transit.
const HISTORY: Duration = Duration::from_millis(700);

/// Violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FunctionViolation {
    /// A packet left after a later packet of its flow.
    #[error("{kind:?} {key}: packet {sequence} left after {after}")]
    Order {
        /// Kind of the packet.
        kind: PacketKind,
        /// Key of the flow.
        key: u32,
        /// Sequence number of the packet.
        sequence: u32,
        /// Sequence number of the later packet.
        after: u32,
    },
    /// *Count* returned a number that is not the previous one.
    #[error("count {key}: packet {sequence} got number {got}, expected {expected} or that of a packet lost since")]
    Before {
        /// Key of the flow.
        key: u32,
        /// Sequence number of the packet.
        sequence: u32,
        /// Number of the last packet that left.
        expected: u32,
        /// Number that was returned.
        got: u32,
    },
    /// The value of a flow changed while it was used.
    #[error("out {key}: packet {sequence} has value {got}, the flow had {expected}")]
    Value {
        /// Key of the flow.
        key: u32,
        /// Sequence number of the packet.
        sequence: u32,
        /// Value before.
        expected: u32,
        /// Value now.
        got: u32,
    },
    /// A new flow has the value of the old flow with the same key.
    #[error("out {key}: packet {sequence} has value {value}, which belongs to an ended flow")]
    Stale {
        /// Key of the flow.
        key: u32,
        /// Sequence number of the packet.
        sequence: u32,
        /// Value of the flow.
        value: u32,
    },
    /// Two flows have the same value.
    #[error("out {key} and {other} have value {value}")]
    Shared {
        /// Key of one flow.
        key: u32,
        /// Key of the other flow.
        other: u32,
        /// Common value.
        value: u32,
    },
    /// An answer went to the wrong flow.
    #[error("back {value}: went to flow {got}, expected {expected}")]
    Back {
        /// Value that the answer was sent to.
        value: u32,
        /// Flow that owns the value.
        expected: u32,
        /// Flow that received the answer.
        got: u32,
    },
    /// A packet was sent to a next hop that is in no server's table.
    #[error("route {key:#x}: next hop {got}, expected one of {expected:?}")]
    Hop {
        /// Key of the packet.
        key: u32,
        /// Next hops in the servers' tables.
        expected: Vec<u32>,
        /// Next hop that was used.
        got: u32,
    },
    /// Packets were lost although no fault was injected.
    #[error("{0} packets were lost although no fault was injected")]
    Lost(u64),
    /// The element refused an entry.
    #[error("the element has no room for entry {0}")]
    Refused(u32),
    /// State is left at the end of the run.
    #[error("state is left: {placed} entries in the element, or flows at servers")]
    NotIdle {
        /// Number of entries in the element.
        placed: usize,
    },
    /// The function sent bytes that are no packet.
    #[error("the function sent bytes that are no packet")]
    Garbled,
    /// The run does not end.
    #[error("the run did not end within {0} events")]
    Endless(u64),
    /// The code panicked.
    #[error("panic: {0}")]
    Panic(String),
}

#[derive(Debug, Default)]
struct Flow {
    /// Packets in the function: time, sequence number, whether the packet ends the flow.
    in_function: VecDeque<(Instant, u32, bool)>,
    last_out: u32,
    /// Sequence number of the last packet that was sent.
    sent: u32,
    /// Of *count*: numbers of lost packets since the last one that left; servers may have processed them.
    lost: BTreeSet<u32>,
    /// Of *count* with reordering: numbers that were returned since the flow began.
    told: BTreeSet<u32>,
    value: Option<u32>,
    ended: bool,
    /// Value of the flow before it ended.
    before: Option<u32>,
    sent_at: Instant,
    out_at: Instant,
    /// Start of the flow's current state; a later incident may have removed it.
    born: Instant,
    /// Whether the flow was idle so long that its entry may have expired.
    gap: bool,
}

/// Checker of a run.
#[derive(Debug)]
pub(super) struct FunctionChecker {
    flows: BTreeMap<(PacketKind, u32), Flow>,
    owners: BTreeMap<u32, u32>,
    /// Tables of each server, with the times of their changes.
    routes: Vec<Vec<(Instant, Option<MirroredTables>)>>,
    state_losses: Vec<Instant>,
    missing: u64,
    /// Whether links reorder packets of a flow.
    reorders: bool,
    /// Whether links repeat packets.
    repeats: bool,
    /// Time after which an unused entry may be removed.
    idle: Duration,
}

impl FunctionChecker {
    pub(super) fn new(plan: &FunctionPlan, servers: &[Option<SimulatedServer>]) -> Self {
        let tables =
            |server: &Option<SimulatedServer>| vec![(Instant(0), server.as_ref().map(|server| server.tables.clone()))];
        debug_assert_eq!(plan.servers, servers.len());
        Self {
            flows: BTreeMap::new(),
            owners: BTreeMap::new(),
            routes: servers.iter().map(tables).collect(),
            state_losses: Vec::new(),
            missing: 0,
            reorders: plan.reorder != Chance(0),
            repeats: plan.repeat != Chance(0),
            idle: plan.scale.drain_idle.unwrap_or(ENTRY_IDLE),
        }
    }

    /// Last value of a flow, as the network knows it.
    pub(super) fn value_of(&self, key: u32) -> Option<u32> {
        self.flows.get(&(PacketKind::Out, key)).and_then(|flow| flow.value)
    }

    /// Records a loss of state.
    pub(super) fn record_state_loss(&mut self, now: Instant) {
        self.state_losses.push(now);
    }

    /// Records the routes of a server.
    pub(super) fn routes(&mut self, now: Instant, server: u16, routes: Option<&BTreeMap<(u16, u32), u32>>) {
        let tables = routes.map(MirroredTables::of_routes);
        self.routes[usize::from(server)].push((now, tables));
    }

    pub(super) fn sent(&mut self, now: Instant, packet: &Packet) {
        let flow = self.flows.entry((packet.kind, packet.key)).or_default();
        // After a long gap the entry may have expired, and the next packets may get another one.
        flow.gap |= now.since(flow.sent_at.max(flow.out_at)) >= self.idle / 2;
        // Lost packets have not refreshed the entry.
        flow.gap |= now.since(flow.out_at) >= self.idle * 3 / 4;
        (flow.sent_at, flow.sent) = (now, packet.sequence);
        flow.in_function.push_back((now, packet.sequence, packet.last));
    }

    /// Checks a packet that leaves. `alone`: no server processed it.
    pub(super) fn out(&mut self, now: Instant, packet: &Packet, alone: bool) -> Result<(), FunctionViolation> {
        let Packet { kind, key, sequence, .. } = *packet;
        let (reorders, repeats) = (self.reorders, self.repeats);
        let flow = self.flows.entry((kind, key)).or_default();
        let sent = loop {
            if reorders && let Some(at) = flow.in_function.iter().position(|(_, other, _)| *other == sequence) {
                break flow.in_function.remove(at).map_or(now, |(at, ..)| at);
            }
            match flow.in_function.front().copied() {
                Some((at, first, _)) if first == sequence => {
                    flow.in_function.pop_front();
                    break at;
                }
                Some((_, first, last)) if first < sequence => {
                    // Links keep order, so the earlier packets cannot leave any more.
                    self.missing += 1;
                    flow.lost.insert(first);
                    flow.ended |= last;
                    flow.gap |= last;
                    flow.in_function.pop_front();
                }
                // A party that lost its state does not recognise a repeat.
                _ if repeats && self.state_losses.iter().any(|at| now.since(*at) < SETTLE_TIME) => return Ok(()),
                _ => return Err(FunctionViolation::Order { kind, key, sequence, after: flow.last_out }),
            }
        };
        flow.out_at = now;
        // State of the flow may have been lost since, once.
        let born = flow.born;
        let state_losses = self.state_losses.iter().any(|at| *at + SETTLE_TIME >= born);
        match kind {
            PacketKind::Count if reorders => self.chain(now, packet, state_losses)?,
            PacketKind::Count => self.count(now, packet, state_losses)?,
            PacketKind::Out => self.value(now, packet, state_losses, alone)?,
            PacketKind::Back => self.back(now, packet, state_losses)?,
            PacketKind::Route => self.hop(sent, now, packet)?,
        }
        let flow = self.flows.entry((kind, key)).or_default();
        flow.last_out = sequence;
        flow.lost.clear();
        // Packets still in the function may have got another entry.
        (flow.ended, flow.gap) = (packet.last, reorders && flow.gap && !flow.in_function.is_empty());
        Ok(())
    }

    fn count(&mut self, now: Instant, packet: &Packet, state_losses: bool) -> Result<(), FunctionViolation> {
        let Packet { key, sequence, a: got, .. } = *packet;
        let flow = self.flows.entry((PacketKind::Count, key)).or_default();
        // A new flow gets 0: after an end, and after a long gap.
        let anew = got == 0 && (flow.ended || flow.gap || flow.last_out == 0);
        let expected = if flow.ended && !flow.gap { 0 } else { flow.last_out };
        if anew {
            flow.born = now;
        } else if got != expected && !flow.lost.contains(&got) {
            if !state_losses {
                return Err(FunctionViolation::Before { key, sequence, expected, got });
            }
            flow.born = now;
        }
        Ok(())
    }

    /// Checks *count* with reordering: each number is returned once, 0 to the first packet.
    fn chain(&mut self, now: Instant, packet: &Packet, state_losses: bool) -> Result<(), FunctionViolation> {
        let Packet { key, sequence, a: got, .. } = *packet;
        let flow = self.flows.entry((PacketKind::Count, key)).or_default();
        let fresh = got == 0 && (flow.gap || flow.last_out == 0);
        if fresh || state_losses {
            flow.told.clear();
            flow.born = now;
        }
        // The previous number cannot be that of a later packet.
        let known = got <= flow.sent && got != sequence;
        if (!known || !flow.told.insert(got)) && !state_losses {
            return Err(FunctionViolation::Before { key, sequence, expected: flow.last_out, got });
        }
        Ok(())
    }

    fn value(
        &mut self,
        now: Instant,
        packet: &Packet,
        state_losses: bool,
        alone: bool,
    ) -> Result<(), FunctionViolation> {
        let Packet { key, sequence, a: got, .. } = *packet;
        if got == 0 {
            // No server had a free value.
            let flow = self.flows.entry((PacketKind::Out, key)).or_default();
            let had = flow.value.filter(|_| !flow.ended && !flow.gap && !state_losses);
            return match had {
                Some(expected) if !packet.last => Err(FunctionViolation::Value { key, sequence, expected, got }),
                _ => {
                    flow.value = None;
                    Ok(())
                }
            };
        }
        let settled = !state_losses;
        let flow = &self.flows[&(PacketKind::Out, key)];
        let (ended, gap, had, before) = (flow.ended, flow.gap, flow.value, flow.before);
        if let Some(expected) = had.filter(|had| *had != got && !ended && !gap && settled) {
            return Err(FunctionViolation::Value { key, sequence, expected, got });
        }
        // A server may assign the same value again; the element alone assigns none.
        if alone && ended && !gap && settled && (had == Some(got) || before == Some(got)) {
            return Err(FunctionViolation::Stale { key, sequence, value: got });
        }
        if let Some(other) = self.owners.insert(got, key).filter(|other| *other != key) {
            let other_flow = &self.flows[&(PacketKind::Out, other)];
            let state_losses = self.state_losses.iter().any(|at| *at + SETTLE_TIME >= other_flow.born);
            let live = !state_losses
                && other_flow.value == Some(got)
                && !other_flow.ended
                && now.since(other_flow.sent_at) < ENTRY_IDLE;
            if live && !other_flow.gap && settled && other_flow.in_function.is_empty() {
                return Err(FunctionViolation::Shared { key, other, value: got });
            }
        }
        let flow = self.flows.entry((PacketKind::Out, key)).or_default();
        if flow.value != Some(got) {
            (flow.before, flow.born) = (flow.value, now);
        }
        flow.value = Some(got);
        Ok(())
    }

    fn back(&mut self, now: Instant, packet: &Packet, state_losses: bool) -> Result<(), FunctionViolation> {
        let Packet { key: value, b: got, .. } = *packet;
        let Some(expected) = self.owners.get(&value).copied() else { return Ok(()) };
        let flow = &self.flows[&(PacketKind::Out, expected)];
        // Only for a mapping that was neither disturbed nor ended recently.
        let steady =
            flow.value == Some(value) && !flow.ended && !flow.gap && flow.in_function.is_empty() && !state_losses;
        let lately = now.since(flow.out_at) < ENTRY_IDLE / 2;
        let settled = !self.state_losses.iter().any(|at| *at + SETTLE_TIME >= flow.born);
        if got != expected && steady && lately && settled && flow.before.is_none() {
            return Err(FunctionViolation::Back { value, expected, got });
        }
        Ok(())
    }

    fn hop(&self, sent: Instant, now: Instant, packet: &Packet) -> Result<(), FunctionViolation> {
        let mut expected = BTreeSet::new();
        for server in &self.routes {
            for (at, (since, tables)) in server.iter().enumerate() {
                let until = server.get(at + 1).map_or(Instant(u64::MAX), |(next, _)| *next);
                // Entries of a dead server may still be in the element.
                let seen = *since <= now
                    && (until >= sent
                        || tables.is_some()
                            && server[at + 1..].iter().any(|(_, t)| t.is_none())
                            && sent.since(until) < HISTORY);
                if let (true, Some(tables)) = (seen, tables) {
                    expected.insert(tables.route(packet.key).map_or(0, |(_, _, hop)| hop));
                }
            }
        }
        if expected.contains(&packet.a) {
            return Ok(());
        }
        Err(FunctionViolation::Hop { key: packet.key, expected: expected.into_iter().collect(), got: packet.a })
    }

    /// Checks at the end of the run.
    pub(super) fn finish(&self, faulty: bool) -> Result<(), FunctionViolation> {
        let left: usize = self.flows.values().map(|flow| flow.in_function.len()).sum();
        let lost = self.missing + left as u64;
        if lost > 0 && !faulty { Err(FunctionViolation::Lost(lost)) } else { Ok(()) }
    }
}
