//! `pathcall demo` as a user runs it: what it says and draws, and that nothing is left running, also where it is stopped.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const DEMO: &str = env!("CARGO_BIN_EXE_pathcall-demo");
/// Processes that are killed are gone by then, and an application is started, also where the machine stands still.
const LIMIT: Duration = Duration::from_secs(240);
/// What the demo starts inherits it.
const MARK: &str = "PATHCALL_DEMO_MARK";

fn demo(mark: &str, figures: &Path) -> Command {
    for name in ["pathcall", "photos"] {
        let program = Path::new(DEMO).with_file_name(name);
        assert!(program.is_file(), "{}: build it first: cargo build --bin {name}", program.display());
    }
    let mut command = Command::new(DEMO);
    command.arg("--figures").arg(figures).env(MARK, mark).stdin(Stdio::null());
    command
}

/// Processes with this mark: their command lines.
fn running(mark: &str) -> Vec<String> {
    let marked = format!("{MARK}={mark}\0");
    let processes = std::fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    let has_mark = |path: &Path| {
        // It may be gone meanwhile, or another user's.
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
fn it_says_and_draws_what_all_together_came_to_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = format!("together{}", std::process::id());
    let output = demo(&mark, folder.path()).args(["--only", "together"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(running(&mark), Vec::<String>::new());
    // Four methods on two paths, beside plain gRPC.
    assert_eq!((said.matches("  equal  ").count(), said.matches("  reference  ").count()), (8, 4), "{said}");
    for part in
        ["Like ", "Get ", "Thumbnail ", "Find ", "/photos.Photos/Fetch (", "Everything that was started has ended"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    for picture in ["photos-latency.svg", "photos-places.svg", "applications.svg"] {
        let path = folder.path().join(picture);
        assert!(said.contains(path.to_str().expect("text")), "{said}");
        let svg = std::fs::read_to_string(&path).expect("a picture");
        assert!(svg.starts_with("<svg") && svg.contains("element") | svg.contains("by processors"), "{svg}");
    }
}

#[test]
fn messages_go_both_ways_and_are_answered_as_the_records_were() {
    let folder = tempfile::tempdir().expect("a folder");
    // Where the machine stands still a way is left for a while: then it shows in another run.
    let shown = (0..8).any(|_| goes_both_ways(folder.path()));
    assert!(shown, "hardly any message goes one of the ways");
    let svg = std::fs::read_to_string(folder.path().join("place.svg")).expect("a picture");
    let lines: Vec<usize> =
        svg.split("points=\"").skip(1).filter_map(|line| Some(line.split_once('"')?.0.matches(',').count())).collect();
    assert!(lines.iter().filter(|points| **points > 40).count() >= 2, "{lines:?}");
}

/// Whether the demonstration has messages go both ways, and says why.
fn goes_both_ways(folder: &Path) -> bool {
    let mark = format!("place{}", std::process::id());
    let output = demo(&mark, folder).args(["--only", "place"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    let rows = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows: Vec<_> = rows.filter(|row| row.len() == 7 && row[1] == "right").collect();
    let names: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["processor", "accelerator", "both"], "{said}");
    let [processor, accelerator] = [5, 6].map(|at| rows[2][at].parse::<u64>().expect("a number"));
    assert!(processor + accelerator <= 10_000, "{said}");
    let whys = [
        "a write, went to the processor: it can be done nowhere else",
        "a check, went to the accelerator: it ",
        "a check, went to the processor: it ",
    ];
    // One in 50 is a write, which the processor alone does.
    let both = processor + accelerator == 10_000 && processor > 200 && accelerator > 100;
    both && whys.iter().all(|why| said.contains(why))
}

#[test]
fn stopped_in_the_middle_it_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = format!("stopped{}", std::process::id());
    let mut demo = demo(&mark, folder.path());
    let mut child =
        demo.args(["--only", "together"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    let (mut line, began) = (String::new(), Instant::now());
    while !line.contains("place at once: photos") {
        line.clear();
        assert!(said.read_line(&mut line).expect("a line") > 0, "it has ended");
    }
    // Itself, controller and element, and an application.
    while running(&mark).len() < 3 {
        assert!(began.elapsed() < LIMIT, "no application was started");
        std::thread::sleep(Duration::from_millis(5));
    }
    let found = began.elapsed();
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is there");
    let status = child.wait().expect("a child of ours");
    let mut why = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut why).expect("text");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    let when = format!("an application found after {found:?}, ended after {:?}: {rest}", began.elapsed());
    assert_eq!((status.code(), &*why), (Some(1), "pathcall: interrupted\n"), "{when}");
    until_none_runs(&mark);
}

#[test]
fn without_its_applications_it_says_how_to_get_them() {
    let nowhere = tempfile::tempdir().expect("a folder");
    let output = Command::new(DEMO).arg("--applications").arg(nowhere.path()).output().expect("it runs");
    let missing = nowhere.path().join(format!("pathcall{}", std::env::consts::EXE_SUFFIX));
    let expected = format!("pathcall: {} is missing: build it with: make demo\n", missing.display());
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), &*expected));
}
