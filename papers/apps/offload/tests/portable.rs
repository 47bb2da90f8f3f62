//! A new hardware model and a new dataflow are each one file, and run with all that was there (LEO §II-B: M + N, not
//! M × N): every application over the new hardware, the new dataflow over every hardware. No application knows of them.

use std::path::PathBuf;

use apps_offload::{Between, Flags, Report, Workload};
use pathcall_place::model::Preset;
use pathcall_place::{Application, Strategy};

fn model(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "models", name].iter().collect()
}

/// Applications, and what they run: few messages, for these files and any other.
type Make = fn(&Application) -> anyhow::Result<Box<dyn Workload>>;
const APPLICATIONS: [((&str, &str), Make); 3] =
    [(index::FILE, store), (blocks::FILE, disk), (files::APPLICATION, written)];

fn store(application: &Application) -> anyhow::Result<Box<dyn Workload>> {
    let (keys, puts, inserts, parts) = (500, 0.4, 0.2, 3);
    let mix = index::Mix { keys, puts, inserts, parts, messages: 60, rounds: 1, seed: 2, follows: true };
    Ok(Box::new(index::Load::new(application, mix)?))
}

fn disk(application: &Application) -> anyhow::Result<Box<dyn Workload>> {
    let shape = blocks::Shape { volumes: 17, blocks: 200, layers: 3, extents: 10, disk: 40 };
    let reads = blocks::Reads { shape, large: 0.5, messages: 60, rounds: 1, seed: 2 };
    Ok(Box::new(blocks::Load::new(application, reads)?))
}

fn written(_: &Application) -> anyhow::Result<Box<dyn Workload>> {
    Ok(Box::new(files::Load::new(files::Codec::Words, 8, 900_000, true)))
}

/// Each path gets its turn.
fn run(file: (&str, &str), make: Make, application: Option<&str>, hardware: &str) -> Report {
    let flags = Flags {
        application: application.map(model),
        requester: hardware.to_owned(),
        responder: hardware.to_owned(),
        // Of a processor that keeps order, requests follow each other over it.
        cpu: "cpu:2".parse().expect("a device"),
        acc: "emulated:per-job=30us,slots=2".parse().expect("a device"),
        strategies: vec![Strategy::RoundRobin],
        between: Between::Itself,
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
fn all_applications_run_over_new_hardware() {
    let hardware = model("coherent.yaml");
    for (file, make) in APPLICATIONS {
        let report = run(file, make, None, hardware.to_str().expect("a path"));
        assert!(report.hardware.iter().all(|name| name == "coherent") && report.runs[0].messages >= 60, "{report:?}");
    }
}

#[test]
fn a_new_dataflow_runs_over_all_hardware() {
    let mine = model("coherent.yaml");
    for hardware in Preset::ALL.map(Preset::name).into_iter().chain(mine.to_str()) {
        let report = run(index::FILE, store, Some("cached.yaml"), hardware);
        assert!(report.file.ends_with("cached.yaml") && report.runs[0].paths.len() == 4, "{report:?}");
    }
}

#[test]
fn what_a_file_lacks_is_said() {
    let lacking = model("coherent.yaml").display().to_string();
    let flags = |application: &str| Flags {
        application: Some(model(application)),
        requester: lacking.clone(),
        responder: "on-path".to_owned(),
        cpu: "cpu:1".parse().expect("a device"),
        acc: "emulated:per-job=30us".parse().expect("a device"),
        strategies: vec![Strategy::Leo],
        between: Between::Itself,
        window: 8,
        json: false,
    };
    let said = flags("none.yaml").plan(index::FILE).expect_err("no file").to_string();
    assert!(said.starts_with("cannot read ") && said.ends_with("none.yaml"), "{said}");
    let said = flags("coherent.yaml").plan(index::FILE).expect_err("hardware is no application").to_string();
    assert!(said.contains("coherent.yaml:"), "{said}");
    let plan = flags("cached.yaml").plan(index::FILE).expect("right");
    let said = disk(&plan.application).map(drop).expect_err("other requests").to_string();
    assert!(said.contains("cached.yaml has no request `READ4K`"), "{said}");
}
