//! The demo's part of *place*: 10,000 messages about records, worked on by a thread, by an accelerator, and by both; where
//! they went, and why.
//!
//! The accelerator is emulated: it sleeps for as long as its model says, and its answers were worked out beforehand, as a
//! device of its own would take no processor of this machine either.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pathcall_place::context::comm::InProcess;
use pathcall_place::context::telemetry::{Explained, Seen, Telemetry};
use pathcall_place::context::{Answer, Builder, Context, Event, Message};
use pathcall_place::device::discover::open;
use pathcall_place::device::{AppError, Code, Device};
use pathcall_place::{Application, Hardware, PathId, Role, Why};
use pathcall_plot::{Axis, Chart, Line};

use super::RUN_MAX;
use super::findings::Findings;
use crate::failure::Failure;
use pathcall_console::Table;
use pathcall_console::print;

/// A check reads a record, a write changes it, and keeps its place among the checks.
const APPLICATION: &str = "application: records
tasks:
  check: { cpu: 60 us, acc: 120 us }
  write: { cpu: 2 us }
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
  - { between: [cpu, acc], bandwidth: 12.8 GB/s, messages: 10 M/s, latency: 2 us }
  - { between: [cpu, nic], bandwidth: 12.8 GB/s, messages: 10 M/s, latency: 1 us }
";
const ACCELERATOR: &str = "emulated:per-job=120us,slots=2,latency=5us";
/// How long a check is to take a thread; how many rounds of work that is, is found out.
const CHECK: Duration = Duration::from_micros(60);
/// Rounds by which that is found out, and how often.
const TRIED_ROUNDS: u64 = 2_000;
const TRIED: u32 = 50;
const MESSAGES: u64 = 10_000;
const RECORDS: usize = 64;
/// One message in so many is a write.
const WRITES: u64 = 50;
/// Messages on their way at the same time.
const WINDOW: u64 = 48;
/// After so many messages it is noted who has done how many.
const SAMPLED: u64 = 250;
/// Requests of which what is told is chosen.
const EXPLAINED: usize = 1024;

/// What works on checks, and the ways that it takes away.
const WAYS: [(&str, &str); 3] = [("processor", "cpu-acc"), ("accelerator", "cpu-cpu"), ("both", "")];

/// What a check is, what each of the messages must be answered, and what a check of each value comes to.
struct Expected {
    rounds: u64,
    answers: Vec<u64>,
    checked: Arc<HashMap<u64, u64>>,
}

/// How many messages were done at some time.
struct Sample {
    at: Duration,
    processor: u64,
    accelerator: u64,
}

/// One run.
struct Run {
    wrong: usize,
    samples: Vec<Sample>,
    per_second: f64,
    telemetry: Telemetry,
    why: String,
}

/// Works on the messages, prints what came of it, and draws where they went.
pub(super) async fn tell(findings: &mut Findings) -> Result<(), Failure> {
    print(&format!(
        "\nplace: inside a host a message goes where it is done sooner. {MESSAGES} messages about {RECORDS} records, one in \
         {WRITES} a write;\na check takes a thread {} us, an accelerator (emulated) 120 us, and that does two at a \
         time.\n",
        CHECK.as_micros()
    ))?;
    let done = tokio::task::spawn_blocking(run).await.map_err(|error| Failure::Place(error.to_string()))?;
    let (differing, samples) = done?;
    differing.into_iter().for_each(|what| findings.differs(what));
    let points = |of: fn(&Sample) -> u64| -> Vec<(f64, f64)> {
        samples.iter().map(|sample| (sample.at.as_secs_f64() * 1e3, of(sample) as f64)).collect()
    };
    let path = findings.picture("place.svg", "where placed messages went over time");
    Chart {
        title: "place: where messages went",
        about: "messages done so far by a thread and by an accelerator that takes twice as long and does two at a time",
        x: Axis::from_zero("time, ms"),
        y: Axis::from_zero("messages"),
        lines: &[
            Line { name: "by the processor".to_owned(), points: points(|sample| sample.processor) },
            Line { name: "by the accelerator".to_owned(), points: points(|sample| sample.accelerator) },
        ],
    }
    .draw(&path)?;
    Ok(())
}

/// Works on the messages three times, prints what came of it, and says which results differ, and where messages went
/// that could go both ways.
fn run() -> Result<(Vec<String>, Vec<Sample>), Failure> {
    let expected = Expected::new();
    let mut table =
        Table::new(["place", "result", "messages/s", "p50 us", "p99 us", "by the processor", "by the accelerator"]);
    let (mut differing, mut runs) = (Vec::new(), Vec::new());
    for (name, without) in WAYS {
        let run = play(without, &expected)?;
        table.row(row(name, &run));
        if run.wrong > 0 {
            differing
                .push(format!("place ({name}): {} of {MESSAGES} answers are not what the records were", run.wrong));
        }
        runs.push(run);
    }
    let [processor, accelerator, both] = &runs[..] else { return Ok((differing, Vec::new())) };
    let times = both.per_second / processor.per_second.max(accelerator.per_second);
    let lefts = |path: usize| both.telemetry.paths[path].state.lefts;
    print(&format!(
        "{table}both together: {times:.2} times as many as the better one; ways left for a while because nothing came or \
         it came late:\nthe processor's {} times, the accelerator's {} times\nwhat a way costs is the time that it takes, \
         and that it makes others wait:\n{}",
        lefts(0),
        lefts(1),
        both.why
    ))?;
    Ok((differing, runs.pop().map(|both| both.samples).unwrap_or_default()))
}

fn row(name: &str, run: &Run) -> [String; 7] {
    let paths = &run.telemetry.paths;
    let mut total = paths[0].total.clone();
    for path in &paths[1..] {
        // All have the same bounds.
        let _ = total.add(&path.total);
    }
    let us = |quantile| format!("{:.0}", total.value_at_quantile(quantile) as f64 / 1e3);
    let done = |of: &str| paths.iter().filter(|path| path.name == of).map(|path| path.state.done).sum::<u64>();
    [
        name.to_owned(),
        if run.wrong == 0 { "right".to_owned() } else { "DIFFERS".to_owned() },
        format!("{:.0}", run.per_second),
        us(0.5),
        us(0.99),
        done("cpu-cpu").to_string(),
        done("cpu-acc").to_string(),
    ]
}

/// One run of all messages, where checks can't take one of the ways.
fn play(without: &str, expected: &Expected) -> Result<Run, Failure> {
    let mut context = context(without, expected)?;
    let began = Instant::now();
    let (wrong, samples) = work(&mut context, &expected.answers)?;
    let per_second = MESSAGES as f64 / began.elapsed().as_secs_f64();
    Ok(Run { wrong, samples, per_second, telemetry: context.telemetry(), why: why(&context) })
}

fn context(without: &str, expected: &Expected) -> Result<Context, Failure> {
    // A write's way is its only one, and no list.
    let way = format!("      - trips: [{{ path: {without}, bytes: 8 B,");
    let text: String =
        APPLICATION.lines().filter(|line| !line.starts_with(&way)).map(|line| format!("{line}\n")).collect();
    let application = Application::parse("records.yaml", &text).map_err(failed)?;
    let host = Hardware::parse("host.yaml", HOST).map_err(failed)?;
    let records: Arc<[AtomicU64]> = (0..RECORDS).map(|_| AtomicU64::new(0)).collect();
    let of = |records: &[AtomicU64], request: &[u8]| -> Result<u64, AppError> {
        Ok(record(records, request)?.load(Ordering::Acquire))
    };
    let (read, looked_at, written) = (Arc::clone(&records), Arc::clone(&records), records);
    let (rounds, known) = (expected.rounds, Arc::clone(&expected.checked));
    Builder::new(application, host.clone(), host)
        .device(Role::Cpu, device("cpu:1")?)
        .device(Role::Acc, device(ACCELERATOR)?)
        .reg_app_func(
            Code::host(move |request, answer| put(answer, checked(rounds, of(&read, request)?))),
            "check",
            Role::Cpu,
            8,
        )
        .reg_app_func(
            Code::host(move |request, answer| {
                let value = of(&looked_at, request)?;
                put(answer, *known.get(&value).ok_or_else(|| AppError(format!("nobody has written {value}")))?)
            }),
            "check",
            Role::Acc,
            8,
        )
        .reg_app_func(
            Code::host(move |request, answer| {
                let value = word(request.get(8..).unwrap_or_default())?;
                record(&written, request)?.store(value, Ordering::Release);
                put(answer, value)
            }),
            "write",
            Role::Cpu,
            8,
        )
        .reg_comm_func(InProcess::itself(), "itself", Role::Cpu)
        .init()
        .map_err(failed)
}

fn device(choice: &str) -> Result<Arc<dyn Device>, Failure> {
    open(&choice.parse().map_err(failed)?).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Place(error.to_string())
}

/// Which record a message is about, and whether it writes it.
fn about(tag: u64) -> (u64, bool) {
    (tag.wrapping_mul(7919) % RECORDS as u64, tag.is_multiple_of(WRITES))
}

impl Expected {
    fn new() -> Self {
        let (rounds, mut records, mut checks) = (rounds(), [0; RECORDS], HashMap::new());
        let answer = |tag| {
            let (record, writes) = about(tag);
            let value = &mut records[record as usize];
            if writes {
                *value = tag;
                return tag;
            }
            *checks.entry(*value).or_insert_with(|| checked(rounds, *value))
        };
        Self { rounds, answers: (0..MESSAGES).map(answer).collect(), checked: Arc::new(checks) }
    }
}

/// Sends all messages; how many answers are not what the records were when they were sent, and who had done how many.
fn work(context: &mut Context, expected: &[u64]) -> Result<(usize, Vec<Sample>), Failure> {
    let [Some(check), Some(write)] = ["CHECK", "WRITE"].map(|name| context.kind(name)) else {
        return Err(failed("the application lacks a type of request"));
    };
    let is_wrong = |answer: &Answer| {
        let right = expected.get(answer.tag as usize).map(|value| value.to_be_bytes());
        !matches!((&answer.result, right), (Ok(bytes), Some(right)) if bytes[..] == right)
    };
    let (began, mut wrong, mut samples) = (Instant::now(), 0, Vec::new());
    for tag in 0..MESSAGES + WINDOW {
        if tag.is_multiple_of(SAMPLED) || tag + 1 == MESSAGES + WINDOW {
            samples.push(sample(context, began.elapsed()));
        }
        if tag >= WINDOW {
            wrong += usize::from(is_wrong(&answer(context)?));
        }
        if tag < MESSAGES {
            let (record, writes) = about(tag);
            let value = if writes { &tag.to_be_bytes()[..] } else { &[] };
            let payload = [&record.to_be_bytes()[..], value].concat().into();
            let kind = if writes { write } else { check };
            context.send(Message { kind, address: record, message: 0, tag, payload }).map_err(failed)?;
        }
    }
    Ok((wrong, samples))
}

fn sample(context: &Context, at: Duration) -> Sample {
    let paths = context.telemetry().paths;
    let done = |name: &str| paths.iter().filter(|path| path.name == name).map(|path| path.state.done).sum();
    Sample { at, processor: done("cpu-cpu"), accelerator: done("cpu-acc") }
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

/// Of the last messages one that each way has taken, in words.
fn why(context: &Context) -> String {
    let records: Vec<&Explained> = context.explain(EXPLAINED).map(|told| told.record).collect();
    let last = |path: u16| records.iter().rev().find(|record| record.chosen.is_some_and(|(on, _)| on == PathId(path)));
    let mut text = String::new();
    for record in (0..context.telemetry().paths.len() as u16).filter_map(last) {
        // A String takes everything.
        let _ = writeln!(text, "{}", sentence(record));
    }
    text
}

/// The paths of a check come before that of a write.
const fn place(path: PathId) -> &'static str {
    if path.0 == 1 { "the accelerator" } else { "the processor" }
}

fn sentence(record: &Explained) -> String {
    let Explained { tag, chosen: Some((path, why)), waited, options, ended, .. } = record else { return String::new() };
    let us = |ns: u64| ns / 1000;
    let after = ended.map_or("not done yet".to_owned(), |(_, total)| format!("done after {} us", us(total)));
    let (what, to) = (if path.0 == 2 { "write" } else { "check" }, place(*path));
    let reason = match why {
        Why::Best if *waited => "waited for others about the same record, and that was sooner then".to_owned(),
        Why::Best | Why::LeastBad => {
            let option = |seen: &Seen| {
                let left = if seen.left { ", which was left" } else { "" };
                format!("{} us by {}{left}", us(seen.total_ns()), place(seen.path))
            };
            let options: Vec<_> = options.iter().flatten().map(option).collect();
            format!("would cost {}", options.join(", "))
        }
        Why::Only => "can be done nowhere else".to_owned(),
        Why::Probe => "was to find out whether that is quick again".to_owned(),
        Why::Follows => "keeps its place behind one about the same record".to_owned(),
    };
    format!("message {tag}, a {what}, went to {to}: it {reason}; {after}")
}

/// How many rounds take a thread of this machine so long as a check is to take. Others make it slower, not quicker.
fn rounds() -> u64 {
    let time = |_| {
        let began = Instant::now();
        std::hint::black_box(checked(TRIED_ROUNDS, 0));
        began.elapsed()
    };
    let least = (0..TRIED).map(time).min().unwrap_or(CHECK).as_nanos().max(1);
    (u128::from(TRIED_ROUNDS) * CHECK.as_nanos() / least) as u64
}

/// What a check of a record comes to: some work.
fn checked(rounds: u64, value: u64) -> u64 {
    (0..rounds).fold(value, |sum, round| (sum ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
}

fn record<'a>(records: &'a [AtomicU64], request: &[u8]) -> Result<&'a AtomicU64, AppError> {
    let number = word(request)?;
    let record = usize::try_from(number).ok().and_then(|number| records.get(number));
    record.ok_or_else(|| AppError(format!("there is no record {number}")))
}

fn word(bytes: &[u8]) -> Result<u64, AppError> {
    let word = bytes.first_chunk().ok_or_else(|| AppError("a number has 8 bytes".into()))?;
    Ok(u64::from_be_bytes(*word))
}

fn put(answer: &mut [u8], value: u64) -> Result<usize, AppError> {
    let to = answer.first_chunk_mut().ok_or_else(|| AppError("an answer has 8 bytes".into()))?;
    *to = value.to_be_bytes();
    Ok(8)
}
