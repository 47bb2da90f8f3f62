//! `pathcall place` as its users meet it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use pathcall_place::context::comm::InProcess;
use pathcall_place::context::{Builder, Event, Message};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::device::{Code, Device};
use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, Role};

use crate::apart::LIMIT;

fn models() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../place/models")
}

fn pathcall(args: &[&str]) -> Command {
    let mut command = Command::new(crate::PATHCALL);
    command.arg("place").args(args).current_dir(models()).stdin(Stdio::null());
    command
}

#[track_caller]
fn says(args: &[&str]) -> String {
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
fn devices_are_listed_and_those_that_are_not_there_named() {
    let said = says(&["devices"]);
    assert!(said.contains("\ncpu:"), "{said}");
    for kind in ["opencl", "cuda"] {
        let there = said.contains(&format!("\n{kind}:"));
        assert!(there != said.contains(&format!("\n{kind} is not there: ")), "{said}");
    }
}

#[test]
fn a_profile_is_a_model() {
    let said = says(&["profile", "--acc", "emulated:per-job=1ms", "--ms", "20"]);
    let hardware = Hardware::parse("measured.yaml", &said).expect("a model");
    let acc = hardware.nodes.iter().position(|node| node.name == "acc").expect("an accelerator");
    let link = hardware.links.iter().find(|link| link.between.contains(&acc)).expect("a link");
    // One job a millisecond, at most.
    assert!(link.messages_per_second <= 1_000, "{said}");
    let alone = says(&["profile", "--no-acc", "--ms", "10"]);
    assert_eq!(Hardware::parse("measured.yaml", &alone).expect("a model").nodes.len(), 2);
    let said = fails(&["profile", "--acc", "opencl:4096"]);
    assert!(
        said.starts_with("pathcall: opencl") && said.contains("is not there: ") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn models_are_checked() {
    let said = says(&["check", "applications/kvs.yaml", "direct.yaml"]);
    assert!(said.contains("GET") && said.contains("cpu-acc,cpu-cpu"), "{said}");
    let said = fails(&["check", "direct.yaml", "direct.yaml"]);
    assert!(said.starts_with("direct.yaml:"), "{said}");
    assert!(fails(&["check", "none.yaml", "direct.yaml"]).starts_with("pathcall: none.yaml: "));
}

#[test]
fn a_running_program_explains_itself() {
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
    let device =
        |choice: &str| -> Arc<dyn Device> { open(&choice.parse::<Choice>().expect("a choice")).expect("it is there") };
    let echo = || {
        Code::host(|input, output| {
            output[..input.len()].copy_from_slice(input);
            Ok(input.len())
        })
    };
    let socket = std::env::temp_dir().join(format!("pathcall-explain-{}.sock", std::process::id()));
    let hardware = || Hardware::preset(Preset::Direct);
    let application = Application::parse("echo.yaml", text).expect("right");
    let mut context = Builder::new(application, hardware(), hardware())
        .device(Role::Cpu, device("cpu:1"))
        .device(Role::Acc, device("emulated:per-job=1us"))
        .reg_app_func(echo(), "echo", Role::Cpu, 0)
        .reg_app_func(echo(), "echo", Role::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", Role::Cpu)
        .door(&socket)
        .init()
        .expect("it begins");
    let kind = context.kind("ECHO").expect("a type");
    for tag in 0..10 {
        context.send(Message { kind, address: 0, message: 0, tag, payload: "echo".into() }).expect("room");
        assert!(matches!(context.wait(LIMIT), Some(Event::Answer(answer)) if answer.result.is_ok()));
    }
    let at = socket.to_str().expect("a name").to_owned();
    let asks = std::thread::spawn(move || (says(&["explain", "--at", &at, "-n", "3"]), says(&["status", "--at", &at])));
    while !asks.is_finished() {
        context.wait(Duration::from_millis(5));
    }
    let (explained, status) = asks.join().expect("they say");
    let lines: Vec<_> = explained.lines().collect();
    assert!(lines.len() == 3 && lines[2].starts_with("9 ECHO: cpu-") && lines[2].contains(" ns in all"), "{explained}");
    assert!(status.contains("ECHO cpu-cpu: sent ") && status.contains("acc emulated"), "{status}");
    drop(context);
    let gone = fails(&["status", "--at", socket.to_str().expect("a name")]);
    assert!(gone.starts_with("pathcall: ") && gone.lines().count() == 1, "{gone}");
}
