//! Comparison of TRD (`functions/trd.p4c`, CLIP §VI) with tshark's `tcp.analysis` on captures made under loss and
//! reordering: the verdicts agree, or the difference is of a class whose rule holds for the packets.
//!
//! Needs tshark; without it the tests print a note, or fail if `PATHCALL_ROOT_TESTS` is set. `functions/captures/make`
//! makes the captures.

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
use pathcall_p4::Sources;
use segments::{Segment, segments};
use tshark::Verdict;

/// Names of the captures, as on the page.
const CAPTURES: [&str; 8] = ["clean", "idle", "loss-sender", "loss-middle", "loss-receiver", "reorder", "late", "both"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../functions").join(name)
}

fn capture(name: &str) -> PathBuf {
    path(&format!("captures/{name}.pcap"))
}

/// Segments of a capture, each with its kind.
type ClassifiedSegments = (Vec<Segment>, Vec<Kind>);

/// Segments of a capture, and TRD's verdicts with all connections at servers.
fn classified_segments(name: &str) -> ClassifiedSegments {
    static JUDGED: OnceLock<BTreeMap<&str, ClassifiedSegments>> = OnceLock::new();
    let judge = |name: &'static str| {
        let segments = segments(&capture(name));
        let kinds = function::kinds(&segments, function::PlacementMode::Nothing);
        (name, (segments, kinds))
    };
    JUDGED.get_or_init(|| CAPTURES.into_iter().map(judge).collect())[name].clone()
}

/// Description of a difference that no class explains, or whose rule does not hold.
fn wrong(name: &str, segment: &Segment, ours: Kind, theirs: Verdict) -> String {
    format!("{name}, frame {}: ours {ours:?}, tshark {theirs:?}: {segment:?}", segment.frame)
}

#[test]
fn every_difference_from_tshark_has_class() {
    if !tshark::is_there() || !function::compilers() {
        return;
    }
    let mut unexplained = Vec::new();
    let mut found = BTreeMap::new();
    for name in CAPTURES {
        let (segments, ours) = classified_segments(name);
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
fn element_and_servers_give_same_verdicts() {
    if !function::compilers() {
        return;
    }
    for name in CAPTURES {
        let (segments, alone) = classified_segments(name);
        let parts = function::kinds(&segments, function::PlacementMode::Everything);
        let differs = alone.iter().zip(&parts).position(|(alone, parts)| alone != parts);
        assert_eq!(differs.map(|at| (segments[at].frame, alone[at], parts[at])), None, "{name}");
    }
}

/// `pathcall function run` reports the same segments, with packets in transit between element and servers.
#[test]
fn command_reports_retransmissions() {
    if !function::compilers() {
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trd");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["loss-middle", "both"] {
        let (segments, ours) = classified_segments(name);
        let mut command = Command::new(crate::PATHCALL);
        command
            .args(["function", "run"])
            .arg(path("trd.p4c"))
            .arg("--pcap")
            .arg(capture(name))
            .args(["--servers", "3"]);
        command.arg("--out").arg(folder.join("out.pcap")).arg("--digests").arg(folder.join("digests"));
        let output = command.stdin(Stdio::null()).output().expect("the program is built");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut told: Vec<(u32, u16)> = Vec::new();
        for line in std::fs::read_to_string(folder.join("digests")).expect("written").lines() {
            let digest: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let value = |at: usize| digest["values"][at].as_u64().expect("a number");
            told.push((value(4) as u32, value(5) as u16));
        }
        let again = segments.iter().zip(&ours).filter(|(_, kind)| **kind == Kind::Retransmitted);
        let mut expected: Vec<(u32, u16)> = again.map(|(segment, _)| (segment.seq, segment.identification())).collect();
        // The order of two connections may differ.
        told.sort_unstable();
        expected.sort_unstable();
        assert_eq!(told, expected, "{name}");
    }
}

/// TRD agrees with the sender's record of retransmissions: no misses and no false alarms.
#[test]
fn sender_retransmissions_are_detected() {
    if !function::compilers() {
        return;
    }
    for name in CAPTURES {
        let (segments, ours) = match name {
            // This capture needs a reorder time that suits its network.
            "late" => {
                let segments = segments(&capture(name));
                let suits = Sources::default().define("REORDER_US", "9000");
                let kinds = function::kinds_with(suits, &segments, function::PlacementMode::Nothing);
                (segments, kinds)
            }
            _ => classified_segments(name),
        };
        let pairs = || segments.iter().zip(&ours);
        let again = |kind: Kind| kind == Kind::Retransmitted;
        let missed: Vec<_> = pairs().filter(|(segment, kind)| segment.was_sent_again() && !again(**kind)).collect();
        let accused: Vec<_> = pairs().filter(|(segment, kind)| !segment.was_sent_again() && again(**kind)).collect();
        assert!(missed.is_empty(), "{name}: {missed:#?}");
        assert!(accused.is_empty(), "{name}: {accused:#?}");
    }
}
