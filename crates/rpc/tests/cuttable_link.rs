//! TCP connections to a server that can be cut, while everything else works.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) struct CuttableLink {
    /// URL of the server through this link.
    pub(crate) url: String,
    relay: JoinSet<()>,
    /// Tells all connections to end.
    break_connections: watch::Sender<()>,
}

impl CuttableLink {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut relay = JoinSet::new();
        let (break_connections, broken) = watch::channel(());
        relay.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut broken = broken.clone();
                broken.mark_unchanged();
                connections.spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(server).await {
                        // A broken connection ends for both sides.
                        tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                            _ = broken.changed() => {}
                        }
                    }
                });
            }
        });
        Self { url, relay, break_connections }
    }

    /// Closes all connections; new ones work.
    pub(crate) fn break_connections(&self) {
        self.break_connections.send_replace(());
    }

    /// Closes all connections and refuses new ones.
    pub(crate) fn cut(mut self) {
        self.relay.abort_all();
    }
}
