//! `pathcall function run`: a capture in, a capture out, and what ran where.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use pathcall_function::exec::{Execution, Output, Reason};
use pathcall_function::handler::{self, Handler};
use pathcall_function::interp::Interpreter;
use pathcall_function::ir::{Entry, TableId};
use pathcall_function::place::{self, Strategy};
use pathcall_function::run::{Config, System};
use pathcall_function::split::{Event, Split};
use pcap_file::TsResolution;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter, RawPcapPacket};

use super::{Read, Source, entries};
use crate::cli::failure::Failure;
use crate::cli::print;

/// When the first packet comes: groups and ranges are there by then.
const START_US: u64 = 1_000_000;

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) source: Source,
    /// Packets that come in
    #[arg(long, value_name = "FILE")]
    pcap: PathBuf,
    /// Where packets that leave are written
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Servers
    #[arg(long, value_name = "N", default_value_t = 1)]
    servers: u16,
    /// The element's port that packets come in at
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Entries of tables, a line each: TABLE KEY… ACTION ARGUMENT…
    #[arg(long, value_name = "FILE")]
    entries: Option<PathBuf>,
    /// What the element works on itself: none, random, heap or threshold
    #[arg(long, value_name = "STRATEGY", default_value_t = Strategy::Threshold)]
    placement: Strategy,
    /// Microseconds of the way to a server, and of the way back
    #[arg(long, value_name = "US", default_value_t = 10)]
    delay_us: u64,
}

/// What came out.
struct Sink {
    writer: PcapWriter<BufWriter<File>>,
    at: Duration,
    ports: BTreeMap<u16, u64>,
    dropped: BTreeMap<Reason, u64>,
    digests: BTreeMap<String, u64>,
    failed: Option<pcap_file::PcapError>,
}

impl Sink {
    fn take(&mut self, output: Output<'_>) {
        match output {
            Output::Packet { port, bytes } => {
                *self.ports.entry(port).or_default() += 1;
                let packet = PcapPacket::new(self.at, bytes.len() as u32, bytes);
                if let Err(error) = self.writer.write_packet(&packet) {
                    self.failed.get_or_insert(error);
                }
            }
            Output::Dropped(reason) => *self.dropped.entry(reason).or_default() += 1,
            Output::Digest { name, .. } => *self.digests.entry(name.to_owned()).or_default() += 1,
        }
    }
}

/// Runs the function.
pub(super) fn run(args: &RunArgs, read: &Read) -> Result<(), Failure> {
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |source: pcap_file::PcapError| Failure::Capture { path, source }
    };
    let open = |path: &Path| File::open(path).map_err(|source| Failure::File { path: path.to_owned(), source });
    let mut reader = PcapReader::new(BufReader::new(open(&args.pcap)?)).map_err(wrong(&args.pcap))?;
    let created = File::create(&args.out).map_err(|source| Failure::File { path: args.out.clone(), source })?;
    let header = PcapHeader { datalink: reader.header().datalink, ..PcapHeader::default() };
    let mut sink = Sink {
        writer: PcapWriter::with_header(BufWriter::new(created), header).map_err(wrong(&args.out))?,
        at: Duration::ZERO,
        ports: BTreeMap::new(),
        dropped: BTreeMap::new(),
        digests: BTreeMap::new(),
        failed: None,
    };
    let entries = match &args.entries {
        None => Vec::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|source| Failure::File { path: path.clone(), source })?;
            entries::entries(&read.program, &text)
                .map_err(|why| Failure::Function(format!("{}: {why}", path.display())))?
        }
    };
    let mut machine = Machine::new(args, read, &entries)?;
    let (mut first, mut packets) = (None, 0u64);
    let resolution = reader.header().ts_resolution;
    // As they are: captures that cut packets say so of each, which the checked way takes for a mistake.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.map_err(wrong(&args.pcap))?;
        let at = timestamp(&packet, resolution);
        let first = *first.get_or_insert(at);
        let now_us = START_US + at.saturating_sub(first).as_micros() as u64;
        packets += 1;
        machine.until(now_us, first, &mut sink);
        sink.at = at;
        machine.process(now_us, args.port, &packet.data, &mut sink);
    }
    machine.finish(first.unwrap_or_default(), &mut sink);
    if let Some(error) = sink.failed.take() {
        return Err(wrong(&args.out)(error));
    }
    print(&report(packets, &sink, &machine))
}

fn timestamp(packet: &RawPcapPacket<'_>, resolution: TsResolution) -> Duration {
    let fraction = match resolution {
        TsResolution::MicroSecond => Duration::from_micros(packet.ts_frac.into()),
        TsResolution::NanoSecond => Duration::from_nanos(packet.ts_frac.into()),
    };
    Duration::from_secs(packet.ts_sec.into()) + fraction
}

/// What runs it: all parts, or, without a handler, an element alone.
enum Machine {
    Parts(Box<System<Handler, Interpreter>>),
    Alone(Box<Interpreter>),
}

impl Machine {
    fn new(args: &RunArgs, read: &Read, entries: &[(TableId, Entry)]) -> Result<Self, Failure> {
        let failed = |why: String| Failure::Function(why);
        let Some(split) = &read.split else {
            let mut element = Interpreter::new(&read.program).map_err(|error| failed(error.to_string()))?;
            for (table, entry) in entries {
                element.insert(*table, entry).map_err(|error| failed(error.to_string()))?;
            }
            return Ok(Self::Alone(Box::new(element)));
        };
        let mut system = Self::system(args, read, split)?;
        for (table, entry) in entries {
            if read.program.tables[table.0 as usize].mirrored {
                system.add(*table, entry);
            } else {
                system.execution_mut().insert(*table, entry).map_err(|error| failed(error.to_string()))?;
            }
        }
        system.advance(START_US - 1, &mut |_| {});
        Ok(Self::Parts(Box::new(system)))
    }

    fn system(args: &RunArgs, read: &Read, split: &Split) -> Result<System<Handler, Interpreter>, Failure> {
        let element = Interpreter::new(&split.element).map_err(|error| Failure::Function(error.to_string()))?;
        let (settings, cache) = (handler::Config::default(), handler::cache_dir());
        let failed = |error: handler::StartError| Failure::Function(error.to_string());
        let first = Handler::start(&read.program, &|at| read.place(at), &settings, &cache, 0).map_err(failed)?;
        let mut servers = Vec::new();
        for _ in 1..args.servers.max(1) {
            servers.push(first.another(&read.program, &settings, 0).map_err(failed)?);
        }
        servers.insert(0, first);
        let config = Config {
            place: place::Config { strategy: args.placement, ..place::Config::default() },
            ..Config::default()
        };
        let (count, delay_us) = (servers.len(), args.delay_us);
        Ok(System::new(split.clone(), element, servers, count, &config, move |_| delay_us))
    }

    /// Lets time pass, with the time at which each packet leaves.
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

fn report(packets: u64, sink: &Sink, machine: &Machine) -> String {
    let mut text = format!("in       {packets} packets\n");
    for (port, count) in &sink.ports {
        let _ = writeln!(text, "out      {count} packets at port {port}");
    }
    for (reason, count) in &sink.dropped {
        let _ = writeln!(text, "dropped  {count}: {reason}");
    }
    for (name, count) in &sink.digests {
        let _ = writeln!(text, "told     {count} {name}");
    }
    let Machine::Parts(system) = machine else { return text };
    let requests = system.events(Event::Request);
    let _ = writeln!(text, "element  {} packets alone, {requests} by servers", packets.saturating_sub(requests));
    for (at, server) in system.servers().enumerate() {
        let stats = server.stats();
        let _ = writeln!(
            text,
            "server {} {} requests, {} ended by the handler, {} lost in traps",
            at + 1,
            stats.requests,
            stats.ended,
            stats.trapped
        );
    }
    let placed = system.placed();
    let _ = writeln!(
        text,
        "placed   {} entries; {} left unused, {} for larger flows",
        placed.placed, placed.aged, placed.replaced
    );
    text
}
