//! Command `pathcall demo`: demonstrates each ability, and then all of them in one service.
//!
//! Starts a controller and an element (see [`network`]), runs the applications beside this program by all of their
//! paths, and compares the results: sums and locks with the element, in software and as plain gRPC ([`mapped`]), cloned
//! calls ([`cloned`]), delegated calls ([`delegated`]), messages for a thread or an accelerator ([`placed`]), a network
//! function over a capture ([`function`]), and a service that uses four abilities ([`together`]). The applications
//! report in a line of JSON. [`findings`] collects differences and pictures. Nothing is left running.

mod cloned;
mod delegated;
mod failure;
mod findings;
mod function;
mod mapped;
mod network;
mod placed;
mod together;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Output, Stdio};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use pathcall_console::{print, stopped};
use tokio::runtime::Runtime;

use failure::Failure;
use findings::{Findings, wrap};
use network::Network;

const INTRODUCTION: &str = "In-network computation with gRPC: each part below runs applications on this machine, with \
Pathcall and as a baseline, and compares their results, which must match.";
const END: &str = "All results match. All started processes have ended. Pictures:\n";

/// Command that runs controller, element and functions.
const PATHCALL: &str = "pathcall";
/// Time limit of one run.
const RUN_MAX: Duration = Duration::from_secs(180);

/// Show what each ability does: the same work with the element, in software and as plain gRPC
#[derive(Debug, Parser)]
#[command(name = "pathcall demo", version)]
struct DemoArgs {
    /// Folder of the command `pathcall` and the applications [default: the folder of this program]
    #[arg(long, value_name = "PATH")]
    applications: Option<PathBuf>,
    /// Testbed for the parts whose parties can be on separate hosts: servers on the first hosts, clients on those after
    /// [default: the loopback]
    #[arg(long, value_name = "BED")]
    testbed: Option<String>,
    /// Use the XDP program as the testbed's element, at the end of every host's link
    #[arg(long, requires = "testbed")]
    xdp: bool,
    /// Run one part only
    #[arg(long, value_name = "PART", conflicts_with = "testbed")]
    only: Option<Part>,
    /// Folder for pictures [default: `figures` beside the folder of this program]
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
}

/// Parts of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Map,
    Clone,
    Delegate,
    Place,
    Function,
    Together,
}

/// Names and paths of applications.
type Programs = Vec<(&'static str, PathBuf)>;

fn main() -> ExitCode {
    let args = DemoArgs::parse();
    let done = Runtime::new().map_err(Failure::Runtime).and_then(|runtime| runtime.block_on(run(args)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pathcall: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: DemoArgs) -> Result<(), Failure> {
    let directory = directory(args.applications)?;
    // The other parts have all parties in one process.
    let on_hosts = |part| matches!(part, Part::Map | Part::Together);
    let is_selected = |part| args.only.map_or(args.testbed.is_none() || on_hosts(part), |only| only == part);
    let pathcall = find_one(&directory, PATHCALL)?;
    let parts = SelectedParts::find(&directory, is_selected)?;
    let figures = args.figures.unwrap_or_else(|| directory.parent().unwrap_or(&directory).join("figures"));
    let mut findings = Findings::new(figures)?;
    let signal = stopped()?;
    let network = Network::start(&pathcall, args.testbed.as_deref(), args.xdp).await?;
    let done = tokio::select! {
        biased;
        // The run in progress is killed when it is dropped.
        () = signal => Err(Failure::Interrupted),
        done = parts.run_parts(&network, &mut findings) => done,
    };
    network.shutdown().await;
    done?;
    let pictures = findings.close()?;
    Ok(print(&format!("\n{END}{pictures}"))?)
}

/// Selected parts of the demo.
struct SelectedParts {
    mapped: Option<mapped::Demo>,
    cloned: Option<cloned::Demo>,
    delegated: Option<delegated::Demo>,
    placed: bool,
    function: Option<function::Demo>,
    together: Option<together::Demo>,
}

impl SelectedParts {
    /// Finds the programs of the selected parts in this folder.
    fn find(directory: &Path, is_selected: impl Fn(Part) -> bool) -> Result<Self, Failure> {
        Ok(Self {
            mapped: is_selected(Part::Map).then(|| mapped::find(directory)).transpose()?,
            cloned: is_selected(Part::Clone).then(|| cloned::find(directory)).transpose()?,
            delegated: is_selected(Part::Delegate).then(|| delegated::find(directory)).transpose()?,
            placed: is_selected(Part::Place),
            function: is_selected(Part::Function).then(|| function::find(directory)).transpose()?,
            together: is_selected(Part::Together).then(|| together::find(directory)).transpose()?,
        })
    }

    /// Runs all selected parts, and prints their results.
    async fn run_parts(&self, network: &Network, findings: &mut Findings) -> Result<(), Failure> {
        let (url, element) = (network.url(), network.element());
        print(&wrap(&format!("{INTRODUCTION} Started: a controller at {url}, and {element}.")))?;
        if let Some(mapped) = &self.mapped {
            mapped.run(network, findings).await?;
        }
        if let Some(cloned) = &self.cloned {
            cloned.run(&url, findings).await?;
        }
        if let Some(delegated) = &self.delegated {
            delegated.run(findings).await?;
        }
        if self.placed {
            placed::run_part(findings).await?;
        }
        if let Some(function) = &self.function {
            function.run().await?;
        }
        match &self.together {
            Some(together) => together.run(network, findings).await,
            None => Ok(()),
        }
    }
}

/// Folder of the applications: the given one, or this program's.
fn directory(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::UnknownProgramPath)?;
    Ok(given.unwrap_or_else(|| own.parent().unwrap_or(Path::new(".")).to_owned()))
}

/// Finds the programs with these names.
fn find<const N: usize>(directory: &Path, names: [&'static str; N]) -> Result<Programs, Failure> {
    names.into_iter().map(|name| Ok((name, find_one(directory, name)?))).collect()
}

/// Finds the program with this name.
fn find_one(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = directory.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if path.is_file() { Ok(path) } else { Err(Failure::Missing { path }) }
}

/// Starts a program and waits for its `ready` line; `None` if it ended before. The program is killed on drop.
async fn ready(command: process::Command) -> io::Result<(Child, Option<String>)> {
    let mut command = Command::from(command);
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let line = match process.stdout.take() {
        Some(stdout) => BufReader::new(stdout).lines().next_line().await?,
        None => None,
    };
    Ok((process, line))
}

/// Runs a program and parses its report.
async fn run_report<R: DeserializeOwned>(run: String, mut command: Command, program: &Path) -> Result<R, Failure> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let Output { status, stdout, stderr } = match tokio::time::timeout(RUN_MAX, command.output()).await {
        Ok(done) => done.map_err(|source| Failure::Spawn { program: program.display().to_string(), source })?,
        Err(_) => return Err(Failure::Stuck { run, after: RUN_MAX }),
    };
    if !status.success() {
        return Err(Failure::Run { run, status, reason: last_line(&stderr) });
    }
    let line = last_line(&stdout);
    serde_json::from_str(&line).map_err(|source| Failure::NoReport { run, got: line, source })
}

/// Last line that is not empty.
fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}
