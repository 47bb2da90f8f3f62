//! Map operations of a stream in progress. They begin in the order of the messages, and are answered in this order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use tonic::Status;

use super::StreamFuture;
use crate::request::MapAnswer;

/// Guard that a map operation drops when it has begun, so that the next one may begin.
#[derive(Debug)]
pub(crate) struct Begun(Arc<AtomicBool>);

impl Begun {
    /// Guard, and the flag that it sets.
    pub(super) fn new() -> (Self, Arc<AtomicBool>) {
        let flag = Arc::new(AtomicBool::new(false));
        (Self(Arc::clone(&flag)), flag)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Operations in order.
#[derive(Default)]
pub(super) struct Operations {
    running: VecDeque<Operation>,
    /// Whether the latest operation has begun; polls of the operations set it.
    latest: Option<Arc<AtomicBool>>,
    /// Whether this was reported.
    is_reported: bool,
}

/// Outcome of an operation: its answer, and the message for the handler.
type Outcome = (MapAnswer, Option<Bytes>);

enum Operation {
    InProgress(StreamFuture<Outcome>),
    Done(Result<Outcome, Status>),
}

/// Progress of the operations.
#[derive(Debug)]
pub(super) enum OperationEvent {
    /// The latest operation has begun.
    Begun,
    /// Answer to the oldest message, and the message for the handler.
    Done(MapAnswer, Option<Bytes>),
}

impl Operations {
    pub(super) fn push(&mut self, operation: StreamFuture<Outcome>, begun: Arc<AtomicBool>) {
        self.running.push_back(Operation::InProgress(operation));
        (self.latest, self.is_reported) = (Some(begun), false);
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether another operation may begin.
    pub(super) fn has_begun(&self) -> bool {
        self.latest.as_ref().is_none_or(|begun| begun.load(Ordering::Relaxed))
    }

    /// Waits for the next progress. A dropped future loses nothing.
    pub(super) async fn next(&mut self) -> Result<OperationEvent, Status> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<OperationEvent, Status>> {
        for operation in &mut self.running {
            if let Operation::InProgress(future) = operation
                && let Poll::Ready(outcome) = future.as_mut().poll(cx)
            {
                *operation = Operation::Done(outcome);
            }
        }
        if let Some(Operation::Done(_)) = self.running.front()
            && let Some(Operation::Done(outcome)) = self.running.pop_front()
        {
            return Poll::Ready(outcome.map(|(answer, message)| OperationEvent::Done(answer, message)));
        }
        if self.has_begun() && !std::mem::replace(&mut self.is_reported, true) {
            return Poll::Ready(Ok(OperationEvent::Begun));
        }
        Poll::Pending
    }
}
