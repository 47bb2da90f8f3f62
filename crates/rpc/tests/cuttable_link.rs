//! Connection to the controller that can be cut, while everything else works.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(crate) struct CuttableLink {
    /// URL of the controller through this link.
    pub(crate) url: String,
    relay: JoinSet<()>,
}

impl CuttableLink {
    pub(crate) async fn to(controller: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut relay = JoinSet::new();
        relay.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                connections.spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(controller).await {
                        // A broken connection ends for both sides.
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        Self { url, relay }
    }

    /// Closes all connections and refuses new ones.
    pub(crate) fn cut(mut self) {
        self.relay.abort_all();
    }
}
