//! Tests of the application training: the same result by each path (the application also checks it).

use pathcall_test_support::application::digest_by_element;
use pathcall_test_support::element::by_element;

fn digest(arguments: &[&str]) -> String {
    pathcall_test_support::application::digest("training", &[&["--epochs", "5", "--json"], arguments].concat())
}

#[tokio::test]
async fn all_paths_give_same_result() {
    by_element(same_results).await;
}

#[tokio::test]
async fn large_gradients_give_same_sums() {
    by_element(same_sums).await;
}

fn same_sums(controller: &str) {
    let large = ["--values", "3000", "--rounds", "2"];
    let report = |path: &[&str]| {
        let arguments = [&large, path, &["--json"]].concat();
        pathcall_test_support::application::digest("training", &arguments)
    };
    let plain = report(&["--plain"]);
    assert_eq!(digest_by_element("training", &large, controller), plain);
    assert_eq!(report(&[]), plain);
}

fn same_results(controller: &str) {
    let plain = digest(&["--plain"]);
    assert_eq!(plain.len(), 16);
    assert_eq!(digest_by_element("training", &["--epochs", "5"], controller), plain);
    assert_eq!(digest(&[]), plain);
}
