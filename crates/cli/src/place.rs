//! `pathcall place`: which devices there are, what they and the links of this machine can do, where requests went.
//!
//! ```text
//! devices ─▶ what is there, and what is not and why
//! profile ─▶ a model of this machine's hardware, as YAML
//! check ─▶ models and applications, or their mistakes
//! explain, status ─▶ a running program that has a door
//! ```

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use pathcall_place::device::discover::{Choice, Discovery, Present, discover, open};
use pathcall_place::device::profile::measure;
use pathcall_place::{Application, Hardware, Mistake, Paths};

use crate::failure::Failure;
use pathcall_console::Table;
use pathcall_console::print;

#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show which devices are there, and which are not and why
    Devices,
    /// Measure this machine and print a model of its hardware
    Profile(ProfileArgs),
    /// Check a hardware model and an application, and show each path's time and toll
    Check(CheckArgs),
    /// Say of the last requests of a running program which path each took, and why
    #[cfg(unix)]
    Explain(ExplainArgs),
    /// Show what a running program knows of its paths and devices
    #[cfg(unix)]
    Status(DoorArgs),
}

#[derive(Debug, Args)]
struct ProfileArgs {
    /// The accelerator: opencl:0, cuda:0, emulated:per-job=10us,slots=2; the first that is there otherwise
    #[arg(long, value_name = "DEVICE")]
    acc: Option<Choice>,
    /// Measure without an accelerator
    #[arg(long, conflicts_with = "acc")]
    no_acc: bool,
    /// Write the model there
    #[arg(short, long, value_name = "FILE.yaml")]
    out: Option<PathBuf>,
    /// Time for each number
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    ms: u64,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The application
    #[arg(value_name = "APPLICATION.yaml")]
    application: PathBuf,
    /// The hardware of the host that asks
    #[arg(value_name = "HARDWARE.yaml")]
    requester: PathBuf,
    /// The hardware of the host that answers, if it is another
    #[arg(value_name = "RESPONDER.yaml")]
    responder: Option<PathBuf>,
}

#[cfg(unix)]
#[derive(Debug, Args)]
struct ExplainArgs {
    #[command(flatten)]
    door: DoorArgs,
    /// How many requests
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    last: usize,
}

#[cfg(unix)]
#[derive(Debug, Args)]
struct DoorArgs {
    /// The program's door: the socket that it made for this
    #[arg(long, value_name = "SOCKET")]
    at: PathBuf,
}

pub(crate) fn run(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Devices => devices(),
        Command::Profile(args) => profile(args),
        Command::Check(args) => return check(args),
        #[cfg(unix)]
        Command::Explain(args) => ask(&args.door, pathcall_place::door::Question::Explain(args.last)),
        #[cfg(unix)]
        Command::Status(args) => ask(args, pathcall_place::door::Question::Status),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn devices() -> Result<(), Failure> {
    let Discovery { present, absent } = discover();
    let mut table = Table::new(["DEVICE", "IS"]);
    for Present { choice, about } in present {
        table.row([choice.to_string(), about]);
    }
    let absent = absent.iter().map(|device| format!("{device}\n"));
    Ok(print(&format!("{table}{}", absent.collect::<String>()))?)
}

fn profile(args: &ProfileArgs) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Place(error.to_string());
    let acc = match (&args.acc, args.no_acc) {
        (_, true) => None,
        (Some(choice), _) => Some(choice.clone()),
        (None, _) => {
            let Discovery { present, absent } = discover();
            let found = present.into_iter().map(|device| device.choice).nth(1);
            if found.is_none() {
                let why = absent.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                eprintln!("no accelerator: {why}");
            }
            found
        }
    };
    let device = acc.as_ref().map(open).transpose().map_err(|error| failed(&error))?;
    let measured = measure(device.as_deref(), Duration::from_millis(args.ms)).map_err(|error| failed(&error))?;
    match &args.out {
        Some(path) => {
            std::fs::write(path, measured.to_string()).map_err(|source| Failure::File { path: path.clone(), source })
        }
        None => Ok(print(&measured.to_string())?),
    }
}

/// Mistakes are printed in the manner of compilers, so that editors find their places.
fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let CheckArgs { application, requester, responder } = args;
    let responder = responder.as_ref().unwrap_or(requester);
    let (application, requester, responder) = (read(application)?, read(requester)?, read(responder)?);
    let laid = || -> Result<Paths, Mistake> {
        let application = Application::parse(&application.0, &application.1)?;
        let requester = Hardware::parse(&requester.0, &requester.1)?;
        Paths::of(&requester, &Hardware::parse(&responder.0, &responder.1)?, &application)
    };
    let paths = match laid() {
        Ok(paths) => paths,
        Err(mistake) => {
            eprintln!("{mistake}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut table = Table::new(["REQUEST", "PATH", "TIME ns", "TOLL ns"]);
    for path in &paths.paths {
        let kind = paths.kinds[usize::from(path.kind.0)].name.clone();
        table.row([kind, path.name.clone(), path.traverse_ns.to_string(), path.toll_ns.to_string()]);
    }
    print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// A file's name and text.
fn read(path: &Path) -> Result<(String, String), Failure> {
    let text = std::fs::read_to_string(path).map_err(|source| Failure::File { path: path.to_owned(), source })?;
    Ok((path.display().to_string(), text))
}

#[cfg(unix)]
fn ask(args: &DoorArgs, question: pathcall_place::door::Question) -> Result<(), Failure> {
    let at = args.at.display();
    let said = pathcall_place::door::ask(&args.at, question).map_err(|error| {
        Failure::Place(format!("nobody answers at {at} ({error}): is the program running that has its door there?"))
    })?;
    Ok(print(&said)?)
}
