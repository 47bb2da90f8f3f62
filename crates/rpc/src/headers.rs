//! Metadata by which a channel tells the server's layer what a call is, and what it tells the caller.

use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::Status;

/// The typed field was dealt with as map frames: the call is for the handler.
pub(crate) const CALL: HeaderName = HeaderName::from_static("pathcall-call");
/// The caller's own name for a call, which the server does once however often it is sent: set by the
/// application on calls of a channel with a journal. Any bytes that metadata may have, at most 128.
pub const CALL_ID: &str = "pathcall-call-id";
/// The call reads the map: the layer answers it, typed keys are in the message.
pub(crate) const QUERY: HeaderName = HeaderName::from_static("pathcall-query");
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
