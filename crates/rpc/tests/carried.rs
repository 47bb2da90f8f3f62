//! Tests of frames over HTTP/2 where UDP is blocked: all results are the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{CarryFramesRequest, JoinGrant, JoinRequest};
use pathcall_rpc::channel::stats::ApplicationStats;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{TestServer, counts, gradient, int_fp, join, names, str_int, until};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{Indexed, PATHCALL, Wanted};
use pathcall_test_support::udp_blocker::UdpBlocker;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

/// Server on the address of the UDP blocker, without fixed UDP ports.
async fn server_with_blocked_udp() -> TestServer {
    // Locks do not expire on a stalled machine.
    let pathcall = Layer::builder(&PATHCALL).data_address(([127, 0, 0, 1], 0).into()).lock_lease(HANG);
    TestServer::start_with(pathcall.build().await.unwrap(), 0).await
}

fn stats(channel: &Channel, app: &str) -> ApplicationStats {
    channel.stats().applications.into_iter().find(|application| application.name == app).unwrap()
}

async fn value(channel: &Channel, key: &str) -> i64 {
    let wanted = Wanted { keys: Some(str_int(&[(key, 0)])), ..Wanted::default() };
    let found = WordsClient::new(channel.clone()).query(wanted).await.unwrap().into_inner();
    found.kvs.unwrap().map[key]
}

/// Uses all kinds of applications, with two callers.
async fn all_kinds(one: &Channel, other: &Channel) {
    let (mut a, mut b) = (TrainingClient::new(one.clone()), TrainingClient::new(other.clone()));
    for round in 0..5 {
        let data: Vec<f64> = (0..1000).map(|i| f64::from(i + round)).collect();
        let (sums, same) = tokio::join!(a.update(gradient(&data)), b.update(gradient(&data)));
        let expected: Vec<f64> = data.iter().map(|value| value * 2.0).collect();
        assert_eq!(sums.unwrap().into_inner().tensor.unwrap().data, expected);
        assert_eq!(same.unwrap().into_inner().tensor.unwrap().data, expected);
    }

    let (mut a, mut b) = (WordsClient::new(one.clone()), WordsClient::new(other.clone()));
    for _ in 0..5 {
        let (one, same) =
            tokio::join!(a.reduce(counts(&[("x", 1), ("y", 1 << 40)], "")), b.reduce(counts(&[("x", 2)], "")));
        one.and(same).unwrap();
    }
    assert_eq!((value(one, "x").await, value(other, "y").await), (15, 5 << 40));
    a.bump(Indexed { by: Some(int_fp(&[(1, 0.5)])) }).await.unwrap();
    let bumped = b.bump(Indexed { by: Some(int_fp(&[(1, 0.5)])) }).await.unwrap().into_inner();
    assert_eq!(bumped.now, Some(int_fp(&[(1, 1.0)])));

    let (mut a, mut b) = (LocksClient::new(one.clone()), LocksClient::new(other.clone()));
    a.lock(names(&["door"], "")).await.unwrap();
    let mut waiting = tokio::spawn(async move { b.lock(names(&["door"], "")).await.map(|_| b) });
    tokio::time::timeout(Duration::from_millis(100), &mut waiting).await.expect_err("the lock is held");
    a.release(names(&["door"], "")).await.unwrap();
    let mut b = waiting.await.unwrap().unwrap();
    let (yes, also) = tokio::join!(a.vote(names(&["ballot"], "")), b.vote(names(&["ballot"], "")));
    yes.and(also).unwrap();
    let (first, second) = (a.elect(names(&["who"], "")).await.unwrap(), b.elect(names(&["who"], "")).await.unwrap());
    assert_eq!(first.metadata().get("pathcall-forwarded").unwrap(), "false");
    assert_eq!(second.metadata().get("pathcall-forwarded").unwrap(), "true");
}

async fn blocked_from_the_start(to_server: bool, to_caller: bool) {
    let server = server_with_blocked_udp().await;
    let udp_blocker = UdpBlocker::before(&server).await;
    udp_blocker.blocked.set(to_server, to_caller);
    let (behind, before) = (udp_blocker.channel().await, server.channel().await);
    all_kinds(&behind, &before).await;
    for app in ["T-SUM", "T-WORDS", "T-BUMP", "T-LOCKS", "T-VOTE", "T-ELECT"] {
        let place = format!("{app}, blocked to the server: {to_server}, to the caller: {to_caller}");
        let (behind, before) = (stats(&behind, app), stats(&before, app));
        assert_eq!((behind.joins, behind.carried.open, behind.carried.lost_full), (1, 1, 0), "{place}");
        assert!(behind.carried.frames_out > 0 && behind.carried.frames_in > 0, "{place}");
        assert_eq!((before.carried.open, before.carried.frames_out), (0, 0), "{place}");
        let server = server.pathcall.stats().into_iter().find(|stats| stats.name == app).unwrap();
        assert_eq!((server.members, server.carried.open, server.carried.foreign), (2, 1, 0), "{place}");
    }
    drop(behind);
    until(|| server.pathcall.stats().iter().all(|app| app.carried.open == 0 && app.members == 1)).await;
    // The graceful shutdown ends although streams are open.
    server.stop().await;
}

/// The cases run concurrently, since each waits for seconds until it stops using UDP.
#[tokio::test]
async fn calls_work_with_udp_blocked_in_either_direction() {
    let blocked = |to_server, to_caller| tokio::time::timeout(HANG, blocked_from_the_start(to_server, to_caller));
    let (both, to_server, to_caller) = tokio::join!(blocked(true, true), blocked(true, false), blocked(false, true));
    both.and(to_server).and(to_caller).unwrap();
}

#[tokio::test]
async fn unblocked_udp_carries_no_frames_over_http2() {
    let server = server_with_blocked_udp().await;
    let udp_blocker = UdpBlocker::before(&server).await;
    let (behind, before) = (udp_blocker.channel().await, server.channel().await);
    tokio::time::timeout(HANG, all_kinds(&behind, &before)).await.unwrap();
    for app in behind.stats().applications {
        assert_eq!((app.carried.open, app.carried.frames_out), (0, 0), "{}", app.name);
    }
}

/// Calls continue under one membership while UDP is cut, and use UDP again after the next join.
async fn blocked_in_mid_call(to_server: bool, to_caller: bool) {
    let server = server_with_blocked_udp().await;
    let udp_blocker = UdpBlocker::before(&server).await;
    let (behind, before) = (udp_blocker.channel().await, server.channel().await);
    let done = Arc::new(AtomicU64::new(0));
    let words = {
        let (channel, done) = (behind.clone(), Arc::clone(&done));
        async move {
            let mut words = WordsClient::new(channel.clone());
            let mut calls = 0;
            while stats(&channel, "T-WORDS").carried.frames_in == 0 {
                words.reduce(counts(&[("a", 1), ("b", -3)], "")).await.expect("blocked UDP costs only time");
                calls += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
            calls
        }
    };
    let rounds = |channel: Channel, over: Arc<AtomicU64>, leads: bool| async move {
        let mut training = TrainingClient::new(channel.clone());
        let mut round = 0;
        // The caller with blocked UDP determines the last round.
        while round < over.load(Ordering::SeqCst) {
            let part: Vec<f64> = (0..600).map(|i| (i + round) as f64).collect();
            let sums = training.update(gradient(&part)).await.expect("blocked UDP costs only time").into_inner();
            assert!(sums.tensor.unwrap().data.into_iter().eq(part.iter().map(|value| value * 2.0)), "round {round}");
            round += 1;
            if leads && stats(&channel, "T-SUM").carried.frames_in > 0 {
                over.fetch_min(round + 10, Ordering::SeqCst);
            }
        }
    };
    let over = Arc::new(AtomicU64::new(u64::MAX));
    let sums = [
        tokio::spawn(rounds(behind.clone(), Arc::clone(&over), true)),
        tokio::spawn(rounds(before.clone(), over, false)),
    ];
    let words = tokio::spawn(words);
    until(|| done.load(Ordering::Relaxed) > 20).await;
    udp_blocker.blocked.set(to_server, to_caller);
    let calls: i64 = words.await.unwrap();
    for sums in sums {
        sums.await.unwrap();
    }
    assert_eq!((value(&before, "a").await, value(&behind, "b").await), (calls, -3 * calls));
    assert_eq!((stats(&behind, "T-WORDS").joins, stats(&behind, "T-WORDS").carried.open), (1, 1));
    assert_eq!((stats(&behind, "T-SUM").joins, stats(&behind, "T-SUM").carried.open), (1, 1));

    udp_blocker.blocked.set(false, false);
    behind.close().await.unwrap();
    let carried = stats(&behind, "T-WORDS").carried.frames_out;
    WordsClient::new(behind.clone()).reduce(counts(&[("a", 1)], "")).await.unwrap();
    assert_eq!(value(&behind, "a").await, calls + 1);
    let stats = stats(&behind, "T-WORDS");
    assert_eq!((stats.joins, stats.carried.open, stats.carried.frames_out), (2, 0, carried));
}

#[tokio::test]
async fn call_survives_udp_cut() {
    tokio::time::timeout(HANG, blocked_in_mid_call(true, true)).await.unwrap();
}

#[tokio::test]
async fn call_survives_cut_of_answers() {
    tokio::time::timeout(HANG, blocked_in_mid_call(false, true)).await.unwrap();
}

#[tokio::test]
async fn carried_stream_accepts_frames_of_its_member_only() {
    tokio::time::timeout(HANG, hostile_streams()).await.unwrap();
}

async fn hostile_streams() {
    let server = TestServer::start().await;
    let channel = server.channel().await;
    WordsClient::new(channel.clone()).reduce(counts(&[("a", 1)], "")).await.unwrap();
    let mut peer = PeerClient::connect(server.uri()).await.unwrap();
    let request = JoinRequest { udp_port: 0, ..join("/rpctest.Words/Reduce") };
    let mut joined = peer.join(request).await.unwrap().into_inner();
    let JoinGrant { endpoint, session, .. } = joined.message().await.unwrap().unwrap();
    let application = "T-WORDS".to_owned();
    let first = CarryFramesRequest { application, endpoint, incarnation: 5, frames: Vec::new(), session };
    for (wrong, code) in [
        (CarryFramesRequest { session: vec![7; 16], ..first.clone() }, Code::FailedPrecondition),
        (CarryFramesRequest { session: Vec::new(), ..first.clone() }, Code::FailedPrecondition),
        (CarryFramesRequest { incarnation: 6, ..first.clone() }, Code::FailedPrecondition),
        (CarryFramesRequest { endpoint: endpoint + 1, ..first.clone() }, Code::FailedPrecondition),
        (CarryFramesRequest { application: "no such".into(), ..first.clone() }, Code::FailedPrecondition),
        // No caller has joined this application.
        (CarryFramesRequest { application: "T-SUM".into(), ..first.clone() }, Code::FailedPrecondition),
    ] {
        assert_eq!(peer.carry_frames(tokio_stream::once(wrong)).await.unwrap_err().code(), code);
    }
    assert_eq!(peer.carry_frames(tokio_stream::empty()).await.unwrap_err().code(), Code::InvalidArgument);

    let (frames, requests) = mpsc::channel(4);
    frames.send(first).await.unwrap();
    let mut carried = peer.carry_frames(ReceiverStream::new(requests)).await.unwrap().into_inner();
    let send = |bytes: Vec<u8>| frames.send(CarryFramesRequest { frames: bytes, ..CarryFramesRequest::default() });
    // A truncated length, an empty frame, an invalid frame, a frame of another endpoint, and an empty batch.
    let mut of_another = vec![0; 46];
    of_another[..8].copy_from_slice(&[0, 44, 0x50, 0x43, 1, 9, 0, 0]);
    for bytes in [vec![0xff; 3], vec![0, 0], vec![0, 3, 1, 2, 3], of_another, vec![]] {
        send(bytes).await.unwrap();
    }
    let of_words = || server.pathcall.stats().into_iter().find(|stats| stats.name == "T-WORDS").unwrap();
    until(|| of_words().carried.foreign == 3).await;
    assert_eq!(of_words().map.keys, 1);
    // A message beyond the size limit ends the stream only.
    send(vec![0; 5 << 20]).await.unwrap();
    while let Ok(Some(_)) = carried.message().await {}
    until(|| of_words().carried.open == 0).await;
    assert_eq!((of_words().members, value(&channel, "a").await), (2, 1));
}
