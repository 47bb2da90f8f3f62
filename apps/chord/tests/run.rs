//! The application as a user runs it. (It checks the owners itself, too.)

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

fn chord(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_chord")).args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// A node: its process, name and URL.
struct Server(Child, String, String);

impl Server {
    fn start(index: usize, nodes: &str) -> Self {
        let arguments = ["serve", "--index", &index.to_string(), "--nodes", nodes];
        let child = Command::new(env!("CARGO_BIN_EXE_chord")).args(arguments).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let (name, url) = line.trim().split_once(": ").expect("a name and a URL");
        Self(child, name.to_owned(), url.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it was there");
    }
}

#[test]
fn the_demo_finds_all_owners() {
    let said = chord(&["demo", "--nodes", "8", "--calls", "20"]).expect("it ends well");
    assert!(said.starts_with("8 nodes, 20 look-ups, each found its owner\n"), "{said}");
}

#[test]
fn all_nodes_find_the_same_owner() {
    // Ports that were free just now.
    let sockets: Vec<_> = (0..4).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
    let nodes: Vec<_> = sockets.iter().map(|socket| socket.local_addr().expect("bound").to_string()).collect();
    drop(sockets);
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
