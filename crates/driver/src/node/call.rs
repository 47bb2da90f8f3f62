//! Delegated call, as its caller uses it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::shards::NodeShard;
use super::state::CallEvents;
use crate::event_channel::{EventReceiver, event_channel};
use pathcall_endpoint::delegate::ContextId as Id;
use pathcall_endpoint::delegate::caller::trace::CallTree;
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome, SendRequestError};

/// Event of a call for its caller.
#[derive(Debug)]
pub(super) enum CallEvent {
    Reply(Option<Id>, Bytes),
    Ended(CallOutcome),
    Trace(CallTree),
}

/// Result of [`NodeCall::receive`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeReply {
    /// An item from any of the servers, in order of arrival.
    Item(Bytes),
    /// End of the call; nothing comes after it.
    Ended(CallOutcome),
}

/// Delegated call in progress. Dropping it before its end aborts it: the servers stop.
#[derive(Debug)]
pub struct NodeCall {
    node: NodeShard,
    id: Id,
    events: EventReceiver<CallEvent>,
    outcome: Option<CallOutcome>,
    traced: bool,
    once: bool,
}

impl NodeCall {
    pub(super) fn begin(
        node: NodeShard,
        options: CallOptions,
        requests: impl IntoIterator<Item = (SocketAddr, Bytes)>,
    ) -> Result<Self, SendRequestError> {
        let (sender, events) = event_channel();
        let CallOptions { traced, once, .. } = options;
        let id = node.with(|state, now| {
            let id = state.caller.open(now, options)?;
            state.calls.insert(id, CallEvents { sender, more_events: traced || once });
            for (to, request) in requests {
                let (caller, _, mut out) = state.split(now);
                if let Err(error) = caller.send(now, id, to, request, &mut out) {
                    caller.abort(now, id, &mut out);
                    state.calls.remove(&id);
                    return Err(error);
                }
            }
            Ok(id)
        })?;
        Ok(Self { node, id, events, outcome: None, traced, once })
    }

    /// Id of the call, which is in each of its messages.
    #[must_use]
    pub fn id(&self) -> Id {
        self.id
    }

    /// Sends another request as part of the call.
    ///
    /// # Errors
    /// [`SendRequestError`]; the call may have completed concurrently.
    pub fn send(&self, to: SocketAddr, request: Bytes) -> Result<(), SendRequestError> {
        self.node.with(|state, now| {
            let (caller, _, mut out) = state.split(now);
            caller.send(now, self.id, to, request, &mut out)
        })
    }

    /// Waits for the next item, or the end; after the end, returns the end again. Cancel safe.
    pub async fn receive(&mut self) -> NodeReply {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// Polls as [`receive`](Self::receive) waits.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<NodeReply> {
        loop {
            if let Some(outcome) = &self.outcome {
                return Poll::Ready(NodeReply::Ended(outcome.clone()));
            }
            match ready!(self.events.poll_next(cx)) {
                Some(CallEvent::Reply(from, item)) => return Poll::Ready(self.grant_next(from, item)),
                Some(CallEvent::Ended(outcome)) => self.outcome = Some(outcome),
                Some(CallEvent::Trace(_)) => {}
                // The node itself has ended.
                None => self.outcome = Some(CallOutcome::Aborted { confirmed: false }),
            }
        }
    }

    /// Returns the next item or the end, if there is one now.
    pub fn try_receive(&mut self) -> Option<NodeReply> {
        if self.outcome.is_none() {
            match self.events.try_next()? {
                CallEvent::Reply(from, item) => return Some(self.grant_next(from, item)),
                CallEvent::Ended(outcome) => self.outcome = Some(outcome),
                CallEvent::Trace(_) => return None,
            }
        }
        self.outcome.clone().map(NodeReply::Ended)
    }

    /// Outcome of the call, if [`receive`](Self::receive) has returned it.
    #[must_use]
    pub fn outcome(&self) -> Option<&CallOutcome> {
        self.outcome.as_ref()
    }

    /// Repeats a failed exactly-once call: the same requests, to the same servers, with the same ids; a server that has
    /// done its part sends the same messages again (DPC §3.5.3). Items already received are not delivered again.
    ///
    /// # Errors
    /// [`SendRequestError::Ended`]: the call has not failed, or is not an exactly-once call.
    pub fn retry(&mut self) -> Result<(), SendRequestError> {
        self.node.with(|state, now| {
            let (caller, _, mut out) = state.split(now);
            caller.retry(now, self.id, &mut out)
        })?;
        self.outcome = None;
        Ok(())
    }

    /// Waits for the trace of a traced call. The trace is complete some time after the end, because spans may arrive
    /// late. An exactly-once call cannot be repeated after this. `None` if the call is not traced or its node dropped
    /// the trace.
    pub async fn trace(&mut self) -> Option<CallTree> {
        while let NodeReply::Item(_) = self.receive().await {}
        if !self.traced {
            return None;
        }
        if self.once {
            self.abort();
        }
        loop {
            if let CallEvent::Trace(tree) = poll_fn(|cx| self.events.poll_next(cx)).await? {
                return Some(tree);
            }
        }
    }

    /// Tells all servers of the call to stop; the end then reports whether all have confirmed.
    pub fn abort(&self) {
        self.node.with(|state, now| {
            let (caller, _, mut out) = state.split(now);
            caller.abort(now, self.id, &mut out);
        });
    }

    /// Grants the server of an item another one.
    fn grant_next(&self, from: Option<Id>, item: Bytes) -> NodeReply {
        // A sole reply waits for no grant, and no other reply follows it.
        if from.is_some() {
            self.node.with(|state, now| {
                let (caller, _, mut out) = state.split(now);
                caller.record_consumed(self.id, from, item.len(), &mut out);
            });
        }
        NodeReply::Item(item)
    }
}

impl Drop for NodeCall {
    fn drop(&mut self) {
        // A failed call that may be repeated is not over.
        if self.outcome.is_some() && !self.once {
            if self.traced {
                self.node.with_state(|state| state.calls.remove(&self.id));
            }
            return;
        }
        self.node.with(|state, now| {
            state.calls.remove(&self.id);
            let (caller, _, mut out) = state.split(now);
            caller.abort(now, self.id, &mut out);
        });
    }
}
