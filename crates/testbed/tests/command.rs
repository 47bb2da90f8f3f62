//! `pathcall testbed` as a user meets it: it builds, runs, watches and tidies up. Needs root.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pathcall_testbed::{beds, root_tests};

/// The command.
const TESTBED: &str = env!("CARGO_BIN_EXE_pathcall-testbed");
/// Longer than a bed takes to go, or a frame to come.
const PATIENCE: Duration = Duration::from_secs(180);

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

/// A name that no other test has.
fn name(test: &str) -> String {
    format!("{test}{}", std::process::id())
}

/// Takes down what a failed test has left.
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
    beds().expect("names of namespaces").contains_key(name)
}

#[test]
fn without_root_it_says_so_in_one_line() {
    // Where anybody may run it, if this test runs as root.
    let place = std::env::temp_dir().join(name("pathcall-testbed"));
    // By another process: a test that forks while this one has it open for writing would keep it from running.
    let copied = Command::new("cp").arg(TESTBED).arg(&place).status();
    assert!(copied.expect("cp").success());
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).expect("anybody may");
    let mut command = Command::new(&place);
    command.arg("up");
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if is_root {
        command.uid(65534).gid(65534);
    }
    let output = command.output();
    std::fs::remove_file(&place).expect("there is a copy");
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "pathcall: a testbed needs root (it makes network namespaces): run this with sudo\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn mistakes_are_named_in_one_line() {
    for (arguments, said) in [
        (&["up", "--name", "No-such"][..], "testbed name \"No-such\": expected 1 to 20 lower-case letters and digits"),
        (&["up", "--rate", "fast"], "expected a rate from 16kbit to 1000gbit, as in 1.5gbit, got \"fast\""),
        (&["up", "--loss", "0.1"], "expected a share from 0% to 100%, as in 0.1%, got \"0.1\""),
        (&["up", "--delay", "5"], "expected a delay from 0ms to 1s, as in 2.5ms or 300us, got \"5\""),
        (&["up", "--delay", "0ms", "--reorder", "1%"], "frames overtake others only where there is a delay"),
        (&["up", "--mtu", "100"], "MTU of 100 bytes: expected 576 to 65535"),
        (&["up", "--hosts", "65"], "65 is not in 1..=64"),
        (
            &["run", "x", "--", "true"],
            "node \"x\": expected a host's number, as in 1 or h1, or an element's name, e1 or e2",
        ),
        (&["run", "--name", "nosuchbed", "1", "--", "true"], "there is no testbed nosuchbed; to build it: "),
        (&["down", "--name", "nosuchbed"], "there is no testbed nosuchbed; to build it: "),
    ] {
        let output = output(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(said) && !output.status.success(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_bed_is_built_used_watched_and_taken_down() {
    if !root_tests("a_bed_is_built_used_watched_and_taken_down") {
        return;
    }
    let name = &name("used");
    let _leftover = Leftover(name);
    let said = succeeds(&["up", "--name", name, "--hosts", "2", "--rate", "1gbit", "--loss", "0.1%"]);
    assert!(said.starts_with(&format!("ready: testbed {name}\n")), "{said}");
    assert!(said.contains(&format!("h2    10.77.2.2  pc-{name}-h2\n")), "{said}");
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
        assert!(stderr.read_line(&mut ready).expect("text") > 0, "it ended: {ready}");
    }
    // From bash: nothing else needs to be installed.
    let datagram = "echo across the element > /dev/udp/10.77.2.2/9";
    let began = Instant::now();
    while capture.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < PATIENCE, "no frame is captured");
        // Again, as the link may lose one.
        succeeds(&["run", "--name", name, "1", "--", "bash", "-c", datagram]);
    }
    let frames = std::fs::read(&file).expect("a capture");
    std::fs::remove_file(&file).expect("a capture");
    assert!(frames.windows(18).any(|window| window == b"across the element"), "{} bytes", frames.len());

    succeeds(&["down", "--name", name]);
    assert!(!is_up(name));
}

#[test]
fn a_bed_with_delays_stays_and_its_process_goes_with_it() {
    if !root_tests("a_bed_with_delays_stays_and_its_process_goes_with_it") {
        return;
    }
    let name = &name("late");
    let _leftover = Leftover(name);
    let said = succeeds(&["up", "--name", name, "--hosts", "1", "--delay", "1ms", "--reorder", "1%"]);
    assert!(said.ends_with(&format!("pathcall testbed down --name {name}\n")), "{said}");
    assert!(is_up(name));
    let owner = Command::new("ip").args(["netns", "pids", &format!("pc-{name}-w")]).output().expect("ip");
    let owner = String::from_utf8(owner.stdout).expect("text");
    let directory = format!("/proc/{}", owner.trim());
    let program = std::fs::read_link(format!("{directory}/exe"));
    assert!(program.as_ref().is_ok_and(|program| program.ends_with("pathcall-testbed")), "{owner:?}: {program:?}");
    let refused = output(&["up", "--name", name, "--delay", "1ms"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.starts_with(&format!("pathcall: testbed {name} is up already")), "{said}");
    assert_eq!(refused.status.code(), Some(1));
    succeeds(&["down", "--name", name]);
    assert!(!is_up(name));
    assert!(!std::path::Path::new(&format!("{directory}/exe")).exists(), "process {owner} stays");
}

/// The guard of the owner that `down` has killed takes the bed down, too: not the next one of that name.
#[test]
fn a_name_is_free_when_its_bed_is_down() {
    if !root_tests("a_name_is_free_when_its_bed_is_down") {
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
fn a_bed_for_one_command_goes_with_it() {
    if !root_tests("a_bed_for_one_command_goes_with_it") {
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
fn a_bed_goes_when_its_owner_is_told_to_stop_or_killed() {
    if !root_tests("a_bed_goes_when_its_owner_is_told_to_stop_or_killed") {
        return;
    }
    for signal in ["INT", "TERM", "KILL"] {
        let name = &name(&signal.to_lowercase());
        let (mut owner, mut stdout) = busy(name);
        assert!(is_up(name));
        let id = owner.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().expect("kill").success());
        assert!(!owner.wait().expect("a child").success());
        // The process on host 1 holds the other end, and does not end by itself.
        stdout.read_to_end(&mut Vec::new()).expect("its end");
        let told = Instant::now();
        while is_up(name) {
            assert!(told.elapsed() < PATIENCE, "after SIG{signal}, the bed {name} stays");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A bed with a process on host 1 that has said that it runs.
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
