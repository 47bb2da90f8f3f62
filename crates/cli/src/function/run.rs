//! Command `pathcall function run`: runs a function over captures, and reports where packets were processed.

mod captures;
mod report;
mod sink;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use pathcall_netfn::handler::{self, CHandler, SandboxKind};
use pathcall_netfn::place::{self, PlacementStrategy};
use pathcall_netfn::run::{Config, System};
use pathcall_p4::exec::Execution;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::split::SplitFunction;

use super::entries::{self, GivenEntry};
use super::{ParsedFunction, Source};
use crate::failure::Failure;
use captures::Captures;
use pathcall_console::print;
use sink::Sink;

/// Time of the first packet, at which groups and ranges are established.
const START_US: u64 = 1_000_000;
/// Limit of servers: each has its own port.
const SERVERS_MAX: i64 = 255;

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) source: Source,
    /// Input packets, at this port of the element; several captures are merged by time
    #[arg(long, value_name = "[PORT=]FILE", required = true, value_parser = captures::named)]
    pcap: Vec<captures::NamedCapture>,
    /// Output file for packets that leave
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Output file for digests, one JSON object a line
    #[arg(long, value_name = "FILE")]
    digests: Option<PathBuf>,
    /// Number of servers [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=SERVERS_MAX))]
    servers: Option<u16>,
    /// Port of captures without a port
    #[arg(long, value_name = "PORT", default_value_t = 0, value_parser = captures::port)]
    port: u16,
    /// Table entries, one a line: TABLE KEY… ACTION ARGUMENT…
    #[arg(long, value_name = "FILE")]
    entries: Option<PathBuf>,
    /// Placement strategy of entries in the element: none, random, heap or threshold
    #[arg(long, value_name = "STRATEGY", default_value_t = PlacementStrategy::Threshold)]
    placement: PlacementStrategy,
    /// Delay to a server, and back, in microseconds
    #[arg(long, value_name = "US", default_value_t = 10)]
    delay_us: u64,
    /// Run the handler in this process without a sandbox: only for trusted code
    #[arg(long)]
    native: bool,
}

impl RunArgs {
    /// Requested sandbox.
    pub(super) fn kind(&self) -> Option<SandboxKind> {
        self.native.then_some(SandboxKind::Native)
    }
}

/// Runs the function.
pub(super) fn run(args: &RunArgs, read: &ParsedFunction) -> Result<(), Failure> {
    distinct(args)?;
    let entries = match &args.entries {
        None => Vec::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|source| Failure::File { path: path.clone(), source })?;
            entries::entries(&read.program, &text)
                .map_err(|why| Failure::Function(format!("{}: {why}", path.display())))?
        }
    };
    let mut captures = Captures::open(&args.pcap, args.port)?;
    let mut machine = FunctionRun::new(args, read, &entries)?;
    let mut sink = Sink::create(&args.out, args.digests.as_deref())?;
    let (mut first, mut came) = (None, report::InputCounts::default());
    while let Some(packet) = captures.next()? {
        let first = *first.get_or_insert(packet.at);
        let now_us = START_US + packet.at.saturating_sub(first).as_micros() as u64;
        came.packets += 1;
        came.cut += u64::from(packet.is_cut);
        machine.until(now_us, first, &mut sink);
        sink.at = packet.at;
        machine.process(now_us, packet.port, &packet.bytes, &mut sink);
    }
    machine.finish(first.unwrap_or_default(), &mut sink);
    sink.finish()?;
    Ok(print(&report::report(&came, &sink, &machine, &read.program))?)
}

/// Checks that no output file is also an input or another output.
fn distinct(args: &RunArgs) -> Result<(), Failure> {
    let same = |a: &Path, b: &Path| a == b || a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
    let read = args.pcap.iter().map(|named| &named.file).chain(&args.entries).chain([&args.source.file]);
    let outputs = [("--out", Some(&args.out)), ("--digests", args.digests.as_ref())];
    for (option, path) in outputs.iter().filter_map(|(option, path)| Some((option, (*path)?))) {
        if read.clone().any(|read| same(read, path)) {
            let why = format!("{} is an input: choose another file for {option}", path.display());
            return Err(Failure::Function(why));
        }
    }
    match &args.digests {
        Some(path) if same(path, &args.out) => {
            Err(Failure::Function(format!("{}: --out and --digests name the same file: choose two", path.display())))
        }
        _ => Ok(()),
    }
}

/// Execution of the function: all parts, or only an element if there is no handler.
enum FunctionRun {
    Parts(Box<System<CHandler, Interpreter>>),
    Alone(Box<Interpreter>),
}

impl FunctionRun {
    fn new(args: &RunArgs, read: &ParsedFunction, entries: &[GivenEntry]) -> Result<Self, Failure> {
        let wrong = |given: &GivenEntry, why: String| {
            let path = args.entries.as_deref().unwrap_or(Path::new(""));
            Failure::Function(format!("{}: line {}: {why}", path.display(), given.line))
        };
        // The operator gave all entries: an entry that does not fit is an error, also where servers would ignore it.
        let mut whole = Interpreter::new(&read.program).map_err(|error| Failure::Function(error.to_string()))?;
        for given in entries {
            whole.insert(given.table, &given.entry).map_err(|error| wrong(given, error.to_string()))?;
        }
        let Some(split) = &read.split else {
            if let Some(option) =
                [(args.servers.is_some(), "--servers"), (args.native, "--native")].iter().find(|o| o.0)
            {
                let why = format!("{} has no handler and thus no servers: remove {}", read.program.name, option.1);
                return Err(Failure::Function(why));
            }
            return Ok(Self::Alone(Box::new(whole)));
        };
        let mut system = Self::system(args, read, split)?;
        for given in entries {
            if read.program.tables[given.table.0 as usize].mirrored {
                system.add(given.table, &given.entry);
            } else {
                let inserted = system.execution_mut().insert(given.table, &given.entry);
                inserted.map_err(|error| wrong(given, error.to_string()))?;
            }
        }
        system.advance(START_US - 1, &mut |_| {});
        Ok(Self::Parts(Box::new(system)))
    }

    fn system(
        args: &RunArgs,
        read: &ParsedFunction,
        split: &SplitFunction,
    ) -> Result<System<CHandler, Interpreter>, Failure> {
        let element = Interpreter::new(&split.element).map_err(|error| Failure::Function(error.to_string()))?;
        let (settings, cache) =
            (handler::Config { kind: args.kind(), ..handler::Config::default() }, handler::cache_dir());
        let failed = |error: handler::HandlerStartError| Failure::Function(error.to_string());
        let first = CHandler::start(&read.program, &|at| read.place(at), &settings, &cache, 0).map_err(failed)?;
        let mut servers = Vec::new();
        for _ in 1..args.servers.unwrap_or(1) {
            servers.push(first.new_instance(&read.program, &settings, 0).map_err(failed)?);
        }
        servers.insert(0, first);
        let config = Config {
            place: place::Config { strategy: args.placement, ..place::Config::default() },
            ..Config::default()
        };
        let (count, delay_us) = (servers.len(), args.delay_us);
        Ok(System::new(split.clone(), element, servers, count, &config, move |_| delay_us))
    }

    /// Advances the time, with the time at which each packet leaves.
    fn until(&mut self, now_us: u64, first: Duration, sink: &mut Sink) {
        let Self::Parts(system) = self else { return };
        while let Some(at) = system.next_at().filter(|at| *at <= now_us) {
            sink.at = first + Duration::from_micros(at.saturating_sub(START_US));
            system.advance(at, &mut |output| sink.take(output));
        }
    }

    fn process(&mut self, now_us: u64, port: u16, packet: &[u8], sink: &mut Sink) {
        match self {
            Self::Parts(system) => system.process(now_us, port, packet, &mut |output| sink.take(output)),
            Self::Alone(element) => element.process(now_us, port, packet, &mut |output| sink.take(output)),
        }
    }

    fn finish(&mut self, first: Duration, sink: &mut Sink) {
        while let Self::Parts(system) = self
            && system.busy()
            && let Some(at) = system.next_at()
        {
            self.until(at, first, sink);
        }
    }
}
