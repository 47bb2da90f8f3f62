//! The application as a user runs it.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};

fn chain(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_chain")).args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// A process that has said that it is there.
struct Process(Child);

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_chain")).args(arguments).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.contains("http://"), "{line:?}");
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it was there");
    }
}

#[test]
fn the_demo_counts_each_update_once() {
    let said = chain(&["demo", "--calls", "10", "--lease", "1000"]).expect("it ends well");
    assert!(said.ends_with("21 updates, each took effect once\n"), "{said}");
}

#[test]
fn the_simulator_judges() {
    assert_eq!(
        chain(&["sim", "--seeds", "20"]).expect("linearizable"),
        "20 chains, and every history is linearizable\n"
    );
}

#[test]
fn a_node_that_is_killed_is_left_out() {
    // Ports that were free just now.
    let udp: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
    let tcp: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let node: Vec<_> = udp.iter().map(|it| it.local_addr().expect("bound").to_string()).collect();
    let listen: Vec<_> = tcp.iter().map(|it| it.local_addr().expect("bound").to_string()).collect();
    drop((udp, tcp));
    let members: Vec<_> = (0..3).map(|i| format!("{}/{}", node[i], listen[i])).collect();
    let (lease, master) = (["--lease", "1000"], format!("http://{}", listen[3]));
    let mut of_master = vec!["master", "--listen", &listen[3]];
    members.iter().for_each(|member| of_master.extend(["--node", member]));
    let _master = Process::start(&[&of_master[..], &lease].concat());
    let mut nodes: Vec<_> = (0..3)
        .map(|i| {
            let id = i.to_string();
            let own = ["serve", "--id", &id, "--node", &node[i], "--listen", &listen[i], "--master", &master];
            Some(Process::start(&[&own[..], &lease].concat()))
        })
        .collect();
    let ask = |what: &[&str]| chain(&[what, &["--master", &master, "--give-up", "40"], &lease].concat());
    assert_eq!(ask(&["put", "k", "a"]).expect("written"), "a\n");
    nodes[1] = None;
    assert_eq!(ask(&["append", "k", "b"]).expect("two are left"), "ab\n");
    nodes[2] = None;
    assert_eq!(ask(&["get", "k"]).expect("one is left"), "ab\n");
    assert_eq!(ask(&["get", "other"]).expect_err("nothing"), "chain: \"other\" has no value\n");
}

#[test]
fn bad_arguments_are_explained() {
    let error = chain(&["master", "--node", "127.0.0.1:1"]).expect_err("half a node");
    assert!(error.contains("as 127.0.0.1:7801/127.0.0.1:7901"), "{error}");
}
