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
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use classes::Class;
use function::Kind;
use pathcall_function::Sources;
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

/// A capture's segments, each with its kind.
type Judged = (Vec<Segment>, Vec<Kind>);

/// The segments of a capture, and what TRD says of them with all connections at servers.
fn judged(name: &str) -> Judged {
    static JUDGED: OnceLock<BTreeMap<&str, Judged>> = OnceLock::new();
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
    if !tshark::is_there() || !function::compilers() {
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
    if !function::compilers() {
        return;
    }
    for name in CAPTURES {
        let (segments, alone) = judged(name);
        let parts = function::kinds(&segments, function::Placed::WhatComes);
        let differs = alone.iter().zip(&parts).position(|(alone, parts)| alone != parts);
        assert_eq!(differs.map(|at| (segments[at].frame, alone[at], parts[at])), None, "{name}");
    }
}

/// `pathcall function run` reports the same segments, with packets under way between element and servers.
#[test]
fn the_command_reports_what_was_sent_again() {
    if !function::compilers() {
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trd");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["loss-middle", "both"] {
        let (segments, ours) = judged(name);
        let mut command = Command::new(crate::PATHCALL);
        command
            .args(["function", "run"])
            .arg(path("trd.p4c"))
            .arg("--pcap")
            .arg(capture(name))
            .args(["--servers", "3"]);
        command.arg("--out").arg(folder.join("out.pcap")).arg("--digests").arg(folder.join("digests"));
        let output = command.stdin(Stdio::null()).output().expect("it is built");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut told: Vec<(u32, u16)> = Vec::new();
        for line in std::fs::read_to_string(folder.join("digests")).expect("written").lines() {
            let digest: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let value = |at: usize| digest["values"][at].as_u64().expect("a number");
            told.push((value(4) as u32, value(5) as u16));
        }
        let again = segments.iter().zip(&ours).filter(|(_, kind)| **kind == Kind::Retransmitted);
        let mut expected: Vec<(u32, u16)> = again.map(|(segment, _)| (segment.seq, segment.identification())).collect();
        // Of two connections, either may be first.
        told.sort_unstable();
        expected.sort_unstable();
        assert_eq!(told, expected, "{name}");
    }
}

/// TRD and the sender's own count of what it sent: none is missed, and none accused.
#[test]
fn what_the_sender_did_is_found() {
    if !function::compilers() {
        return;
    }
    for name in CAPTURES {
        let (segments, ours) = match name {
            // What it is made to show takes a time that suits that network.
            "late" => {
                let segments = segments(&capture(name));
                let suits = Sources::default().define("REORDER_US", "9000");
                let kinds = function::kinds_with(suits, &segments, function::Placed::Nothing);
                (segments, kinds)
            }
            _ => judged(name),
        };
        let pairs = || segments.iter().zip(&ours);
        let again = |kind: Kind| kind == Kind::Retransmitted;
        let missed: Vec<_> = pairs().filter(|(segment, kind)| segment.was_sent_again() && !again(**kind)).collect();
        let accused: Vec<_> = pairs().filter(|(segment, kind)| !segment.was_sent_again() && again(**kind)).collect();
        assert!(missed.is_empty(), "{name}: {missed:#?}");
        assert!(accused.is_empty(), "{name}: {accused:#?}");
    }
}
