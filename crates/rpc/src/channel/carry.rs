//! A caller's frames in a stream of the gRPC connection, where UDP does not get through.
//!
//! ```text
//! map ─ Carrier ─► batches ─► CarryRequest ─► server
//! map ◄─ Feed ◄────────────── CarryReply ◄─── server
//! ```

use std::time::Duration;

use pathcall_endpoint::driver::carrier::{BATCHES_WAITING, Carrier};
use pathcall_endpoint::driver::client::Feed;
use pathcall_endpoint::map::client::Reach;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{CarryReply, CarryRequest};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

/// Pause before a stream that ended, or could not be opened, is opened again.
const PAUSE: Duration = Duration::from_millis(500);
/// A server that has not taken a stream after this time is asked again.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// What it takes to open the stream of one member.
#[derive(Debug)]
pub(super) struct Carry {
    pub(super) channel: Channel,
    pub(super) application: &'static str,
    pub(super) endpoint: u32,
    pub(super) incarnation: u32,
    /// What proves to the server who it is.
    pub(super) session: Vec<u8>,
    pub(super) map: Feed,
}

impl Carry {
    /// Carries from now on (`always`), or whenever the server has been silent for long.
    pub(super) async fn keep(self, mut reach: watch::Receiver<Reach>, always: bool) {
        loop {
            // A map that has ended needs no road.
            if !always && reach.wait_for(|reach| *reach == Reach::Silent).await.is_err() {
                return;
            }
            if let Err(error) = self.run().await {
                let application = self.application;
                tracing::warn!(application, "frames can't be carried over HTTP/2: {}", error.message());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Opens the stream and reads it to its end. What is dropped with this future ends it.
    async fn run(&self) -> Result<(), Status> {
        let (sender, batches) = mpsc::channel(BATCHES_WAITING);
        let first = CarryRequest {
            application: self.application.into(),
            endpoint: self.endpoint,
            incarnation: self.incarnation,
            session: self.session.clone(),
            frames: Vec::new(),
        };
        let rest = ReceiverStream::new(batches).map(|frames| CarryRequest { frames, ..CarryRequest::default() });
        let mut client = PeerClient::new(self.channel.clone());
        let opened = crate::awake::timeout(OPEN_TIMEOUT, client.carry(tokio_stream::once(first).chain(rest))).await;
        let mut stream = opened.map_err(|_| Status::deadline_exceeded("the server does not answer"))??.into_inner();
        tracing::info!(application = self.application, "UDP does not get through: frames go over HTTP/2");
        self.map.carry(Carrier::new(sender));
        while let Some(CarryReply { frames }) = stream.message().await? {
            if !self.map.take(frames) {
                break;
            }
        }
        Ok(())
    }
}
