//! The application as a user runs it. (It checks the result itself, too.)

use std::process::Command;

fn digest(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lock")).args(["--sections", "40", "--json"]).args(arguments).output();
    let output = output.expect("the application starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON");
    let (_, digest) = text.split_once("\"digest\":\"").expect("a digest");
    digest.chars().take_while(char::is_ascii_hexdigit).collect()
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
