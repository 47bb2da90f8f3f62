//! Body of a response with a reply for each request. Dropping it ends the call.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tonic::Status;

use super::ReplyFrame;

/// Replies of a call's task.
#[derive(Debug)]
pub(super) struct RepliesBody {
    replies: mpsc::Receiver<ReplyFrame>,
    task: AbortHandle,
    has_ended: bool,
}

impl RepliesBody {
    pub(super) fn new(replies: mpsc::Receiver<ReplyFrame>, task: AbortHandle) -> Self {
        Self { replies, task, has_ended: false }
    }
}

impl http_body::Body for RepliesBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        self.replies.poll_recv(cx).map(|reply| match reply {
            Some(ReplyFrame::Message(message)) => Some(Ok(Frame::data(message))),
            Some(ReplyFrame::Trailers(trailers)) => {
                self.has_ended = true;
                Some(Ok(Frame::trailers(trailers)))
            }
            None => {
                self.has_ended = true;
                Some(Err(Status::internal("the task of a streamed call has ended")))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

impl Drop for RepliesBody {
    fn drop(&mut self) {
        self.task.abort();
    }
}
