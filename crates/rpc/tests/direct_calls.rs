//! Tests of direct calls: one gRPC call has the effect and the reply of a call by frames.

use pathcall_proto::manifest::MapPath;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::{TestServer, counts, int_fp, str_int};
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{Indexed, PATHCALL, Wanted};
use tokio::task::JoinSet;
use tonic::{Code, Status};

async fn channel_by(server: &TestServer, path: MapPath) -> Channel {
    Channel::builder(server.uri(), &PATHCALL).unwrap().path(path).connect().await.unwrap()
}

fn words(channel: &Channel) -> WordsClient<Channel> {
    WordsClient::new(channel.clone())
}

async fn value(channel: &Channel, key: &str) -> i64 {
    let wanted = Wanted { keys: Some(str_int(&[(key, 0)])), text: String::new() };
    words(channel).query(wanted).await.unwrap().into_inner().kvs.unwrap().map[key]
}

/// Number and bytes of the direct calls that a server has executed for an application.
fn direct(server: &TestServer, name: &str) -> (u64, u64) {
    let stats = server.pathcall.stats().into_iter().find(|stats| stats.name == name).unwrap();
    (stats.direct.calls, stats.direct.bytes)
}

/// The same calls by each path, on one server: replies, handlers and sums are the same.
#[tokio::test]
async fn direct_calls_have_the_replies_of_frames() {
    let server = TestServer::start().await;
    let long = "key that no frame can carry ".repeat(20);
    let mut replies = Vec::new();
    for path in [MapPath::Software, MapPath::Direct, MapPath::Automatic] {
        let channel = channel_by(&server, path).await;
        let mut words = words(&channel);
        let handled = server.seen.calls();
        let pairs = [("a", 1), ("b", -(1 << 40)), (&long, 7)];
        let typed = words.reduce(counts(&pairs, "")).await.unwrap().into_inner().text;
        let empty = words.reduce(counts(&[], "")).await.unwrap().into_inner().text;
        let untyped = words.reduce(counts(&pairs, "text")).await.unwrap().into_inner().text;
        let to_server = words.report(counts(&pairs, "all")).await.unwrap().into_inner().text;
        let handlers = server.seen.calls() - handled;
        let bumped = words.bump(Indexed { by: Some(int_fp(&[(1, 0.5), (-9, 2.25)])) }).await.unwrap().into_inner();
        let mut now: Vec<_> = bumped.now.unwrap().map.into_iter().collect();
        now.sort_by_key(|(key, _)| *key);
        let totals = [value(&channel, "a").await, value(&channel, "b").await, value(&channel, &long).await];
        replies.push((typed, empty, untyped, to_server, handlers, now, totals));
        let by_frames = channel.stats().applications.iter().map(|application| application.map.calls).sum::<u64>();
        assert_eq!(by_frames == 0, path == MapPath::Direct, "{path:?}: {by_frames} calls by frames");
    }
    // Each path has added the same once more.
    for (turn, reply) in (1..).zip(&replies) {
        let (typed, empty, untyped, to_server, handlers, now, totals) = reply;
        assert_eq!([typed, empty, untyped, to_server], ["", "", "text: no counts", "all: 3 counts"]);
        assert_eq!(*handlers, 2);
        let turns = turn as f64;
        // With a precision of one digit, 2.25 is 2.3 or 2.2.
        assert_eq!((now[1], now[0].0), ((1, 0.5 * turns), -9));
        assert!((now[0].1 - replies[0].5[0].1 * turns).abs() < 0.01, "{now:?}");
        assert_eq!(*totals, [3 * turn, -3 * turn * (1 << 40), 21 * turn]);
    }
    assert!(direct(&server, "T-WORDS").1 > 0);
}

#[tokio::test]
async fn direct_call_adds_all_or_nothing() {
    let server = TestServer::start().await;
    let channel = channel_by(&server, MapPath::Direct).await;
    let code = |outcome: Result<_, Status>| outcome.err().map(|status| status.code());
    let mut words = words(&channel);
    assert_eq!(code(words.reduce(counts(&[("full", i64::MAX), ("a", 1)], "")).await), None);
    assert_eq!(code(words.reduce(counts(&[("a", 1), ("full", 1), ("b", 1)], "")).await), Some(Code::OutOfRange));
    let too_long = "k".repeat((1 << 20) + 1);
    assert_eq!(code(words.reduce(counts(&[("a", 1), (&too_long, 1)], "")).await), Some(Code::InvalidArgument));
    let text = words.reduce(counts(&[("a", 1), ("full", 1)], "text")).await.unwrap_err();
    assert_eq!((text.code(), server.seen.calls()), (Code::OutOfRange, 0), "no handler runs after a failed addition");
    assert_eq!([value(&channel, "a").await, value(&channel, "b").await], [1, 0]);
    assert_eq!(value(&channel, "full").await, i64::MAX);
}

#[tokio::test]
async fn direct_call_beyond_the_memory_of_keys_is_refused() {
    let layer = Layer::builder(&PATHCALL).key_memory(4096).build().await.unwrap();
    let server = TestServer::start_with(layer, 0).await;
    let channel = channel_by(&server, MapPath::Direct).await;
    let names: Vec<String> = (0..200).map(|number| format!("key {number}")).collect();
    let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let error = words(&channel).reduce(counts(&pairs, "")).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    assert_eq!(value(&channel, &names[0]).await, 0);
}

/// Callers with different paths add to the same keys at the same time; no addition is lost or counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_of_all_paths_have_exact_sums() {
    const CALLERS: i64 = 6;
    const CALLS: i64 = 60;
    let server = TestServer::start().await;
    let names: Vec<String> = (0..300).map(|number| format!("word {number}")).collect();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let path = [MapPath::Automatic, MapPath::Direct, MapPath::Software][caller as usize % 3];
        let (channel, names) = (channel_by(&server, path).await, names.clone());
        callers.spawn(async move {
            for call in 0..CALLS {
                // Short and long messages: both size classes have both paths.
                let count = if call % 2 == 0 { names.len() } else { 1 };
                let pairs: Vec<_> = names[..count].iter().map(|name| (name.as_str(), 1)).collect();
                words(&channel).reduce(counts(&pairs, "")).await.unwrap();
            }
            channel
        });
    }
    let channels = callers.join_all().await;
    assert_eq!(value(&channels[0], &names[0]).await, CALLERS * CALLS);
    assert_eq!(value(&channels[0], &names[299]).await, CALLERS * CALLS / 2);
}

#[tokio::test]
async fn automatic_path_is_measured_and_explained() {
    let server = TestServer::start().await;
    let channel = channel_by(&server, MapPath::Automatic).await;
    let names: Vec<String> = (0..300).map(|number| format!("word {number}")).collect();
    let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    for _ in 0..100 {
        words(&channel).reduce(counts(&pairs, "")).await.unwrap();
        words(&channel).reduce(counts(&pairs[..1], "")).await.unwrap();
    }
    let stats = channel.stats().applications.into_iter().find(|stats| stats.name == "T-WORDS").unwrap();
    let [short, long] = &stats.paths[..] else { panic!("two size classes: {:?}", stats.paths) };
    for class in [short, long] {
        assert_eq!(class.method, "/rpctest.Words/Reduce");
        assert_eq!(class.by_frames.calls + class.by_direct_calls.calls, 100, "{class}");
        assert!(class.by_frames.calls >= 8 && class.by_direct_calls.calls >= 8, "both are measured: {class}");
        let line = class.to_string();
        assert!(line.contains("medians: direct calls ") && !line.contains("not measured"), "{line}");
    }
    assert_eq!(direct(&server, "T-WORDS").0, short.by_direct_calls.calls + long.by_direct_calls.calls);
    assert_eq!([value(&channel, "word 0").await, value(&channel, "word 299").await], [200, 100]);
}
