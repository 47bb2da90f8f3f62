//! Tests of the application photos: the same result by every path (the application also checks each answer).

use std::process::Output;

use photos::album::{PHOTOS as COUNT, find, photo, thumbnail, title, word};

const PHOTOS: &str = "photos";

fn run(arguments: &[&str]) -> Output {
    pathcall_test_support::application::command(PHOTOS).args(arguments).output().expect("the application starts")
}

/// Report of a run.
fn report(way: &[&str]) -> serde_json::Value {
    let output = run(&[&["demo", "--json", "--callers", "2", "--calls", "40"], way].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test]
async fn all_paths_give_same_result() {
    pathcall_test_support::element::by_element(same_results).await;
}

fn same_results(controller: &str) {
    let [software, plain] = [&[][..], &["--plain"]].map(report);
    assert_eq!(plain["digest"].as_str().map(str::len), Some(16), "{plain}");
    let check = |way: &serde_json::Value| {
        assert_eq!(way["digest"], plain["digest"], "{way}");
        // Each search is developed at the archive, and each thumbnail at some server: nothing else is placed.
        for (what, calls) in [("thumbnails", 80), ("fetches", 80)] {
            let made = ["cpu", "acc"].map(|role| way[what][role].as_u64().expect("a number"));
            assert!(made.iter().sum::<u64>() >= calls && made[0] > 0, "{what}: {way}");
        }
        let trace = way["trace"].as_str().expect("a trace");
        assert!(["/Find: ", "/LookUp: ", "/Fetch ("].iter().all(|part| trace.contains(part)), "{trace}");
    };
    check(&software);
    // The element took part; where the machine stands still, callers work without it for a while.
    let shown = (0..8).any(|_| {
        let element = report(&["--controller", controller]);
        println!("{element}");
        check(&element);
        let share = |name: &str| element[name].as_f64().expect("a share");
        share("likes_in_element") > 0.3 && share("cloned") > 0.0
    });
    assert!(shown, "the element is hardly used");
    assert_eq!(software["likes_in_element"].as_f64(), Some(0.0), "{software}");
}

#[test]
fn user_errors_are_one_line() {
    for (arguments, says) in [
        (&["demo", "--callers", "0"][..], "photos: --callers: expected at least 1, got 0"),
        (&["demo", "--front", "http://127.0.0.1:1"], "photos: no gRPC server answers at http://127.0.0.1:1/"),
        (&["demo", "--plain", "--controller", "http://127.0.0.1:1"], "error: the argument '--plain'"),
        (&["serve", "attic"], "error: invalid value 'attic'"),
    ] {
        let output = run(arguments);
        assert!(!output.status.success());
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.starts_with(says), "{arguments:?}: {printed}");
    }
}

#[test]
fn photos_differ_and_are_found_by_word() {
    let pictures: std::collections::BTreeSet<Vec<u8>> =
        (0..COUNT).filter_map(|id| Some(photo(id)?.picture?.grey)).collect();
    assert_eq!(pictures.len(), COUNT as usize);
    assert_eq!((title(0), photo(COUNT)), ("whale at dawn".to_owned(), None));
    assert_eq!(find("whale"), (0..COUNT).step_by(6).collect::<Vec<_>>());
    assert!((0..20).all(|nth| !find(word(nth)).is_empty()));
    let small = thumbnail(3).expect("already present");
    assert_eq!((small.width, small.grey.len()), (8, 48));
}
