//! Cluster of Debian's etcd with three members, each on its host.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::{BYTES, Disk, LogDirectory, REPLICAS, ReplicatedLog};
use crate::net::{connect_plain, process_cpu};
use crate::stubs::etcd::PutRequest;
use crate::stubs::etcd::kv_client::KvClient;
use crate::testbed::child::KillOnDrop;
use crate::testbed::{ElementTestbed, Party, WaitMode};

/// Limit for hanging of a start.
const STARTING_MAX: Duration = Duration::from_secs(120);
const PORT: u16 = 7379;
const READY: &str = "serving client traffic insecurely";

/// Running members, with the party of the clients.
pub(super) struct EtcdCluster {
    members: Vec<KillOnDrop>,
    kv: KvClient<tonic::transport::Channel>,
    next: AtomicU64,
    client: Party,
    _directory: LogDirectory,
    _stage: ElementTestbed,
}

/// Reason why etcd cannot run, if it is not installed.
pub(super) fn missing() -> Option<String> {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_err().then(|| "etcd is not installed (Debian: etcd-server)".to_owned())
}

impl EtcdCluster {
    /// Starts the members, and connects clients to the leader.
    pub(super) fn start(stage: ElementTestbed, disk: Disk) -> Result<Self> {
        let directory = disk.directory("etcd-cluster")?;
        let hosts = (2..2 + REPLICAS).map(|k| Ok((k, stage.testbed.host(k)?))).collect::<Result<Vec<_>>>()?;
        let peer = |address| format!("http://{}", SocketAddr::new(address, PORT + 1));
        let cluster: Vec<_> = hosts.iter().map(|(k, host)| format!("m{k}={}", peer(host.address().into()))).collect();
        let (mut members, mut starting) = (Vec::new(), Vec::new());
        for (k, host) in &hosts {
            let address = host.address().into();
            let (client, peer) = (format!("http://{}", SocketAddr::new(address, PORT)), peer(address));
            let mut command = host.command("etcd");
            command.args(["--name", &format!("m{k}"), "--listen-client-urls", &client]);
            command.args(["--advertise-client-urls", &client, "--listen-peer-urls", &peer]);
            command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &cluster.join(",")]);
            command.args(["--logger", "zap", "--data-dir"]).arg(directory.0.join(format!("m{k}")));
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            let printed: [Option<Box<dyn Read + Send>>; 2] =
                [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|err| Box::new(err) as _)];
            members.push(KillOnDrop(child));
            starting.push(readiness(printed));
        }
        for ready in starting {
            ready.recv_timeout(STARTING_MAX).context("a member of etcd did not start")?;
        }
        let client = stage.host(1, WaitMode::Blocking, None)?;
        let addresses: Vec<SocketAddr> =
            hosts.iter().map(|(_, host)| SocketAddr::new(host.address().into(), PORT)).collect();
        let kv = client.run(move || fastest(addresses))?;
        let (next, _stage) = (AtomicU64::new(1), stage);
        Ok(Self { members, kv, next, client, _directory: directory, _stage })
    }
}

/// Message of a member's thread that it serves.
fn readiness(printed: [Option<Box<dyn Read + Send>>; 2]) -> mpsc::Receiver<()> {
    let (ready, readiness) = mpsc::channel();
    for printed in printed.into_iter().flatten() {
        let ready = ready.clone();
        // Reads to the end: a program whose output nobody reads would stop.
        thread::spawn(move || {
            for text in BufReader::new(printed).lines().map_while(Result::ok) {
                if text.contains(READY) {
                    // The receiver takes the first line only.
                    let _ = ready.send(());
                }
            }
        });
    }
    readiness
}

/// Client of the member with the fastest writes: the leader, which needs no other to reach it.
async fn fastest(addresses: Vec<SocketAddr>) -> Result<KvClient<tonic::transport::Channel>> {
    let mut best = None;
    for address in addresses {
        let mut kv = KvClient::new(connect_plain(&format!("http://{address}")).await?);
        let mut took = Vec::new();
        for number in 0..20 {
            let began = Instant::now();
            kv.put(put(0, number)).await?;
            took.push(began.elapsed());
        }
        took.sort_unstable();
        let median = took[took.len() / 2];
        if best.as_ref().is_none_or(|(least, _)| median < *least) {
            best = Some((median, kv));
        }
    }
    best.map(|(_, kv)| kv).context("no members")
}

fn put(client: u64, number: usize) -> PutRequest {
    let mut value = (number as u64).to_le_bytes().to_vec();
    value.resize(BYTES, 0);
    PutRequest { key: client.to_string().into_bytes(), value, lease: 0 }
}

impl ReplicatedLog for EtcdCluster {
    fn write(&self, clients: u64, writes: usize) -> Result<Vec<Duration>> {
        let (kv, first) = (self.kv.clone(), self.next.fetch_add(clients, Ordering::Relaxed));
        self.client.run(move || async move {
            let mut running = JoinSet::new();
            for client in first..first + clients {
                let mut kv = kv.clone();
                running.spawn(async move {
                    let mut took = Vec::with_capacity(writes);
                    for number in 0..writes {
                        let began = Instant::now();
                        kv.put(put(client, number)).await?;
                        took.push(began.elapsed());
                    }
                    anyhow::Ok(took)
                });
            }
            let mut all = Vec::new();
            while let Some(took) = running.join_next().await {
                all.extend(took??);
            }
            Ok(all)
        })
    }

    fn cpu(&self) -> Result<Duration> {
        self.members.iter().map(|member| process_cpu(member.0.id())).sum()
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}
