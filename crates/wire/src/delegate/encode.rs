//! Encoder of message heads, section by section.

use core::net::SocketAddr;

use super::address::{self, mapped};
use super::ids::{ContextId, NodeId, RequestId, U24};
use super::message::{
    DelegateRequest, DelegateResponse, LoadReport, Ping, PingSubject, Pong, RequestFailure, RequestManifest,
    ResponseGrant, ResponseId, ShardPorts, TraceSpan,
};
use super::parts::{
    DelegateFlags, DelegateKind, FaultPart, FaultPartRepr, GrantPart, GrantPartRepr, LoadPart, LoadPartRepr,
    ManifestPart, ManifestPartRepr, MessageHead, MessageHeadRepr, PingPart, PingPartRepr, PongPart, PongPartRepr,
    RequestPart, RequestPartRepr, ResponsePart, ResponsePartRepr, SpanPart,
};
use super::{HEAD_MAX, MAGIC};

/// Encoded head of a message.
#[derive(Debug, Clone, Copy)]
pub struct Encoded {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl Encoded {
    fn new(kind: DelegateKind, flags: u16, call: ContextId) -> Self {
        let mut bytes = [0; HEAD_MAX];
        MessageHeadRepr { magic: MAGIC, kind: kind as u8, flags, call }.emit(&mut bytes);
        Self { bytes, len: MessageHead::LEN }
    }

    fn rest(&mut self) -> &mut [u8] {
        &mut self.bytes[self.len..]
    }

    fn flag(&mut self, flag: u16) {
        let mut head = MessageHead::unchecked(&mut self.bytes[..]);
        let flags = head.flags();
        head.set_flags(flags | flag);
    }

    fn address(&mut self, address: SocketAddr, v6_flag: u16) {
        let (len, v6) = address::put(address, self.rest());
        self.len += len;
        if v6 {
            self.flag(v6_flag);
        }
    }

    fn node(&mut self, node: NodeId, flag: u16) {
        let bytes = node.to_be_bytes();
        self.rest()[..bytes.len()].copy_from_slice(&bytes);
        self.len += bytes.len();
        self.flag(flag);
    }

    fn manifest(&mut self, manifest: Option<RequestManifest>) {
        let Some(RequestManifest { request, context, requests, responses, server }) = manifest else { return };
        let (requests, responses) = (U24::saturating(requests), U24::saturating(responses));
        ManifestPartRepr { request, context, requests, responses }.emit(self.rest());
        self.len += ManifestPart::LEN;
        self.flag(DelegateFlags::MANIFEST);
        self.address(server, DelegateFlags::MANIFEST_V6);
    }
}

impl core::ops::Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DelegateRequest {
    /// Encodes the head; the payload follows.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let &Self { request, depth, ended, deadline, age, .. } = self;
        let mut out =
            Encoded::new(DelegateKind::Request, self.flags & (DelegateFlags::TRACED | DelegateFlags::ONCE), self.call);
        let terms = self.gc.min(15) << 4 | self.credit.min(15);
        RequestPartRepr { request, depth, terms, ended, deadline, age }.emit(out.rest());
        out.len += RequestPart::LEN;
        out.address(self.reply, DelegateFlags::REPLY_V6);
        let again = self.sender != request.branch().context().node();
        if request.seq() > 0 || again {
            out.node(self.sender, if again && request.seq() == 0 { DelegateFlags::AGAIN } else { 0 });
        }
        out.manifest(self.manifest);
        out
    }
}

impl DelegateResponse {
    /// Encodes the head; the payload follows.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let (id, sole) = match self.id {
            ResponseId::Numbered(context, number) => (context.request(number), 0),
            ResponseId::Sole(branch) => (branch, DelegateFlags::SOLE),
        };
        let null = if self.null { DelegateFlags::NULL } else { 0 };
        let mut out = Encoded::new(DelegateKind::Response, sole | null, self.call);
        ResponsePartRepr { id }.emit(out.rest());
        out.len += ResponsePart::LEN;
        if let Some(node) = self.again {
            out.node(node, DelegateFlags::AGAIN);
        }
        out.manifest(self.manifest);
        out
    }
}

impl RequestFailure {
    /// Encodes the head; the error text and the application's details follow.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let mut out = Encoded::new(DelegateKind::Fault, 0, self.call);
        let &Self { request, code, text, unreachable, .. } = self;
        let (ip, port) = unreachable.map_or((0, 0), |server| (mapped(server.ip()).to_bits(), server.port()));
        FaultPartRepr { request, code, text, port, ip }.emit(out.rest());
        out.len += FaultPart::LEN;
        out
    }
}

impl Ping {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let (subject, flags) = subject_id(self.subject);
        let abort = if self.abort { DelegateFlags::ABORT } else { 0 };
        let mut out = Encoded::new(DelegateKind::Ping, flags | abort, self.call);
        PingPartRepr { subject, round: self.round, first: self.first }.emit(out.rest());
        out.len += PingPart::LEN;
        out
    }
}

impl Pong {
    /// Encodes the head; `count` addresses follow, each encoded by [`list`].
    #[must_use]
    pub fn encode(&self, count: u16) -> Encoded {
        let &Self { call, round, context, requests, responses, first, code, sender, .. } = self;
        let (subject, by) = subject_id(self.subject);
        let mut out = Encoded::new(DelegateKind::Pong, self.flags & !DelegateFlags::BY_CONTEXT | by, call);
        PongPartRepr { subject, round, context, requests, responses, first, count, code, sender }.emit(out.rest());
        out.len += PongPart::LEN;
        out
    }
}

impl ResponseGrant {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let mut out = Encoded::new(DelegateKind::Grant, 0, self.call);
        GrantPartRepr { context: self.context, responses: self.responses }.emit(out.rest());
        out.len += GrantPart::LEN;
        out
    }
}

impl TraceSpan {
    /// Encodes the head; the label follows.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let mut out = Encoded::new(DelegateKind::Span, 0, self.call);
        self.span.emit(out.rest());
        out.len += SpanPart::LEN;
        out
    }
}

impl LoadReport {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let mut out = Encoded::new(DelegateKind::Load, 0, ContextId::default());
        LoadPartRepr { load: self.load }.emit(out.rest());
        out.len += LoadPart::LEN;
        out
    }
}

impl ShardPorts<'_> {
    /// Encodes the head; the ports follow, each as two bytes in big-endian order.
    #[must_use]
    pub fn encode_head() -> Encoded {
        Encoded::new(DelegateKind::Shards, 0, ContextId::default())
    }
}

/// Encodes an entry of a pong's address list.
#[must_use]
pub fn list(address: SocketAddr) -> [u8; address::V6] {
    let mut bytes = [0; address::V6];
    address::put_listed(address, &mut bytes);
    bytes
}

fn subject_id(subject: PingSubject) -> (RequestId, u16) {
    match subject {
        PingSubject::Request(id) => (id, 0),
        PingSubject::Context(context) => (context.request(0).inherited(0), DelegateFlags::BY_CONTEXT),
    }
}
