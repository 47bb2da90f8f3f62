//! Whether the split function did what the whole one would have done.
//!
//! Per flow, in the order sent: the number before is that of the last packet that the function worked on (what was lost
//! on the way may have been worked on or not); a value stays the flow's until it ends or is idle, and is nobody else's;
//! a next hop is what some server's table says between sending and leaving. Where links let packets overtake each other,
//! each number is told once all the same, and values stay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_wire::Instant;

use super::plan::{ENTRY_IDLE, Plan};
use super::program::{Kind, Packet};
use super::server::{Server, Tables};
use crate::random::Chance;

/// After a death or a restart nothing is asked of a flow for so long.
const SETTLES: Duration = Duration::from_millis(60);
/// A route's old next hop may be seen for so long after a server took the new one: packets on their way.
const HISTORY: Duration = Duration::from_millis(700);

/// What was wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A packet overtook another of its flow.
    #[error("{kind:?} {key}: packet {sequence} left after {after}")]
    Order {
        /// What it wanted.
        kind: Kind,
        /// Its flow.
        key: u32,
        /// Its number.
        sequence: u32,
        /// The later one that had left.
        after: u32,
    },
    /// A packet was told a number that was not before it.
    #[error("count {key}: packet {sequence} was told {got}, expected {expected} or what was lost after it")]
    Before {
        /// Its flow.
        key: u32,
        /// Its number.
        sequence: u32,
        /// The last that left.
        expected: u32,
        /// What it was told.
        got: u32,
    },
    /// A flow's value changed while it was used.
    #[error("out {key}: packet {sequence} has value {got}, the flow had {expected}")]
    Value {
        /// The flow.
        key: u32,
        /// Its packet.
        sequence: u32,
        /// Before.
        expected: u32,
        /// Now.
        got: u32,
    },
    /// A flow has the value that it had before it ended.
    #[error("out {key}: packet {sequence} has value {value}, though the flow that had it has ended")]
    Stale {
        /// The flow.
        key: u32,
        /// Its packet.
        sequence: u32,
        /// Its value.
        value: u32,
    },
    /// Two flows have one value.
    #[error("out {key} and {other} have value {value}")]
    Shared {
        /// One.
        key: u32,
        /// The other.
        other: u32,
        /// Their value.
        value: u32,
    },
    /// An answer went to the wrong flow.
    #[error("back {value}: went to flow {got}, expected {expected}")]
    Back {
        /// The value.
        value: u32,
        /// Whose it is.
        expected: u32,
        /// Whom it went to.
        got: u32,
    },
    /// A packet took a way that no server knew.
    #[error("route {key:#x}: next hop {got}, expected one of {expected:?}")]
    Hop {
        /// The key.
        key: u32,
        /// What servers' tables said.
        expected: Vec<u32>,
        /// The next hop.
        got: u32,
    },
    /// A packet is gone though nothing failed.
    #[error("{0} packets were lost, and nothing failed")]
    Lost(u64),
    /// The element did not take an entry.
    #[error("the element has no room for entry {0}")]
    Refused(u32),
    /// Something is left over.
    #[error("not at rest: {placed} entries are in the element, or servers have flows")]
    NotIdle {
        /// Entries in the element.
        placed: usize,
    },
    /// Bytes came out that are no packet.
    #[error("what came out is no packet")]
    Garbled,
    /// It never ends.
    #[error("not over after {0} events")]
    Endless(u64),
    /// The code panicked.
    #[error("panic: {0}")]
    Panic(String),
}

#[derive(Debug, Default)]
struct Flow {
    /// Sent and not seen leave: when, which.
    under_way: VecDeque<(Instant, u32, bool)>,
    last_out: u32,
    /// The last that was sent.
    sent: u32,
    /// Of a count: what may be told besides the last that left: lost ones, that servers may have worked on.
    lost: BTreeSet<u32>,
    /// Of a count, where packets overtake each other: what was told since it began.
    told: BTreeSet<u32>,
    value: Option<u32>,
    ended: bool,
    /// A value that this flow had before it ended.
    before: Option<u32>,
    sent_at: Instant,
    out_at: Instant,
    /// When what it has now began: an incident since may have cost it that.
    born: Instant,
    /// Time since packets came so seldom that its entry may have expired.
    gap: bool,
}

/// Watches packets come in and leave.
#[derive(Debug)]
pub(super) struct Judge {
    flows: BTreeMap<(Kind, u32), Flow>,
    owners: BTreeMap<u32, u32>,
    /// Routes of each server, since when.
    routes: Vec<Vec<(Instant, Option<Tables>)>>,
    shaken: Vec<Instant>,
    missing: u64,
    /// Whether packets of a flow may overtake each other.
    reorders: bool,
    /// Whether packets may come once more.
    repeats: bool,
    /// An entry that nothing used for so long may go.
    idle: Duration,
}

impl Judge {
    pub(super) fn new(plan: &Plan, servers: &[Option<Server>]) -> Self {
        let tables = |server: &Option<Server>| vec![(Instant(0), server.as_ref().map(|server| server.tables.clone()))];
        debug_assert_eq!(plan.servers, servers.len());
        Self {
            flows: BTreeMap::new(),
            owners: BTreeMap::new(),
            routes: servers.iter().map(tables).collect(),
            shaken: Vec::new(),
            missing: 0,
            reorders: plan.reorder != Chance(0),
            repeats: plan.repeat != Chance(0),
            idle: plan.scale.drain_idle.unwrap_or(ENTRY_IDLE),
        }
    }

    /// The value that a flow was last given, as the network knows it.
    pub(super) fn value_of(&self, key: u32) -> Option<u32> {
        self.flows.get(&(Kind::Out, key)).and_then(|flow| flow.value)
    }

    /// Something lost its state.
    pub(super) fn shaken(&mut self, now: Instant) {
        self.shaken.push(now);
    }

    /// A server's routes are these.
    pub(super) fn routes(&mut self, now: Instant, server: u16, routes: Option<&BTreeMap<(u16, u32), u32>>) {
        let tables = routes.map(Tables::of_routes);
        self.routes[usize::from(server)].push((now, tables));
    }

    pub(super) fn sent(&mut self, now: Instant, packet: &Packet) {
        let flow = self.flows.entry((packet.kind, packet.key)).or_default();
        // Its entry may have gone for want of packets: the next ones may find another.
        flow.gap |= now.since(flow.sent_at.max(flow.out_at)) >= self.idle / 2;
        // What was lost meanwhile has not kept it.
        flow.gap |= now.since(flow.out_at) >= self.idle * 3 / 4;
        (flow.sent_at, flow.sent) = (now, packet.sequence);
        flow.under_way.push_back((now, packet.sequence, packet.last));
    }

    /// A packet leaves; whether the element worked on it alone.
    pub(super) fn out(&mut self, now: Instant, packet: &Packet, alone: bool) -> Result<(), Wrong> {
        let Packet { kind, key, sequence, .. } = *packet;
        let (reorders, repeats) = (self.reorders, self.repeats);
        let flow = self.flows.entry((kind, key)).or_default();
        let sent = loop {
            if reorders && let Some(at) = flow.under_way.iter().position(|(_, other, _)| *other == sequence) {
                break flow.under_way.remove(at).map_or(now, |(at, ..)| at);
            }
            match flow.under_way.front().copied() {
                Some((at, first, _)) if first == sequence => {
                    flow.under_way.pop_front();
                    break at;
                }
                Some((_, first, last)) if first < sequence => {
                    // Nothing before it can leave any more: lost on its way.
                    self.missing += 1;
                    flow.lost.insert(first);
                    flow.ended |= last;
                    flow.gap |= last;
                    flow.under_way.pop_front();
                }
                // Who began anew between a packet and its repeat does not know it for one.
                _ if repeats && self.shaken.iter().any(|at| now.since(*at) < SETTLES) => return Ok(()),
                _ => return Err(Wrong::Order { kind, key, sequence, after: flow.last_out }),
            }
        };
        flow.out_at = now;
        // What it has may have been lost since, once.
        let born = flow.born;
        let shaken = self.shaken.iter().any(|at| *at + SETTLES >= born);
        match kind {
            Kind::Count if reorders => self.chain(now, packet, shaken)?,
            Kind::Count => self.count(now, packet, shaken)?,
            Kind::Out => self.value(now, packet, shaken, alone)?,
            Kind::Back => self.back(now, packet, shaken)?,
            Kind::Route => self.hop(sent, now, packet)?,
        }
        let flow = self.flows.entry((kind, key)).or_default();
        flow.last_out = sequence;
        flow.lost.clear();
        // Until all that were under way have left, they may have found another entry.
        (flow.ended, flow.gap) = (packet.last, reorders && flow.gap && !flow.under_way.is_empty());
        Ok(())
    }

    fn count(&mut self, now: Instant, packet: &Packet, shaken: bool) -> Result<(), Wrong> {
        let Packet { key, sequence, a: got, .. } = *packet;
        let flow = self.flows.entry((Kind::Count, key)).or_default();
        // A new flow is told 0: after an end, and after long silence.
        let anew = got == 0 && (flow.ended || flow.gap || flow.last_out == 0);
        let expected = if flow.ended && !flow.gap { 0 } else { flow.last_out };
        if anew {
            flow.born = now;
        } else if got != expected && !flow.lost.contains(&got) {
            if !shaken {
                return Err(Wrong::Before { key, sequence, expected, got });
            }
            flow.born = now;
        }
        Ok(())
    }

    /// Numbers of packets that overtook each other: each is told once, 0 to the first.
    fn chain(&mut self, now: Instant, packet: &Packet, shaken: bool) -> Result<(), Wrong> {
        let Packet { key, sequence, a: got, .. } = *packet;
        let flow = self.flows.entry((Kind::Count, key)).or_default();
        let fresh = got == 0 && (flow.gap || flow.last_out == 0);
        if fresh || shaken {
            flow.told.clear();
            flow.born = now;
        }
        // What was sent later can't have been before, and nobody makes numbers up.
        let known = got <= flow.sent && got != sequence;
        if (!known || !flow.told.insert(got)) && !shaken {
            return Err(Wrong::Before { key, sequence, expected: flow.last_out, got });
        }
        Ok(())
    }

    fn value(&mut self, now: Instant, packet: &Packet, shaken: bool, alone: bool) -> Result<(), Wrong> {
        let Packet { key, sequence, a: got, .. } = *packet;
        if got == 0 {
            // No server had a value to give.
            let flow = self.flows.entry((Kind::Out, key)).or_default();
            let had = flow.value.filter(|_| !flow.ended && !flow.gap && !shaken);
            return match had {
                Some(expected) if !packet.last => Err(Wrong::Value { key, sequence, expected, got }),
                _ => {
                    flow.value = None;
                    Ok(())
                }
            };
        }
        let settled = !shaken;
        let flow = &self.flows[&(Kind::Out, key)];
        let (ended, gap, had, before) = (flow.ended, flow.gap, flow.value, flow.before);
        if let Some(expected) = had.filter(|had| *had != got && !ended && !gap && settled) {
            return Err(Wrong::Value { key, sequence, expected, got });
        }
        // A server may give the same value again; the element alone gives none.
        if alone && ended && !gap && settled && (had == Some(got) || before == Some(got)) {
            return Err(Wrong::Stale { key, sequence, value: got });
        }
        if let Some(other) = self.owners.insert(got, key).filter(|other| *other != key) {
            let other_flow = &self.flows[&(Kind::Out, other)];
            let shaken = self.shaken.iter().any(|at| *at + SETTLES >= other_flow.born);
            let live = !shaken
                && other_flow.value == Some(got)
                && !other_flow.ended
                && now.since(other_flow.sent_at) < ENTRY_IDLE;
            if live && !other_flow.gap && settled && other_flow.under_way.is_empty() {
                return Err(Wrong::Shared { key, other, value: got });
            }
        }
        let flow = self.flows.entry((Kind::Out, key)).or_default();
        if flow.value != Some(got) {
            (flow.before, flow.born) = (flow.value, now);
        }
        flow.value = Some(got);
        Ok(())
    }

    fn back(&mut self, now: Instant, packet: &Packet, shaken: bool) -> Result<(), Wrong> {
        let Packet { key: value, b: got, .. } = *packet;
        let Some(expected) = self.owners.get(&value).copied() else { return Ok(()) };
        let flow = &self.flows[&(Kind::Out, expected)];
        // Only of a mapping that nothing has shaken or ended lately.
        let steady = flow.value == Some(value) && !flow.ended && !flow.gap && flow.under_way.is_empty() && !shaken;
        let lately = now.since(flow.out_at) < ENTRY_IDLE / 2;
        let settled = !self.shaken.iter().any(|at| *at + SETTLES >= flow.born);
        if got != expected && steady && lately && settled && flow.before.is_none() {
            return Err(Wrong::Back { value, expected, got });
        }
        Ok(())
    }

    fn hop(&self, sent: Instant, now: Instant, packet: &Packet) -> Result<(), Wrong> {
        let mut expected = BTreeSet::new();
        for server in &self.routes {
            for (at, (since, tables)) in server.iter().enumerate() {
                let until = server.get(at + 1).map_or(Instant(u64::MAX), |(next, _)| *next);
                // A dead server's entries may still be in the element.
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
        Err(Wrong::Hop { key: packet.key, expected: expected.into_iter().collect(), got: packet.a })
    }

    /// Everything is over.
    pub(super) fn finish(&self, faulty: bool) -> Result<(), Wrong> {
        let left: usize = self.flows.values().map(|flow| flow.under_way.len()).sum();
        let lost = self.missing + left as u64;
        if lost > 0 && !faulty { Err(Wrong::Lost(lost)) } else { Ok(()) }
    }
}
