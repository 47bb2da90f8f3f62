//! A request of a method with a filter, taken apart: what the map has to do, and what the handler
//! gets to see.
//!
//! A handler runs if the request has untyped content, or the filter's `to` is SERVER; otherwise the
//! call never reaches it and the untyped fields of its reply have their defaults. Content is what is
//! encoded: a field that holds its default is not. With `to: SERVER` the typed field stays in the
//! handler's message as well.

use std::time::Instant;

use bytes::Bytes;
use pathcall_endpoint::map::{Ack, Key, Lanes, Modify, Operation, Output};
use pathcall_proto::manifest::{self, Kind, Method};
use pathcall_wire::{OpType, Target};
use tonic::Status;

use crate::message::reply::Values;
use crate::message::split::split;
use crate::message::typed::{Reader, TypedError};
use crate::status;

/// A request taken apart.
#[derive(Debug)]
pub(crate) struct Request {
    /// The keys or values of the typed field; `None` when the method's request has none.
    pub(crate) typed: Option<Typed>,
    /// The handler's message; `None` when it need not run.
    pub(crate) handler: Option<Bytes>,
}

/// The typed field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    /// An array's values.
    Lanes(Lanes),
    /// Keys with their values, each key once.
    Pairs(Vec<(Key, i64)>),
}

impl Request {
    /// Takes the message of a call apart.
    pub(crate) fn new(method: &Method, message: &Bytes) -> Result<Self, Status> {
        let Some(field) = &method.request else {
            let handler = !message.is_empty() || method.to == manifest::Target::Server;
            return Ok(Self { typed: None, handler: handler.then(|| message.clone()) });
        };
        let mut reader = Reader::new(field.shape, method.precision);
        let mut rest = Vec::new();
        let content = split::<TypedError>(message, field.path, &mut rest, &mut |part| reader.part(part))
            .map_err(|error| status::of_request(field.name, &error))?;
        let typed = match method.kind {
            Kind::Sum { .. } => Typed::Lanes(reader.into_lanes()),
            _ => Typed::Pairs(reader.into_pairs()),
        };
        let handler = match method.to {
            manifest::Target::Server => Some(message.clone()),
            _ => content.then(|| rest.into()),
        };
        Ok(Self { typed: Some(typed), handler })
    }
}

/// One call's work on the map, and the keys that its answer is for.
#[derive(Debug)]
pub(crate) struct Work {
    /// `None` when an empty collection leaves nothing to do.
    pub(crate) operation: Option<Operation>,
    /// With `get`: the keys in the order of the values.
    keys: Vec<Key>,
}

/// What a call's reply gets from the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The typed field of the reply.
    Lanes(Lanes),
    /// The same, with keys.
    Pairs(Vec<(Key, i64)>),
    /// Nothing; whether `CntFwd` forwards the call.
    Counted { forwarded: bool },
    /// Nothing; the tokens of the locks that were granted, and until when they are so at least.
    Locked { tokens: Vec<u64>, until: Instant },
    /// Nothing.
    Done,
}

impl Answer {
    /// The values for the typed field of the reply, which is empty if there are none.
    pub(crate) fn values(&self) -> Values<'_> {
        match self {
            Self::Lanes(lanes) => Values::Lanes(lanes),
            Self::Pairs(pairs) => Values::Pairs(pairs),
            Self::Counted { .. } | Self::Locked { .. } | Self::Done => Values::Pairs(&[]),
        }
    }
}

impl Work {
    /// What the method's filter does with these values.
    pub(crate) fn new(method: &Method, typed: Typed) -> Self {
        let modify = modify(method.modify);
        let only = |operation| Self { operation: Some(operation), keys: Vec::new() };
        match (method.kind, typed) {
            (_, Typed::Lanes(lanes)) if lanes.is_empty() => Self { operation: None, keys: Vec::new() },
            (_, Typed::Pairs(pairs)) if pairs.is_empty() => Self { operation: None, keys: Vec::new() },
            (Kind::Sum { threshold, .. }, typed) => {
                only(Operation::Sum { lanes: typed.into_lanes(), modify, threshold })
            }
            (Kind::Add { get, .. }, typed) => {
                let pairs = typed.into_pairs();
                // An answer that the reply has no field for is not asked for.
                let get = get && method.reply.is_some();
                let keys = if get { pairs.iter().map(|(key, _)| key.clone()).collect() } else { Vec::new() };
                Self { operation: Some(Operation::Add { pairs, modify, get, ack: ack(method.ack) }), keys }
            }
            (Kind::Count { threshold, to }, typed) => {
                only(Operation::Count { keys: typed.into_keys(), threshold, to: target(to) })
            }
            (Kind::Clear, typed) => only(Operation::Clear { keys: typed.into_keys(), tokens: Vec::new() }),
            // A query is the server's to answer.
            (Kind::Query, _) => Self { operation: None, keys: Vec::new() },
        }
    }

    /// Names the grants that are given back, by their tokens in the order of the keys.
    pub(crate) fn name_grants(&mut self, named: &[u64]) {
        if let Some(Operation::Clear { keys, tokens }) = &mut self.operation {
            let mut sorted: Vec<(usize, &Key)> = keys.iter().enumerate().collect();
            sorted.sort_by_key(|(_, key)| *key);
            *tokens = vec![0; if named.is_empty() { 0 } else { keys.len() }];
            for ((at, _), token) in sorted.into_iter().zip(named) {
                tokens[at] = *token;
            }
        }
    }

    /// What the reply gets from the outcome of the operation; `None` stands for nothing to do.
    pub(crate) fn answer(self, method: &Method, output: Option<Output>) -> Answer {
        match (output, method.kind) {
            (Some(Output::Sums(sums)), _) => Answer::Lanes(sums),
            (Some(Output::Values(values)), _) => Answer::Pairs(self.keys.into_iter().zip(values).collect()),
            (Some(Output::Counted { forwarded }), _) => Answer::Counted { forwarded },
            (Some(Output::Locked { tokens, lease }), _) => Answer::Locked { tokens, until: Instant::now() + lease },
            (None, Kind::Sum { .. }) => Answer::Lanes(Lanes::default()),
            // Nobody else can hold, or has yet to vote for, any of no keys.
            (None, Kind::Count { .. }) => Answer::Counted { forwarded: true },
            (Some(Output::Done) | None, _) => Answer::Done,
        }
    }
}

impl Typed {
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

fn modify(modify: manifest::Modify) -> Modify {
    use manifest::Op;
    let op = match modify.op {
        Op::Nop => OpType::Nop,
        Op::Max => OpType::Max,
        Op::Min => OpType::Min,
        Op::Add => OpType::Add,
        Op::Assign => OpType::Assign,
        Op::ShiftL => OpType::ShiftL,
        Op::ShiftR => OpType::ShiftR,
        Op::Band => OpType::Band,
        Op::Bor => OpType::Bor,
        Op::Bnot => OpType::Bnot,
        Op::Bxor => OpType::Bxor,
    };
    Modify { op, para: modify.para }
}

fn target(target: manifest::Target) -> Target {
    match target {
        manifest::Target::All => Target::All,
        manifest::Target::Src => Target::Src,
        manifest::Target::Server => Target::Server,
    }
}

fn ack(ack: manifest::Ack) -> Ack {
    match ack {
        manifest::Ack::Element => Ack::Element,
        manifest::Ack::Server => Ack::Server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathcall_proto::manifest::{Field, Shape};

    const TYPED: Field = Field { path: &[1], name: "Request.typed", shape: Shape::IntArray };
    const METHOD: Method = Method {
        path: "/a.S/M",
        app: "app",
        digest: 0,
        precision: 0,
        kind: Kind::Add { get: true, to: manifest::Target::Src },
        modify: manifest::Modify::NOP,
        request: Some(TYPED),
        reply: Some(TYPED),
        untyped_request: true,
        to: manifest::Target::Src,
        ack: manifest::Ack::Server,
    };
    /// 1: { 1: [-1, 2] }
    const ONLY_TYPED: &[u8] = &[0x0a, 4, 0x0a, 2, 1, 4];
    /// The same, and 2: 7.
    const BOTH: &[u8] = &[0x0a, 4, 0x0a, 2, 1, 4, 0x10, 7];

    fn handler(method: &Method, message: &'static [u8]) -> Option<Bytes> {
        Request::new(method, &Bytes::from_static(message)).unwrap().handler
    }

    #[test]
    fn a_handler_runs_for_untyped_content_or_to_server() {
        assert_eq!(handler(&METHOD, ONLY_TYPED), None);
        assert_eq!(handler(&METHOD, BOTH).unwrap(), BOTH[6..]);
        assert_eq!(handler(&METHOD, b""), None);
        let to_server = Method { to: manifest::Target::Server, ..METHOD };
        assert_eq!(handler(&to_server, ONLY_TYPED).unwrap(), ONLY_TYPED);
        assert_eq!(handler(&to_server, b"").unwrap(), "");
        let untyped = Method { request: None, kind: Kind::Query, ..METHOD };
        assert_eq!(handler(&untyped, b""), None);
        assert_eq!(handler(&untyped, BOTH).unwrap(), BOTH);
    }

    #[test]
    fn each_kind_has_its_operation() {
        let pairs = || vec![(Key::from(0), -1), (Key::from(1), 2)];
        let keys = || vec![Key::from(0), Key::from(1)];
        let lanes = || Lanes::from(vec![-1, 2]);
        let (modify, para) = (manifest::Modify { op: manifest::Op::Max, para: 3 }, 3);
        let src = manifest::Target::Src;
        for (kind, operation) in [
            (
                Kind::Sum { threshold: 2, clear: manifest::ClearPolicy::Copy },
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
                Kind::Count { threshold: 5, to: manifest::Target::All },
                Operation::Count { keys: keys(), threshold: 5, to: Target::All },
            ),
            (Kind::Clear, Operation::Clear { keys: keys(), tokens: Vec::new() }),
        ] {
            let method = Method { kind, modify, ..METHOD };
            let typed = Request::new(&method, &Bytes::from_static(ONLY_TYPED)).unwrap().typed.unwrap();
            assert_eq!(Work::new(&method, typed).operation, Some(operation));
        }
    }

    #[test]
    fn grants_are_named_in_the_order_of_the_keys() {
        let method = Method { kind: Kind::Clear, ..METHOD };
        let pairs = ["b", "c", "a"].map(|name| (Key::from(name), 0)).to_vec();
        let mut work = Work::new(&method, Typed::Pairs(pairs.clone()));
        work.name_grants(&[1, 2, 3]);
        let Some(Operation::Clear { tokens, .. }) = work.operation else { panic!("a release") };
        assert_eq!(tokens, [2, 3, 1]);
        let mut work = Work::new(&method, Typed::Pairs(pairs));
        work.name_grants(&[]);
        assert!(matches!(work.operation, Some(Operation::Clear { tokens, .. }) if tokens.is_empty()));
    }

    #[test]
    fn values_go_back_to_their_keys() {
        let typed = Typed::Pairs(vec![(Key::from("b"), 1), (Key::from("a"), 2)]);
        let answer = Work::new(&METHOD, typed).answer(&METHOD, Some(Output::Values(vec![10, 20])));
        assert_eq!(answer, Answer::Pairs(vec![(Key::from("b"), 10), (Key::from("a"), 20)]));
    }

    #[test]
    fn nothing_is_asked_of_the_map_for_an_empty_collection() {
        for (kind, answer) in [
            (Kind::Sum { threshold: 2, clear: manifest::ClearPolicy::Copy }, Answer::Lanes(Lanes::default())),
            (Kind::Add { get: true, to: manifest::Target::Src }, Answer::Done),
            (Kind::Count { threshold: 1, to: manifest::Target::Src }, Answer::Counted { forwarded: true }),
            (Kind::Clear, Answer::Done),
        ] {
            let method = Method { kind, ..METHOD };
            let typed = Request::new(&method, &Bytes::new()).unwrap().typed.unwrap();
            let work = Work::new(&method, typed);
            assert_eq!(work.operation, None);
            assert_eq!(work.answer(&method, None), answer);
        }
    }
}
