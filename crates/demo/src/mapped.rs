//! Demo of *map*: applications with the element, in software and as plain gRPC. Compares results.

use std::path::Path;

use serde::Deserialize;
use tokio::process::Command;

use super::findings::{Findings, names, verdict};
use super::network::Network;
use super::{Programs, find as find_programs, run_report};
use crate::failure::Failure;
use pathcall_console::TextTable;
use pathcall_console::print;

const APPLICATIONS: [&str; 5] = ["wordcount", TRAINING, "monitor", "lock", "vote"];
const TRAINING: &str = "training";
/// Passes over the data: the computing between the sums takes most of the time.
const EPOCHS: &str = "15";

const DESCRIPTION: &str = "
map: a field of a call travels as frames, and the element sums or counts its values or grants locks as
the frames pass. The server handles the rest in software, with the same result. Workloads: sums by
word, sums of gradients, counts of packets, locks, votes; each by the path that server and channel
choose (automatic), with the element, in software, and as plain gRPC.
";

/// Report of an application.
#[derive(Debug, Deserialize)]
struct Report {
    calls_per_s: f64,
    p50_us: u64,
    p99_us: u64,
    /// Bytes of typed fields that reached the server.
    server_bytes: u64,
    /// Share of values that the element processed, 0 to 1; absent for plain gRPC.
    element_share: Option<f64>,
    /// Hash of the results.
    digest: String,
}

/// Path of the calls of a run.
#[derive(Debug, Clone, Copy)]
enum CallPath {
    Automatic,
    Element,
    Software,
    Plain,
}

/// Programs of the demo.
pub(super) struct Demo(Programs);

/// Finds the applications in this folder.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    find_programs(directory, APPLICATIONS).map(Demo)
}

impl Demo {
    /// Runs the applications, and prints the table.
    pub(super) async fn run(&self, network: &Network, findings: &mut Findings) -> Result<(), Failure> {
        print(DESCRIPTION)?;
        let mut table = TextTable::new([
            "application",
            "path",
            "result",
            "calls/s",
            "p50 us",
            "p99 us",
            "server bytes",
            "in element",
        ]);
        // Path by path: the controller keeps the name of an application for 3 s after its server has ended, and meanwhile
        // the others run.
        let mut reports = Vec::new();
        for path in CallPath::ALL {
            for (name, program) in &self.0 {
                reports.push((*name, path, report(name, program, path, network).await?));
            }
        }
        let (mut faster, mut slower) = (Vec::new(), Vec::new());
        for (name, _) in &self.0 {
            let of_application = || reports.iter().filter(|(of, ..)| of == name);
            let (.., plain) = of_application().next_back().expect("each application ran by each path");
            for (_, path, report) in of_application() {
                let result = match path {
                    CallPath::Plain => "reference",
                    _ if report.digest == plain.digest => "equal",
                    _ => "DIFFERS",
                };
                if result == "DIFFERS" {
                    let (got, expected) = (&report.digest, &plain.digest);
                    findings.differs(format!("{name} ({}): expected {expected} as plain gRPC, got {got}", path.name()));
                }
                if matches!(path, CallPath::Automatic) {
                    let side = if report.calls_per_s > plain.calls_per_s { &mut faster } else { &mut slower };
                    side.push(*name);
                }
                table.row(row(name, *path, result, report));
                findings.rate(name, path.name(), report.calls_per_s);
            }
        }
        let gains = verdict(
            &format!("applications with more calls/s by the automatic path than by plain gRPC: {}", names(&faster)),
            &format!("applications without, as all parties share this machine: {}", names(&slower)),
        );
        Ok(print(&format!("{table}{gains}"))?)
    }
}

fn row(name: &str, path: CallPath, result: &str, report: &Report) -> [String; 8] {
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

/// Runs one application by one path.
async fn report(name: &str, program: &Path, path: CallPath, network: &Network) -> Result<Report, Failure> {
    let run = format!("{name} ({})", path.name());
    let mut command = Command::new(program);
    command.arg("--json").args(network.places());
    if name == TRAINING {
        command.args(["--epochs", EPOCHS]);
    }
    match path {
        CallPath::Automatic => command.args(["--controller", &network.url()]),
        CallPath::Element => command.args(["--path", "element", "--controller", &network.url()]),
        CallPath::Software => command.args(["--path", "software"]),
        CallPath::Plain => command.arg("--plain"),
    };
    run_report(run, command, program).await
}

impl CallPath {
    /// All paths, in the order of the table.
    const ALL: [Self; 4] = [Self::Automatic, Self::Element, Self::Software, Self::Plain];

    fn name(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::Element => "element",
            Self::Software => "software",
            Self::Plain => "plain gRPC",
        }
    }
}
