//! The demo's part of *place*: 10,000 messages about records, worked on by one thread, by an accelerator, and by both; where
//! they went, and why.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pathcall_place::context::comm::InProcess;
use pathcall_place::context::{Answer, Builder, Context, Event, Message};
use pathcall_place::device::discover::open;
use pathcall_place::device::{AppError, Code};
use pathcall_place::{Application, Hardware, Role, Strategy};

use super::RUN_MAX;
use crate::cli::failure::Failure;
use crate::cli::print;
use crate::cli::table::Table;

/// A check reads a record, a write changes it: checks pass no write of their record.
const APPLICATION: &str = "application: records
tasks:
  check: {}
  write: { cpu: 5 us }
requests:
  CHECK:
    dependency: ADDR
    access: read
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: check }]
      - trips: [{ path: cpu-acc, bytes: 8 B, reply: 8 B, responder: check }]
  WRITE:
    dependency: ADDR
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 16 B, reply: 8 B, responder: write }]
";
/// A thread, and an accelerator that works on two at a time.
const HOST: &str = "hardware: demo
nodes:
  cpu: { role: cpu, slots: 1 }
  acc: { role: acc, slots: 2 }
  nic: { role: nic }
links:
  - { between: [cpu, acc], bandwidth: 12.8 GB/s, messages: 10 M/s, latency: 1 us }
  - { between: [cpu, nic], bandwidth: 12.8 GB/s, messages: 10 M/s, latency: 1 us }
";
/// Each takes about so long for a check; the accelerator's model sleeps, and remembers answers rather than work them out.
const ACCELERATOR: &str = "emulated:per-job=100us,slots=2,latency=5us";
const CHECK_ROUNDS: u64 = 40_000;
const MESSAGES: u64 = 10_000;
const RECORDS: u64 = 64;
/// One message in so many is a write.
const WRITES: u64 = 10;
/// Messages on their way at the same time.
const WINDOW: usize = 32;
/// Requests that are explained.
const EXPLAINED: usize = 3;

type Records = Arc<Mutex<HashMap<u64, u64>>>;

/// Works on the messages three times, prints what came of it, and says which results differ.
pub(super) fn run() -> Result<Vec<String>, Failure> {
    let mut table =
        Table::new(["place", "result", "messages/s", "p50 us", "p99 us", "checks by the cpu", "by the accelerator"]);
    let (mut differing, mut why) = (Vec::new(), String::new());
    let ways = [("cpu", Strategy::AllCpu), ("accelerator", Strategy::AllAcc), ("both", Strategy::Leo)];
    for (name, strategy) in ways {
        let mut context = context(strategy)?;
        let began = Instant::now();
        let wrong = work(&mut context)?;
        let took = began.elapsed();
        let telemetry = context.telemetry();
        let way = |path: &str| telemetry.paths.iter().find(|way| way.kind == "CHECK" && way.name == path);
        let done = |path| way(path).map_or(0, |way| way.state.done);
        let mut total = telemetry.paths[0].total.clone();
        for path in &telemetry.paths[1..] {
            // All have the same bounds.
            let _ = total.add(&path.total);
        }
        let us = |quantile| format!("{:.0}", total.value_at_quantile(quantile) as f64 / 1e3);
        table.row([
            name.to_owned(),
            if wrong == 0 { "right".to_owned() } else { "DIFFERS".to_owned() },
            format!("{:.0}", MESSAGES as f64 / took.as_secs_f64()),
            us(0.5),
            us(0.99),
            done("cpu-cpu").to_string(),
            done("cpu-acc").to_string(),
        ]);
        if wrong > 0 {
            differing.push(format!("place ({name}): {wrong} of {MESSAGES} answers are not what the records were"));
        }
        if strategy == Strategy::Leo {
            // A String takes everything.
            let _ = context.explain(EXPLAINED).try_for_each(|one| writeln!(why, "{one}"));
        }
    }
    print(&format!(
        "\nplace: {MESSAGES} messages about {RECORDS} records, a thread and an accelerator ({ACCELERATOR})\n{table}\
         the last of them, k × toll + T of each path in nanoseconds:\n{why}"
    ))?;
    Ok(differing)
}

fn context(strategy: Strategy) -> Result<Context, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Place(error.to_string());
    let device = |choice: &str| {
        let choice = choice.parse().map_err(|error| failed(&error))?;
        open(&choice).map_err(|error| failed(&error))
    };
    let application = Application::parse("records.yaml", APPLICATION).map_err(|error| failed(&error))?;
    let records = Records::default();
    let host = Hardware::parse("host.yaml", HOST).map_err(|error| failed(&error))?;
    let check = |remember: bool| {
        let (records, remembered) = (Arc::clone(&records), Records::default());
        Code::host(move |request, answer| {
            let value = lock(&records).get(&word(request)?).copied();
            let value = value.unwrap_or(0);
            put(
                answer,
                match remember {
                    true => *lock(&remembered).entry(value).or_insert_with(|| checked(value)),
                    false => checked(value),
                },
            )
        })
    };
    let written = Arc::clone(&records);
    let write = Code::host(move |request, answer| {
        let (record, value) = (word(request)?, word(request.get(8..).unwrap_or_default())?);
        lock(&written).insert(record, value);
        put(answer, value)
    });
    Builder::new(application, host.clone(), host)
        .strategy(strategy)
        .device(Role::Cpu, device("cpu:1")?)
        .device(Role::Acc, device(ACCELERATOR)?)
        .reg_app_func(check(false), "check", Role::Cpu, 8)
        .reg_app_func(check(true), "check", Role::Acc, 8)
        .reg_app_func(write, "write", Role::Cpu, 8)
        .sample("check", 0_u64.to_be_bytes().to_vec().into())
        .reg_comm_func(InProcess::itself(), "itself", Role::Cpu)
        .init()
        .map_err(|error| failed(&error))
}

/// Sends all messages; how many answers are not what the records were when they were sent.
fn work(context: &mut Context) -> Result<usize, Failure> {
    let failed = |what: String| Failure::Place(what);
    let kinds = ["CHECK", "WRITE"].map(|name| context.kind(name));
    let [Some(check), Some(write)] = kinds else { return Err(failed("the application lacks a request".into())) };
    let (mut records, mut expected, mut wrong) = (HashMap::new(), Vec::new(), 0);
    for tag in 0..MESSAGES {
        if tag >= WINDOW as u64 {
            wrong += usize::from(!is_right(&answer(context)?, &expected));
        }
        let record = tag.wrapping_mul(7919) % RECORDS;
        let (kind, payload) = if tag % WRITES == 0 {
            records.insert(record, tag);
            expected.push(tag);
            (write, [record.to_be_bytes(), tag.to_be_bytes()].concat())
        } else {
            expected.push(checked(records.get(&record).copied().unwrap_or(0)));
            (check, record.to_be_bytes().to_vec())
        };
        let message = Message { kind, address: record, message: 0, tag, payload: payload.into() };
        context.send(message).map_err(|error| failed(error.to_string()))?;
    }
    for _ in 0..WINDOW {
        wrong += usize::from(!is_right(&answer(context)?, &expected));
    }
    Ok(wrong)
}

fn answer(context: &mut Context) -> Result<Answer, Failure> {
    let until = Instant::now() + RUN_MAX;
    loop {
        match context.wait(until.saturating_duration_since(Instant::now())) {
            Some(Event::Answer(answer)) => return Ok(answer),
            Some(_) => {}
            None => return Err(Failure::Stuck { run: "place".to_owned(), after: RUN_MAX }),
        }
    }
}

fn is_right(answer: &Answer, expected: &[u64]) -> bool {
    let expected = expected.get(answer.tag as usize).map(|value| value.to_be_bytes());
    matches!((&answer.result, expected), (Ok(bytes), Some(expected)) if bytes[..] == expected)
}

/// What a check of a record comes to: some work.
fn checked(value: u64) -> u64 {
    (0..CHECK_ROUNDS).fold(value, |sum, round| (sum ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
}

/// Held only for a moment, by code that does not panic.
fn lock(records: &Mutex<HashMap<u64, u64>>) -> MutexGuard<'_, HashMap<u64, u64>> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

fn word(bytes: &[u8]) -> Result<u64, AppError> {
    let word = bytes.first_chunk().ok_or_else(|| AppError("a record's number has 8 bytes".into()))?;
    Ok(u64::from_be_bytes(*word))
}

fn put(answer: &mut [u8], value: u64) -> Result<usize, AppError> {
    let to = answer.first_chunk_mut().ok_or_else(|| AppError("an answer has 8 bytes".into()))?;
    *to = value.to_be_bytes();
    Ok(8)
}
