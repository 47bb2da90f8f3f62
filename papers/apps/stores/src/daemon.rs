//! Processes of Debian's Redis and memcached, each on its own socket in its own directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use kv::Store;
use kv::store::BackendError;

use crate::{memcached, redis};

/// Timeout of a daemon's start.
const STARTING_MAX: Duration = Duration::from_secs(120);
/// Pause between two connection attempts: neither daemon reports that it is ready.
const CONNECT_INTERVAL: Duration = Duration::from_millis(5);

/// Store program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Debian's redis-server.
    Redis,
    /// Debian's memcached.
    Memcached,
}

/// Process of a store. Dropping the value ends the process and deletes the stored data.
#[derive(Debug)]
pub struct Daemon {
    kind: StoreKind,
    process: Child,
    directory: PathBuf,
}

/// Error at the start of a store.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The program cannot be run.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// Name of the program.
        program: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The directory for the socket cannot be created.
    #[error("cannot create directory {}: {source}", path.display())]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The process has ended, or does not answer.
    #[error("{program} does not answer at {}{}", socket.display(), status.map_or(String::new(), |status| format!(": {status}")))]
    NotAnswering {
        /// Name of the program.
        program: &'static str,
        /// Path of the socket.
        socket: PathBuf,
        /// Exit status, if the process has ended.
        status: Option<std::process::ExitStatus>,
    },
}

impl Daemon {
    /// Starts a store with `memory_mb` megabytes; `None` if the program is not installed.
    ///
    /// # Errors
    /// Returns an error if the store does not start.
    pub async fn start_if_installed(kind: StoreKind, memory_mb: u32) -> Result<Option<Self>, DaemonError> {
        match Self::start(kind, memory_mb).await {
            Ok(daemon) => Ok(Some(daemon)),
            Err(DaemonError::Spawn { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts a store with `memory_mb` megabytes.
    ///
    /// # Errors
    /// Returns an error if the store does not start.
    pub async fn start(kind: StoreKind, memory_mb: u32) -> Result<Self, DaemonError> {
        static NTH: AtomicU32 = AtomicU32::new(0);
        let nth = NTH.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("pathcall-kv-{}-{nth}", std::process::id()));
        let made = std::fs::create_dir(&directory);
        made.map_err(|source| DaemonError::Directory { path: directory.clone(), source })?;
        let spawned = command(kind, &directory, memory_mb).spawn();
        let process = spawned.map_err(|source| {
            // The directory is empty.
            let _ = std::fs::remove_dir(&directory);
            DaemonError::Spawn { program: program(kind), source }
        })?;
        let mut daemon = Self { kind, process, directory };
        daemon.wait_until_ready().await?;
        Ok(daemon)
    }

    /// Connects to the store.
    ///
    /// # Errors
    /// Returns an error if the store does not answer.
    pub async fn store(&self) -> Result<Store, BackendError> {
        match self.kind {
            StoreKind::Redis => Ok(redis::store(&self.socket()).await?),
            StoreKind::Memcached => Ok(memcached::store(&self.socket()).await?),
        }
    }

    /// Path of the socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(&self.directory)
    }

    /// Ends the process and waits for its end.
    pub async fn stop(mut self) {
        // The process may have ended already.
        let _ = self.process.kill().await;
    }

    /// Process id, while the process runs.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.process.id()
    }

    async fn wait_until_ready(&mut self) -> Result<(), DaemonError> {
        let (began, socket) = (Instant::now(), self.socket());
        loop {
            if UnixStream::connect(&socket).await.is_ok() {
                return Ok(());
            }
            let status = self.process.try_wait().ok().flatten();
            if status.is_some() || began.elapsed() > STARTING_MAX {
                return Err(DaemonError::NotAnswering { program: program(self.kind), socket, status });
            }
            tokio::time::sleep(CONNECT_INTERVAL).await;
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The process may have ended already; the runtime reaps it.
        let _ = self.process.start_kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

/// Name of the program.
#[must_use]
pub fn program(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::Redis => "redis-server",
        StoreKind::Memcached => "memcached",
    }
}

fn command(kind: StoreKind, directory: &Path, memory_mb: u32) -> Command {
    let mut command = Command::new(program(kind));
    let socket = socket(directory);
    match kind {
        StoreKind::Redis => {
            command
                .args(["--port", "0", "--save", "", "--appendonly", "no", "--maxmemory"])
                .arg(format!("{memory_mb}mb"));
            command.arg("--dir").arg(directory).arg("--unixsocket").arg(socket)
        }
        // memcached uses the option `-u` only if root starts it, and requires it then.
        StoreKind::Memcached => {
            command.args(["-t", "1", "-u", "root", "-m"]).arg(memory_mb.to_string()).arg("-s").arg(socket)
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::store::check;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn daemons_store_values_and_end_on_drop() {
        for kind in [StoreKind::Redis, StoreKind::Memcached] {
            let Some(daemon) = Daemon::start_if_installed(kind, 16).await.expect("starts") else {
                // If all stores are required, a missing one is a failure.
                assert!(std::env::var_os("PATHCALL_STORE_TESTS").is_none(), "{kind:?} is not installed");
                println!("skipped: {kind:?} is not installed");
                continue;
            };
            check(&daemon.store().await.expect("connects")).await;
            let socket = daemon.socket();
            drop(daemon);
            assert!(!socket.exists(), "{}", socket.display());
            let gone = match kind {
                StoreKind::Redis => redis::store(&socket).await.is_err(),
                StoreKind::Memcached => memcached::store(&socket).await.is_err(),
            };
            assert!(gone, "{kind:?}");
        }
    }
}
