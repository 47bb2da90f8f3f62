//! Messages of *delegate*: round trips, parse errors and lengths.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use pathcall_wire::Error;
use pathcall_wire::delegate::message::{ended_before, ended_code};
use pathcall_wire::delegate::parts::{MessageHead, SpanPartRepr};
use pathcall_wire::delegate::{
    ContextId, DelegateFlags, DelegateMessage, DelegateRequest, DelegateResponse, Encoded, HEAD_MAX, LoadReport, MAGIC,
    NodeId, PAGE, Ping, PingSubject, PlainRequest, Pong, RequestFailure, RequestManifest, ResponseGrant, ResponseId,
    SHARDS_MAX, ShardPorts, TraceSpan, U24, add_wait, list, parse,
};
use proptest::prelude::*;

fn addresses() -> impl Strategy<Value = SocketAddr> {
    let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
    let ip = prop_oneof![v4, any::<[u8; 16]>().prop_map(|ip| IpAddr::from(ip).to_canonical())];
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn contexts() -> impl Strategy<Value = ContextId> {
    (any::<u64>(), any::<u32>()).prop_map(|(node, number)| ContextId::new(NodeId::new(node), number))
}

fn manifests() -> impl Strategy<Value = Option<RequestManifest>> {
    let counts = (1..=U24::MAX, 0..=U24::MAX, 0..=U24::MAX);
    proptest::option::of((contexts(), contexts(), counts, addresses()).prop_map(
        |(from, context, (number, requests, responses), server)| RequestManifest {
            request: from.request(number),
            context,
            requests,
            responses,
            server,
        },
    ))
}

fn requests() -> impl Strategy<Value = DelegateRequest> {
    let numbers = (1..=U24::MAX, any::<u8>(), any::<u8>(), 0_u8..16, 0_u8..16, any::<u8>(), any::<u32>(), any::<u32>());
    let flags = prop_oneof![Just(0), Just(DelegateFlags::TRACED), Just(DelegateFlags::ONCE | DelegateFlags::TRACED)];
    (contexts(), contexts(), numbers, flags, addresses(), manifests(), any::<Option<u64>>()).prop_map(
        |(call, from, (number, seq, depth, gc, credit, ended, deadline, age), flags, reply, manifest, sender)| {
            DelegateRequest {
                flags,
                call,
                request: from.request(number).inherited(seq),
                depth,
                gc,
                credit,
                ended,
                deadline,
                age,
                reply,
                sender: sender.map_or(from.node(), NodeId::new),
                manifest,
            }
        },
    )
}

fn with_payload(head: &Encoded) -> Vec<u8> {
    [head, &b"payload"[..]].concat()
}

proptest! {
    #[test]
    fn request_round_trips_and_ages(request in requests(), waited: u32) {
        let head = request.encode();
        prop_assert!(head.len() <= HEAD_MAX);
        let bytes = with_payload(&head);
        prop_assert_eq!(parse(&bytes), Ok((DelegateMessage::Request(request), head.len())));
        // Waiting changes the time left and the age only.
        let waited = Duration::from_micros(u64::from(waited));
        let micros = waited.as_micros() as u32;
        let deadline = if request.deadline == u32::MAX { u32::MAX } else { request.deadline.saturating_sub(micros) };
        let later = DelegateRequest { deadline, age: request.age.saturating_add(micros), ..request };
        let mut late = bytes.clone();
        add_wait(&mut late, waited);
        prop_assert_eq!(parse(&late), Ok((DelegateMessage::Request(later), head.len())));
        prop_assert_eq!(&late[head.len()..], &bytes[head.len()..]);
        for len in 0..head.len() {
            prop_assert!(parse(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn response_round_trips(
        call in contexts(), context in contexts(), number in 1..=U24::MAX, sole: bool, null: bool,
        again: Option<u64>, manifest in manifests()
    ) {
        let id = if sole { ResponseId::Sole(context.request(number)) } else { ResponseId::Numbered(context, number) };
        let response = DelegateResponse { call, id, null, again: again.map(NodeId::new), manifest };
        let head = response.encode();
        let bytes = with_payload(&head);
        prop_assert_eq!(parse(&bytes), Ok((DelegateMessage::Response(response), head.len())));
        let mut late = bytes.clone();
        add_wait(&mut late, Duration::from_secs(1));
        prop_assert_eq!(late, bytes);
    }

    #[test]
    fn pong_round_trips_with_addresses(
        (call, context, asked) in (contexts(), contexts(), contexts()), by_context: bool, numbers: [u32; 4], code: u16,
        sender: u64, to in prop::collection::vec(addresses(), 0..PAGE)
    ) {
        let subject = match by_context {
            true => PingSubject::Context(asked),
            false => PingSubject::Request(asked.request(7).inherited(3)),
        };
        let [round, requests, responses, first] = numbers;
        let (first, sender) = (first.max(1), NodeId::new(sender));
        let flags = DelegateFlags::COMPLETE | DelegateFlags::CHAINED | if by_context { DelegateFlags::BY_CONTEXT } else { 0 };
        let pong = Pong { call, subject, round, flags, context, requests, responses, first, code, sender };
        let mut bytes = pong.encode(to.len() as u16).to_vec();
        bytes.extend(to.iter().flat_map(|to| list(*to)));
        let Ok((DelegateMessage::Pong(parsed, parsed_to), _)) = parse(&bytes) else { panic!("not a pong") };
        prop_assert_eq!(parsed, pong);
        prop_assert_eq!(parsed_to.collect::<Vec<_>>(), to);
        bytes.push(0);
        prop_assert!(parse(&bytes).is_err(), "bytes after the addresses are rejected");
    }

    #[test]
    fn ports_of_shards_round_trip(ports in prop::collection::vec(any::<u16>(), 0..=SHARDS_MAX + 1), odd: bool) {
        let bytes = ports.iter().flat_map(|port| port.to_be_bytes()).chain(odd.then_some(0));
        let bytes: Vec<u8> = ShardPorts::encode_head().iter().copied().chain(bytes).collect();
        let parsed = match parse(&bytes) {
            Ok((DelegateMessage::Shards(parsed), len)) if len == bytes.len() => Some(parsed.ports().collect()),
            _ => None,
        };
        let valid = !odd && (2..=SHARDS_MAX).contains(&ports.len());
        prop_assert_eq!(parsed, valid.then_some(ports));
    }

    #[test]
    fn ping_grant_failure_span_and_load_round_trip(
        (call, context) in (contexts(), contexts()), abort: bool, words: [u32; 5], code in 1_u8..
    ) {
        let request = context.request(1).inherited(words[0] as u8);
        let ping = Ping { call, subject: PingSubject::Request(request), abort, round: words[0], first: words[1].max(1) };
        let head = ping.encode();
        prop_assert_eq!(parse(&head), Ok((DelegateMessage::Ping(ping), head.len())));
        let grant = ResponseGrant { call, context, responses: words[0] };
        let head = grant.encode();
        prop_assert_eq!(parse(&head), Ok((DelegateMessage::Grant(grant), head.len())));
        let load = LoadReport { load: words[0] };
        let head = load.encode();
        prop_assert_eq!(parse(&head), Ok((DelegateMessage::Load(load), head.len())));
        for unreachable in [None, Some("10.0.0.7:7801"), Some("[2001:db8::7]:7801")] {
            let unreachable = unreachable.map(|server| server.parse().expect("an address"));
            let fault = RequestFailure { call, request, code, text: words[1] as u16, unreachable };
            let bytes = with_payload(&fault.encode());
            prop_assert_eq!(parse(&bytes), Ok((DelegateMessage::Fault(fault), fault.encode().len())));
        }
        let [age, waited, ran, requests, responses] = words;
        let span = TraceSpan { call, span: SpanPartRepr { request, context, age, waited, ran, requests, responses } };
        let bytes = with_payload(&span.encode());
        prop_assert_eq!(parse(&bytes), Ok((DelegateMessage::Span(span), span.encode().len())));
    }

    #[test]
    fn random_delegate_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 0_u8..10) {
        let _ = parse(&bytes);
        if let [magic, second, ..] = &mut bytes[..] {
            (*magic, *second) = (MAGIC, kind);
        }
        let Ok((message, payload)) = parse(&bytes) else { return Ok(()) };
        prop_assert!(payload <= bytes.len());
        if let DelegateMessage::Pong(_, addresses) = message {
            prop_assert!(addresses.count() <= PAGE);
        }
    }

    #[test]
    fn ended_code_never_covers_a_call_in_progress(number: u32, back in 0_u32..1 << 31) {
        let oldest = number.wrapping_sub(back);
        let code = ended_code(number, oldest);
        let before = ended_before(number, code);
        // At most the oldest call, and at most twice as far back.
        let distance = before.map(|before| number.wrapping_sub(before));
        prop_assert!(distance.is_none_or(|distance| distance >= back && distance <= 2 * back));
        prop_assert!(code > 30 || before.is_some());
    }
}

#[test]
fn delegate_overhead_over_plain_call_is_at_most_64_bytes() {
    let node = |id| ContextId::new(NodeId::new(id), 1);
    let longest = |address: &str| {
        let server = address.parse().expect("an address");
        let manifest =
            RequestManifest { request: node(1).request(1), context: node(2), requests: 3, responses: 4, server };
        let request = DelegateRequest {
            flags: DelegateFlags::TRACED,
            call: node(3),
            request: node(4).request(1).inherited(1),
            depth: 2,
            gc: 15,
            credit: 15,
            ended: 1,
            deadline: 1,
            age: 1,
            reply: server,
            sender: NodeId::new(5),
            manifest: Some(manifest),
        };
        let id = ResponseId::Numbered(node(2), 4);
        let response = DelegateResponse { call: node(3), id, null: false, again: None, manifest: Some(manifest) };
        (request.encode().len() - MessageHead::LEN - PlainRequest::LEN, response.encode().len() - MessageHead::LEN)
    };
    assert_eq!(longest("10.0.0.1:7000"), (64, 48));
    // A request has two addresses, a response one.
    assert_eq!(longest("[2001:db8::1]:7000"), (64 + 24, 48 + 12));
}

#[test]
fn delegate_parse_error_names_the_violation() {
    let ping = Ping {
        call: ContextId::default(),
        subject: PingSubject::Context(ContextId::default()),
        abort: false,
        round: 1,
        first: 1,
    };
    let right = ping.encode().to_vec();
    let with = |at: usize, value| {
        let mut bytes = right.clone();
        bytes[at] = value;
        // Other kinds are longer.
        bytes.resize(64, 0);
        parse(&bytes).expect_err("invalid message")
    };
    assert_eq!(with(0, 7), Error::Value { field: "magic", value: 7 });
    assert_eq!(with(1, 0), Error::Value { field: "kind", value: 0 });
    assert_eq!(with(1, 3), Error::Value { field: "status code", value: 0 });
    assert_eq!(with(1, 2), Error::Value { field: "response number", value: 0 });
    let manifest = RequestManifest {
        request: ContextId::default().request(0),
        context: ContextId::default(),
        requests: 0,
        responses: 0,
        server: SocketAddr::from(([10, 0, 0, 1], 1)),
    };
    let id = ResponseId::Numbered(ContextId::default(), 1);
    let response =
        DelegateResponse { call: ContextId::default(), id, null: true, again: None, manifest: Some(manifest) };
    let none = Error::Value { field: "request number of a manifest", value: 0 };
    assert_eq!(parse(&response.encode()), Err(none));
    assert_eq!(parse(&right[..9]), Err(Error::Short { expected: 14, got: 9 }));
}
