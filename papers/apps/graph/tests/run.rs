//! Tests of the command `graph`, which checks the answers itself, too.

use std::process::Command;

use pathcall_test_support::application::{ApplicationProcess, addresses};

const GRAPH: &str = env!("CARGO_BIN_EXE_graph");

fn graph(arguments: &[&str]) -> Result<String, String> {
    pathcall_test_support::application::says(GRAPH, arguments)
}

/// Running node: process and URL.
struct NodeProcess(#[expect(dead_code, reason = "killed with its test")] ApplicationProcess, String);

impl NodeProcess {
    fn start(index: usize, nodes: &str) -> Self {
        let arguments = ["serve", "--index", &index.to_string(), "--nodes", nodes, "--persons", "50", "--posts", "100"];
        let mut process = ApplicationProcess::start(Command::new(GRAPH).args(arguments));
        let line = process.line();
        let (_, url) = line.split_once(": ").expect("a URL");
        Self(process, url.to_owned())
    }
}

#[test]
fn demo_compares_all_answers() {
    let printed = graph(&["demo", "--calls", "5", "--persons", "60", "--posts", "200", "--comments", "600"]);
    let printed = printed.expect("success");
    assert!(printed.ends_with("all answers equal those of one process\n"), "{printed}");
    assert!((1..=7).all(|n| printed.contains(&format!("\nIs{n} "))), "{printed}");
}

#[test]
fn separate_processes_give_equal_answers() {
    let nodes = addresses(3);
    let servers: Vec<_> = (0..3).map(|index| NodeProcess::start(index, &nodes.join(","))).collect();
    let urls: Vec<_> = servers.iter().map(|server| &*server.1).collect();
    let urls = urls.join(",");
    for query in ["is1", "is2", "is3", "is4", "is5", "is6", "is7"] {
        let passed = graph(&["ask", "--servers", &urls, query, "3"]).expect("an answer");
        assert_eq!(graph(&["ask", "--servers", &urls, "--hub", query, "3"]).expect("an answer"), passed, "{query}");
    }
    let error = graph(&["ask", "--servers", &urls, "is1", "99"]).expect_err("no such person");
    assert_eq!(error, "graph: there is no person 99 here\n");
}

#[test]
fn invalid_node_index_is_reported() {
    let error = graph(&["serve", "--index", "2", "--nodes", "127.0.0.1:0"]).expect_err("one node");
    assert_eq!(error, "graph: invalid --index 2: the list has 1 nodes\n");
}
