//! gRPC metadata between a channel and the server's layer, and metadata of replies.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use pathcall_endpoint::clone::Pushback;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Status};

use crate::message::reply::ARRAY_LANES_MAX;

/// Marks a call for the handler: the map operation is done.
pub(crate) const CALL: HeaderName = HeaderName::from_static("pathcall-call");
/// Metadata with the id of a call, which takes effect once even if it is sent several times. The application sets it on
/// calls of a channel with a journal. At most 128 bytes, any that metadata may have.
pub const CALL_ID: &str = "pathcall-call-id";
/// Metadata of a cloned call that is dearer than others of its method: units of the hedge budget that one extra request
/// takes, 1 to 1000. It overrides the method's `cost`.
pub const COST: &str = "pathcall-cost";
/// Metadata that names the gradient of a call whose filter has `lanes` int16 or int8: the channel keeps what is rounded
/// off for the next sum of the same name. Without it, gradients of equal length count as the same.
pub const TENSOR: &str = "pathcall-tensor";
/// Marks a direct call: the layer executes its map operation, too. The message is the whole message of the call.
pub(crate) const DIRECT: HeaderName = HeaderName::from_static("pathcall-direct");
/// Place of a sum whose request is for the handler: the number of its first chunk, and its number of lanes.
pub(crate) const SUM: HeaderName = HeaderName::from_static("pathcall-sum");
/// Reply metadata of such a request: the message has the array, which does not come by frames.
pub(crate) const SUM_IN_REPLY: HeaderName = HeaderName::from_static("pathcall-sum-in-reply");
/// Secret of the caller's session, in hexadecimal digits. The two marks above have no effect without it.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("pathcall-session");
/// Marks a delegated request of the server's own layer, which has already checked it.
pub(crate) const ADMITTED: HeaderName = HeaderName::from_static("pathcall-admitted");
/// Metadata of a delegated request: the addresses of servers that have failed, separated by commas.
pub(crate) const AVOID: HeaderName = HeaderName::from_static("pathcall-avoid");
/// Metadata from channels to layers; handlers do not see it.
pub(crate) const INTERNAL: [HeaderName; 6] = [CALL, DIRECT, SUM, SESSION, ADMITTED, AVOID];
/// Reply metadata of a counting call: whether `CntFwd` forwarded it.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("pathcall-forwarded");
/// Reply metadata of a call that took locks: minimum lease of the locks, milliseconds from the reply.
pub(crate) const LEASE_MS: HeaderName = HeaderName::from_static("pathcall-lease-ms");
/// Reply metadata of a call that took locks: the fencing tokens, separated by commas, in the order of the keys
/// (integers first, then byte order). In a call that releases locks: the grants to release.
pub(crate) const FENCING_TOKEN: HeaderName = HeaderName::from_static("pathcall-fencing-token");

/// Reply metadata of a placed call: the device that answered, `cpu` or `acc`.
pub const ROLE: &str = "pathcall-role";

/// Place of a sum, see [`SUM`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SumPlace {
    /// Number of the first chunk.
    pub(crate) first: u64,
    /// Number of lanes, at least 1.
    pub(crate) lanes: usize,
}

impl SumPlace {
    pub(crate) fn to_header(self) -> HeaderValue {
        // Digits and a slash are always valid.
        HeaderValue::from_str(&format!("{}/{}", self.first, self.lanes)).unwrap_or(HeaderValue::from_static("0/0"))
    }

    /// Place in a request's metadata. Arrays of a frame's caller have fewer than 2^32 chunks.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let (first, lanes) = headers.get(SUM)?.to_str().ok()?.split_once('/')?;
        let place = Self { first: first.parse().ok()?, lanes: lanes.parse().ok()? };
        (1..=ARRAY_LANES_MAX).contains(&place.lanes).then_some(place).filter(|place| place.first < u64::MAX / 2)
    }
}

/// Metadata with secrets of the caller.
const CREDENTIALS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];
/// Metadata of a failed call: time in milliseconds before which it is not to be sent again; a negative number: never
/// (gRPC A6).
pub const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// Metadata of one hop, or of gRPC itself.
const HOP_METADATA: [&str; 6] = ["content-type", "te", "user-agent", "host", "connection", "content-length"];
/// Metadata for tracing, which does not identify the caller.
const TRACE_METADATA: [&str; 6] =
    ["traceparent", "tracestate", "baggage", "b3", "x-request-id", "x-cloud-trace-context"];

/// Whether metadata belongs to the application: not to the hop, gRPC or Pathcall.
pub(crate) fn is_application_metadata(name: &HeaderName) -> bool {
    let name = name.as_str();
    !HOP_METADATA.contains(&name) && !name.starts_with("grpc-") && !INTERNAL.iter().any(|own| own == name)
}

/// Whether a service may decide by this metadata whether to admit a call. A fencing token names a grant, and differs in
/// each release: with it, each release would have to be admitted.
pub(crate) fn is_credential(name: &HeaderName) -> bool {
    let of_trace = TRACE_METADATA.contains(&name.as_str()) || name.as_str().starts_with("x-b3-");
    is_application_metadata(name) && name != FENCING_TOKEN && !of_trace
}

/// Metadata without the caller's credentials; `None` if there are none in it.
pub(crate) fn without_credentials(metadata: &MetadataMap) -> Option<MetadataMap> {
    let has_some = CREDENTIALS.iter().any(|name| metadata.contains_key(*name));
    has_some.then(|| {
        let mut rest = metadata.clone();
        CREDENTIALS.iter().for_each(|name| drop(rest.remove(*name)));
        rest
    })
}

/// Application metadata of a call.
pub(crate) fn application_metadata(headers: &HeaderMap) -> HeaderMap {
    let own = headers.iter().filter(|(name, _)| is_application_metadata(name));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Request to the layer with the application metadata of a call.
pub(crate) fn request_with<T>(headers: &HeaderMap, message: T) -> Request<T> {
    Request::from_parts(MetadataMap::from_headers(application_metadata(headers)), Extensions::new(), message)
}

/// Encodes a session's secret as metadata.
pub(crate) fn encode_session(id: &[u8]) -> Option<HeaderValue> {
    let text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut value = HeaderValue::from_maybe_shared(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Decodes a session's secret.
pub(crate) fn decode_session(value: &HeaderValue) -> Option<[u8; 16]> {
    let text = value.to_str().ok().filter(|text| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()))?;
    let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
    let mut id = [0; 16];
    for (at, slot) in id.iter_mut().enumerate() {
        *slot = byte(at)?;
    }
    Some(id)
}

/// Cost of a call's extra requests; `None` if its metadata has none.
pub(crate) fn decode_cost(headers: &HeaderMap) -> Result<Option<u16>, Status> {
    let Some(value) = headers.get(COST) else { return Ok(None) };
    let cost = value.to_str().ok().and_then(|text| text.parse().ok()).filter(|cost| (1..=1000).contains(cost));
    cost.map(Some).ok_or_else(|| Status::invalid_argument(format!("{COST}: expected 1 to 1000, got {value:?}")))
}

/// Encodes fencing tokens as metadata.
pub(crate) fn encode_tokens(tokens: &[u64]) -> Option<HeaderValue> {
    let texts: Vec<String> = tokens.iter().map(u64::to_string).collect();
    HeaderValue::from_maybe_shared(texts.join(",")).ok()
}

/// Fencing tokens of a call for this many keys; empty if the call names none.
pub(crate) fn decode_tokens(headers: &HeaderMap, keys: usize) -> Result<Vec<u64>, Status> {
    let Some(value) = headers.get(FENCING_TOKEN) else { return Ok(Vec::new()) };
    let parse = |text: &str| text.split(',').map(|token| token.trim().parse().ok()).collect::<Option<Vec<u64>>>();
    let tokens = value.to_str().ok().and_then(parse).filter(|tokens| tokens.len() == keys);
    tokens.ok_or_else(|| {
        Status::invalid_argument(format!("{FENCING_TOKEN}: expected {keys} numbers, one for each key, got {value:?}"))
    })
}

/// Pushback of a status: when another server may be asked (gRPC A6). A negative or invalid number means never.
pub(crate) fn pushback(trailers: &HeaderMap) -> Option<Pushback> {
    let value = trailers.get(PUSHBACK)?;
    let ms = value.to_str().ok().and_then(|text| text.parse::<u64>().ok());
    Some(ms.map_or(Pushback::Never, |ms| Pushback::After(Duration::from_millis(ms))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushback_is_read_from_metadata() {
        let with = |text: &'static str| HeaderMap::from_iter([(PUSHBACK.parse().unwrap(), text.parse().unwrap())]);
        assert_eq!(pushback(&HeaderMap::new()), None);
        assert_eq!(pushback(&with("20")), Some(Pushback::After(Duration::from_millis(20))));
        for never in ["-1", "soon", "", "1.5"] {
            assert_eq!(pushback(&with(never)), Some(Pushback::Never), "{never:?}");
        }
    }

    #[test]
    fn session_round_trips() {
        let id = std::array::from_fn(|at| 17 * at as u8);
        assert_eq!(decode_session(&encode_session(&id).expect("digits")), Some(id));
        for wrong in ["", "00", "0011223344556677889900aabbccddeg", "+11223344556677889900aabbccddee"] {
            assert_eq!(decode_session(&HeaderValue::from_static(wrong)), None, "{wrong:?}");
        }
    }

    #[test]
    fn invalid_cost_is_refused() {
        let with =
            |text: &'static str| HeaderMap::from_iter([(COST.parse().expect("a name"), text.parse().expect("text"))]);
        assert_eq!(decode_cost(&HeaderMap::new()).expect("none"), None);
        assert_eq!(decode_cost(&with("7")).expect("a number"), Some(7));
        for wrong in ["", "0", "1001", "-1", "much"] {
            let error = decode_cost(&with(wrong)).expect_err(wrong);
            assert!(error.message().starts_with("pathcall-cost: expected 1 to 1000"), "{error}");
        }
    }

    #[test]
    fn tokens_round_trip() {
        for tokens in [vec![7], vec![1 << 40, 3, u64::MAX]] {
            let headers = HeaderMap::from_iter([(FENCING_TOKEN, encode_tokens(&tokens).expect("digits"))]);
            assert_eq!(super::decode_tokens(&headers, tokens.len()).expect("numbers"), tokens);
            let error = super::decode_tokens(&headers, 2).expect_err("another number of keys");
            assert!(error.message().starts_with("pathcall-fencing-token: expected 2 numbers"), "{error}");
        }
        assert_eq!(super::decode_tokens(&HeaderMap::new(), 2).expect("none"), Vec::<u64>::new());
        let text = HeaderMap::from_iter([(FENCING_TOKEN, HeaderValue::from_static("7,x"))]);
        assert!(super::decode_tokens(&text, 2).is_err());
    }
}
