//! The application as a user runs it: both ways, the same values (it checks each itself, too), with fewer messages
//! where the call is passed on; servers as processes, and one that is killed in the middle.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

const PROXY: &str = env!("CARGO_BIN_EXE_proxy");

fn run(arguments: &[&str]) -> Output {
    Command::new(PROXY).args(arguments).output().expect("the application starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// What a report says of a field.
fn field(report: &str, name: &str) -> String {
    let (_, rest) = report.split_once(&format!("\"{name}\":")).expect("the field");
    rest.chars().take_while(|c| !",}".contains(*c)).collect()
}

#[test]
fn both_ways_give_the_same_result_and_one_takes_fewer_messages() {
    let report = |way: &[&str]| {
        let output = run(&[&["demo", "--json", "--calls", "300"], way].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let (delegate, nested) = (report(&[]), report(&["--rpc"]));
    assert_eq!(field(&delegate, "digest"), field(&nested, "digest"));
    let messages = |report| field(report, "messages").parse::<u64>().expect("a number");
    // Three and four a call; a slow host may add pings.
    assert!(messages(&delegate) >= 900 && messages(&nested) >= 1200, "{delegate}{nested}");
    assert!(messages(&delegate) < messages(&nested), "{delegate}{nested}");
}

/// A process that is killed with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Servers as processes, on free ports; and the list of them.
fn servers() -> (Vec<Running>, String) {
    let names = ["middlebox", "backend-0", "backend-1"];
    let taken = names.map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let at = taken.each_ref().map(|taken| taken.local_addr().expect("bound"));
    let list: Vec<String> = names.iter().zip(at).map(|(name, at)| format!("{name}={at}")).collect();
    let list = list.join(",");
    drop(taken);
    let start = |name| {
        let mut server = Command::new(PROXY);
        server.args(["serve", "--name", name, "--servers", &list]).stdout(Stdio::piped());
        let mut server = Running(server.spawn().expect("starts"));
        let mut ready = String::new();
        BufReader::new(server.0.stdout.take().expect("piped")).read_line(&mut ready).expect("it says so");
        assert!(ready.starts_with("ready http://127.0.0.1:"), "{name}: {ready:?}");
        server
    };
    (names.map(start).into(), list)
}

/// Reads by servers of which a backend is killed when the first value is there.
fn killed(way: &[&str]) {
    let (mut running, list) = servers();
    let mut demo = Command::new(PROXY);
    demo.args(["demo", "--calls", "1000000", "--servers", &list]).args(way);
    let mut demo = Running(demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts"));
    let mut said = BufReader::new(demo.0.stdout.take().expect("piped"));
    let mut first = String::new();
    said.read_line(&mut first).expect("it says so");
    assert_eq!(first, "3 servers, the first value is there\n");
    running.pop();
    let status = demo.0.wait().expect("it ends");
    let (mut rest, mut why) = (String::new(), String::new());
    said.read_to_string(&mut rest).expect("text");
    demo.0.stderr.take().expect("piped").read_to_string(&mut why).expect("text");
    assert!(!status.success() && rest.is_empty(), "{status}: {rest}");
    assert!(why.starts_with("proxy: key \"user:") && !why.contains("expected"), "{why}");
}

#[test]
fn a_backend_that_is_killed_ends_the_call_that_is_passed_on() {
    killed(&[]);
}

#[test]
fn a_backend_that_is_killed_ends_the_nested_call() {
    killed(&["--rpc"]);
}
