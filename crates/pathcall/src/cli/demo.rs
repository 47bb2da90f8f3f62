//! `pathcall demo`: the applications on three paths, side by side.
//!
//! Starts a controller and an element (see [`network`]), runs each application that lies beside this
//! program with an element, in software and as plain gRPC, and holds their results against each
//! other; then those whose servers pass calls on ([`delegated`]), one whose calls are cloned ([`cloned`]), a network
//! function over a capture ([`function`]), and messages that a thread or an accelerator works on ([`placed`]). The
//! applications report in a line of JSON.
//! Nothing is left running.

mod cloned;
mod delegated;
mod function;
mod network;
mod placed;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::process::Command;

use crate::cli::failure::Failure;
use crate::cli::table::Table;
use crate::cli::{print, signal};
use network::Network;

const APPLICATIONS: [&str; 5] = ["wordcount", "training", "monitor", "lock", "vote"];

/// Longest time that one run may take.
const RUN_MAX: Duration = Duration::from_secs(180);

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Directory of the applications; without it, this program's
    #[arg(long, value_name = "PATH")]
    applications: Option<PathBuf>,
    /// Testbed to run on: the server on host 1, clients on the others in turn; without it, the loopback
    #[arg(long, value_name = "BED")]
    testbed: Option<String>,
    /// The testbed's element is in the kernel (XDP), at the end of every host's link
    #[arg(long, requires = "testbed")]
    xdp: bool,
}

/// Names of applications, and where they are.
type Programs = Vec<(&'static str, PathBuf)>;

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

pub(crate) async fn run(args: DemoArgs) -> Result<(), Failure> {
    let directory = directory(args.applications)?;
    let programs = find(&directory, APPLICATIONS)?;
    // Their servers are on the loopback: of a testbed they show nothing.
    let others = match args.testbed {
        Some(_) => None,
        None => Some((delegated::find(&directory)?, cloned::find(&directory)?, function::find(&directory))),
    };
    let network = Network::start(args.testbed.as_deref(), args.xdp).await?;
    let compared = tokio::select! {
        compared = compare(&programs, others.as_ref(), &network) => compared,
        // The run in progress is killed where it is dropped.
        stopped = signal::stopped() => stopped.and(Err(Failure::Interrupted)),
    };
    network.shutdown().await;
    compared
}

/// Where the applications are: beside this program, unless it is said otherwise.
fn directory(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::NoPlace)?;
    Ok(given.unwrap_or_else(|| own.parent().unwrap_or(Path::new(".")).to_owned()))
}

/// Programs with these names, all of them or none.
fn find<const N: usize>(directory: &Path, names: [&'static str; N]) -> Result<Programs, Failure> {
    let find = |name: &'static str| {
        let path = directory.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        if path.is_file() { Ok((name, path)) } else { Err(Failure::Missing { path }) }
    };
    names.into_iter().map(find).collect()
}

/// Runs everything, prints the tables, and fails when results differ.
async fn compare(
    programs: &Programs,
    others: Option<&(delegated::Demo, cloned::Demo, function::Demo)>,
    network: &Network,
) -> Result<(), Failure> {
    let mut table = Table::new([
        "application",
        "path",
        "result",
        "calls/s",
        "p50 us",
        "p99 us",
        "bytes at the server",
        "in the element",
    ]);
    let mut differing = Vec::new();
    for (name, program) in programs {
        let plain = report(name, program, Way::Plain, network).await?;
        for path in [Way::Element, Way::Software] {
            let report = report(name, program, path, network).await?;
            let equal = report.digest == plain.digest;
            if !equal {
                let (got, expected) = (&report.digest, &plain.digest);
                differing.push(format!("{name} ({}): expected {expected} as plain gRPC, got {got}", path.name()));
            }
            table.row(row(name, path, if equal { "equal" } else { "DIFFERS" }, &report));
        }
        table.row(row(name, Way::Plain, "reference", &plain));
    }
    print(&table.to_string())?;
    if let Some((delegated, cloned, function)) = others {
        differing.extend(delegated.run().await?);
        differing.extend(cloned.run(&network.url()).await?);
        function.run().await?;
        let placed = tokio::task::spawn_blocking(placed::run).await;
        differing.extend(placed.map_err(|error| Failure::Place(error.to_string()))??);
    }
    if differing.is_empty() { Ok(()) } else { Err(Failure::Differ(differing.join("; "))) }
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

/// What a program says of its run.
async fn said<R: DeserializeOwned>(run: String, mut command: Command, program: &Path) -> Result<R, Failure> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let Output { status, stdout, stderr } = match tokio::time::timeout(RUN_MAX, command.output()).await {
        Ok(done) => done.map_err(|source| Failure::Spawn { program: program.display().to_string(), source })?,
        Err(_) => return Err(Failure::Stuck { run, after: RUN_MAX }),
    };
    if !status.success() {
        return Err(Failure::Run { run, status, said: last_line(&stderr) });
    }
    let line = last_line(&stdout);
    serde_json::from_str(&line).map_err(|source| Failure::NoReport { run, got: line, source })
}

/// The last line that is not empty.
fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
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
