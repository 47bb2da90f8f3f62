//! The demo's part of *clone*: a key-value service whose calls the element clones, beside itself without that and beside
//! plain gRPC; results compared, latencies as bars.

use std::path::Path;

use serde::Deserialize;
use tokio::process::Command;

use super::findings::Findings;
use super::{Programs, find as find_programs, said};
use crate::failure::Failure;
use pathcall_console::{Table, bars, print};

const KV: &str = "kv";

const STORY: &str = "
clone: a call that may be done twice goes to two servers at once, if the element knows two that are idle, and the first
answer counts: a server that is slow just then holds nobody up. Reads of a replicated store, four servers; one call in a
hundred takes 15 times as long.
";

/// The program.
pub(super) struct Demo {
    programs: Programs,
}

/// What the application says: the same calls, one way after the other, plain gRPC last.
#[derive(Debug, Deserialize)]
struct Report {
    ways: Vec<Way>,
}

/// How the calls went one way.
#[derive(Debug, Deserialize)]
struct Way {
    name: String,
    calls: u64,
    calls_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    /// Requests sent beyond one for each call, for each call; absent where that is not known.
    extra: Option<f64>,
    /// Hash of the result.
    digest: String,
}

/// The application in this directory.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    Ok(Demo { programs: find_programs(directory, [KV])? })
}

impl Demo {
    /// Runs it, and prints the table and the bars.
    pub(super) async fn run(&self, controller: &str, findings: &mut Findings) -> Result<(), Failure> {
        print(STORY)?;
        for (name, program) in &self.programs {
            let mut command = Command::new(program);
            let picture = findings.picture("kv-latency.svg", "latencies of reads, cloned and not");
            command.args(["demo", "--json", "--seconds", "1.5", "--controller", controller, "--picture"]).arg(picture);
            let report: Report = said((*name).to_owned(), command, program).await?;
            let reference = report.ways.last().map(|way| way.digest.clone()).unwrap_or_default();
            let mut table =
                Table::new(["application", "way", "result", "calls", "calls/s", "p50 ms", "p99 ms", "sent twice"]);
            for (i, way) in report.ways.iter().enumerate() {
                let result = match way.digest == reference {
                    _ if i + 1 == report.ways.len() => "reference",
                    true => "equal",
                    false => {
                        let Way { name: by, digest, .. } = way;
                        findings.differs(format!("{name} ({by}): expected {reference}, got {digest}"));
                        "DIFFERS"
                    }
                };
                table.row(row(name, result, way));
                findings.rate(name, &way.name, way.calls_per_s);
            }
            print(&format!("{table}{}", quantiles(&report.ways)))?;
        }
        Ok(())
    }
}

fn row(name: &str, result: &str, way: &Way) -> [String; 8] {
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

/// Median and 99th percentile of each way, to one scale.
fn quantiles(ways: &[Way]) -> String {
    let longest = ways.iter().map(|way| way.name.chars().count()).max().unwrap_or(0);
    let of = |share: &'static str, of: fn(&Way) -> f64| {
        ways.iter().map(move |way| (format!("{share}  {:<longest$}", way.name), of(way) / 1e3))
    };
    let rows: Vec<_> = of("p50", |way| way.p50_us).chain(of("p99", |way| way.p99_us)).collect();
    bars(&rows, "ms")
}
