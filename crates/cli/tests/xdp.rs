//! Tests of the element in the kernel: real processes on a testbed, the XDP program attached to the element's
//! interfaces. Needs root, and the applications beside the command.

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
use pathcall_testbed::{Testbed, TestbedNode, root_tests};
use serde_json::Value;

use crate::PATHCALL;
use crate::isolation::LIMIT;

const HOSTS: usize = 3;

/// Process that is killed on drop, as by `kill -9`.
pub(crate) struct Process(Child);

impl Process {
    /// Starts the process and waits until it reports `ready`. Returns that line.
    pub(crate) fn start(mut command: Command) -> (Self, String) {
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
        self.0.kill().and_then(|()| self.0.wait()).expect("child process");
    }
}

/// Command of a controller on a host of a testbed.
pub(crate) fn controller_command(node: &TestbedNode) -> Command {
    let mut controller = node.command(PATHCALL);
    controller.args(["controller", "--insecure", "--listen", &format!("{}:7700", node.address())]);
    controller
}

/// Address of that controller.
pub(crate) fn controller_url(node: &TestbedNode) -> String {
    format!("http://{}:7700", node.address())
}

/// Status of the controller on a host.
pub(crate) fn status(node: &TestbedNode) -> Option<Value> {
    let mut status = node.command(PATHCALL);
    let output = status.args(["status", "--json", "--controller", &controller_url(node)]).output();
    serde_json::from_slice(&output.expect("the program runs").stdout).ok()
}

/// Waits until the status meets a condition.
pub(crate) fn until_status(node: &TestbedNode, condition: impl Fn(&Value) -> bool) {
    let began = Instant::now();
    while !status(node).is_some_and(|status| condition(&status)) {
        assert!(began.elapsed() < LIMIT, "{:?}", status(node));
    }
}

/// Testbed with a controller on its element.
struct ElementTestbed {
    // Processes are dropped before the namespaces that they run in.
    element: Option<Process>,
    /// True if the element processes frames in transit.
    inline: bool,
    _controller: Process,
    node: TestbedNode,
    bed: Testbed,
}

impl ElementTestbed {
    fn start(name: &str) -> Self {
        // Each link has a wire in its middle, which can be cut.
        let bed = Testbed::builder().name(&format!("{name}{}", std::process::id())).hosts(HOSTS).wired();
        let bed = bed.up().expect("a bed");
        let node = bed.element(1).expect("an element");
        let (controller, _) = Process::start(controller_command(&node));
        Self { element: None, inline: false, _controller: controller, node, bed }
    }

    fn url(&self) -> String {
        controller_url(&self.node)
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

    /// Restarts the element.
    fn start_element(&mut self) -> String {
        self.element = None;
        let mut command = self.element_command(&["h1", "h2", "h3"]);
        command.args(self.inline.then_some("--inline"));
        let (element, ready) = Process::start(command);
        self.element = Some(element);
        ready
    }

    /// Command of an application, with its server on host 1 and its clients on the others.
    fn application(&self, name: &str) -> Command {
        let program = Path::new(PATHCALL).with_file_name(name);
        assert!(program.is_file(), "{}: build it first (`cargo build --release -p {name}`)", program.display());
        let hosts: Vec<OsString> = (1..=HOSTS).map(|k| self.bed.host(k).expect("a host").file().into()).collect();
        let mut command = Command::new(program);
        // Parties on different hosts: training shows that the automatic path is the element's. Additions have a choice.
        if name != "training" {
            command.args(["--path", "element"]);
        }
        command.args(["--json", "--controller", &self.url(), "--serve-at"]);
        command.arg(self.bed.host(1).expect("a host").address().to_string());
        command.arg("--namespaces").arg(hosts.join(",".as_ref())).stdin(Stdio::null());
        command
    }

    fn status(&self) -> Option<Value> {
        status(&self.node)
    }

    fn until(&self, condition: impl Fn(&Value) -> bool) {
        until_status(&self.node, condition);
    }

    /// Counters of the running element, by name.
    fn counters(&self) -> Option<Value> {
        let status = self.status()?;
        Some(status["elements"].as_array()?.iter().find(|e| e["alive"] == true)?["counters"]["element"].clone())
    }

    /// Counters of the element. Retries while the control service of a machine that stood still does not answer.
    fn known_counters(&self) -> Value {
        until("an element", || self.counters())
    }

    /// Waits until the element has processed this many frames since its start.
    fn until_frames(&self, frames: u64) {
        let began = Instant::now();
        while self.counters().and_then(|c| c["frames_out"].as_u64()).is_none_or(|out| out < frames) {
            assert!(began.elapsed() < LIMIT, "the element works on no frames: {:?}", self.counters());
            // The controller is polled: it sends no notifications.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(crate) fn report(output: Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[test]
fn applications_run_through_the_kernel_element() {
    if root_tests("applications_run_through_the_kernel_element") {
        run_applications(ElementTestbed::start("xdpapps"), "native");
    }
}

#[test]
fn applications_run_by_inline_element() {
    if root_tests("applications_run_by_inline_element") {
        run_applications(ElementTestbed { inline: true, ..ElementTestbed::start("xdpinline") }, "native, inline");
    }
}

fn run_applications(mut bed: ElementTestbed, mode: &str) {
    let ready = bed.start_element();
    for interface in ["h1", "h2", "h3"] {
        assert!(ready.contains(&format!("XDP on {interface} ({mode})")), "{ready}");
    }
    for name in ["training", "wordcount", "lock", "vote"] {
        let plain = report(
            Command::new(bed.application(name).get_program())
                .args(["--json", "--plain"])
                .output()
                .expect("the program runs"),
        );
        // Where the machine stands still, hosts work without the element for a while.
        until("the element processes few values", || {
            let ours = report(bed.application(name).output().expect("the program runs"));
            assert_eq!(ours["digest"], plain["digest"], "{name}");
            println!("{name}: {ours}");
            ours["element_share"].as_f64().filter(|share| *share > 0.3)
        });
    }
    let counters = bed.known_counters();
    assert_eq!(counters["link_frames_in"], 0, "no frame came to user space: {counters}");
    let count = |name: &str| counters[name].as_u64().expect("a count");
    assert!(count("frames_in") > 1_000, "{counters}");
    // User space handles multicasts to groups without members yet.
    assert!(count("xdp_slow") * 100 < count("frames_in"), "frames left through user space: {counters}");
    // The servers' commands to registers are addressed to the element.
    let passing = count("xdp_inline") * 100 / count("frames_in");
    assert!(if bed.inline { passing >= 60 } else { passing == 0 }, "{passing} % on their way to others: {counters}");
}

#[test]
fn calls_are_cloned_in_kernel() {
    if !root_tests("calls_are_cloned_in_kernel") {
        return;
    }
    let mut bed = ElementTestbed::start("xdpclone");
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
    // The application checks the values that it reads.
    let read = ["demo", "--json", "--pool", &servers[0].1, "--servers", "2", "--load", "0.1", "--seconds", "1"];
    // On a busy machine servers are busy, too: the element sees two idle ones in one of several runs.
    until("few calls are cloned", || {
        let report = report(kv(3, &read).output().expect("the program runs"));
        println!("{report}");
        report["ways"][0]["extra"].as_f64().filter(|share| *share > 0.3)
    });
    let status = bed.status().expect("a status");
    let pool = &status["pools"][0];
    let element = &status["elements"][0]["counters"];
    let pool_stats = &element["applications"][pool["gaid"].to_string()];
    let count = |counters: &Value, name: &str| counters[name].as_u64().expect("a count");
    let (requests, clones) = (count(pool_stats, "requests"), count(pool_stats, "clones"));
    let (replies, filtered) = (count(pool_stats, "replies"), count(pool_stats, "filtered"));
    // A server drops a clone while others wait, so no answer needs to be filtered. A call that is repeated, on a busy
    // machine, has more than two answers.
    assert!(clones > 0 && clones <= requests && filtered > 0 && filtered < replies, "{pool_stats}");
    let (slow, frames) = (count(&element["element"], "xdp_slow"), count(&element["element"], "frames_in"));
    assert!(
        slow * 20 < frames && element["element"]["link_frames_in"] == slow,
        "all but a few in the kernel: {element}"
    );
}

#[test]
fn demo_runs_through_kernel() {
    if !root_tests("demo_runs_through_kernel") {
        return;
    }
    let name = format!("xdpdemo{}", std::process::id());
    let mut up = Command::new(PATHCALL);
    up.args(["testbed", "up", "--name", &name, "--hosts", "6", "--", PATHCALL, "demo", "--testbed", &name, "--xdp"]);
    let output = up.stdin(Stdio::null()).output().expect("the program runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    // The demo fails when results differ.
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let (equal, methods) = (printed.matches("  equal  ").count(), ["Like ", "Get ", "Thumbnail ", "Find "]);
    assert_eq!(equal, 19, "five applications on three paths, four methods of a service on one: {printed}");
    assert!(methods.iter().all(|method| printed.contains(method)), "{printed}");
}

#[test]
fn training_survives_element_kill() {
    if root_tests("training_survives_element_kill") {
        kill_in_mid_training(ElementTestbed::start("xdpkill"));
    }
}

#[test]
fn training_survives_inline_element_kill() {
    if root_tests("training_survives_inline_element_kill") {
        let bed = kill_in_mid_training(ElementTestbed { inline: true, ..ElementTestbed::start("xdpbare") });
        let counters = bed.known_counters();
        let count = |name: &str| counters[name].as_u64().expect("a count");
        assert!(count("xdp_inline") * 2 > count("frames_in"), "the restarted element is not inline: {counters}");
    }
}

/// Trainings in sequence for as long as requested. Each compares its loss curve with one worker's, bit for bit.
struct Trainings {
    wanted: Arc<AtomicBool>,
    all: JoinHandle<()>,
}

impl Trainings {
    fn start(bed: &ElementTestbed) -> Self {
        let mut training = bed.application("training");
        training.args(["--epochs", "200"]);
        let wanted = Arc::new(AtomicBool::new(true));
        let more = Arc::clone(&wanted);
        let all = std::thread::spawn(move || {
            while more.load(Ordering::Relaxed) {
                report(training.output().expect("the program runs"));
            }
        });
        Self { wanted, all }
    }

    /// Waits for the last training, and checks that all were correct.
    fn finish(self) {
        self.wanted.store(false, Ordering::Relaxed);
        self.all.join().expect("correct trainings");
    }
}

fn kill_in_mid_training(mut bed: ElementTestbed) -> ElementTestbed {
    bed.start_element();
    let trainings = Trainings::start(&bed);
    for _ in 0..2 {
        bed.until_frames(500);
        bed.start_element();
    }
    bed.until_frames(500);
    // Cable cut for a moment: frames on it are retransmitted.
    let link = bed.bed.link(2).expect("a link");
    link.cut().expect("a cut");
    link.mend().expect("a link");
    let before = bed.known_counters()["frames_out"].as_u64().expect("a count");
    bed.until_frames(before + 500);
    trainings.finish();
    bed
}

#[test]
fn user_errors_are_one_line() {
    if !root_tests("user_errors_are_one_line") {
        return;
    }
    let mut bed = ElementTestbed::start("xdpwrong");
    let printed = |mut command: Command| {
        let output = command.output().expect("the program runs");
        assert_eq!(output.status.code(), Some(1));
        // Except for the warning about a trusted network.
        let text = String::from_utf8(output.stderr).expect("text");
        text.lines()
            .filter(|line| !line.contains("because of --insecure"))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    assert_eq!(
        printed(bed.element_command(&["nowhere"])),
        "pathcall: there is no interface nowhere here (`ip link` names them)\n"
    );
    let small = bed.node.command("ip").args(["link", "set", "h3", "mtu", "1300"]).status().expect("iproute2");
    assert!(small.success());
    assert_eq!(
        printed(bed.element_command(&["h3"])),
        "pathcall: interface h3 has an MTU of 1300 bytes, frames take 1400: `ip link set h3 mtu 1400`\n"
    );
    let large = bed.node.command("ip").args(["link", "set", "h3", "mtu", "1500"]).status().expect("iproute2");
    assert!(large.success());
    bed.start_element();
    let mut second = bed.node.command(PATHCALL);
    let at = |port| format!("{}:{port}", bed.node.address());
    second.args(["element", "--insecure", "--controller", &bed.url(), "--data", &at(7712)]);
    second.args(["--control", &at(7711), "--xdp", "h1"]);
    let said_of_second = printed(second);
    assert!(said_of_second.starts_with("pathcall: interface h1 carries XDP program "), "{said_of_second}");
    assert!(said_of_second.ends_with(" already: detach it first (`ip link set h1 xdp off`)\n"), "{said_of_second}");

    // Location where any user may run it.
    let place = std::env::temp_dir().join(format!("pathcall-xdp-{}", std::process::id()));
    // Copied by another process: a test that forks while this process has the file open for writing would keep it from
    // running.
    let copied = Command::new("cp").arg(PATHCALL).arg(&place).status();
    assert!(copied.expect("cp").success());
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).expect("executable by all users");
    let mut unprivileged = Command::new(&place);
    unprivileged.args(["element", "--data", "127.0.0.1:0", "--control", "127.0.0.1:0", "--xdp", "lo"]);
    let printed = printed({
        unprivileged.uid(65534).gid(65534);
        unprivileged
    });
    std::fs::remove_file::<PathBuf>(place).expect("the copy exists");
    assert_eq!(
        printed,
        "pathcall: no permission to load the XDP program: run as root, or with CAP_BPF and CAP_NET_ADMIN\n"
    );
}
