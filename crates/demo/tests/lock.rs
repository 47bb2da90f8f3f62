//! Tests of the application lock, which also checks its results.

use pathcall_test_support::application::{digest_by_element, says};
use pathcall_test_support::element::by_element;

/// Digest in the report of a run. On a machine that stands still, a holder loses its lock after the lease; the
/// application detects and reports it, but not with plain gRPC. Such a run is repeated.
fn digest(arguments: &[&str]) -> String {
    const TIMES: usize = 8;
    let is_plain = arguments.contains(&"--plain");
    for _ in 0..TIMES {
        match says("lock", &[&["--sections", "40", "--json"], arguments].concat()) {
            Ok(report) => {
                let (_, digest) = report.split_once("\"digest\":\"").expect("a digest");
                return digest.chars().take_while(char::is_ascii_hexdigit).collect();
            }
            Err(why) if is_plain || why.contains("was too slow for its lease") => println!("{why}"),
            Err(why) => panic!("{arguments:?}: {why}"),
        }
    }
    panic!("{arguments:?}: {TIMES} failures");
}

#[tokio::test]
async fn all_paths_give_same_result() {
    by_element(same_results).await;
}

fn same_results(controller: &str) {
    let plain = digest(&["--plain"]);
    assert_eq!(plain.len(), 16);
    assert_eq!(digest_by_element("lock", &["--sections", "40"], controller), plain);
    assert_eq!(digest(&[]), plain);
    assert_ne!(digest(&["--seed", "2"]), plain);
}

#[test]
fn single_lock_gives_same_result() {
    assert_eq!(digest(&["--locks", "1", "--clients", "6"]), digest(&["--locks", "1", "--clients", "6", "--plain"]));
}

#[test]
fn dead_holder_does_not_block_others() {
    let alive = digest(&[]);
    for how in ["dropped", "killed"] {
        assert_eq!(digest(&["--die", how]), alive, "{how}");
        assert_eq!(digest(&["--die", how, "--plain"]), alive, "{how}, plain");
    }
}
