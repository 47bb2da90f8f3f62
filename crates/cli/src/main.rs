//! Command line of Pathcall.
//!
//! ```text
//!   pathcall ─┬─ up ──────────┬─▶ controller ─▶ pathcall_control
//!             ├─ controller ──┤
//!             ├─ element ─────┴─▶ element ────▶ pathcall_element
//!             ├─ cert ─▶ certificates
//!             ├─ check ─▶ pathcall_build
//!             ├─ status ─▶ a running controller
//!             ├─ program ─▶ pathcall_program, and a running controller
//!             ├─ function ─▶ pathcall_p4, pathcall_netfn, pathcall_live
//!             ├─ place ─▶ pathcall_place
//!             ├─ pipe ─▶ pathcall_pipe
//!             └─ NAME ─▶ a separate program, pathcall-NAME: demo, sim, testbed
//! ```
//!
//! Features: `xdp` attaches the switch program to interfaces in the kernel (building it needs clang and the headers of
//! libbpf); `opencl` and `cuda` add devices to `pathcall place`. None is on by default.
//!
//! Each command has a module. [`failure`] holds the errors, `security` the TLS options, `memory` the register memory of
//! an application, and `external` runs the separate programs.

mod cert;
mod check;
mod controller;
mod element;
mod external;
mod failure;
mod function;
mod kernel;
mod memory;
mod pipe;
mod place;
mod program;
mod security;
mod status;
mod up;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;
use tracing_subscriber::filter::LevelFilter;

use failure::Failure;

/// gRPC with in-network computation
#[derive(Debug, Parser)]
#[command(name = "pathcall", version, arg_required_else_help = true, after_help = external::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log more to standard error; twice for all messages
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a controller and an element in one process
    Up(up::UpArgs),
    /// Run a controller
    Controller(controller::ControllerCommandArgs),
    /// Run an element
    Element(element::ElementArgs),
    /// Check a .proto file with its method options, NetFilters and applications
    Check(check::CheckArgs),
    /// Create a certificate authority and issue certificates for all parties
    Cert(cert::CertArgs),
    /// Show the applications, elements, pools and nodes that a controller knows
    Status(status::StatusArgs),
    /// Show the stages, registers and costs of the switch program
    Program(program::ProgramArgs),
    /// Check, explain, build, run or serve a network function; change and show its servers
    Function(function::FunctionArgs),
    /// Show and measure the devices and paths of hosts, and explain path selection
    Place(place::PlaceArgs),
    /// Check and run a pipe of unmodified gRPC services
    Pipe(pipe::PipeArgs),
    /// Command of a separate program
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

/// Runs the command. Exit code: 0 on success, 1 on failure, 2 for wrong arguments.
fn main() -> ExitCode {
    let Cli { command, verbose } = Cli::parse();
    log(verbose);
    run(command).unwrap_or_else(|failure| {
        eprintln!("pathcall: {failure}");
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    let done = match command {
        Command::Cert(args) => return cert::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => return check::run(&args),
        Command::Function(args) => return function::run(args),
        Command::Place(args) => return place::run(&args),
        Command::Pipe(args) => return pipe::run(args),
        Command::External(words) => return external::run(&words),
        Command::Up(args) => block_on(up::run(args)),
        Command::Controller(args) => block_on(controller::run(args)),
        Command::Element(args) => block_on(element::run(args)),
        Command::Status(args) => block_on(status::run(args)),
        Command::Program(args) => block_on(program::run(args)),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    Runtime::new().map_err(Failure::Runtime)?.block_on(command)
}

fn log(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_target(false).init();
}
