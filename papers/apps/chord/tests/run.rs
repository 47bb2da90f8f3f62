//! Tests of the command `chord`, which checks the owners itself, too.

use std::process::Command;

use pathcall_test_support::application::{ApplicationProcess, addresses};

const CHORD: &str = env!("CARGO_BIN_EXE_chord");

fn chord(arguments: &[&str]) -> Result<String, String> {
    pathcall_test_support::application::says(CHORD, arguments)
}

/// Running node: process, name and URL.
struct NodeProcess(#[expect(dead_code, reason = "killed with its test")] ApplicationProcess, String, String);

impl NodeProcess {
    fn start(index: usize, nodes: &str) -> Self {
        let arguments = ["serve", "--index", &index.to_string(), "--nodes", nodes];
        let mut process = ApplicationProcess::start(Command::new(CHORD).args(arguments));
        let line = process.line();
        let (name, url) = line.split_once(": ").expect("a name and a URL");
        Self(process, name.to_owned(), url.to_owned())
    }
}

#[test]
fn demo_finds_all_owners() {
    let printed = chord(&["demo", "--nodes", "8", "--calls", "20"]).expect("success");
    assert!(printed.starts_with("8 nodes, 20 look-ups, each found its owner\n"), "{printed}");
}

#[test]
fn all_nodes_find_same_owner() {
    let nodes = addresses(4);
    let servers: Vec<_> = (0..4).map(|index| NodeProcess::start(index, &nodes.join(","))).collect();
    for key in ["a", "b", "c"] {
        let owners = servers.iter().map(|server| {
            let printed = chord(&["find", "--server", &server.2, key]).expect("an owner");
            printed.split_once(" after ").expect("hops").0.to_owned()
        });
        let owners: Vec<_> = owners.collect();
        assert!(owners.iter().all(|owner| *owner == owners[0]), "{key}: {owners:?}");
        assert!(servers.iter().any(|server| server.1 == owners[0]), "{key}: {owners:?}");
    }
}

#[test]
fn invalid_node_index_is_reported() {
    let error = chord(&["serve", "--index", "1", "--nodes", "127.0.0.1:0"]).expect_err("one node");
    assert_eq!(error, "chord: invalid --index 1: the list has 1 nodes\n");
}
