//! Tests of the command line: arguments, output, errors and exit codes.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn pathcall(args: &[&str]) -> Command {
    let mut command = Command::new(crate::PATHCALL);
    command.args(args).current_dir(fixtures()).stdin(Stdio::null());
    command
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn output(args: &[&str]) -> Output {
    pathcall(args).output().expect("the command is built")
}

#[track_caller]
fn fails(args: &[&str], expected: &str) {
    let Output { status, stdout, stderr } = output(args);
    assert_eq!(String::from_utf8_lossy(&stderr), format!("{expected}\n"));
    assert_eq!(String::from_utf8_lossy(&stdout), "");
    assert_eq!(status.code(), Some(1));
}

/// Listener that occupies a port until it is dropped.
fn used_port() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    (listener, port)
}

/// Address without a listener: the system never assigns this port by itself.
const NO_CONTROLLER: &str = "http://127.0.0.1:1";

/// Running command, killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("child process");
    }
}

/// Runs `up` on free ports. Returns the process and the URL of its controller.
fn up() -> (Running, String) {
    let args = ["up", "--listen", "127.0.0.1:0", "--data", "127.0.0.1:0", "--control", "127.0.0.1:0"];
    let mut child = pathcall(&args).stdout(Stdio::piped()).spawn().expect("the command is built");
    let stdout = child.stdout.take().expect("piped");
    let running = Running(child);
    let mut ready = String::new();
    BufReader::new(stdout).read_line(&mut ready).expect("a line");
    let url = ready.strip_prefix("ready: controller at ").and_then(|rest| rest.split(',').next());
    let url = url.unwrap_or_else(|| panic!("no ready line: {ready:?}")).to_owned();
    (running, url)
}

/// A process that has reported `ready` handles signals.
#[cfg(target_os = "linux")]
#[test]
fn signal_after_ready_ends_process_in_order() {
    use rustix::process::{Pid, Signal, kill_process};

    for _ in 0..20 {
        let mut child = pathcall(&["controller", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut ready).expect("a line");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("already present");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{ready}");
    }
}

/// An option without effect is refused.
#[test]
fn function_options_require_function() {
    let options =
        ["--placement=heap", "--function-listen=127.0.0.1:0", "--phv=200B", "--element-entries=8", "-DA=1", "-I."];
    for option in options {
        // The address is not of this host, so the command would not run for long.
        let Output { status, stderr, .. } = output(&["element", "--data", "192.0.2.1:7702", option]);
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.code() == Some(2) && stderr.contains("--function <FILE.p4c>"), "{option}: {stderr}");
    }
}

#[test]
fn check_prints_meaning_of_filters() {
    let Output { status, stdout, stderr } = output(&["check", "good.proto"]);
    let stdout = String::from_utf8_lossy(&stdout);
    assert_eq!(String::from_utf8_lossy(&stderr), "");
    assert!(stdout.contains("training.Training") && stdout.contains("DT-1"), "{stdout}");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn check_reports_position_of_error() {
    fails(
        &["check", "bad.proto"],
        "bad.nf:5:12: error: addTo: `NewGrad` has no such field: expected `name` or `tensor`, got `tensr`\n  \
         hint: did you mean \"NewGrad.tensor\"?",
    );
}

#[test]
fn check_searches_given_import_folders() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    for (name, text) in [
        ("shared/note.proto", "syntax = \"proto3\"; package shared; message Note {}"),
        (
            "apps/app.proto",
            "syntax = \"proto3\"; package app; import \"note.proto\"; service A { rpc B(shared.Note) returns (shared.Note); }",
        ),
    ] {
        std::fs::create_dir_all(Path::new(&path(name)).parent().expect("a folder")).expect("a folder");
        std::fs::write(path(name), text).expect("a file");
    }
    let app = path("apps/app.proto");
    let Output { status, stderr, .. } = output(&["check", &app]);
    assert!(status.code() == Some(1) && String::from_utf8_lossy(&stderr).contains("note.proto"), "{stderr:?}");
    let Output { status, stderr, .. } = output(&["check", &app, "-I", &path("apps"), "--include", &path("shared")]);
    assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(0), ""));
}

#[test]
fn status_without_controller_fails_with_hint() {
    fails(
        &["status", "--controller", NO_CONTROLLER],
        "pathcall: no controller answers at http://127.0.0.1:1 (Connection refused (os error 111)): \
         start one, or name another with --controller",
    );
}

#[test]
fn up_on_used_port_fails_with_hint() {
    let (_listener, port) = used_port();
    fails(
        &["up", "--listen", &format!("127.0.0.1:{port}")],
        &format!(
            "pathcall: port {port} is in use: another controller may be running on 127.0.0.1; \
             choose another with --listen"
        ),
    );
    fails(
        &["up", "--listen", "127.0.0.1:0", "--data", "127.0.0.1:0", "--control", &format!("127.0.0.1:{port}")],
        &format!(
            "pathcall: TCP port {port} is in use on 127.0.0.1: another element may be running; \
             choose another with --control"
        ),
    );
}

#[test]
fn status_shows_element_of_up() {
    let (_up, url) = up();
    let Output { status, stdout, stderr } = output(&["status", "--controller", &url]);
    let stdout = String::from_utf8_lossy(&stdout);
    assert_eq!((String::from_utf8_lossy(&stderr).as_ref(), status.code()), ("", Some(0)));
    assert!(stdout.starts_with("no applications\n\nelement "), "{stdout}");
    assert!(stdout.contains("0/40960") && !stdout.contains("(gone)"), "{stdout}");

    let Output { stdout, .. } = output(&["status", "--json", "--controller", &url]);
    let status: serde_json::Value = serde_json::from_slice(&stdout).expect("JSON");
    assert_eq!(status["elements"][0]["rows"], 40_960);
    assert_eq!(status["elements"][0]["counters"]["element"]["drop_malformed"], 0);
}

#[test]
fn status_lists_every_drop_reason() {
    let (_up, url) = up();
    let stdout = output(&["status", "--json", "--controller", &url]).stdout;
    let status: serde_json::Value = serde_json::from_slice(&stdout).expect("JSON");
    let dropped = status["elements"][0]["dropped"].as_object().expect("reasons");
    let expected = pathcall_program::Counters::default();
    let expected: Vec<_> = expected.iter().filter_map(|(name, _)| name.strip_prefix("drop_")).collect();
    // Frames that ended because their work was done are not lost.
    let done = status["elements"][0]["done"].as_object().expect("reasons");
    assert!(done.keys().eq(["counted", "filtered"]), "{done:?}");
    let named = |reason: &&str| dropped.contains_key(*reason) != done.contains_key(*reason);
    assert!(expected.len() >= 6 && expected.iter().all(named), "{dropped:?}");
    let text = String::from_utf8(output(&["status", "--controller", &url]).stdout).expect("text");
    for reason in dropped.keys() {
        let reason = reason.replace('_', " ");
        let row = |line: &str| line.contains(&reason) && line.trim_end().ends_with('0');
        assert!(text.lines().any(row), "{reason}: {text}");
    }
}

#[test]
fn program_report_shows_stages_arrays_and_pipeline() {
    let (_up, url) = up();
    let text = String::from_utf8(output(&["program", "report", "--controller", &url]).stdout).expect("text");
    let places: Vec<_> = pathcall_program::layout::STAGES
        .iter()
        .enumerate()
        .map(|(number, stage)| text.find(&format!("\n{number} {stage} ")).unwrap_or_else(|| panic!("{stage}: {text}")))
        .collect();
    assert!(places.is_sorted(), "{text}");
    assert!(text.contains("element 1") && text.contains("no applications"), "{text}");
    assert!(text.contains("rules of the estimate") && text.contains("NetRPC 5.2.2"), "{text}");

    let stdout = output(&["program", "report", "--json", "--controller", &url]).stdout;
    let report: serde_json::Value = serde_json::from_slice(&stdout).expect("JSON");
    let element = &report["elements"][0];
    let lanes = element["arrays"].as_array().expect("arrays").iter().find(|array| array["name"] == "lanes");
    assert_eq!(lanes.expect("lanes")["registers"], 32 * 40_960);
    // The groups of a stage are within the limit, whatever the verdict.
    let (limits, stages) = (&element["pipeline"]["limits"], element["pipeline"]["stages"].as_array().expect("stages"));
    for stage in stages {
        let groups: u64 = stage.as_array().expect("parts").iter().filter_map(|part| part["groups"].as_u64()).sum();
        assert!(groups <= limits["groups"].as_u64().expect("a limit"), "{stage}");
    }
    assert_eq!(
        element["pipeline"]["fits"],
        stages.len() <= 12 && element["pipeline"]["too_large"] == serde_json::json!([])
    );
    let profile = |name: &str| {
        let profiles = report["profiles"].as_array().expect("profiles").iter();
        profiles.clone().find(|profile| profile["name"] == name).unwrap_or_else(|| panic!("{name}: {report}")).clone()
    };
    assert!(profile("map")["pipeline"]["fits"] == true && profile("map")["frame_lanes"] == 32, "{report}");
    assert!(profile("clone")["pipeline"]["fits"] == true && profile("whole")["pipeline"]["fits"] == false, "{report}");
    assert!(text.contains("profile map, -D PC_PROFILE_MAP") && text.contains("it fits: 12 of 12 stages"), "{text}");
}

#[cfg(feature = "xdp")]
#[test]
fn program_report_shows_cost_of_kernel_program() {
    let text = String::from_utf8(output(&["program", "report", "--xdp"]).stdout).expect("text");
    for stage in ["admit.h", "repeat_filter.h", "round.h", "lanes.h", "egress.h"] {
        assert!(text.contains(&format!("\n{stage} ")), "{stage}: {text}");
    }
    let stdout = output(&["program", "report", "--xdp", "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_slice(&stdout).expect("JSON");
    let counts = report["files"].as_array().expect("files").iter().filter_map(|file| file["instructions"].as_u64());
    assert!(counts.sum::<u64>() > 1000, "{report}");
    match report["frames"].as_array() {
        Some(frames) => assert!(frames.iter().all(|frame| frame["ns"].as_u64() > Some(0)), "{report}"),
        // Without the right to load the program, the report says so.
        None => assert!(text.contains("no times: no permission to load the XDP program"), "{text}"),
    }
}

#[cfg(not(feature = "xdp"))]
#[test]
fn program_report_without_kernel_program_fails_with_hint() {
    fails(
        &["program", "report", "--xdp"],
        "pathcall: this build has no XDP program: build it with `cargo build --release -p pathcall-cli --features xdp`",
    );
}

#[test]
fn program_report_of_missing_controller_fails() {
    fails(
        &["program", "report", "--controller", NO_CONTROLLER],
        "pathcall: no controller answers at http://127.0.0.1:1 (Connection refused (os error 111)): \
         start one, or name another with --controller",
    );
}

#[test]
fn sim_command_runs_seeds() {
    let Output { status, stdout, .. } = output(&["sim", "map", "--seeds", "5"]);
    let stdout = String::from_utf8_lossy(&stdout);
    assert!(stdout.contains("5 from 1") && stdout.ends_with("all results right\n"), "{stdout}");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn unknown_command_names_external_program() {
    fails(
        &["nothing"],
        "pathcall: unknown command \"nothing\": program pathcall-nothing is neither in the folder of pathcall nor on PATH; \
         see pathcall --help",
    );
}

#[test]
fn wrong_usage_exits_with_code_2() {
    assert_eq!(output(&["up", "--listen", "nowhere"]).status.code(), Some(2));
    assert_eq!(output(&["sim", "map", "--seed", "1", "--seeds", "2"]).status.code(), Some(2));
}

#[test]
fn version_matches_package() {
    let stdout = output(&["--version"]).stdout;
    assert_eq!(String::from_utf8_lossy(&stdout), format!("pathcall {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn memory_options_of_controller_are_checked() {
    for (option, value, expected) in [
        ("--weight", "a=0", "invalid weight 0 of a (1 to 1000)"),
        ("--weight", "a=1001", "invalid weight 1001 of a (1 to 1000)"),
        ("--weight", "=1", "expected NAME=N, got =1"),
        ("--quota", "1M", "expected NAME=BYTES, got 1M"),
        ("--quota", "a=1T", "invalid quota 1T of a: expected a number of bytes, such as 4096, 64K, 8M or 1G"),
        ("--quota", "a=99999999999G", "invalid quota 99999999999G of a: expected a number of bytes"),
        ("--idle", "0", "0 is not in 1.."),
    ] {
        let Output { status, stderr, .. } = output(&["controller", option, value]);
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        assert!(stderr.contains(expected) && !status.success(), "{option} {value}: {stderr}");
    }
}

#[test]
fn bytes_of_shares_are_those_of_the_program() {
    for (rows, width) in [(1, 1), (100, 64), (1024, 256)] {
        let size = pathcall_program::Size { rows, lanes: rows * width, slots: 0 };
        let bytes = pathcall_control::state::memory_bytes(rows as u32, width as u32);
        assert_eq!(bytes, pathcall_program::layout::bytes(&size), "{rows} rows of {width} lanes");
    }
}
