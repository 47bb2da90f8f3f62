//! Demo of all abilities together: a photo service on three servers, with another ability for each method. Compares the
//! element, software (on one host) and plain gRPC.

use std::path::Path;
use std::process::Command as StdCommand;

use pathcall_plot::{Axis, BarGroup, Bars, Chart, PlotLine};
use serde::Deserialize;
use tokio::process::{Child, Command};

use super::findings::{Findings, names, verdict, wrap};
use super::network::Network;
use super::{Programs, find as find_programs, ready, run_report};
use crate::failure::Failure;
use pathcall_console::TextTable;
use pathcall_console::print;

const PHOTOS: &str = "photos";
/// Calls of each method by each caller.
const CALLS: &str = "120";

const DESCRIPTION: &str = "
together: photos, one service on three servers, uses map, clone, delegate and place. The element counts
likes (map); idle servers answer reads (clone); the processor or the accelerator of an idle server
makes a thumbnail (clone and place); a search goes from the front to the index to the archive, whose
processor or accelerator develops the photos and answers the caller (delegate and place). Three
callers make all four kinds of calls concurrently. Delays stand for disks and devices.
";
const ON_HOSTS: &str =
    "Each server is on a separate host, and the callers are on another; plain gRPC uses the loopback.\n";

/// Servers, in the order of a search.
const SERVERS: [&str; 3] = ["front", "index", "archive"];

/// Program of the demo.
pub(super) struct Demo(Programs);

/// Report of a run.
#[derive(Debug, Deserialize)]
struct Report {
    calls_per_s: f64,
    methods: Vec<Method>,
    /// Shares, 0 to 1; absent for plain gRPC.
    likes_in_element: Option<f64>,
    cloned: Option<f64>,
    thumbnails: Placed,
    fetches: Placed,
    /// Time in seconds, with thumbnails by processors and by accelerators in the interval before it.
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

/// Reports by path; plain gRPC, the reference, is last.
type ReportsByPath = Vec<(&'static str, Report)>;
const PLAIN: &str = "plain gRPC";

/// Servers on hosts of a testbed, killed on drop.
struct Servers {
    front: String,
    /// Command of the program on another host.
    callers: StdCommand,
    _processes: Vec<Child>,
}

/// Finds the application in this folder.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    find_programs(directory, [PHOTOS]).map(Demo)
}

impl Demo {
    /// Runs the application, prints tables and draws pictures.
    pub(super) async fn run(&self, network: &Network, findings: &mut Findings) -> Result<(), Failure> {
        print(DESCRIPTION)?;
        for (_, program) in &self.0 {
            let ways = match Servers::start(network, program).await? {
                Some(servers) => {
                    print(ON_HOSTS)?;
                    run_on_hosts(servers, program).await?
                }
                None => run_on_loopback(network, program).await?,
            };
            let Some((_, plain)) = ways.last() else { continue };
            let mut results = Vec::new();
            for (way, report) in &ways {
                findings.rate(PHOTOS, way, report.calls_per_s);
                results.push(match report.digest == plain.digest {
                    _ if *way == PLAIN => "reference",
                    true => "equal",
                    false => {
                        findings.differs(format!("{PHOTOS} ({way}): expected {}, got {}", plain.digest, report.digest));
                        "DIFFERS"
                    }
                });
            }
            let table = table(&ways, &results);
            print(&format!("{table}{}{}", gains(&ways), summary(&ways[0].1)))?;
            draw(&ways, findings)?;
        }
        Ok(())
    }
}

/// Runs all parties in one process, by each path in turn.
async fn run_on_loopback(network: &Network, program: &Path) -> Result<ReportsByPath, Failure> {
    let own = || StdCommand::new(program);
    let url = network.url();
    Ok(vec![
        ("element", report("element", own(), &["--controller", &url], program).await?),
        ("software", report("software", own(), &[], program).await?),
        (PLAIN, report(PLAIN, own(), &["--plain"], program).await?),
    ])
}

/// Runs callers and servers on separate hosts, and the reference in one process.
async fn run_on_hosts(servers: Servers, program: &Path) -> Result<ReportsByPath, Failure> {
    Ok(vec![
        ("element", report("element", servers.callers, &["--front", &servers.front], program).await?),
        (PLAIN, report(PLAIN, StdCommand::new(program), &["--plain"], program).await?),
    ])
}

async fn report(way: &str, program: StdCommand, options: &[&str], path: &Path) -> Result<Report, Failure> {
    let mut command = Command::from(program);
    command.args(["demo", "--json", "--calls", CALLS]).args(options);
    run_report(format!("{PHOTOS} ({way})"), command, path).await
}

impl Servers {
    /// Starts all servers; `None` without a testbed.
    async fn start(network: &Network, program: &Path) -> Result<Option<Self>, Failure> {
        let Some((callers, _)) = network.on_host(SERVERS.len(), program) else { return Ok(None) };
        let (mut front, mut processes) = (String::new(), Vec::new());
        // The last server first: each server must know the next one of a search at its start.
        for (nth, name) in SERVERS.into_iter().enumerate().rev() {
            let Some((mut command, address)) = network.on_host(nth, program) else { return Ok(None) };
            command.args(["serve", name, "--at", &format!("{address}:0"), "--controller", &network.url()]);
            let what = || format!("server {name} of {PHOTOS}");
            let spawned = ready(command).await.map_err(|source| Failure::Spawn { program: what(), source })?;
            let (process, Some(line)) = spawned else { return Err(Failure::NotReady { program: what() }) };
            front = line.trim_start_matches("ready ").to_owned();
            processes.push(process);
        }
        Ok(Some(Self { front, callers, _processes: processes }))
    }
}

/// Table with a row for each method and path.
fn table(ways: &ReportsByPath, results: &[&str]) -> TextTable<7> {
    let mut table = TextTable::new(["method", "ability", "path", "result", "calls", "p50 ms", "p99 ms"]);
    for method in 0..ways.iter().map(|(_, report)| report.methods.len()).min().unwrap_or(0) {
        for ((way, report), result) in ways.iter().zip(results) {
            let Method { name, ability, calls, p50_us, p99_us } = &report.methods[method];
            let ms = |us: u64| format!("{:.1}", us as f64 / 1e3);
            let does = if *way == PLAIN { "-" } else { ability };
            table.row([
                name.clone(),
                does.to_owned(),
                (*way).to_owned(),
                (*result).to_owned(),
                calls.to_string(),
                ms(*p50_us),
                ms(*p99_us),
            ]);
        }
    }
    table
}

/// Verdict: p99 latencies with the element beside plain gRPC.
fn gains(ways: &ReportsByPath) -> String {
    let [(_, element), .., (_, plain)] = &ways[..] else { return String::new() };
    let (mut lower, mut others) = (Vec::new(), Vec::new());
    for (method, reference) in element.methods.iter().zip(&plain.methods) {
        let side = if method.p99_us < reference.p99_us { &mut lower } else { &mut others };
        side.push(method.name.as_str());
    }
    verdict(
        &format!("methods with a lower p99 latency than as plain gRPC: {}", names(&lower)),
        &format!("methods without a lower p99 latency: {}", names(&others)),
    )
}

/// Summary of the path's work.
fn summary(report: &Report) -> String {
    let Report { likes_in_element, cloned, thumbnails, fetches, trace, .. } = report;
    let share = |share: &Option<f64>| format!("{:.0} %", share.unwrap_or(0.0) * 100.0);
    // Only the archive counts searches, and it may be another process.
    let searches = match fetches {
        Placed { cpu: 0, acc: 0 } => String::new(),
        Placed { cpu, acc } => {
            format!("; the archive's processor developed {cpu} searches, its accelerator {acc}")
        }
    };
    let work = wrap(&format!(
        "With the element: it counted {} of the likes and cloned {} of the reads and thumbnails; processors made {} \
         thumbnails, accelerators {}{searches}.",
        share(likes_in_element),
        share(cloned),
        thumbnails.cpu,
        thumbnails.acc,
    ));
    format!("{work}Trace of one search:\n{}", trace.as_deref().unwrap_or("(no trace)\n"))
}

fn draw(ways: &ReportsByPath, findings: &mut Findings) -> Result<(), Failure> {
    let first = &ways[0].1;
    let groups = first.methods.iter().enumerate().map(|(nth, method)| {
        let bar = |(way, report): &(&str, Report)| {
            let at = report.methods.get(nth).map_or(0, |method| method.p50_us);
            ((*way).to_owned(), at as f64 / 1e3)
        };
        BarGroup { name: method.name.clone(), bars: ways.iter().map(bar).collect() }
    });
    let path = findings.picture("photos-latency.svg", "median latencies of the photo service by each path");
    Bars {
        title: "photos: median latency",
        about: "four kinds of concurrent calls from three callers, each scaled to its slowest path",
        unit: "ms",
        groups: &groups.collect::<Vec<_>>(),
    }
    .draw(&path)?;
    let points = |of: fn(&(f64, u64, u64)) -> u64| -> Vec<(f64, f64)> {
        first.over_time.iter().map(|slice| (slice.0, of(slice) as f64)).collect()
    };
    let path = findings.picture("photos-places.svg", "processors and accelerators of thumbnails over time");
    Chart {
        title: "photos: devices of thumbnails",
        about: "thumbnails in each tenth of a second, on three servers with a processor and an accelerator each",
        x: Axis::from_zero("time, s"),
        y: Axis::from_zero("thumbnails"),
        lines: &[
            PlotLine { name: "by processors".to_owned(), points: points(|slice| slice.1) },
            PlotLine { name: "by accelerators".to_owned(), points: points(|slice| slice.2) },
        ],
    }
    .draw(&path)?;
    Ok(())
}
