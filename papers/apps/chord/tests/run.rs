//! The application as a user runs it. (It checks the owners itself, too.)

use std::process::Command;

use pathcall_test_support::application::{Running, addresses};

const CHORD: &str = env!("CARGO_BIN_EXE_chord");

fn chord(arguments: &[&str]) -> Result<String, String> {
    pathcall_test_support::application::says(CHORD, arguments)
}

/// A node: its process, name and URL.
struct Server(#[expect(dead_code, reason = "killed with its test")] Running, String, String);

impl Server {
    fn start(index: usize, nodes: &str) -> Self {
        let arguments = ["serve", "--index", &index.to_string(), "--nodes", nodes];
        let mut process = Running::start(Command::new(CHORD).args(arguments));
        let line = process.line();
        let (name, url) = line.split_once(": ").expect("a name and a URL");
        Self(process, name.to_owned(), url.to_owned())
    }
}

#[test]
fn the_demo_finds_all_owners() {
    let said = chord(&["demo", "--nodes", "8", "--calls", "20"]).expect("it ends well");
    assert!(said.starts_with("8 nodes, 20 look-ups, each found its owner\n"), "{said}");
}

#[test]
fn all_nodes_find_the_same_owner() {
    let nodes = addresses(4);
    let servers: Vec<_> = (0..4).map(|index| Server::start(index, &nodes.join(","))).collect();
    for key in ["a", "b", "c"] {
        let owners = servers.iter().map(|server| {
            let said = chord(&["find", "--server", &server.2, key]).expect("an owner");
            said.split_once(" after ").expect("hops").0.to_owned()
        });
        let owners: Vec<_> = owners.collect();
        assert!(owners.iter().all(|owner| *owner == owners[0]), "{key}: {owners:?}");
        assert!(servers.iter().any(|server| server.1 == owners[0]), "{key}: {owners:?}");
    }
}

#[test]
fn a_server_that_is_none_of_the_nodes_says_so() {
    let error = chord(&["serve", "--index", "1", "--nodes", "127.0.0.1:0"]).expect_err("one node");
    assert_eq!(error, "chord: no node 1 among 1\n");
}
