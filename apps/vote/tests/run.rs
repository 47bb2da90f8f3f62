//! The application as a user runs it: both ways, the same result. (It checks the result itself, too.)

use std::process::Command;

fn digest(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_vote")).args(["--ballots", "60", "--json"]).args(arguments).output();
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
    assert_eq!(digest(&["--concurrent", "1"]), plain);
    assert_eq!(digest(&["--concurrent", "60"]), plain);
    assert_ne!(digest(&["--seed", "2"]), plain);
}
