//! Two applications that send bytes over the kernel's TCP: the peer of [`pair`](super::pair), from the same hosts to
//! the same third.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::pair::{HOSTS, Sample, Schedule};
use super::{ElementTestbed, Party, RunningJob, WaitMode};

/// Bytes per write call.
const CHUNK: usize = 1 << 16;
/// Bytes of full frames on a link per byte of payload: Ethernet, IPv4, TCP with time stamps.
pub(crate) const ON_LINK: f64 = 1514.0 / 1448.0;

pub(crate) struct Streams {
    applications: [TcpApp; 2],
    /// Stage of the applications; dropped last.
    _stage: ElementTestbed,
}

/// Application with one stream from each calling host.
struct TcpApp {
    /// Listening address.
    at: SocketAddr,
    /// Bytes received over all streams.
    received: Arc<AtomicU64>,
    callers: Vec<Party>,
    _server: Party,
}

impl Streams {
    pub(crate) fn start(stage: ElementTestbed) -> Result<Self> {
        for k in 1..=HOSTS {
            // TCP reacts to the links' congestion marks, as Pathcall does; by default the kernel does not request them.
            let set = stage.testbed.host(k)?.command("sysctl").args(["-qw", "net.ipv4.tcp_ecn=1"]).status()?;
            ensure!(set.success(), "host {k} refuses ECN");
        }
        let start = || {
            let (server, at) = (stage.host(1, WaitMode::Blocking, None)?, stage.free_at(1)?);
            let received = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&received);
            let at = server.run(move || async move {
                let listener = TcpListener::bind(at).await?;
                let at = listener.local_addr()?;
                tokio::spawn(serve(listener, counted));
                Ok(at)
            })?;
            let callers = (2..=HOSTS).map(|k| stage.host(k, WaitMode::Blocking, None)).collect::<Result<_>>()?;
            anyhow::Ok(TcpApp { at, received, callers, _server: server })
        };
        Ok(Self { applications: [start()?, start()?], _stage: stage })
    }

    /// Runs both applications at full load; samples the bytes received.
    pub(crate) fn run(&self, schedule: Schedule) -> Result<Vec<Sample<f64>>> {
        let ended = Arc::new(AtomicBool::new(false));
        let begin = |which: usize| -> Vec<RunningJob<()>> {
            let TcpApp { at, callers, .. } = &self.applications[which];
            let send = |party: &Party| {
                let (at, ended) = (*at, Arc::clone(&ended));
                party.begin(move || send(at, ended))
            };
            callers.iter().map(send).collect()
        };
        let received = || Ok([0, 1].map(|which| self.applications[which].received.load(Ordering::Relaxed) as f64));
        let (samples, begun) = schedule.run(begin, received)?;
        ended.store(true, Ordering::Relaxed);
        begun.into_iter().flatten().try_for_each(RunningJob::wait)?;
        Ok(samples)
    }
}

async fn serve(listener: TcpListener, received: Arc<AtomicU64>) {
    // The listener lives as long as its host.
    while let Ok((mut stream, _)) = listener.accept().await {
        let received = Arc::clone(&received);
        tokio::spawn(async move {
            let mut bytes = vec![0; CHUNK];
            while let Ok(got @ 1..) = stream.read(&mut bytes).await {
                received.fetch_add(got as u64, Ordering::Relaxed);
            }
        });
    }
}

async fn send(to: SocketAddr, ended: Arc<AtomicBool>) -> Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    let bytes = vec![7; CHUNK];
    while !ended.load(Ordering::Relaxed) {
        stream.write_all(&bytes).await?;
    }
    Ok(())
}
