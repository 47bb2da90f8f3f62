//! The fixed sections of messages, and what stands in them by bits.

use super::ids::{Branch, Context, NodeId, RequestId, U24};
use crate::Error;
use crate::header::header;

header! {
    /// View of the head of every message.
    view Head;
    /// Values of a head.
    repr HeadRepr;
    length 14;
    /// [`super::MAGIC`].
    magic (set_magic): u8, 0;
    /// A [`Kind`].
    kind (set_kind): u8, 1;
    /// [`Flags`].
    flags (set_flags): u16, 2;
    /// The call (the thesis' DPC id): a context of the caller.
    call (set_call): Context, 4;
}

header! {
    /// View of a request's own section; the address for replies follows, then the sender's node id if the
    /// branch was inherited, then the manifest if there is one.
    view RequestPart;
    /// Values of a request's section.
    repr RequestPartRepr;
    length 25;
    /// Which request of the call.
    request (set_request): RequestId, 0;
    /// Servers that it went through before.
    depth (set_depth): u8, 14;
    /// Codes: of the time that servers keep what they know, and of the replies that may go out ungranted.
    terms (set_terms): u8, 15;
    /// That calls of this caller so far before this one have ended, see [`super::message::ended_before`].
    ended (set_ended): u8, 16;
    /// Microseconds that the call has left; all ones: as many as it takes.
    deadline (set_deadline): u32, 17;
    /// Microseconds that the call has been with its caller and servers so far.
    age (set_age): u32, 21;
}

header! {
    /// View of a response's id.
    view ResponsePart;
    /// Values of a response's id.
    repr ResponsePartRepr;
    length 13;
    /// The context and the number of the response; if it is all that its request led to, that request's branch.
    id (set_id): Branch, 0;
}

header! {
    /// View of a manifest (DPC §4.3); the address of the server that made it follows.
    view ManifestPart;
    /// Values of a manifest.
    repr ManifestPartRepr;
    length 29;
    /// The request that was worked on.
    request (set_request): Branch, 0;
    /// The context in which that was.
    context (set_context): Context, 13;
    /// Requests that it sent on.
    requests (set_requests): U24, 23;
    /// Responses that it sent.
    responses (set_responses): U24, 26;
}

header! {
    /// View of an error's section; text follows.
    view FaultPart;
    /// Values of an error's section.
    repr FaultPartRepr;
    length 15;
    /// The request that failed.
    request (set_request): RequestId, 0;
    /// A status code of gRPC, not 0.
    code (set_code): u8, 14;
}

header! {
    /// View of a ping's section.
    view PingPart;
    /// Values of a ping's section.
    repr PingPartRepr;
    length 22;
    /// The request that is asked about; with [`Flags::BY_CONTEXT`], the context in its first ten bytes.
    subject (set_subject): RequestId, 0;
    /// The caller's round of pings.
    round (set_round): u32, 14;
    /// The first request that the answer is to tell the address of, from 1.
    first (set_first): u32, 18;
}

header! {
    /// View of a pong's section; addresses of requests that were sent on follow, as [`super::Addresses`].
    view PongPart;
    /// Values of a pong's section.
    repr PongPartRepr;
    length 50;
    /// As in the ping.
    subject (set_subject): RequestId, 0;
    /// As in the ping.
    round (set_round): u32, 14;
    /// The context in which the request is worked on.
    context (set_context): Context, 18;
    /// Requests sent on so far.
    requests (set_requests): u32, 28;
    /// Responses sent so far.
    responses (set_responses): u32, 32;
    /// The request whose address comes first, from 1.
    first (set_first): u32, 36;
    /// Addresses that follow.
    count (set_count): u16, 40;
    /// A status code of gRPC, if the request has failed.
    code (set_code): u16, 42;
    /// The process that says it: the context may be of one before it.
    sender (set_sender): NodeId, 44;
}

header! {
    /// View of a grant's section: a context may send this many responses.
    view GrantPart;
    /// Values of a grant's section.
    repr GrantPartRepr;
    length 14;
    /// The context that sends.
    context (set_context): Context, 0;
    /// Responses in all, from the first on.
    responses (set_responses): u32, 10;
}

header! {
    /// View of a span's section; a label follows.
    view SpanPart;
    /// Values of a span's section: what one server did for a traced call (DPC §3.5.2).
    repr SpanPartRepr;
    length 44;
    /// The request.
    request (set_request): RequestId, 0;
    /// The context in which it was worked on.
    context (set_context): Context, 14;
    /// The call's age when the request came, in microseconds.
    age (set_age): u32, 24;
    /// Microseconds until work on it began.
    waited (set_waited): u32, 28;
    /// Microseconds of work.
    ran (set_ran): u32, 32;
    /// Requests sent on.
    requests (set_requests): u32, 36;
    /// Responses sent.
    responses (set_responses): u32, 40;
}

header! {
    /// View of what a request of a plain remote call says on the same transport: the twin that delegate is
    /// compared with. Its response has the head alone.
    view Twin;
    /// Values of a twin's request.
    repr TwinRepr;
    length 8;
    /// Microseconds that the call has left.
    deadline (set_deadline): u32, 0;
    /// Microseconds that the work which the call belongs to has been under way.
    age (set_age): u32, 4;
}

/// Views of bytes that are known to be long enough.
macro_rules! unchecked {
    ($($view:ident)*) => { $( impl<T: AsRef<[u8]>> $view<T> {
        #[inline]
        pub(super) const fn unchecked(bytes: T) -> Self {
            Self(bytes)
        }
    } )* };
}
unchecked! { Head RequestPart ResponsePart ManifestPart FaultPart PingPart PongPart GrantPart SpanPart }

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Work, from the caller or a server.
    Request = 1,
    /// An answer, from a server to the caller.
    Response = 2,
    /// From a server to the caller: the request failed, and so has the call.
    Fault = 3,
    /// From the caller: how is it going?
    Ping = 4,
    /// From a server: like this.
    Pong = 5,
    /// From the caller: go on sending.
    Grant = 6,
    /// From a server to the caller: what it did, if the call is traced.
    Span = 7,
}

impl Kind {
    pub(super) const fn parse(value: u8) -> Result<Self, Error> {
        Ok(match value {
            1 => Self::Request,
            2 => Self::Response,
            3 => Self::Fault,
            4 => Self::Ping,
            5 => Self::Pong,
            6 => Self::Grant,
            7 => Self::Span,
            _ => return Err(Error::Value { field: "kind", value: value as u64 }),
        })
    }
}

/// Bits of a head's `flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags;

impl Flags {
    /// A manifest is part of it.
    pub const MANIFEST: u16 = 1 << 0;
    /// The address for replies is of IPv6.
    pub const REPLY_V6: u16 = 1 << 1;
    /// The manifest's address is of IPv6.
    pub const MANIFEST_V6: u16 = 1 << 2;
    /// The response is all that its request led to: its id is that request's (DPC §4.3.1).
    pub const SOLE: u16 = 1 << 3;
    /// The response is only there to carry a manifest, or to end its request (the null response).
    pub const NULL: u16 = 1 << 4;
    /// Servers send spans.
    pub const TRACED: u16 = 1 << 5;
    /// Servers record what they did with the effect, and answer repeats from that (DPC §3.5.3).
    pub const ONCE: u16 = 1 << 6;
    /// Stop working on it (DPC §4.5).
    pub const ABORT: u16 = 1 << 7;
    /// The ping asks for the context of a manifest, not for a request.
    pub const BY_CONTEXT: u16 = 1 << 8;
    /// All that the request leads to was sent.
    pub const COMPLETE: u16 = 1 << 9;
    /// The request leads to nothing more: its call was aborted.
    pub const ABORTED: u16 = 1 << 10;
    /// The application says that it gets nowhere (DPC §4.4.5).
    pub const STALLED: u16 = 1 << 11;
    /// Responses wait for a grant.
    pub const WAITING: u16 = 1 << 12;
    /// The request has failed, see the code.
    pub const FAILED: u16 = 1 << 13;
    /// All that the request led to is one request, which has inherited its branch.
    pub const CHAINED: u16 = 1 << 14;
    /// What is said once more, after a restart: the id of the process that says it now follows the ids.
    pub const AGAIN: u16 = 1 << 15;
}
