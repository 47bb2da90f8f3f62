//! Process of a store on host 1 of a testbed: Debian's Redis without persistence, or Debian's etcd with one member.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::net::process_cpu;
use crate::testbed::ElementTestbed;
use crate::testbed::child::KillOnDrop;

/// Limit for hanging of a start.
const STARTING_MAX: Duration = Duration::from_secs(120);
const PORT: u16 = 7379;
/// Directory of files in memory.
const IN_MEMORY: &str = "/dev/shm";

/// What runs, and what a crash of it loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// Redis: a crash loses everything.
    Redis,
    /// etcd: a write is on disk before it is answered, and a crash loses none.
    Etcd,
    /// etcd with its log on a file system in memory: a crash of the machine loses everything.
    EtcdInMemory,
}

/// Running store. Dropping it ends the process and deletes its files.
pub(super) struct StoreProcess {
    process: KillOnDrop,
    directory: PathBuf,
    pub(super) address: SocketAddr,
}

impl StoreKind {
    /// Name in the figure.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis, nothing on disk",
            Self::Etcd => "etcd, each write on disk",
            Self::EtcdInMemory => "etcd, its disk in memory",
        }
    }

    /// Program, and its Debian package.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Redis => ("redis-server", "redis-server"),
            Self::Etcd | Self::EtcdInMemory => ("etcd", "etcd-server"),
        }
    }

    /// Part of the line that the program prints when it serves.
    fn ready_line(self) -> &'static str {
        match self {
            Self::Redis => "Ready to accept connections",
            Self::Etcd | Self::EtcdInMemory => "serving client traffic insecurely",
        }
    }

    /// Reason why the store cannot run, if it is not installed.
    pub(super) fn missing(self) -> Option<String> {
        let (program, package) = self.program();
        let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_err().then(|| format!("{program} is not installed (Debian: {package})"))
    }

    /// Starts the store on host 1.
    ///
    /// # Errors
    /// Returns an error if the store does not start.
    pub(super) fn start(self, stage: &ElementTestbed) -> Result<StoreProcess> {
        let host = stage.testbed.host(1)?;
        let address = SocketAddr::new(host.address().into(), PORT);
        let (program, _) = self.program();
        let parent = if self == Self::EtcdInMemory { PathBuf::from(IN_MEMORY) } else { std::env::temp_dir() };
        let directory = parent.join(format!("pathcall-bench-{program}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let mut command = host.command(program);
        self.configure(&mut command, address, &directory);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let printed: [Option<Box<dyn Read + Send>>; 2] =
            [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|err| Box::new(err) as _)];
        let store = StoreProcess { process: KillOnDrop(child), directory, address };
        let (ready, readiness) = mpsc::channel();
        for printed in printed.into_iter().flatten() {
            let (ready, line) = (ready.clone(), self.ready_line());
            // Reads to the end: a program whose output nobody reads would stop.
            thread::spawn(move || {
                for text in BufReader::new(printed).lines().map_while(Result::ok) {
                    if text.contains(line) {
                        // The receiver takes the first line only.
                        let _ = ready.send(());
                    }
                }
            });
        }
        drop(ready);
        readiness.recv_timeout(STARTING_MAX).with_context(|| format!("{program} did not start on {address}"))?;
        Ok(store)
    }

    fn configure(self, command: &mut Command, address: SocketAddr, directory: &Path) {
        match self {
            Self::Redis => {
                let (ip, port) = (address.ip().to_string(), address.port().to_string());
                command.args(["--bind", &ip, "--port", &port, "--protected-mode", "no"]);
                command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(directory);
            }
            Self::Etcd | Self::EtcdInMemory => {
                let (client, peer) = (format!("http://{address}"), format!("http://{}:{}", address.ip(), PORT + 1));
                command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
                command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
                command.args(["--initial-cluster", &format!("default={peer}"), "--logger", "zap", "--data-dir"]);
                command.arg(directory);
            }
        }
    }
}

impl StoreProcess {
    /// Processor time so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        process_cpu(self.process.0.id())
    }
}

impl Drop for StoreProcess {
    fn drop(&mut self) {
        // Remaining files are small, and the process is killed next.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
