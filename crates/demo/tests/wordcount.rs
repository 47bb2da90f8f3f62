//! Tests of the application wordcount: the same result by both paths (the application also checks it).

fn digest(arguments: &[&str]) -> String {
    pathcall_test_support::application::digest("wordcount", &[&["--batch", "20000", "--json"], arguments].concat())
}

#[test]
fn all_paths_give_same_result() {
    let plain = digest(&["--plain"]);
    assert_eq!(plain.len(), 16);
    assert_eq!(digest(&[]), plain);
}
