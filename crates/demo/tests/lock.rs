//! The application as a user runs it. (It checks the result itself, too.)

fn digest(arguments: &[&str]) -> String {
    pathcall_test_support::application::digest("lock", &[&["--sections", "40", "--json"], arguments].concat())
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
