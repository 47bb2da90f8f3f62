//! Baseline of delegated calls: plain remote calls on the same transport.
//!
//! A client sends a request and receives its response. The client itself makes the calls that follow from a response.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_endpoint::delegate::{MessageOutbox, NodeId, PeerNode};
use pathcall_wire::delegate::parts::{MessageHead, MessageHeadRepr};
use pathcall_wire::delegate::{ContextId, DelegateKind, MAGIC, PlainRequest, PlainRequestRepr};

/// Bytes of a request before its payload.
pub const REQUEST_LEN: usize = MessageHead::LEN + PlainRequest::LEN;
/// Bytes of a response before its payload.
pub const RESPONSE_LEN: usize = MessageHead::LEN;

/// Plain calls of a client.
#[derive(Debug)]
pub struct BaselineCaller {
    node: NodeId,
    last: u32,
    open: BTreeSet<ContextId>,
}

impl BaselineCaller {
    /// Creates a client without calls.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        Self { node, last: 0, open: BTreeSet::new() }
    }

    /// Calls a server.
    pub fn call(&mut self, to: SocketAddr, request: &Bytes, out: &mut dyn MessageOutbox) -> ContextId {
        self.last += 1;
        let call = ContextId::new(self.node, self.last);
        self.open.insert(call);
        let mut head = [0; REQUEST_LEN];
        MessageHeadRepr { magic: MAGIC, kind: DelegateKind::Request as u8, flags: 0, call }.emit(&mut head);
        PlainRequestRepr { deadline: u32::MAX, age: 0 }.emit(&mut head[MessageHead::LEN..]);
        out.send(to, &head, request);
        call
    }

    /// Processes a message; returns the call that it answers, and the answer.
    pub fn handle(&mut self, message: &Bytes) -> Option<(ContextId, Bytes)> {
        let call = call_of(message, DelegateKind::Response)?;
        self.open.remove(&call).then(|| (call, message.slice(RESPONSE_LEN..)))
    }

    /// True if all calls are answered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}

/// Answers a request.
pub fn serve(from: PeerNode, message: &Bytes, answer: impl FnOnce(Bytes) -> Bytes, out: &mut dyn MessageOutbox) {
    let Some(call) = call_of(message, DelegateKind::Request).filter(|_| message.len() >= REQUEST_LEN) else { return };
    let mut head = [0; RESPONSE_LEN];
    MessageHeadRepr { magic: MAGIC, kind: DelegateKind::Response as u8, flags: 0, call }.emit(&mut head);
    out.send(from.address, &head, &answer(message.slice(REQUEST_LEN..)));
}

fn call_of(message: &[u8], kind: DelegateKind) -> Option<ContextId> {
    let head = message.first_chunk::<{ MessageHead::LEN }>()?;
    let call = ContextId::from_be_bytes(*head.last_chunk()?);
    (head[..2] == [MAGIC, kind as u8]).then_some(call)
}
