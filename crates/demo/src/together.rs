//! The demo's last part: a photo service on three servers, each of whose methods has its path do something else; with the
//! element, in software (on one host) and as plain gRPC, results compared.

use std::path::Path;
use std::process::Command as StdCommand;

use pathcall_plot::{Axis, Bars, Chart, Group, Line};
use serde::Deserialize;
use tokio::process::{Child, Command};

use super::findings::Findings;
use super::network::Network;
use super::{Programs, find as find_programs, ready, said};
use crate::failure::Failure;
use pathcall_console::Table;
use pathcall_console::print;

const PHOTOS: &str = "photos";

const STORY: &str = "
Map, clone, delegate and place at once: photos, one service on three servers, each of which has every photo. A like is
added up in the element (map); a photo is read from whoever is idle (clone); a thumbnail, too, and there the processor or
the accelerator makes it (clone and place); a search goes from the front to the index to the archive, where one of the two
develops what is found, and that answers the caller (delegate and place). Three callers make calls of all four kinds at
once. Waits stand for disks and devices.
";
const ON_HOSTS: &str = "Here each server is on a host of its own, and the callers are on another; plain gRPC is on the \
loopback.\n";

/// Its servers, in the order in which a search meets them.
const SERVERS: [&str; 3] = ["front", "index", "archive"];

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

/// Reports by how calls travel; plain gRPC, the reference, is the last.
type Ways = Vec<(&'static str, Report)>;
const PLAIN: &str = "plain gRPC";

/// The servers on hosts of a testbed, which are killed when this is dropped.
struct Servers {
    front: String,
    /// The program, prepared to run on a host beside theirs.
    callers: StdCommand,
    _processes: Vec<Child>,
}

/// The application in this directory.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    find_programs(directory, [PHOTOS]).map(Demo)
}

impl Demo {
    /// Runs it, prints tables and draws pictures.
    pub(super) async fn run(&self, network: &Network, findings: &mut Findings) -> Result<(), Failure> {
        print(STORY)?;
        for (_, program) in &self.0 {
            let ways = match Servers::start(network, program).await? {
                Some(servers) => {
                    print(ON_HOSTS)?;
                    across_hosts(servers, program).await?
                }
                None => here(network, program).await?,
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
            print(&format!("{table}{}", came_to(&ways[0].1)))?;
            draw(&ways, findings)?;
        }
        Ok(())
    }
}

/// All parties in one process, each way in turn.
async fn here(network: &Network, program: &Path) -> Result<Ways, Failure> {
    let own = || StdCommand::new(program);
    let url = network.url();
    Ok(vec![
        ("element", report("element", own(), &["--controller", &url], program).await?),
        ("software", report("software", own(), &[], program).await?),
        (PLAIN, report(PLAIN, own(), &["--plain"], program).await?),
    ])
}

/// Callers and servers on hosts of their own, and the reference in one process.
async fn across_hosts(servers: Servers, program: &Path) -> Result<Ways, Failure> {
    Ok(vec![
        ("element", report("element", servers.callers, &["--front", &servers.front], program).await?),
        (PLAIN, report(PLAIN, StdCommand::new(program), &["--plain"], program).await?),
    ])
}

async fn report(way: &str, program: StdCommand, options: &[&str], path: &Path) -> Result<Report, Failure> {
    let mut command = Command::from(program);
    command.args(["demo", "--json"]).args(options);
    said(format!("{PHOTOS} ({way})"), command, path).await
}

impl Servers {
    /// All of them; `None` where there are no hosts.
    async fn start(network: &Network, program: &Path) -> Result<Option<Self>, Failure> {
        let Some((callers, _)) = network.on_host(SERVERS.len(), program) else { return Ok(None) };
        let (mut front, mut processes) = (String::new(), Vec::new());
        // The last first: who starts knows whom it passes searches on to.
        for (nth, name) in SERVERS.into_iter().enumerate().rev() {
            let Some((mut command, address)) = network.on_host(nth, program) else { return Ok(None) };
            command.args(["serve", name, "--at", &format!("{address}:0"), "--controller", &network.url()]);
            let what = || format!("{PHOTOS}' {name}");
            let spawned = ready(command).await.map_err(|source| Failure::Spawn { program: what(), source })?;
            let (process, Some(line)) = spawned else { return Err(Failure::NotReady { program: what() }) };
            front = line.trim_start_matches("ready ").to_owned();
            processes.push(process);
        }
        Ok(Some(Self { front, callers, _processes: processes }))
    }
}

/// A row for each method and way.
fn table(ways: &Ways, results: &[&str]) -> Table<7> {
    let mut table = Table::new(["method", "its path does", "way", "result", "calls", "p50 ms", "p99 ms"]);
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

/// What the path did, in words.
fn came_to(report: &Report) -> String {
    let Report { likes_in_element, cloned, thumbnails, fetches, trace, .. } = report;
    let share = |share: &Option<f64>| format!("{:.0} %", share.unwrap_or(0.0) * 100.0);
    // Only the archive knows, which may be another process.
    let searches = match fetches {
        Placed { cpu: 0, acc: 0 } => String::new(),
        Placed { cpu, acc } => {
            format!("; of the searches the archive's processor developed {cpu}, its\naccelerator {acc}")
        }
    };
    format!(
        "with the element: {} of the likes were added up there, {} of the reads and thumbnails were cloned; of the\n\
         thumbnails processors made {} and accelerators {}{searches}. One of the searches, traced:\n{}",
        share(likes_in_element),
        share(cloned),
        thumbnails.cpu,
        thumbnails.acc,
        trace.as_deref().unwrap_or("(no trace)\n"),
    )
}

fn draw(ways: &Ways, findings: &mut Findings) -> Result<(), Failure> {
    let first = &ways[0].1;
    let groups = first.methods.iter().enumerate().map(|(nth, method)| {
        let bar = |(way, report): &(&str, Report)| {
            let at = report.methods.get(nth).map_or(0, |method| method.p50_us);
            ((*way).to_owned(), at as f64 / 1e3)
        };
        Group { name: method.name.clone(), bars: ways.iter().map(bar).collect() }
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
        first.over_time.iter().map(|slice| (slice.0, of(slice) as f64)).collect()
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
