//! Command `pathcall demo`: demonstrates each ability, and then all of them in one service.
//!
//! On hosts, where the system allows them, [`hosts`] shows what an element and Pathcall's paths gain over plain gRPC. Then
//! the demo starts a controller and an element on the loopback (see [`network`]), runs the applications beside this
//! program by all of their paths, and compares the results: sums and locks with the element, in software and as plain gRPC ([`mapped`]), cloned
//! calls ([`cloned`]), delegated calls ([`delegated`]), messages for a thread or an accelerator ([`placed`]), a network
//! function over a capture ([`function`]), and a service that uses four abilities ([`together`]). The applications
//! report in a line of JSON. [`findings`] collects differences and pictures. Nothing is left running.

mod cloned;
mod delegated;
mod failure;
mod findings;
mod function;
mod gain;
#[cfg(target_os = "linux")]
mod hosts;
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
    /// Leave out the part on hosts, which makes namespaces
    #[arg(long)]
    loopback: bool,
    /// Folder for pictures [default: `figures` beside the folder of this program]
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
}

/// Parts of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Hosts,
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
    // Before this process has threads: it may be replaced.
    let access = if args.wants_hosts() { HostAccess::gain() } else { HostAccess::Unwanted };
    let done = Runtime::new().map_err(Failure::Runtime).and_then(|runtime| runtime.block_on(run(args, access)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pathcall: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: DemoArgs, access: HostAccess) -> Result<(), Failure> {
    let directory = directory(args.applications.clone())?;
    let pathcall = find_one(&directory, PATHCALL)?;
    let parts = SelectedParts::find(&directory, &args)?;
    let default = || directory.parent().unwrap_or(&directory).join("figures");
    let mut findings = Findings::new(args.figures.clone().unwrap_or_else(default))?;
    let signal = stopped()?;
    tokio::select! {
        biased;
        // What is in progress is killed when it is dropped.
        () = signal => return Err(Failure::Interrupted),
        done = parts.run(&args, &pathcall, access, &mut findings) => done?,
    }
    let pictures = findings.close()?;
    Ok(print(&format!("\n{END}{pictures}"))?)
}

/// Whether this process may make hosts.
enum HostAccess {
    Unwanted,
    Gained,
    /// With the reason.
    Denied(String),
}

impl HostAccess {
    /// Gains access: as root, or as root of a user namespace, for which this process is replaced.
    #[cfg(target_os = "linux")]
    fn gain() -> Self {
        use pathcall_testbed::Error::{MissingCapabilities, NotRoot};
        match pathcall_testbed::check() {
            Ok(()) => Self::Gained,
            Err(NotRoot | MissingCapabilities) => Self::Denied(pathcall_testbed::enter_user_namespace().to_string()),
            Err(error) => Self::Denied(error.to_string()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn gain() -> Self {
        Self::Denied(Failure::NoTestbed.to_string())
    }
}

/// Selected parts of the demo.
struct SelectedParts {
    #[cfg(target_os = "linux")]
    hosts: Option<hosts::Demo>,
    loopback: LoopbackParts,
}

/// Parts on the loopback, or on the hosts of a given testbed.
struct LoopbackParts {
    mapped: Option<mapped::Demo>,
    cloned: Option<cloned::Demo>,
    delegated: Option<delegated::Demo>,
    placed: bool,
    function: Option<function::Demo>,
    together: Option<together::Demo>,
}

impl DemoArgs {
    fn wants_hosts(&self) -> bool {
        !self.loopback && self.testbed.is_none() && self.only.is_none_or(|only| only == Part::Hosts)
    }

    fn is_selected(&self, part: Part) -> bool {
        // The other parts have all parties in one process.
        let on_testbed = |part| matches!(part, Part::Map | Part::Together);
        self.only.map_or(self.testbed.is_none() || on_testbed(part), |only| only == part)
    }
}

impl SelectedParts {
    /// Finds the programs of the selected parts in this folder.
    fn find(directory: &Path, args: &DemoArgs) -> Result<Self, Failure> {
        let is_selected = |part| args.is_selected(part);
        Ok(Self {
            #[cfg(target_os = "linux")]
            hosts: args.wants_hosts().then(|| hosts::find(directory)).transpose()?,
            loopback: LoopbackParts {
                mapped: is_selected(Part::Map).then(|| mapped::find(directory)).transpose()?,
                cloned: is_selected(Part::Clone).then(|| cloned::find(directory)).transpose()?,
                delegated: is_selected(Part::Delegate).then(|| delegated::find(directory)).transpose()?,
                placed: is_selected(Part::Place),
                function: is_selected(Part::Function).then(|| function::find(directory)).transpose()?,
                together: is_selected(Part::Together).then(|| together::find(directory)).transpose()?,
            },
        })
    }

    /// Runs all selected parts, and prints their results.
    async fn run(
        &self,
        args: &DemoArgs,
        pathcall: &Path,
        access: HostAccess,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        print(&wrap(INTRODUCTION))?;
        let denied = match access {
            HostAccess::Unwanted => None,
            HostAccess::Denied(reason) => Some(reason),
            HostAccess::Gained => self.run_on_hosts(pathcall, findings).await?,
        };
        let is_alone = args.only == Some(Part::Hosts);
        match denied {
            Some(reason) if is_alone => return Err(Failure::NoHosts(reason)),
            Some(reason) => print(&format!("\n{}", wrap(&format!("No hosts: {reason}."))))?,
            None if is_alone => return Ok(()),
            None => {}
        }
        let network = Network::start(pathcall, args.testbed.as_deref(), args.xdp).await?;
        let done = self.loopback.run(&network, findings).await;
        network.shutdown().await;
        done
    }

    /// Runs the part on hosts. Returns the reason where hosts can't be built.
    #[cfg(target_os = "linux")]
    async fn run_on_hosts(&self, pathcall: &Path, findings: &mut Findings) -> Result<Option<String>, Failure> {
        match &self.hosts {
            Some(hosts) => hosts.run(pathcall, findings).await,
            None => Ok(None),
        }
    }

    #[cfg(not(target_os = "linux"))]
    async fn run_on_hosts(&self, _: &Path, _: &mut Findings) -> Result<Option<String>, Failure> {
        Ok(None)
    }
}

impl LoopbackParts {
    /// Runs all selected parts, and prints their results.
    async fn run(&self, network: &Network, findings: &mut Findings) -> Result<(), Failure> {
        let url = network.url();
        print(&format!("\n{}", wrap(&network.description())))?;
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
