//! Emulated accelerator on a machine whose processors are all busy: it is used, and answers are right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pathcall_place::context::comm::InProcess;
use pathcall_place::context::{Builder, Event, PlaceContext, RequestMessage};
use pathcall_place::device::discover::open;
use pathcall_place::device::{AppError, TaskCode};
use pathcall_place::{Application, DeviceRole, Hardware};

const APPLICATION: &str = "application: beside
tasks:
  check: { cpu: 60 us, acc: 60 us }
requests:
  CHECK:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: check }]
      - trips: [{ path: cpu-acc, bytes: 8 B, reply: 8 B, responder: check }]
";
const HOST: &str = "hardware: beside
nodes:
  cpu: { role: cpu, slots: 1 }
  acc: { role: acc, slots: 2 }
  nic: { role: nic }
links:
  - { between: [cpu, acc], bandwidth: 12.8 GB/s, messages: 10 M/s, latency: 1 us }
  - { between: [cpu, nic], bandwidth: 12.8 GB/s, messages: 10 M/s, latency: 1 us }
";
const MESSAGES: u64 = 4_000;
const WINDOW: u64 = 32;
/// Limit on the rounds without a result.
const TURNS: u64 = 10;
/// Timeout, reached only if the test hangs.
const LIMIT: Duration = Duration::from_secs(180);
const WORK: Duration = Duration::from_micros(50);

fn context() -> PlaceContext {
    let device = |choice: &str| open(&choice.parse().expect("a device")).expect("device opens");
    let answer = |request: &[u8], answer: &mut [u8]| -> Result<usize, AppError> {
        answer[..8].copy_from_slice(&twice(word(request)).to_be_bytes());
        Ok(8)
    };
    let slow = move |request: &[u8], to: &mut [u8]| {
        let until = Instant::now() + WORK;
        while Instant::now() < until {}
        answer(request, to)
    };
    let host = Hardware::parse("host.yaml", HOST).expect("hardware");
    Builder::new(Application::parse("beside.yaml", APPLICATION).expect("an application"), host.clone(), host)
        .device(DeviceRole::Cpu, device("cpu:1"))
        .device(DeviceRole::Acc, device("emulated:per-job=60us,slots=2,latency=5us"))
        .reg_app_func(TaskCode::host(slow), "check", DeviceRole::Cpu, 8)
        .reg_app_func(TaskCode::host(answer), "check", DeviceRole::Acc, 8)
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .init()
        .expect("a context")
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(*bytes.first_chunk().expect("eight bytes"))
}

fn twice(value: u64) -> u64 {
    value.wrapping_mul(2)
}

fn answer(context: &mut PlaceContext) {
    match context.wait(LIMIT) {
        Some(Event::Answer(answer)) => {
            assert_eq!(word(&answer.result.expect("an answer")), twice(answer.tag));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn accelerator_is_used_while_all_processors_are_busy() {
    let over = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..thread::available_parallelism().map_or(2, usize::from))
        .map(|_| {
            let over = Arc::clone(&over);
            thread::spawn(move || while !over.load(Ordering::Relaxed) {})
        })
        .collect();
    let mut context = context();
    let began = Instant::now();
    // A pause of the machine makes the selector leave a path for a while, perhaps this one; another round follows
    // then.
    let shown = (0..TURNS).any(|turn| {
        let before = context.telemetry().paths[1].state.done;
        all(&mut context, turn * MESSAGES);
        let done = context.telemetry().paths[1].state.done - before;
        println!("turn {turn}: the accelerator has done {done} of {MESSAGES}, {:?} in all", began.elapsed());
        done > MESSAGES / 8
    });
    over.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().expect("profile ends"));
    let telemetry = context.telemetry();
    assert!(shown, "the accelerator is hardly used\n{telemetry}");
}

/// Sends the messages of one round, and receives their answers.
fn all(context: &mut PlaceContext, first: u64) {
    let kind = context.kind("CHECK").expect("a type of request");
    for tag in first..first + MESSAGES {
        if tag >= first + WINDOW {
            answer(context);
        }
        let payload = Bytes::copy_from_slice(&tag.to_be_bytes());
        context.send(RequestMessage { kind, address: 0, message: 0, tag, payload }).expect("request is sent");
    }
    for _ in 0..WINDOW {
        answer(context);
    }
}
