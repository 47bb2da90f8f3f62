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
/// A device that has not been idle for this many times of its path is left idle once, so that a message shows its time
/// alone.
const NEVER_ALONE: f64 = 128.0;
/// Room of a device, in round trips of a path and in messages: what is above one trip finds out whether more messages at
/// the same time pay.
const ROOM: [f64; 2] = [2.0, 1.5];
/// Room if only one role is used: its messages have no other device, and should show all that it can do.
const ROOM_OF_ONE: [f64; 2] = [4.0, 8.0];

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
    pub(super) allowed: Box<[bool]>,
    model_ns: f64,
    alone_ns: f64,
    gap_ns: f64,
    /// Time outside the hosts.
    network_ns: f64,
    answers: u32,
    /// Answers of messages that were alone.
    alone_answers: u32,
    updated: Instant,
    /// Time of the last answer of a message that was alone.
    alone_at: Instant,
}

/// Load of a device.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceLoad {
    /// Work of the messages in flight, in nanoseconds.
    pub(super) load_ns: u64,
    in_flight: u32,
    /// Whether the next message waits until it is alone.
    pub(super) drains: bool,
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
    pub(super) fn new(path: &Path, paths: &Paths, allowed: Box<[bool]>) -> Self {
        let sum = |resource, ns: fn(&crate::Hop) -> u64| -> u64 {
            path.hops.iter().filter(|hop| hop.resource == resource).map(ns).fold(0, u64::saturating_add)
        };
        let narrowest =
            path.hops.iter().map(|hop| hop.resource).max_by_key(|resource| sum(*resource, |hop| hop.busy_ns));
        let resource = narrowest.expect("a path has hops");
        let gap_ns = sum(resource, |hop| hop.busy_ns).max(1);
        let of_kind = paths.of_kind(path.kind).iter().map(|path| path.traverse_ns).min();
        Self {
            device: resource.0,
            work: of_kind.unwrap_or(1).max(1) as f64,
            allowed,
            model_ns: path.traverse_ns as f64,
            alone_ns: path.traverse_ns as f64,
            gap_ns: gap_ns as f64,
            network_ns: 0.0,
            answers: 0,
            alone_answers: 0,
            updated: Instant(0),
            alone_at: Instant(0),
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

    /// The same for a gap. So many messages as one time alone has gaps are elsewhere than in the queue.
    fn wait_of(&self, load_ns: f64, gap_ns: f64) -> f64 {
        (load_ns - (self.alone_ns + self.network_ns - gap_ns).max(0.0)).max(0.0)
    }

    /// Whether no message has been alone for long. It is not asked for again as soon.
    pub(super) fn was_never_alone(&mut self, now: Instant) -> bool {
        let is_never = now.since(self.alone_at).as_nanos() as f64 > NEVER_ALONE * self.alone_ns;
        if is_never {
            self.alone_at = now;
        }
        is_never
    }

    /// Load up to which the device takes another message, in nanoseconds.
    fn window_ns(&self, is_only_role: bool) -> u64 {
        let [trips, messages] = if is_only_role { ROOM_OF_ONE } else { ROOM };
        (trips * (self.alone_ns + self.network_ns).max(self.gap_ns) + messages * self.gap_ns) as u64
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
        let learn = |known: f64, sample: f64, share: f64| match ahead.is_probe && sample < known {
            // Nothing makes a slow path fast for one message.
            true => sample.max(1.0),
            false => (known + (sample - known) * share).clamp(known / 2.0, known * 2.0).max(1.0),
        };
        let share = share_of(self.answers, now.since(self.updated).as_nanos() as f64, self.alone_ns.max(self.gap_ns));
        // As of the time of sending: the estimates may have changed since.
        let (load_ns, gap_ns) = (ahead.load_ns as f64, ahead.gap_ns as f64);
        let intra_ns = intra_ns.map(|ns| (ns as f64).max(1.0));
        let was_ns = self.alone_ns;
        let mut is_full = false;
        if let Some(rate) = rate {
            // Without enough messages, their rate is not the device's.
            is_full = self.wait_of(load_ns + gap_ns, gap_ns) > 0.0;
            if is_full {
                self.gap_ns = learn(self.gap_ns, gap_ns * rate, share);
            }
            // Other messages have not made it faster. A wait is known well only if the device is not busy all the time.
            if let Some(intra_ns) = intra_ns {
                let alone_ns = intra_ns - self.wait_of(load_ns, gap_ns);
                self.alone_ns = match alone_ns > was_ns && !ahead.is_saturated {
                    true => learn(was_ns, alone_ns, share),
                    false => was_ns.min(intra_ns),
                };
            }
        } else if let Some(intra_ns) = intra_ns {
            let since_ns = now.since(self.alone_at).as_nanos() as f64;
            self.alone_ns = learn(was_ns, intra_ns, share_of(self.alone_answers, since_ns, was_ns));
            self.alone_answers = self.alone_answers.saturating_add(1);
            self.alone_at = now;
        }
        if !is_full {
            self.gap_ns = (self.gap_ns * self.alone_ns / was_ns).max(1.0);
        }
        self.alone_ns = self.alone_ns.max(self.gap_ns);
        // A message that was not measured may have waited.
        let within_ns = intra_ns.or((ahead.load_ns == 0).then_some(self.alone_ns));
        if let Some(within_ns) = within_ns {
            let outside_ns = (total_ns as f64 - within_ns).max(0.0);
            self.network_ns += (outside_ns - self.network_ns) * share;
        }
        self.answers = self.answers.saturating_add(1);
        self.updated = now;
    }
}

/// Weight of an answer: the first ones count equally, and one after a long time counts half.
fn share_of(answers: u32, since_ns: f64, usual_ns: f64) -> f64 {
    match answers {
        first if first < FIRST => 1.0 / f64::from(first + 1),
        _ if since_ns > STALE * usual_ns => 0.5,
        _ => 0.125,
    }
}

impl DeviceLoad {
    /// Whether the device takes another message of this path.
    pub(super) fn has_room(&self, path: &PathEstimate, is_only_role: bool) -> bool {
        self.in_flight == 0 || self.load_ns <= path.window_ns(is_only_role) && !self.drains
    }

    pub(super) fn sent(&mut self, now: Instant, gap_ns: u64, is_saturated: bool) -> LateAhead {
        if self.in_flight == 0 {
            (self.last, self.drains) = (now, false);
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
