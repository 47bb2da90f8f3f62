//! Parser of whole messages with all checks; [`super::encode`] is the encoder.

use core::net::{Ipv6Addr, SocketAddr};
use core::time::Duration;

use super::address::{self, PongAddresses};
use super::ids::{Branch, ContextId, NodeId, RequestId};
use super::parts::{
    DelegateFlags, DelegateKind, FaultPart, FaultPartRepr, GrantPart, GrantPartRepr, LoadPart, LoadPartRepr,
    ManifestPart, ManifestPartRepr, MessageHead, MessageHeadRepr, PingPart, PingPartRepr, PongPart, PongPartRepr,
    RequestPart, RequestPartRepr, ResponsePart, SpanPart, SpanPartRepr,
};
use super::{MAGIC, PAGE, SHARDS_MAX};
use crate::Error;

/// Manifest: requests and responses that one execution sent, in a fixed number of bytes (DPC §4.3.1, Fig. 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestManifest {
    /// Executed request.
    pub request: Branch,
    /// Context of the execution.
    pub context: ContextId,
    /// Number of requests sent by the execution; their numbers start at 1.
    pub requests: u32,
    /// Number of responses sent by the execution, null responses included; their numbers start at 1.
    pub responses: u32,
    /// Address of the server that made the manifest (§4.4.1).
    pub server: SocketAddr,
}

/// Head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegateRequest {
    /// TRACED and ONCE of [`DelegateFlags`].
    pub flags: u16,
    /// Id of the call.
    pub call: ContextId,
    /// Id of the request.
    pub request: RequestId,
    /// Number of servers on the path before this one.
    pub depth: u8,
    /// Binary logarithm of the time in milliseconds for which servers keep the record of the request, 0 to 15.
    pub gc: u8,
    /// Binary logarithm of the number of responses that each server may send without a grant, 0 to 15.
    pub credit: u8,
    /// See [`ended_before`].
    pub ended: u8,
    /// Time left for the call in microseconds; `u32::MAX`: no limit.
    pub deadline: u32,
    /// Time in microseconds that the call has spent at its caller and servers.
    pub age: u32,
    /// Address for responses (DPC §4.2).
    pub reply: SocketAddr,
    /// Node that sent the request. The message contains it only if the branch does not give it.
    pub sender: NodeId,
    /// Manifest in the message, if any.
    pub manifest: Option<RequestManifest>,
}

/// Subtracts a request's waiting time in a send queue from its time left, and adds it to its age. Other messages stay
/// unchanged. `message` holds at least the fixed sections of the message.
pub fn add_wait(message: &mut [u8], waited: Duration) {
    if message.len() < MessageHead::LEN + RequestPart::LEN {
        return;
    }
    let (head, rest) = message.split_at_mut(MessageHead::LEN);
    let head = MessageHead::unchecked(head);
    if (head.magic(), head.kind()) != (MAGIC, DelegateKind::Request as u8) {
        return;
    }
    let waited = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
    let mut part = RequestPart::unchecked(rest);
    if part.deadline() != u32::MAX {
        part.set_deadline(part.deadline().saturating_sub(waited));
    }
    part.set_age(part.age().saturating_add(waited));
}

/// Id of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResponseId {
    /// Response `n` of a context, from 1: message number −n.
    Numbered(ContextId, u32),
    /// Only message that this request led to.
    Sole(Branch),
}

/// Head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegateResponse {
    /// Id of the call.
    pub call: ContextId,
    /// Id of the response.
    pub id: ResponseId,
    /// Whether the response has no content. Such a response ends its request or carries a manifest.
    pub null: bool,
    /// Node that repeats the response, if another node sent it first.
    pub again: Option<NodeId>,
    /// Manifest in the message, if any.
    pub manifest: Option<RequestManifest>,
}

/// Head of a failure message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFailure {
    /// Id of the call.
    pub call: ContextId,
    /// Failed request.
    pub request: RequestId,
    /// gRPC status code, not 0.
    pub code: u8,
    /// Length of the error text in bytes. The text is the first part of the payload, the application's details are the
    /// rest.
    pub text: u16,
    /// Server that a delegated request did not reach, if this is the cause.
    pub unreachable: Option<SocketAddr>,
}

/// Subject of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PingSubject {
    /// A request.
    Request(RequestId),
    /// An execution that a manifest named.
    Context(ContextId),
}

/// Question to a server about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    /// Id of the call.
    pub call: ContextId,
    /// Subject of the question.
    pub subject: PingSubject,
    /// Whether the server must abort the request.
    pub abort: bool,
    /// Number of the caller's round of pings.
    pub round: u32,
    /// Number of the first request whose address the answer lists, from 1.
    pub first: u32,
}

/// Head of a pong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pong {
    /// Id of the call.
    pub call: ContextId,
    /// Subject of the ping.
    pub subject: PingSubject,
    /// Round of the ping.
    pub round: u32,
    /// COMPLETE, SOLE, CHAINED, ABORTED, STALLED, WAITING and FAILED of [`DelegateFlags`].
    pub flags: u16,
    /// Context of the execution.
    pub context: ContextId,
    /// Requests sent so far.
    pub requests: u32,
    /// Responses sent so far.
    pub responses: u32,
    /// Number of the request whose address is first in the list.
    pub first: u32,
    /// gRPC status code, if the request has failed.
    pub code: u16,
    /// Node that sends the pong.
    pub sender: NodeId,
}

/// Permission to send responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseGrant {
    /// Id of the call.
    pub call: ContextId,
    /// Context that may send.
    pub context: ContextId,
    /// Total number of permitted responses.
    pub responses: u32,
}

/// Head of a trace span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSpan {
    /// Id of the call.
    pub call: ContextId,
    /// Fixed section of the span.
    pub span: SpanPartRepr,
}

/// Load report of a server (RackSched §3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadReport {
    /// Requests that wait or run at the sender.
    pub load: u32,
}

/// Parsed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegateMessage<'a> {
    /// Request; the application's message is the payload.
    Request(DelegateRequest),
    /// Response; the application's message is the payload.
    Response(DelegateResponse),
    /// Failure; the error text and the application's details are the payload.
    Fault(RequestFailure),
    /// Question about a request.
    Ping(Ping),
    /// Answer to a ping, with the addresses that requests were sent to.
    Pong(Pong, PongAddresses<'a>),
    /// Permission to send more responses.
    Grant(ResponseGrant),
    /// Trace span; the label is the payload.
    Span(TraceSpan),
    /// Load of the sender.
    Load(LoadReport),
    /// Shards of the sender.
    Shards(ShardPorts<'a>),
}

/// Ports of a node's shards, in their order, at the IP address of the node; that of the node itself is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardPorts<'a>(&'a [[u8; 2]]);

impl ShardPorts<'_> {
    /// Ports in the order of the shards, two at least.
    pub fn ports(&self) -> impl ExactSizeIterator<Item = u16> {
        self.0.iter().map(|port| u16::from_be_bytes(*port))
    }
}

/// Id of the call that a message belongs to, if it has a head; the rest of the message may be invalid.
#[must_use]
pub fn call_of(message: &[u8]) -> Option<ContextId> {
    let head = MessageHead::unchecked(message.first_chunk::<{ MessageHead::LEN }>()?);
    (head.magic() == MAGIC).then(|| head.call())
}

/// Parses a message. Returns the head and the offset of the payload.
///
/// # Errors
/// First violation found.
pub fn parse(bytes: &[u8]) -> Result<(DelegateMessage<'_>, usize), Error> {
    let mut cursor = Cursor { bytes, at: 0 };
    let head = MessageHead::unchecked(cursor.take(MessageHead::LEN)?).repr();
    if head.magic != MAGIC {
        return Err(Error::Value { field: "magic", value: head.magic.into() });
    }
    let MessageHeadRepr { flags, call, .. } = head;
    let has = |flag| flags & flag != 0;
    let message = match DelegateKind::parse(head.kind)? {
        DelegateKind::Request => DelegateMessage::Request(cursor.request(flags, call)?),
        DelegateKind::Response => {
            let id = ResponsePart::unchecked(cursor.take(ResponsePart::LEN)?).id();
            nonzero("response number", id.number())?;
            let id = if has(DelegateFlags::SOLE) {
                ResponseId::Sole(id)
            } else {
                ResponseId::Numbered(id.context(), id.number())
            };
            let again = if has(DelegateFlags::AGAIN) { Some(cursor.node()?) } else { None };
            DelegateMessage::Response(DelegateResponse {
                call,
                id,
                null: has(DelegateFlags::NULL),
                again,
                manifest: cursor.manifest(flags)?,
            })
        }
        DelegateKind::Fault => {
            let part = FaultPart::unchecked(cursor.take(FaultPart::LEN)?).repr();
            let FaultPartRepr { request, code, text, port, ip } = part;
            nonzero("status code", code.into())?;
            let unreachable = (port != 0).then(|| SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port));
            DelegateMessage::Fault(RequestFailure { call, request, code, text, unreachable })
        }
        DelegateKind::Ping => {
            let PingPartRepr { subject, round, first } = PingPart::unchecked(cursor.take(PingPart::LEN)?).repr();
            let subject = self::subject(subject, flags);
            DelegateMessage::Ping(Ping { call, subject, abort: has(DelegateFlags::ABORT), round, first: first.max(1) })
        }
        DelegateKind::Pong => {
            let part = PongPart::unchecked(cursor.take(PongPart::LEN)?).repr();
            let count = usize::from(part.count);
            if count > PAGE {
                return Err(Error::Value { field: "addresses", value: part.count.into() });
            }
            let PongPartRepr { round, context, requests, responses, first, code, sender, .. } = part;
            let subject = self::subject(part.subject, flags);
            let addresses = PongAddresses(cursor.take(count * address::V6)?);
            let first = first.max(1);
            let pong = Pong { call, subject, round, flags, context, requests, responses, first, code, sender };
            DelegateMessage::Pong(pong, addresses)
        }
        DelegateKind::Grant => {
            let GrantPartRepr { context, responses } = GrantPart::unchecked(cursor.take(GrantPart::LEN)?).repr();
            DelegateMessage::Grant(ResponseGrant { call, context, responses })
        }
        DelegateKind::Span => {
            DelegateMessage::Span(TraceSpan { call, span: SpanPart::unchecked(cursor.take(SpanPart::LEN)?).repr() })
        }
        DelegateKind::Shards => {
            let (ports, rest) = cursor.take(bytes.len() - cursor.at)?.as_chunks();
            if !rest.is_empty() || !(2..=SHARDS_MAX).contains(&ports.len()) {
                return Err(Error::Value { field: "ports", value: bytes.len() as u64 });
            }
            DelegateMessage::Shards(ShardPorts(ports))
        }
        DelegateKind::Load => {
            let LoadPartRepr { load } = LoadPart::unchecked(cursor.take(LoadPart::LEN)?).repr();
            DelegateMessage::Load(LoadReport { load })
        }
    };
    let with_payload = matches!(head.kind, 1..=3 | 7);
    if !with_payload && cursor.at != bytes.len() {
        return Err(Error::Length { expected: cursor.at, got: bytes.len() });
    }
    Ok((message, cursor.at))
}

fn nonzero(field: &'static str, value: u32) -> Result<(), Error> {
    if value == 0 { Err(Error::Value { field, value: 0 }) } else { Ok(()) }
}

fn subject(id: RequestId, flags: u16) -> PingSubject {
    if flags & DelegateFlags::BY_CONTEXT != 0 {
        PingSubject::Context(id.branch().context())
    } else {
        PingSubject::Request(id)
    }
}

/// Reader of a message, section by section.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let end = self.at + len;
        let taken = self.bytes.get(self.at..end).ok_or(Error::Short { expected: end, got: self.bytes.len() })?;
        self.at = end;
        Ok(taken)
    }

    fn address(&mut self, v6: bool) -> Result<SocketAddr, Error> {
        Ok(address::get(self.take(address::len(v6))?, v6))
    }

    fn request(&mut self, flags: u16, call: ContextId) -> Result<DelegateRequest, Error> {
        let part = RequestPart::unchecked(self.take(RequestPart::LEN)?).repr();
        let RequestPartRepr { request, depth, terms, ended, deadline, age } = part;
        nonzero("request number", request.branch().number())?;
        let reply = self.address(flags & DelegateFlags::REPLY_V6 != 0)?;
        let has_sender = request.seq() > 0 || flags & DelegateFlags::AGAIN != 0;
        let sender = if has_sender { self.node()? } else { request.branch().context().node() };
        let (gc, credit, manifest) = (terms >> 4, terms & 0xf, self.manifest(flags)?);
        let flags = flags & (DelegateFlags::TRACED | DelegateFlags::ONCE);
        Ok(DelegateRequest { flags, call, request, depth, gc, credit, ended, deadline, age, reply, sender, manifest })
    }

    fn node(&mut self) -> Result<NodeId, Error> {
        Ok(NodeId::from_be_bytes(*self.take(size_of::<NodeId>())?.first_chunk().expect("as taken")))
    }

    fn manifest(&mut self, flags: u16) -> Result<Option<RequestManifest>, Error> {
        if flags & DelegateFlags::MANIFEST == 0 {
            return Ok(None);
        }
        let part = ManifestPart::unchecked(self.take(ManifestPart::LEN)?).repr();
        let server = self.address(flags & DelegateFlags::MANIFEST_V6 != 0)?;
        let ManifestPartRepr { request, context, requests, responses } = part;
        nonzero("request number of a manifest", request.number())?;
        let (requests, responses) = (requests.get(), responses.get());
        Ok(Some(RequestManifest { request, context, requests, responses, server }))
    }
}

/// Code for the ended calls of a caller (DPC §4.4.4), from the number of a call and the number of the oldest call in
/// progress. Code k says: all calls with a number less than `number` − (2^k − 1) have ended.
#[must_use]
pub const fn ended_code(number: u32, oldest: u32) -> u8 {
    let distance = number.wrapping_sub(oldest);
    // Numbers wrap: half of them are earlier, half later.
    if distance > u32::MAX / 2 { u8::MAX } else { (u32::BITS - distance.leading_zeros()) as u8 }
}

/// Number before which all calls of the caller have ended, from `number` of a call and its [`ended_code`].
#[must_use]
pub const fn ended_before(number: u32, code: u8) -> Option<u32> {
    if code < 31 { Some(number.wrapping_sub((1 << code) - 1)) } else { None }
}
