//! Test of an element that is dropped in its process while a server is connected.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pathcall_auth::{ConnectTarget as Called, ExpectedPeer, PartyRole};
use pathcall_live::element::{self, ElementSetup};
use pathcall_netfn::live;
use pathcall_netfn::scale::Topology;
use pathcall_p4::split::{SplitTarget, split};
use pathcall_p4::{Sources, compile};
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::{ServerHello, ServerReport, server_report};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

use pathcall_test_support::certificates::Authority;

use super::testbed::{DEFINES, LiveTestbed, function};
use crate::access;
use crate::isolation::LIMIT;

/// Variable with the topology's file, for the child process.
const ROLE: &str = "PATHCALL_TEST_TOPOLOGY";

/// Child process of the test: runs the element in the element's namespace.
#[test]
fn element() {
    let Ok(topology) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        assert!(!is_attached(), "another program is attached");
        let authority = Authority::new();
        let setup = setup(&topology, &authority);
        let (digest, server) = (setup.digest, setup.topology.servers[0].clone());
        let handle = element::start(setup).await.expect("the program starts");
        assert!(is_attached());
        let (words, printed) = mpsc::channel(1);
        let hello = ServerHello { name: server.name, digest, mac: server.mac.to_vec() };
        words.try_send(ServerReport { report: Some(server_report::Report::Hello(hello)) }).expect("room for one");
        access::call_all_rpcs(&authority, "Function/", handle.url(), [0; 2]).await;
        let known = authority.credentials(PartyRole::Server, "kept");
        let target =
            Called::new(handle.url(), Some(&known), ExpectedPeer::new(PartyRole::Element)).expect("an address");
        let mut client = FunctionClient::new(target.connect().await.expect("connection to the port"));
        let _tasks = client.serve(ReceiverStream::new(printed)).await.expect("the server is added");
        drop(handle);
        let gone = async {
            while is_attached() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, gone).await.expect("clean-up succeeds");
        // The server is still connected.
        drop(words);
    });
}

/// Starts an element in place of the testbed's, and drops it while a server is connected.
pub fn start_and_drop(testbed: &LiveTestbed) {
    let mut command = testbed.node.command(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", "live::dropped_element::element", "--nocapture"])
        .env(ROLE, &testbed.topology)
        .stdin(Stdio::null());
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

/// True if an XDP program is attached to an interface here.
fn is_attached() -> bool {
    let output = Command::new("ip").args(["-details", "link"]).output().expect("ip");
    String::from_utf8_lossy(&output.stdout).contains("xdp")
}

fn setup(topology: &str, authority: &Authority) -> ElementSetup {
    let mut sources = Sources::new(Vec::new());
    for define in DEFINES.iter().filter_map(|define| define.split_once('=')) {
        sources = sources.define(define.0, define.1);
    }
    let program = compile(&mut sources, Path::new(&function())).expect("a function");
    let split = split(&program, &SplitTarget { function: 1, ..SplitTarget::default() }).expect("two parts");
    let text = std::fs::read_to_string(topology).expect("a file");
    let topology = Topology::parse("topology", &text).expect("a topology");
    let config = live::Config::default();
    let listen = ([127, 0, 0, 1], 0).into();
    ElementSetup {
        program,
        split,
        digest: 1,
        topology,
        entries: Vec::new(),
        config,
        listen,
        switch: None,
        security: access::service_credentials(authority, PartyRole::Element),
    }
}
