//! An element in a process of ours, which drops it while a server is connected.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pathcall_auth::{Peer, Role, Target as Called};
use pathcall_function::scale::Topology;
use pathcall_function::split::{Target, split};
use pathcall_function::{Sources, compile, live};
use pathcall_live::element::{self, Setup};
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::{ServerHello, ServerWord, server_word};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

use pathcall_test_support::certificates::Authority;

use super::bed::{Bed, DEFINES, function};
use crate::access;
use crate::apart::LIMIT;

/// What a process is told: the topology's file.
const ROLE: &str = "PATHCALL_TEST_TOPOLOGY";

/// Not a test of its own: the process of an element, when another test has started it in the element's namespace.
#[test]
fn element() {
    let Ok(topology) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        assert!(!is_attached(), "something else is there");
        let authority = Authority::new();
        let setup = setup(&topology, &authority);
        let (digest, server) = (setup.digest, setup.topology.servers[0].clone());
        let handle = element::start(setup).await.expect("it starts");
        assert!(is_attached());
        let (words, said) = mpsc::channel(1);
        let hello = ServerHello { name: server.name, digest, mac: server.mac.to_vec() };
        words.try_send(ServerWord { word: Some(server_word::Word::Hello(hello)) }).expect("room for one");
        access::ask_all(&authority, "Function/", handle.url(), [0; 2]).await;
        let known = authority.credentials(Role::Server, "kept");
        let target = Called::new(handle.url(), Some(&known), Peer::new(Role::Element)).expect("an address");
        let mut client = FunctionClient::new(target.connect().await.expect("it listens"));
        let _tasks = client.serve(ReceiverStream::new(said)).await.expect("it takes the server");
        drop(handle);
        let gone = async {
            while is_attached() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, gone).await.expect("it goes");
        // The server has not left meanwhile.
        drop(words);
    });
}

/// Starts one in place of the bed's, and drops it while a server is connected.
pub fn start_and_drop(bed: &Bed) {
    let mut command = bed.node.command(std::env::current_exe().expect("this test"));
    command.args(["--exact", "live::forsaken::element", "--nocapture"]).env(ROLE, &bed.topology).stdin(Stdio::null());
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

/// Whether a program is at an interface here.
fn is_attached() -> bool {
    let output = Command::new("ip").args(["-details", "link"]).output().expect("ip");
    String::from_utf8_lossy(&output.stdout).contains("xdp")
}

fn setup(topology: &str, authority: &Authority) -> Setup {
    let mut sources = Sources::new(Vec::new());
    for define in DEFINES.iter().filter_map(|define| define.split_once('=')) {
        sources = sources.define(define.0, define.1);
    }
    let program = compile(&mut sources, Path::new(&function())).expect("a function");
    let split = split(&program, &Target { function: 1, ..Target::default() }).expect("two parts");
    let text = std::fs::read_to_string(topology).expect("a file");
    let topology = Topology::parse("topology", &text).expect("a topology");
    let config = live::Config::default();
    let listen = ([127, 0, 0, 1], 0).into();
    Setup {
        program,
        split,
        digest: 1,
        topology,
        entries: Vec::new(),
        config,
        listen,
        switch: None,
        security: access::keeper(authority, Role::Element),
    }
}
