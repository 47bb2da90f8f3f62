//! `place-transfer`: one-sided reads of another process's memory (`read` of LEO's Table II), which go by reliable flows
//! over UDP, beside UCX's gets by TCP, and by memory that both processes map.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use pathcall_place::context::remote::Remote;
use pathcall_place::context::window::HostWindow;
use pathcall_place::context::{Builder, Context, Event};
use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, Role};

use crate::bed::killed::Killed;
use crate::bed::ucx::{self, Transport};
use crate::harness::{Bench, Better, Figure, Metric};
use crate::reduce;

pub(crate) const FIGURE: Figure =
    Figure { name: "place-transfer", about: "one-sided reads of another process's memory, beside UCX", run };

const SIZES: [(usize, &str); 4] = [(64, "64 B"), (4 << 10, "4 KB"), (64 << 10, "64 KB"), (1 << 20, "1 MB")];
const READS: [usize; 4] = [5_000, 3_000, 1_000, 200];
const READS_QUICK: [usize; 4] = [20; 4];
const WINDOW: &str = "memory";
/// Longer than a read takes.
const LIMIT: Duration = Duration::from_secs(5);
/// Contexts are of an application; this one is never asked for anything.
const APPLICATION: &str = "application: memory
tasks: { nothing: { cpu: 1 us } }
requests:
  NOTHING:
    dependency: NONE
    dataflows: [{ trips: [{ path: cpu-cpu, bytes: 1 B, reply: 1 B, responder: nothing }] }]
";

fn run(bench: &mut Bench) -> Result<()> {
    if let Err(why) = ucx::find() {
        bench.says(&format!("not made: {why:#}"));
        return Ok(());
    }
    let reads = bench.size(READS, READS_QUICK);
    let peers = [("UCX, TCP", Transport::Tcp), ("UCX, shared memory", Transport::Shared)];
    for (name, transport) in peers {
        let metrics = SIZES.map(|(_, size)| {
            let metric = Metric::new(format!("a read of {size}"), name, "us", Better::Lower);
            // A copy by the processor that wants the bytes.
            if transport == Transport::Shared { metric.peer_is_limit() } else { metric }
        });
        bench.compare(metrics, || ours(reads), || each(reads, |bytes, reads| ucx::get_us(transport, bytes, reads)))?;
    }
    Ok(())
}

fn each(reads: [usize; 4], mut one: impl FnMut(usize, usize) -> Result<f64>) -> Result<[f64; 4]> {
    let mut medians = [0.0; 4];
    for ((median, (bytes, _)), reads) in medians.iter_mut().zip(SIZES).zip(reads) {
        *median = one(bytes, reads)?;
    }
    Ok(medians)
}

/// Medians, of reads one after the other.
fn ours(reads: [usize; 4]) -> Result<[f64; 4]> {
    let mut owner = Owner::start()?;
    let comm = Remote::bind((Ipv4Addr::LOCALHOST, 0).into(), Some(owner.at))?;
    let mut context = context(comm)?.init()?;
    let medians = each(reads, |bytes, reads| {
        // Some before it counts.
        let all = (0..reads + reads / 10).map(|tag| read(&mut context, bytes, tag as u64));
        let mut all = all.skip(reads / 10).collect::<Result<Vec<f64>>>()?;
        Ok(reduce::median(&mut all))
    })?;
    owner.end()?;
    Ok(medians)
}

fn read(context: &mut Context, bytes: usize, tag: u64) -> Result<f64> {
    let began = Instant::now();
    context.read(WINDOW, 0, bytes as u64, tag)?;
    let Some(Event::Accessed { tag: of, result }) = context.wait(LIMIT) else { bail!("no answer within {LIMIT:?}") };
    let took = began.elapsed();
    let got = result?;
    ensure!(of == tag && got.len() == bytes && got.iter().all(|byte| *byte == 7), "another answer");
    Ok(took.as_secs_f64() * 1e6)
}

fn context(comm: Remote) -> Result<Builder> {
    let application = Application::parse("memory.yaml", APPLICATION)?;
    let host = || Hardware::preset(Preset::Direct);
    Ok(Builder::new(application, host(), host()).reg_comm_func(comm, "udp", Role::Cpu))
}

/// Has memory that others read, until nobody listens to it any more: the other process.
pub(crate) fn own() -> Result<()> {
    let comm = Remote::bind((Ipv4Addr::LOCALHOST, 0).into(), None)?;
    println!("{}", comm.address());
    std::io::stdout().flush()?;
    let memory = HostWindow::new(vec![7; SIZES[SIZES.len() - 1].0]);
    let _server = context(comm)?.reg_mem_func(Arc::new(memory), WINDOW, Role::Cpu).init()?.spawn()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// That process.
struct Owner {
    process: Killed,
    at: SocketAddr,
}

impl Owner {
    fn start() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = Killed(command.arg("--own-memory").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
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
