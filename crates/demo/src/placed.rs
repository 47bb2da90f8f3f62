//! Demo of *place*: 2,000 messages about records, processed by a thread, by an accelerator, and by both, with the
//! reasons for their paths.
//!
//! The accelerator is emulated: it sleeps for the time of its model, and its answers were computed in advance, since a
//! real device would not use a processor of this machine either.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pathcall_place::context::comm::InProcess;
use pathcall_place::context::telemetry::{PathSnapshot, SelectionRecord, Telemetry};
use pathcall_place::context::{Answer, Builder, Event, PlaceContext, RequestMessage};
use pathcall_place::device::discover::open;
use pathcall_place::device::{AppError, ComputeDevice, TaskCode};
use pathcall_place::{Application, DeviceRole, Hardware, PathId, SelectionReason};
use pathcall_plot::{Axis, BarRole, Chart, Comparison, ComparisonPanel, PlotLine};

use super::RUN_MAX;
use super::findings::{Findings, verdict, wrap};
use crate::failure::Failure;
use crate::gain::{Gain, other};
use pathcall_console::TextTable;
use pathcall_console::print;

/// Application model: a check reads a record, and a write changes it in order with the checks.
const APPLICATION: &str = "application: records
tasks:
  check: { cpu: 240 us, acc: 480 us }
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
/// Hardware model: a thread, and an accelerator that processes two messages at a time.
const HOST: &str = "hardware: demo
nodes:
  cpu: { role: cpu, slots: 1 }
  acc: { role: acc, slots: 2 }
  nic: { role: nic }
links:
  - { between: [cpu, acc], bandwidth: 12.8 GB/s, messages: 10 M/s, latency: 2 us }
  - { between: [cpu, nic], bandwidth: 12.8 GB/s, messages: 10 M/s, latency: 1 us }
";
const ACCELERATOR: &str = "emulated:per-job=480us,slots=2,latency=5us";
/// Time of a check on a thread; the work is calibrated to it.
const CHECK: Duration = Duration::from_micros(240);
/// Rounds of a calibration run, and number of such runs.
const CALIBRATION_ROUNDS: u64 = 2_000;
const CALIBRATION_RUNS: u32 = 50;
const MESSAGES: u64 = 2_000;
const RECORDS: usize = 64;
/// One message in this many is a write.
const WRITES: u64 = 50;
/// Messages in progress at the same time.
const WINDOW: u64 = 48;
/// Messages between two samples of the counts.
const SAMPLE_INTERVAL: u64 = 50;
/// Recent requests from which the explained ones are chosen.
const EXPLAINED_MAX: usize = 1024;

/// Configurations, each with the path that is excluded.
const CONFIGURATIONS: [(&str, &str); 3] = [("processor", "cpu-acc"), ("accelerator", "cpu-cpu"), ("both", "")];

/// Work of a check, expected answers, and precomputed results of checks.
struct Expected {
    rounds: u64,
    answers: Vec<u64>,
    checked: Arc<HashMap<u64, u64>>,
}

/// Number of completed messages at a time.
struct Sample {
    at: Duration,
    processor: u64,
    accelerator: u64,
}

/// Result of one run.
struct Run {
    wrong: usize,
    samples: Vec<Sample>,
    per_second: f64,
    telemetry: Telemetry,
    explanations: String,
}

/// Runs the part, prints the results, and draws the picture.
pub(super) async fn run_part(findings: &mut Findings) -> Result<(), Failure> {
    print(&format!(
        "\n{}",
        wrap(&format!(
            "place: inside a host, each message takes the path that finishes soonest. Workload: {MESSAGES} messages \
             about {RECORDS} records, one in {WRITES} a write; a check takes {} us on a thread, and 480 us on an emulated \
             accelerator, which processes two at a time.",
            CHECK.as_micros()
        ))
    ))?;
    let done = tokio::task::spawn_blocking(run).await.map_err(|error| Failure::Place(error.to_string()))?;
    let (differing, runs) = done?;
    differing.into_iter().for_each(|what| findings.differs(what));
    draw_rates(&runs, findings)?;
    let samples = runs.last().map_or(&[][..], |both| &both.samples);
    let points = |of: fn(&Sample) -> u64| -> Vec<(f64, f64)> {
        samples.iter().map(|sample| (sample.at.as_secs_f64() * 1e3, of(sample) as f64)).collect()
    };
    let path = findings.picture("place.svg", "paths of placed messages over time");
    Chart {
        title: "place: paths of messages",
        about: "completed messages of a thread, and of an accelerator with twice the time and two at a time",
        x: Axis::from_zero("time, ms"),
        y: Axis::from_zero("messages"),
        lines: &[
            PlotLine { name: "by the processor".to_owned(), points: points(|sample| sample.processor) },
            PlotLine { name: "by the accelerator".to_owned(), points: points(|sample| sample.accelerator) },
        ],
    }
    .draw(&path)?;
    Ok(())
}

/// Draws the messages per second of all three configurations.
fn draw_rates(runs: &[Run], findings: &mut Findings) -> Result<(), Failure> {
    let [processor, accelerator, both] = runs else { return Ok(()) };
    let (name, better) = match processor.per_second > accelerator.per_second {
        true => ("the processor alone", processor),
        false => ("the accelerator alone", accelerator),
    };
    let gain = Gain::rate(both.per_second, better.per_second);
    let panel = ComparisonPanel {
        quantity: "Messages per second (more is better)".to_owned(),
        unit: "messages/s",
        bars: vec![
            gain.bar("Pathcall, both", both.per_second, name),
            other("accelerator alone", accelerator.per_second, BarRole::Baseline),
            other("processor alone", processor.per_second, BarRole::Baseline),
        ],
    };
    let path = findings.picture("place-rate.svg", "messages per second of processor, accelerator and both");
    Comparison {
        title: &format!("Work on processor and accelerator: {}", gain.than(name)),
        about: "checks of records: 240 µs on one processor; 480 µs on an emulated accelerator, two at a time",
        panels: &[panel],
        notes: &["One message in 50 is a write, which only the processor can do.".to_owned()],
    }
    .draw(&path)?;
    Ok(())
}

/// Processes the messages in all three configurations and prints the results. Returns the differences and the runs, that
/// with both paths last.
fn run() -> Result<(Vec<String>, Vec<Run>), Failure> {
    let expected = Expected::new();
    let mut table =
        TextTable::new(["paths", "result", "messages/s", "p50 us", "p99 us", "by processor", "by accelerator"]);
    let (mut differing, mut runs) = (Vec::new(), Vec::new());
    for (name, without) in CONFIGURATIONS {
        let run = play(without, &expected)?;
        table.row(row(name, &run));
        if run.wrong > 0 {
            differing.push(format!("place ({name}): {} of {MESSAGES} answers are wrong", run.wrong));
        }
        runs.push(run);
    }
    let [processor, accelerator, both] = &runs[..] else { return Ok((differing, runs)) };
    let times = both.per_second / processor.per_second.max(accelerator.per_second);
    let times_left = |path: usize| both.telemetry.paths[path].state.times_left;
    let gains = verdict(
        &format!("both paths together process {times:.2} times as many messages per second as the better one"),
        &format!("one message in {WRITES} is a write, which only the processor can process"),
    );
    let avoided = wrap(&format!(
        "Paths avoided for a while because of late or missing answers: processor {} times, accelerator {} times.",
        times_left(0),
        times_left(1)
    ));
    print(&format!(
        "{table}{gains}{avoided}Estimated cost of a path: its time, and the delay of other messages. Examples:\n{}",
        both.explanations
    ))?;
    Ok((differing, runs))
}

fn row(name: &str, run: &Run) -> [String; 7] {
    let paths = &run.telemetry.paths;
    let mut total = paths[0].total.clone();
    for path in &paths[1..] {
        // All histograms have the same bounds.
        let _ = total.add(&path.total);
    }
    let us = |quantile| format!("{:.0}", total.value_at_quantile(quantile) as f64 / 1e3);
    let done = |of: &str| paths.iter().filter(|path| path.name == of).map(|path| path.state.done).sum::<u64>();
    [
        name.to_owned(),
        if run.wrong == 0 { "correct".to_owned() } else { "DIFFERS".to_owned() },
        format!("{:.0}", run.per_second),
        us(0.5),
        us(0.99),
        done("cpu-cpu").to_string(),
        done("cpu-acc").to_string(),
    ]
}

/// Processes all messages once, with one path excluded for checks.
fn play(without: &str, expected: &Expected) -> Result<Run, Failure> {
    let mut context = context(without, expected)?;
    let began = Instant::now();
    let (wrong, samples) = work(&mut context, &expected.answers)?;
    let per_second = MESSAGES as f64 / began.elapsed().as_secs_f64();
    Ok(Run { wrong, samples, per_second, telemetry: context.telemetry(), explanations: explanations(&context) })
}

fn context(without: &str, expected: &Expected) -> Result<PlaceContext, Failure> {
    // The single path of a write is not in a list.
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
        .device(DeviceRole::Cpu, device("cpu:1")?)
        .device(DeviceRole::Acc, device(ACCELERATOR)?)
        .reg_app_func(
            TaskCode::host(move |request, answer| write_number(answer, checked(rounds, of(&read, request)?))),
            "check",
            DeviceRole::Cpu,
            8,
        )
        .reg_app_func(
            TaskCode::host(move |request, answer| {
                let value = of(&looked_at, request)?;
                write_number(answer, *known.get(&value).ok_or_else(|| AppError(format!("unknown value {value}")))?)
            }),
            "check",
            DeviceRole::Acc,
            8,
        )
        .reg_app_func(
            TaskCode::host(move |request, answer| {
                let value = read_number(request.get(8..).unwrap_or_default())?;
                record(&written, request)?.store(value, Ordering::Release);
                write_number(answer, value)
            }),
            "write",
            DeviceRole::Cpu,
            8,
        )
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .init()
        .map_err(failed)
}

fn device(choice: &str) -> Result<Arc<dyn ComputeDevice>, Failure> {
    open(&choice.parse().map_err(failed)?).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Place(error.to_string())
}

/// Number of the record of a message, and whether it is a write.
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

/// Sends all messages. Returns the number of wrong answers and the samples.
fn work(context: &mut PlaceContext, expected: &[u64]) -> Result<(usize, Vec<Sample>), Failure> {
    let [Some(check), Some(write)] = ["CHECK", "WRITE"].map(|name| context.kind(name)) else {
        return Err(failed("the application has no request CHECK or WRITE"));
    };
    let is_wrong = |answer: &Answer| {
        let right = expected.get(answer.tag as usize).map(|value| value.to_be_bytes());
        !matches!((&answer.result, right), (Ok(bytes), Some(right)) if bytes[..] == right)
    };
    let (began, mut wrong, mut samples) = (Instant::now(), 0, Vec::new());
    for tag in 0..MESSAGES + WINDOW {
        if tag.is_multiple_of(SAMPLE_INTERVAL) || tag + 1 == MESSAGES + WINDOW {
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
            context.send(RequestMessage { kind, address: record, message: 0, tag, payload }).map_err(failed)?;
        }
    }
    Ok((wrong, samples))
}

fn sample(context: &PlaceContext, at: Duration) -> Sample {
    let paths = context.telemetry().paths;
    let done = |name: &str| paths.iter().filter(|path| path.name == name).map(|path| path.state.done).sum();
    Sample { at, processor: done("cpu-cpu"), accelerator: done("cpu-acc") }
}

fn answer(context: &mut PlaceContext) -> Result<Answer, Failure> {
    let until = Instant::now() + RUN_MAX;
    loop {
        match context.wait(until.saturating_duration_since(Instant::now())) {
            Some(Event::Answer(answer)) => return Ok(answer),
            Some(_) => {}
            None => return Err(Failure::Stuck { run: "place".to_owned(), after: RUN_MAX }),
        }
    }
}

/// Explanations of recent messages: one for each path.
fn explanations(context: &PlaceContext) -> String {
    let records: Vec<&SelectionRecord> = context.explain(EXPLAINED_MAX).map(|told| told.record).collect();
    let last = |path: u16| records.iter().rev().find(|record| record.chosen.is_some_and(|(on, _)| on == PathId(path)));
    let mut text = String::new();
    for record in (0..context.telemetry().paths.len() as u16).filter_map(last) {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{}", sentence(record));
    }
    text
}

/// Paths of a check come before that of a write.
const fn place(path: PathId) -> &'static str {
    if path.0 == 1 { "accelerator" } else { "processor" }
}

fn sentence(record: &SelectionRecord) -> String {
    let SelectionRecord { tag, chosen: Some((path, explanations)), waited, options, ended, .. } = record else {
        return String::new();
    };
    let us = |ns: u64| ns / 1000;
    let after = ended.map_or("not completed".to_owned(), |(_, total)| format!("completed after {} us", us(total)));
    let (what, to) = (if path.0 == 2 { "write" } else { "check" }, place(*path));
    let reason = match explanations {
        SelectionReason::Best if *waited => "soonest after the messages about the same record".to_owned(),
        SelectionReason::Best | SelectionReason::LeastBad => {
            let option = |seen: &PathSnapshot| {
                let left = if seen.left { " (avoided)" } else { "" };
                format!("{} us by {}{left}", us(seen.total_ns()), place(seen.path))
            };
            let options: Vec<_> = options.iter().flatten().map(option).collect();
            format!("estimates {}", options.join(", "))
        }
        SelectionReason::Only => "only possible path".to_owned(),
        SelectionReason::Probe => "probe of an avoided path".to_owned(),
        SelectionReason::LastAttempt => "last attempt".to_owned(),
        SelectionReason::Follows => "in order after a message about the same record".to_owned(),
    };
    format!("message {tag} ({what}) by {to}: {reason}; {after}")
}

/// Calibrated rounds of a check on this machine; the fastest run counts, since other load only slows it down.
fn rounds() -> u64 {
    let time = |_| {
        let began = Instant::now();
        std::hint::black_box(checked(CALIBRATION_ROUNDS, 0));
        began.elapsed()
    };
    let least = (0..CALIBRATION_RUNS).map(time).min().unwrap_or(CHECK).as_nanos().max(1);
    (u128::from(CALIBRATION_ROUNDS) * CHECK.as_nanos() / least) as u64
}

/// Result of a check of a record, after some work.
fn checked(rounds: u64, value: u64) -> u64 {
    (0..rounds).fold(value, |sum, round| (sum ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
}

fn record<'a>(records: &'a [AtomicU64], request: &[u8]) -> Result<&'a AtomicU64, AppError> {
    let number = read_number(request)?;
    let record = usize::try_from(number).ok().and_then(|number| records.get(number));
    record.ok_or_else(|| AppError(format!("unknown record {number}")))
}

fn read_number(bytes: &[u8]) -> Result<u64, AppError> {
    let read_number = bytes.first_chunk().ok_or_else(|| AppError("invalid number: expected 8 bytes".into()))?;
    Ok(u64::from_be_bytes(*read_number))
}

fn write_number(answer: &mut [u8], value: u64) -> Result<usize, AppError> {
    let to = answer.first_chunk_mut().ok_or_else(|| AppError("invalid answer buffer: expected 8 bytes".into()))?;
    *to = value.to_be_bytes();
    Ok(8)
}
