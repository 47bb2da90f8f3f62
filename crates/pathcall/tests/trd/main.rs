//! What TRD (`functions/trd.p4c`, CLIP §VI) says of each segment, beside tshark's `tcp.analysis`, on captures made under loss
//! and reordering: they agree, or the difference is of a class whose rule holds for the packets themselves.
//!
//! Needs tshark; without it says so, or fails if `PATHCALL_ROOT_TESTS` is set. `functions/captures/make` makes the captures.

mod classes;
mod function;
mod segments;
mod tshark;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use classes::Class;
use function::Kind;
use segments::{Segment, segments};
use tshark::Verdict;

/// Each capture with what it is of, in the page's words.
const CAPTURES: [&str; 8] = ["clean", "idle", "loss-sender", "loss-middle", "loss-receiver", "reorder", "late", "both"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../functions").join(name)
}

fn capture(name: &str) -> PathBuf {
    path(&format!("captures/{name}.pcap"))
}

/// The segments of a capture, and what TRD says of them with all connections at servers.
fn judged(name: &str) -> (Vec<Segment>, Vec<Kind>) {
    static JUDGED: OnceLock<BTreeMap<&str, (Vec<Segment>, Vec<Kind>)>> = OnceLock::new();
    let judge = |name: &'static str| {
        let segments = segments(&capture(name));
        let kinds = function::kinds(&segments, function::Placed::Nothing);
        (name, (segments, kinds))
    };
    JUDGED.get_or_init(|| CAPTURES.into_iter().map(judge).collect())[name].clone()
}

/// A difference that no class explains, or whose rule does not hold.
fn wrong(name: &str, segment: &Segment, ours: Kind, theirs: Verdict) -> String {
    format!("{name}, frame {}: ours {ours:?}, tshark {theirs:?}: {segment:?}", segment.frame)
}

#[test]
fn every_difference_from_tshark_is_explained() {
    if !tshark::is_there() {
        return;
    }
    let mut unexplained = Vec::new();
    let mut found = BTreeMap::new();
    for name in CAPTURES {
        let (segments, ours) = judged(name);
        let theirs = tshark::verdicts(&capture(name));
        assert_eq!((segments.len(), segments.len()), (ours.len(), theirs.len()), "{name}: frames");
        let mut counts = BTreeMap::<String, u32>::new();
        for ((segment, ours), theirs) in segments.iter().zip(&ours).zip(&theirs) {
            match classes::class(segment, *ours, *theirs) {
                Ok(Class::Agreed) => {}
                Ok(class) => {
                    *counts.entry(class.to_string()).or_default() += 1;
                    *found.entry(class).or_insert(0) += 1;
                }
                Err(()) => unexplained.push(wrong(name, segment, *ours, *theirs)),
            }
        }
        let count = |kind| ours.iter().filter(|ours| **ours == kind).count();
        println!(
            "{name}: {} segments, {} sent again, {} out of order, {} keep-alives; tshark: {} and {}; {counts:?}",
            segments.len(),
            count(Kind::Retransmitted),
            count(Kind::OutOfOrder),
            count(Kind::KeepAlive),
            theirs.iter().filter(|theirs| theirs.is_retransmission()).count(),
            theirs.iter().filter(|theirs| **theirs == Verdict::OutOfOrder).count(),
        );
    }
    assert!(unexplained.is_empty(), "{} differences:\n{}", unexplained.len(), unexplained.join("\n"));
    for class in Class::SHOWN {
        assert!(found.contains_key(&class), "no capture shows: {class}");
    }
}

#[test]
fn element_and_servers_say_the_same() {
    for name in CAPTURES {
        let (segments, alone) = judged(name);
        let parts = function::kinds(&segments, function::Placed::WhatComes);
        let differs = alone.iter().zip(&parts).position(|(alone, parts)| alone != parts);
        assert_eq!(differs.map(|at| (segments[at].frame, alone[at], parts[at])), None, "{name}");
    }
}

/// TRD and the sender's own count: how many of the segments that were sent again it finds, how many it accuses wrongly.
#[test]
fn what_the_sender_did_is_found() {
    for (name, missed_max, wrong_max) in [
        ("clean", 0, 0),
        ("idle", 0, 0),
        ("loss-sender", 0, 0),
        ("loss-middle", 0, 0),
        ("loss-receiver", 0, 0),
        ("reorder", 0, 0),
        ("both", 0, 0),
    ] {
        let (segments, ours) = judged(name);
        let is = |(_, kind): &(&Segment, &Kind)| **kind == Kind::Retransmitted;
        let pairs = || segments.iter().zip(&ours);
        let missed: Vec<_> = pairs().filter(|pair| !is(pair) && pair.0.was_sent_again()).collect();
        let accused: Vec<_> = pairs().filter(|pair| is(pair) && !pair.0.was_sent_again()).collect();
        println!("{name}: {} missed, {} accused", missed.len(), accused.len());
        assert!(missed.len() <= missed_max, "{name}: {missed:#?}");
        assert!(accused.len() <= wrong_max, "{name}: {accused:#?}");
    }
}
