//! Frames of a caller in a stream of its gRPC connection, where UDP does not get through.
//!
//! The stream is one more road of a member: what it brings goes to the application's owner as if by
//! UDP, and what the owner sends to the member goes by it, until it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pathcall_auth::caller;
use pathcall_endpoint::driver::carrier::{BATCHES_WAITING, Carrier};
use pathcall_endpoint::driver::server::Feed;
use pathcall_proto::v1::{CarryReply, CarryRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::Inner;
use crate::status;

/// A stream's first message comes within this time.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn carry(
    inner: &Inner,
    request: Request<Streaming<CarryRequest>>,
) -> Result<Response<Carried>, Status> {
    let mut closed = inner.closed.subscribe();
    let (_, extensions, mut stream) = request.into_parts();
    let first = crate::awake::timeout(FIRST_TIMEOUT, stream.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("nobody said whose frames are to be carried"))??;
    let CarryRequest { application, endpoint, incarnation, session, .. } =
        first.ok_or_else(|| Status::invalid_argument("the stream ended before it said whose frames it carries"))?;
    caller::check(&extensions, &application)?;
    let unknown = || {
        let application = status::shortened(&application);
        Status::failed_precondition(format!("endpoint {endpoint} has not joined {application:?}"))
    };
    let hosted = inner.applications.get(application.as_str()).ok_or_else(unknown)?;
    let session = hosted.sessions.find(&session)?;
    if (session.endpoint, session.incarnation) != (endpoint, incarnation) {
        return Err(unknown());
    }
    let owner = hosted.running().ok_or_else(unknown)?.handle;
    let (sender, frames) = mpsc::channel(BATCHES_WAITING);
    let feed = owner.carry(endpoint, incarnation, Carrier::new(sender)).await.ok_or_else(unknown)?;
    drop(owner);
    let feed = Arc::new(feed);
    let mut reader = JoinSet::new();
    reader.spawn(read(stream, Arc::clone(&feed)));
    let closed = Box::pin(async move { closed.wait_for(|closed| *closed).await.map(drop).unwrap_or_default() });
    Ok(Response::new(Carried { frames, reader, closed, feed }))
}

/// Takes what comes, batch by batch: a busy owner has the caller wait.
async fn read(mut stream: Streaming<CarryRequest>, feed: Arc<Feed>) {
    while let Ok(Some(CarryRequest { frames, .. })) = stream.message().await {
        if !feed.take(frames) {
            return;
        }
    }
}

/// The frames to a caller, until it ends its side or the server closes.
pub(super) struct Carried {
    frames: mpsc::Receiver<Vec<u8>>,
    reader: JoinSet<()>,
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    feed: Arc<Feed>,
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.frames.close();
        // So that the owner notices.
        self.feed.take(Vec::new());
    }
}

impl Stream for Carried {
    type Item = Result<CarryReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.closed.as_mut().poll(cx).is_ready() || self.reader.poll_join_next(cx).is_ready() {
            return Poll::Ready(None);
        }
        self.frames.poll_recv(cx).map(|frames| frames.map(|frames| Ok(CarryReply { frames })))
    }
}
