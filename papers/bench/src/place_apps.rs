//! `place-apps`: whole applications of *place* on this machine (LEO §V-B): messages on the path that finishes sooner,
//! compared with the better of all on the processor and all on the accelerator. The processor's role has one core. The
//! accelerator is emulated, as fast as that core in each task, and sleeps; or it is OpenCL's first device. Every answer
//! is checked.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apps_offload::{AppRun, AppTestbed, AppWorkload, HostLink, StrategyResults};
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::device::emulated::Rate;
use pathcall_place::model::{Preset, Task};
use pathcall_place::{Application, DeviceRole, Hardware, Paths, SelectionStrategy};

use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "place-apps",
    about: "store, files and disk of place: each message where it is done sooner, beside all on one device",
    kind: Kind::Measured,
    run,
};

/// Messages in progress.
const WINDOW: usize = 16;
/// Expected ratio to the better single path.
const RATIO: f64 = 1.5;
/// Number of different messages, and number of times that each is sent.
const DIFFERENT: usize = 128;
const ROUNDS: usize = 24;
const ROUNDS_QUICK: usize = 2;

/// Application with its load: name, file, hardware, and constructor of its messages for a number of rounds.
struct App {
    name: &'static str,
    file: (&'static str, &'static str),
    hardware: Preset,
    load: fn(&Application, usize) -> Result<Box<dyn AppWorkload>>,
}

const APPS: [App; 6] = [
    App { name: "store, YCSB C", file: index::FILE, hardware: Preset::OffPath, load: ycsb_c },
    App { name: "store, YCSB B", file: index::FILE, hardware: Preset::OffPath, load: ycsb_b },
    App { name: "files, LZ4", file: files::APPLICATION, hardware: Preset::OffPath, load: lz4 },
    App { name: "files, words", file: files::APPLICATION, hardware: Preset::OffPath, load: words },
    App { name: "disk, reads of 4 KiB", file: blocks::FILE, hardware: Preset::OnPath, load: small_reads },
    App { name: "disk, reads of 64 KiB", file: blocks::FILE, hardware: Preset::OnPath, load: large_reads },
];

fn run(bench: &mut Bench) -> Result<()> {
    for app in &APPS {
        row(bench, app, "emulated", |per_task| DeviceChoice::Emulated(Rate { per_task, ..Rate::default() }))?;
    }
    match open(&DeviceChoice::OpenCl(0)) {
        Ok(_) => APPS.iter().try_for_each(|app| row(bench, app, "OpenCL", |_| DeviceChoice::OpenCl(0))),
        Err(error) => {
            bench.print_note(&format!("left out: {error}"));
            Ok(())
        }
    }
}

/// Adds a row. `device`: accelerator, given the processor's times of the tasks that both roles support.
fn row(bench: &mut Bench, app: &App, named: &str, device: fn(Vec<(String, Duration)>) -> DeviceChoice) -> Result<()> {
    let application = Application::parse(app.file.0, app.file.1)?;
    let mut load = (app.load)(&application, bench.size(ROUNDS, ROUNDS_QUICK))?;
    let hardware = || Hardware::preset(app.hardware);
    let plan = |application, acc| {
        let devices = [DeviceChoice::cpu(1), acc];
        let (requester, responder) = (hardware(), hardware());
        AppRun { application, requester, responder, devices, between: HostLink::Itself, window: WINDOW }
    };
    let first = AppTestbed::new(plan(application.clone(), device(Vec::new())), &*load)?;
    let alone = first.run(&mut *load, SelectionStrategy::AllCpu)?;
    let testbed = AppTestbed::new(plan(application, device(times(&first, &alone)?)), &*load)?;
    let metrics = |by: &str| {
        let case = format!("{by}{}, {named}", app.name);
        [
            Metric::new(case.clone(), "the better of one path", "operations/s", Better::Higher).expect(RATIO),
            Metric::new(format!("{case}: median of a message"), "that one", "us", Better::Lower),
        ]
    };
    let load = RefCell::new(&mut *load);
    let measured = |strategy| -> Result<[f64; 2]> {
        let outcome = testbed.run(&mut **load.borrow_mut(), strategy)?;
        ensure!(outcome.wrong == 0, "wrong answers: {:?}", outcome.why);
        Ok([outcome.operations_per_s, outcome.p50_us])
    };
    let single = || -> Result<[f64; 2]> {
        let [cpu, acc] = [measured(SelectionStrategy::AllCpu)?, measured(SelectionStrategy::AllAcc)?];
        Ok(if cpu[0] > acc[0] { cpu } else { acc })
    };
    bench.compare(metrics(""), || measured(SelectionStrategy::Leo), single)?;
    bench.compare(metrics("late binding: "), || measured(SelectionStrategy::Late), single)
}

/// Times of the processor for the tasks that both roles support: from a run of all messages on the processor, with
/// uncached data. The profile repeats one cached message.
fn times(testbed: &AppTestbed, alone: &StrategyResults) -> Result<Vec<(String, Duration)>> {
    let AppRun { application, requester, responder, .. } = testbed.plan();
    let paths = Paths::of(requester, responder, application)?;
    let most = alone.paths.iter().max_by_key(|share| share.messages).context("nothing was sent")?;
    let path = &paths.of_kind(paths.kind(&most.kind).context("unknown request type")?)[0];
    let on_nodes = path.hops.iter().filter(|hop| paths.resources[usize::from(hop.resource.0)].node.is_some());
    let profiled_ns: u64 = on_nodes.map(|hop| hop.delay_ns).sum();
    let times = alone.seconds * 1e9 / alone.messages as f64 / profiled_ns as f64;
    let of = |task: &Task| {
        let [cpu, acc] = [DeviceRole::Cpu, DeviceRole::Acc].map(|role| task.compute_ns[role as usize]);
        acc.and(cpu).map(|ns| (task.name.clone(), Duration::from_nanos((ns as f64 * times.max(1.0)) as u64)))
    };
    let times: Vec<_> = testbed.plan().application.tasks.iter().filter_map(of).collect();
    ensure!(!times.is_empty(), "no task can be done by both roles");
    Ok(times)
}

fn ycsb_c(application: &Application, rounds: usize) -> Result<Box<dyn AppWorkload>> {
    let (keys, parts, messages) = (100_000, 64, DIFFERENT);
    let mix = index::YcsbMix { keys, puts: 0.0, inserts: 0.0, parts, messages, rounds, seed: 1, updates_copies: true };
    Ok(Box::new(index::IndexLoad::new(application, mix)?))
}

fn ycsb_b(application: &Application, rounds: usize) -> Result<Box<dyn AppWorkload>> {
    // A PUT makes all later messages different.
    let (keys, parts, messages) = (100_000, 64, DIFFERENT * rounds);
    let mix =
        index::YcsbMix { keys, puts: 0.05, inserts: 0.0, parts, messages, rounds: 1, seed: 1, updates_copies: true };
    Ok(Box::new(index::IndexLoad::new(application, mix)?))
}

fn lz4(_: &Application, rounds: usize) -> Result<Box<dyn AppWorkload>> {
    Ok(file_load(files::Codec::Lz4, rounds))
}

/// Words codec, as in the kernels.
fn words(_: &Application, rounds: usize) -> Result<Box<dyn AppWorkload>> {
    Ok(file_load(files::Codec::Words, rounds))
}

fn file_load(codec: files::Codec, rounds: usize) -> Box<dyn AppWorkload> {
    Box::new(files::FileLoad::new(codec, 8 * rounds, files::FILE, false))
}

fn small_reads(application: &Application, rounds: usize) -> Result<Box<dyn AppWorkload>> {
    disk(application, rounds, 0.0)
}

fn large_reads(application: &Application, rounds: usize) -> Result<Box<dyn AppWorkload>> {
    disk(application, rounds, 1.0)
}

fn disk(application: &Application, rounds: usize, large: f64) -> Result<Box<dyn AppWorkload>> {
    let reads = blocks::Reads { shape: blocks::DiskShape::default(), large, messages: DIFFERENT, rounds, seed: 1 };
    Ok(Box::new(blocks::BlockLoad::new(application, reads)?))
}
