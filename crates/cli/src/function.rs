//! Command `pathcall function`: checks, explains, builds and runs a network function.
//!
//! ```text
//! f.p4c ─► check ─► one line, or errors
//!       ├► explain ─► where each line runs, sizes, stages
//!       ├► build -o DIR ─► element.p4, element.bpf.c, handler.c, layout.json
//!       ├► run --pcap IN --out OUT ─► element, servers and controller in this process
//!       └► serve ─► a server of a function that an element runs: `pathcall element --function f.p4c`
//!          add-server, remove-server, status ─► that element
//! ```

mod build;
pub(crate) mod carry;
mod entries;
mod explain;
mod group;
mod run;
#[cfg(target_os = "linux")]
mod serve;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use pathcall_netfn::handler::{self, CompilerMessage, GuestBuildError, HandlerStartError, SandboxKind};
use pathcall_p4::ir::Program;
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::{SplitFunction, SplitTarget};
use pathcall_p4::{Diagnostic, DiagnosticReport, Sources, compile};

use crate::failure::Failure;
use pathcall_console::print;

#[derive(Debug, Args)]
pub(crate) struct FunctionArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a function, and whether it can be split
    Check(Source),
    /// Show where each line runs and why, and the sizes
    Explain(Source),
    /// Write the programs for element and servers
    Build(build::BuildArgs),
    /// Run a function over a capture: element, servers and controller in one process
    Run(run::RunArgs),
    /// Run a server of a function that an element runs
    #[cfg(target_os = "linux")]
    Serve(serve::ServeArgs),
    /// Send new flows to one more server
    AddServer(group::ChangeArgs),
    /// Send no new flows to a server; stop it once its last flow has ended
    RemoveServer(group::ChangeArgs),
    /// Show the servers of a function on an element, and its counters
    Status(group::StatusArgs),
}

/// Source file of a function, and the options to read it.
#[derive(Debug, Args)]
struct Source {
    /// Source file of the function
    #[arg(value_name = "FILE.p4c")]
    file: PathBuf,
    #[command(flatten)]
    reading: SourceOptions,
}

/// Options to read a function's source file.
#[derive(Debug, Clone, Args)]
pub(crate) struct SourceOptions {
    /// Folder to search for included files; may be repeated
    #[arg(short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Macro, as #define NAME VALUE before the first line
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    define: Vec<String>,
    /// Bytes of the element's header vector, as 200 or 200B: values are postponed until the rest fits
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    phv: Option<u32>,
    /// Entries of each mirrored table that the element holds
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    element_entries: u32,
}

/// Parses `200` or `200B`.
fn bytes(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('B').unwrap_or(text);
    number.parse().map_err(|_| format!("invalid number of bytes `{text}` (examples: 200, 200B)"))
}

/// Prints errors in the format of compilers, so that editors can jump to the source line.
pub(crate) fn run(args: FunctionArgs) -> Result<ExitCode, Failure> {
    let live = |command| super::block_on(command).map(|()| ExitCode::SUCCESS);
    let (source, after): (_, After<'_>) = match &args.command {
        Command::AddServer(args) => return live(Box::pin(group::add(args)) as Live<'_>),
        Command::RemoveServer(args) => return live(Box::pin(group::remove(args))),
        Command::Status(args) => return live(Box::pin(group::status(args))),
        #[cfg(target_os = "linux")]
        Command::Serve(args) => (&args.source, &|read| super::block_on(serve::run(args, read))),
        Command::Check(source) => (source, &|read| check(&read)),
        Command::Explain(source) => (source, &|read| explain::explain(&read)),
        Command::Build(args) => (&args.source, &|read| build::build(args, &read)),
        Command::Run(args) => (&args.source, &|read| run::run(args, &read)),
    };
    let kind = match &args.command {
        Command::Run(args) => Some(args.kind()),
        Command::Check(_) | Command::Build(_) => Some(None),
        _ => None,
    };
    let read = ParsedFunction::new(&source.file, &source.reading).and_then(|read| match kind {
        Some(kind) => read.compile_handler(kind).map(|()| read),
        None => Ok(read),
    });
    match read {
        Ok(read) => after(read).map(|()| ExitCode::SUCCESS),
        Err(mistakes) => {
            eprintln!("{mistakes}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Action of a command on a parsed function.
type After<'a> = &'a dyn Fn(ParsedFunction) -> Result<(), Failure>;

/// Future of a command that calls a running element.
type Live<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// Parsed function without errors.
struct ParsedFunction {
    sources: Sources,
    program: Program,
    /// `None` if the function has no handler and runs in the element as a whole.
    split: Option<SplitFunction>,
    /// Bytes of the target's header vector.
    phv: Option<u32>,
}

impl ParsedFunction {
    fn new(file: &Path, reading: &SourceOptions) -> Result<Self, String> {
        let mut sources = Sources::new(reading.include.clone());
        for define in &reading.define {
            let (name, value) = define.split_once('=').unwrap_or((define, "1"));
            sources = sources.define(name, value);
        }
        let program = match compile(&mut sources, file) {
            Ok(program) => program,
            Err(mistakes) => return Err(DiagnosticReport(&mistakes, &sources).to_string()),
        };
        let target = SplitTarget {
            function: 1,
            sizes: Sizes { entries: reading.element_entries, ..Sizes::default() },
            phv_bits: reading.phv.map(|bytes| bytes.saturating_mul(8)),
        };
        let split = match program.handler {
            None => pathcall_p4::split::fits(&program, &target).map(|()| None),
            Some(_) => pathcall_p4::split::split(&program, &target).map(Some),
        };
        let split = match split {
            Ok(split) => split,
            Err(refused) => {
                return Err(match refused.at() {
                    Some(at) => DiagnosticReport(&[Diagnostic::new(at, refused.to_string())], &sources).to_string(),
                    None => format!("error: {refused}"),
                });
            }
        };
        Ok(Self { sources, program, split, phv: reading.phv })
    }

    /// Compiles the C of the handler for this sandbox, or for the best one. Without a compiler, warns and accepts.
    fn compile_handler(&self, kind: Option<SandboxKind>) -> Result<(), String> {
        if self.split.is_none() {
            return Ok(());
        }
        let built = handler::build(&self.program, &|at| self.place(at), kind, &handler::cache_dir());
        match built {
            Ok(()) => Ok(()),
            Err(HandlerStartError::Build(GuestBuildError::Compile(messages))) => {
                // Same format as the errors of the function, at their positions in its files.
                let at = |message: &CompilerMessage| {
                    let (file, line, column) = message.at.as_ref()?;
                    let at = self.sources.at(file, *line as usize, *column as usize)?;
                    Some(Diagnostic::new(at, message.text.clone()))
                };
                let placed: Vec<_> = messages.iter().filter_map(at).collect();
                let others = messages.iter().filter(|message| at(message).is_none());
                let mut text: Vec<String> = others.map(|message| format!("error: {message}")).collect();
                if !placed.is_empty() {
                    text.insert(0, DiagnosticReport(&placed, &self.sources).to_string());
                }
                Err(text.join("\n"))
            }
            Err(HandlerStartError::Build(GuestBuildError::MissingTools(missing))) => {
                eprintln!("warning: cannot compile the handler's C: {missing}");
                Ok(())
            }
            Err(other) => Err(format!("error: {other}")),
        }
    }

    /// File, line and column of a span, for the C compiler.
    fn place(&self, at: pathcall_p4::ir::SourceSpan) -> Option<(String, usize, usize)> {
        place(&self.sources, at)
    }
}

fn place(sources: &Sources, at: pathcall_p4::ir::SourceSpan) -> Option<(String, usize, usize)> {
    let (line, column) = sources.position(at);
    Some((sources.name(at.file).to_owned(), line, column)).filter(|(name, _, _)| !name.is_empty())
}

fn check(read: &ParsedFunction) -> Result<(), Failure> {
    let program = &read.program;
    let mut text = format!(
        "{}: {} headers, {} tables, {} registers, {} counters",
        program.name,
        program.headers.len(),
        program.tables.len(),
        program.registers.len(),
        program.counters.len(),
    );
    match &read.split {
        Some(split) => {
            text.push_str(&format!("; a handler, {} bytes between it and the element\n", split.layout.length));
            split.report.warnings.iter().for_each(|warning| text.push_str(&format!("warning: {warning}\n")));
        }
        None => text.push_str("; no handler\n"),
    }
    Ok(print(&text)?)
}
