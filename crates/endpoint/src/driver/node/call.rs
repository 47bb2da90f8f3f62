//! A call as its caller sees it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::state::{Shared, Waits};
use crate::delegate::Context as Id;
use crate::delegate::caller::trace::Tree;
use crate::delegate::caller::{CallOptions, Outcome, SendError};
use crate::driver::line::{Listener, line};

/// What a caller is told of its call.
#[derive(Debug)]
pub(super) enum Told {
    Reply(Option<Id>, Bytes),
    Ended(Outcome),
    Trace(Tree),
}

/// What [`Call::receive`] gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An item, of any of the servers; in the order in which they come.
    Item(Bytes),
    /// Nothing comes after this.
    Ended(Outcome),
}

/// A call in progress. Dropped before its end it is aborted: servers stop.
#[derive(Debug)]
pub struct Call {
    node: Arc<Shared>,
    id: Id,
    told: Listener<Told>,
    outcome: Option<Outcome>,
    traced: bool,
    once: bool,
}

impl Call {
    pub(super) fn begin(
        node: &Arc<Shared>,
        options: CallOptions,
        requests: impl IntoIterator<Item = (SocketAddr, Bytes)>,
    ) -> Result<Self, SendError> {
        let (line, told) = line();
        let CallOptions { traced, once, .. } = options;
        let id = node.with(|state, now| {
            let id = state.caller.open(now, options)?;
            state.calls.insert(id, Waits { line, goes_on: traced || once });
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
        Ok(Self { node: Arc::clone(node), id, told, outcome: None, traced, once })
    }

    /// Its id, which is in each of its messages.
    #[must_use]
    pub fn id(&self) -> Id {
        self.id
    }

    /// Sends one more request as part of it.
    ///
    /// # Errors
    /// [`SendError`]; it may have completed just now.
    pub fn send(&self, to: SocketAddr, request: Bytes) -> Result<(), SendError> {
        self.node.with(|state, now| {
            let (caller, _, mut out) = state.split(now);
            caller.send(now, self.id, to, request, &mut out)
        })
    }

    /// The next item, or the end; after the end, that again. Cancelling it loses nothing.
    pub async fn receive(&mut self) -> Reply {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// As [`receive`](Self::receive), for those who poll.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        loop {
            if let Some(outcome) = &self.outcome {
                return Poll::Ready(Reply::Ended(outcome.clone()));
            }
            match ready!(self.told.poll_next(cx)) {
                Some(Told::Reply(from, item)) => return Poll::Ready(self.taken(from, item)),
                Some(Told::Ended(outcome)) => self.outcome = Some(outcome),
                Some(Told::Trace(_)) => {}
                // The node itself has ended.
                None => self.outcome = Some(Outcome::Aborted { confirmed: false }),
            }
        }
    }

    /// As [`receive`](Self::receive), if there is anything now.
    pub fn try_receive(&mut self) -> Option<Reply> {
        if self.outcome.is_none() {
            match self.told.try_next()? {
                Told::Reply(from, item) => return Some(self.taken(from, item)),
                Told::Ended(outcome) => self.outcome = Some(outcome),
                Told::Trace(_) => return None,
            }
        }
        self.outcome.clone().map(Reply::Ended)
    }

    /// How it ended, if [`receive`](Self::receive) has said so.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Makes a call again that failed and is to be done exactly once: the same requests, to the same servers, under
    /// the same ids; who has done its part says the same again (DPC §3.5.3). Items that came do not come again.
    ///
    /// # Errors
    /// [`SendError::Ended`]: it has not failed, or is not to be done exactly once.
    pub fn retry(&mut self) -> Result<(), SendError> {
        self.node.with(|state, now| {
            let (caller, _, mut out) = state.split(now);
            caller.retry(now, self.id, &mut out)
        })?;
        self.outcome = None;
        Ok(())
    }

    /// Who did what for it, where it is traced: after its end, and a while, for spans may come late. A call that
    /// could be made again can't after this. `None` when it is not traced or was dropped by its node.
    pub async fn trace(&mut self) -> Option<Tree> {
        while let Reply::Item(_) = self.receive().await {}
        if !self.traced {
            return None;
        }
        if self.once {
            self.abort();
        }
        loop {
            if let Told::Trace(tree) = poll_fn(|cx| self.told.poll_next(cx)).await? {
                return Some(tree);
            }
        }
    }

    /// Tells all who work on it to stop; the end then says whether all have said that they did.
    pub fn abort(&self) {
        self.node.with(|state, now| {
            let (caller, _, mut out) = state.split(now);
            caller.abort(now, self.id, &mut out);
        });
    }

    /// The application has taken an item: its server may send another.
    fn taken(&self, from: Option<Id>, item: Bytes) -> Reply {
        // A sole reply waits for nobody's grant, nor does any after it.
        if from.is_some() {
            self.node.with(|state, now| {
                let (caller, _, mut out) = state.split(now);
                caller.consumed(self.id, from, &mut out);
            });
        }
        Reply::Item(item)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // One that has failed and may be made again is not over.
        if self.outcome.is_some() && !self.once {
            if self.traced {
                self.node.look(|state| state.calls.remove(&self.id));
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
