//! The application as a user runs it. (It checks the answers itself, too.)

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

fn graph(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_graph")).args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

struct Server(Child, String);

impl Server {
    fn start(index: usize, nodes: &str) -> Self {
        let index = index.to_string();
        let arguments = ["serve", "--index", &index, "--nodes", nodes, "--persons", "50", "--posts", "100"];
        let child = Command::new(env!("CARGO_BIN_EXE_graph")).args(arguments).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let (_, url) = line.trim().split_once(": ").expect("a URL");
        Self(child, url.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it was there");
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
    // Ports that were free just now.
    let sockets: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
    let nodes: Vec<_> = sockets.iter().map(|socket| socket.local_addr().expect("bound").to_string()).collect();
    drop(sockets);
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
