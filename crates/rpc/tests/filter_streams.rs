//! Tests of streams of calls with a filter: in software, through a real element, and from plain gRPC clients.

use pathcall_proto::types::FpArray;
use pathcall_rpc::Layer;
use pathcall_test_support::HANG;
use pathcall_test_support::element::by_element;
use pathcall_test_support::service::{TestServer, str_int};
use pathcall_test_support::stubs::filters::streams_client::StreamsClient;
use pathcall_test_support::stubs::filters::{Ballots, Counted, Decided, PATHCALL, Part, Reading, Seen, Words};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{Bytes, StdError};

async fn server(controller: Option<&str>) -> TestServer {
    let builder = Layer::builder(&PATHCALL);
    let builder = match controller {
        Some(url) => builder.controller(url),
        None => builder,
    };
    TestServer::start_with(builder.build().await.expect("builds"), 0).await
}

async fn joined(server: &TestServer) -> pathcall_rpc::Channel {
    pathcall_rpc::Channel::connect(server.uri(), &PATHCALL).await.expect("a channel")
}

async fn plain(server: &TestServer) -> tonic::transport::Channel {
    tonic::transport::Endpoint::new(server.uri()).expect("a URI").connect().await.expect("connects")
}

fn words(pairs: &[(&str, i64)], text: &str) -> Words {
    Words { kvs: Some(str_int(pairs)), text: text.to_owned() }
}

fn counted(pairs: &[(&str, i64)], text: &str) -> Counted {
    Counted { kvs: Some(str_int(pairs)), text: text.to_owned() }
}

/// Makes additions and queries with keys of this prefix.
async fn additions<T>(service: T, prefix: &str)
where
    T: tonic::client::GrpcService<Body> + Clone,
    T::Error: Into<StdError>,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<StdError> + Send,
{
    let [a, b] = ["a", "b"].map(|key| format!("{prefix} {key}"));
    let mut streams = StreamsClient::new(service);
    // The replies come as the requests go: each waits for the reply to the one before.
    let (requests, stream) = mpsc::channel(1);
    let mut replies = streams.each(ReceiverStream::new(stream)).await.expect("a stream").into_inner();
    for round in 1..=20 {
        let text = if round % 3 == 0 { "text" } else { "" };
        requests.send(words(&[(&a, 1), (&b, round)], text)).await.expect("room");
        let reply = timeout(HANG, replies.message()).await.expect("in time").expect("no error");
        assert_eq!(reply, Some(counted(&[(&a, round), (&b, round * (round + 1) / 2)], text)));
    }
    drop(requests);
    assert_eq!(timeout(HANG, replies.message()).await.expect("in time").expect("no error"), None);

    let sent = [words(&[(&a, 10)], "one"), words(&[(&b, 1)], ""), words(&[(&a, 5)], "two")];
    let reply = streams.collect(tokio_stream::iter(sent)).await.expect("a reply").into_inner();
    assert_eq!(reply, counted(&[(&a, 35), (&b, 211)], "one two"));
    let none = streams.collect(tokio_stream::empty()).await.expect("a reply").into_inner();
    assert_eq!(none, counted(&[], ""));

    let many = (0..1_000).map({
        let (a, b) = (a.clone(), b.clone());
        move |at| if at % 2 == 0 { words(&[(&a, 1)], "") } else { words(&[(&b, at)], "") }
    });
    let loaded = streams.load(tokio_stream::iter(many)).await.expect("a reply").into_inner();
    assert_eq!(loaded, Counted::default());
    let asked = (0..40).map(move |_| words(&[(&a, 0), (&b, 0)], "see"));
    let mut looked = streams.look(tokio_stream::iter(asked)).await.expect("a stream").into_inner();
    for _ in 0..40 {
        let reply = timeout(HANG, looked.message()).await.expect("in time").expect("no error").expect("a reply");
        let values: Vec<_> = reply.kvs.expect("values").map.into_values().collect();
        assert!(values.contains(&500) && values.contains(&250_000), "{values:?}");
        assert_eq!(reply.text, "see");
    }
    assert_eq!(looked.message().await.expect("no error"), None);
}

/// Both callers' sums, in streams of different speed.
async fn sums(server: &TestServer) -> u64 {
    const ROUNDS: usize = 100;
    let part = |round: usize, factor: f64| Part {
        values: Some(FpArray { data: (0..300).map(|i| factor * (round * 300 + i) as f64).collect() }),
    };
    let callers = [joined(server).await, joined(server).await];
    let sum = |at: usize| {
        let channel = callers[at].clone();
        let parts = (0..ROUNDS).map(move |round| part(round, [1.0, 2.0][at]));
        async move {
            let sums = StreamsClient::new(channel).sum(tokio_stream::iter(parts)).await.expect("a stream");
            let mut sums = sums.into_inner();
            for round in 0..ROUNDS {
                let got = sums.message().await.expect("no error").expect("a sum");
                assert_eq!(got, part(round, 3.0), "round {round}");
            }
            assert_eq!(sums.message().await.expect("no error"), None);
        }
    };
    timeout(HANG, async { tokio::join!(sum(0), sum(1)) }).await.expect("in time");
    callers.iter().flat_map(|caller| caller.stats().applications).map(|app| app.map.lanes_element).sum()
}

/// Votes of a channel and of a plain gRPC client: replies to all, the handler runs for the deciding ones.
async fn votes(server: &TestServer) {
    let ballots = |keys: &[&str]| {
        let pairs: Vec<_> = keys.iter().map(|key| (*key, 1)).collect();
        Ballots { names: Some(str_int(&pairs)) }
    };
    let decided = |keys: &[&str]| {
        let pairs: Vec<_> = keys.iter().map(|key| (*key, 2)).collect();
        Decided { counters: Some(str_int(&pairs)) }
    };
    let before = server.seen.calls();
    let mut votes = StreamsClient::new(joined(server).await)
        .vote(tokio_stream::iter([ballots(&["a"]), ballots(&["b", "c"])]))
        .await
        .expect("a stream")
        .into_inner();
    for _ in 0..2 {
        assert_eq!(votes.message().await.expect("no error"), Some(decided(&[])));
    }
    assert_eq!((votes.message().await.expect("no error"), server.seen.calls()), (None, before));
    let mut votes = StreamsClient::new(plain(server).await)
        .vote(tokio_stream::iter([ballots(&["d"]), ballots(&["b"]), ballots(&["a", "c", "e"])]))
        .await
        .expect("a stream")
        .into_inner();
    for expected in [&[][..], &["b"], &["a", "c"]] {
        assert_eq!(votes.message().await.expect("no error"), Some(decided(expected)));
    }
    assert_eq!((votes.message().await.expect("no error"), server.seen.calls()), (None, before + 2));
}

#[tokio::test]
async fn each_message_is_a_call_in_software() {
    let server = server(None).await;
    additions(joined(&server).await, "joined").await;
    additions(plain(&server).await, "plain").await;
    sums(&server).await;
    votes(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_is_a_call_through_an_element() {
    by_element(|controller| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = server(Some(controller)).await;
            let channel = joined(&server).await;
            additions(channel.clone(), "joined").await;
            let stats = channel.stats();
            let load = stats.applications.iter().find(|application| application.name == "T-STREAM-LOAD");
            assert!(load.is_some_and(|load| load.map.lanes_element > 0), "the element adds: {stats:?}");
            additions(plain(&server).await, "plain").await;
            assert!(sums(&server).await > 0, "the element sums");
            votes(&server).await;
        });
    })
    .await;
}

#[tokio::test]
async fn modified_streams_reach_handler_of_channels_and_plain_clients() {
    let server = server(None).await;
    let readings = || {
        let reading = |value| Reading { values: Some(FpArray { data: vec![value] }), text: "t".into() };
        tokio_stream::iter([reading(0.1), reading(7.0)])
    };
    let mut joined = StreamsClient::new(joined(&server).await);
    let mut alone = StreamsClient::new(plain(&server).await);
    for seen in [joined.clamp_each(readings()).await, alone.clamp_each(readings()).await] {
        let mut seen = seen.expect("a stream").into_inner();
        for expected in [0.5, 7.0] {
            let expected = Seen { values: vec![expected], text: "t".into() };
            assert_eq!(seen.message().await.expect("no error"), Some(expected));
        }
        assert_eq!(seen.message().await.expect("no error"), None);
    }
}

#[tokio::test]
async fn error_ends_stream_and_keeps_earlier_messages() {
    let server = server(None).await;
    let mut streams = StreamsClient::new(joined(&server).await);
    let mut alone = StreamsClient::new(plain(&server).await);
    let sent =
        |key: &str| tokio_stream::iter([words(&[(key, 1)], ""), words(&[(key, 1)], "fail"), words(&[("x", 1)], "y")]);
    for failed in [streams.collect(sent("a")).await, alone.collect(sent("b")).await] {
        let failed = failed.expect_err("the handler fails");
        assert_eq!((failed.code(), failed.message()), (Code::DataLoss, "as asked"));
    }
    let most = |key: &str| [words(&[(key, i64::MAX)], ""), words(&[(key, 1)], ""), words(&[("z", 1)], "")];
    for (key, replies) in [
        ("full", streams.each(tokio_stream::iter(most("full"))).await),
        ("filled", alone.each(tokio_stream::iter(most("filled"))).await),
    ] {
        let mut replies = replies.expect("a stream").into_inner();
        assert_eq!(replies.message().await.expect("added"), Some(counted(&[(key, i64::MAX)], "")));
        assert_eq!(replies.message().await.expect_err("too large").code(), Code::OutOfRange);
    }
    let kept = streams.collect(tokio_stream::iter([words(&[("a", 0), ("b", 0), ("full", 0), ("z", 0)], "")])).await;
    let kept = kept.expect("a reply").into_inner();
    assert_eq!(kept, counted(&[("a", 2), ("b", 2), ("full", i64::MAX), ("z", 0)], ""));
}

#[tokio::test]
async fn dropped_stream_ends_sums_of_all_callers() {
    let server = server(None).await;
    let [one, other] = [joined(&server).await, joined(&server).await];
    let part = || Part { values: Some(FpArray { data: vec![1.0; 10] }) };
    let (requests, stream) = mpsc::channel(1);
    let dropped = StreamsClient::new(one.clone()).sum(ReceiverStream::new(stream)).await.expect("a stream");
    let mut dropped = dropped.into_inner();
    requests.send(part()).await.expect("room");
    let (other_requests, stream) = mpsc::channel(1);
    let waiting = StreamsClient::new(other).sum(ReceiverStream::new(stream)).await.expect("a stream");
    let mut waiting = waiting.into_inner();
    other_requests.send(part()).await.expect("room");
    for replies in [&mut dropped, &mut waiting] {
        assert!(replies.message().await.expect("a sum").is_some());
    }
    let sent = || one.stats().applications.iter().map(|application| application.map.frames_sent).sum::<u64>();
    let before = sent();
    requests.send(part()).await.expect("room");
    pathcall_test_support::service::until(|| sent() > before).await;
    drop(dropped);
    // The sum in progress fails, or else the next one.
    let mut failed = None;
    while failed.is_none() {
        other_requests.send(part()).await.expect("room");
        failed = timeout(HANG, waiting.message()).await.expect("in time").err();
    }
    let failed = failed.expect("the loop's end");
    assert_eq!(failed.code(), Code::Aborted);
}

/// Interceptor that refuses everybody.
fn refuse(_: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
    Err(tonic::Status::unauthenticated("who?"))
}

#[tokio::test]
async fn stream_that_the_interceptor_refuses_has_no_effect() {
    use pathcall_test_support::service::TestHandlers;
    use pathcall_test_support::stubs::filters::streams_server::StreamsServer;
    let layer = Layer::builder(&PATHCALL).build().await.expect("builds");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let service = StreamsServer::with_interceptor(TestHandlers(std::sync::Arc::default()), refuse);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().layer(layer.clone()).add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    let channel = pathcall_rpc::Channel::connect(url.clone(), &PATHCALL).await.expect("a channel");
    let sent = || tokio_stream::iter([words(&[("a", 1)], "text")]);
    let joined = StreamsClient::new(channel).load(sent()).await.map(drop);
    let alone = StreamsClient::connect(url).await.expect("connects").load(sent()).await.map(drop);
    for refused in [joined, alone] {
        let refused = refused.expect_err("refused");
        assert_eq!(refused.code(), Code::Unauthenticated);
        assert!(refused.message().ends_with("who?"), "{refused}");
    }
    assert!(layer.stats().iter().all(|stats| stats.plain.calls == 0 && stats.map.keys == 0), "{:?}", layer.stats());
}
