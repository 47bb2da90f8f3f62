//! Map frames of a caller in a stream of its gRPC connection, used where UDP is blocked.
//!
//! Frames of the stream go to the application's owner as if they had come by UDP. The owner's frames to the member go
//! through the stream until it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pathcall_auth::caller;
use pathcall_driver::carrier::{BATCHES_WAITING, Carrier};
use pathcall_driver::server::MemberCarrierPort;
use pathcall_proto::v1::{CarryFramesReply, CarryFramesRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::Inner;
use crate::status;

/// Time limit for the first message of a stream.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn carry(
    inner: &Inner,
    request: Request<Streaming<CarryFramesRequest>>,
) -> Result<Response<CarriedStream>, Status> {
    let mut closed = inner.closed.subscribe();
    let (_, extensions, mut stream) = request.into_parts();
    let first = crate::process_timeout::timeout(FIRST_TIMEOUT, stream.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("the stream sent no first message in time"))??;
    let CarryFramesRequest { application, endpoint, incarnation, session, .. } =
        first.ok_or_else(|| Status::invalid_argument("the stream ended before its first message"))?;
    caller::check(&extensions, &application)?;
    let unknown = || {
        let application = status::truncated(&application);
        Status::failed_precondition(format!("endpoint {endpoint} has not joined {application:?}"))
    };
    let owned = inner.applications.get(application.as_str()).ok_or_else(unknown)?;
    let session = owned.sessions.find(&session)?;
    if (session.endpoint, session.incarnation) != (endpoint, incarnation) {
        return Err(unknown());
    }
    let owner = owned.active().ok_or_else(unknown)?.handle;
    let (sender, frames) = mpsc::channel(BATCHES_WAITING);
    let port = owner.carry(endpoint, incarnation, Carrier::new(sender)).ok_or_else(unknown)?;
    drop(owner);
    let port = Arc::new(port);
    let mut reader = JoinSet::new();
    reader.spawn(read(stream, Arc::clone(&port)));
    let closed = Box::pin(async move { closed.wait_for(|closed| *closed).await.map(drop).unwrap_or_default() });
    Ok(Response::new(CarriedStream { frames, reader, closed, port }))
}

/// Passes the frames of the stream to the owner, batch by batch. A busy owner makes the caller wait.
async fn read(mut stream: Streaming<CarryFramesRequest>, port: Arc<MemberCarrierPort>) {
    while let Ok(Some(CarryFramesRequest { frames, .. })) = stream.message().await {
        if !port.receive(&frames) {
            return;
        }
    }
}

/// Stream of the frames to a caller, until the caller ends its stream or the server closes.
pub(super) struct CarriedStream {
    frames: mpsc::Receiver<Vec<u8>>,
    reader: JoinSet<()>,
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    port: Arc<MemberCarrierPort>,
}

impl Drop for CarriedStream {
    fn drop(&mut self) {
        self.frames.close();
        // Notifies the owner.
        self.port.receive(&[]);
    }
}

impl Stream for CarriedStream {
    type Item = Result<CarryFramesReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.closed.as_mut().poll(cx).is_ready() || self.reader.poll_join_next(cx).is_ready() {
            return Poll::Ready(None);
        }
        self.frames.poll_recv(cx).map(|frames| frames.map(|frames| Ok(CarryFramesReply { frames })))
    }
}
