//! `place-transfer`: one-sided reads of another process's memory (`read` of LEO's Table II) over reliable flows on UDP,
//! and of a shared window, compared with UCX's gets over TCP and over shared memory.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use pathcall_place::context::remote::Remote;
use pathcall_place::context::window::{HostWindow, SharedWindow};
use pathcall_place::context::{Builder, Event, PlaceContext};
use pathcall_place::model::Preset;
use pathcall_place::{Application, DeviceRole, Hardware};

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::reduce;
use crate::testbed::child::KillOnDrop;
use crate::testbed::ucx::{self, Transport};

pub(crate) const FIGURE: Figure = Figure {
    name: "place-transfer",
    about: "one-sided reads of another process's memory, beside UCX",
    kind: Kind::Measured,
    run,
};

const SIZES: [(usize, &str); 4] = [(64, "64 B"), (4 << 10, "4 KB"), (64 << 10, "64 KB"), (1 << 20, "1 MB")];
const READS: [usize; 4] = [5_000, 3_000, 1_000, 200];
const READS_QUICK: [usize; 4] = [20; 4];
/// Reads of a shared window that are measured together: the clock takes as long as a short read.
const READS_AT_ONCE: usize = 64;
const WINDOW: &str = "memory";
/// Timeout of a read.
const LIMIT: Duration = Duration::from_secs(5);
/// Application file for the contexts, which send no requests.
const APPLICATION: &str = "application: memory
tasks: { nothing: { cpu: 1 us } }
requests:
  NOTHING:
    dependency: NONE
    dataflows: [{ trips: [{ path: cpu-cpu, bytes: 1 B, reply: 1 B, responder: nothing }] }]
";

fn run(bench: &mut Bench) -> Result<()> {
    if let Err(why) = ucx::find() {
        bench.print_note(&format!("not made: {why:#}"));
        return Ok(());
    }
    let reads = bench.size(READS, READS_QUICK);
    let peers = [("UCX, TCP", Transport::Tcp), ("UCX, shared memory", Transport::Shared)];
    for (name, transport) in peers {
        let metrics = SIZES.map(|(_, size)| {
            let metric = Metric::new(format!("a read of {size}"), name, "us", Better::Lower);
            // Limit: a copy by the reading processor.
            if transport == Transport::Shared { metric.peer_is_limit() } else { metric }
        });
        bench.compare(
            metrics,
            || ours(reads),
            || for_each_size(reads, |bytes, reads| ucx::get_us(transport, bytes, reads)),
        )?;
    }
    bench.compare(
        SIZES.map(|(_, size)| {
            let case = format!("a read of {size}, shared window");
            Metric::new(case, "UCX, shared memory", "us", Better::Lower).peer_is_limit()
        }),
        || shared(reads),
        || for_each_size(reads, |bytes, reads| ucx::get_us(Transport::Shared, bytes, reads)),
    )
}

fn for_each_size(reads: [usize; 4], mut one: impl FnMut(usize, usize) -> Result<f64>) -> Result<[f64; 4]> {
    let mut medians = [0.0; 4];
    for ((median, (bytes, _)), reads) in medians.iter_mut().zip(SIZES).zip(reads) {
        *median = one(bytes, reads)?;
    }
    Ok(medians)
}

/// Medians of sequential reads.
fn ours(reads: [usize; 4]) -> Result<[f64; 4]> {
    let mut owner = MemoryOwner::start()?;
    let comm = Remote::bind((Ipv4Addr::LOCALHOST, 0).into(), Some(owner.at))?;
    let mut context = context(comm)?.init()?;
    let medians = for_each_size(reads, |bytes, reads| {
        // The first reads are not measured.
        let all = (0..reads + reads / 10).map(|tag| read(&mut context, bytes, tag as u64));
        let mut all = all.skip(reads / 10).collect::<Result<Vec<f64>>>()?;
        Ok(reduce::median(&mut all))
    })?;
    owner.end()?;
    Ok(medians)
}

fn read(context: &mut PlaceContext, bytes: usize, tag: u64) -> Result<f64> {
    let began = Instant::now();
    context.read(WINDOW, 0, bytes as u64, tag)?;
    let Some(Event::Accessed { tag: of, result }) = context.wait(LIMIT) else { bail!("no answer within {LIMIT:?}") };
    let took = began.elapsed();
    let got = result?;
    ensure!(of == tag && got.len() == bytes && got.iter().all(|byte| *byte == 7), "another answer");
    Ok(took.as_secs_f64() * 1e6)
}

/// Medians of direct reads of the owner's shared window.
fn shared(reads: [usize; 4]) -> Result<[f64; 4]> {
    let mut owner = MemoryOwner::start()?;
    let window = SharedWindow::open(&shared_name(owner.at))?;
    let medians = for_each_size(reads, |bytes, reads| {
        let mut buffer = vec![0; bytes];
        // The first reads are not measured.
        let all = (0..reads + reads / 10).map(|_| read_shared(&window, &mut buffer));
        let mut all = all.skip(reads / 10).collect::<Result<Vec<f64>>>()?;
        Ok(reduce::median(&mut all))
    })?;
    owner.end()?;
    Ok(medians)
}

fn read_shared(window: &SharedWindow, buffer: &mut [u8]) -> Result<f64> {
    buffer.fill(0);
    let began = Instant::now();
    for _ in 0..READS_AT_ONCE {
        window.read(0, std::hint::black_box(&mut *buffer))?;
    }
    let took = began.elapsed();
    ensure!(buffer.iter().all(|byte| *byte == 7), "other bytes");
    Ok(took.as_secs_f64() * 1e6 / READS_AT_ONCE as f64)
}

/// Name of the shared window of the owner at this address.
fn shared_name(owner: SocketAddr) -> String {
    format!("place-transfer-{owner}")
}

fn context(comm: Remote) -> Result<Builder> {
    let application = Application::parse("memory.yaml", APPLICATION)?;
    let host = || Hardware::preset(Preset::Direct);
    Ok(Builder::new(application, host(), host()).reg_comm_func(comm, "udp", DeviceRole::Cpu))
}

/// Other process: offers memory for remote reads until its standard input closes.
pub(crate) fn serve_memory() -> Result<()> {
    let comm = Remote::bind((Ipv4Addr::LOCALHOST, 0).into(), None)?;
    let bytes = vec![7; SIZES[SIZES.len() - 1].0];
    let shared = SharedWindow::create(&shared_name(comm.address()), bytes.len())?;
    shared.write(0, &bytes)?;
    println!("{}", comm.address());
    std::io::stdout().flush()?;
    let memory = HostWindow::new(bytes);
    let _server = context(comm)?.reg_mem_func(Arc::new(memory), WINDOW, DeviceRole::Cpu).init()?.spawn()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Handle to the other process.
struct MemoryOwner {
    process: KillOnDrop,
    at: SocketAddr,
}

impl MemoryOwner {
    fn start() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = KillOnDrop(command.arg("--own-memory").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let mut at = String::new();
        BufReader::new(process.0.stdout.take().context("no pipe")?).read_line(&mut at)?;
        let at = at.trim().parse().with_context(|| format!("an address, not {at:?}"))?;
        Ok(Self { process, at })
    }

    fn end(&mut self) -> Result<()> {
        drop(self.process.0.stdin.take());
        ensure!(self.process.0.wait()?.success(), "the other process has failed");
        Ok(())
    }
}
