//! Command `pathcall place`: shows and measures the devices and links of this machine, and explains path selection.
//!
//! ```text
//! devices ─▶ available devices, and the reasons for missing ones
//! profile ─▶ performance model of this machine's hardware, as YAML
//! check ─▶ checked models and applications, or errors
//! explain, status ─▶ a running program with an admin socket
//! ```

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use pathcall_place::device::discover::{DeviceChoice, Discovery, FoundDevice, discover, open};
use pathcall_place::device::profile::measure;
use pathcall_place::model::ACCELERATORS_MAX;
use pathcall_place::{Application, Hardware, ModelError, Paths};

use crate::failure::Failure;
use pathcall_console::TextTable;
use pathcall_console::print;

#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the available devices, and why others are not available
    Devices,
    /// Measure this machine and print its performance model
    Profile(ProfileArgs),
    /// Check a hardware model and an application, and show the time and toll of each path
    Check(CheckArgs),
    /// Explain which path each of the last requests of a running program took
    #[cfg(unix)]
    Explain(ExplainArgs),
    /// Show the paths and devices of a running program
    #[cfg(unix)]
    Status(AdminSocketArgs),
}

#[derive(Debug, Args)]
struct ProfileArgs {
    /// Accelerator: opencl:0, cuda:0 or emulated:per-job=10us,slots=2; repeat it for several [default: the first available]
    #[arg(long, value_name = "DEVICE")]
    acc: Vec<DeviceChoice>,
    /// Measure without an accelerator
    #[arg(long, conflicts_with = "acc")]
    no_acc: bool,
    /// Output file for the model
    #[arg(short, long, value_name = "FILE.yaml")]
    out: Option<PathBuf>,
    /// Milliseconds for each measurement
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    ms: u64,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Application
    #[arg(value_name = "APPLICATION.yaml")]
    application: PathBuf,
    /// Hardware of the requesting host
    #[arg(value_name = "HARDWARE.yaml")]
    requester: PathBuf,
    /// Hardware of the responding host, if different
    #[arg(value_name = "RESPONDER.yaml")]
    responder: Option<PathBuf>,
}

#[cfg(unix)]
#[derive(Debug, Args)]
struct ExplainArgs {
    #[command(flatten)]
    admin_socket: AdminSocketArgs,
    /// Number of requests
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    last: usize,
}

#[cfg(unix)]
#[derive(Debug, Args)]
struct AdminSocketArgs {
    /// Admin socket of the program
    #[arg(long, value_name = "SOCKET")]
    at: PathBuf,
}

pub(crate) fn run(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Devices => devices(),
        Command::Profile(args) => profile(args),
        Command::Check(args) => return check(args),
        #[cfg(unix)]
        Command::Explain(args) => ask(&args.admin_socket, pathcall_place::admin_socket::AdminQuery::Explain(args.last)),
        #[cfg(unix)]
        Command::Status(args) => ask(args, pathcall_place::admin_socket::AdminQuery::Status),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn devices() -> Result<(), Failure> {
    let Discovery { present, absent } = discover();
    let mut table = TextTable::new(["DEVICE", "IS"]);
    for FoundDevice { choice, about } in present {
        table.row([choice.to_string(), about]);
    }
    let absent = absent.iter().map(|device| format!("{device}\n"));
    Ok(print(&format!("{table}{}", absent.collect::<String>()))?)
}

fn profile(args: &ProfileArgs) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Place(error.to_string());
    if args.acc.len() > ACCELERATORS_MAX {
        let count = args.acc.len();
        return Err(failed(&format!("{count} accelerators are given; a host has at most {ACCELERATORS_MAX}")));
    }
    let mut accelerators = args.acc.clone();
    if accelerators.is_empty() && !args.no_acc {
        let Discovery { present, absent } = discover();
        accelerators.extend(present.into_iter().map(|device| device.choice).nth(1));
        if accelerators.is_empty() {
            let why = absent.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            eprintln!("no accelerator: {why}");
        }
    }
    let devices = accelerators.iter().map(open).collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
    let budget = Duration::from_millis(args.ms);
    let measured = measure(devices.iter().map(|device| &**device), budget).map_err(|error| failed(&error))?;
    match &args.out {
        Some(path) => {
            std::fs::write(path, measured.to_string()).map_err(|source| Failure::File { path: path.clone(), source })
        }
        None => Ok(print(&measured.to_string())?),
    }
}

/// Prints errors in the format of compilers, so that editors can jump to the source line.
fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let CheckArgs { application, requester, responder } = args;
    let responder = responder.as_ref().unwrap_or(requester);
    let (application, requester, responder) = (read(application)?, read(requester)?, read(responder)?);
    let laid = || -> Result<Paths, ModelError> {
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
    let mut table = TextTable::new(["REQUEST", "PATH", "TIME ns", "TOLL ns"]);
    for path in &paths.paths {
        let kind = paths.kinds[usize::from(path.kind.0)].name.clone();
        table.row([kind, path.name.clone(), path.traverse_ns.to_string(), path.toll_ns.to_string()]);
    }
    print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Name and text of a file.
fn read(path: &Path) -> Result<(String, String), Failure> {
    let text = std::fs::read_to_string(path).map_err(|source| Failure::File { path: path.to_owned(), source })?;
    Ok((path.display().to_string(), text))
}

#[cfg(unix)]
fn ask(args: &AdminSocketArgs, question: pathcall_place::admin_socket::AdminQuery) -> Result<(), Failure> {
    let at = args.at.display();
    let answer = pathcall_place::admin_socket::query_admin_socket(&args.at, question).map_err(|error| {
        Failure::Place(format!(
            "cannot connect to admin socket {at}: {error}; start the program with this socket, or set another with --at"
        ))
    })?;
    Ok(print(&answer)?)
}
