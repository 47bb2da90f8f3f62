//! Metadata by which a channel tells the server's layer what a call is.

use http::HeaderName;

/// The typed field was dealt with as map frames: the call is for the handler.
pub(crate) const CALL: HeaderName = HeaderName::from_static("pathcall-call");
/// The caller's own name for a call, which the server does once however often it is sent: set by the
/// application on calls of a channel with a journal. Any bytes that metadata may have, at most 128.
pub const CALL_ID: &str = "pathcall-call-id";
/// The call reads the map: the layer answers it, typed keys are in the message.
pub(crate) const QUERY: HeaderName = HeaderName::from_static("pathcall-query");
/// In the reply of a counted call: whether `CntFwd` forwarded it.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("pathcall-forwarded");
