//! Hosts of an application's parties: all on this host, or each on a host of a testbed, as set by `pathcall demo
//! --testbed`.
//!
//! A party on another host is a thread with its own runtime, moved into that host's network namespace before it creates
//! any socket.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result};
use clap::Args;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Hosts of the parties.
#[derive(Debug, Clone, Args)]
pub struct PartyHosts {
    /// Address that the server listens on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub serve_at: IpAddr,
    /// Network namespaces of the server and of the clients in rotation, comma-separated (needs root)
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    pub namespaces: Vec<PathBuf>,
}

impl PartyHosts {
    /// Runs `serve` on the server's host, and keeps the server until the process ends.
    ///
    /// # Errors
    /// Returns an error of `serve`, or if the namespace does not exist.
    pub async fn serve<T: Send + 'static>(&self, serve: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let Some(namespace) = self.namespaces.first().cloned() else { return serve.await };
        let (tell, told) = oneshot::channel();
        thread::spawn(move || match enter_namespace(&namespace) {
            Ok(runtime) => runtime.block_on(async {
                // The receiver is gone only if the process is about to end.
                let _ = tell.send(serve.await);
                std::future::pending::<()>().await;
            }),
            Err(error) => drop(tell.send(Err(error))),
        });
        told.await.context("the server's thread ended")?
    }

    /// Runs the part of client `index`, counted from 0, on its host.
    ///
    /// # Errors
    /// Returns an error of `part`, or if the namespace does not exist.
    pub async fn client<T: Send + 'static>(
        self,
        index: usize,
        part: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let hosts = self.namespaces.get(1..).unwrap_or_default();
        if hosts.is_empty() {
            return part.await;
        }
        let namespace = hosts[index % hosts.len()].clone();
        let (tell, told) = oneshot::channel();
        thread::spawn(move || {
            let done = enter_namespace(&namespace).and_then(|runtime| runtime.block_on(part));
            // The receiver is gone only if another part has failed.
            let _ = tell.send(done);
        });
        told.await.context("a client's thread ended")?
    }
}

/// Moves this thread; the runtime's threads start in the same namespace.
#[cfg(target_os = "linux")]
fn enter_namespace(namespace: &Path) -> Result<Runtime> {
    use std::os::fd::AsFd;

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    let place = || format!("network namespace {}", namespace.display());
    let file = std::fs::File::open(namespace).with_context(place)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).with_context(place)?;
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

#[cfg(not(target_os = "linux"))]
fn enter_namespace(namespace: &Path) -> Result<Runtime> {
    anyhow::bail!("{}: only Linux has network namespaces", namespace.display())
}
