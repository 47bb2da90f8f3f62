//! Tests of the application monitor, which also checks its results.

use std::path::{Path, PathBuf};
use std::process::Output;

use pathcall_test_support::application::digest_by_element;
use pathcall_test_support::element::by_element;

fn monitor(arguments: &[&str]) -> Output {
    let output =
        pathcall_test_support::application::command("monitor").args(["--packets", "5000"]).args(arguments).output();
    output.expect("the application starts")
}

fn digest(arguments: &[&str]) -> String {
    pathcall_test_support::application::digest("monitor", &[&["--json", "--packets", "20000"], arguments].concat())
}

/// Path of a file for this test run.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[tokio::test]
async fn all_paths_give_same_result() {
    by_element(same_results).await;
}

fn same_results(controller: &str) {
    let plain = digest(&["--plain"]);
    assert_eq!(plain.len(), 16);
    assert_eq!(digest_by_element("monitor", &["--packets", "20000"], controller), plain);
    assert_eq!(digest(&[]), plain);
    assert_ne!(digest(&["--plain", "--seed", "2"]), plain);
}

#[test]
fn stored_capture_gives_same_result() {
    let kept = file("kept.pcap");
    let kept = kept.to_str().expect("a name");
    let made = digest(&["--seed", "5", "--write-capture", kept]);
    assert_eq!(digest(&["--capture", kept, "--agents", "1", "--batch", "77"]), made);
}

#[test]
fn damaged_capture_is_counted_up_to_damage() {
    let whole = file("whole.pcap");
    assert!(monitor(&["--plain", "--write-capture", whole.to_str().expect("a name")]).status.success());
    let mut bytes = std::fs::read(&whole).expect("written");
    // Truncated in the last packet; then also with an invalid length in the middle.
    bytes.pop();
    let cut = file("cut.pcap");
    std::fs::write(&cut, &bytes).expect("a file");
    let printed = "is damaged after packet 4999: it ends in the middle";
    assert_counts(&cut, printed, "  4999 packets of ");
    // Length of the first packet, after the header of 24 bytes and two words of time.
    bytes[32..36].copy_from_slice(&[0xff; 4]);
    std::fs::write(&cut, &bytes).expect("a file");
    assert_counts(&cut, "is damaged after packet 0: it ends in the middle", "  0 packets of 0 flows");
}

#[track_caller]
fn assert_counts(capture: &Path, printed: &str, counted: &str) {
    let output = monitor(&["--capture", capture.to_str().expect("a name")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, format!("monitor: {} {printed}\n", capture.display()));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains(counted), "{stdout}");
}

#[test]
fn invalid_capture_is_reported_in_one_line() {
    let text = file("no-capture.txt");
    std::fs::write(&text, "Neither one nor the other, but long enough to be.").expect("a file");
    for (path, reason) in [
        (text.display().to_string(), "neither a pcap nor a pcapng capture: PcapHeader: wrong magic number"),
        (file("missing.pcap").display().to_string(), "No such file or directory (os error 2)"),
    ] {
        let output = monitor(&["--capture", &path]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(&path) && stderr.ends_with(&format!("{reason}\n")), "{stderr}");
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1));
    }
}
