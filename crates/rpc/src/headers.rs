//! Metadata by which a channel tells the server's layer what a call is, and what it tells the caller.

use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Status};

/// The typed field was dealt with as map frames: the call is for the handler.
pub(crate) const CALL: HeaderName = HeaderName::from_static("pathcall-call");
/// The caller's own name for a call, which the server does once however often it is sent: set by the
/// application on calls of a channel with a journal. Any bytes that metadata may have, at most 128.
pub const CALL_ID: &str = "pathcall-call-id";
/// The call reads the map: the layer answers it, typed keys are in the message.
pub(crate) const QUERY: HeaderName = HeaderName::from_static("pathcall-query");
/// Secret of the caller's session, in hexadecimal digits: without it the two above are not believed.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("pathcall-session");
/// Of a delegated request that the server's own layer makes: its layers have looked at it.
pub(crate) const ADMITTED: HeaderName = HeaderName::from_static("pathcall-admitted");
/// What channels say to layers, and nobody else sees.
pub(crate) const INTERNAL: [HeaderName; 4] = [CALL, QUERY, SESSION, ADMITTED];
/// In the reply of a counted call: whether `CntFwd` forwarded it.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("pathcall-forwarded");
/// In the reply of a call that took locks: for how many milliseconds at least they are the caller's,
/// counted from when the reply is there.
pub(crate) const LEASE_MS: HeaderName = HeaderName::from_static("pathcall-lease-ms");
/// The same: their fencing tokens, by commas, in the order of the keys: integers first, and bytes
/// compared. In a call that gives locks back: the grants that are given back.
pub(crate) const FENCING_TOKEN: HeaderName = HeaderName::from_static("pathcall-fencing-token");

/// In the reply of a placed call: who has answered it, `cpu` or `acc`.
pub const ROLE: &str = "pathcall-role";

/// Metadata of one hop, or of gRPC itself.
const OF_THE_HOP: [&str; 6] = ["content-type", "te", "user-agent", "host", "connection", "content-length"];
/// Metadata that traces a call, and says nothing of who makes it.
const OF_TRACES: [&str; 6] = ["traceparent", "tracestate", "baggage", "b3", "x-request-id", "x-cloud-trace-context"];

/// Whether metadata is the application's own: what is neither the hop's, nor gRPC's, nor Pathcall's.
pub(crate) fn is_the_applications(name: &HeaderName) -> bool {
    let name = name.as_str();
    !OF_THE_HOP.contains(&name) && !name.starts_with("grpc-") && !INTERNAL.iter().any(|own| own == name)
}

/// Whether a service may let a call pass, or not, by this metadata.
pub(crate) fn admits_by(name: &HeaderName) -> bool {
    is_the_applications(name) && !OF_TRACES.contains(&name.as_str()) && !name.as_str().starts_with("x-b3-")
}

/// The application's own metadata of a call.
pub(crate) fn of_the_call(headers: &HeaderMap) -> HeaderMap {
    let own = headers.iter().filter(|(name, _)| is_the_applications(name));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A request of the layer, with the metadata of the call that needs it.
pub(crate) fn with<T>(headers: &HeaderMap, message: T) -> Request<T> {
    Request::from_parts(MetadataMap::from_headers(of_the_call(headers)), Extensions::new(), message)
}

/// A session's secret as it is written.
pub(crate) fn of_session(id: &[u8]) -> Option<HeaderValue> {
    let text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut value = HeaderValue::from_maybe_shared(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The secret that is written here.
pub(crate) fn session_of(value: &HeaderValue) -> Option<[u8; 16]> {
    let text = value.to_str().ok().filter(|text| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()))?;
    let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
    let mut id = [0; 16];
    for (at, slot) in id.iter_mut().enumerate() {
        *slot = byte(at)?;
    }
    Some(id)
}

/// Fencing tokens as they are written.
pub(crate) fn of_tokens(tokens: &[u64]) -> Option<HeaderValue> {
    let texts: Vec<String> = tokens.iter().map(u64::to_string).collect();
    HeaderValue::from_maybe_shared(texts.join(",")).ok()
}

/// The fencing tokens that a call for this many keys names; none if it names none.
pub(crate) fn tokens(headers: &HeaderMap, keys: usize) -> Result<Vec<u64>, Status> {
    let Some(value) = headers.get(FENCING_TOKEN) else { return Ok(Vec::new()) };
    let parse = |text: &str| text.split(',').map(|token| token.trim().parse().ok()).collect::<Option<Vec<u64>>>();
    let tokens = value.to_str().ok().and_then(parse).filter(|tokens| tokens.len() == keys);
    tokens.ok_or_else(|| {
        Status::invalid_argument(format!("{FENCING_TOKEN}: expected {keys} numbers, one for each key, got {value:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_round_trips() {
        let id = std::array::from_fn(|at| 17 * at as u8);
        assert_eq!(session_of(&of_session(&id).expect("digits")), Some(id));
        for wrong in ["", "00", "0011223344556677889900aabbccddeg", "+11223344556677889900aabbccddee"] {
            assert_eq!(session_of(&HeaderValue::from_static(wrong)), None, "{wrong:?}");
        }
    }

    #[test]
    fn tokens_round_trip() {
        for tokens in [vec![7], vec![1 << 40, 3, u64::MAX]] {
            let headers = HeaderMap::from_iter([(FENCING_TOKEN, of_tokens(&tokens).expect("digits"))]);
            assert_eq!(super::tokens(&headers, tokens.len()).expect("numbers"), tokens);
            let error = super::tokens(&headers, 2).expect_err("another number of keys");
            assert!(error.message().starts_with("pathcall-fencing-token: expected 2 numbers"), "{error}");
        }
        assert_eq!(super::tokens(&HeaderMap::new(), 2).expect("none"), Vec::<u64>::new());
        let text = HeaderMap::from_iter([(FENCING_TOKEN, HeaderValue::from_static("7,x"))]);
        assert!(super::tokens(&text, 2).is_err());
    }
}
