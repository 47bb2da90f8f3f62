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
//! start: frames with an element or up to 4 KiB, else direct ─► 16 calls ─► 8 calls of the other path ─► compare
//!    compare ─► the other one clearly faster, twice in a row: change, 128 calls ──────┐
//!            ─► the same, for the first time: 16 calls ───────────────────────────────┤
//!            ─► else: twice as many calls as before, up to 8192 ──────────────────────┴─► 8 calls of the other path ─► …
//! ```

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use pathcall_proto::manifest::{Kind, MapPath, Method};

use crate::request::DIRECT_BYTES_MAX;

/// Number of times per path whose median counts; odd.
const TIMES: usize = 15;
/// Calls of the other path before a comparison.
const TRIAL_CALLS: u64 = 8;
/// Calls before the first trial.
const FIRST_INTERVAL: u64 = 16;
/// Calls between trials: after a change, and at most.
const INTERVAL: RangeInclusive<u64> = 128..=8192;
/// Message size from which calls without an element begin as direct calls, bytes.
const DIRECT_FROM: usize = 4 << 10;
/// Number of size classes, one for each power of two up to [`DIRECT_BYTES_MAX`].
const CLASSES: usize = DIRECT_BYTES_MAX.ilog2() as usize + 1;

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

    /// Path of a call of this method whose message has `len` bytes, if one only is possible.
    pub(super) fn without_measurement(method: &Method, pinned: MapPath, len: usize, has_id: bool) -> Option<Self> {
        let path = match method.kind {
            Kind::Query => CallPath::Direct,
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

    /// Path of a call whose message has `len` bytes.
    pub(super) fn choose(&mut self, len: usize, server: ServerLocation) -> PathChoice {
        let index = class_of(len);
        let class = self.classes[index].get_or_insert_with(|| SizeClass::new(len, server));
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
    fn new(len: usize, server: ServerLocation) -> Self {
        let by_frames = server == ServerLocation::BehindElement || len < DIRECT_FROM;
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ADD: Method =
        Method { kind: Kind::Add { get: false, to: pathcall_proto::manifest::ForwardTarget::Src }, ..Method::DEFAULT };

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Makes calls one after the other that take these times; returns how many of them were direct.
    fn make_calls(paths: &mut MeasuredPaths, calls: u64, len: usize, frames: Duration, direct: Duration) -> u64 {
        let mut directs = 0;
        for _ in 0..calls {
            let choice = paths.choose(len, ServerLocation::OtherHost);
            let is_direct = choice.path == CallPath::Direct;
            directs += u64::from(is_direct);
            paths.record(choice, if is_direct { direct } else { frames });
        }
        directs
    }

    #[test]
    fn first_calls_are_direct_from_4_kib_without_an_element() {
        let mut paths = MeasuredPaths::new();
        assert_eq!(paths.choose(100, ServerLocation::ThisHost).path, CallPath::Frames);
        assert_eq!(paths.choose(4096, ServerLocation::OtherHost).path, CallPath::Direct);
        assert_eq!(paths.choose(1 << 20, ServerLocation::BehindElement).path, CallPath::Frames);
    }

    #[test]
    fn faster_path_takes_all_calls_but_the_trials() {
        for (len, frames, direct) in [(100, 10, 5), (100, 5, 10), (9000, 10, 5), (9000, 5, 10)] {
            let mut paths = MeasuredPaths::new();
            make_calls(&mut paths, 100, len, us(frames), us(direct));
            let directs = make_calls(&mut paths, 10_000, len, us(frames), us(direct));
            let slower = if direct < frames { 10_000 - directs } else { directs };
            assert!((1..=100).contains(&slower), "{len} bytes, {frames} and {direct} us: {slower} calls by the slower");
        }
    }

    #[test]
    fn path_that_becomes_slow_is_left() {
        let mut paths = MeasuredPaths::new();
        make_calls(&mut paths, 20_000, 9000, us(10), us(5));
        make_calls(&mut paths, 30_000, 9000, us(10), us(50));
        assert!(make_calls(&mut paths, 10_000, 9000, us(10), us(50)) < 200);
    }

    #[test]
    fn small_difference_changes_nothing() {
        let mut paths = MeasuredPaths::new();
        let directs = make_calls(&mut paths, 10_000, 9000, us(95), us(100));
        assert!(directs > 9_900, "{directs}");
    }

    #[test]
    fn path_on_one_host_is_left_only_for_half_the_time() {
        for (direct, expected) in [(51, CallPath::Frames), (49, CallPath::Direct)] {
            let mut paths = MeasuredPaths::new();
            for _ in 0..1000 {
                let choice = paths.choose(100, ServerLocation::ThisHost);
                paths.record(choice, us(if choice.path == CallPath::Direct { direct } else { 100 }));
            }
            let class = paths.report("").next().map(|stats| stats.direct);
            assert_eq!(class, Some(expected == CallPath::Direct), "{direct} us");
        }
    }

    #[test]
    fn path_on_which_calls_fail_is_left() {
        let mut paths = MeasuredPaths::new();
        for _ in 0..1000 {
            let choice = paths.choose(9000, ServerLocation::OtherHost);
            if choice.path == CallPath::Frames {
                paths.record(choice, us(10));
            }
        }
        assert_eq!(paths.choose(9000, ServerLocation::OtherHost).path, CallPath::Frames);
    }

    #[test]
    fn call_with_an_id_or_a_long_message_or_a_pin_is_not_measured() {
        let only = |method: &Method, pinned, len, has_id| {
            PathChoice::without_measurement(method, pinned, len, has_id).map(|choice| choice.path)
        };
        assert_eq!(only(&ADD, MapPath::Automatic, DIRECT_BYTES_MAX, false), None);
        assert_eq!(only(&ADD, MapPath::Automatic, DIRECT_BYTES_MAX + 1, false), Some(CallPath::Frames));
        assert_eq!(only(&ADD, MapPath::Direct, 100, false), Some(CallPath::Direct));
        assert_eq!(only(&ADD, MapPath::Direct, 100, true), Some(CallPath::Frames));
        assert_eq!(only(&ADD, MapPath::Element, 100, false), Some(CallPath::Frames));
        assert_eq!(only(&ADD, MapPath::Software, 100, false), Some(CallPath::Frames));
        assert_eq!(only(&Method::DEFAULT, MapPath::Element, 100, false), Some(CallPath::Direct));
        let clear = Method { kind: Kind::Clear, ..ADD };
        assert_eq!(only(&clear, MapPath::Direct, 100, false), Some(CallPath::Frames));
    }

    #[test]
    fn report_names_sizes_medians_and_the_chosen_path() {
        let mut paths = MeasuredPaths::new();
        make_calls(&mut paths, 100, 100, us(10), us(5));
        let lines: Vec<String> = paths.report("/a.B/C").map(|stats| stats.to_string()).collect();
        let line = "/a.B/C, 64 to 127 bytes: direct calls; medians: direct calls 5.00µs, frames 10.00µs";
        assert_eq!(lines, [line]);
    }

    proptest! {
        /// Whatever is in flight at the same time, and whatever fails: both paths are tried again, and the slower one
        /// gets a small part of the calls.
        #[test]
        fn concurrent_calls_find_the_faster_path(
            in_flight in 1usize..200, frames in 1u64..1000, factor in 2u64..10, slow_direct: bool, fails in 2u64..20,
        ) {
            let (frames, direct) = if slow_direct { (frames, frames * factor) } else { (frames * factor, frames) };
            let mut paths = MeasuredPaths::new();
            let mut begun = std::collections::VecDeque::new();
            let mut slower = 0;
            for call in 0..20_000u64 {
                let choice = paths.choose(5000, ServerLocation::OtherHost);
                let is_direct = choice.path == CallPath::Direct;
                slower += u64::from(call >= 10_000 && is_direct == slow_direct);
                begun.push_back((call, choice, us(if is_direct { direct } else { frames })));
                if begun.len() >= in_flight
                    && let Some((call, choice, took)) = begun.pop_front()
                    && call % fails != 0
                {
                    paths.record(choice, took);
                }
            }
            prop_assert!(slower <= 200, "{slower} of 10000 calls by the slower path");
        }
    }
}
