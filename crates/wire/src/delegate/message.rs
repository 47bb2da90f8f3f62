//! Whole messages, taken apart with all checks at once; [`super::encode`] puts them together.

use core::net::SocketAddr;
use core::time::Duration;

use super::address::{self, Addresses};
use super::ids::{Branch, Context, NodeId, RequestId};
use super::parts::{
    FaultPart, FaultPartRepr, Flags, GrantPart, GrantPartRepr, Head, HeadRepr, Kind, ManifestPart, ManifestPartRepr,
    PingPart, PingPartRepr, PongPart, PongPartRepr, RequestPart, RequestPartRepr, ResponsePart, SpanPart, SpanPartRepr,
};
use super::{MAGIC, PAGE};
use crate::Error;

/// What one execution led to, in a fixed number of bytes (DPC §4.3.1, Fig. 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manifest {
    /// The request that was worked on.
    pub request: Branch,
    /// The context in which that was.
    pub context: Context,
    /// Requests that it sent on: numbers 1 to this.
    pub requests: u32,
    /// Responses that it sent: numbers 1 to this, those without content included.
    pub responses: u32,
    /// Where the server is that made it (§4.4.1).
    pub server: SocketAddr,
}

/// A request's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Of [`Flags`]: TRACED, ONCE.
    pub flags: u16,
    /// The call.
    pub call: Context,
    /// Which request of it.
    pub request: RequestId,
    /// Servers that it went through before.
    pub depth: u8,
    /// For how long servers keep what they know of it: 2 to the power of this milliseconds, 0 to 15.
    pub gc: u8,
    /// Responses that each server may send ungranted: 2 to the power of this, 0 to 15.
    pub credit: u8,
    /// See [`ended_before`].
    pub ended: u8,
    /// Microseconds that the call has left; `u32::MAX`: no limit.
    pub deadline: u32,
    /// Microseconds that the call has been with its caller and servers.
    pub age: u32,
    /// Where responses go (DPC §4.2).
    pub reply: SocketAddr,
    /// Who sent it. It travels where the branch does not say so.
    pub sender: NodeId,
    /// The manifest that it carries.
    pub manifest: Option<Manifest>,
}

/// Takes from a request's time what it has waited since it was written; of any other message it changes nothing. `message` is the
/// beginning of one, as long as its parts have it.
pub fn add_wait(message: &mut [u8], waited: Duration) {
    if message.len() < Head::LEN + RequestPart::LEN {
        return;
    }
    let (head, rest) = message.split_at_mut(Head::LEN);
    let head = Head::unchecked(head);
    if (head.magic(), head.kind()) != (MAGIC, Kind::Request as u8) {
        return;
    }
    let waited = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
    let mut part = RequestPart::unchecked(rest);
    if part.deadline() != u32::MAX {
        part.set_deadline(part.deadline().saturating_sub(waited));
    }
    part.set_age(part.age().saturating_add(waited));
}

/// What a response's id is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ids {
    /// The `n`th response of a context, from 1: message number −n.
    Numbered(Context, u32),
    /// All that came of this request.
    Sole(Branch),
}

/// A response's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The call.
    pub call: Context,
    /// Which response.
    pub id: Ids,
    /// Whether it has no content, and only ends its request or carries a manifest.
    pub null: bool,
    /// The process that says it once more, if the one that said it first was another.
    pub again: Option<NodeId>,
    /// The manifest that it carries.
    pub manifest: Option<Manifest>,
}

/// An error's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The call.
    pub call: Context,
    /// The request that failed.
    pub request: RequestId,
    /// A status code of gRPC, not 0.
    pub code: u8,
}

/// Whom a ping is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A request.
    Request(RequestId),
    /// The execution that a manifest told of.
    Context(Context),
}

/// A ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    /// The call.
    pub call: Context,
    /// What is asked about.
    pub subject: Subject,
    /// Whether it is to stop.
    pub abort: bool,
    /// The caller's round of pings.
    pub round: u32,
    /// The first request that the answer is to tell the address of, from 1.
    pub first: u32,
}

/// A pong's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pong {
    /// The call.
    pub call: Context,
    /// As in the ping.
    pub subject: Subject,
    /// As in the ping.
    pub round: u32,
    /// Of [`Flags`]: COMPLETE, SOLE, CHAINED, ABORTED, STALLED, WAITING, FAILED.
    pub flags: u16,
    /// The context in which the request is worked on.
    pub context: Context,
    /// Requests sent on so far.
    pub requests: u32,
    /// Responses sent so far.
    pub responses: u32,
    /// The request whose address comes first.
    pub first: u32,
    /// A status code of gRPC, if it has failed.
    pub code: u16,
    /// The process that says it.
    pub sender: NodeId,
}

/// A grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The call.
    pub call: Context,
    /// Who may send.
    pub context: Context,
    /// How many responses, from the first on.
    pub responses: u32,
}

/// A span's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSpan {
    /// The call.
    pub call: Context,
    /// The rest.
    pub span: SpanPartRepr,
}

/// A message, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// Work.
    Request(Request),
    /// An answer.
    Response(Response),
    /// A failure; the text is the payload.
    Fault(Fault),
    /// A question.
    Ping(Ping),
    /// Its answer, with addresses of requests that were sent on.
    Pong(Pong, Addresses<'a>),
    /// Leave to go on.
    Grant(Grant),
    /// A span; the label is the payload.
    Span(TraceSpan),
}

/// Takes a message apart: its head, and where its payload begins.
///
/// # Errors
/// The first thing found wrong.
pub fn parse(bytes: &[u8]) -> Result<(Message<'_>, usize), Error> {
    let mut cursor = Cursor { bytes, at: 0 };
    let head = Head::unchecked(cursor.take(Head::LEN)?).repr();
    if head.magic != MAGIC {
        return Err(Error::Value { field: "magic", value: head.magic.into() });
    }
    let HeadRepr { flags, call, .. } = head;
    let has = |flag| flags & flag != 0;
    let message = match Kind::parse(head.kind)? {
        Kind::Request => Message::Request(cursor.request(flags, call)?),
        Kind::Response => {
            let id = ResponsePart::unchecked(cursor.take(ResponsePart::LEN)?).id();
            nonzero("response number", id.number())?;
            let id = if has(Flags::SOLE) { Ids::Sole(id) } else { Ids::Numbered(id.context(), id.number()) };
            let again = if has(Flags::AGAIN) { Some(cursor.node()?) } else { None };
            Message::Response(Response { call, id, null: has(Flags::NULL), again, manifest: cursor.manifest(flags)? })
        }
        Kind::Fault => {
            let FaultPartRepr { request, code } = FaultPart::unchecked(cursor.take(FaultPart::LEN)?).repr();
            nonzero("status code", code.into())?;
            Message::Fault(Fault { call, request, code })
        }
        Kind::Ping => {
            let PingPartRepr { subject, round, first } = PingPart::unchecked(cursor.take(PingPart::LEN)?).repr();
            let subject = self::subject(subject, flags);
            Message::Ping(Ping { call, subject, abort: has(Flags::ABORT), round, first: first.max(1) })
        }
        Kind::Pong => {
            let part = PongPart::unchecked(cursor.take(PongPart::LEN)?).repr();
            let count = usize::from(part.count);
            if count > PAGE {
                return Err(Error::Value { field: "addresses", value: part.count.into() });
            }
            let PongPartRepr { round, context, requests, responses, first, code, sender, .. } = part;
            let subject = self::subject(part.subject, flags);
            let addresses = Addresses(cursor.take(count * address::V6)?);
            let first = first.max(1);
            let pong = Pong { call, subject, round, flags, context, requests, responses, first, code, sender };
            Message::Pong(pong, addresses)
        }
        Kind::Grant => {
            let GrantPartRepr { context, responses } = GrantPart::unchecked(cursor.take(GrantPart::LEN)?).repr();
            Message::Grant(Grant { call, context, responses })
        }
        Kind::Span => Message::Span(TraceSpan { call, span: SpanPart::unchecked(cursor.take(SpanPart::LEN)?).repr() }),
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

fn subject(id: RequestId, flags: u16) -> Subject {
    if flags & Flags::BY_CONTEXT != 0 { Subject::Context(id.branch().context()) } else { Subject::Request(id) }
}

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

    fn request(&mut self, flags: u16, call: Context) -> Result<Request, Error> {
        let part = RequestPart::unchecked(self.take(RequestPart::LEN)?).repr();
        let RequestPartRepr { request, depth, terms, ended, deadline, age } = part;
        nonzero("request number", request.branch().number())?;
        let reply = self.address(flags & Flags::REPLY_V6 != 0)?;
        let said = request.seq() > 0 || flags & Flags::AGAIN != 0;
        let sender = if said { self.node()? } else { request.branch().context().node() };
        let (gc, credit, manifest) = (terms >> 4, terms & 0xf, self.manifest(flags)?);
        let flags = flags & (Flags::TRACED | Flags::ONCE);
        Ok(Request { flags, call, request, depth, gc, credit, ended, deadline, age, reply, sender, manifest })
    }

    fn node(&mut self) -> Result<NodeId, Error> {
        Ok(NodeId::from_be_bytes(*self.take(size_of::<NodeId>())?.first_chunk().expect("as taken")))
    }

    fn manifest(&mut self, flags: u16) -> Result<Option<Manifest>, Error> {
        if flags & Flags::MANIFEST == 0 {
            return Ok(None);
        }
        let part = ManifestPart::unchecked(self.take(ManifestPart::LEN)?).repr();
        let server = self.address(flags & Flags::MANIFEST_V6 != 0)?;
        let ManifestPartRepr { request, context, requests, responses } = part;
        nonzero("request number of a manifest", request.number())?;
        let (requests, responses) = (requests.get(), responses.get());
        Ok(Some(Manifest { request, context, requests, responses, server }))
    }
}

/// The code that says which of a caller's calls have ended, with the number of one of its calls and of the
/// oldest that is in progress (DPC §4.4.4): a code of k says that all with numbers more than 2^k − 1 before
/// this one's have.
#[must_use]
pub const fn ended_code(number: u32, oldest: u32) -> u8 {
    let distance = number.wrapping_sub(oldest);
    // Half of the numbers are behind, half ahead.
    if distance > u32::MAX / 2 { u8::MAX } else { (u32::BITS - distance.leading_zeros()) as u8 }
}

/// The number before which all calls of the caller have ended, by the [`ended_code`] of the call with `number`.
#[must_use]
pub const fn ended_before(number: u32, code: u8) -> Option<u32> {
    if code < 31 { Some(number.wrapping_sub((1 << code) - 1)) } else { None }
}
