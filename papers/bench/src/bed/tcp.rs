//! Two applications that send bytes by TCP, as the kernel has it: the peer of [`pair`](super::pair), from the same
//! hosts to the same third.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::pair::{Course, HOSTS, Sample};
use super::{Begun, Party, Stage, Waiting};

/// Bytes that are handed to the kernel at once.
const CHUNK: usize = 1 << 16;
/// Bytes of full frames on a link, for each byte of theirs that is handed over: Ethernet, IPv4, TCP with times.
pub(crate) const ON_LINK: f64 = 1514.0 / 1448.0;

pub(crate) struct Streams {
    applications: [Application; 2],
    /// Under them.
    _stage: Stage,
}

/// One stream from each calling host.
struct Application {
    /// Where it listens.
    at: SocketAddr,
    /// What has come, of all its streams.
    received: Arc<AtomicU64>,
    callers: Vec<Party>,
    _server: Party,
}

impl Streams {
    pub(crate) fn start(stage: Stage) -> Result<Self> {
        for k in 1..=HOSTS {
            // Heeds the marks of links, as the other side does; by default the kernel does not ask for them.
            let set = stage.bed.host(k)?.command("sysctl").args(["-qw", "net.ipv4.tcp_ecn=1"]).status()?;
            ensure!(set.success(), "host {k} refuses ECN");
        }
        let start = || {
            let (server, at) = (stage.host(1, Waiting::Blocking, None)?, stage.free_at(1)?);
            let received = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&received);
            let at = server.run(move || async move {
                let listener = TcpListener::bind(at).await?;
                let at = listener.local_addr()?;
                tokio::spawn(serve(listener, counted));
                Ok(at)
            })?;
            let callers = (2..=HOSTS).map(|k| stage.host(k, Waiting::Blocking, None)).collect::<Result<_>>()?;
            anyhow::Ok(Application { at, received, callers, _server: server })
        };
        Ok(Self { applications: [start()?, start()?], _stage: stage })
    }

    /// Both send what they can, and are looked at: the bytes that have come.
    pub(crate) fn run(&self, course: Course) -> Result<Vec<Sample<f64>>> {
        let ended = Arc::new(AtomicBool::new(false));
        let begin = |which: usize| -> Vec<Begun<()>> {
            let Application { at, callers, .. } = &self.applications[which];
            let send = |party: &Party| {
                let (at, ended) = (*at, Arc::clone(&ended));
                party.begin(move || send(at, ended))
            };
            callers.iter().map(send).collect()
        };
        let received = || Ok([0, 1].map(|which| self.applications[which].received.load(Ordering::Relaxed) as f64));
        let (samples, begun) = course.run(begin, received)?;
        ended.store(true, Ordering::Relaxed);
        begun.into_iter().flatten().try_for_each(Begun::wait)?;
        Ok(samples)
    }
}

async fn serve(listener: TcpListener, received: Arc<AtomicU64>) {
    // The listener's end is the host's.
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
