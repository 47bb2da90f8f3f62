//! Choice between the two paths of a keyed addition: frames, or one direct gRPC call.
//!
//! Frames are faster if they are few, or if an element answers them on the way; a direct call is faster if the message
//! is long. Where the limit is depends on hosts and network, so the channel measures it: by method and by size of the
//! message, it compares the median times of both paths. The path with the lower median takes the calls; the other one
//! gets a few calls at growing intervals, so that a change is noticed.
//!
//! On one host, the parties share the processors. There the time of a call does not show how much it delays the others:
//! frames of a long message are handled by two processors at once, and take more of their time. So a path is left
//! only for one that takes half the time.
//!
//! ```text
//! start: frames with an element or up to 256 values, else direct ─► 16 calls ─► 8 calls of the other path ─► compare
//!    compare ─► the other one clearly faster, twice in a row: change, 128 calls ──────┐
//!            ─► the same, for the first time: 16 calls ───────────────────────────────┤
//!            ─► else: twice as many calls as before, up to 8192 ──────────────────────┴─► 8 calls of the other path ─► …
//! ```

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use pathcall_proto::manifest::{Kind, MapPath, Method};
use pathcall_wire::KEYED_LANES;

use crate::request::DIRECT_BYTES_MAX;

/// Number of times per path whose median counts; odd.
const TIMES: usize = 15;
/// Calls of the other path before a comparison.
const TRIAL_CALLS: u64 = 8;
/// Calls before the first trial.
const FIRST_INTERVAL: u64 = 16;
/// Calls between trials: after a change, and at most.
const INTERVAL: RangeInclusive<u64> = 128..=8192;
/// Number of values up to which calls without an element begin as frames: eight frames take less time of the processors
/// than one gRPC call.
const FRAMES_UP_TO: usize = 8 * KEYED_LANES;
/// Number of size classes, one for each power of two up to [`DIRECT_BYTES_MAX`].
const CLASSES: usize = DIRECT_BYTES_MAX.ilog2() as usize + 1;

/// Maximum size of the message of a query that is read in the element: the keys of some tens of frames.
const READ_BYTES_MAX: usize = 1 << 16;

/// Path of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallPath {
    /// Frames to the element or to the server.
    Frames,
    /// One gRPC call.
    Direct,
}

impl CallPath {
    fn other(self) -> Self {
        match self {
            Self::Frames => Self::Direct,
            Self::Direct => Self::Frames,
        }
    }
}

/// Location of the server, as far as it matters for the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerLocation {
    /// On this host, without an element.
    ThisHost,
    /// On another host, without an element.
    OtherHost,
    /// Behind an element.
    BehindElement,
}

impl ServerLocation {
    /// Whether the other path is so much faster that the chosen one is left.
    fn is_clearly_faster(self, other: Duration, chosen: Duration) -> bool {
        match self {
            Self::ThisHost => other * 2 <= chosen,
            Self::OtherHost | Self::BehindElement => other * 10 < chosen * 9,
        }
    }
}

/// Path of one call, and the class in which its time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathChoice {
    pub(super) path: CallPath,
    /// `None` if there was no choice.
    class: Option<usize>,
}

impl PathChoice {
    /// Path of a call without a choice.
    pub(super) const fn only(path: CallPath) -> Self {
        Self { path, class: None }
    }

    pub(super) fn is_measured(self) -> bool {
        self.class.is_some()
    }

    /// Path of a call of this method whose message has `len` bytes, if one only is possible. `reads`: an element has
    /// registers that callers may read.
    pub(super) fn without_measurement(
        method: &Method,
        pinned: MapPath,
        len: usize,
        (has_id, reads): (bool, bool),
    ) -> Option<Self> {
        let by_element = matches!(pinned, MapPath::Automatic | MapPath::Element);
        let path = match method.kind {
            Kind::Query if reads && by_element && method.request.is_some() && len <= READ_BYTES_MAX => CallPath::Frames,
            Kind::Query => CallPath::Direct,
            // The layer modifies the values; the channel does so if the message is too long.
            Kind::Modify if len <= DIRECT_BYTES_MAX => CallPath::Direct,
            Kind::Add { .. } if !has_id && len <= DIRECT_BYTES_MAX => match pinned {
                MapPath::Automatic => return None,
                MapPath::Direct => CallPath::Direct,
                MapPath::Element | MapPath::Software => CallPath::Frames,
            },
            _ => CallPath::Frames,
        };
        Some(Self::only(path))
    }
}

/// Measured times of a method, and the choice that follows from them.
#[derive(Debug)]
pub(super) struct MeasuredPaths {
    classes: Box<[Option<SizeClass>; CLASSES]>,
}

/// Calls whose messages have a similar size.
#[derive(Debug, Clone)]
struct SizeClass {
    chosen: CallPath,
    frames: Times,
    direct: Times,
    /// Calls until the next trial.
    until_trial: u64,
    /// Calls of the trial that have not been chosen yet.
    trial_left: u64,
    /// Calls between the last trial and the next one.
    interval: u64,
    /// Whether the other path was faster in the last trial: one trial may have met a busy moment.
    is_doubted: bool,
}

/// Latest times of one path.
#[derive(Debug, Clone, Default)]
struct Times {
    latest: [Duration; TIMES],
    calls: u64,
}

impl Times {
    fn record(&mut self, took: Duration) {
        self.latest[(self.calls % TIMES as u64) as usize] = took;
        self.calls += 1;
    }

    fn median(&self) -> Option<Duration> {
        let count = usize::try_from(self.calls).map_or(TIMES, |calls| calls.min(TIMES));
        let mut sorted = self.latest;
        sorted[..count].sort_unstable();
        sorted[..count].get(count / 2).copied()
    }
}

impl MeasuredPaths {
    pub(super) fn new() -> Self {
        Self { classes: Box::new([const { None }; CLASSES]) }
    }

    /// Path of a call whose message has `len` bytes. `values`: counts the values of its typed field, for the first call
    /// of a size.
    pub(super) fn choose(&mut self, len: usize, server: ServerLocation, values: impl FnOnce() -> usize) -> PathChoice {
        let index = class_of(len);
        let class = self.classes[index].get_or_insert_with(|| SizeClass::new(values(), server));
        PathChoice { path: class.choose(server), class: Some(index) }
    }

    /// Records the time of a successful call.
    pub(super) fn record(&mut self, choice: PathChoice, took: Duration) {
        let class = choice.class.and_then(|index| self.classes[index].as_mut());
        class.into_iter().for_each(|class| class.record(choice.path, took));
    }

    /// Report on each size class with calls, for the method with this path.
    pub(super) fn report(&self, method: &'static str) -> impl Iterator<Item = PathStats> {
        self.classes.iter().enumerate().filter_map(move |(index, class)| {
            let class = class.as_ref()?;
            let time = |times: &Times| PathTime { calls: times.calls, median: times.median() };
            Some(PathStats {
                method,
                bytes: 1 << index..=(2 << index) - 1,
                direct: class.chosen == CallPath::Direct,
                by_frames: time(&class.frames),
                by_direct_calls: time(&class.direct),
            })
        })
    }
}

fn class_of(len: usize) -> usize {
    (len.max(1).ilog2() as usize).min(CLASSES - 1)
}

impl SizeClass {
    fn new(values: usize, server: ServerLocation) -> Self {
        let by_frames = server == ServerLocation::BehindElement || values <= FRAMES_UP_TO;
        let chosen = if by_frames { CallPath::Frames } else { CallPath::Direct };
        let (frames, direct) = Default::default();
        Self {
            chosen,
            frames,
            direct,
            until_trial: FIRST_INTERVAL,
            trial_left: 0,
            interval: INTERVAL.start() / 2,
            is_doubted: false,
        }
    }

    fn times(&mut self, path: CallPath) -> &mut Times {
        match path {
            CallPath::Frames => &mut self.frames,
            CallPath::Direct => &mut self.direct,
        }
    }

    fn choose(&mut self, server: ServerLocation) -> CallPath {
        if self.trial_left > 0 {
            self.trial_left -= 1;
            return self.chosen.other();
        }
        if self.until_trial == 0 {
            self.compare(server);
        }
        self.until_trial -= 1;
        if self.until_trial == 0 {
            self.trial_left = TRIAL_CALLS;
        }
        self.chosen
    }

    fn record(&mut self, path: CallPath, took: Duration) {
        self.times(path).record(took);
    }

    /// Compares the paths after a trial. The chosen path stays unless the other one is clearly faster.
    fn compare(&mut self, server: ServerLocation) {
        let other = self.chosen.other();
        let (chosen_median, other_median) = (self.times(self.chosen).median(), self.times(other).median());
        let is_faster = match (chosen_median, other_median) {
            (Some(chosen), Some(other)) => server.is_clearly_faster(other, chosen),
            // No call of the chosen path has succeeded.
            (None, Some(_)) => true,
            (_, None) => false,
        };
        self.until_trial = match (is_faster, self.is_doubted) {
            (true, false) => FIRST_INTERVAL,
            (true, true) => {
                self.chosen = other;
                self.interval = *INTERVAL.start();
                self.interval
            }
            (false, _) => {
                self.interval = (self.interval * 2).min(*INTERVAL.end());
                self.interval
            }
        };
        self.is_doubted = is_faster && !self.is_doubted;
    }
}

/// Measured times of the two paths of a method, for messages of similar size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathStats {
    /// Path of the method: `/pkg.Service/Method`.
    pub method: &'static str,
    /// Sizes of the messages, bytes.
    pub bytes: RangeInclusive<usize>,
    /// Whether most calls are direct: one gRPC call each. If not, they are frames.
    pub direct: bool,
    /// Calls as frames.
    pub by_frames: PathTime,
    /// Direct calls.
    pub by_direct_calls: PathTime,
}

/// Measured time of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathTime {
    /// Successful calls.
    pub calls: u64,
    /// Median time of the last calls, at most 15; `None` without calls.
    pub median: Option<Duration>,
}

/// One line: `/mr.MapReduce/ReduceByKey, 1024 to 2047 bytes: direct calls; medians: direct calls 1.05 ms, frames 1.6 ms`.
impl fmt::Display for PathStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, bytes, .. } = self;
        let time = |time: PathTime| time.median.map_or("not measured".to_owned(), |median| format!("{median:.2?}"));
        let chosen = if self.direct { "direct calls" } else { "frames" };
        let (direct, frames) = (time(self.by_direct_calls), time(self.by_frames));
        write!(f, "{method}, {} to {} bytes: {chosen}; ", bytes.start(), bytes.end())?;
        write!(f, "medians: direct calls {direct}, frames {frames}")
    }
}

#[cfg(test)]
mod tests;
