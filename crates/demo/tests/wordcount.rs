//! The application as a user runs it: both ways, the same result. (It checks the result itself, too.)

fn digest(arguments: &[&str]) -> String {
    pathcall_test_support::application::digest("wordcount", &[&["--batch", "20000", "--json"], arguments].concat())
}

#[test]
fn both_ways_give_the_same_result() {
    let plain = digest(&["--plain"]);
    assert_eq!(plain.len(), 16);
    assert_eq!(digest(&[]), plain);
}
