//! The command line: arguments in, tables and one-line errors out.
//!
//! ```text
//!   pathcall ─┬─ up ──────────┬─▶ controller ─▶ pathcall_control
//!             ├─ controller ──┤
//!             ├─ element ─────┴─▶ element ────▶ pathcall_element
//!             ├─ check ─▶ pathcall_build
//!             ├─ status ─▶ a running controller
//!             ├─ program ─▶ pathcall_program, and a running controller
//!             ├─ function ─▶ pathcall_function, pathcall_live
//!             ├─ place ─▶ pathcall_place
//!             ├─ demo ─▶ controller, element, and the applications beside this program
//!             ├─ sim ─▶ pathcall_sim
//!             └─ testbed ─▶ pathcall_testbed (Linux)
//! ```
//!
//! One module per command; [`failure`] is everything that may go wrong, `table` sets tables,
//! `memory` is how much an application has.

mod check;
mod controller;
mod demo;
mod element;
mod failure;
mod function;
mod kernel;
mod memory;
mod place;
mod program;
mod signal;
mod status;
mod table;
#[cfg(target_os = "linux")]
mod testbed;
mod up;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;
use tracing_subscriber::filter::LevelFilter;

use failure::Failure;

/// Calls that are worked on along their path
#[derive(Debug, Parser)]
#[command(name = "pathcall", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more on the standard error output; twice for all
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a controller and an element in one process
    Up(up::UpArgs),
    /// Run a controller
    Controller(controller::ControllerArgs),
    /// Run an element
    Element(element::ElementArgs),
    /// Check a .proto file, its methods' options, and the filters and applications that they name
    Check(check::CheckArgs),
    /// Show the applications, elements, pools and nodes that a controller knows
    Status(status::StatusArgs),
    /// Look into the switch program
    Program(program::ProgramArgs),
    /// Check, explain, build, run or serve a network function; change and show its servers
    Function(function::FunctionArgs),
    /// Look at devices and paths of hosts, measure them, explain which path requests took
    Place(place::PlaceArgs),
    /// Show what each ability does: the same work with the element, in software and as plain gRPC, compared
    Demo(demo::DemoArgs),
    /// Play faulty networks from seeds and check every result
    Sim(pathcall_sim::cli::SimArgs),
    /// Build several hosts on this machine, with links of a given rate and quality (needs root)
    #[cfg(target_os = "linux")]
    Testbed(testbed::TestbedArgs),
}

/// Runs the command: 0 when all went well, 1 when not, 2 when the arguments are wrong.
pub(crate) fn main() -> ExitCode {
    let Cli { command, verbose } = Cli::parse();
    log(verbose);
    run(command).unwrap_or_else(|failure| {
        eprintln!("pathcall: {failure}");
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    let done = match command {
        Command::Check(args) => return check::run(&args),
        Command::Function(args) => return function::run(args),
        Command::Place(args) => return place::run(&args),
        Command::Sim(args) => return pathcall_sim::cli::run_cli(&args).map_err(Failure::Output),
        #[cfg(target_os = "linux")]
        Command::Testbed(args) => return testbed::run(args),
        Command::Up(args) => block_on(up::run(args)),
        Command::Controller(args) => block_on(controller::run(args)),
        Command::Element(args) => block_on(element::run(args)),
        Command::Status(args) => block_on(status::run(args)),
        Command::Program(args) => block_on(program::run(args)),
        Command::Demo(args) => block_on(demo::run(args)),
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

/// Writes to the standard output, at once: somebody may wait for it at the other end of a pipe.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read the output has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(Failure::Output),
    }
}
