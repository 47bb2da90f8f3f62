//! `never-slower`: each application of the demo by the automatic path, beside plain gRPC, on the loopback, for several
//! sizes of its messages. The applications are programs beside this one, and check their results. The figure fails if
//! a row is worse than [`RATE_MIN`] or [`MEDIAN_MAX`].

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::{Bench, Better, Figure, Kind, Metric, Row};
use crate::net::{Network, runtime};

pub(crate) const FIGURE: Figure = Figure {
    name: "never-slower",
    about: "applications by the automatic path, beside plain gRPC, on the loopback",
    kind: Kind::Measured,
    run,
};

/// Least ratio of calls per second to plain gRPC, and greatest ratio of the median time of a call.
const RATE_MIN: f64 = 0.95;
const MEDIAN_MAX: f64 = 1.05;

/// Application with the arguments of its runs.
struct Workload {
    program: &'static str,
    arguments: &'static str,
    /// Argument of a run by plain gRPC.
    plain: &'static str,
    /// Whether the other runs take a controller.
    has_controller: bool,
    /// Option with the size of messages, the concurrency or the method, and its values.
    sizes: (&'static str, &'static [&'static str]),
}

const WORKLOADS: [Workload; 9] = [
    map("wordcount", "--json --words 4000000", ("--batch", &["100", "1000", "4000", "20000"])),
    map("monitor", "--json --packets 1000000", ("--batch", &["100", "1000", "10000"])),
    map("training", "--json", ("--epochs", &["400"])),
    map("lock", "--json --sections 10000", ("--locks", &["1", "3", "64"])),
    map("vote", "--json --ballots 10000", ("--concurrent", &["1", "8", "64"])),
    map("photos", "demo --json --calls 3000", ("--only", &["like", "get", "thumbnail", "find"])),
    delegated("lookup", "demo --json"),
    delegated("rays", "render --json"),
    delegated("proxy", "demo --json --calls 10000"),
];

const fn map(
    program: &'static str,
    arguments: &'static str,
    sizes: (&'static str, &'static [&'static str]),
) -> Workload {
    Workload { program, arguments, plain: "--plain", has_controller: true, sizes }
}

const fn delegated(program: &'static str, arguments: &'static str) -> Workload {
    Workload { program, arguments, plain: "--rpc", has_controller: false, sizes: ("", &[""]) }
}

fn run(bench: &mut Bench) -> Result<()> {
    let runtime = runtime()?;
    let network = runtime.block_on(Network::start())?;
    let controller = ["--controller", &network.url()].map(str::to_owned);
    for workload in &WORKLOADS {
        let (option, sizes) = workload.sizes;
        for size in &sizes[..bench.size(sizes.len(), 1)] {
            let sized = [option, size].into_iter().filter(|word| !word.is_empty());
            let arguments: Vec<_> = workload.arguments.split(' ').chain(sized).map(str::to_owned).collect();
            let automatic = if workload.has_controller { &controller[..] } else { &[] };
            let peer = [workload.plain.to_owned()];
            let report = |more: &[String]| -> Result<[f64; 2]> {
                let report = report(workload.program, &[&arguments, more].concat())?;
                // A report by method has one method.
                let times = report["methods"].get(0).unwrap_or(&report);
                Ok([number(&report, "calls_per_s")?, number(times, "p50_us")?])
            };
            let name = [workload.program, option, size].join(" ").trim_end().to_owned();
            bench.compare(metrics(&name), || report(automatic), || report(&peer))?;
        }
    }
    reads(bench, &controller)?;
    runtime.block_on(network.shutdown());
    Ok(())
}

/// Cloned reads beside plain gRPC. One run of the application has both.
fn reads(bench: &mut Bench, controller: &[String]) -> Result<()> {
    let arguments: Vec<_> = ["demo", "--json", "--seconds", bench.size("5", "1")].map(str::to_owned).to_vec();
    let mut plain = [f64::NAN; 2];
    let plain = std::cell::Cell::from_mut(&mut plain);
    let cloned = || -> Result<[f64; 2]> {
        let report = report("kv", &[&arguments, controller].concat())?;
        let paths = report["ways"].as_array().context("no paths in the report")?;
        let times = |path: Option<&Value>| -> Result<[f64; 2]> {
            let path = path.context("no path in the report")?;
            Ok([number(path, "calls_per_s")?, number(path, "p50_us")?])
        };
        plain.set(times(paths.last())?);
        times(paths.first())
    };
    bench.compare(metrics("kv"), cloned, || Ok(plain.get()))
}

fn metrics(name: &str) -> [Metric; 2] {
    [
        Metric::new(name, "plain gRPC", "calls/s", Better::Higher).expect(RATE_MIN),
        Metric::new(format!("{name}: median time"), "plain gRPC", "us", Better::Lower).expect(MEDIAN_MAX),
    ]
}

/// Report of a run of an application.
fn report(program: &str, arguments: &[String]) -> Result<Value> {
    let own = std::env::current_exe().context("the path of this program is unknown")?;
    let path = own.with_file_name(program);
    ensure!(path.is_file(), "{} is missing: `make bench` builds it", path.display());
    let output = Command::new(path).args(arguments).output().with_context(|| format!("cannot start {program}"))?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), errors.trim());
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("{program}: expected a report in JSON, got {line:?}"))
}

fn number(report: &Value, name: &str) -> Result<f64> {
    report[name].as_f64().with_context(|| format!("the report has no {name}"))
}

/// Fails if a row is slower than the bounds.
pub(crate) fn check(rows: &[Row]) -> Result<()> {
    let slower: Vec<_> = rows.iter().filter(|row| row.reached() == Some(false)).map(Row::name_and_ratio).collect();
    ensure!(slower.is_empty(), "slower than plain gRPC: {}", slower.join(", "));
    Ok(())
}
