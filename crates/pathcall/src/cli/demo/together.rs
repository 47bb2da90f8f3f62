//! The demo's last part: a photo service on three servers, each of whose methods has its path do something else; with the
//! element, in software and as plain gRPC, results compared.

use std::path::Path;

use pathcall_plot::{Axis, Bars, Chart, Group, Line};
use serde::Deserialize;
use tokio::process::Command;

use super::findings::Findings;
use super::{Programs, find as find_programs, said};
use crate::cli::failure::Failure;
use crate::cli::print;
use crate::cli::table::Table;

const PHOTOS: &str = "photos";

const STORY: &str = "
All of it at once: photos, one service on three servers, each of which has every photo. A like is added up in the
element (map); a photo is read from whoever is idle (clone); a thumbnail, too, and there the processor or the accelerator
makes it (clone and place); a search goes from the front to the index to the archive, where one of the two develops what
is found, and that answers the caller (delegate and place). Three callers make calls of all four kinds at once. Waits stand
for disks and devices.
";

/// The program.
pub(super) struct Demo(Programs);

/// What it says of a run.
#[derive(Debug, Deserialize)]
struct Report {
    calls_per_s: f64,
    methods: Vec<Method>,
    /// Shares, 0 to 1; absent on the plain path.
    likes_in_element: Option<f64>,
    cloned: Option<f64>,
    thumbnails: Placed,
    fetches: Placed,
    /// Seconds, and thumbnails by processors and by accelerators in the time before.
    over_time: Vec<(f64, u64, u64)>,
    digest: String,
    trace: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Method {
    name: String,
    ability: String,
    calls: u64,
    p50_us: u64,
    p99_us: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Placed {
    cpu: u64,
    acc: u64,
}

/// How calls travel, and what the program is told for it; plain gRPC is the reference.
const WAYS: [(&str, Option<&str>); 3] =
    [("element", Some("--controller")), ("software", None), ("plain gRPC", Some("--plain"))];

/// The application in this directory.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    find_programs(directory, [PHOTOS]).map(Demo)
}

impl Demo {
    /// Runs it, prints tables and draws pictures.
    pub(super) async fn run(&self, controller: &str, findings: &mut Findings) -> Result<(), Failure> {
        print(STORY)?;
        for (name, program) in &self.0 {
            let mut reports = Vec::new();
            for (way, option) in WAYS {
                let mut command = Command::new(program);
                command.args(["demo", "--json"]).args(option);
                if option == Some("--controller") {
                    command.arg(controller);
                }
                let report: Report = said(format!("{name} ({way})"), command, program).await?;
                findings.rate(name, way, report.calls_per_s);
                reports.push(report);
            }
            let [element, _, plain] = &reports[..] else { continue };
            let mut results = Vec::new();
            for ((way, _), report) in WAYS.iter().zip(&reports) {
                results.push(match report.digest == plain.digest {
                    _ if std::ptr::eq(report, plain) => "reference",
                    true => "equal",
                    false => {
                        findings.differs(format!("{name} ({way}): expected {}, got {}", plain.digest, report.digest));
                        "DIFFERS"
                    }
                });
            }
            let table = table(&reports, &results);
            print(&format!("{table}{}", came_to(element)))?;
            draw(&reports, findings)?;
        }
        Ok(())
    }
}

/// A row for each method and way.
fn table(reports: &[Report], results: &[&str]) -> Table<7> {
    let mut table = Table::new(["method", "its path does", "path", "result", "calls", "p50 ms", "p99 ms"]);
    for method in 0..reports.iter().map(|report| report.methods.len()).min().unwrap_or(0) {
        for ((report, result), (way, _)) in reports.iter().zip(results).zip(WAYS) {
            let Method { name, ability, calls, p50_us, p99_us } = &report.methods[method];
            let ms = |us: u64| format!("{:.1}", us as f64 / 1e3);
            let does = if way == "plain gRPC" { "-" } else { ability };
            table.row([
                name.clone(),
                does.to_owned(),
                way.to_owned(),
                (*result).to_owned(),
                calls.to_string(),
                ms(*p50_us),
                ms(*p99_us),
            ]);
        }
    }
    table
}

/// What the path did, in words.
fn came_to(report: &Report) -> String {
    let Report { likes_in_element, cloned, thumbnails, fetches, trace, .. } = report;
    let share = |share: &Option<f64>| format!("{:.0} %", share.unwrap_or(0.0) * 100.0);
    format!(
        "with the element: {} of the likes were added up there, {} of the reads and thumbnails were cloned; of the\n\
         thumbnails processors made {} and accelerators {}; of the searches the archive's processor developed {}, its\n\
         accelerator {}. One of the searches, traced:\n{}",
        share(likes_in_element),
        share(cloned),
        thumbnails.cpu,
        thumbnails.acc,
        fetches.cpu,
        fetches.acc,
        trace.as_deref().unwrap_or("(no trace)\n"),
    )
}

fn draw(reports: &[Report], findings: &mut Findings) -> Result<(), Failure> {
    let groups = reports[0].methods.iter().enumerate().map(|(nth, method)| {
        let bar = |(report, (way, _)): (&Report, (&str, _))| {
            let at = report.methods.get(nth).map_or(0, |method| method.p50_us);
            (way.to_owned(), at as f64 / 1e3)
        };
        Group { name: method.name.clone(), bars: reports.iter().zip(WAYS).map(bar).collect() }
    });
    let path = findings.picture("photos-latency.svg", "how long calls of the photo service take, by each way");
    Bars {
        title: "photos: median latency",
        about: "four kinds of calls at once, from three callers; the slowest of each is the full length",
        unit: "ms",
        groups: &groups.collect::<Vec<_>>(),
    }
    .draw(&path)?;
    let points = |of: fn(&(f64, u64, u64)) -> u64| -> Vec<(f64, f64)> {
        reports[0].over_time.iter().map(|slice| (slice.0, of(slice) as f64)).collect()
    };
    let path = findings.picture("photos-places.svg", "where its thumbnails were made over time");
    Chart {
        title: "photos: where thumbnails were made",
        about: "thumbnails in each tenth of a second, on three servers with a processor and an accelerator each",
        x: Axis::from_zero("time, s"),
        y: Axis::from_zero("thumbnails"),
        lines: &[
            Line { name: "by processors".to_owned(), points: points(|slice| slice.1) },
            Line { name: "by accelerators".to_owned(), points: points(|slice| slice.2) },
        ],
    }
    .draw(&path)?;
    Ok(())
}
