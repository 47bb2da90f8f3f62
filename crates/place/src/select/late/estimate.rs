//! Estimates of a path that are learnt from its answers, and the load of a device.

use std::fmt;

use pathcall_wire::Instant;

use crate::path::{Path, Paths};

/// Number of first answers that count equally; later ones count an eighth.
const FIRST: u32 = 8;
/// An estimate that is older than this many messages is stale: the next answer counts half.
const STALE: f64 = 16.0;
/// A path that seems slower than its model is probed after this many of its times without use.
const UNUSED: f64 = 256.0;
/// Limit on the factor by which other paths slow one down.
const OTHERS: f64 = 4.0;
/// Least share of a time within the hosts that is not a wait: the room of a device limits the wait, whatever is
/// estimated.
const LEAST: f64 = 0.4;
/// Room of a device, in round trips: the part above one finds out whether more messages at the same time pay.
const ROOM: f64 = 1.25;

/// Times of a path that its answers have shown: per message, since all messages of a path have the sizes of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedTimes {
    /// Time of a message within the hosts, without a queue, in nanoseconds.
    pub alone_ns: u64,
    /// Time between two messages of the busy path, in nanoseconds.
    pub gap_ns: u64,
    /// Time until a message would end that the path takes now, in nanoseconds.
    pub expected_ns: u64,
    /// Whether its device has room for a message.
    pub has_room: bool,
    /// Whether the running comparison of processor and accelerator uses it.
    pub is_tried: bool,
}

impl fmt::Display for LearnedTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alone_ns, gap_ns, expected_ns, has_room, is_tried } = self;
        let full = if *has_room { "" } else { ", full" };
        let spared = if *is_tried { "" } else { ", spared" };
        write!(f, "{expected_ns} ns (alone {alone_ns} ns, one each {gap_ns} ns{full}{spared})")
    }
}

/// Estimates of one path.
#[derive(Debug)]
pub(super) struct PathEstimate {
    /// Resource that limits the path.
    pub(super) device: u16,
    /// Work of a message, the same on all paths of a type: their least time in the model.
    pub(super) work: f64,
    /// Whether it is used, by [`Roles`](super::trial::Roles).
    pub(super) allowed: [bool; 3],
    /// Messages that the device computes at the same time, in the model.
    slots: f64,
    /// Gap between messages as a share of the time of one, in the model.
    gap_share: f64,
    /// Time of a message at other resources than the device, as a share, in the model.
    other_share: f64,
    model_ns: f64,
    alone_ns: f64,
    gap_ns: f64,
    /// Time outside the hosts.
    network_ns: f64,
    answers: u32,
    updated: Instant,
}

/// Load of a device.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceLoad {
    /// Work of the messages in flight, in nanoseconds.
    pub(super) load_ns: u64,
    in_flight: u32,
    /// Work of all answers so far, in nanoseconds.
    delivered_ns: u64,
    /// Time of the last answer, or of the first message of an idle device.
    last: Instant,
}

/// State of a device when a message was sent to it.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::select) struct LateAhead {
    gap_ns: u64,
    load_ns: u64,
    delivered_ns: u64,
    since: Instant,
    /// Whether other messages waited for a device.
    is_saturated: bool,
    /// Whether it probes a slow path.
    pub(super) is_probe: bool,
}

impl PathEstimate {
    pub(super) fn new(path: &Path, paths: &Paths, allowed: [bool; 3]) -> Self {
        let sum = |resource, ns: fn(&crate::Hop) -> u64| -> u64 {
            path.hops.iter().filter(|hop| hop.resource == resource).map(ns).fold(0, u64::saturating_add)
        };
        let narrowest =
            path.hops.iter().map(|hop| hop.resource).max_by_key(|resource| sum(*resource, |hop| hop.busy_ns));
        let resource = narrowest.expect("a path has hops");
        let (gap_ns, delay_ns) = (sum(resource, |hop| hop.busy_ns).max(1), sum(resource, |hop| hop.delay_ns));
        let of_kind = paths.of_kind(path.kind).iter().map(|path| path.traverse_ns).min();
        Self {
            device: resource.0,
            work: of_kind.unwrap_or(1).max(1) as f64,
            allowed,
            other_share: 1.0 - (delay_ns as f64 / path.traverse_ns.max(1) as f64).min(1.0),
            slots: (delay_ns as f64 / gap_ns as f64)
                .clamp(1.0, f64::from(paths.resources[usize::from(resource.0)].slots)),
            gap_share: gap_ns as f64 / path.traverse_ns.max(1) as f64,
            model_ns: path.traverse_ns as f64,
            alone_ns: path.traverse_ns as f64,
            gap_ns: gap_ns as f64,
            network_ns: 0.0,
            answers: 0,
            updated: Instant(0),
        }
    }

    /// Whether a message should find out if the path is still slower than its model.
    pub(super) fn probe_due(&mut self, now: Instant) -> bool {
        let unused_ns = now.since(self.updated).as_nanos() as f64;
        let due = self.alone_ns > self.model_ns && unused_ns > UNUSED * self.alone_ns;
        if due {
            self.updated = now;
        }
        due
    }

    pub(super) fn alone_ns(&self) -> u64 {
        self.alone_ns as u64
    }

    pub(super) fn gap_ns(&self) -> u64 {
        (self.gap_ns as u64).max(1)
    }

    /// Least busy time per work that the path may have without other paths; 0 until it is known.
    pub(super) fn least_cost(&self) -> f64 {
        if self.answers < FIRST { 0.0 } else { self.gap_ns / self.work / OTHERS }
    }

    /// Wait of a message behind others, in nanoseconds.
    pub(super) fn wait_ns(&self, load_ns: u64) -> u64 {
        self.wait_of(load_ns as f64, self.gap_ns) as u64
    }

    /// The same for a gap. Messages do not wait for as many others as the device has slots, nor for those that are
    /// elsewhere meanwhile.
    fn wait_of(&self, load_ns: f64, gap_ns: f64) -> f64 {
        let elsewhere_ns = self.alone_ns * self.other_share + self.network_ns;
        (load_ns - (self.slots - 1.0) * gap_ns - elsewhere_ns).max(0.0)
    }

    /// Load up to which the device takes another message, in nanoseconds.
    fn window_ns(&self) -> u64 {
        (ROOM * (self.alone_ns + self.network_ns).max(self.gap_ns)) as u64
    }

    /// Learns from an answer. `rate`: time in which the device has answered, as a multiple of the expected time; `None`
    /// for a message that was alone.
    pub(super) fn measured(
        &mut self,
        now: Instant,
        ahead: &LateAhead,
        rate: Option<f64>,
        intra_ns: Option<u64>,
        total_ns: u64,
    ) {
        let stale = now.since(self.updated).as_nanos() as f64 > STALE * self.alone_ns.max(self.gap_ns);
        let share = match self.answers {
            first if first < FIRST => 1.0 / f64::from(first + 1),
            _ if stale => 0.5,
            _ => 0.125,
        };
        let learn = |known: f64, sample: f64| match ahead.is_probe && sample < known {
            // Nothing makes a slow path fast for one message.
            true => sample.max(1.0),
            false => (known + (sample - known) * share).clamp(known / 2.0, known * 2.0).max(1.0),
        };
        // All as of the time of sending: the estimates may have changed since.
        let (load_ns, gap_ns) = (ahead.load_ns as f64, ahead.gap_ns as f64);
        let wait_ns = self.wait_of(load_ns, gap_ns);
        let alone = intra_ns.map(|ns| (ns as f64 - wait_ns).max(ns as f64 * LEAST).max(1.0));
        let gap = rate.map(|rate| gap_ns * rate);
        // Without enough messages, their rate is not the device's: then the model has the share of the gap.
        let is_full = ahead.is_saturated && self.wait_of(load_ns + gap_ns, gap_ns) > 0.0;
        let modelled = alone.filter(|_| !is_full || gap.is_none()).map(|alone| alone * self.gap_share);
        let sample = match (gap, modelled) {
            (Some(gap), Some(modelled)) => Some(gap.min(modelled)),
            (gap, modelled) => modelled.or(gap),
        };
        if let Some(sample) = sample {
            self.gap_ns = learn(self.gap_ns, sample);
        }
        if let Some(alone) = alone {
            self.alone_ns = learn(self.alone_ns, alone);
        }
        // A message that was not measured may have waited.
        let within_ns = intra_ns.or((ahead.load_ns == 0).then_some(self.alone_ns as u64));
        if let Some(within_ns) = within_ns {
            let outside_ns = total_ns.saturating_sub(within_ns) as f64;
            self.network_ns += (outside_ns - self.network_ns) * share;
        }
        self.answers = self.answers.saturating_add(1);
        self.updated = now;
    }
}

impl DeviceLoad {
    /// Whether the device takes another message: a slot is free, or the load is small for this path.
    pub(super) fn has_room(&self, path: &PathEstimate) -> bool {
        self.in_flight == 0 || f64::from(self.in_flight) < path.slots || self.load_ns <= path.window_ns()
    }

    pub(super) fn sent(&mut self, now: Instant, gap_ns: u64, is_saturated: bool) -> LateAhead {
        if self.in_flight == 0 {
            self.last = now;
        }
        let ahead = LateAhead {
            is_saturated,
            is_probe: false,
            gap_ns,
            load_ns: self.load_ns,
            delivered_ns: self.delivered_ns,
            since: self.last,
        };
        self.load_ns = self.load_ns.saturating_add(gap_ns);
        self.in_flight += 1;
        ahead
    }

    pub(super) fn ended(&mut self, ahead: &LateAhead) {
        self.load_ns = self.load_ns.saturating_sub(ahead.gap_ns);
        self.in_flight -= 1;
    }

    /// Records an answer; returns the time since the last answer before the message was sent, as a multiple of the
    /// expected time of all answers since. `None` if the message was alone.
    pub(super) fn rate(&mut self, now: Instant, ahead: &LateAhead) -> Option<f64> {
        self.delivered_ns = self.delivered_ns.saturating_add(ahead.gap_ns);
        self.last = now;
        let expected_ns = self.delivered_ns.saturating_sub(ahead.delivered_ns).max(1);
        (ahead.load_ns > 0).then(|| now.since(ahead.since).as_nanos() as f64 / expected_ns as f64)
    }
}
