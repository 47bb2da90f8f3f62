//! The application as a user runs it. (It checks the answers itself, too.)

use std::process::Command;

use pathcall_test_support::application::{Running, addresses};

const GRAPH: &str = env!("CARGO_BIN_EXE_graph");

fn graph(arguments: &[&str]) -> Result<String, String> {
    pathcall_test_support::application::says(GRAPH, arguments)
}

/// A node: its process and URL.
struct Server(#[expect(dead_code, reason = "killed with its test")] Running, String);

impl Server {
    fn start(index: usize, nodes: &str) -> Self {
        let arguments = ["serve", "--index", &index.to_string(), "--nodes", nodes, "--persons", "50", "--posts", "100"];
        let mut process = Running::start(Command::new(GRAPH).args(arguments));
        let line = process.line();
        let (_, url) = line.split_once(": ").expect("a URL");
        Self(process, url.to_owned())
    }
}

#[test]
fn the_demo_compares_all_answers() {
    let said = graph(&["demo", "--calls", "5", "--persons", "60", "--posts", "200", "--comments", "600"]);
    let said = said.expect("it ends well");
    assert!(said.ends_with("all answers equal those of one process\n"), "{said}");
    assert!((1..=7).all(|n| said.contains(&format!("\nIs{n} "))), "{said}");
}

#[test]
fn servers_and_callers_can_be_processes() {
    let nodes = addresses(3);
    let servers: Vec<_> = (0..3).map(|index| Server::start(index, &nodes.join(","))).collect();
    let urls: Vec<_> = servers.iter().map(|server| &*server.1).collect();
    let urls = urls.join(",");
    for query in ["is1", "is2", "is3", "is4", "is5", "is6", "is7"] {
        let passed = graph(&["ask", "--servers", &urls, query, "3"]).expect("an answer");
        assert_eq!(graph(&["ask", "--servers", &urls, "--hub", query, "3"]).expect("an answer"), passed, "{query}");
    }
    let error = graph(&["ask", "--servers", &urls, "is1", "99"]).expect_err("nobody");
    assert_eq!(error, "graph: there is no person 99 here\n");
}

#[test]
fn a_server_that_is_none_of_the_nodes_says_so() {
    let error = graph(&["serve", "--index", "2", "--nodes", "127.0.0.1:0"]).expect_err("one node");
    assert_eq!(error, "graph: no node 2 among 1\n");
}
