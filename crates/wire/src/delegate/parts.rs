//! Fixed sections of messages, and their flags.

use super::ids::{Branch, ContextId, NodeId, RequestId, U24};
use crate::Error;
use crate::header::header;

header! {
    /// View of the head of a message.
    view MessageHead;
    /// Values of a head.
    repr MessageHeadRepr;
    length 14;
    /// [`super::MAGIC`].
    magic (set_magic): u8, 0;
    /// Number of a [`DelegateKind`].
    kind (set_kind): u8, 1;
    /// [`DelegateFlags`].
    flags (set_flags): u16, 2;
    /// Id of the call (the thesis' DPC id): a context of the caller.
    call (set_call): ContextId, 4;
}

header! {
    /// View of a request's section. It precedes the address for replies, the sender's node id if the branch was
    /// inherited, and the manifest, if any.
    view RequestPart;
    /// Values of a request's section.
    repr RequestPartRepr;
    length 25;
    /// Id of the request.
    request (set_request): RequestId, 0;
    /// Number of servers on the path before this one.
    depth (set_depth): u8, 14;
    /// Two codes: record lifetime (upper 4 bits), and number of replies without a grant (lower 4 bits).
    terms (set_terms): u8, 15;
    /// Code for the ended calls of this caller, see [`super::message::ended_before`].
    ended (set_ended): u8, 16;
    /// Time left for the call in microseconds; all ones: no limit.
    deadline (set_deadline): u32, 17;
    /// Time in microseconds that the call has spent at its caller and servers.
    age (set_age): u32, 21;
}

header! {
    /// View of a response's id.
    view ResponsePart;
    /// Values of a response's id.
    repr ResponsePartRepr;
    length 13;
    /// Context and number of the response; with [`DelegateFlags::SOLE`], branch of its request.
    id (set_id): Branch, 0;
}

header! {
    /// View of a manifest (DPC §4.3). The address of the server that made the manifest follows.
    view ManifestPart;
    /// Values of a manifest.
    repr ManifestPartRepr;
    length 29;
    /// Executed request.
    request (set_request): Branch, 0;
    /// Context of the execution.
    context (set_context): ContextId, 13;
    /// Requests sent by the execution.
    requests (set_requests): U24, 23;
    /// Responses sent by the execution.
    responses (set_responses): U24, 26;
}

header! {
    /// View of a failure's section; the error text and the application's details follow.
    view FaultPart;
    /// Values of a failure's section.
    repr FaultPartRepr;
    length 35;
    /// Failed request.
    request (set_request): RequestId, 0;
    /// gRPC status code, not 0.
    code (set_code): u8, 14;
    /// Length of the error text in bytes.
    text (set_text): u16, 15;
    /// Port of the server that a delegated request did not reach; 0 if the failure has another cause.
    port (set_port): u16, 17;
    /// IP address of that server; IPv4 addresses are mapped to IPv6.
    ip (set_ip): u128, 19;
}

header! {
    /// View of a ping's section.
    view PingPart;
    /// Values of a ping's section.
    repr PingPartRepr;
    length 22;
    /// Request of the question; with [`DelegateFlags::BY_CONTEXT`], a context in its first ten bytes.
    subject (set_subject): RequestId, 0;
    /// Number of the caller's round of pings.
    round (set_round): u32, 14;
    /// Number of the first request whose address the answer lists, from 1.
    first (set_first): u32, 18;
}

header! {
    /// View of a pong's section. The addresses that requests were sent to follow, as [`super::PongAddresses`].
    view PongPart;
    /// Values of a pong's section.
    repr PongPartRepr;
    length 50;
    /// Subject of the ping.
    subject (set_subject): RequestId, 0;
    /// Round of the ping.
    round (set_round): u32, 14;
    /// Context of the execution.
    context (set_context): ContextId, 18;
    /// Requests sent so far.
    requests (set_requests): u32, 28;
    /// Responses sent so far.
    responses (set_responses): u32, 32;
    /// Number of the request whose address is first in the list, from 1.
    first (set_first): u32, 36;
    /// Number of addresses that follow.
    count (set_count): u16, 40;
    /// gRPC status code, if the request has failed.
    code (set_code): u16, 42;
    /// Node that sends the pong. The context may belong to an earlier incarnation of it.
    sender (set_sender): NodeId, 44;
}

header! {
    /// View of a grant's section: permission for a context to send responses.
    view GrantPart;
    /// Values of a grant's section.
    repr GrantPartRepr;
    length 14;
    /// Context that may send.
    context (set_context): ContextId, 0;
    /// Total number of permitted responses.
    responses (set_responses): u32, 10;
}

header! {
    /// View of a span's section; a label follows.
    view SpanPart;
    /// Values of a span's section: trace record of one execution (DPC §3.5.2).
    repr SpanPartRepr;
    length 44;
    /// Executed request.
    request (set_request): RequestId, 0;
    /// Context of the execution.
    context (set_context): ContextId, 14;
    /// Age of the call at the arrival of the request, in microseconds.
    age (set_age): u32, 24;
    /// Time in microseconds from arrival to the start of the execution.
    waited (set_waited): u32, 28;
    /// Duration of the execution in microseconds.
    ran (set_ran): u32, 32;
    /// Requests sent.
    requests (set_requests): u32, 36;
    /// Responses sent.
    responses (set_responses): u32, 40;
}

header! {
    /// View of the section of a load report.
    view LoadPart;
    /// Values of the section of a load report.
    repr LoadPartRepr;
    length 4;
    /// Requests that wait or run at the sender.
    load (set_load): u32, 0;
}

header! {
    /// View of the section of a plain remote call's request on the same transport, the baseline of delegated calls. Its
    /// response has the head only.
    view PlainRequest;
    /// Values of the section of a plain remote call's request.
    repr PlainRequestRepr;
    length 8;
    /// Time left for the call in microseconds.
    deadline (set_deadline): u32, 0;
    /// Time in microseconds since the start of the work that the call belongs to.
    age (set_age): u32, 4;
}

/// Views of bytes whose length is checked already.
macro_rules! unchecked {
    ($($view:ident)*) => { $( impl<T: AsRef<[u8]>> $view<T> {
        #[inline]
        pub(super) const fn unchecked(bytes: T) -> Self {
            Self(bytes)
        }
    } )* };
}
unchecked! { MessageHead RequestPart ResponsePart ManifestPart FaultPart PingPart PongPart GrantPart SpanPart LoadPart }

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DelegateKind {
    /// Request, from the caller or a server.
    Request = 1,
    /// Response, from a server to the caller.
    Response = 2,
    /// Failure of a request and thus of the call, from a server to the caller.
    Fault = 3,
    /// Question about a request, from the caller.
    Ping = 4,
    /// Answer to a ping, from a server.
    Pong = 5,
    /// Permission to send more responses, from the caller.
    Grant = 6,
    /// Trace record of an execution, from a server to the caller of a traced call.
    Span = 7,
    /// Load of a server, for a node that sends it requests. It belongs to no call.
    Load = 8,
    /// Shards of a server, for a node that sends it requests. It belongs to no call.
    Shards = 9,
}

impl DelegateKind {
    /// Kind of a message, if it names one; the rest of the message may be invalid.
    #[must_use]
    pub fn of(message: &[u8]) -> Option<Self> {
        message.get(1).and_then(|kind| Self::parse(*kind).ok())
    }

    pub(super) const fn parse(value: u8) -> Result<Self, Error> {
        Ok(match value {
            1 => Self::Request,
            2 => Self::Response,
            3 => Self::Fault,
            4 => Self::Ping,
            5 => Self::Pong,
            6 => Self::Grant,
            7 => Self::Span,
            8 => Self::Load,
            9 => Self::Shards,
            _ => return Err(Error::Value { field: "kind", value: value as u64 }),
        })
    }
}

/// Bits of `flags` in a message head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegateFlags;

impl DelegateFlags {
    /// The message contains a manifest.
    pub const MANIFEST: u16 = 1 << 0;
    /// The address for replies is IPv6.
    pub const REPLY_V6: u16 = 1 << 1;
    /// The address in the manifest is IPv6.
    pub const MANIFEST_V6: u16 = 1 << 2;
    /// The response is the only message that its request led to; its id is the branch of the request (DPC §4.3.1).
    pub const SOLE: u16 = 1 << 3;
    /// Null response: it only carries a manifest or ends its request.
    pub const NULL: u16 = 1 << 4;
    /// Servers send trace spans.
    pub const TRACED: u16 = 1 << 5;
    /// Servers store the outcome together with the effect, and answer repeats from it (DPC §3.5.3).
    pub const ONCE: u16 = 1 << 6;
    /// Abort the request (DPC §4.5).
    pub const ABORT: u16 = 1 << 7;
    /// The subject of the ping is a context of a manifest, not a request.
    pub const BY_CONTEXT: u16 = 1 << 8;
    /// All messages of the request are sent.
    pub const COMPLETE: u16 = 1 << 9;
    /// The request sends no further messages: its call was aborted.
    pub const ABORTED: u16 = 1 << 10;
    /// The application reports that the execution makes no progress (DPC §4.4.5).
    pub const STALLED: u16 = 1 << 11;
    /// Responses are waiting for a grant.
    pub const WAITING: u16 = 1 << 12;
    /// The request has failed; the code says why.
    pub const FAILED: u16 = 1 << 13;
    /// The request led to exactly one request, which inherited its branch.
    pub const CHAINED: u16 = 1 << 14;
    /// Repeat after a restart: the id of the node that now sends the message follows the ids.
    pub const AGAIN: u16 = 1 << 15;
}
