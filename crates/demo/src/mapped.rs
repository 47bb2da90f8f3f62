//! The demo's first part: applications of map, with the element, in software and as plain gRPC; results compared.

use std::path::Path;

use serde::Deserialize;
use tokio::process::Command;

use super::findings::Findings;
use super::network::Network;
use super::{Programs, find as find_programs, said};
use crate::failure::Failure;
use pathcall_console::Table;
use pathcall_console::print;

const APPLICATIONS: [&str; 5] = ["wordcount", "training", "monitor", "lock", "vote"];

const STORY: &str = "
map: a field of a call is cut out and travels as frames, and the element adds it up, counts it or lends it as it passes.
What it can't do, or has no room for, the server does, with the same result. Five applications: sums by word, sums of
gradients, counts of packets, locks, ballots; each with the element, in software alone, and as plain gRPC.
";

/// What an application says of a run.
#[derive(Debug, Deserialize)]
struct Report {
    calls_per_s: f64,
    p50_us: u64,
    p99_us: u64,
    /// Bytes of typed fields that reached the server.
    server_bytes: u64,
    /// Share of the values that were worked on in the element, 0 to 1; absent on the plain path.
    element_share: Option<f64>,
    /// Hash of the result.
    digest: String,
}

/// How the calls of a run travel.
#[derive(Debug, Clone, Copy)]
enum Way {
    Element,
    Software,
    Plain,
}

/// The programs.
pub(super) struct Demo(Programs);

/// The applications in this directory, all of them or none.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    find_programs(directory, APPLICATIONS).map(Demo)
}

impl Demo {
    /// Runs them, and prints the table.
    pub(super) async fn run(&self, network: &Network, findings: &mut Findings) -> Result<(), Failure> {
        print(STORY)?;
        let mut table = Table::new([
            "application",
            "way",
            "result",
            "calls/s",
            "p50 us",
            "p99 us",
            "bytes at the server",
            "in the element",
        ]);
        for (name, program) in &self.0 {
            let plain = report(name, program, Way::Plain, network).await?;
            for path in [Way::Element, Way::Software] {
                let report = report(name, program, path, network).await?;
                let equal = report.digest == plain.digest;
                if !equal {
                    let (got, expected) = (&report.digest, &plain.digest);
                    findings.differs(format!("{name} ({}): expected {expected} as plain gRPC, got {got}", path.name()));
                }
                table.row(row(name, path, if equal { "equal" } else { "DIFFERS" }, &report));
                findings.rate(name, path.name(), report.calls_per_s);
            }
            table.row(row(name, Way::Plain, "reference", &plain));
            findings.rate(name, Way::Plain.name(), plain.calls_per_s);
        }
        Ok(print(&format!("{table}"))?)
    }
}

fn row(name: &str, path: Way, result: &str, report: &Report) -> [String; 8] {
    [
        name.to_owned(),
        path.name().to_owned(),
        result.to_owned(),
        format!("{:.0}", report.calls_per_s),
        report.p50_us.to_string(),
        report.p99_us.to_string(),
        report.server_bytes.to_string(),
        report.element_share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
    ]
}

/// One run of one application.
async fn report(name: &str, program: &Path, path: Way, network: &Network) -> Result<Report, Failure> {
    let run = format!("{name} ({})", path.name());
    let mut command = Command::new(program);
    command.arg("--json").args(network.places());
    match path {
        Way::Element => command.args(["--controller", &network.url()]),
        Way::Software => &mut command,
        Way::Plain => command.arg("--plain"),
    };
    said(run, command, program).await
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Element => "element",
            Self::Software => "software",
            Self::Plain => "plain gRPC",
        }
    }
}
