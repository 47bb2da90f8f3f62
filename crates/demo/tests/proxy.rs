//! Tests of the application proxy: the same values by both paths (the application also checks them), fewer messages
//! with delegation, servers as processes, and a server killed during a call.

use std::process::{Output, Stdio};

use pathcall_test_support::application::ApplicationProcess;

const PROXY: &str = "proxy";

fn run(arguments: &[&str]) -> Output {
    pathcall_test_support::application::command(PROXY).args(arguments).output().expect("the application starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Value of a field in a report.
fn field(report: &str, name: &str) -> String {
    let (_, rest) = report.split_once(&format!("\"{name}\":")).expect("the field");
    rest.chars().take_while(|c| !",}".contains(*c)).collect()
}

#[test]
fn delegation_gives_same_result_with_fewer_messages() {
    let report = |way: &[&str]| {
        let output = run(&[&["demo", "--json", "--calls", "300"], way].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let (delegate, nested) = (report(&[]), report(&["--rpc"]));
    assert_eq!(field(&delegate, "digest"), field(&nested, "digest"));
    let messages = |report: &str| field(report, "messages").parse::<u64>().expect("a number");
    // Three and four messages a call; a slow host adds pings, but not the same number each time.
    let saved = |delegate: &str, nested: &str| {
        println!("{delegate}{nested}");
        assert!(messages(delegate) >= 900 && messages(nested) >= 1200, "{delegate}{nested}");
        messages(delegate) < messages(nested)
    };
    let more = || saved(&report(&[]), &report(&["--rpc"]));
    assert!(saved(&delegate, &nested) || (0..8).any(|_| more()), "delegation saves no messages");
}

#[test]
fn row_of_middleboxes_gives_same_result_by_each_path() {
    let names = ["middlebox", "middlebox-2", "middlebox-3", "backend-0", "backend-1"];
    let (_pathcall, list) = pathcall_test_support::application::servers(PROXY, &names, &[]);
    let (_plain, plain_list) = pathcall_test_support::application::servers(PROXY, &names, &["--plain"]);
    let digests = [
        (&list, &[][..]),
        (&list, &["--rpc"]),
        (&list, &["--direct"]),
        (&plain_list, &["--plain"]),
        (&plain_list, &["--plain", "--direct"]),
    ]
    .map(|(servers, path)| {
        let output = run(&[&["demo", "--json", "--calls", "50", "--servers", servers], path].concat());
        assert!(output.status.success(), "{path:?}: {}", text(&output.stderr));
        field(&text(&output.stdout), "digest")
    });
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// Runs reads and kills a backend after the first value.
fn killed(way: &[&str]) {
    let (mut running, list) =
        pathcall_test_support::application::servers(PROXY, &["middlebox", "backend-0", "backend-1"], &[]);
    let mut demo = pathcall_test_support::application::command(PROXY);
    demo.args(["demo", "--calls", "1000000", "--servers", &list]).args(way);
    let mut demo = ApplicationProcess::start(demo.stderr(Stdio::piped()));
    assert_eq!(demo.line(), "3 servers, the first value is there");
    running.pop();
    let (status, rest, why) = demo.end();
    assert!(!status.success() && rest.is_empty(), "{status}: {rest}");
    assert!(why.starts_with("proxy: key \"user:") && !why.contains("expected"), "{why}");
}

#[test]
fn killed_backend_ends_delegated_call() {
    killed(&[]);
}

#[test]
fn killed_backend_ends_nested_call() {
    killed(&["--rpc"]);
}
