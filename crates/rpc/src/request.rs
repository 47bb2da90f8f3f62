//! Parsed request of a method with a filter: the map operation, and the message for the handler.
//!
//! A handler runs if the request has untyped content or the filter's `to` is SERVER. Otherwise the call does not reach
//! it, and the untyped fields of the reply have default values. Content means encoded fields: a field with its default
//! value is not encoded. With `to: SERVER` the handler's message also has the typed field.

use std::time::Instant;

use bytes::Bytes;
use pathcall_endpoint::map::{Key, Lanes, Operation, Output};
use pathcall_proto::manifest::{ForwardTarget, Kind, Method};
use tonic::Status;

use crate::message::reply::ReplyValues;
use crate::message::split::split;
use crate::message::typed::{TypedError, TypedFieldReader};
use crate::status;

/// Parsed request.
#[derive(Debug)]
pub(crate) struct Request {
    /// Keys or values of the typed field; `None` if the method's request has none.
    pub(crate) typed: Option<TypedValues>,
    /// Message for the handler; `None` if it does not run.
    pub(crate) handler: Option<Bytes>,
}

/// Values of the typed field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TypedValues {
    /// Values of an array.
    Lanes(Lanes),
    /// Keys with their values, each key once.
    Pairs(Vec<(Key, i64)>),
}

impl Request {
    /// Parses the message of a call.
    pub(crate) fn new(method: &Method, message: &Bytes) -> Result<Self, Status> {
        let Some(field) = &method.request else {
            let handler = !message.is_empty() || method.to == ForwardTarget::Server;
            return Ok(Self { typed: None, handler: handler.then(|| message.clone()) });
        };
        let mut reader = TypedFieldReader::new(field.shape, method.precision);
        let mut rest = Vec::new();
        let content = split::<TypedError>(message, field.path, &mut rest, &mut |part| reader.part(part))
            .map_err(|error| status::of_request(field.name, &error))?;
        let typed = match method.kind {
            Kind::Sum { .. } => TypedValues::Lanes(reader.into_lanes()),
            _ => TypedValues::Pairs(reader.into_pairs()),
        };
        let handler = match method.to {
            ForwardTarget::Server => Some(message.clone()),
            _ => content.then(|| rest.into()),
        };
        Ok(Self { typed: Some(typed), handler })
    }
}

/// Map operation of one call, and the keys of its answer.
#[derive(Debug)]
pub(crate) struct MapWork {
    /// `None` if the collection is empty.
    pub(crate) operation: Option<Operation>,
    /// With `get`: the keys in the order of the values.
    keys: Vec<Key>,
}

/// Result of a map operation for the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MapAnswer {
    /// Values of the reply's typed field.
    Lanes(Lanes),
    /// Keys and values of the reply's typed field.
    Pairs(Vec<(Key, i64)>),
    /// No values; whether `CntFwd` forwards the call.
    Counted { forwarded: bool },
    /// No values; tokens of the granted locks, and the earliest end of their lease.
    Locked { tokens: Vec<u64>, until: Instant },
    /// No values.
    Done,
}

impl MapAnswer {
    /// Values for the typed field of the reply; empty if there are none.
    pub(crate) fn values(&self) -> ReplyValues<'_> {
        match self {
            Self::Lanes(lanes) => ReplyValues::Lanes(lanes),
            Self::Pairs(pairs) => ReplyValues::Pairs(pairs),
            Self::Counted { .. } | Self::Locked { .. } | Self::Done => ReplyValues::Pairs(&[]),
        }
    }
}

impl MapWork {
    /// Map operation of the method's filter on these values.
    pub(crate) fn new(method: &Method, typed: TypedValues) -> Self {
        let modify = method.modify;
        let only = |operation| Self { operation: Some(operation), keys: Vec::new() };
        match (method.kind, typed) {
            (_, TypedValues::Lanes(lanes)) if lanes.is_empty() => Self { operation: None, keys: Vec::new() },
            (_, TypedValues::Pairs(pairs)) if pairs.is_empty() => Self { operation: None, keys: Vec::new() },
            (Kind::Sum { threshold, .. }, typed) => {
                only(Operation::Sum { lanes: typed.into_lanes(), modify, threshold })
            }
            (Kind::Add { get, .. }, typed) => {
                let pairs = typed.into_pairs();
                // Do not request an answer for which the reply has no field.
                let get = get && method.reply.is_some();
                let keys = if get { pairs.iter().map(|(key, _)| key.clone()).collect() } else { Vec::new() };
                Self { operation: Some(Operation::Add { pairs, modify, get, ack: method.ack }), keys }
            }
            (Kind::Count { threshold, to }, typed) => only(Operation::Count { keys: typed.into_keys(), threshold, to }),
            (Kind::Clear, typed) => only(Operation::Clear { keys: typed.into_keys(), tokens: Vec::new() }),
            // The server answers queries.
            (Kind::Query, _) => Self { operation: None, keys: Vec::new() },
        }
    }

    /// Adds the fencing tokens of the grants to release, given in the order of the sorted keys.
    pub(crate) fn attach_fencing_tokens(&mut self, grants: &[u64]) {
        if let Some(Operation::Clear { keys, tokens }) = &mut self.operation {
            let mut sorted: Vec<(usize, &Key)> = keys.iter().enumerate().collect();
            sorted.sort_by_key(|(_, key)| *key);
            *tokens = vec![0; if grants.is_empty() { 0 } else { keys.len() }];
            for ((at, _), token) in sorted.into_iter().zip(grants) {
                tokens[at] = *token;
            }
        }
    }

    /// Answer for the output of the operation; `None` stands for an empty operation.
    pub(crate) fn answer(self, method: &Method, output: Option<Output>) -> MapAnswer {
        match (output, method.kind) {
            (Some(Output::Sums(sums)), _) => MapAnswer::Lanes(sums),
            (Some(Output::Values(values)), _) => MapAnswer::Pairs(self.keys.into_iter().zip(values).collect()),
            (Some(Output::Counted { forwarded }), _) => MapAnswer::Counted { forwarded },
            (Some(Output::Locked { tokens, lease }), _) => MapAnswer::Locked { tokens, until: Instant::now() + lease },
            (None, Kind::Sum { .. }) => MapAnswer::Lanes(Lanes::default()),
            // No other caller holds, or still has to vote for, any of zero keys.
            (None, Kind::Count { .. }) => MapAnswer::Counted { forwarded: true },
            (Some(Output::Done) | None, _) => MapAnswer::Done,
        }
    }
}

impl TypedValues {
    fn into_lanes(self) -> Lanes {
        match self {
            Self::Lanes(lanes) => lanes,
            Self::Pairs(pairs) => pairs.into_iter().map(|(_, value)| value).collect(),
        }
    }

    fn into_pairs(self) -> Vec<(Key, i64)> {
        match self {
            Self::Lanes(lanes) => (0i64..).map(Key::from).zip(lanes.iter()).collect(),
            Self::Pairs(pairs) => pairs,
        }
    }

    /// The keys alone.
    pub(crate) fn into_keys(self) -> Vec<Key> {
        self.into_pairs().into_iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathcall_proto::manifest::{Ack, ClearPolicy, Field, Modify, OpType, Shape};

    const TYPED: Field = Field { path: &[1], name: "Request.typed", shape: Shape::IntArray };
    const METHOD: Method = Method {
        path: "/a.S/M",
        app: "app",
        digest: 0,
        precision: 0,
        kind: Kind::Add { get: true, to: ForwardTarget::Src },
        modify: Modify::NOP,
        request: Some(TYPED),
        reply: Some(TYPED),
        untyped_request: true,
        to: ForwardTarget::Src,
        ack: Ack::Server,
    };
    /// Message `1: { 1: [-1, 2] }`.
    const ONLY_TYPED: &[u8] = &[0x0a, 4, 0x0a, 2, 1, 4];
    /// The same message with `2: 7`.
    const BOTH: &[u8] = &[0x0a, 4, 0x0a, 2, 1, 4, 0x10, 7];

    fn handler(method: &Method, message: &'static [u8]) -> Option<Bytes> {
        Request::new(method, &Bytes::from_static(message)).unwrap().handler
    }

    #[test]
    fn handler_runs_for_untyped_content_or_to_server() {
        assert_eq!(handler(&METHOD, ONLY_TYPED), None);
        assert_eq!(handler(&METHOD, BOTH).unwrap(), BOTH[6..]);
        assert_eq!(handler(&METHOD, b""), None);
        let to_server = Method { to: ForwardTarget::Server, ..METHOD };
        assert_eq!(handler(&to_server, ONLY_TYPED).unwrap(), ONLY_TYPED);
        assert_eq!(handler(&to_server, b"").unwrap(), "");
        let untyped = Method { request: None, kind: Kind::Query, ..METHOD };
        assert_eq!(handler(&untyped, b""), None);
        assert_eq!(handler(&untyped, BOTH).unwrap(), BOTH);
    }

    #[test]
    fn each_method_kind_has_its_operation() {
        let pairs = || vec![(Key::from(0), -1), (Key::from(1), 2)];
        let keys = || vec![Key::from(0), Key::from(1)];
        let lanes = || Lanes::from(vec![-1, 2]);
        let (modify, para) = (Modify { op: OpType::Max, para: 3 }, 3);
        let src = ForwardTarget::Src;
        for (kind, operation) in [
            (
                Kind::Sum { threshold: 2, clear: ClearPolicy::Copy },
                Operation::Sum { lanes: lanes(), modify: Modify { op: OpType::Max, para }, threshold: 2 },
            ),
            (
                Kind::Add { get: true, to: src },
                Operation::Add {
                    pairs: pairs(),
                    modify: Modify { op: OpType::Max, para },
                    get: true,
                    ack: Ack::Server,
                },
            ),
            (
                Kind::Count { threshold: 5, to: ForwardTarget::All },
                Operation::Count { keys: keys(), threshold: 5, to: ForwardTarget::All },
            ),
            (Kind::Clear, Operation::Clear { keys: keys(), tokens: Vec::new() }),
        ] {
            let method = Method { kind, modify, ..METHOD };
            let typed = Request::new(&method, &Bytes::from_static(ONLY_TYPED)).unwrap().typed.unwrap();
            assert_eq!(MapWork::new(&method, typed).operation, Some(operation));
        }
    }

    #[test]
    fn fencing_tokens_follow_sorted_keys() {
        let method = Method { kind: Kind::Clear, ..METHOD };
        let pairs = ["b", "c", "a"].map(|name| (Key::from(name), 0)).to_vec();
        let mut work = MapWork::new(&method, TypedValues::Pairs(pairs.clone()));
        work.attach_fencing_tokens(&[1, 2, 3]);
        let Some(Operation::Clear { tokens, .. }) = work.operation else { panic!("a release") };
        assert_eq!(tokens, [2, 3, 1]);
        let mut work = MapWork::new(&method, TypedValues::Pairs(pairs));
        work.attach_fencing_tokens(&[]);
        assert!(matches!(work.operation, Some(Operation::Clear { tokens, .. }) if tokens.is_empty()));
    }

    #[test]
    fn answer_pairs_values_with_their_keys() {
        let typed = TypedValues::Pairs(vec![(Key::from("b"), 1), (Key::from("a"), 2)]);
        let answer = MapWork::new(&METHOD, typed).answer(&METHOD, Some(Output::Values(vec![10, 20])));
        assert_eq!(answer, MapAnswer::Pairs(vec![(Key::from("b"), 10), (Key::from("a"), 20)]));
    }

    #[test]
    fn empty_collection_needs_no_map_operation() {
        for (kind, answer) in [
            (Kind::Sum { threshold: 2, clear: ClearPolicy::Copy }, MapAnswer::Lanes(Lanes::default())),
            (Kind::Add { get: true, to: ForwardTarget::Src }, MapAnswer::Done),
            (Kind::Count { threshold: 1, to: ForwardTarget::Src }, MapAnswer::Counted { forwarded: true }),
            (Kind::Clear, MapAnswer::Done),
        ] {
            let method = Method { kind, ..METHOD };
            let typed = Request::new(&method, &Bytes::new()).unwrap().typed.unwrap();
            let work = MapWork::new(&method, typed);
            assert_eq!(work.operation, None);
            assert_eq!(work.answer(&method, None), answer);
        }
    }
}
