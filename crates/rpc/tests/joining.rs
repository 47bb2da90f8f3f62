//! Tests of joining and leaving an application.

use std::time::Duration;

use crate::shadow_sums::element;
use bytes::Bytes;
use http_body_util::Full;
use pathcall_control::StoreLocation;
use pathcall_proto::manifest::{Manifest, Method};
use pathcall_proto::types::FpArray;
use pathcall_proto::v1::JoinRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::{TestServer, counts, gradient, join, names, note, str_int, until};
use pathcall_test_support::store::controller;
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use pathcall_test_support::{HANG, loopback};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MapFlags, MapRepr, TokenKey};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::Code;
use tower::Service;

fn joins(channel: &Channel, app: &str) -> u64 {
    channel.stats().applications.iter().find(|application| application.name == app).unwrap().joins
}

pub(crate) fn members(server: &Layer, app: &str) -> usize {
    server.stats().iter().find(|application| application.name == app).unwrap().members
}

#[tokio::test]
async fn concurrent_calls_join_once() {
    let server = TestServer::start().await;
    let channel = server.channel().await;
    assert_eq!(joins(&channel, "T-WORDS"), 0);
    let calls = (0..20).map(|_| {
        let mut words = WordsClient::new(channel.clone());
        tokio::spawn(async move { words.reduce(counts(&[("a", 1)], "")).await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(joins(&channel, "T-WORDS"), 1);
    assert_eq!(joins(&channel, "T-SUM"), 0);
    assert_eq!(channel.stats().filtered_calls, 20);
    assert_eq!(channel.stats().handler_calls, 0);
    assert_eq!(members(&server.pathcall, "T-WORDS"), 1);
    drop(channel);
    until(|| members(&server.pathcall, "T-WORDS") == 0).await;
}

#[tokio::test]
async fn surplus_worker_takes_freed_place() {
    let server = TestServer::start().await;
    let first = server.channel().await;
    let second = server.channel().await;
    let update = |channel: &Channel| {
        let mut client = TrainingClient::new(channel.clone());
        async move { client.update(gradient(&[1.0])).await }
    };
    let (a, b) = tokio::join!(update(&first), update(&second));
    assert!(a.is_ok() && b.is_ok());
    let third = server.channel().await;
    let error = update(&third).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("T-SUM") && error.message().contains("2 callers"), "{}", error.message());

    drop(first);
    let (a, b) = tokio::join!(update(&third), update(&second));
    assert_eq!(a.unwrap().into_inner().tensor.unwrap().data, [2.0]);
    assert!(b.is_ok());
}

/// The test's manifest with other digests.
fn other_filters() -> &'static Manifest {
    let methods: Vec<Method> =
        PATHCALL.methods.iter().map(|method| Method { digest: method.digest ^ 1, ..*method }).collect();
    Box::leak(Box::new(Manifest { methods: methods.leak(), ..PATHCALL }))
}

#[tokio::test]
async fn different_filters_are_refused() {
    let server = TestServer::start().await;
    let channel = Channel::connect(server.uri(), other_filters()).await.unwrap();
    let error = WordsClient::new(channel).reduce(counts(&[("a", 1)], "")).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(
        error.message(),
        format!(
            "/rpctest.Words/Reduce: joining T-WORDS at {}/: client and server were built from different filters of \
             T-WORDS",
            server.uri()
        )
    );
    let both = Channel::builder(server.uri(), &PATHCALL).unwrap().manifest(other_filters());
    assert!(both.connect().await.unwrap_err().to_string().contains("different filters"));
}

/// Without a controller, fencing tokens can only grow with time.
#[tokio::test]
async fn fencing_tokens_grow_over_server_restart() {
    let mut last = 0;
    for _ in 0..2 {
        let server = TestServer::start().await;
        let locked = LocksClient::new(server.channel().await).lock(names(&["door"], "")).await.unwrap();
        let token = locked.metadata().get("pathcall-fencing-token").unwrap().to_str().unwrap().parse::<u64>().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[tokio::test]
async fn restarted_server_is_joined_again() {
    let address = loopback::own();
    let server = TestServer::start_at(Layer::builder(&PATHCALL).build().await.unwrap(), address).await;
    let channel = server.channel().await;
    let mut words = WordsClient::new(channel.clone());
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();
    // The graceful shutdown ends although the channel's stream is open.
    server.stop().await;

    let server = TestServer::start_at(Layer::builder(&PATHCALL).build().await.unwrap(), address).await;
    // The channel notices the loss by the end of the stream, which may come after the start of the first call.
    let mut outcome = words.reduce(counts(&[("a", 2)], "")).await;
    if let Err(error) = &outcome {
        assert_eq!(error.code(), Code::Unavailable, "{error}");
        outcome = words.reduce(counts(&[("a", 2)], "")).await;
    }
    outcome.unwrap();
    assert_eq!(joins(&channel, "T-WORDS"), 2);
    assert_eq!(members(&server.pathcall, "T-WORDS"), 1);

    // The server has lost the values added before: the first query fails.
    let wanted = || Wanted { keys: Some(str_int(&[("a", 0)])), ..Wanted::default() };
    let error = words.query(wanted()).await.unwrap_err();
    assert_eq!(error.code(), Code::DataLoss);
    assert!(error.message().contains("has restarted and lost"), "{}", error.message());
    let found = words.query(wanted()).await.unwrap().into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("a", 2)])));
}

#[tokio::test]
async fn call_in_flight_ends_with_server() {
    let server = TestServer::start().await;
    let mut client = TrainingClient::new(server.channel().await);
    // The other worker never joins.
    let waiting = tokio::spawn(async move { client.update(gradient(&[1.0])).await });
    until(|| members(&server.pathcall, "T-SUM") == 1).await;
    let uri = server.uri();
    server.stop().await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains(&uri), "{}", error.message());
}

#[tokio::test]
async fn unreachable_server_fails_at_once() {
    let gone = loopback::own();
    let error = Channel::connect(format!("http://{gone}"), &PATHCALL).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("no gRPC server answers at http://{gone}/:")), "{error}");
    assert!(error.contains("refused"), "{error}");
    assert!(
        Channel::connect("not a uri", &PATHCALL).await.unwrap_err().to_string().starts_with("invalid server address: ")
    );

    let lazy = Channel::builder(format!("http://{gone}"), &PATHCALL).unwrap().connect_lazy().unwrap();
    let error = WordsClient::new(lazy.clone()).reduce(counts(&[("a", 1)], "")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let error = TrainingClient::new(lazy.clone()).echo(note("hi")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);

    // The server starts later.
    let pathcall = Layer::builder(&PATHCALL).build().await.unwrap();
    let _server = TestServer::start_at(pathcall, gone).await;
    WordsClient::new(lazy).reduce(counts(&[("a", 1)], "")).await.unwrap();
}

#[tokio::test]
async fn calls_waiting_for_join_share_its_failure() {
    // The server accepts connections but does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", silent.local_addr().unwrap());
    let channel = Channel::connect(uri, &PATHCALL).await.unwrap();
    // From here on all tasks wait, so the paused clock advances.
    tokio::time::pause();
    let began = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..4 {
        let mut words = WordsClient::new(channel.clone());
        calls.spawn(async move { words.reduce(counts(&[("a", 1)], "")).await.unwrap_err() });
    }
    for failed in calls.join_all().await {
        assert_eq!(failed.code(), Code::Unavailable);
        assert!(failed.message().contains("did not answer the join of T-WORDS in 10 s"), "{}", failed.message());
    }
    assert!(began.elapsed() < Duration::from_secs(18), "{:?}", began.elapsed());
}

#[tokio::test]
async fn compressed_request_is_refused_and_counted() {
    let server = TestServer::start().await;
    let mut channel = server.channel().await;
    let body = tonic::body::Body::new(Full::new(Bytes::from_static(b"\x01\0\0\0\x01x")));
    let request = http::Request::post("/rpctest.Words/Reduce").body(body).unwrap();
    let error = channel.call(request).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("without compression"), "{}", error.message());
    assert_eq!(channel.stats().compressed_refused, 1);
}

#[tokio::test]
async fn invalid_join_is_refused() {
    let server = TestServer::start().await;
    let mut peer = PeerClient::connect(server.uri()).await.unwrap();
    let good = JoinRequest { flows: 3, ..join("/rpctest.Training/Update") };
    for (request, code) in [
        (JoinRequest { udp_port: 70_000, ..good.clone() }, Code::InvalidArgument),
        (JoinRequest { application: "no such".into(), ..good.clone() }, Code::FailedPrecondition),
        (JoinRequest { method: "/rpctest.Words/Reduce".into(), ..good.clone() }, Code::InvalidArgument),
        (JoinRequest { method: String::new(), ..good.clone() }, Code::InvalidArgument),
        (JoinRequest { filter_digest: 0, ..good }, Code::FailedPrecondition),
    ] {
        assert_eq!(peer.join(request).await.unwrap_err().code(), code);
    }
    assert_eq!(members(&server.pathcall, "T-SUM"), 0);
}

#[tokio::test]
async fn disagreeing_workers_start_again() {
    let server = TestServer::start().await;
    let channels = [server.channel().await, server.channel().await];
    let update = |worker: usize, part: &[f64]| {
        let (mut client, part) = (TrainingClient::new(channels[worker].clone()), gradient(part));
        async move { client.update(part).await.map(|sums| sums.into_inner().tensor.unwrap().data) }
    };
    let (a, b) = tokio::join!(update(0, &[1.0]), update(1, &[1.0, 2.0]));
    for outcome in [a, b] {
        assert_eq!(outcome.unwrap_err().code(), Code::FailedPrecondition);
    }
    let (a, b) = tokio::join!(update(0, &[1.0, 2.0]), update(1, &[1.0, 2.0]));
    assert_eq!((a.unwrap(), b.unwrap()), (vec![2.0, 4.0], vec![2.0, 4.0]));
    assert!(channels.iter().all(|channel| joins(channel, "T-SUM") == 2));
}

/// Channel that joins an application again after a few frames.
async fn short_lived_channel(server: &TestServer) -> Channel {
    let builder = Channel::builder(server.uri(), &PATHCALL).unwrap();
    builder.flows(1).flow_frames(8).connect().await.unwrap()
}

#[tokio::test]
async fn exhausted_caller_joins_again_without_loss() {
    let free = || "127.0.0.1:0".parse().unwrap();
    let controller = controller(free(), StoreLocation::Memory).await;
    let _element = element(&controller, [free(), free()]).await;
    let builder = Layer::builder(&PATHCALL).controller(controller.url());
    let server = TestServer::start_with(builder.build().await.unwrap(), 0).await;
    let channel = short_lived_channel(&server).await;
    let mut words = WordsClient::new(channel.clone());
    let by_element =
        || channel.stats().applications.iter().map(|application| application.map.lanes_element).sum::<u64>();
    let calls = async {
        let mut calls = 0;
        // On a busy machine the server takes over from a slow element.
        while calls < 100 || joins(&channel, "T-WORDS") <= 5 || by_element() <= 5 {
            words.reduce(counts(&[("a", 1)], "")).await.unwrap();
            calls += 1;
        }
        calls
    };
    let calls = timeout(HANG, calls).await.expect("the channel joins again and uses the element");
    channel.close().await.unwrap();
    until(|| members(&server.pathcall, "T-WORDS") == 0).await;
    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), ..Wanted::default() };
    assert_eq!(words.query(wanted).await.unwrap().into_inner().kvs, Some(str_int(&[("a", calls)])));
}

#[tokio::test]
async fn exhausted_worker_joins_again_between_calls() {
    let server = TestServer::start().await;
    let channels = [short_lived_channel(&server).await, short_lived_channel(&server).await];
    let worker = |channel: &Channel| {
        let client = TrainingClient::new(channel.clone());
        async move {
            for round in 0..50 {
                // Two concurrent calls: the second must not overtake the first.
                let part = |value: u32| {
                    let mut client = client.clone();
                    async move { client.update(gradient(&[f64::from(value)])).await.unwrap().into_inner().tensor }
                };
                let (a, b) = tokio::join!(part(round), part(round));
                let sums = Some(FpArray { data: vec![f64::from(2 * round)] });
                assert_eq!((a, b), (sums.clone(), sums));
            }
        }
    };
    tokio::join!(worker(&channels[0]), worker(&channels[1]));
    assert!(channels.iter().all(|channel| joins(channel, "T-SUM") > 5));
}

#[tokio::test]
async fn exhausted_lock_holder_joins_again_after_release() {
    // Locks do not expire on a stalled machine.
    let builder = Layer::builder(&PATHCALL).lock_lease(HANG);
    let server = TestServer::start_with(builder.build().await.unwrap(), 0).await;
    let channel = short_lived_channel(&server).await;
    let mut locks = LocksClient::new(channel.clone());
    locks.lock(names(&["held"], "")).await.unwrap();
    for _ in 0..30 {
        locks.lock(names(&["a"], "")).await.unwrap();
        locks.release(names(&["a"], "")).await.unwrap();
    }
    assert_eq!(joins(&channel, "T-LOCKS"), 1);
    locks.release(names(&["held"], "")).await.unwrap();
    locks.lock(names(&["held"], "")).await.unwrap();
    assert_eq!(joins(&channel, "T-LOCKS"), 2);
}

/// Without a controller the server generates the key itself.
#[tokio::test]
async fn frame_key_comes_with_grant() {
    let request = join("/rpctest.Words/Reduce");
    for authenticate in [false, true] {
        let builder = Layer::builder(&PATHCALL).authenticate_frames(authenticate);
        let server = TestServer::start_with(builder.build().await.unwrap(), 0).await;
        let mut peer = PeerClient::connect(server.uri()).await.unwrap();
        let mut stream = peer.join(request.clone()).await.unwrap().into_inner();
        let grant = stream.message().await.unwrap().unwrap();
        assert_eq!(grant.token_key.is_some(), authenticate);
        let another = peer.join(request.clone()).await.unwrap().into_inner().message().await.unwrap().unwrap();
        assert_eq!(another.token_key, grant.token_key, "one for all callers");

        let base = BaseRepr {
            flags: Flags::CROSS,
            gaid: grant.gaid,
            epoch: grant.epoch,
            src: grant.endpoint,
            src_incarnation: 5,
            dst: grant.server,
            dst_incarnation: grant.server_incarnation,
            ..BaseRepr::new(FrameKind::MapFlush)
        };
        let map = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
        let mut frame = vec![0; frame_len(map.flags, 0, 0)];
        emit(&base, &map, &mut frame);
        let key = TokenKey::new(grant.token_key.unwrap_or_default().into());
        let signed = key.insert_token(&frame, &mut [0; 100]).unwrap().to_vec();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for frame in [frame, signed] {
            socket.send_to(&frame, ("127.0.0.1", grant.server_udp_port as u16)).unwrap();
        }
        let map = || server.pathcall.stats().into_iter().find(|application| application.name == "T-WORDS").unwrap().map;
        until(|| map().frames_received == 2).await;
        // A server with tokens accepts the frame with a token, one without tokens the other frame.
        assert_eq!((map().frames_unauthentic, map().frames_ignored), (1, 1), "{authenticate}");
    }
}
