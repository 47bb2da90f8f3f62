//! Tests of the choice between the paths of a call.

use pathcall_proto::manifest::{Field, Shape};
use proptest::prelude::*;

use super::*;

const ADD: Method =
    Method { kind: Kind::Add { get: false, to: pathcall_proto::manifest::ForwardTarget::Src }, ..Method::DEFAULT };

const KEYS: Field = Field { path: &[1], name: "Request.keys", shape: Shape::StrInt };

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Makes calls one after the other that take these times; returns how many of them were direct.
fn make_calls(paths: &mut MeasuredPaths, calls: u64, len: usize, frames: Duration, direct: Duration) -> u64 {
    let mut directs = 0;
    for _ in 0..calls {
        let choice = paths.choose(len, ServerLocation::OtherHost, || len / 20);
        let is_direct = choice.path == CallPath::Direct;
        directs += u64::from(is_direct);
        paths.record(choice, if is_direct { direct } else { frames });
    }
    directs
}

#[test]
fn first_calls_are_direct_above_256_values_without_an_element() {
    for (server, values, expected) in [
        (ServerLocation::ThisHost, 256, CallPath::Frames),
        (ServerLocation::ThisHost, 257, CallPath::Direct),
        (ServerLocation::OtherHost, 256, CallPath::Frames),
        (ServerLocation::OtherHost, 257, CallPath::Direct),
        (ServerLocation::BehindElement, 100_000, CallPath::Frames),
    ] {
        let choice = MeasuredPaths::new().choose(9000, server, || values);
        assert_eq!(choice.path, expected, "{server:?}, {values} values");
    }
}

#[test]
fn values_are_counted_for_the_first_call_of_a_size_only() {
    let mut paths = MeasuredPaths::new();
    paths.choose(9000, ServerLocation::ThisHost, || 300);
    let second = paths.choose(9001, ServerLocation::ThisHost, || unreachable!("counted again"));
    assert_eq!(second.path, CallPath::Direct);
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
            let choice = paths.choose(100, ServerLocation::ThisHost, || 100 / 20);
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
        let choice = paths.choose(9000, ServerLocation::OtherHost, || 9000 / 20);
        if choice.path == CallPath::Frames {
            paths.record(choice, us(10));
        }
    }
    assert_eq!(paths.choose(9000, ServerLocation::OtherHost, || 9000 / 20).path, CallPath::Frames);
}

#[test]
fn call_with_an_id_or_a_long_message_or_a_pin_is_not_measured() {
    let only = |method: &Method, pinned, len, has_id| {
        PathChoice::without_measurement(method, pinned, len, (has_id, false)).map(|choice| choice.path)
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
fn query_of_some_keys_behind_element_travels_as_frames() {
    let only = |method: &Method, pinned, len, reads| {
        PathChoice::without_measurement(method, pinned, len, (false, reads)).map(|choice| choice.path)
    };
    let query = Method { request: Some(KEYS), ..Method::DEFAULT };
    assert_eq!(only(&query, MapPath::Automatic, 100, true), Some(CallPath::Frames));
    assert_eq!(only(&query, MapPath::Element, 100, true), Some(CallPath::Frames));
    for (method, pinned, len, reads) in [
        (&query, MapPath::Automatic, 100, false),
        (&query, MapPath::Direct, 100, true),
        (&query, MapPath::Software, 100, true),
        (&query, MapPath::Automatic, READ_BYTES_MAX + 1, true),
        (&Method::DEFAULT, MapPath::Automatic, 100, true),
    ] {
        assert_eq!(only(method, pinned, len, reads), Some(CallPath::Direct), "{pinned:?}, {len} bytes, {reads}");
    }
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
            let choice = paths.choose(5000, ServerLocation::OtherHost, || 5000 / 20);
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
