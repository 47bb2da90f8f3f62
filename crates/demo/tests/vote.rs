//! Tests of the application vote: the same result by both paths (the application also checks it).

fn digest(arguments: &[&str]) -> String {
    pathcall_test_support::application::digest("vote", &[&["--ballots", "60", "--json"], arguments].concat())
}

#[test]
fn all_paths_give_same_result() {
    let plain = digest(&["--plain"]);
    assert_eq!(plain.len(), 16);
    assert_eq!(digest(&[]), plain);
    assert_eq!(digest(&["--concurrent", "1"]), plain);
    assert_eq!(digest(&["--concurrent", "60"]), plain);
    assert_ne!(digest(&["--seed", "2"]), plain);
}
