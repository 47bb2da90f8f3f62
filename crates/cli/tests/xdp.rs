//! The element in the kernel as a user meets it: real processes on a testbed, the program attached to
//! the element's interfaces. Needs root, and the applications beside the command.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pathcall_test_support::process::until;
use pathcall_testbed::{Node, Testbed, root_tests};
use serde_json::Value;

use crate::PATHCALL;
use crate::apart::LIMIT;

const HOSTS: usize = 3;

/// A process that is killed when it is dropped, as by `kill -9`.
struct Process(Child);

impl Process {
    /// Starts it, and waits until it says that it is ready; what it said.
    fn start(mut command: Command) -> (Self, String) {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the command is built");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("piped");
        let process = Self(child);
        BufReader::new(stdout).read_line(&mut ready).expect("a line");
        assert!(ready.starts_with("ready"), "{ready:?}");
        (process, ready)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("a child of ours");
    }
}

/// A testbed with a controller on its element.
struct Bed {
    // The processes go before what they run on.
    element: Option<Process>,
    /// Whether the element is to work on frames in passing.
    inline: bool,
    _controller: Process,
    node: Node,
    bed: Testbed,
}

impl Bed {
    fn start(name: &str) -> Self {
        // With a wire in the middle of each link, which can be cut.
        let bed = Testbed::builder().name(&format!("{name}{}", std::process::id())).hosts(HOSTS).wired();
        let bed = bed.up().expect("a bed");
        let node = bed.element(1).expect("an element");
        let mut controller = node.command(PATHCALL);
        controller.args(["controller", "--insecure", "--listen", &format!("{}:7700", node.address())]);
        let (controller, _) = Process::start(controller);
        Self { element: None, inline: false, _controller: controller, node, bed }
    }

    fn url(&self) -> String {
        format!("http://{}:7700", self.node.address())
    }

    fn element_command(&self, interfaces: &[&str]) -> Command {
        let mut command = self.node.command(PATHCALL);
        let at = |port| format!("{}:{port}", self.node.address());
        command.args([
            "element",
            "--insecure",
            "--controller",
            &self.url(),
            "--data",
            &at(7702),
            "--control",
            &at(7701),
        ]);
        for interface in interfaces {
            command.args(["--xdp", interface]);
        }
        command
    }

    /// Starts the element anew.
    fn start_element(&mut self) -> String {
        self.element = None;
        let mut command = self.element_command(&["h1", "h2", "h3"]);
        command.args(self.inline.then_some("--inline"));
        let (element, ready) = Process::start(command);
        self.element = Some(element);
        ready
    }

    /// An application, its server on host 1, its clients on the others.
    fn application(&self, name: &str) -> Command {
        let program = Path::new(PATHCALL).with_file_name(name);
        assert!(program.is_file(), "{}: build it first (`cargo build --release -p {name}`)", program.display());
        let hosts: Vec<OsString> = (1..=HOSTS).map(|k| self.bed.host(k).expect("a host").file().into()).collect();
        let mut command = Command::new(program);
        command.args(["--json", "--controller", &self.url(), "--serve-at"]);
        command.arg(self.bed.host(1).expect("a host").address().to_string());
        command.arg("--namespaces").arg(hosts.join(",".as_ref())).stdin(Stdio::null());
        command
    }

    /// What the controller says.
    fn status(&self) -> Option<Value> {
        let mut status = self.node.command(PATHCALL);
        let output = status.args(["status", "--json", "--controller", &self.url()]).output().expect("it runs");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Waits until it says so.
    fn until(&self, so: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        while !self.status().is_some_and(|status| so(&status)) {
            assert!(began.elapsed() < LIMIT, "{:?}", self.status());
        }
    }

    /// Counters of the element that is up, by their names.
    fn counters(&self) -> Option<Value> {
        let status = self.status()?;
        Some(status["elements"].as_array()?.iter().find(|e| e["alive"] == true)?["counters"]["element"].clone())
    }

    /// The same; one whose control service did not answer just now does soon, on a machine that stood still.
    fn known_counters(&self) -> Value {
        until("an element", || self.counters())
    }

    /// Waits until the element has worked on so many frames since it started.
    fn until_frames(&self, frames: u64) {
        let began = Instant::now();
        while self.counters().and_then(|c| c["frames_out"].as_u64()).is_none_or(|out| out < frames) {
            assert!(began.elapsed() < LIMIT, "the element works on no frames: {:?}", self.counters());
            // The controller is asked: it tells nobody.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn report(output: Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[test]
fn applications_run_through_the_kernel() {
    if root_tests("applications_run_through_the_kernel") {
        run_applications(Bed::start("xdpapps"), "native");
    }
}

#[test]
fn applications_run_by_an_element_that_they_never_name() {
    if root_tests("applications_run_by_an_element_that_they_never_name") {
        run_applications(Bed { inline: true, ..Bed::start("xdpinline") }, "native, inline");
    }
}

fn run_applications(mut bed: Bed, mode: &str) {
    let ready = bed.start_element();
    for interface in ["h1", "h2", "h3"] {
        assert!(ready.contains(&format!("XDP on {interface} ({mode})")), "{ready}");
    }
    for name in ["training", "wordcount", "lock", "vote"] {
        let plain = report(
            Command::new(bed.application(name).get_program()).args(["--json", "--plain"]).output().expect("it runs"),
        );
        // Where the machine stands still, hosts do without the element for a while.
        until("the element adds little up", || {
            let ours = report(bed.application(name).output().expect("it runs"));
            assert_eq!(ours["digest"], plain["digest"], "{name}");
            println!("{name}: {ours}");
            ours["element_share"].as_f64().filter(|share| *share > 0.3)
        });
    }
    let counters = bed.known_counters();
    assert_eq!(counters["link_frames_in"], 0, "no frame came to user space: {counters}");
    let count = |name: &str| counters[name].as_u64().expect("a count");
    assert!(count("frames_in") > 1_000, "{counters}");
    // Multicasts to nobody yet are user space's.
    assert!(count("xdp_slow") * 100 < count("frames_in"), "nor did they leave by it: {counters}");
    // What the servers ask of registers is addressed to the element.
    let passing = count("xdp_inline") * 100 / count("frames_in");
    assert!(if bed.inline { passing >= 60 } else { passing == 0 }, "{passing} % on their way to others: {counters}");
}

#[test]
fn calls_are_cloned_in_the_kernel() {
    if !root_tests("calls_are_cloned_in_the_kernel") {
        return;
    }
    let mut bed = Bed::start("xdpclone");
    bed.start_element();
    let kv = |host: usize, args: &[&str]| {
        let program = Path::new(PATHCALL).with_file_name("kv");
        assert!(program.is_file(), "{}: build it first (`cargo build --release -p kv`)", program.display());
        let mut command = bed.bed.host(host).expect("a host").command(program);
        command.args(args);
        command
    };
    let url = bed.url();
    let serve = |host: usize| {
        let listen = format!("{}:7800", bed.bed.host(host).expect("a host").address());
        let (server, ready) = Process::start(kv(host, &["serve", "--listen", &listen, "--controller", &url]));
        (server, ready.trim_start_matches("ready ").trim().to_owned())
    };
    let servers = [serve(1), serve(2)];
    bed.until(|status| {
        let pool = &status["pools"][0];
        pool["servers"].as_array().is_some_and(|servers| servers.len() == 2) && pool["element"] == 1
    });
    // The values are held against what was stored.
    let read = ["demo", "--json", "--pool", &servers[0].1, "--servers", "2", "--load", "0.1", "--seconds", "1"];
    // Where the machine is busy its servers are, too: two that are idle are seen in one of several runs.
    until("few calls are cloned", || {
        let report = report(kv(3, &read).output().expect("it runs"));
        println!("{report}");
        report["ways"][0]["extra"].as_f64().filter(|share| *share > 0.3)
    });
    let status = bed.status().expect("a status");
    let pool = &status["pools"][0];
    let element = &status["elements"][0]["counters"];
    let steered = &element["applications"][pool["gaid"].to_string()];
    let count = |counters: &Value, name: &str| counters[name].as_u64().expect("a count");
    let (requests, clones) = (count(steered, "requests"), count(steered, "clones"));
    let (replies, filtered) = (count(steered, "replies"), count(steered, "filtered"));
    // A clone that finds others waiting is dropped, and has no answer to be stopped; a call that is asked again, on a
    // machine with other work, has more than two.
    assert!(clones > 0 && clones <= requests && filtered > 0 && filtered < replies, "{steered}");
    let (slow, frames) = (count(&element["element"], "xdp_slow"), count(&element["element"], "frames_in"));
    assert!(
        slow * 20 < frames && element["element"]["link_frames_in"] == slow,
        "all but a few in the kernel: {element}"
    );
}

#[test]
fn the_demo_runs_through_the_kernel() {
    if !root_tests("the_demo_runs_through_the_kernel") {
        return;
    }
    let name = format!("xdpdemo{}", std::process::id());
    let mut up = Command::new(PATHCALL);
    up.args(["testbed", "up", "--name", &name, "--hosts", "6", "--", PATHCALL, "demo", "--testbed", &name, "--xdp"]);
    let output = up.stdin(Stdio::null()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    // It fails when results differ.
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let (equal, methods) = (said.matches("  equal  ").count(), ["Like ", "Get ", "Thumbnail ", "Find "]);
    assert_eq!(equal, 14, "five applications on two paths, four methods of a service on one: {said}");
    assert!(methods.iter().all(|method| said.contains(method)), "{said}");
}

#[test]
fn the_element_is_killed_and_loaded_again_in_mid_training() {
    if root_tests("the_element_is_killed_and_loaded_again_in_mid_training") {
        kill_in_mid_training(Bed::start("xdpkill"));
    }
}

#[test]
fn an_element_on_the_way_is_killed_and_what_it_met_reaches_the_server_bare() {
    if root_tests("an_element_on_the_way_is_killed_and_what_it_met_reaches_the_server_bare") {
        let bed = kill_in_mid_training(Bed { inline: true, ..Bed::start("xdpbare") });
        let counters = bed.known_counters();
        let count = |name: &str| counters[name].as_u64().expect("a count");
        assert!(count("xdp_inline") * 2 > count("frames_in"), "the last one is on the way, too: {counters}");
    }
}

/// Trainings, one after the other for as long as they are wanted. Each holds its loss curve against one worker's, bit for
/// bit.
struct Trainings {
    wanted: Arc<AtomicBool>,
    all: JoinHandle<()>,
}

impl Trainings {
    fn start(bed: &Bed) -> Self {
        let mut training = bed.application("training");
        training.args(["--epochs", "200"]);
        let wanted = Arc::new(AtomicBool::new(true));
        let more = Arc::clone(&wanted);
        let all = std::thread::spawn(move || {
            while more.load(Ordering::Relaxed) {
                report(training.output().expect("it runs"));
            }
        });
        Self { wanted, all }
    }

    /// The last of them ends, and all were right.
    fn finish(self) {
        self.wanted.store(false, Ordering::Relaxed);
        self.all.join().expect("each was right");
    }
}

fn kill_in_mid_training(mut bed: Bed) -> Bed {
    bed.start_element();
    let trainings = Trainings::start(&bed);
    for _ in 0..2 {
        bed.until_frames(500);
        bed.start_element();
    }
    bed.until_frames(500);
    // A cable that is out for a moment: what was on it is sent again.
    let link = bed.bed.link(2).expect("a link");
    link.cut().expect("a cut");
    link.mend().expect("a link");
    let before = bed.known_counters()["frames_out"].as_u64().expect("a count");
    bed.until_frames(before + 500);
    trainings.finish();
    bed
}

#[test]
fn what_a_user_gets_wrong_is_said_in_one_line() {
    if !root_tests("what_a_user_gets_wrong_is_said_in_one_line") {
        return;
    }
    let mut bed = Bed::start("xdpwrong");
    let said = |mut command: Command| {
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        // But for what is said of a network that is trusted.
        let text = String::from_utf8(output.stderr).expect("text");
        text.lines()
            .filter(|line| !line.contains("--insecure is given"))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    assert_eq!(
        said(bed.element_command(&["nowhere"])),
        "pathcall: there is no interface nowhere here (`ip link` names them)\n"
    );
    let small = bed.node.command("ip").args(["link", "set", "h3", "mtu", "1300"]).status().expect("iproute2");
    assert!(small.success());
    assert_eq!(
        said(bed.element_command(&["h3"])),
        "pathcall: interface h3 has an MTU of 1300 bytes, frames take 1400: `ip link set h3 mtu 1400`\n"
    );
    let large = bed.node.command("ip").args(["link", "set", "h3", "mtu", "1500"]).status().expect("iproute2");
    assert!(large.success());
    bed.start_element();
    let mut second = bed.node.command(PATHCALL);
    let at = |port| format!("{}:{port}", bed.node.address());
    second.args(["element", "--insecure", "--controller", &bed.url(), "--data", &at(7712)]);
    second.args(["--control", &at(7711), "--xdp", "h1"]);
    let said_of_second = said(second);
    assert!(said_of_second.starts_with("pathcall: interface h1 carries XDP program "), "{said_of_second}");
    assert!(said_of_second.ends_with(" already: detach it first (`ip link set h1 xdp off`)\n"), "{said_of_second}");

    // Where anybody may run it.
    let place = std::env::temp_dir().join(format!("pathcall-xdp-{}", std::process::id()));
    // By another process: a test that forks while this one has it open for writing would keep it from running.
    let copied = Command::new("cp").arg(PATHCALL).arg(&place).status();
    assert!(copied.expect("cp").success());
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).expect("anybody may");
    let mut unprivileged = Command::new(&place);
    unprivileged.args(["element", "--data", "127.0.0.1:0", "--control", "127.0.0.1:0", "--xdp", "lo"]);
    let said = said({
        unprivileged.uid(65534).gid(65534);
        unprivileged
    });
    std::fs::remove_file::<PathBuf>(place).expect("there is a copy");
    assert_eq!(
        said,
        "pathcall: no permission to load the XDP program: run as root, or with CAP_BPF and CAP_NET_ADMIN\n"
    );
}
