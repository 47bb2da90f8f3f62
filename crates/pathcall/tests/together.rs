//! All abilities together, as processes on the loopback: one service whose methods are mapped, cloned, passed on and
//! placed, called by several callers at once, while one of its servers and the element are killed and started again.
//! Callers hold each answer, and all likes, against what they have to be.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PATHCALL: &str = env!("CARGO_BIN_EXE_pathcall");
/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(120);

/// A process that is killed when it is dropped, as by `kill -9`.
struct Process(Child);

impl Process {
    /// Starts it, and waits until it says that it is ready: the line.
    fn start(program: &Path, args: &[&str]) -> (Self, String) {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the command is built");
        let stdout = child.stdout.take().expect("piped");
        let process = Self(child);
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready).expect("a line");
        assert!(ready.starts_with("ready"), "{args:?}: {ready:?}");
        (process, ready)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Controller and element at addresses that stay the same, and the service's three servers.
struct House {
    ports: [u16; 3],
    _controller: Process,
    element: Option<Process>,
    servers: Vec<(&'static str, Process)>,
    front: String,
}

impl House {
    fn start() -> Self {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let data = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let [controller, control] = listeners.each_ref().map(|l| l.local_addr().expect("bound").port());
        let ports = [controller, control, data.local_addr().expect("bound").port()];
        drop((listeners, data));
        let listen = format!("127.0.0.1:{controller}");
        let (controller, _) = Process::start(Path::new(PATHCALL), &["controller", "--listen", &listen]);
        let mut house =
            Self { ports, _controller: controller, element: None, servers: Vec::new(), front: String::new() };
        house.start_element();
        house.front = house.serve("front");
        for name in ["index", "archive"] {
            house.serve(name);
        }
        house.until("three servers, by the element", |status| {
            let pool = &status["pools"][0];
            pool["servers"].as_array().is_some_and(|servers| servers.len() == 3) && pool["element"] != 0
        });
        house
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    fn start_element(&mut self) {
        let [_, control, data] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        let args = ["element", "--controller", &self.url(), "--control", &control, "--data", &data];
        self.element = Some(Process::start(Path::new(PATHCALL), &args).0);
    }

    /// Starts a server; where it is.
    fn serve(&mut self, name: &'static str) -> String {
        let (process, ready) = Process::start(&photos(), &["serve", name, "--controller", &self.url()]);
        self.servers.push((name, process));
        ready.trim_start_matches("ready ").trim().to_owned()
    }

    fn kill(&mut self, name: &str) {
        self.servers.retain(|(known, _)| *known != name);
    }

    fn status(&self) -> Value {
        let output = Command::new(PATHCALL).args(["status", "--json", "--controller", &self.url()]).output();
        serde_json::from_slice(&output.expect("it runs").stdout).unwrap_or_default()
    }

    /// Waits until the controller says so.
    fn until(&self, what: &str, so: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        while !so(&self.status()) {
            assert!(began.elapsed() < LIMIT, "{what}: {:#}", self.status());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the element has worked on so many more frames.
    fn until_frames(&self, more: u64) {
        let frames = |status: &Value| status["elements"][0]["counters"]["element"]["frames_in"].as_u64();
        let before = frames(&self.status()).unwrap_or(0);
        self.until("frames at the element", |status| frames(status).is_some_and(|frames| frames >= before + more));
    }
}

fn photos() -> PathBuf {
    let program = Path::new(PATHCALL).with_file_name("photos");
    assert!(program.is_file(), "{}: build it first (`cargo build -p photos`)", program.display());
    program
}

/// Callers that go on until they are told.
struct Calling(Process);

impl Calling {
    /// They have had answers when this returns.
    fn start(front: &str) -> Self {
        let mut command = Command::new(photos());
        command.args(["demo", "--front", front, "--callers", "3", "--calls", "20", "--until-told", "--json"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut calling = Self(Process(child.expect("it is built")));
        let mut said = String::new();
        let stderr = calling.0.0.stderr.as_mut().expect("piped");
        BufReader::with_capacity(1, stderr).read_line(&mut said).expect("a line");
        assert_eq!(said, "under way\n");
        calling
    }

    /// What came of them.
    fn end(mut self) -> Value {
        let child = &mut self.0.0;
        drop(child.stdin.take());
        let (mut said, mut why) = (String::new(), String::new());
        child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        child.stderr.take().expect("piped").read_to_string(&mut why).expect("text");
        assert!(child.wait().expect("a child of ours").success(), "{why}");
        serde_json::from_str(&said).expect("a report")
    }
}

#[test]
fn every_answer_is_right_while_a_server_and_the_element_are_killed_and_come_back() {
    let mut house = House::start();
    let calling = Calling::start(&house.front);
    house.until_frames(300);

    // The last of a search, which is also one of three that reads and thumbnails go to.
    house.kill("archive");
    house.until_frames(300);
    house.serve("archive");
    house.until_frames(300);

    house.element = None;
    house.start_element();
    house.until_frames(300);

    let report = calling.end();
    let again = report["again"].as_u64().expect("a count");
    println!("{} calls, {again} of them made again: {report:#}", report["calls"]);
    let share = |name: &str| report[name].as_f64().expect("a share");
    assert!(share("likes_in_element") > 0.0 && share("cloned") > 0.0, "{report:#}");
    for method in report["methods"].as_array().expect("methods") {
        assert!(method["calls"].as_u64() >= Some(60), "{method:#}");
    }
    let made = ["cpu", "acc"].map(|role| report["thumbnails"][role].as_u64().expect("a count"));
    assert_eq!(made.iter().sum::<u64>(), report["methods"][2]["calls"].as_u64().expect("a count"), "{report:#}");
    assert!(report["trace"].as_str().is_some_and(|trace| trace.contains("/Fetch (")), "{report:#}");
}
