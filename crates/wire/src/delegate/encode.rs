//! Messages as they travel: their heads written, section by section.

use core::net::SocketAddr;

use super::ids::{Context, NodeId, RequestId, U24};
use super::message::{Fault, Grant, Ids, Manifest, Ping, Pong, Request, Response, Subject, TraceSpan};
use super::parts::{
    FaultPart, FaultPartRepr, Flags, GrantPart, GrantPartRepr, Head, HeadRepr, Kind, ManifestPart, ManifestPartRepr,
    PingPart, PingPartRepr, PongPart, PongPartRepr, RequestPart, RequestPartRepr, ResponsePart, ResponsePartRepr,
    SpanPart,
};
use super::{HEAD_MAX, MAGIC, address};

/// The head of a message as it travels.
#[derive(Debug, Clone, Copy)]
pub struct Encoded {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl Encoded {
    fn new(kind: Kind, flags: u16, call: Context) -> Self {
        let mut bytes = [0; HEAD_MAX];
        HeadRepr { magic: MAGIC, kind: kind as u8, flags, call }.emit(&mut bytes);
        Self { bytes, len: Head::LEN }
    }

    fn rest(&mut self) -> &mut [u8] {
        &mut self.bytes[self.len..]
    }

    fn flag(&mut self, flag: u16) {
        let mut head = Head::unchecked(&mut self.bytes[..]);
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

    fn manifest(&mut self, manifest: Option<Manifest>) {
        let Some(Manifest { request, context, requests, responses, server }) = manifest else { return };
        let (requests, responses) = (U24::saturating(requests), U24::saturating(responses));
        ManifestPartRepr { request, context, requests, responses }.emit(self.rest());
        self.len += ManifestPart::LEN;
        self.flag(Flags::MANIFEST);
        self.address(server, Flags::MANIFEST_V6);
    }
}

impl core::ops::Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Request {
    /// As it travels, before its payload.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let &Self { request, depth, ended, deadline, age, .. } = self;
        let mut out = Encoded::new(Kind::Request, self.flags & (Flags::TRACED | Flags::ONCE), self.call);
        let terms = self.gc.min(15) << 4 | self.credit.min(15);
        RequestPartRepr { request, depth, terms, ended, deadline, age }.emit(out.rest());
        out.len += RequestPart::LEN;
        out.address(self.reply, Flags::REPLY_V6);
        let again = self.sender != request.branch().context().node();
        if request.seq() > 0 || again {
            out.node(self.sender, if again && request.seq() == 0 { Flags::AGAIN } else { 0 });
        }
        out.manifest(self.manifest);
        out
    }
}

impl Response {
    /// As it travels, before its payload.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let (id, sole) = match self.id {
            Ids::Numbered(context, number) => (context.request(number), 0),
            Ids::Sole(branch) => (branch, Flags::SOLE),
        };
        let null = if self.null { Flags::NULL } else { 0 };
        let mut out = Encoded::new(Kind::Response, sole | null, self.call);
        ResponsePartRepr { id }.emit(out.rest());
        out.len += ResponsePart::LEN;
        if let Some(node) = self.again {
            out.node(node, Flags::AGAIN);
        }
        out.manifest(self.manifest);
        out
    }
}

impl Fault {
    /// As it travels, before its text.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let mut out = Encoded::new(Kind::Fault, 0, self.call);
        FaultPartRepr { request: self.request, code: self.code }.emit(out.rest());
        out.len += FaultPart::LEN;
        out
    }
}

impl Ping {
    /// As it travels.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let (subject, flags) = subject_id(self.subject);
        let abort = if self.abort { Flags::ABORT } else { 0 };
        let mut out = Encoded::new(Kind::Ping, flags | abort, self.call);
        PingPartRepr { subject, round: self.round, first: self.first }.emit(out.rest());
        out.len += PingPart::LEN;
        out
    }
}

impl Pong {
    /// As it travels, before `count` addresses, each by [`list`].
    #[must_use]
    pub fn encode(&self, count: u16) -> Encoded {
        let &Self { call, round, context, requests, responses, first, code, sender, .. } = self;
        let (subject, by) = subject_id(self.subject);
        let mut out = Encoded::new(Kind::Pong, self.flags & !Flags::BY_CONTEXT | by, call);
        PongPartRepr { subject, round, context, requests, responses, first, count, code, sender }.emit(out.rest());
        out.len += PongPart::LEN;
        out
    }
}

impl Grant {
    /// As it travels.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let mut out = Encoded::new(Kind::Grant, 0, self.call);
        GrantPartRepr { context: self.context, responses: self.responses }.emit(out.rest());
        out.len += GrantPart::LEN;
        out
    }
}

impl TraceSpan {
    /// As it travels, before its label.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let mut out = Encoded::new(Kind::Span, 0, self.call);
        self.span.emit(out.rest());
        out.len += SpanPart::LEN;
        out
    }
}

/// An address as it stands in a pong's list.
#[must_use]
pub fn list(address: SocketAddr) -> [u8; address::V6] {
    let mut bytes = [0; address::V6];
    address::put_listed(address, &mut bytes);
    bytes
}

fn subject_id(subject: Subject) -> (RequestId, u16) {
    match subject {
        Subject::Request(id) => (id, 0),
        Subject::Context(context) => (context.request(0).inherited(0), Flags::BY_CONTEXT),
    }
}
