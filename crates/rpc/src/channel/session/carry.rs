//! Frames of a member carried in a stream of the gRPC connection, where UDP is blocked.
//!
//! ```text
//! map ─ Carrier ─► batches ─► CarryFramesRequest ─► server
//! map ◄─ CallerPort ◄──────── CarryFramesReply ◄─── server
//! ```

use std::time::Duration;

use pathcall_driver::carrier::{BATCHES_WAITING, Carrier};
use pathcall_driver::client::CallerPort;
use pathcall_endpoint::map::client::ServerReachability;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{CarryFramesReply, CarryFramesRequest};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use crate::process_timeout;

/// Pause before a failed or ended stream is opened again.
const PAUSE: Duration = Duration::from_millis(500);
/// Time limit for opening a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Parameters of one member's stream.
#[derive(Debug)]
pub(super) struct FrameCarrier {
    pub(super) channel: Channel,
    pub(super) application: &'static str,
    pub(super) endpoint: u32,
    pub(super) incarnation: u32,
    /// Secret of the session, which identifies the member to the server.
    pub(super) session: Vec<u8>,
    pub(super) map: CallerPort,
}

impl FrameCarrier {
    /// Carries frames at once (`always`), or whenever the server has not answered by UDP for a while.
    pub(super) async fn run_carrier(self, mut reach: watch::Receiver<ServerReachability>, always: bool) {
        loop {
            // The map has ended.
            if !always && reach.wait_for(|reach| *reach == ServerReachability::Silent).await.is_err() {
                return;
            }
            if let Err(error) = self.carry_stream().await {
                let application = self.application;
                tracing::warn!(application, "cannot carry frames over HTTP/2: {}", error.message());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Opens the stream and reads it to its end. The stream ends when this future is dropped.
    async fn carry_stream(&self) -> Result<(), Status> {
        let (sender, batches) = mpsc::channel(BATCHES_WAITING);
        let first = CarryFramesRequest {
            application: self.application.into(),
            endpoint: self.endpoint,
            incarnation: self.incarnation,
            session: self.session.clone(),
            frames: Vec::new(),
        };
        let rest =
            ReceiverStream::new(batches).map(|frames| CarryFramesRequest { frames, ..CarryFramesRequest::default() });
        let mut client = PeerClient::new(self.channel.clone());
        let opened =
            process_timeout::timeout(OPEN_TIMEOUT, client.carry_frames(tokio_stream::once(first).chain(rest))).await;
        let mut stream = opened.map_err(|_| Status::deadline_exceeded("the server does not answer"))??.into_inner();
        tracing::info!(application = self.application, "UDP is blocked: carrying frames over HTTP/2");
        self.map.carry(Carrier::new(sender));
        while let Some(CarryFramesReply { frames }) = stream.message().await? {
            if !self.map.receive(&frames) {
                break;
            }
        }
        Ok(())
    }
}
