//! Tests of cloned calls through the stubs that tonic generates.

use std::pin::pin;
use std::time::{Duration, Instant};

use pathcall_control::StoreLocation;
use pathcall_driver::clone::{CloneCallerHandle, PoolAddresses};
use pathcall_driver::link::Link;
use pathcall_endpoint::clone::{CloneCall, CloneCallerConfig, CloneOptions};
use pathcall_proto::v1::FollowPoolRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{TestServer, note, start_plain, within};
use pathcall_test_support::store::{PoolServer, STORE, TestPool, calls, micros, ways};
use pathcall_test_support::stubs::store_client::StoreClient;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::{Code, Request};

/// Minimum time after which an unanswered call is sent again.
const REPEATED_AFTER: Duration = Duration::from_millis(2);

/// Options for sending to two servers at once, by the caller.
pub(crate) fn sent_to_two() -> CloneOptions {
    CloneOptions { send_to_two: true, clone: false, ..CloneOptions::default() }
}

#[tokio::test]
async fn clone_options_do_not_change_answers() {
    let pool = TestPool::start(3).await;
    for options in [None].into_iter().chain(ways().map(Some)) {
        let mut builder = Channel::builder(pool.members[0].uri(), &STORE).unwrap();
        if let Some(options) = options {
            builder = builder.cloned(options);
        }
        let channel = builder.connect().await.unwrap();
        calls(&StoreClient::new(channel.clone()), 60).await;
        let stats = channel.stats();
        assert_eq!((stats.cloned_calls, stats.plain_calls, stats.pool.answered), (60, 0, 60), "{options:?}: {stats:?}");
        assert_eq!(stats.pool.second_requests > 0, options == Some(self::sent_to_two()), "{options:?}: {stats:?}");
    }
    assert!(pool.members.iter().all(|member| member.gets() > 0), "every server gets calls");
}

#[tokio::test]
async fn each_method_uses_its_own_option() {
    let pool = TestPool::start(3).await;
    let mut client = pool.client().await;
    let mut answered = Vec::new();
    for _ in 0..100 {
        answered.push(client.in_turn(note("who")).await.unwrap().into_inner().text);
    }
    let all_three = |three: &&[String]| three[0] != three[1] && three[1] != three[2] && three[2] != three[0];
    let in_turn = answered.windows(3).filter(all_three).count();
    // Random choice gives about 22 of 98. On a busy machine some calls are repeated at another server.
    assert!(in_turn > 60, "servers in turn: {answered:?}");
    assert_eq!(client.shortest(note("call")).await.unwrap().into_inner().text, "call");
    assert_eq!(client.hedged(note("call")).await.unwrap().into_inner().text, "call");
}

#[tokio::test]
async fn hedged_call_is_answered_by_another_server() {
    let pool = TestPool::start(2).await;
    let client = pool.client().await;
    let held = tokio::spawn({
        let mut client = client.clone();
        async move { client.hedged(note("held")).await }
    });
    let both = async {
        for member in &pool.members {
            member.kept.began.notified().await;
        }
    };
    timeout(HANG, both).await.expect("the second server gets the call when the first is slow");
    pool.members[1].kept.gate.send_replace(true);
    assert_eq!(timeout(HANG, held).await.unwrap().unwrap().unwrap().into_inner().text, "held");
    pool.members[0].kept.gate.send_replace(true);
}

#[tokio::test]
async fn hedged_handler_gets_time_left() {
    let pool = TestPool::start(2).await;
    let mut client = pool.client().await;
    let held = tokio::spawn(async move { client.hedged(within(80_000, note("held"))).await });
    let both = async {
        for member in &pool.members {
            member.kept.began.notified().await;
        }
    };
    timeout(HANG, both).await.expect("the second server gets the call when the first is slow");
    let left: Vec<_> = pool.members.iter().map(|member| micros(&member.kept.left.lock().unwrap()[0])).collect();
    // The delay is 20 ms; a request that no server is known to process is sent again after 16 ms.
    assert!(left.iter().all(|left| *left <= 80_000_000) && left.iter().any(|left| *left <= 79_985_000), "{left:?}");
    for member in &pool.members {
        member.kept.gate.send_replace(true);
    }
    timeout(HANG, held).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn non_fatal_status_tries_next_server() {
    let pool = TestPool::start(3).await;
    let mut client = pool.client().await;
    let gets = || pool.members.iter().map(PoolServer::gets).sum::<u64>();
    // The first server of a call is random: the refusing server is the first of some calls.
    for call in 0.. {
        if call >= 12 && gets() > call as u64 {
            break;
        }
        assert!(call < 1_000, "the refusing server was never the first");
        let refuses = format!("refuse {}", pool.members[call % 3].address);
        loop {
            let began = Instant::now();
            match timeout(HANG, client.tried(note(&refuses))).await.expect("an answer") {
                Ok(reply) => break assert_eq!(reply.into_inner().text, refuses),
                // Servers that do not answer count as failed after a while; then the refusal is the result.
                Err(refused) => assert!(began.elapsed() > REPEATED_AFTER, "{:?}: {refused}", began.elapsed()),
            }
        }
    }
    // The status of the last server is the result, with details. A panic of a handler is a failed call.
    for (text, code, asked) in
        [("fail", Code::Aborted, 3), ("panic", Code::Internal, 3), ("deny", Code::PermissionDenied, 1)]
    {
        let again = async {
            loop {
                let before = gets();
                let status = client.tried(note(text)).await.unwrap_err();
                assert_eq!(status.code(), code, "{text}");
                if code == Code::Aborted {
                    assert_eq!((status.message(), status.details()), ("as told", &b"details"[..]));
                }
                // A stalled server causes a repeated request, here or at another server: then try again.
                if gets() - before == asked {
                    break;
                }
            }
        };
        timeout(HANG, again).await.unwrap_or_else(|_| panic!("{text}: asked {asked} times"));
    }
}

#[tokio::test]
async fn status_details_and_metadata_equal_grpc() {
    let pool = TestPool::start(2).await;
    let channel = pool.channel().await;
    let user = |mut request: Request<()>| {
        request.metadata_mut().insert("user", "me".parse().unwrap());
        Ok(request)
    };
    let mut client = StoreClient::with_interceptor(channel.clone(), user);
    let reply = client.get(note("hello")).await.unwrap();
    assert_eq!(reply.metadata().get("for").unwrap(), "me");
    assert_eq!(reply.metadata().get_bin("raw-bin").unwrap().to_bytes().unwrap(), &[0, 255][..]);
    assert_eq!(reply.into_inner().text, "hello");
    let status = client.get(note("fail")).await.unwrap_err();
    assert_eq!((status.code(), status.message(), status.details()), (Code::Aborted, "as told", &b"details"[..]));
    assert_eq!(status.metadata().get("why").unwrap(), "because");
    let status = client.get(note("panic")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "the handler ended without a reply"));
    assert_eq!(client.get(note("hello")).await.unwrap().into_inner().text, "hello", "its worker is free again");
    assert_eq!(channel.stats().plain_calls, 0);
}

#[tokio::test]
async fn deadline_ends_call_and_handler() {
    let pool = TestPool::start(1).await;
    let mut client = pool.client().await;
    client.get(note("hello")).await.unwrap();
    let mut millis = 200;
    loop {
        let began = Instant::now();
        let (status, begun) = {
            let mut held = pin!(client.get(within(millis, note("held"))));
            tokio::select! {
                biased;
                () = pool.members[0].kept.began.notified() => (held.await.unwrap_err(), true),
                held = &mut held => (held.unwrap_err(), false),
            }
        };
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(began.elapsed() >= Duration::from_millis(millis));
        if begun {
            break;
        }
        // On a stalled machine the handler has not begun yet.
        millis *= 2;
        assert!(millis < 100_000, "no handler in {millis} ms");
    }
    timeout(HANG, pool.members[0].kept.dropped.notified()).await.expect("the handler is dropped");
    client.get(note("hello")).await.unwrap();
}

#[tokio::test]
async fn dropped_call_drops_handler() {
    let pool = TestPool::start(1).await;
    let mut client = pool.client().await;
    client.get(note("hello")).await.unwrap();
    {
        let mut dropped = std::pin::pin!(client.get(note("held")));
        tokio::select! {
            _ = &mut dropped => panic!("it is held"),
            () = pool.members[0].kept.began.notified() => {}
        }
    }
    timeout(HANG, pool.members[0].kept.dropped.notified()).await.expect("its handler is dropped, too");
    client.get(note("hello")).await.unwrap();
}

#[tokio::test]
async fn long_messages_use_several_frames_or_grpc() {
    let pool = TestPool::start(2).await;
    let mut client = pool.client().await;
    let channel = pool.channel().await;
    let mut counted = StoreClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    for (len, by_grpc) in [(1, 0), (2_000, 0), (60_000, 0), (1 << 20, 1), (3 << 20, 2)] {
        let text = "y".repeat(len);
        assert_eq!(counted.get(note(&text)).await.unwrap().into_inner().text, text);
        assert_eq!(channel.stats().plain_calls, by_grpc, "{len} bytes");
    }
    for len in [60_000, 1 << 20] {
        let reply = client.get(note(&format!("big {len}"))).await.unwrap().into_inner();
        assert_eq!(reply.text.len(), len, "a long reply to a short request");
    }
}

#[tokio::test]
async fn non_idempotent_method_is_called_once() {
    let pool = TestPool::start(3).await;
    let channel = Channel::builder(pool.members[0].uri(), &STORE).unwrap().cloned(sent_to_two());
    let channel = channel.connect().await.unwrap();
    let mut tasks = JoinSet::new();
    for call in 0..200 {
        let mut client = StoreClient::new(channel.clone());
        tasks.spawn(async move { client.put(note(&call.to_string())).await.unwrap() });
    }
    tasks.join_all().await;
    let puts: Vec<_> = pool.members.iter().map(PoolServer::puts).collect();
    assert_eq!(puts, [200, 0, 0], "each once, by the server that was named");
    let stats = channel.stats();
    assert_eq!((stats.cloned_calls, stats.plain_calls), (0, 200));
}

#[tokio::test]
async fn server_without_pool_is_called_by_grpc() {
    let alone = |controller: Option<&str>| {
        let builder = Layer::builder(&STORE);
        match controller {
            Some(controller) => builder.controller(controller),
            None => builder,
        }
    };
    // Without a controller, and with an unreachable one.
    for controller in [None, Some("http://127.0.0.1:1")] {
        let server = TestServer::start_with(alone(controller).build().await.unwrap(), 0).await;
        let channel = server.channel().await;
        let status = StoreClient::new(channel.clone()).get(note("hello")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "it has no such service, as gRPC says");
        assert_eq!((channel.stats().cloned_calls, channel.stats().plain_calls), (0, 1));
    }
    let (address, _) = start_plain().await;
    let channel = Channel::connect(format!("http://{address}"), &STORE).await.unwrap();
    assert_eq!(StoreClient::new(channel).get(note("hello")).await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn frames_with_tokens_are_accepted() {
    let pool = TestPool::start_with(2, StoreLocation::Memory, |options| options.authenticate_frames(true)).await;
    let channel = pool.channel().await;
    calls(&StoreClient::new(channel.clone()), 50).await;
    assert_eq!((channel.stats().plain_calls, channel.stats().pool.answered), (0, 50));
}

#[tokio::test]
async fn fast_failure_waits_for_other_server() {
    let pool = TestPool::start(2).await;
    let refused = note(&format!("refuse {}", pool.members[0].address));
    for options in [None, Some(sent_to_two())] {
        let mut builder = Channel::builder(pool.members[0].uri(), &STORE).unwrap();
        if let Some(options) = options {
            builder = builder.cloned(options);
        }
        let channel = builder.connect().await.unwrap();
        let client = StoreClient::new(channel.clone());
        let better = async {
            let mut better = 0;
            while better < 100 {
                let before = channel.stats().pool.set_aside;
                match client.clone().get(refused.clone()).await {
                    Ok(answer) => {
                        assert_eq!(answer.into_inner().text, refused.text, "{options:?}");
                        better += u32::from(channel.stats().pool.set_aside > before);
                    }
                    // On a stalled machine the refusal may be the only answer.
                    Err(status) => assert_eq!(status.code(), Code::Aborted, "{options:?}: {status}"),
                }
            }
        };
        timeout(HANG, better).await.expect("the other server answers the refused calls");
        // If all servers fail, the failure is the result.
        let denied = client.clone().get(note("deny")).await.unwrap_err();
        let failed = client.clone().get(note("fail")).await.unwrap_err();
        assert_eq!((denied.code(), failed.code()), (Code::PermissionDenied, Code::Aborted));
        assert_eq!(failed.details(), b"details");
    }
    assert!(pool.members.iter().all(|member| member.gets() > 0), "both are asked");
}

/// Encoded request of a cloned call.
fn sealed(path: &str, message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(path.len()).unwrap().to_be_bytes();
    [&[0; 8], &len[..], path.as_bytes(), &[0; 2], message].concat()
}

#[tokio::test]
async fn frames_reach_idempotent_methods_only() {
    let pool = TestPool::start(1).await;
    let link = Link::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let udp_port = link.local_addr().port().into();
    let mut peer = PeerClient::connect(pool.members[0].uri()).await.unwrap();
    let following =
        FollowPoolRequest { udp_port, incarnation: 9, method: "/rpctest.Store/Get".to_owned(), rack: String::new() };
    let mut views = peer.follow_pool(following.clone()).await.unwrap().into_inner();
    let view = views.message().await.unwrap().unwrap();
    let said = view.pool.unwrap();
    let table = PoolAddresses {
        pool: pathcall_endpoint::clone::Pool {
            gaid: said.gaid,
            version: said.version,
            servers: said.servers.iter().map(|server| server.endpoint).collect(),
        },
        addresses: said.servers.iter().map(|server| server.data_address.parse().unwrap()).collect(),
        ..PoolAddresses::default()
    };
    // No repetition, so that each request is counted once.
    let config = CloneCallerConfig::new(view.endpoint, 9, table.pool.clone(), 1);
    let config = CloneCallerConfig { retry_min: 2 * HANG, retry_max: 2 * HANG, ..config };
    let caller = CloneCallerHandle::spawn(config, table, None, link);
    let ask = async |request: Vec<u8>| {
        let call = CloneCall {
            request: request.into(),
            options: CloneOptions { deadline: 2 * HANG, ..CloneOptions::default() },
        };
        let reply = timeout(HANG, caller.call(call)).await.unwrap().unwrap().reply;
        String::from_utf8_lossy(&reply).into_owned()
    };
    let done = ask(sealed("/rpctest.Store/Get", b"")).await;
    assert!(done.contains("grpc-status\0\u{1}0"), "{done:?}");
    // A method that is not cloned, an unknown one, one of Pathcall's own, and invalid paths.
    for path in ["/rpctest.Store/Put", "/rpctest.Store/None", "/pathcall.v1.Peer/Join", "no path", ""] {
        let refused = ask(sealed(path, b"")).await;
        assert!(refused.contains("grpc-status\0\u{2}12"), "{path}: {refused:?}");
    }
    for nonsense in [vec![], vec![0; 9], vec![0xff; 100], vec![0xff; 60_000]] {
        let refused = ask(nonsense).await;
        assert!(refused.contains("grpc-status\0\u{1}3"), "{refused:?}");
    }
    assert_eq!((pool.members[0].puts(), pool.members[0].gets()), (0, 1));
    for (wrong, what) in [
        (FollowPoolRequest { udp_port: 70_000, ..following.clone() }, "70000 is not a UDP port"),
        (
            FollowPoolRequest { method: "/rpctest.Store/Put".to_owned(), ..following },
            "\"/rpctest.Store/Put\" is not a method of this server's pool",
        ),
    ] {
        let refused = peer.follow_pool(wrong).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, what));
    }
}
