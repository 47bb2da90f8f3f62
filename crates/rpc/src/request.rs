//! Parsed request of a method with a filter: the map operation, and the message for the handler.
//!
//! A handler runs if the request has untyped content or the filter's `to` is SERVER. Otherwise the call does not reach
//! it, and the untyped fields of the reply have default values. Content means encoded fields: a field with its default
//! value is not encoded. With `to: SERVER` the handler's message also has the typed field, with the values after
//! `Stream.modify`; that of a sum has the sum, which the server adds.

use std::time::Instant;

use bytes::Bytes;
use pathcall_endpoint::map::{CallError, Key, Modify, Operation, Output};
use pathcall_proto::manifest::{ForwardTarget, Kind, LaneFormat, Method};
use tonic::Status;

use crate::message::fields::split;
use crate::message::reply;
use crate::message::typed::{TypedError, TypedFieldReader, TypedValues};
use crate::status;

/// Maximum size of a direct call with its gRPC header, bytes: tonic's default limit.
pub(crate) const DIRECT_BYTES_MAX: usize = 4 << 20;

/// Parsed request.
#[derive(Debug)]
pub(crate) struct Request {
    /// Values of the typed field; `None` if the method's request has none.
    pub(crate) typed: Option<TypedValues>,
    /// Message for the handler; `None` if it does not run.
    pub(crate) handler: Option<Bytes>,
}

impl Request {
    /// Parses the message of a call.
    pub(crate) fn new(method: &Method, message: &Bytes) -> Result<Self, Status> {
        let Some(field) = &method.request else {
            let handler = !message.is_empty() || method.to == ForwardTarget::Server;
            return Ok(Self { typed: None, handler: handler.then(|| message.clone()) });
        };
        let reader = TypedFieldReader::new(field.shape, method.precision);
        let mut reader = if method.lanes == LaneFormat::Int32 { reader } else { reader.floats() };
        let mut rest = Vec::new();
        let content = split::<TypedError>(message, field.path, &mut rest, &mut |part| reader.part(part))
            .map_err(|error| status::of_request(field.name, &error))?;
        let typed = reader.into_values();
        let handler = match method.to {
            // The frames have the array of a sum.
            ForwardTarget::Server if matches!(method.kind, Kind::Sum { .. }) => Some(rest.into()),
            ForwardTarget::Server if method.modify != Modify::NOP && !typed.is_empty() => {
                let values = modified(&typed, method.modify).map_err(|error| status::of_call(method, &error))?;
                reply::append(&mut rest, field.path, field.shape, method.precision, &values)
                    .map_err(|error| status::of_reply(field.name, &error))?;
                Some(rest.into())
            }
            ForwardTarget::Server => Some(message.clone()),
            _ => content.then(|| rest.into()),
        };
        Ok(Self { typed: Some(typed), handler })
    }
}

/// Values after `Stream.modify`.
pub(crate) fn modified(values: &TypedValues, modify: Modify) -> Result<TypedValues, CallError> {
    let one = |(position, value)| modify.apply(value).ok_or(CallError::Range { value, position, bits: 32 });
    Ok(match values {
        TypedValues::Lanes(lanes) => TypedValues::Lanes(lanes.iter().enumerate().map(one).collect::<Result<_, _>>()?),
        TypedValues::Pairs(pairs) => {
            let values = pairs.iter().map(|(_, value)| *value).enumerate().map(one);
            let keys = pairs.iter().map(|(key, _)| key.clone());
            TypedValues::Pairs(keys.zip(values).map(|(key, value)| Ok((key, value?))).collect::<Result<_, _>>()?)
        }
        // Gradients have no operators.
        TypedValues::Floats(_) => values.clone(),
    })
}

/// Map operation of one call, and the keys of its answer.
#[derive(Debug)]
pub(crate) struct MapWork {
    /// `None` if the collection is empty.
    pub(crate) operation: Option<Operation>,
    /// With `get`, and of locks: the keys in the order of the values.
    keys: Vec<Key>,
}

/// Answer of the map, for the reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MapAnswer {
    /// Values of the reply's typed field.
    pub(crate) values: TypedValues,
    /// Of a counting call: whether `CntFwd` forwards it.
    pub(crate) forwarded: Option<bool>,
    /// Tokens of the granted locks, and the earliest end of their lease.
    pub(crate) locks: Option<(Vec<u64>, Instant)>,
}

impl MapAnswer {
    /// Answer without values.
    pub(crate) const EMPTY: Self = Self::of(TypedValues::EMPTY);

    /// Answer with these values.
    pub(crate) const fn of(values: TypedValues) -> Self {
        Self { values, forwarded: None, locks: None }
    }
}

impl MapWork {
    /// Map operation of the method's filter on these values.
    pub(crate) fn new(method: &Method, typed: TypedValues) -> Self {
        let (modify, mut keys) = (method.modify, Vec::new());
        if typed.is_empty() {
            return Self { operation: None, keys };
        }
        let operation = match method.kind {
            Kind::Sum { threshold, .. } => {
                Operation::Sum { lanes: typed.into_lanes(), modify, threshold, to: method.to }
            }
            Kind::Add { get, .. } => {
                let pairs = typed.into_pairs();
                // Do not request an answer for which the reply has no field.
                let get = get && method.reply.is_some();
                if get {
                    keys = pairs.iter().map(|(key, _)| key.clone()).collect();
                }
                Operation::Add { pairs, modify, get, ack: method.ack }
            }
            Kind::Count { threshold, to } => {
                let names = typed.into_keys();
                if threshold == 1 || method.reply.is_some() {
                    keys.clone_from(&names);
                }
                Operation::Count { keys: names, threshold, to, ack: method.ack }
            }
            Kind::Clear => Operation::Clear { keys: typed.into_keys(), tokens: Vec::new() },
            Kind::Query => {
                keys = typed.into_keys();
                Operation::Read { keys: keys.clone(), read: method.read }
            }
            // Nothing else is left of a modification.
            Kind::Modify => return Self { operation: None, keys },
        };
        Self { operation: Some(operation), keys }
    }

    /// Adds the fencing tokens of the grants to release, given in the order of the sorted keys.
    pub(crate) fn attach_fencing_tokens(&mut self, grants: &[u64]) {
        if let Some(Operation::Clear { keys, tokens }) = &mut self.operation {
            *tokens = vec![0; if grants.is_empty() { 0 } else { keys.len() }];
            for (at, token) in key_order(keys).zip(grants) {
                tokens[at] = *token;
            }
        }
    }

    /// Answer for the output of the operation; `None` stands for an empty operation.
    pub(crate) fn answer(self, method: &Method, output: Option<Output>) -> MapAnswer {
        match (output, method.kind) {
            (Some(Output::Sums(sums)), _) => MapAnswer::of(TypedValues::Lanes(sums)),
            (Some(Output::Values(values)), _) => {
                MapAnswer::of(TypedValues::Pairs(self.keys.into_iter().zip(values).collect()))
            }
            (Some(Output::Counted { forwarded }), kind) => {
                let forwards = forwarded.contains(&true);
                // NetRPC Table 2: the counter of a message that is forwarded is at the threshold.
                let threshold = if let Kind::Count { threshold, .. } = kind { threshold.into() } else { 0 };
                let reached = self.keys.into_iter().zip(forwarded).filter(|(_, forwarded)| *forwarded);
                let values = TypedValues::Pairs(reached.map(|(key, _)| (key, threshold)).collect());
                MapAnswer { forwarded: Some(forwards), ..MapAnswer::of(values) }
            }
            (Some(Output::Locked { tokens, lease }), _) => {
                let tokens = key_order(&self.keys).map(|at| tokens[at]).collect();
                // A lock that is not granted has no answer. The counter of a granted one is at the threshold.
                let values = TypedValues::Pairs(self.keys.into_iter().map(|key| (key, 1)).collect());
                MapAnswer { forwarded: Some(true), locks: Some((tokens, Instant::now() + lease)), values }
            }
            // No other caller holds, or still has to vote for, any of zero keys.
            (None, Kind::Count { .. }) => MapAnswer { forwarded: Some(true), ..MapAnswer::EMPTY },
            (Some(Output::Done) | None, _) => MapAnswer::EMPTY,
        }
    }
}

/// Places of the keys, sorted by the keys as the caller names them: the order of fencing tokens in metadata.
fn key_order(keys: &[Key]) -> impl Iterator<Item = usize> {
    let mut sorted: Vec<(usize, &Key)> = keys.iter().enumerate().collect();
    sorted.sort_by_key(|(_, key)| *key);
    sorted.into_iter().map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathcall_endpoint::map::Lanes;
    use pathcall_proto::manifest::{Ack, ClearPolicy, Field, OpType, ReadMode, Shape};

    const TYPED: Field = Field { path: &[1], name: "Request.typed", shape: Shape::IntArray };
    const METHOD: Method = Method {
        path: "/a.S/M",
        app: "app",
        kind: Kind::Add { get: true, to: ForwardTarget::Src },
        request: Some(TYPED),
        reply: Some(TYPED),
        untyped_request: true,
        ack: Ack::Server,
        read: ReadMode::Recent,
        ..Method::DEFAULT
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
    fn handler_gets_modified_values() {
        let modify = Modify { op: OpType::Max, para: 1 };
        for kind in [Kind::Modify, Kind::Add { get: false, to: ForwardTarget::Server }, Kind::Clear] {
            let method = Method { kind, modify, to: ForwardTarget::Server, ..METHOD };
            // The field follows the others: `2: 7, 1: { 1: [1, 2] }`.
            assert_eq!(handler(&method, BOTH).unwrap(), [0x10, 7, 0x0a, 4, 0x0a, 2, 2, 4][..]);
            assert_eq!(handler(&method, &BOTH[6..]).unwrap(), BOTH[6..]);
        }
        // Message `1: { 1: [2^40] }`: too large for operators.
        let large = Bytes::from_static(&[0x0a, 8, 0x0a, 6, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40]);
        let method = Method { kind: Kind::Modify, modify, to: ForwardTarget::Server, ..METHOD };
        assert_eq!(Request::new(&method, &large).unwrap_err().code(), tonic::Code::OutOfRange);
    }

    #[test]
    fn count_answers_threshold_for_reached_keys() {
        let method = Method { kind: Kind::Count { threshold: 5, to: ForwardTarget::Server }, ..METHOD };
        let answer = |forwarded: [bool; 2]| {
            let typed = TypedValues::Lanes(Lanes::from(vec![1, 1]));
            let output = Output::Counted { forwarded: forwarded.to_vec() };
            let MapAnswer { values, forwarded, .. } = MapWork::new(&method, typed).answer(&method, Some(output));
            (values, forwarded)
        };
        let second = TypedValues::Pairs(vec![(Key::from(1), 5)]);
        assert_eq!(answer([false, true]), (second, Some(true)));
        assert_eq!(answer([false, false]), (TypedValues::EMPTY, Some(false)));
    }

    #[test]
    fn sum_of_one_caller_is_its_modified_values() {
        let of = |values: &[i64]| TypedValues::Lanes(values.to_vec().into());
        assert_eq!(modified(&of(&[-5, i64::MAX]), Modify::NOP), Ok(of(&[-5, i64::MAX])));
        let max = Modify { op: OpType::Max, para: 3 };
        assert_eq!(modified(&of(&[-5, 9]), max), Ok(of(&[3, 9])));
        let range = CallError::Range { value: i64::MAX, position: 2, bits: 32 };
        assert_eq!(modified(&of(&[-5, 9, i64::MAX]), max), Err(range));
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
                Operation::Sum {
                    lanes: lanes(),
                    modify: Modify { op: OpType::Max, para },
                    threshold: 2,
                    to: ForwardTarget::Src,
                },
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
                Operation::Count { keys: keys(), threshold: 5, to: ForwardTarget::All, ack: Ack::Server },
            ),
            (Kind::Clear, Operation::Clear { keys: keys(), tokens: Vec::new() }),
            (Kind::Query, Operation::Read { keys: keys(), read: ReadMode::Recent }),
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
        assert_eq!(answer, MapAnswer::of(TypedValues::Pairs(vec![(Key::from("b"), 10), (Key::from("a"), 20)])));
    }

    #[test]
    fn empty_collection_needs_no_map_operation() {
        for (kind, answer) in [
            (Kind::Sum { threshold: 2, clear: ClearPolicy::Copy }, MapAnswer::EMPTY),
            (Kind::Add { get: true, to: ForwardTarget::Src }, MapAnswer::EMPTY),
            (
                Kind::Count { threshold: 1, to: ForwardTarget::Src },
                MapAnswer { forwarded: Some(true), ..MapAnswer::EMPTY },
            ),
            (Kind::Clear, MapAnswer::EMPTY),
        ] {
            let method = Method { kind, ..METHOD };
            let typed = Request::new(&method, &Bytes::new()).unwrap().typed.unwrap();
            let work = MapWork::new(&method, typed);
            assert_eq!(work.operation, None);
            assert_eq!(work.answer(&method, None), answer);
        }
    }
}
