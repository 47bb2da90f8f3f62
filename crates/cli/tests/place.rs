//! Tests of `pathcall place`.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use pathcall_place::context::comm::InProcess;
use pathcall_place::context::{Builder, Event, RequestMessage};
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::device::{ComputeDevice, TaskCode};
use pathcall_place::model::Preset;
use pathcall_place::{Application, DeviceRole, Hardware};

use crate::isolation::LIMIT;

fn models() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../place/models")
}

fn pathcall(args: &[&str]) -> Command {
    let mut command = Command::new(crate::PATHCALL);
    command.arg("place").args(args).current_dir(models()).stdin(Stdio::null());
    command
}

#[track_caller]
fn stdout_of(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = pathcall(args).output().expect("the command is built");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

#[track_caller]
fn fails(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = pathcall(args).output().expect("the command is built");
    assert_eq!((status.code(), &stdout[..]), (Some(1), &b""[..]));
    String::from_utf8(stderr).expect("text")
}

#[test]
fn devices_lists_available_and_missing_devices() {
    let printed = stdout_of(&["devices"]);
    assert!(printed.contains("\ncpu:"), "{printed}");
    for kind in ["opencl", "cuda"] {
        let there = printed.contains(&format!("\n{kind}:"));
        assert!(there != printed.contains(&format!("\n{kind} not found: ")), "{printed}");
    }
}

#[test]
fn profile_prints_valid_model() {
    let printed = stdout_of(&["profile", "--acc", "emulated:per-job=1ms", "--ms", "20"]);
    let hardware = Hardware::parse("measured.yaml", &printed).expect("a model");
    let acc = hardware.nodes.iter().position(|node| node.name == "acc").expect("an accelerator");
    let link = hardware.links.iter().find(|link| link.between.contains(&acc)).expect("a link");
    // The emulated device does at most one job per millisecond.
    assert!(link.messages_per_second <= 1_000, "{printed}");
    let acc = ["--acc", "emulated:per-job=1ms", "--acc", "cpu:1"];
    let printed = stdout_of(&[&["profile", "--ms", "10"], &acc[..]].concat());
    let several = Hardware::parse("measured.yaml", &printed).expect("a model");
    let named = |role| several.device(role).map(|at| &several.nodes[at].name[..]);
    assert_eq!([DeviceRole::Acc, DeviceRole::Acc1, DeviceRole::Acc2].map(named), [Some("acc"), Some("acc1"), None]);
    let many = fails(&[&["profile"], &["--acc", "cpu:1"].repeat(8)[..]].concat());
    assert_eq!(many, "pathcall: 8 accelerators are given; a host has at most 7\n");
    let alone = stdout_of(&["profile", "--no-acc", "--ms", "10"]);
    assert_eq!(Hardware::parse("measured.yaml", &alone).expect("a model").nodes.len(), 2);
    let printed = fails(&["profile", "--acc", "opencl:4096"]);
    assert!(
        printed.starts_with("pathcall: opencl") && printed.contains("not found: ") && printed.lines().count() == 1,
        "{printed}"
    );
}

#[test]
fn check_validates_models() {
    let printed = stdout_of(&["check", "applications/kvs.yaml", "direct.yaml"]);
    assert!(printed.contains("GET") && printed.contains("cpu-acc,cpu-cpu"), "{printed}");
    let printed = fails(&["check", "direct.yaml", "direct.yaml"]);
    assert!(printed.starts_with("direct.yaml:"), "{printed}");
    assert!(fails(&["check", "none.yaml", "direct.yaml"]).starts_with("pathcall: none.yaml: "));
}

#[test]
fn running_program_answers_explain_and_status() {
    let text = "application: echo
tasks:
  echo: { cpu: 1 us, acc: 1 us }
requests:
  ECHO:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 64 B, reply: 64 B, responder: echo }]
      - trips: [{ path: cpu-acc, bytes: 64 B, reply: 64 B, responder: echo }]
";
    let device = |choice: &str| -> Arc<dyn ComputeDevice> {
        open(&choice.parse::<DeviceChoice>().expect("a choice")).expect("already present")
    };
    let echo = || {
        TaskCode::host(|input, output| {
            output[..input.len()].copy_from_slice(input);
            Ok(input.len())
        })
    };
    let socket = std::env::temp_dir().join(format!("pathcall-explain-{}.sock", std::process::id()));
    let hardware = || Hardware::preset(Preset::Direct);
    let application = Application::parse("echo.yaml", text).expect("right");
    let mut context = Builder::new(application, hardware(), hardware())
        .device(DeviceRole::Cpu, device("cpu:1"))
        .device(DeviceRole::Acc, device("emulated:per-job=1us"))
        .reg_app_func(echo(), "echo", DeviceRole::Cpu, 0)
        .reg_app_func(echo(), "echo", DeviceRole::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .admin_socket(&socket)
        .init()
        .expect("the context starts");
    let kind = context.kind("ECHO").expect("a type");
    for tag in 0..10 {
        context.send(RequestMessage { kind, address: 0, message: 0, tag, payload: "echo".into() }).expect("room");
        assert!(matches!(context.wait(LIMIT), Some(Event::Answer(answer)) if answer.result.is_ok()));
    }
    let at = socket.to_str().expect("a name").to_owned();
    let asks = std::thread::spawn(move || {
        (stdout_of(&["explain", "--at", &at, "-n", "3"]), stdout_of(&["status", "--at", &at]))
    });
    while !asks.is_finished() {
        context.wait(Duration::from_millis(5));
    }
    let (explained, status) = asks.join().expect("answers");
    let lines: Vec<_> = explained.lines().collect();
    assert!(
        lines.len() == 3 && lines[2].starts_with("9 ECHO: cpu-") && lines[2].contains(" ns in total"),
        "{explained}"
    );
    assert!(status.contains("ECHO cpu-cpu: sent ") && status.contains("acc emulated"), "{status}");
    drop(context);
    let gone = fails(&["status", "--at", socket.to_str().expect("a name")]);
    assert!(gone.starts_with("pathcall: ") && gone.lines().count() == 1, "{gone}");
}
