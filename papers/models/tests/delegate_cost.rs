//! Messages, bytes and latency of delegated calls and plain calls, on the thesis' shapes (ch. 6).

use pathcall_models::delegate::baseline::{REQUEST_LEN, RESPONSE_LEN};
use pathcall_models::delegate::cost::{Cost, ShapeCost, called, delegated};
use pathcall_models::delegate::shapes::{RequestNode, hops, rays, short_reads};

/// One client and twenty servers (§6.1).
const HOSTS: usize = 21;
/// Calls of which the median is taken.
const CALLS: u64 = 101;
/// Maximum extra bytes of a delegated message.
const EXTRA_BYTES_MAX: usize = 64;

/// Table 6.3.
#[test]
fn short_read_messages_equal_table_6_3() {
    for shape in short_reads() {
        let ours = delegated(&shape.roots, HOSTS, 1, Cost::THESIS);
        assert_eq!((ours.messages, ours.at_client), shape.dpc, "{}", shape.name);
        assert_eq!(ours.replies, shape.roots.iter().map(RequestNode::all_replies).sum::<u64>(), "{}", shape.name);
        let theirs = called(&shape.roots, HOSTS, 1, Cost::THESIS);
        assert_eq!((theirs.messages, theirs.at_client), (shape.rpc, shape.rpc), "{}", shape.name);
    }
}

#[test]
fn delegated_message_adds_at_most_64_bytes() {
    let shapes = short_reads().into_iter().map(|shape| shape.roots);
    // Chains under branches: requests with a manifest and an inherited branch.
    let deep = (1..6).fold(hops(3), |next, _| vec![RequestNode { replies: 1, next: [next, hops(4)].concat() }]);
    let mut longest = (0, 0);
    for roots in shapes.chain([hops(10), rays(10), deep]) {
        let (ours, theirs) = (delegated(&roots, HOSTS, 1, Cost::THESIS), called(&roots, HOSTS, 1, Cost::THESIS));
        assert_eq!(theirs.heads, (REQUEST_LEN, RESPONSE_LEN));
        longest = (ours.heads.0.max(longest.0), ours.heads.1.max(longest.1));
    }
    assert!(longest.0 <= REQUEST_LEN + EXTRA_BYTES_MAX, "a request has {} bytes, a plain one {REQUEST_LEN}", longest.0);
    assert!(
        longest.1 <= RESPONSE_LEN + EXTRA_BYTES_MAX,
        "a response has {} bytes, a plain one {RESPONSE_LEN}",
        longest.1
    );
    // The shapes include the longest possible message.
    assert_eq!(longest, (REQUEST_LEN + EXTRA_BYTES_MAX, RESPONSE_LEN + 48));
}

/// Reduction of the median latency by delegation, in percent.
fn reduction(roots: &[RequestNode]) -> f64 {
    let median = |play: fn(&[RequestNode], usize, u64, Cost) -> ShapeCost| {
        let mut times: Vec<u64> = (1..=CALLS).map(|seed| play(roots, HOSTS, seed, Cost::THESIS).time).collect();
        times.sort_unstable();
        times[times.len() / 2] as f64
    };
    100.0 * (1.0 - median(delegated) / median(called))
}

/// The costs are chosen so that one hop takes what it took in the thesis (§6.2): 8.89 µs and 9.53 µs.
#[test]
fn one_hop_cost_is_calibrated_to_thesis() {
    let (ours, theirs) = (delegated(&hops(1), HOSTS, 1, Cost::THESIS), called(&hops(1), HOSTS, 1, Cost::THESIS));
    assert_eq!(theirs.time, 8_890);
    assert!(ours.time.abs_diff(9_530) < 100, "{} ns", ours.time);
}

/// Fig. 6.1, 6.4 and 6.5.
#[test]
fn latency_reductions_reach_thesis() {
    let read = |name| short_reads().into_iter().find(|shape| shape.name == name).expect("a short read").roots;
    let rows = [
        ("2 hops", hops(2), 18.0),
        ("10 hops", hops(10), 42.0),
        ("10 bounces", rays(10), 48.0),
        ("IS3", read("IS3"), 24.0),
        ("IS2", read("IS2"), 49.0),
        ("IS7", read("IS7"), 44.0),
    ];
    let rows = rows.map(|(name, roots, least)| (name, reduction(&roots), least));
    for (name, sooner, least) in rows {
        println!("{name:<11} {sooner:5.1} % faster, expected at least {least} %");
    }
    assert!(rows.iter().all(|(_, sooner, least)| sooner >= least), "{rows:?}");
}

/// Bound without host time: a call of n hops takes (n + 1) / 2n of the time of plain calls.
#[test]
fn hop_bound_is_message_ratio() {
    let free = Cost { send: 0, receive: 0, background: 0, wire: 1_000, delegate: 0, call: 0 };
    for n in 1..=12 {
        let (ours, theirs) = (delegated(&hops(n), HOSTS, 1, free), called(&hops(n), HOSTS, 1, free));
        assert_eq!((ours.time, theirs.time), (1_000 * (n as u64 + 1), 2_000 * n as u64));
    }
}
