//! `place-apps`: whole applications of *place* on this machine (LEO §V-B): each message where it is done sooner, beside the
//! better of all on the processor and all on the accelerator. One core for the processor's role; the accelerator is emulated,
//! as fast as that core in each task, and waits; or it is OpenCL's first device. Every answer is checked.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apps_offload::{Bed, Between, Outcome, Plan, Workload};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::device::emulated::Rate;
use pathcall_place::model::{Preset, Task};
use pathcall_place::{Application, Hardware, Paths, Role, Strategy};

use crate::harness::{Bench, Better, Figure, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "place-apps",
    about: "store, files and disk of place: each message where it is done sooner, beside all on one device",
    run,
};

/// Messages under way.
const WINDOW: usize = 16;
/// What is to be reached, beside the better single path.
const RATIO: f64 = 1.5;
/// Messages that differ, and times that each is sent.
const DIFFERENT: usize = 128;
const ROUNDS: usize = 24;
const ROUNDS_QUICK: usize = 2;

/// An application and its load: name, file, hardware, what makes its messages with so many rounds.
struct App {
    name: &'static str,
    file: (&'static str, &'static str),
    hardware: Preset,
    load: fn(&Application, usize) -> Result<Box<dyn Workload>>,
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
        row(bench, app, "emulated", |per_task| Choice::Emulated(Rate { per_task, ..Rate::default() }))?;
    }
    match open(&Choice::OpenCl(0)) {
        Ok(_) => APPS.iter().try_for_each(|app| row(bench, app, "OpenCL", |_| Choice::OpenCl(0))),
        Err(error) => {
            bench.says(&format!("left out: {error}"));
            Ok(())
        }
    }
}

/// `device`: the accelerator, by the times that the processor takes for tasks that both can do.
fn row(bench: &mut Bench, app: &App, named: &str, device: fn(Vec<(String, Duration)>) -> Choice) -> Result<()> {
    let application = Application::parse(app.file.0, app.file.1)?;
    let mut load = (app.load)(&application, bench.size(ROUNDS, ROUNDS_QUICK))?;
    let hardware = || Hardware::preset(app.hardware);
    let plan = |application, acc| {
        let devices = [Choice::cpu(1), acc];
        let (requester, responder) = (hardware(), hardware());
        Plan { application, requester, responder, devices, between: Between::Itself, window: WINDOW }
    };
    let first = Bed::new(plan(application.clone(), device(Vec::new())), &*load)?;
    let alone = first.run(&mut *load, Strategy::AllCpu)?;
    let bed = Bed::new(plan(application, device(times(&first, &alone)?)), &*load)?;
    let metrics = [
        Metric::new(format!("{}, {named}", app.name), "the better of one path", "operations/s", Better::Higher)
            .expect(RATIO),
        Metric::new(format!("{}, {named}: median of a message", app.name), "that one", "us", Better::Lower),
    ];
    let load = RefCell::new(&mut *load);
    let measured = |strategy| -> Result<[f64; 2]> {
        let outcome = bed.run(&mut **load.borrow_mut(), strategy)?;
        ensure!(outcome.wrong == 0, "wrong answers: {:?}", outcome.why);
        Ok([outcome.operations_per_s, outcome.p50_us])
    };
    let single = || -> Result<[f64; 2]> {
        let [cpu, acc] = [measured(Strategy::AllCpu)?, measured(Strategy::AllAcc)?];
        Ok(if cpu[0] > acc[0] { cpu } else { acc })
    };
    bench.compare(metrics, || measured(Strategy::Leo), single)
}

/// The processor's times for the tasks that both roles can do: those of a run in which it did all messages, which are other
/// ones each time and not in its caches, as the one of the profile is.
fn times(bed: &Bed, alone: &Outcome) -> Result<Vec<(String, Duration)>> {
    let Plan { application, requester, responder, .. } = bed.plan();
    let paths = Paths::of(requester, responder, application)?;
    let most = alone.paths.iter().max_by_key(|share| share.messages).context("nothing was sent")?;
    let path = &paths.of_kind(paths.kind(&most.kind).context("a type of request")?)[0];
    let on_nodes = path.hops.iter().filter(|hop| paths.resources[usize::from(hop.resource.0)].node.is_some());
    let profiled_ns: u64 = on_nodes.map(|hop| hop.delay_ns).sum();
    let times = alone.seconds * 1e9 / alone.messages as f64 / profiled_ns as f64;
    let of = |task: &Task| {
        let [cpu, acc] = Role::ALL.map(|role| task.compute_ns[role as usize]);
        acc.and(cpu).map(|ns| (task.name.clone(), Duration::from_nanos((ns as f64 * times.max(1.0)) as u64)))
    };
    let times: Vec<_> = bed.plan().application.tasks.iter().filter_map(of).collect();
    ensure!(!times.is_empty(), "no task can be done by both roles");
    Ok(times)
}

fn ycsb_c(application: &Application, rounds: usize) -> Result<Box<dyn Workload>> {
    let (keys, parts, messages) = (100_000, 64, DIFFERENT);
    let mix = index::Mix { keys, puts: 0.0, inserts: 0.0, parts, messages, rounds, seed: 1, follows: true };
    Ok(Box::new(index::Load::new(application, mix)?))
}

fn ycsb_b(application: &Application, rounds: usize) -> Result<Box<dyn Workload>> {
    // A PUT makes what comes after it another message.
    let (keys, parts, messages) = (100_000, 64, DIFFERENT * rounds);
    let mix = index::Mix { keys, puts: 0.05, inserts: 0.0, parts, messages, rounds: 1, seed: 1, follows: true };
    Ok(Box::new(index::Load::new(application, mix)?))
}

fn lz4(_: &Application, rounds: usize) -> Result<Box<dyn Workload>> {
    Ok(written(files::Codec::Lz4, rounds))
}

/// As kernels pack them.
fn words(_: &Application, rounds: usize) -> Result<Box<dyn Workload>> {
    Ok(written(files::Codec::Words, rounds))
}

fn written(codec: files::Codec, rounds: usize) -> Box<dyn Workload> {
    Box::new(files::Load::new(codec, 8 * rounds, files::FILE, false))
}

fn small_reads(application: &Application, rounds: usize) -> Result<Box<dyn Workload>> {
    disk(application, rounds, 0.0)
}

fn large_reads(application: &Application, rounds: usize) -> Result<Box<dyn Workload>> {
    disk(application, rounds, 1.0)
}

fn disk(application: &Application, rounds: usize, large: f64) -> Result<Box<dyn Workload>> {
    let reads = blocks::Reads { shape: blocks::Shape::default(), large, messages: DIFFERENT, rounds, seed: 1 };
    Ok(Box::new(blocks::Load::new(application, reads)?))
}
