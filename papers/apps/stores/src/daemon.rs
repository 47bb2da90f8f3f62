//! Debian's Redis and memcached, each on a socket of its own in a directory of its own, as long as it is wanted.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use kv::Store;
use kv::store::Failed;

use crate::{memcached, redis};

/// A daemon that does not answer in this time does not start at all.
const STARTING_MAX: Duration = Duration::from_secs(120);
/// Pause between two looks whether it answers: neither says so itself.
const LOOK: Duration = Duration::from_millis(5);

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Debian's redis-server.
    Redis,
    /// Debian's memcached.
    Memcached,
}

/// A store's process. Dropping it ends the process, and with it what is stored.
#[derive(Debug)]
pub struct Daemon {
    kind: StoreKind,
    process: Child,
    directory: PathBuf,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The program can't be run.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// Its name.
        program: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is no place for its socket.
    #[error("no directory {}: {source}", path.display())]
    Directory {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It has ended, or says nothing.
    #[error("{program} does not answer at {}{}", socket.display(), status.map_or(String::new(), |status| format!(": {status}")))]
    Silent {
        /// Its name.
        program: &'static str,
        /// Where it should.
        socket: PathBuf,
        /// How it has ended, if it has.
        status: Option<std::process::ExitStatus>,
    },
}

impl Daemon {
    /// Starts one that may take `memory_mb` megabytes; nothing, where its program is not installed.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_if_there(kind: StoreKind, memory_mb: u32) -> Result<Option<Self>, DaemonError> {
        match Self::start(kind, memory_mb).await {
            Ok(daemon) => Ok(Some(daemon)),
            Err(DaemonError::Spawn { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts one that may take `memory_mb` megabytes.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(kind: StoreKind, memory_mb: u32) -> Result<Self, DaemonError> {
        static NTH: AtomicU32 = AtomicU32::new(0);
        let nth = NTH.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("pathcall-kv-{}-{nth}", std::process::id()));
        let made = std::fs::create_dir(&directory);
        made.map_err(|source| DaemonError::Directory { path: directory.clone(), source })?;
        let spawned = command(kind, &directory, memory_mb).spawn();
        let process = spawned.map_err(|source| {
            // Nothing is in it.
            let _ = std::fs::remove_dir(&directory);
            DaemonError::Spawn { program: program(kind), source }
        })?;
        let mut daemon = Self { kind, process, directory };
        daemon.answers().await?;
        Ok(daemon)
    }

    /// A connection to what it stores.
    ///
    /// # Errors
    /// When it no longer answers.
    pub async fn store(&self) -> Result<Store, Failed> {
        match self.kind {
            StoreKind::Redis => Ok(redis::store(&self.socket()).await?),
            StoreKind::Memcached => Ok(memcached::store(&self.socket()).await?),
        }
    }

    /// Where it answers.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(&self.directory)
    }

    /// Ends it, and waits until it has ended.
    pub async fn stop(mut self) {
        // It may have ended by itself.
        let _ = self.process.kill().await;
    }

    /// Its number among the system's processes, as long as it runs.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.process.id()
    }

    async fn answers(&mut self) -> Result<(), DaemonError> {
        let (began, socket) = (Instant::now(), self.socket());
        loop {
            if UnixStream::connect(&socket).await.is_ok() {
                return Ok(());
            }
            let status = self.process.try_wait().ok().flatten();
            if status.is_some() || began.elapsed() > STARTING_MAX {
                return Err(DaemonError::Silent { program: program(self.kind), socket, status });
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself; the runtime waits for it.
        let _ = self.process.start_kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

/// The name of its program.
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
        // The user is heeded only where root starts it, and then has to be named.
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
    async fn daemons_keep_what_is_put_and_end_when_dropped() {
        for kind in [StoreKind::Redis, StoreKind::Memcached] {
            let Some(daemon) = Daemon::start_if_there(kind, 16).await.expect("starts") else {
                // Where all stores have to be there, one that is not has failed.
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
