//! The application as a user runs it. (It checks the result itself, too.)

use pathcall_test_support::application::says;

/// The digest in the report of a run. A machine that stands still takes a lock away from whoever holds it for a time: who
/// is told the time notices and says so, and with plain gRPC nobody does. Such a run is no failure, and is done again.
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

#[test]
fn both_ways_give_the_same_result() {
    let plain = digest(&["--plain"]);
    assert_eq!(plain.len(), 16);
    assert_eq!(digest(&[]), plain);
    assert_ne!(digest(&["--seed", "2"]), plain);
}

#[test]
fn one_lock_is_enough_to_contend_for() {
    assert_eq!(digest(&["--locks", "1", "--clients", "6"]), digest(&["--locks", "1", "--clients", "6", "--plain"]));
}

#[test]
fn a_holder_that_dies_does_not_block_the_others() {
    let alive = digest(&[]);
    for how in ["dropped", "killed"] {
        assert_eq!(digest(&["--die", how]), alive, "{how}");
        assert_eq!(digest(&["--die", how, "--plain"]), alive, "{how}, plain");
    }
}
