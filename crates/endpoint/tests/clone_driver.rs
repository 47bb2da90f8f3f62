//! Callers and servers' queues on sockets: calls past an element, forged answers, servers that are gone.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::clone::{
    Answer, Ask, AskError, Balance, CallerConfig, Failure, Hedge, MESSAGE_MAX, Options, Pool, Work, WorkerConfig,
};
use pathcall_endpoint::driver::clone::{CallError, CallerHandle, Order, Table, WorkerHandle, Works};
use pathcall_endpoint::driver::link::Link;
use pathcall_test_support::{HANG, loopback};
use pathcall_wire::clone::emit;
use pathcall_wire::{BaseRepr, CloneRepr, Flags, Kind, TokenKey};
use tokio::net::UdpSocket;
use tokio::time::timeout;

const GAID: u32 = 7;
const CALLER: u32 = 100;
const INCARNATION: u32 = 5;
const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn link() -> Link {
    Link::bind(FREE).expect("a port")
}

/// The table of servers 1, 2, … at these links.
fn table(version: u32, servers: &[(u32, SocketAddr)]) -> Table {
    let (servers, addresses) = servers.iter().copied().unzip();
    Table { pool: Pool { gaid: GAID, version, servers }, addresses, ..Table::default() }
}

fn caller(table: Table, key: Option<TokenKey>) -> (CallerHandle, SocketAddr) {
    let link = link();
    let address = link.local_addr();
    (CallerHandle::spawn(config(&table), table, key, link), address)
}

fn config(table: &Table) -> CallerConfig {
    CallerConfig::new(CALLER, INCARNATION, table.pool.clone(), 1)
}

/// A server that answers with what it was asked and its own number.
fn echo(endpoint: u32, sid: u16, key: Option<TokenKey>) -> (WorkerHandle, SocketAddr) {
    let link = link();
    let address = link.local_addr();
    let config = WorkerConfig::new(GAID, endpoint, 1, sid, 2);
    let (handle, works) = WorkerHandle::spawn(config, Table::default(), key, link);
    tokio::spawn(answer(works, endpoint));
    (handle, address)
}

async fn answer(mut works: Works, endpoint: u32) {
    let replies = works.replies();
    while let Some(order) = works.next().await {
        let Order::Begin(work) = order else { continue };
        let reply = [&work.request[..], &[endpoint as u8]].concat();
        replies.finish(work.id, reply.into(), Bytes::from_static(b"too long"));
    }
}

/// The next request.
async fn begun(works: &mut Works) -> Work {
    match timeout(HANG, works.next()).await.expect("a worker is free") {
        Some(Order::Begin(work)) => work,
        other => panic!("a request, got {other:?}"),
    }
}

/// A call without a deadline: nobody but the test's own bound ends it.
async fn ask(caller: &CallerHandle, request: impl Into<Bytes>, options: Options) -> Result<Answer, CallError> {
    ask_in_time(caller, request, Options { deadline: 2 * HANG, ..options }).await
}

async fn ask_in_time(caller: &CallerHandle, request: impl Into<Bytes>, options: Options) -> Result<Answer, CallError> {
    let asked = caller.ask(Ask { request: request.into(), options });
    timeout(HANG, asked).await.expect("it ends")
}

/// A random server, past the element.
fn random() -> Options {
    Options { clone: false, ..Options::default() }
}

/// Ways to make a call: by one server, by two, by another one if the first is late, and by the element.
fn ways() -> [Options; 6] {
    let hedge = Some(Hedge { delay: Duration::from_millis(10), max_attempts: 2 });
    [
        random(),
        Options { balance: Balance::RoundRobin, ..random() },
        Options { hedge, ..random() },
        Options { twice: true, ..random() },
        Options::default(),
        Options { balance: Balance::Shortest, ..Options::default() },
    ]
}

#[tokio::test]
async fn every_way_works_without_an_element() {
    for key in [None, Some(TokenKey::new([1, 2]))] {
        let (one, at_one) = echo(1, 0, key);
        let (two, at_two) = echo(2, 1, key);
        let (caller, _) = caller(table(1, &[(1, at_one), (2, at_two)]), key);
        for (at, options) in ways().into_iter().enumerate() {
            let caller = caller.clone().busy_poll(Duration::from_micros(200) * (at as u32 % 2));
            for len in [0, 1, 1_300, 5_000, MESSAGE_MAX - 1] {
                let answer = ask(&caller, vec![7; len], options).await.expect("an answer");
                assert_eq!(answer.reply.len(), len + 1, "{options:?}");
                assert_eq!(u32::from(answer.reply[len]), answer.server, "{options:?}");
            }
        }
        assert!(one.stats().answered > 0 && two.stats().answered > 0);
        // An answer that does not fit says so; a request that does not is refused at once.
        let answer = ask(&caller, vec![7; MESSAGE_MAX], Options::default()).await.expect("an answer");
        assert_eq!(answer.reply, "too long");
        let refused = ask(&caller, vec![7; MESSAGE_MAX + 1], Options::default()).await;
        assert_eq!(refused, Err(CallError::Refused(AskError::TooLong(MESSAGE_MAX + 1))));
    }
}

#[tokio::test]
async fn forged_answers_are_not_believed() {
    let key = TokenKey::new([3, 4]);
    for key in [None, Some(key)] {
        // A server that is only a socket: it sees the request, and others answer it.
        let server = UdpSocket::bind(FREE).await.unwrap();
        let (caller, address) = caller(table(1, &[(1, server.local_addr().unwrap())]), key);
        let asking = tokio::spawn({
            let caller = caller.clone();
            async move { ask(&caller, "what", Options { patience: Some(Duration::ZERO), ..Options::default() }).await }
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
            ..BaseRepr::new(Kind::CloneReply)
        };
        let head = CloneRepr { sid: 0, patience: 0, ..head };
        let stranger = UdpSocket::bind(FREE).await.unwrap();
        let send = async |base: BaseRepr, payload: &[u8], key: Option<TokenKey>| {
            let (mut frame, mut room) = (vec![0; pathcall_wire::MAX_FRAME], vec![0; pathcall_wire::MAX_FRAME]);
            let len = emit(&base, &head, payload, &mut frame);
            let frame = key.map_or(&frame[..len], |key| key.seal(&frame[..len], &mut room).expect("it fits"));
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
        assert_eq!(asking.await.unwrap().expect("an answer").reply, "right");
        assert!(caller.stats().ignored >= 5, "{:?}", caller.stats());
    }
}

#[tokio::test]
async fn calls_to_a_server_that_is_gone_are_made_elsewhere() {
    let gone = loopback::own();
    let (_two, at_two) = echo(2, 1, None);
    let (caller, _) = caller(table(1, &[(1, gone), (2, at_two)]), None);
    for _ in 0..20 {
        assert_eq!(ask(&caller, "what", random()).await.expect("an answer").server, 2);
    }
    // The pool says so, too.
    caller.renew(table(2, &[(2, at_two)]));
    assert_eq!(ask(&caller, "what", random()).await.expect("an answer").requests, 1);
    let nobody = Options { deadline: Duration::from_millis(50), ..Options::default() };
    caller.renew(table(3, &[(1, gone)]));
    let failed = ask_in_time(&caller, "what", nobody).await;
    assert!(matches!(failed, Err(CallError::Failed(Failure::Deadline { .. }))), "{failed:?}");
    caller.renew(table(4, &[]));
    assert_eq!(ask(&caller, "what", nobody).await, Err(CallError::Refused(AskError::NoServers)));
}

#[tokio::test]
async fn a_queue_that_stops_answers_what_it_has_begun() {
    let link = link();
    let address = link.local_addr();
    let (handle, mut works) = WorkerHandle::spawn(WorkerConfig::new(GAID, 1, 1, 0, 1), Table::default(), None, link);
    let (caller, _) = caller(table(1, &[(1, address)]), None);
    let asking = tokio::spawn(async move { ask(&caller, "what", random()).await });
    let work = begun(&mut works).await;
    let replies = works.replies();
    drop(handle);
    assert!(timeout(HANG, works.next()).await.unwrap().is_none(), "nothing more");
    replies.finish(work.id, Bytes::from_static(b"done"), Bytes::new());
    assert_eq!(asking.await.unwrap().expect("an answer").reply, "done");
}

#[tokio::test]
async fn servers_hear_that_a_call_is_given_up() {
    for options in ways().into_iter().filter(|options| options.hedge.is_none()) {
        let (one, two) = (link(), link());
        let pool = table(1, &[(1, one.local_addr()), (2, two.local_addr())]);
        let start = |endpoint, sid, link| {
            let config = WorkerConfig::new(GAID, endpoint, 1, sid, 1);
            WorkerHandle::spawn(config, Table::default(), None, link)
        };
        let ((one, mut at_one), (two, mut at_two)) = (start(1, 0, one), start(2, 1, two));
        let (caller, _) = caller(pool, None);
        // One is at work at each, others wait, and all are given up.
        let asks = (0..16).map(|_| {
            let options = Options { deadline: 2 * HANG, ..options };
            let ask = Ask { request: "what".into(), options };
            let caller = caller.clone();
            tokio::spawn(async move { caller.ask(ask).await })
        });
        let asks: Vec<_> = asks.collect();
        let (a, b) = (begun(&mut at_one).await.id, begun(&mut at_two).await.id);
        asks.iter().for_each(tokio::task::JoinHandle::abort);
        for (works, id) in [(&mut at_one, a), (&mut at_two, b)] {
            let unwanted = loop {
                match timeout(HANG, works.next()).await.expect("it hears of it") {
                    Some(Order::GivenUp(work)) => assert_eq!(work.request, "what", "{options:?}"),
                    order => break order,
                }
            };
            assert!(matches!(unwanted, Some(Order::Unwanted(unwanted)) if unwanted == id), "{options:?}: {unwanted:?}");
            works.replies().drop_work(id);
        }
        let empty = async {
            while one.waiting() + two.waiting() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(HANG, empty).await.expect("what has not begun is not begun");
    }
}

#[tokio::test]
async fn clones_that_come_together_are_wanted_while_workers_are_free() {
    let link = link();
    let address = link.local_addr();
    let config = WorkerConfig::new(GAID, 1, 1, 0, 8);
    let (handle, mut works) = WorkerHandle::spawn(config, Table::default(), None, link);
    // All of them wait in the socket when the queue first looks.
    let element = std::net::UdpSocket::bind(FREE).unwrap();
    for seq in 1..=9 {
        let base = BaseRepr {
            gaid: GAID,
            src: CALLER,
            src_incarnation: INCARNATION,
            dst: 1,
            seq,
            ..BaseRepr::new(Kind::CloneRequest)
        };
        let head = CloneRepr { req_id: seq.into(), clo: 2, switch_id: 1, parts: 1, ..CloneRepr::default() };
        let mut frame = vec![0; pathcall_wire::MAX_FRAME];
        let len = emit(&base, &head, b"clone", &mut frame);
        element.send_to(&frame[..len], address).unwrap();
    }
    for _ in 0..8 {
        begun(&mut works).await;
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
