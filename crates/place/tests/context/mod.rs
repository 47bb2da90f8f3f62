//! Contexts of two hosts in one process: answers, order, memory windows, telemetry.

mod faults;
mod several;
mod two_contexts;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use pathcall_place::context::comm::{self, InProcess};
use pathcall_place::context::{
    Answer, Builder, Event, Limits, NextFn, PlaceContext, RequestError, RequestMessage, SendError, TaskHooks,
};
use pathcall_place::device::emulated::{Emulated, EmulatedFault, PlantedFault, Rate};
use pathcall_place::device::pool::{CpuPool, PoolConfig};
use pathcall_place::device::{AnswerLength, AppError, ComputeDevice, TaskCode};
use pathcall_place::model::{Application, Hardware, Preset};
use pathcall_place::path::KindId;
use pathcall_place::select::SelectionStrategy as Choose;
use pathcall_place::{Config, DeviceRole};
use pathcall_wire::Instant;
use proptest::prelude::*;

use crate::accelerators::{accelerators, code, kernel};

/// Timeout, reached only if the test hangs.
const LIMIT: Duration = Duration::from_secs(180);
const APPLICATION: &str = "application: sums
tasks:
  add: { cpu: 20 us, acc: 20 us }
requests:
  ADD:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 64 B, reply: 64 B, responder: add }]
      - trips: [{ path: cpu-acc, bytes: 64 B, reply: 64 B, responder: add }]
  ORDERED:
    dependency: ADDR
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 64 B, reply: 64 B, responder: add }]
      - trips: [{ path: cpu-acc, bytes: 64 B, reply: 64 B, responder: add }]
  TWICE:
    dependency: NONE
    dataflows:
      - trips:
          - { path: cpu-cpu, bytes: 64 B, reply: 64 B, responder: add }
          - { path: cpu-acc, bytes: 64 B, reply: 64 B, requester: add, responder: add }
  ACC:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-acc, bytes: 64 B, reply: 64 B, responder: add }]
";

/// Adds 7 to each byte; refuses a request that begins with 255.
fn add(input: &[u8], output: &mut [u8]) -> Result<usize, AppError> {
    if input.first() == Some(&255) {
        return Err(AppError("no sums of 255".into()));
    }
    for (to, from) in output.iter_mut().zip(input) {
        *to = from.wrapping_add(7);
    }
    Ok(input.len())
}

fn sum(input: &[u8]) -> Bytes {
    input.iter().map(|byte| byte.wrapping_add(7)).collect()
}

fn application() -> Application {
    Application::parse("sums.yaml", APPLICATION).expect("right")
}

fn host() -> TaskCode {
    TaskCode::Host(Arc::new(add), AnswerLength::AsInput)
}

fn pool() -> Arc<dyn ComputeDevice> {
    Arc::new(CpuPool::start(&PoolConfig::new(1)).expect("threads"))
}

fn emulated(faults: Vec<PlantedFault>) -> Arc<dyn ComputeDevice> {
    let rate = Rate { per_job: Duration::from_micros(20), ..Rate::default() };
    Arc::new(Emulated::start("test", rate, faults).expect("a thread"))
}

fn builder(acc: Arc<dyn ComputeDevice>, code: TaskCode) -> Builder {
    let hardware = || Hardware::preset(Preset::Direct);
    Builder::new(application(), hardware(), hardware())
        .limits(patient())
        .device(DeviceRole::Cpu, pool())
        .device(DeviceRole::Acc, acc)
        .reg_app_func(host(), "add", DeviceRole::Cpu, 0)
        .reg_app_func(code, "add", DeviceRole::Acc, 0)
}

/// Limits that no pause of a busy machine exceeds: no job is late and no path is left, so no request is retried.
fn patient() -> Limits {
    let select = Config::default().stall_factor(u32::MAX);
    Limits { select, stall: LIMIT, ..Limits::default() }
}

/// Limits with a short timeout; a pause of the machine may exceed it, too.
fn hasty() -> Limits {
    Limits { stall: Duration::from_millis(20), ..Limits::default() }
}

fn alone(acc: Arc<dyn ComputeDevice>) -> PlaceContext {
    builder(acc, host()).reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts")
}

fn message(context: &PlaceContext, kind: &str, tag: u64, payload: &[u8]) -> RequestMessage {
    let kind = context.kind(kind).expect("a type");
    RequestMessage { kind, address: tag % 5, message: 0, tag, payload: Bytes::copy_from_slice(payload) }
}

fn answer(context: &mut PlaceContext) -> Answer {
    match context.wait(LIMIT).expect("in time") {
        Event::Answer(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// Sends all requests, eight at a time; returns the answers in the order of the requests.
fn all(context: &mut PlaceContext, kind: &str, inputs: &[Vec<u8>]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (tag, input) in inputs.iter().enumerate() {
        if tag >= 8 {
            answers.push(answer(context));
        }
        context.send(message(context, kind, tag as u64, input)).expect("room");
    }
    while answers.len() < inputs.len() {
        answers.push(answer(context));
    }
    assert_eq!(context.held().requests, 0);
    assert!(context.recv().is_none(), "one answer each");
    answers.sort_by_key(|answer| answer.tag);
    answers
}

fn inputs(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| vec![(i % 200) as u8; 1 + i % 70]).collect()
}

fn assert_sums(answers: &[Answer], inputs: &[Vec<u8>]) {
    for (answer, input) in answers.iter().zip(inputs) {
        assert_eq!(answer.result, Ok(sum(input)), "{answer:?}");
    }
    assert_eq!(answers.len(), inputs.len());
}

#[test]
fn requests_take_both_paths_and_are_explained() {
    let mut context = alone(emulated(Vec::new()));
    let inputs = inputs(2000);
    let answers = all(&mut context, "ADD", &inputs);
    assert_sums(&answers, &inputs);
    assert!(answers.iter().all(|answer| answer.intra_ns.is_some_and(|intra| intra <= answer.total_ns)));
    let telemetry = context.telemetry();
    let [cpu, acc, ..] = &telemetry.paths[..] else { panic!("two paths") };
    assert_eq!((cpu.state.done + acc.state.done, cpu.intra.len() + acc.total.len()), (2000, 2000));
    assert!(cpu.state.done > 0 && acc.state.done > 0, "{telemetry}");
    let jobs: u64 = telemetry.devices.iter().map(|device| device.stats.done).sum();
    assert_eq!(jobs, 2000);
    assert!(!telemetry.samples.is_empty());
    let lines: Vec<_> = context.explain(3).map(|line| line.to_string()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[2].starts_with("1999 ADD: cpu-") && lines[2].contains("ns within the hosts"), "{}", lines[2]);
    assert!(lines[2].contains("cpu-acc: ") && lines[2].contains(" × "), "{}", lines[2]);
}

#[test]
fn admin_socket_answers_queries() {
    use pathcall_place::admin_socket::{AdminQuery, query_admin_socket};
    let path = std::env::temp_dir().join(format!("pathcall-place-{}.sock", std::process::id()));
    let (asks, works) = InProcess::pair();
    let server =
        builder(emulated(Vec::new()), host()).reg_comm_func(works, "works", DeviceRole::Cpu).admin_socket(&path);
    let server = server.init().expect("context starts").spawn().expect("a thread");
    let hardware = || Hardware::preset(Preset::Direct);
    let asks = Builder::new(application(), hardware(), hardware()).reg_comm_func(asks, "asks", DeviceRole::Cpu);
    let mut context = asks.init().expect("context starts");
    all(&mut context, "ADD", &inputs(10));
    let status = query_admin_socket(&path, AdminQuery::Status).expect("admin socket answers");
    assert!(status.contains("ADD cpu-acc: ") && status.contains("acc emulated (test): "), "{status}");
    assert_eq!(
        query_admin_socket(&path, AdminQuery::Explain(5)).expect("admin socket answers"),
        "",
        "it sends nothing itself"
    );
    // A second context cannot use the same path; after the end of the first one it can.
    let second = || {
        builder(emulated(Vec::new()), host())
            .reg_comm_func(InProcess::itself(), "i", DeviceRole::Cpu)
            .admin_socket(&path)
    };
    assert!(second().init().expect_err("in use").to_string().contains("cannot open admin socket"));
    drop(server.stop());
    let mut second = second().init().expect("context starts");
    all(&mut second, "ADD", &inputs(10));
    std::thread::scope(|scope| {
        let told = scope.spawn(|| query_admin_socket(&path, AdminQuery::Explain(2)));
        while !told.is_finished() {
            assert!(second.wait(Duration::from_millis(10)).is_none());
        }
        assert_eq!(told.join().expect("no panic").expect("admin socket answers").lines().count(), 2);
    });
    drop(second);
    assert!(!path.exists());
}

#[test]
fn next_trip_uses_previous_answer() {
    let mut context = alone(emulated(Vec::new()));
    let inputs = inputs(100);
    // The trips run at the responder, at the requester, and at the responder.
    for (answer, input) in all(&mut context, "TWICE", &inputs).iter().zip(&inputs) {
        assert_eq!(answer.result, Ok(sum(&sum(&sum(input)))));
    }
    let next: NextFn = Arc::new(|trip, request, answer| {
        assert_eq!((trip, answer), (1, &sum(request)));
        Bytes::from_static(b"other")
    });
    let builder = builder(emulated(Vec::new()), host()).next("TWICE", next);
    let mut context =
        builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts");
    assert_eq!(all(&mut context, "TWICE", &inputs[..1])[0].result, Ok(sum(&sum(b"other"))));
}

#[test]
fn requests_of_one_address_are_never_reordered() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&log);
    let code = move |slow: u64| {
        let log = Arc::clone(&noted);
        TaskCode::host(move |input, output| {
            let tag = u64::from_be_bytes(input.try_into().expect("eight bytes"));
            if tag % 7 == slow {
                std::thread::sleep(Duration::from_micros(300));
            }
            log.lock().expect("no panic").push(tag);
            output[..8].copy_from_slice(input);
            Ok(8)
        })
    };
    let hardware = || Hardware::preset(Preset::Direct);
    let mut context = Builder::new(application(), hardware(), hardware())
        .device(DeviceRole::Cpu, Arc::new(CpuPool::start(&PoolConfig::new(2)).expect("threads")))
        .device(DeviceRole::Acc, emulated(Vec::new()))
        .reg_app_func(code(3), "add", DeviceRole::Cpu, 0)
        .reg_app_func(code(5), "add", DeviceRole::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .strategy(Choose::RoundRobin)
        .limits(patient())
        .init()
        .expect("context starts");
    let inputs: Vec<_> = (0..400_u64).map(|tag| tag.to_be_bytes().to_vec()).collect();
    all(&mut context, "ORDERED", &inputs);
    let log = log.lock().expect("no panic");
    for address in 0..5 {
        let of: Vec<_> = log.iter().filter(|tag| **tag % 5 == address).collect();
        assert!(of.len() == 80 && of.is_sorted(), "address {address}: {of:?}");
    }
}

#[test]
fn later_trips_pass_first_trips() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&log);
    let slow = TaskCode::host(move |input, output| {
        std::thread::sleep(Duration::from_millis(1));
        noted.lock().expect("no panic").push(input.to_vec());
        output[..input.len()].copy_from_slice(&sum(input));
        Ok(input.len())
    });
    let hardware = || Hardware::preset(Preset::Direct);
    let mut application = application();
    application.set_compute(0, DeviceRole::Cpu, 1_000_000);
    let mut context = Builder::new(application, hardware(), hardware())
        .device(DeviceRole::Cpu, pool())
        .device(DeviceRole::Acc, emulated(Vec::new()))
        .reg_app_func(slow, "add", DeviceRole::Cpu, 0)
        .reg_app_func(host(), "add", DeviceRole::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .strategy(Choose::AllCpu)
        .limits(patient())
        .init()
        .expect("context starts");
    // The processor's job time is known after these requests.
    all(&mut context, "ADD", &inputs(40));
    log.lock().expect("no panic").clear();
    context.send(message(&context, "TWICE", 0, b"x")).expect("room");
    for tag in 1..=20 {
        context.send(message(&context, "ADD", tag, b"y")).expect("room");
    }
    (0..=20).for_each(|_| drop(answer(&mut context)));
    let log = log.lock().expect("no panic");
    let second = log.iter().position(|input| *input == sum(b"x")[..]).expect("device exists");
    // Only jobs that the processor had already received run before it.
    assert!(log[0] == b"x" && second < 8, "{second}: {log:?}");
}

#[test]
fn excess_and_unknown_requests_are_refused() {
    // No job is completed until the gate opens.
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = || {
        let gate = Arc::clone(&gate);
        TaskCode::host(move |input, output| {
            let (open, opens) = &*gate;
            drop(opens.wait_while(open.lock().expect("no panic"), |open| !*open).expect("no panic"));
            add(input, output)
        })
    };
    let select = patient().select.in_flight_max(4);
    let hardware = || Hardware::preset(Preset::Direct);
    let mut context = Builder::new(application(), hardware(), hardware())
        .device(DeviceRole::Cpu, pool())
        .device(DeviceRole::Acc, emulated(Vec::new()))
        .reg_app_func(held(), "add", DeviceRole::Cpu, 0)
        .reg_app_func(held(), "add", DeviceRole::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .limits(Limits { select, ..patient() })
        .init()
        .expect("context starts");
    for tag in 0..4 {
        context.send(message(&context, "ADD", tag, b"x")).expect("room");
    }
    assert_eq!(context.send(message(&context, "ADD", 4, b"x")), Err(SendError::Full(4)));
    let mut unknown = message(&context, "ADD", 4, b"x");
    unknown.kind = KindId(99);
    assert_eq!(context.send(unknown), Err(SendError::Kind(KindId(99))));
    *gate.0.lock().expect("no panic") = true;
    gate.1.notify_all();
    for _ in 0..4 {
        assert_eq!(answer(&mut context).result, Ok(sum(b"x")));
    }
    context.send(message(&context, "ADD", 4, b"x")).expect("room again");
}

#[test]
fn application_may_handle_requests_itself() {
    let builder = builder(emulated(Vec::new()), host()).handles_itself(false);
    let mut context =
        builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts");
    for tag in 0..3 {
        context.send(message(&context, "ADD", tag, b"x")).expect("room");
    }
    let (mut results, mut came, mut handled) = (Vec::new(), 0, 0);
    while results.len() < 3 || handled < 2 {
        match context.wait(LIMIT).expect("in time") {
            Event::Request(incoming) if came == 0 => {
                came += 1;
                incoming.answer(Instant(u64::MAX), Bytes::from_static(b"own"));
            }
            // On another role than that of its path.
            Event::Request(incoming) => context.handle(incoming, DeviceRole::Cpu),
            Event::Answer(answer) => results.push(answer.result.expect("an answer")),
            Event::Handled => handled += 1,
            other @ Event::Accessed { .. } => panic!("{other:?}"),
        }
    }
    assert_eq!(handled, 2, "one request was answered without the accelerator");
    results.sort();
    assert!(results.contains(&sum(b"x")) && results.contains(&Bytes::from_static(b"own")), "{results:?}");
}

#[test]
fn kernel_answers_equal_host_answers() {
    let source = "kernel void add(global const uchar *input, uint input_bytes, global uchar *output, uint max) {\n\
                  uint i = get_global_id(0);\n  if (i < input_bytes && i < max) output[i] = input[i] + 7;\n}";
    for device in accelerators() {
        let code = code(kernel(source, "add", AnswerLength::AsInput), &*device);
        let builder = builder(device, code).strategy(Choose::RoundRobin);
        let builder = builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu);
        let mut context = builder.init().expect("context starts");
        let mut inputs = inputs(300);
        inputs.push(vec![3; 200_000]);
        assert_sums(&all(&mut context, "ADD", &inputs), &inputs);
        let telemetry = context.telemetry();
        assert!(telemetry.devices[1].stats.done >= 100 && telemetry.devices[1].stats.failed == 0, "{telemetry}");
    }
}
