//! `pathcall demo`: each ability in turn, and then all of them in one service.
//!
//! Starts a controller and an element (see [`network`]), and runs the applications that lie beside this program, each by
//! all its ways, and holds their results against each other: sums and locks with the element, in software and as plain
//! gRPC ([`mapped`]), calls that are cloned ([`cloned`]), that servers pass on ([`delegated`]), messages that a thread or an
//! accelerator works on ([`placed`]), a network function over a capture ([`function`]), and a service that uses all four
//! ([`together`]). The applications report in a line of JSON. [`findings`] has what differs, and the pictures.
//! Nothing is left running.

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
use findings::Findings;
use network::Network;

const BEGINNING: &str = "A call travels a path of hops, and any hop may do part of it: the element, which frames pass on \
their way, the\nserver, another server, a device. Here each of them does, on this machine; what it comes to is held \
against the same\nwork done by plain gRPC, and has to be the same.\n";
const END: &str =
    "All results are the same, whoever did which part. Everything that was started has ended. Pictures:\n";

/// The command that runs controller, element and functions.
const PATHCALL: &str = "pathcall";
/// Longest time that one run may take.
const RUN_MAX: Duration = Duration::from_secs(180);

/// Show what each ability does: the same work with the element, in software and as plain gRPC, compared
#[derive(Debug, Parser)]
#[command(name = "pathcall demo", version)]
struct DemoArgs {
    /// Directory of the command `pathcall` and the applications; without it, this program's
    #[arg(long, value_name = "PATH")]
    applications: Option<PathBuf>,
    /// Testbed to run on, for the parts whose parties can be on hosts of their own: servers on the first hosts, clients on
    /// those after them; without it, all runs on the loopback
    #[arg(long, value_name = "BED")]
    testbed: Option<String>,
    /// The testbed's element is in the kernel (XDP), at the end of every host's link
    #[arg(long, requires = "testbed")]
    xdp: bool,
    /// One part of the story; without it, all that there is
    #[arg(long, value_name = "PART", conflicts_with = "testbed")]
    only: Option<Part>,
    /// Folder for pictures; without it, `figures` beside the one that this program is in
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
}

/// Parts of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Map,
    Clone,
    Delegate,
    Place,
    Function,
    Together,
}

/// Names of applications, and where they are.
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
    // Other parts have all their parties in one process.
    let on_hosts = |part| matches!(part, Part::Map | Part::Together);
    let told = |part| args.only.map_or(args.testbed.is_none() || on_hosts(part), |only| only == part);
    let pathcall = find_one(&directory, PATHCALL)?;
    let story = Story::find(&directory, told)?;
    let figures = args.figures.unwrap_or_else(|| directory.parent().unwrap_or(&directory).join("figures"));
    let mut findings = Findings::new(figures)?;
    let signal = stopped()?;
    let network = Network::start(&pathcall, args.testbed.as_deref(), args.xdp).await?;
    let told = tokio::select! {
        biased;
        // The run in progress is killed where it is dropped.
        () = signal => Err(Failure::Interrupted),
        told = story.tell(&network, &mut findings) => told,
    };
    network.shutdown().await;
    told?;
    let pictures = findings.close()?;
    Ok(print(&format!("\n{END}{pictures}"))?)
}

/// What is told, one ability after the other, and then all together.
struct Story {
    mapped: Option<mapped::Demo>,
    cloned: Option<cloned::Demo>,
    delegated: Option<delegated::Demo>,
    placed: bool,
    function: Option<function::Demo>,
    together: Option<together::Demo>,
}

impl Story {
    /// With programs of this directory, all that are needed or none.
    fn find(directory: &Path, told: impl Fn(Part) -> bool) -> Result<Self, Failure> {
        Ok(Self {
            mapped: told(Part::Map).then(|| mapped::find(directory)).transpose()?,
            cloned: told(Part::Clone).then(|| cloned::find(directory)).transpose()?,
            delegated: told(Part::Delegate).then(|| delegated::find(directory)).transpose()?,
            placed: told(Part::Place),
            function: told(Part::Function).then(|| function::find(directory)).transpose()?,
            together: told(Part::Together).then(|| together::find(directory)).transpose()?,
        })
    }

    /// Runs everything, and prints what came of it.
    async fn tell(&self, network: &Network, findings: &mut Findings) -> Result<(), Failure> {
        let (url, element) = (network.url(), network.element());
        print(&format!("{BEGINNING}Started: a controller at {url}, and {element}.\n"))?;
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
            placed::tell(findings).await?;
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

/// Where the applications are: beside this program, unless it is said otherwise.
fn directory(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::NoPlace)?;
    Ok(given.unwrap_or_else(|| own.parent().unwrap_or(Path::new(".")).to_owned()))
}

/// Programs with these names, all of them or none.
fn find<const N: usize>(directory: &Path, names: [&'static str; N]) -> Result<Programs, Failure> {
    names.into_iter().map(|name| Ok((name, find_one(directory, name)?))).collect()
}

/// The program with this name.
fn find_one(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = directory.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if path.is_file() { Ok(path) } else { Err(Failure::Missing { path }) }
}

/// Starts a program that says in a line that it is ready; `None` if it ended before. It is killed where it is dropped.
async fn ready(command: process::Command) -> io::Result<(Child, Option<String>)> {
    let mut command = Command::from(command);
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let line = match process.stdout.take() {
        Some(stdout) => BufReader::new(stdout).lines().next_line().await?,
        None => None,
    };
    Ok((process, line))
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
