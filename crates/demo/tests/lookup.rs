//! Tests of the application lookup: the same result by both paths (the application also checks each answer), servers as
//! processes, and a killed server.

use std::path::Path;
use std::process::{Output, Stdio};

use pathcall_test_support::application::ApplicationProcess;
use tempfile::TempDir;

const LOOKUP: &str = "lookup";

fn run(arguments: &[&str]) -> Output {
    pathcall_test_support::application::command(LOOKUP).args(arguments).output().expect("the application starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Copies of the project's pages and of this file, which may change during the test.
fn documents() -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("../../docs")).expect("pages").map(|page| page.expect("a page").path());
    let files = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    for file in files.chain([root.join("tests/lookup.rs")]) {
        std::fs::copy(&file, directory.path().join(file.file_name().expect("a file"))).expect("copied");
    }
    let path = directory.path().to_str().expect("text").to_owned();
    (directory, path)
}

fn digest(documents: &str, way: &[&str]) -> String {
    let options = ["demo", "--json", "--queries", "100", "--each", "3", "--documents", documents];
    pathcall_test_support::application::digest(LOOKUP, &[&options, way].concat())
}

#[test]
fn all_paths_give_same_result() {
    let (_directory, documents) = documents();
    let rpc = digest(&documents, &["--rpc"]);
    assert_eq!(rpc.len(), 16);
    assert_eq!(digest(&documents, &[]), rpc);
}

#[test]
fn server_processes_answer_until_killed() {
    let (_directory, documents) = documents();
    let (mut running, list) = pathcall_test_support::application::servers(
        LOOKUP,
        &["index-0", "index-1", "store-0", "store-1"],
        &["--documents", &documents],
    );
    let ask = ["ask", "--servers", &list, "server", "hub", "spoke", "rarest"];
    let answer = run(&ask);
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    // This file has all of the words.
    assert!(text(&answer.stdout).contains("lookup.rs: Tests of the application"), "{}", text(&answer.stdout));
    assert_eq!(run(&[&ask[..], &["--rpc"]].concat()).stdout, answer.stdout);
    let traced = text(&run(&[&ask[..], &["--trace"]].concat()).stdout);
    let tree = traced.strip_prefix(&text(&answer.stdout)).expect("the answer precedes the trace");
    assert!(tree.starts_with("/lookup.Lookup/Find: ") && tree.contains("/lookup.Lookup/Fetch: waited "), "{tree}");

    let mut demo = pathcall_test_support::application::command(LOOKUP);
    demo.args(["demo", "--queries", "1000000", "--documents", &documents, "--servers", &list]);
    let mut demo = ApplicationProcess::start(demo.stderr(Stdio::piped()));
    let first = demo.line();
    assert!(first.ends_with("the first question is answered"), "{first:?}");
    running.remove(3);
    let (status, rest, why) = demo.end();
    assert!(!status.success() && rest.is_empty(), "{status}: {rest}");
    assert!(why.starts_with("lookup: query [") && !why.contains("expected"), "{why}");
}

#[test]
fn user_errors_are_one_line() {
    let one = "index-0=127.0.0.1:1";
    for (arguments, says) in [
        (
            vec!["serve", "--name", "store-0", "--servers", one],
            "lookup: server \"store-0\" is not in the list --servers",
        ),
        (vec!["ask", "--servers", one], "lookup: code: 'Client specified an invalid argument'"),
        (vec!["demo", "--documents", "/nowhere"], "lookup: cannot read documents in /nowhere"),
        (vec!["ask", "--servers", "index-0", "x"], "error: invalid value 'index-0'"),
    ] {
        let output = run(&arguments);
        assert!(!output.status.success());
        assert!(text(&output.stderr).starts_with(says), "{arguments:?}: {}", text(&output.stderr));
    }
}
