//! Tests of the application vote: the same result by each path (the application also checks it).

use pathcall_test_support::application::digest_by_element;
use pathcall_test_support::element::by_element;

fn digest(arguments: &[&str]) -> String {
    pathcall_test_support::application::digest("vote", &[&["--ballots", "60", "--json"], arguments].concat())
}

#[tokio::test]
async fn all_paths_give_same_result() {
    by_element(same_results).await;
}

fn same_results(controller: &str) {
    let plain = digest(&["--plain"]);
    assert_eq!(plain.len(), 16);
    assert_eq!(digest_by_element("vote", &["--ballots", "60"], controller), plain);
    assert_eq!(digest(&[]), plain);
    assert_eq!(digest(&["--concurrent", "1"]), plain);
    assert_eq!(digest(&["--concurrent", "60"]), plain);
    assert_ne!(digest(&["--seed", "2"]), plain);
}
