//! Portability: a new hardware model or a new dataflow is one file, and runs with everything else (LEO §II-B: M + N,
//! not M × N). Every application runs on the new hardware, the new dataflow runs on all hardware, and no application is
//! changed.

use std::path::PathBuf;

use apps_offload::{AppWorkload, Flags, HostLink, Report};
use pathcall_place::model::Preset;
use pathcall_place::{Application, SelectionStrategy};

fn model(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "models", name].iter().collect()
}

/// Constructor of a small workload for any application file.
type Make = fn(&Application) -> anyhow::Result<Box<dyn AppWorkload>>;
const APPLICATIONS: [((&str, &str), Make); 3] =
    [(index::FILE, store), (blocks::FILE, disk), (files::APPLICATION, written)];

fn store(application: &Application) -> anyhow::Result<Box<dyn AppWorkload>> {
    let (keys, puts, inserts, parts) = (500, 0.4, 0.2, 3);
    let mix = index::YcsbMix { keys, puts, inserts, parts, messages: 60, rounds: 1, seed: 2, updates_copies: true };
    Ok(Box::new(index::IndexLoad::new(application, mix)?))
}

fn disk(application: &Application) -> anyhow::Result<Box<dyn AppWorkload>> {
    let shape = blocks::DiskShape { volumes: 17, blocks: 200, layers: 3, extents: 10, disk: 40 };
    let reads = blocks::Reads { shape, large: 0.5, messages: 60, rounds: 1, seed: 2 };
    Ok(Box::new(blocks::BlockLoad::new(application, reads)?))
}

fn written(_: &Application) -> anyhow::Result<Box<dyn AppWorkload>> {
    Ok(Box::new(files::FileLoad::new(files::Codec::Words, 8, 900_000, true)))
}

/// Runs with a strategy that uses each path in turn.
fn run(file: (&str, &str), make: Make, application: Option<&str>, hardware: &str) -> Report {
    let flags = Flags {
        application: application.map(model),
        requester: hardware.to_owned(),
        responder: hardware.to_owned(),
        // A processor that keeps order would serialize the requests.
        cpu: "cpu:2".parse().expect("a device"),
        acc: "emulated:per-job=30us,slots=2".parse().expect("a device"),
        strategies: vec![SelectionStrategy::RoundRobin],
        between: HostLink::Itself,
        window: 8,
        json: false,
    };
    let mut workload = make(&flags.plan(file).expect("files").application).expect("messages");
    let report = flags.run(file, &mut *workload).expect("answers");
    report.all_equal().expect("the processor's answers");
    let unused: Vec<_> = report.runs[0].paths.iter().filter(|share| share.messages == 0).collect();
    assert!(unused.is_empty(), "{} over {hardware}: {unused:?}", report.file);
    report
}

#[test]
fn all_applications_run_on_new_hardware() {
    let hardware = model("coherent.yaml");
    for (file, make) in APPLICATIONS {
        let report = run(file, make, None, hardware.to_str().expect("a path"));
        assert!(report.hardware.iter().all(|name| name == "coherent") && report.runs[0].messages >= 60, "{report:?}");
    }
}

#[test]
fn new_dataflow_runs_on_all_hardware() {
    let mine = model("coherent.yaml");
    for hardware in Preset::ALL.map(Preset::name).into_iter().chain(mine.to_str()) {
        let report = run(index::FILE, store, Some("cached.yaml"), hardware);
        assert!(report.file.ends_with("cached.yaml") && report.runs[0].paths.len() == 4, "{report:?}");
    }
}

#[test]
fn invalid_model_files_are_reported() {
    let lacking = model("coherent.yaml").display().to_string();
    let flags = |application: &str| Flags {
        application: Some(model(application)),
        requester: lacking.clone(),
        responder: "on-path".to_owned(),
        cpu: "cpu:1".parse().expect("a device"),
        acc: "emulated:per-job=30us".parse().expect("a device"),
        strategies: vec![SelectionStrategy::Leo],
        between: HostLink::Itself,
        window: 8,
        json: false,
    };
    let error = flags("none.yaml").plan(index::FILE).expect_err("no file").to_string();
    assert!(error.starts_with("cannot read ") && error.ends_with("none.yaml"), "{error}");
    let error = flags("coherent.yaml").plan(index::FILE).expect_err("hardware is no application").to_string();
    assert!(error.contains("coherent.yaml:"), "{error}");
    let plan = flags("cached.yaml").plan(index::FILE).expect("right");
    let error = disk(&plan.application).map(drop).expect_err("other requests").to_string();
    assert!(error.contains("cached.yaml has no request `READ4K`"), "{error}");
}
