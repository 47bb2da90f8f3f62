//! Plain remote calls on the same transport, in the same style: what delegate is compared with.
//!
//! A client sends a request and gets its response; what follows from a response, the client asks for itself.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_endpoint::delegate::{NodeId, Outbox, Peer};
use pathcall_wire::delegate::parts::{Head, HeadRepr};
use pathcall_wire::delegate::{Context, Kind, MAGIC, Twin, TwinRepr};

/// Bytes before the payload of a request.
pub const REQUEST_LEN: usize = Head::LEN + Twin::LEN;
/// Bytes before the payload of a response.
pub const RESPONSE_LEN: usize = Head::LEN;

/// The calls of a client.
#[derive(Debug)]
pub struct TwinCaller {
    node: NodeId,
    last: u32,
    open: BTreeSet<Context>,
}

impl TwinCaller {
    /// A client without calls.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        Self { node, last: 0, open: BTreeSet::new() }
    }

    /// Calls a server.
    pub fn call(&mut self, to: SocketAddr, request: &Bytes, out: &mut dyn Outbox) -> Context {
        self.last += 1;
        let call = Context::new(self.node, self.last);
        self.open.insert(call);
        let mut head = [0; REQUEST_LEN];
        HeadRepr { magic: MAGIC, kind: Kind::Request as u8, flags: 0, call }.emit(&mut head);
        TwinRepr { deadline: u32::MAX, age: 0 }.emit(&mut head[Head::LEN..]);
        out.send(to, &head, request);
        call
    }

    /// Takes a message: the call that it answers, and the answer.
    pub fn handle(&mut self, message: &Bytes) -> Option<(Context, Bytes)> {
        let call = call_of(message, Kind::Response)?;
        self.open.remove(&call).then(|| (call, message.slice(RESPONSE_LEN..)))
    }

    /// Whether all calls were answered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}

/// Takes a request and answers it.
pub fn serve(from: Peer, message: &Bytes, answer: impl FnOnce(Bytes) -> Bytes, out: &mut dyn Outbox) {
    let Some(call) = call_of(message, Kind::Request).filter(|_| message.len() >= REQUEST_LEN) else { return };
    let mut head = [0; RESPONSE_LEN];
    HeadRepr { magic: MAGIC, kind: Kind::Response as u8, flags: 0, call }.emit(&mut head);
    out.send(from.address, &head, &answer(message.slice(REQUEST_LEN..)));
}

fn call_of(message: &[u8], kind: Kind) -> Option<Context> {
    let head = message.first_chunk::<{ Head::LEN }>()?;
    let call = Context::from_be_bytes(*head.last_chunk()?);
    (head[..2] == [MAGIC, kind as u8]).then_some(call)
}
