//! Tests of the clone drivers on sockets: calls past an element, forged answers, dead servers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::clone::{
    CloneCallError, CloneCallerHandle, CloneWorkerEvent, CloneWorkerEvents, CloneWorkerHandle, PoolAddresses,
};
use crate::link::Link;
use bytes::Bytes;
use pathcall_endpoint::clone::{
    Balance, CloneAnswer, CloneCall, CloneCallerConfig, CloneFailure, CloneOptions, CloneWorkerConfig, Hedge,
    HedgeAfter, MESSAGE_MAX, Pool, PoolRequest, StartError,
};
use pathcall_test_support::{HANG, loopback};
use pathcall_wire::clone::emit;
use pathcall_wire::{BaseRepr, CloneRepr, Flags, FrameKind, TokenKey};
use tokio::net::UdpSocket;
use tokio::time::timeout;

const GAID: u32 = 7;
const CALLER: u32 = 100;
const INCARNATION: u32 = 5;
const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn link() -> Link {
    Link::bind(FREE).expect("a port")
}

/// Addresses of the servers 1, 2, … at these links.
fn table(version: u32, servers: &[(u32, SocketAddr)]) -> PoolAddresses {
    let (servers, addresses) = servers.iter().copied().unzip();
    PoolAddresses { pool: Pool { gaid: GAID, version, servers }, addresses, ..PoolAddresses::default() }
}

fn caller(table: PoolAddresses, key: Option<TokenKey>) -> (CloneCallerHandle, SocketAddr) {
    let link = link();
    let address = link.local_addr();
    (CloneCallerHandle::spawn(config(&table), table, key, link), address)
}

fn config(table: &PoolAddresses) -> CloneCallerConfig {
    CloneCallerConfig::new(CALLER, INCARNATION, table.pool.clone(), 1)
}

/// Server that answers each request with its payload and the server's number.
fn echo(endpoint: u32, sid: u16, key: Option<TokenKey>) -> (CloneWorkerHandle, SocketAddr) {
    let link = link();
    let address = link.local_addr();
    let config = CloneWorkerConfig::new(GAID, endpoint, 1, sid, 2);
    let (handle, events) = CloneWorkerHandle::spawn(config, PoolAddresses::default(), key, link);
    tokio::spawn(answer(events, endpoint));
    (handle, address)
}

async fn answer(mut events: CloneWorkerEvents, endpoint: u32) {
    let replies = events.replies();
    while let Some(order) = events.next().await {
        let CloneWorkerEvent::Begin(work) = order else { continue };
        let reply = [&work.request[..], &[endpoint as u8]].concat();
        replies.finish(work.id, reply.into(), Bytes::from_static(b"too long"));
    }
}

/// Waits for the next request.
async fn next_request(events: &mut CloneWorkerEvents) -> PoolRequest {
    match timeout(HANG, events.next()).await.expect("a worker is free") {
        Some(CloneWorkerEvent::Begin(work)) => work,
        other => panic!("a request, got {other:?}"),
    }
}

/// Makes a call without a deadline; the test's own timeout bounds it.
async fn call(
    caller: &CloneCallerHandle,
    request: impl Into<Bytes>,
    options: CloneOptions,
) -> Result<CloneAnswer, CloneCallError> {
    call_in_time(caller, request, CloneOptions { deadline: 2 * HANG, ..options }).await
}

async fn call_in_time(
    caller: &CloneCallerHandle,
    request: impl Into<Bytes>,
    options: CloneOptions,
) -> Result<CloneAnswer, CloneCallError> {
    let asked = caller.call(CloneCall { request: request.into(), options });
    timeout(HANG, asked).await.expect("an end in time")
}

/// Options for a random server, past the element.
fn random() -> CloneOptions {
    CloneOptions { clone: false, ..CloneOptions::default() }
}

/// All kinds of options: one server, two, hedging, and the element.
fn all_options() -> [CloneOptions; 7] {
    let hedge = Some(Hedge { after: HedgeAfter::Delay(Duration::from_millis(10)), max_attempts: 2 });
    [
        random(),
        CloneOptions { balance: Balance::RoundRobin, ..random() },
        CloneOptions { hedge, ..random() },
        CloneOptions { send_to_two: true, ..random() },
        CloneOptions::default(),
        CloneOptions { balance: Balance::Shortest, ..CloneOptions::default() },
        CloneOptions { automatic: true, ..random() },
    ]
}

#[tokio::test]
async fn every_option_works_without_an_element() {
    for key in [None, Some(TokenKey::new([1, 2]))] {
        let (one, at_one) = echo(1, 0, key);
        let (two, at_two) = echo(2, 1, key);
        let (caller, _) = caller(table(1, &[(1, at_one), (2, at_two)]), key);
        for (at, options) in all_options().into_iter().enumerate() {
            let caller = caller.clone().busy_poll(Duration::from_micros(200) * (at as u32 % 2));
            for len in [0, 1, 1_300, 5_000, MESSAGE_MAX - 1] {
                let answer = call(&caller, vec![7; len], options).await.expect("an answer");
                assert_eq!(answer.reply.len(), len + 1, "{options:?}");
                assert_eq!(u32::from(answer.reply[len]), answer.server, "{options:?}");
            }
        }
        assert!(one.stats().answered > 0 && two.stats().answered > 0);
        // An answer that is too long is replaced; a request that is too long is refused at once.
        let answer = call(&caller, vec![7; MESSAGE_MAX], CloneOptions::default()).await.expect("an answer");
        assert_eq!(answer.reply, "too long");
        let refused = call(&caller, vec![7; MESSAGE_MAX + 1], CloneOptions::default()).await;
        assert_eq!(refused, Err(CloneCallError::Refused(StartError::TooLong(MESSAGE_MAX + 1))));
    }
}

#[tokio::test]
async fn forged_answers_are_ignored() {
    let key = TokenKey::new([3, 4]);
    for key in [None, Some(key)] {
        // A server that is only a socket: it sees the request, and strangers answer.
        let server = UdpSocket::bind(FREE).await.unwrap();
        let (caller, address) = caller(table(1, &[(1, server.local_addr().unwrap())]), key);
        let calling = tokio::spawn({
            let caller = caller.clone();
            async move {
                call(&caller, "what", CloneOptions { patience: Some(Duration::ZERO), ..CloneOptions::default() }).await
            }
        });
        let mut bytes = vec![0; 2_000];
        let (len, _) = timeout(HANG, server.recv_from(&mut bytes)).await.unwrap().unwrap();
        let request = pathcall_wire::CloneFrame::new_checked(&bytes[..len]).expect("a request");
        let (asked, head) = (request.base().repr(), request.head().repr());
        let right = BaseRepr {
            gaid: GAID,
            src: 1,
            src_incarnation: 1,
            dst: CALLER,
            dst_incarnation: INCARNATION,
            seq: asked.seq,
            flags: Flags::FROM_SERVER,
            ..BaseRepr::new(FrameKind::CloneReply)
        };
        let head = CloneRepr { sid: 0, patience: 0, ..head };
        let stranger = UdpSocket::bind(FREE).await.unwrap();
        let send = async |base: BaseRepr, payload: &[u8], key: Option<TokenKey>| {
            let (mut frame, mut room) = (vec![0; pathcall_wire::MAX_FRAME], vec![0; pathcall_wire::MAX_FRAME]);
            let len = emit(&base, &head, payload, &mut frame);
            let frame = key.map_or(&frame[..len], |key| key.insert_token(&frame[..len], &mut room).expect("it fits"));
            stranger.send_to(frame, address).await.unwrap();
        };
        let wrong = [
            BaseRepr { dst_incarnation: 6, ..right },
            BaseRepr { src: 2, ..right },
            BaseRepr { gaid: 8, ..right },
            BaseRepr { dst: 101, ..right },
            BaseRepr { seq: asked.seq.wrapping_add(1), ..right },
            BaseRepr { flags: 0, ..right },
        ];
        for base in wrong {
            send(base, b"forged", key).await;
        }
        if key.is_some() {
            send(right, b"unsigned", None).await;
            send(right, b"signed by another", Some(TokenKey::new([3, 5]))).await;
        }
        send(right, b"right", key).await;
        assert_eq!(calling.await.unwrap().expect("an answer").reply, "right");
        assert!(caller.stats().ignored >= 5, "{:?}", caller.stats());
    }
}

#[tokio::test]
async fn calls_of_dead_server_go_to_another() {
    let gone = loopback::own();
    let (_two, at_two) = echo(2, 1, None);
    let (caller, _) = caller(table(1, &[(1, gone), (2, at_two)]), None);
    for _ in 0..20 {
        assert_eq!(call(&caller, "what", random()).await.expect("an answer").server, 2);
    }
    // The pool is updated.
    caller.renew(table(2, &[(2, at_two)]));
    assert_eq!(call(&caller, "what", random()).await.expect("an answer").requests, 1);
    let nobody = CloneOptions { deadline: Duration::from_millis(50), ..CloneOptions::default() };
    caller.renew(table(3, &[(1, gone)]));
    let failed = call_in_time(&caller, "what", nobody).await;
    assert!(matches!(failed, Err(CloneCallError::Failed(CloneFailure::Deadline { .. }))), "{failed:?}");
    caller.renew(table(4, &[]));
    assert_eq!(call(&caller, "what", nobody).await, Err(CloneCallError::Refused(StartError::NoServers)));
}

#[tokio::test]
async fn stopping_queue_answers_begun_requests() {
    let link = link();
    let address = link.local_addr();
    let (handle, mut events) =
        CloneWorkerHandle::spawn(CloneWorkerConfig::new(GAID, 1, 1, 0, 1), PoolAddresses::default(), None, link);
    let (caller, _) = caller(table(1, &[(1, address)]), None);
    let calling = tokio::spawn(async move { call(&caller, "what", random()).await });
    let work = next_request(&mut events).await;
    let replies = events.replies();
    drop(handle);
    assert!(timeout(HANG, events.next()).await.unwrap().is_none(), "nothing more");
    replies.finish(work.id, Bytes::from_static(b"done"), Bytes::new());
    assert_eq!(calling.await.unwrap().expect("an answer").reply, "done");
}

#[tokio::test]
async fn cancelled_call_is_reported_to_servers() {
    for options in all_options().into_iter().filter(|options| options.hedge.is_none()) {
        let (one, two) = (link(), link());
        let pool = table(1, &[(1, one.local_addr()), (2, two.local_addr())]);
        let start = |endpoint, sid, link| {
            let config = CloneWorkerConfig::new(GAID, endpoint, 1, sid, 1);
            CloneWorkerHandle::spawn(config, PoolAddresses::default(), None, link)
        };
        let ((one, mut at_one), (two, mut at_two)) = (start(1, 0, one), start(2, 1, two));
        let (caller, _) = caller(pool, None);
        // At each server one request is in progress and others wait; all calls are cancelled.
        let asks = (0..16).map(|_| {
            let options = CloneOptions { deadline: 2 * HANG, ..options };
            let call = CloneCall { request: "what".into(), options };
            let caller = caller.clone();
            tokio::spawn(async move { caller.call(call).await })
        });
        let asks: Vec<_> = asks.collect();
        let (a, b) = (next_request(&mut at_one).await.id, next_request(&mut at_two).await.id);
        asks.iter().for_each(tokio::task::JoinHandle::abort);
        for (events, id) in [(&mut at_one, a), (&mut at_two, b)] {
            let unwanted = loop {
                match timeout(HANG, events.next()).await.expect("an event in time") {
                    Some(CloneWorkerEvent::Cancelled(work)) => assert_eq!(work.request, "what", "{options:?}"),
                    order => break order,
                }
            };
            assert!(
                matches!(unwanted, Some(CloneWorkerEvent::Unwanted(unwanted)) if unwanted == id),
                "{options:?}: {unwanted:?}"
            );
            events.replies().drop_request(id);
        }
        let empty = async {
            while one.waiting() + two.waiting() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(HANG, empty).await.expect("an empty queue in time");
    }
}

#[tokio::test]
async fn clones_of_one_batch_are_queued_for_free_workers() {
    let link = link();
    let address = link.local_addr();
    let config = CloneWorkerConfig::new(GAID, 1, 1, 0, 8);
    let (handle, mut events) = CloneWorkerHandle::spawn(config, PoolAddresses::default(), None, link);
    // All of the clones wait in the socket when the queue polls it first.
    let element = std::net::UdpSocket::bind(FREE).unwrap();
    for seq in 1..=9 {
        let base = BaseRepr {
            gaid: GAID,
            src: CALLER,
            src_incarnation: INCARNATION,
            dst: 1,
            seq,
            ..BaseRepr::new(FrameKind::CloneRequest)
        };
        let head = CloneRepr { req_id: seq.into(), clo: 2, switch_id: 1, parts: 1, ..CloneRepr::default() };
        let mut frame = vec![0; pathcall_wire::MAX_FRAME];
        let len = emit(&base, &head, b"clone", &mut frame);
        element.send_to(&frame[..len], address).unwrap();
    }
    for _ in 0..8 {
        next_request(&mut events).await;
    }
    let stats = async {
        while handle.stats().queued + handle.stats().clones_dropped < 9 {
            tokio::task::yield_now().await;
        }
        handle.stats()
    };
    let stats = timeout(HANG, stats).await.unwrap();
    assert_eq!((stats.clones, stats.clones_dropped), (9, 0), "the last one waits alone: {stats:?}");
}
