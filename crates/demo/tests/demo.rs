//! Tests of `pathcall demo`: output, pictures, and that no process is left, also after an interrupt; on the loopback, and
//! on hosts as an ordinary user.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const DEMO: &str = env!("CARGO_BIN_EXE_pathcall-demo");
/// Time limit for starting and ending processes, also where the machine stands still.
const LIMIT: Duration = Duration::from_secs(240);
/// Environment variable that all processes of the demo inherit.
const MARK_VARIABLE: &str = "PATHCALL_DEMO_MARK";
/// Script that succeeds where a testbed can be built.
const TRIAL: &str = "PATH=$PATH:/usr/sbin:/sbin && mount -t tmpfs trial /run && ip link add type veth && tc -V && \
                     nft -v && ethtool --version";

fn demo(mark: &str, figures: &Path) -> Command {
    marked(Command::new(DEMO), mark, figures)
}

/// Demo that an ordinary user runs, in a user namespace where the user has no rights; `None` where there are none.
fn demo_of_user(mark: &str, figures: &Path) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-user=1000", "--map-group=1000", "--"]);
        command
    };
    // The user must be able to be root of a namespace within, and have the programs of testbeds there.
    let root = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--", "sh", "-c", TRIAL];
    let trial = unshare().args(root).output();
    if !trial.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: no user namespaces, or no programs for testbeds: {trial:?}");
        return None;
    }
    let mut command = unshare();
    command.arg(DEMO);
    Some(marked(command, mark, figures))
}

fn marked(mut command: Command, mark: &str, figures: &Path) -> Command {
    for name in ["pathcall", "photos", "training", "kv", "proxy"] {
        let program = Path::new(DEMO).with_file_name(name);
        assert!(program.is_file(), "{}: build it first: cargo build --bin {name}", program.display());
    }
    command.arg("--figures").arg(figures).env(MARK_VARIABLE, mark).stdin(Stdio::null());
    command
}

/// Command lines of processes with this mark.
fn running(mark: &str) -> Vec<String> {
    let marked = format!("{MARK_VARIABLE}={mark}\0");
    let processes = std::fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    let has_mark = |path: &Path| {
        // The process may have ended, or belong to another user.
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&marked)
    };
    let found = processes.map(|process| process.path()).filter(|path| has_mark(path));
    found.map(|path| std::fs::read_to_string(path.join("cmdline")).unwrap_or_default()).collect()
}

fn until_none_runs(mark: &str) {
    let began = Instant::now();
    while !running(mark).is_empty() {
        assert!(began.elapsed() < LIMIT, "left running: {:?}", running(mark));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn together_prints_results_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = format!("together{}", std::process::id());
    let output = demo(&mark, folder.path()).args(["--only", "together"]).output().expect("the program runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(running(&mark), Vec::<String>::new());
    // Four methods on two paths, beside plain gRPC.
    assert_eq!((printed.matches("  equal  ").count(), printed.matches("  reference  ").count()), (8, 4), "{printed}");
    for part in ["Like ", "Get ", "Thumbnail ", "Find ", "/photos.Photos/Fetch (", "All started processes have ended"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    for picture in ["photos-latency.svg", "photos-places.svg", "applications.svg"] {
        let path = folder.path().join(picture);
        assert!(printed.contains(path.to_str().expect("text")), "{printed}");
        let svg = std::fs::read_to_string(&path).expect("a picture");
        assert!(svg.starts_with("<svg") && svg.contains("element") | svg.contains("by processors"), "{svg}");
    }
}

#[test]
fn hosts_of_ordinary_user_give_same_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = format!("hosts{}", std::process::id());
    let Some(mut demo) = demo_of_user(&mark, folder.path()) else { return };
    let output = demo.args(["--only", "hosts"]).output().expect("the program runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    until_none_runs(&mark);
    // Three paths of sums, three of reads, three of hops and two of single calls: one of each part is the reference.
    assert_eq!((printed.matches("  equal  ").count(), printed.matches("  reference  ").count()), (8, 3));
    for (picture, texts) in [
        ("hosts-sum.svg", ["Pathcall, element", "plain gRPC"]),
        ("hosts-reads.svg", ["gRPC hedging", "Extra requests"]),
        ("hosts-hops.svg", ["Pathcall, delegated", "plain gRPC, nested"]),
    ] {
        let svg = std::fs::read_to_string(folder.path().join(picture)).expect("a picture");
        assert!(texts.iter().all(|text| svg.contains(text)), "{picture}: {svg}");
    }
}

#[test]
fn demo_without_hosts_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = format!("nohosts{}", std::process::id());
    // Neither `unshare` nor `sh` is found.
    let output = demo(&mark, folder.path()).args(["--only", "hosts"]).env("PATH", folder.path()).output();
    let output = output.expect("the program runs");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && why.starts_with("pathcall: no hosts: "), "{why}");
    until_none_runs(&mark);
}

#[test]
fn placed_messages_use_both_paths() {
    let folder = tempfile::tempdir().expect("a folder");
    // Where the machine stands still, a path is left for a while: repeat the run.
    let shown = (0..8).any(|_| uses_both_paths(folder.path()));
    assert!(shown, "hardly any message uses one of the paths");
    let svg = std::fs::read_to_string(folder.path().join("place.svg")).expect("a picture");
    let lines: Vec<usize> =
        svg.split("points=\"").skip(1).filter_map(|line| Some(line.split_once('"')?.0.matches(',').count())).collect();
    assert!(lines.iter().filter(|points| **points > 20).count() >= 2, "{lines:?}");
}

/// Runs the demo once. Returns whether messages used both paths, with explanations.
fn uses_both_paths(folder: &Path) -> bool {
    let mark = format!("place{}", std::process::id());
    let output = demo(&mark, folder).args(["--only", "place"]).output().expect("the program runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    println!("{printed}");
    let rows = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows: Vec<_> = rows.filter(|row| row.len() == 7 && row[1] == "correct").collect();
    let names: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["processor", "accelerator", "both"], "{printed}");
    let [processor, accelerator] = [5, 6].map(|at| rows[2][at].parse::<u64>().expect("a number"));
    assert!(processor + accelerator <= 2_000, "{printed}");
    let whys = ["(write) by processor: only possible path; ", "(check) by accelerator: ", "(check) by processor: "];
    // One in 50 is a write, which only the processor handles.
    let both = processor + accelerator == 2_000 && processor > 40 && accelerator > 20;
    both && whys.iter().all(|why| printed.contains(why))
}

#[test]
fn interrupted_demo_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = format!("stopped{}", std::process::id());
    interrupt(demo(&mark, folder.path()), "together", "together: photos", &mark);
}

#[test]
fn interrupted_demo_on_hosts_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = format!("stoppedhosts{}", std::process::id());
    let Some(demo) = demo_of_user(&mark, folder.path()) else { return };
    interrupt(demo, "hosts", "map: four workers", &mark);
}

/// Interrupts a part of the demo that has printed this text and runs an application.
fn interrupt(mut demo: Command, part: &str, text: &str, mark: &str) {
    let mut child = demo.args(["--only", part]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut printed = BufReader::new(child.stdout.take().expect("piped"));
    let (mut line, began) = (String::new(), Instant::now());
    while !line.contains(text) {
        line.clear();
        assert!(printed.read_line(&mut line).expect("a line") > 0, "the demo ended early");
    }
    // The demo, controller and element, and an application.
    while running(mark).len() < 3 {
        assert!(began.elapsed() < LIMIT, "no application was started");
        std::thread::sleep(Duration::from_millis(5));
    }
    let found = began.elapsed();
    kill_process(Pid::from_child(&child), Signal::INT).expect("already present");
    let status = child.wait().expect("child process");
    let mut why = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut why).expect("text");
    let mut rest = String::new();
    printed.read_to_string(&mut rest).expect("text");
    let when = format!("an application found after {found:?}, ended after {:?}: {rest}", began.elapsed());
    assert_eq!((status.code(), &*why), (Some(1), "pathcall: interrupted\n"), "{when}");
    until_none_runs(mark);
}

#[test]
fn missing_applications_are_reported_with_hint() {
    let nowhere = tempfile::tempdir().expect("a folder");
    let output = Command::new(DEMO).arg("--applications").arg(nowhere.path()).output().expect("the program runs");
    let missing = nowhere.path().join(format!("pathcall{}", std::env::consts::EXE_SUFFIX));
    let expected = format!("pathcall: {} is missing: build it with: make demo\n", missing.display());
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), &*expected));
}
