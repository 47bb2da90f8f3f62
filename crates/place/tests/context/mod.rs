//! Contexts of two hosts in one process: answers, order, windows, telemetry.

mod faults;
mod two;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use pathcall_place::context::comm::{self, InProcess};
use pathcall_place::context::{Answer, Around, Builder, Context, Event, Failure, Limits, Message, NextFn, SendError};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::device::emulated::{Emulated, Fault as Wrong, Planted, Rate};
use pathcall_place::device::pool::{Pool, PoolConfig};
use pathcall_place::device::{AppError, Code, Device, Items, Kernel, Length};
use pathcall_place::model::{Application, Hardware, Preset};
use pathcall_place::path::KindId;
use pathcall_place::select::Strategy as Choose;
use pathcall_place::{Config, Role};
use pathcall_wire::Instant;
use proptest::prelude::*;

/// Reached only when something hangs.
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

/// Adds 7 to each byte; refuses what begins with 255.
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

fn host() -> Code {
    Code::Host(Arc::new(add), Length::AsInput)
}

fn pool() -> Arc<dyn Device> {
    Arc::new(Pool::start(&PoolConfig::new(1)).expect("threads"))
}

fn emulated(faults: Vec<Planted>) -> Arc<dyn Device> {
    let rate = Rate { per_job: Duration::from_micros(20), ..Rate::default() };
    Arc::new(Emulated::start("test", rate, faults).expect("a thread"))
}

fn builder(acc: Arc<dyn Device>, code: Code) -> Builder {
    let hardware = || Hardware::preset(Preset::Direct);
    Builder::new(application(), hardware(), hardware())
        .limits(patient())
        .device(Role::Cpu, pool())
        .device(Role::Acc, acc)
        .reg_app_func(host(), "add", Role::Cpu, 0)
        .reg_app_func(code, "add", Role::Acc, 0)
}

/// No job is late, and no path is left, however busy the machine is: what is done twice, or elsewhere, is no part of a
/// test.
fn patient() -> Limits {
    let select = Config::default().stall_factor(u32::MAX);
    Limits { select, stall: LIMIT, ..Limits::default() }
}

/// What a device does not answer soon is done elsewhere: also what it would have answered, on a machine that stands still.
fn hasty() -> Limits {
    Limits { stall: Duration::from_millis(20), ..Limits::default() }
}

fn alone(acc: Arc<dyn Device>) -> Context {
    builder(acc, host()).reg_comm_func(InProcess::itself(), "itself", Role::Cpu).init().expect("it begins")
}

fn message(context: &Context, kind: &str, tag: u64, payload: &[u8]) -> Message {
    let kind = context.kind(kind).expect("a type");
    Message { kind, address: tag % 5, message: 0, tag, payload: Bytes::copy_from_slice(payload) }
}

fn answer(context: &mut Context) -> Answer {
    match context.wait(LIMIT).expect("in time") {
        Event::Answer(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// Sends all, eight at a time: the answers, in the order of the requests.
fn all(context: &mut Context, kind: &str, inputs: &[Vec<u8>]) -> Vec<Answer> {
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
fn who_asks_at_the_door_is_told() {
    use pathcall_place::door::{Question, ask};
    let path = std::env::temp_dir().join(format!("pathcall-place-{}.sock", std::process::id()));
    let (asks, works) = InProcess::pair();
    let server = builder(emulated(Vec::new()), host()).reg_comm_func(works, "works", Role::Cpu).door(&path);
    let server = server.init().expect("it begins").spawn().expect("a thread");
    let hardware = || Hardware::preset(Preset::Direct);
    let asks = Builder::new(application(), hardware(), hardware()).reg_comm_func(asks, "asks", Role::Cpu);
    let mut context = asks.init().expect("it begins");
    all(&mut context, "ADD", &inputs(10));
    let status = ask(&path, Question::Status).expect("it listens");
    assert!(status.contains("ADD cpu-acc: ") && status.contains("acc emulated (test): "), "{status}");
    assert_eq!(ask(&path, Question::Explain(5)).expect("it listens"), "", "it sends nothing itself");
    // A second one has no door there, and a new one after the first is gone does.
    let second =
        || builder(emulated(Vec::new()), host()).reg_comm_func(InProcess::itself(), "i", Role::Cpu).door(&path);
    assert!(second().init().expect_err("in use").to_string().contains("no door at"));
    drop(server.stop());
    let mut second = second().init().expect("it begins");
    all(&mut second, "ADD", &inputs(10));
    std::thread::scope(|scope| {
        let told = scope.spawn(|| ask(&path, Question::Explain(2)));
        while !told.is_finished() {
            assert!(second.wait(Duration::from_millis(10)).is_none());
        }
        assert_eq!(told.join().expect("no panic").expect("it listens").lines().count(), 2);
    });
    drop(second);
    assert!(!path.exists());
}

#[test]
fn dataflows_of_several_trips_go_on_with_what_came() {
    let mut context = alone(emulated(Vec::new()));
    let inputs = inputs(100);
    // At the responder, at the requester, at the responder.
    for (answer, input) in all(&mut context, "TWICE", &inputs).iter().zip(&inputs) {
        assert_eq!(answer.result, Ok(sum(&sum(&sum(input)))));
    }
    let next: NextFn = Arc::new(|trip, request, answer| {
        assert_eq!((trip, answer), (1, &sum(request)));
        Bytes::from_static(b"other")
    });
    let builder = builder(emulated(Vec::new()), host()).next("TWICE", next);
    let mut context = builder.reg_comm_func(InProcess::itself(), "itself", Role::Cpu).init().expect("it begins");
    assert_eq!(all(&mut context, "TWICE", &inputs[..1])[0].result, Ok(sum(&sum(b"other"))));
}

#[test]
fn requests_of_one_address_are_never_reordered() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&log);
    let code = move |slow: u64| {
        let log = Arc::clone(&noted);
        Code::host(move |input, output| {
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
        .device(Role::Cpu, Arc::new(Pool::start(&PoolConfig::new(2)).expect("threads")))
        .device(Role::Acc, emulated(Vec::new()))
        .reg_app_func(code(3), "add", Role::Cpu, 0)
        .reg_app_func(code(5), "add", Role::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", Role::Cpu)
        .strategy(Choose::RoundRobin)
        .limits(patient())
        .init()
        .expect("it begins");
    let inputs: Vec<_> = (0..400_u64).map(|tag| tag.to_be_bytes().to_vec()).collect();
    all(&mut context, "ORDERED", &inputs);
    let log = log.lock().expect("no panic");
    for address in 0..5 {
        let of: Vec<_> = log.iter().filter(|tag| **tag % 5 == address).collect();
        assert!(of.len() == 80 && of.is_sorted(), "address {address}: {of:?}");
    }
}

#[test]
fn what_goes_on_passes_what_begins() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&log);
    let slow = Code::host(move |input, output| {
        std::thread::sleep(Duration::from_millis(1));
        noted.lock().expect("no panic").push(input.to_vec());
        output[..input.len()].copy_from_slice(&sum(input));
        Ok(input.len())
    });
    let hardware = || Hardware::preset(Preset::Direct);
    let mut application = application();
    application.set_compute(0, Role::Cpu, 1_000_000);
    let mut context = Builder::new(application, hardware(), hardware())
        .device(Role::Cpu, pool())
        .device(Role::Acc, emulated(Vec::new()))
        .reg_app_func(slow, "add", Role::Cpu, 0)
        .reg_app_func(host(), "add", Role::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", Role::Cpu)
        .strategy(Choose::AllCpu)
        .limits(patient())
        .init()
        .expect("it begins");
    // What the processor takes for a job is known then.
    all(&mut context, "ADD", &inputs(40));
    log.lock().expect("no panic").clear();
    context.send(message(&context, "TWICE", 0, b"x")).expect("room");
    for tag in 1..=20 {
        context.send(message(&context, "ADD", tag, b"y")).expect("room");
    }
    (0..=20).for_each(|_| drop(answer(&mut context)));
    let log = log.lock().expect("no panic");
    let second = log.iter().position(|input| *input == sum(b"x")[..]).expect("it is there");
    // Before it are those that the processor had already.
    assert!(log[0] == b"x" && second < 8, "{second}: {log:?}");
}

#[test]
fn too_many_are_refused_and_unknown_ones() {
    // Nothing is answered until the gate opens.
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = || {
        let gate = Arc::clone(&gate);
        Code::host(move |input, output| {
            let (open, opens) = &*gate;
            drop(opens.wait_while(open.lock().expect("no panic"), |open| !*open).expect("no panic"));
            add(input, output)
        })
    };
    let select = patient().select.in_flight_max(4);
    let hardware = || Hardware::preset(Preset::Direct);
    let mut context = Builder::new(application(), hardware(), hardware())
        .device(Role::Cpu, pool())
        .device(Role::Acc, emulated(Vec::new()))
        .reg_app_func(held(), "add", Role::Cpu, 0)
        .reg_app_func(held(), "add", Role::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", Role::Cpu)
        .limits(Limits { select, ..patient() })
        .init()
        .expect("it begins");
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
fn an_application_may_handle_requests_itself() {
    let builder = builder(emulated(Vec::new()), host()).handles_itself(false);
    let mut context = builder.reg_comm_func(InProcess::itself(), "itself", Role::Cpu).init().expect("it begins");
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
            // On another role than its path names.
            Event::Request(incoming) => context.handle(incoming, Role::Cpu),
            Event::Answer(answer) => results.push(answer.result.expect("an answer")),
            Event::Handled => handled += 1,
            other @ Event::Accessed { .. } => panic!("{other:?}"),
        }
    }
    assert_eq!(handled, 2, "one was answered without");
    results.sort();
    assert!(results.contains(&sum(b"x")) && results.contains(&Bytes::from_static(b"own")), "{results:?}");
}

#[test]
fn kernels_and_the_host_answer_alike() {
    let device = match open(&Choice::OpenCl(0)) {
        Ok(device) => device,
        Err(error) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let source = "kernel void add(global const uchar *input, uint input_bytes, global uchar *output, uint max) {\n\
                  uint i = get_global_id(0);\n  if (i < input_bytes && i < max) output[i] = input[i] + 7;\n}";
    let (items, length) = (Items::PerInput(1), Length::AsInput);
    let (options, tables) = (String::new(), Vec::new());
    let kernel = Kernel { source: source.into(), entry: "add".into(), options, items, group: 64, length, tables };
    let builder = builder(device, Code::OpenCl(kernel)).strategy(Choose::RoundRobin);
    let builder = builder.reg_comm_func(InProcess::itself(), "itself", Role::Cpu);
    let mut context = builder.init().expect("it begins");
    let mut inputs = inputs(300);
    inputs.push(vec![3; 200_000]);
    assert_sums(&all(&mut context, "ADD", &inputs), &inputs);
    let telemetry = context.telemetry();
    assert!(telemetry.devices[1].stats.done >= 100 && telemetry.devices[1].stats.failed == 0, "{telemetry}");
}
