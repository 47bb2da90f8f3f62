//! `pathcall function`: a network function in one file is checked, explained, built, run over a capture.
//!
//! ```text
//! f.p4c ─► check ─► one line, or its mistakes
//!       ├► explain ─► which line runs where, sizes, stages
//!       ├► build -o DIR ─► element.p4, element.bpf.c, handler.c, layout.json
//!       ├► run --pcap IN --out OUT ─► element, servers and controller in this process
//!       └► serve ─► a server of a function that an element carries: `pathcall element --function f.p4c`
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
use pathcall_function::handler::{self, BuildError, Kind, Message, StartError};
use pathcall_function::ir::Program;
use pathcall_function::split::balance::Sizes;
use pathcall_function::split::{Split, Target};
use pathcall_function::{Diagnostic, Report, Sources, compile};

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
    /// Say which line runs where and why, how large it is
    Explain(Source),
    /// Write what element and servers run
    Build(build::BuildArgs),
    /// Run a function over a capture: element, servers and controller in this process
    Run(run::RunArgs),
    /// Run a server of a function that an element carries
    #[cfg(target_os = "linux")]
    Serve(serve::ServeArgs),
    /// Have new flows go to one more server
    AddServer(group::ChangeArgs),
    /// Have no new flows go to a server; it can be stopped when its last flow has ended
    RemoveServer(group::ChangeArgs),
    /// Show the servers of a function that an element carries, and what was counted
    Status(group::StatusArgs),
}

/// A function's file, and how it is read.
#[derive(Debug, Args)]
struct Source {
    /// The function
    #[arg(value_name = "FILE.p4c")]
    file: PathBuf,
    #[command(flatten)]
    reading: Reading,
}

/// How a function's file is read.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reading {
    /// Look for included files here too
    #[arg(short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// As #define NAME VALUE before the first line
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    define: Vec<String>,
    /// Bytes of values that the element can hold at once, as 200 or 200B: values are postponed until it fits
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    phv: Option<u32>,
    /// Entries of each mirrored table that the element holds
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    element_entries: u32,
}

/// `200` or `200B`.
fn bytes(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('B').unwrap_or(text);
    number.parse().map_err(|_| format!("expected bytes, as 200 or 200B, found `{text}`"))
}

/// Mistakes are printed in the manner of compilers, so that editors find their places.
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
    let read = Read::new(&source.file, &source.reading).and_then(|read| match kind {
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

/// What a command does with a function that was read.
type After<'a> = &'a dyn Fn(Read) -> Result<(), Failure>;

/// A command that calls a running element.
type Live<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// A function that was read and has no mistakes.
struct Read {
    sources: Sources,
    program: Program,
    /// None: it has no handler, and runs in the element as it is.
    split: Option<Split>,
    /// Bytes of the target's header vector.
    phv: Option<u32>,
}

impl Read {
    fn new(file: &Path, reading: &Reading) -> Result<Self, String> {
        let mut sources = Sources::new(reading.include.clone());
        for define in &reading.define {
            let (name, value) = define.split_once('=').unwrap_or((define, "1"));
            sources = sources.define(name, value);
        }
        let program = match compile(&mut sources, file) {
            Ok(program) => program,
            Err(mistakes) => return Err(Report(&mistakes, &sources).to_string()),
        };
        let target = Target {
            function: 1,
            sizes: Sizes { entries: reading.element_entries, ..Sizes::default() },
            phv_bits: reading.phv.map(|bytes| bytes.saturating_mul(8)),
        };
        let split = match program.handler {
            None => pathcall_function::split::fits(&program, &target).map(|()| None),
            Some(_) => pathcall_function::split::split(&program, &target).map(Some),
        };
        let split = match split {
            Ok(split) => split,
            Err(refused) => {
                return Err(match refused.at() {
                    Some(at) => Report(&[Diagnostic::new(at, refused.to_string())], &sources).to_string(),
                    None => format!("error: {refused}"),
                });
            }
        };
        Ok(Self { sources, program, split, phv: reading.phv })
    }

    /// Whether the C of its handler is right, for this room or the best one. Without compilers nobody can say.
    fn compile_handler(&self, kind: Option<Kind>) -> Result<(), String> {
        if self.split.is_none() {
            return Ok(());
        }
        let built = handler::build(&self.program, &|at| self.place(at), kind, &handler::cache_dir());
        match built {
            Ok(()) => Ok(()),
            Err(StartError::Build(BuildError::Compile(messages))) => {
                // In the manner of the program's own mistakes, where they stand in its files.
                let at = |message: &Message| {
                    let (file, line, column) = message.at.as_ref()?;
                    let at = self.sources.at(file, *line as usize, *column as usize)?;
                    Some(Diagnostic::new(at, message.text.clone()))
                };
                let placed: Vec<_> = messages.iter().filter_map(at).collect();
                let others = messages.iter().filter(|message| at(message).is_none());
                let mut text: Vec<String> = others.map(|message| format!("error: {message}")).collect();
                if !placed.is_empty() {
                    text.insert(0, Report(&placed, &self.sources).to_string());
                }
                Err(text.join("\n"))
            }
            Err(StartError::Build(BuildError::Lacking(lacking))) => {
                eprintln!("warning: the handler's C is not compiled: {lacking}");
                Ok(())
            }
            Err(other) => Err(format!("error: {other}")),
        }
    }

    /// `file:line:column`, as the C compiler is to know it.
    fn place(&self, at: pathcall_function::ir::Span) -> Option<(String, usize, usize)> {
        place(&self.sources, at)
    }
}

fn place(sources: &Sources, at: pathcall_function::ir::Span) -> Option<(String, usize, usize)> {
    let (line, column) = sources.position(at);
    Some((sources.name(at.file).to_owned(), line, column)).filter(|(name, _, _)| !name.is_empty())
}

fn check(read: &Read) -> Result<(), Failure> {
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
