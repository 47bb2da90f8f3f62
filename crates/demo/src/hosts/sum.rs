//! Sums on hosts (map): time of a sum, and bytes on the server's link.

use std::path::Path;

use pathcall_console::{TextTable, print};
use pathcall_plot::{BarRole, Comparison, ComparisonPanel};
use serde::Deserialize;
use tokio::process::Command;

use super::{Hosts, RACK};
use crate::failure::Failure;
use crate::findings::Findings;
use crate::gain::{Gain, other, outcomes};
use crate::run_report;

/// Values of a gradient: 4 MB.
const VALUES: u64 = 1 << 20;
/// Sums by the element. A short sum shows each moment in which the processors did other work: it takes the median.
const ELEMENT_SUMS: u64 = 3;
/// Sums by the other paths, which take several times as long.
const OTHER_SUMS: u64 = 1;
const SERVER: usize = RACK[0];
const MB: f64 = 1e6;

const DESCRIPTION: &str = "
map: four workers on four hosts sum arrays of 4 MB, and each of them gets the sums (a training step).
";

/// Report of the application.
#[derive(Debug, Deserialize)]
struct Report {
    p50_us: u64,
    /// Share of values that the element processed, 0 to 1; absent for plain gRPC.
    element_share: Option<f64>,
    /// Hash of the sums.
    digest: String,
}

/// Result of one path.
struct PathSum {
    name: &'static str,
    sums: u64,
    /// Median.
    seconds: f64,
    /// Megabytes of a sum on the server's link, both directions.
    megabytes: f64,
    report: Report,
}

/// Runs the sums by each path.
pub(super) async fn run(hosts: &Hosts, program: &Path, findings: &mut Findings) -> Result<(), Failure> {
    print(DESCRIPTION)?;
    let element = sum(hosts, program, ("element", ELEMENT_SUMS), &["--controller", hosts.url()]).await?;
    let software = sum(hosts, program, ("software", OTHER_SUMS), &[]).await?;
    let plain = sum(hosts, program, ("plain gRPC", OTHER_SUMS), &["--plain"]).await?;
    let mut table =
        TextTable::new(["path", "result", "sums", "time of a sum s", "MB on the server's link", "in element"]);
    for path in [&element, &software, &plain] {
        let result =
            findings.compare("sums on hosts", path.name, &path.report.digest, (plain.name, &plain.report.digest));
        let share = path.report.element_share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
        let (seconds, megabytes) = (format!("{:.2}", path.seconds), format!("{:.1}", path.megabytes));
        table.row([path.name.to_owned(), result.to_owned(), path.sums.to_string(), seconds, megabytes, share]);
    }
    let time = |path: &PathSum| Gain::time(path.seconds, plain.seconds);
    let bytes = |path: &PathSum| Gain::bytes(path.megabytes, plain.megabytes);
    let outcomes = outcomes(
        &[
            ("with the element, a sum is", time(&element), plain.name),
            ("with the element, the server's link has", bytes(&element), plain.name),
            ("in software, a sum is", time(&software), plain.name),
            ("in software, the server's link has", bytes(&software), plain.name),
        ],
        None,
    );
    print(&format!("{table}{outcomes}"))?;
    let path = findings.picture("hosts-sum.svg", "sums on hosts: time, and bytes on the server's link");
    let panel = |quantity: &str, unit, of: fn(&PathSum) -> f64, gain: &dyn Fn(&PathSum) -> Gain| ComparisonPanel {
        quantity: quantity.to_owned(),
        unit,
        bars: vec![
            gain(&element).bar("Pathcall, element", of(&element), plain.name),
            gain(&software).bar("Pathcall, software", of(&software), plain.name),
            other(plain.name, of(&plain), BarRole::Baseline),
        ],
    };
    Comparison {
        title: &format!("Sum of four arrays of 4 MB: {}", time(&element).than(plain.name)),
        about: "four workers and a server, each on a host of its own; links of 100 Mbit/s",
        panels: &[
            panel("Time of the sum (less is better)", "s", |path| path.seconds, &time),
            panel("Bytes on the server's link, both directions (less is better)", "MB", |path| path.megabytes, &bytes),
        ],
        notes: &[
            "Software: the same stubs without a network element; the server adds.".to_owned(),
            format!(
                "Median of {ELEMENT_SUMS} sums with the element; the other paths, which take longer: {OTHER_SUMS}."
            ),
        ],
    }
    .draw(&path)?;
    Ok(())
}

async fn sum(
    hosts: &Hosts,
    program: &Path,
    (name, sums): (&'static str, u64),
    options: &[&str],
) -> Result<PathSum, Failure> {
    let namespaces: Vec<String> =
        RACK.iter().map(|k| Ok(hosts.host(*k)?.file().display().to_string())).collect::<Result<_, Failure>>()?;
    let mut command = Command::new(program);
    command.args(["--json", "--values", &VALUES.to_string(), "--rounds", &sums.to_string()]);
    command.args(["--serve-at", &hosts.address(SERVER)?.to_string(), "--namespaces", &namespaces.join(",")]);
    command.args(options);
    let before = hosts.link_bytes(SERVER)?;
    let report: Report = run_report(format!("sums on hosts ({name})"), command, program).await?;
    let bytes = hosts.link_bytes(SERVER)? - before;
    let (seconds, megabytes) = (report.p50_us as f64 / 1e6, bytes as f64 / sums as f64 / MB);
    Ok(PathSum { name, sums, seconds, megabytes, report })
}
