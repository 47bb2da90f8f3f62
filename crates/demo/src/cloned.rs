//! Demo of *clone*: a key-value service with cloned calls, without clones, and as plain gRPC. Compares results and
//! shows latencies as bars.

use std::path::Path;

use serde::Deserialize;
use tokio::process::Command;

use super::findings::{Findings, verdict};
use super::{Programs, find as find_programs, run_report};
use crate::failure::Failure;
use pathcall_console::{TextTable, bars, print};

const KV: &str = "kv";

const DESCRIPTION: &str = "
clone: the element sends an idempotent call to two servers if it knows two idle ones, and the first
answer counts, so that a slow server does not delay the caller. Workload: reads of a store with four
replicas; one call in a hundred takes 15 times as long.
";

/// Program of the demo.
pub(super) struct Demo {
    programs: Programs,
}

/// Report of the application: the same calls by each path, plain gRPC last.
#[derive(Debug, Deserialize)]
struct Report {
    ways: Vec<PathResult>,
}

/// Result of one path.
#[derive(Debug, Deserialize)]
struct PathResult {
    name: String,
    calls: u64,
    calls_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    /// Extra requests per call; absent where unknown.
    extra: Option<f64>,
    /// Hash of the results.
    digest: String,
}

/// Finds the application in this folder.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    Ok(Demo { programs: find_programs(directory, [KV])? })
}

impl Demo {
    /// Runs the application, and prints the table and the bars.
    pub(super) async fn run(&self, controller: &str, findings: &mut Findings) -> Result<(), Failure> {
        print(DESCRIPTION)?;
        for (name, program) in &self.programs {
            let mut command = Command::new(program);
            let picture = findings.picture("kv-latency.svg", "latencies of reads, with and without clones");
            command.args(["demo", "--json", "--seconds", "0.5", "--controller", controller, "--picture"]).arg(picture);
            let report: Report = run_report((*name).to_owned(), command, program).await?;
            let reference = report.ways.last().map(|way| way.digest.clone()).unwrap_or_default();
            let mut table =
                TextTable::new(["application", "path", "result", "calls", "calls/s", "p50 ms", "p99 ms", "extra"]);
            for (i, way) in report.ways.iter().enumerate() {
                let result = match way.digest == reference {
                    _ if i + 1 == report.ways.len() => "reference",
                    true => "equal",
                    false => {
                        let PathResult { name: by, digest, .. } = way;
                        findings.differs(format!("{name} ({by}): expected {reference}, got {digest}"));
                        "DIFFERS"
                    }
                };
                table.row(row(name, result, way));
                findings.rate(name, &way.name, way.calls_per_s);
            }
            print(&format!("{table}{}{}", quantiles(&report.ways), gains(&report.ways)))?;
        }
        Ok(())
    }
}

fn row(name: &str, result: &str, way: &PathResult) -> [String; 8] {
    [
        name.to_owned(),
        way.name.clone(),
        result.to_owned(),
        way.calls.to_string(),
        format!("{:.0}", way.calls_per_s),
        format!("{:.1}", way.p50_us / 1e3),
        format!("{:.1}", way.p99_us / 1e3),
        way.extra.map_or("-".to_owned(), |extra| format!("{:.1} %", extra * 100.0)),
    ]
}

/// Verdict: latencies of the first path, with clones, beside plain gRPC, the last path.
fn gains(ways: &[PathResult]) -> String {
    let [cloned, .., plain] = ways else { return String::new() };
    let ms = |us: f64| us / 1e3;
    verdict(
        &format!(
            "the p99 latency is {:.1} ms with clones ({}), {:.1} ms with {}",
            ms(cloned.p99_us),
            cloned.name,
            ms(plain.p99_us),
            plain.name
        ),
        &format!(
            "the median latency is {:.1} ms beside {:.1} ms, and servers receive {:.1} % more requests",
            ms(cloned.p50_us),
            ms(plain.p50_us),
            cloned.extra.unwrap_or(0.0) * 100.0
        ),
    )
}

/// Median and 99th percentile of each path, to one scale.
fn quantiles(ways: &[PathResult]) -> String {
    let longest = ways.iter().map(|way| way.name.chars().count()).max().unwrap_or(0);
    let of = |share: &'static str, of: fn(&PathResult) -> f64| {
        ways.iter().map(move |way| (format!("{share}  {:<longest$}", way.name), of(way) / 1e3))
    };
    let rows: Vec<_> = of("p50", |way| way.p50_us).chain(of("p99", |way| way.p99_us)).collect();
    bars(&rows, "ms")
}
