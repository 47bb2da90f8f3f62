//! Tests of `pathcall testbed`: construction, use, capture and clean-up. Need root.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pathcall_testbed::{list_testbeds, root_tests};

/// Path of the command.
const TESTBED: &str = env!("CARGO_BIN_EXE_pathcall-testbed");
/// Time limit, longer than a testbed takes to go or a frame to arrive.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(180);

fn testbed(arguments: &[&str]) -> Command {
    let mut command = Command::new(TESTBED);
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    testbed(arguments).output().expect("the command is built")
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Unique name for a test.
fn name(test: &str) -> String {
    format!("{test}{}", std::process::id())
}

/// Takes down a testbed that a failed test has left.
struct Leftover<'a>(&'a str);

impl Drop for Leftover<'_> {
    fn drop(&mut self) {
        if is_up(self.0) {
            let output = output(&["down", "--name", self.0]);
            eprintln!("the bed was left: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

fn is_up(name: &str) -> bool {
    list_testbeds().expect("names of namespaces").contains_key(name)
}

#[test]
fn missing_root_is_reported_in_one_line() {
    // Location where any user may run the command, if this test runs as root.
    let place = std::env::temp_dir().join(name("pathcall-testbed"));
    // Copied by another process: a test that forks while this process has the file open for writing would keep it from
    // running.
    let copied = Command::new("cp").arg(TESTBED).arg(&place).status();
    assert!(copied.expect("cp").success());
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).expect("executable by all users");
    let mut command = Command::new(&place);
    command.arg("up");
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if is_root {
        command.uid(65534).gid(65534);
    }
    let output = command.output();
    std::fs::remove_file(&place).expect("the copy exists");
    let output = output.expect("the program runs");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed, "pathcall: a testbed needs root (it makes network namespaces): run this with sudo\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn user_errors_are_one_line() {
    for (arguments, printed) in [
        (&["up", "--name", "No-such"][..], "invalid testbed name \"No-such\" (1 to 20 lower-case letters and digits)"),
        (&["up", "--rate", "fast"], "expected a rate from 16kbit to 1000gbit, as in 1.5gbit, got \"fast\""),
        (&["up", "--loss", "0.1"], "expected a share from 0% to 100%, as in 0.1%, got \"0.1\""),
        (&["up", "--delay", "5"], "expected a delay from 0ms to 1s, as in 2.5ms or 300us, got \"5\""),
        (&["up", "--delay", "0ms", "--reorder", "1%"], "reordering needs a delay: set --delay as well"),
        (&["up", "--mtu", "100"], "invalid MTU 100 (576 to 65535 bytes)"),
        (&["up", "--hosts", "65"], "65 is not in 1..=64"),
        (&["run", "x", "--", "true"], "invalid node \"x\" (a host as in 1 or h1, or an element as in e1 or e2)"),
        (&["run", "--name", "nosuchbed", "1", "--", "true"], "testbed nosuchbed does not exist: build it with "),
        (&["down", "--name", "nosuchbed"], "testbed nosuchbed does not exist: build it with "),
    ] {
        let output = output(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(printed) && !output.status.success(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn testbed_is_built_used_captured_and_taken_down() {
    if !root_tests("testbed_is_built_used_captured_and_taken_down") {
        return;
    }
    let name = &name("used");
    let _leftover = Leftover(name);
    let printed = succeeds(&["up", "--name", name, "--hosts", "2", "--rate", "1gbit", "--loss", "0.1%"]);
    assert!(printed.starts_with(&format!("ready: testbed {name}\n")), "{printed}");
    assert!(printed.contains(&format!("h2    10.77.2.2  pc-{name}-h2\n")), "{printed}");
    assert!(succeeds(&["list"]).contains(&format!("{name}  e1 h1 h2\n")));
    let exit = output(&["run", "--name", name, "2", "--", "sh", "-c", "exit 7"]).status;
    assert_eq!(exit.code(), Some(7));

    let carrier = || succeeds(&["run", "--name", name, "1", "--", "cat", "/sys/class/net/eth0/carrier"]);
    succeeds(&["cut", "--name", name, "1"]);
    assert_eq!(carrier(), "0\n");
    succeeds(&["mend", "--name", name, "1"]);
    assert_eq!(carrier(), "1\n");

    let file = std::env::temp_dir().join(format!("{name}.pcap"));
    let path = file.to_str().expect("text");
    let capture = ["capture", "--name", name, "2", "-w", path, "--", "-c", "1", "udp and dst port 9"];
    let mut capture = testbed(&capture).stderr(Stdio::piped()).spawn().expect("the command is built");
    let mut stderr = BufReader::new(capture.stderr.take().expect("piped"));
    let mut ready = String::new();
    while !ready.contains("listening on eth0") {
        assert!(stderr.read_line(&mut ready).expect("text") > 0, "tcpdump ended: {ready}");
    }
    // bash sends datagrams: no other program is needed.
    let datagram = "echo across the element > /dev/udp/10.77.2.2/9";
    let began = Instant::now();
    while capture.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < DATAGRAM_TIMEOUT, "no frame is captured");
        // Repeated, since the link may lose a datagram.
        succeeds(&["run", "--name", name, "1", "--", "bash", "-c", datagram]);
    }
    let frames = std::fs::read(&file).expect("a capture");
    std::fs::remove_file(&file).expect("a capture");
    assert!(frames.windows(18).any(|window| window == b"across the element"), "{} bytes", frames.len());

    succeeds(&["down", "--name", name]);
    assert!(!is_up(name));
}

#[test]
fn testbed_with_delays_keeps_its_process() {
    if !root_tests("testbed_with_delays_keeps_its_process") {
        return;
    }
    let name = &name("late");
    let _leftover = Leftover(name);
    let printed = succeeds(&["up", "--name", name, "--hosts", "1", "--delay", "1ms", "--reorder", "1%"]);
    assert!(printed.ends_with(&format!("pathcall testbed down --name {name}\n")), "{printed}");
    assert!(is_up(name));
    let owner = Command::new("ip").args(["netns", "pids", &format!("pc-{name}-w")]).output().expect("ip");
    let owner = String::from_utf8(owner.stdout).expect("text");
    let directory = format!("/proc/{}", owner.trim());
    let program = std::fs::read_link(format!("{directory}/exe"));
    assert!(program.as_ref().is_ok_and(|program| program.ends_with("pathcall-testbed")), "{owner:?}: {program:?}");
    let refused = output(&["up", "--name", name, "--delay", "1ms"]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(printed.starts_with(&format!("pathcall: testbed {name} exists already")), "{printed}");
    assert_eq!(refused.status.code(), Some(1));
    succeeds(&["down", "--name", name]);
    assert!(!is_up(name));
    assert!(!std::path::Path::new(&format!("{directory}/exe")).exists(), "process {owner} is still running");
}

/// The guard of a killed owner also takes the testbed down, but not the next one of that name.
#[test]
fn name_is_free_after_down() {
    if !root_tests("name_is_free_after_down") {
        return;
    }
    let name = &name("next");
    let _leftover = Leftover(name);
    for _ in 0..4 {
        succeeds(&["up", "--name", name, "--hosts", "1", "--delay", "1ms"]);
        assert!(is_up(name));
        succeeds(&["down", "--name", name]);
        assert!(!is_up(name));
    }
}

#[test]
fn testbed_of_command_ends_with_it() {
    if !root_tests("testbed_of_command_ends_with_it") {
        return;
    }
    let name = &name("once");
    let script = format!("{TESTBED} run 1 -- cat /proc/net/fib_trie; exit 9");
    let output = output(&["up", "--name", name, "--hosts", "1", "--", "sh", "-c", &script]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("10.77.1.2"), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(9));
    assert!(!is_up(name));
}

#[test]
fn testbed_ends_with_signalled_owner() {
    if !root_tests("testbed_ends_with_signalled_owner") {
        return;
    }
    for signal in ["INT", "TERM", "KILL"] {
        let name = &name(&signal.to_lowercase());
        let (mut owner, mut stdout) = busy(name);
        assert!(is_up(name));
        let id = owner.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().expect("kill").success());
        assert!(!owner.wait().expect("a child").success());
        // The process on host 1 holds the other end of the pipe, and does not end by itself.
        stdout.read_to_end(&mut Vec::new()).expect("its end");
        let told = Instant::now();
        while is_up(name) {
            assert!(told.elapsed() < DATAGRAM_TIMEOUT, "after SIG{signal}, testbed {name} still exists");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Testbed with a process on host 1 that has reported that it runs.
fn busy(name: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = testbed(&["up", "--name", name, "--hosts", "1", "--"]);
    command.args([TESTBED, "run", "1", "--", "sh", "-c", "echo runs; exec sleep 1000"]);
    let mut owner = command.stdout(Stdio::piped()).spawn().expect("the command is built");
    let mut stdout = BufReader::new(owner.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    assert_eq!(line, "runs\n");
    (owner, stdout)
}
