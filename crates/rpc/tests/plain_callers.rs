//! Calls of methods with a filter by plain gRPC clients: tonic's channel, and Python's grpcio.

use std::process::{Command, Stdio};

use pathcall_rpc::Layer;
use pathcall_test_support::HANG;
use pathcall_test_support::element::by_element;
use pathcall_test_support::service::{TestServer, counts, gradient, int_fp, names, note, str_int, until};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{Counts, Found, Indexed, PATHCALL, Said, Wanted};
use prost::Message;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

/// tonic's own channel.
async fn plain(server: &TestServer) -> Channel {
    Endpoint::new(server.uri()).expect("a URI").connect().await.expect("connects")
}

fn wanted(keys: &[&str]) -> Wanted {
    Wanted { keys: names(keys, "").names, ..Wanted::default() }
}

fn forwarded(reply: &Response<Said>) -> Option<&str> {
    reply.metadata().get("pathcall-forwarded").map(|value| value.to_str().expect("text"))
}

/// Number of votes and cleared ballots of `T-VOTE` so far.
fn counted(server: &TestServer) -> u64 {
    server.pathcall.stats().iter().find(|stats| stats.name == "T-VOTE").map_or(0, |stats| stats.map.software_adds)
}

#[tokio::test]
async fn plain_additions_and_queries_work_beside_channels() {
    let server = TestServer::start().await;
    let (mut alone, mut joined) = (WordsClient::new(plain(&server).await), WordsClient::new(server.channel().await));
    let long = "key that no frame can carry ".repeat(20);
    let typed = alone.reduce(counts(&[("a", 1), (&long, 7)], "")).await.expect("added").into_inner();
    assert_eq!((typed.text.as_str(), server.seen.calls()), ("", 0), "typed fields need no handler");
    joined.reduce(counts(&[("a", 20), (&long, 1)], "")).await.expect("added");
    let handled = alone.reduce(counts(&[("a", 300)], "text")).await.expect("added").into_inner();
    assert_eq!((handled.text.as_str(), server.seen.calls()), ("text: no counts", 1));
    let whole = alone.report(counts(&[("a", 4000)], "all")).await.expect("added").into_inner();
    assert_eq!(whole.text, "all: 1 counts");
    for words in [alone.query(wanted(&["a", &long, "none"])).await, joined.query(wanted(&["a", &long, "none"])).await] {
        let values = words.expect("read").into_inner().kvs;
        assert_eq!(values, Some(str_int(&[("a", 4321), (&long, 8), ("none", 0)])));
    }
    let bumped = alone.bump(Indexed { by: Some(int_fp(&[(7, 1.5)])) }).await.expect("added").into_inner();
    assert_eq!(bumped.now, Some(int_fp(&[(7, 1.5)])));
    let stats = server.pathcall.stats().into_iter().find(|stats| stats.name == "T-WORDS").expect("known");
    assert_eq!(stats.plain.calls, 4, "{stats:?}");
}

#[tokio::test]
async fn plain_votes_count_with_those_of_channels() {
    let server = TestServer::start().await;
    let (mut alone, mut joined) = (LocksClient::new(plain(&server).await), LocksClient::new(server.channel().await));
    let waiting = tokio::spawn({
        let mut alone = alone.clone();
        async move { alone.vote(names(&["ballot"], "said")).await }
    });
    until(|| counted(&server) == 1).await;
    joined.vote(names(&["ballot"], "")).await.expect("decided");
    let decided = timeout(HANG, waiting).await.expect("in time").expect("no panic").expect("decided");
    assert_eq!(decided.into_inner().text, "said", "the handler gets the untyped field");
    let first = alone.elect(names(&["leader"], "first")).await.expect("counted");
    assert_eq!((forwarded(&first), first.get_ref().text.as_str()), (Some("false"), ""));
    let second = joined.elect(names(&["leader"], "second")).await.expect("counted");
    assert_eq!((forwarded(&second), second.get_ref().text.as_str()), (Some("true"), "second"));
}

#[tokio::test]
async fn plain_clear_starts_ballots_anew() {
    let server = TestServer::start().await;
    let alone = LocksClient::new(plain(&server).await);
    let vote = async |key: &'static str| {
        let (mut one, mut other) = (alone.clone(), alone.clone());
        let (one, other) = tokio::join!(one.vote(names(&[key], "")), other.vote(names(&[key], "")));
        assert!(one.is_ok() && other.is_ok(), "{one:?}, {other:?}");
    };
    vote("ballot").await;
    let mut resetting = alone.clone();
    assert_eq!(resetting.reset(note("anew")).await.expect("cleared").into_inner().text, "anew");
    let before = counted(&server);
    let mut waiting = alone.clone();
    let waiting = tokio::spawn(async move { waiting.vote(names(&["ballot"], "")).await });
    until(|| counted(&server) > before).await;
    resetting.elect(names(&["other"], "")).await.expect("counted");
    assert!(!waiting.is_finished(), "the ballot has one vote of two again");
    resetting.vote(names(&["ballot"], "")).await.expect("decided");
    timeout(HANG, waiting).await.expect("in time").expect("no panic").expect("decided");
}

#[tokio::test]
async fn locks_and_sums_of_several_callers_are_refused_to_plain_clients() {
    let server = TestServer::start().await;
    let mut locks = LocksClient::new(plain(&server).await);
    let sum = TrainingClient::new(plain(&server).await).update(gradient(&[1.0])).await.map(drop);
    let lock = locks.lock(names(&["a"], "text")).await.map(drop);
    let release = locks.release(names(&["a"], "text")).await.map(drop);
    let refusals = [
        (sum, "/rpctest.Training/Update has the filter T-SUM, which sums over several callers"),
        (lock, "/rpctest.Locks/Lock has the filter T-LOCKS, which takes locks, and their leases have to be renewed"),
        (
            release,
            "/rpctest.Locks/Release has the filter T-LOCKS, which releases locks, and plain gRPC callers hold none",
        ),
    ];
    for (refused, reason) in refusals {
        let status = refused.expect_err("refused");
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), format!("{reason}: call it through pathcall::Channel"));
    }
    assert_eq!(server.seen.calls(), 0);
}

#[tokio::test]
async fn plain_call_that_fails_adds_nothing() {
    let server = TestServer::start().await;
    let mut words = WordsClient::new(plain(&server).await);
    words.reduce(counts(&[("full", i64::MAX)], "")).await.expect("added");
    let error = words.reduce(counts(&[("a", 1), ("full", 1)], "text")).await.expect_err("too large");
    assert_eq!((error.code(), server.seen.calls()), (Code::OutOfRange, 0));
    let read = words.query(wanted(&["a"])).await.expect("read").into_inner();
    assert_eq!(read.kvs, Some(str_int(&[("a", 0)])));
}

/// Values that an element holds are harvested before a plain query is answered; a plain vote brings the ballots of the
/// element back to the server.
#[tokio::test(flavor = "multi_thread")]
async fn plain_calls_work_beside_an_element() {
    by_element(|controller| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(beside_an_element(controller));
    })
    .await;
}

async fn beside_an_element(controller: &str) {
    let layer = Layer::builder(&PATHCALL).controller(controller).build().await.expect("builds");
    let server = TestServer::start_with(layer, 0).await;
    let joined = server.channel().await;
    let (mut alone, mut words) = (WordsClient::new(plain(&server).await), WordsClient::new(joined.clone()));
    for _ in 0..10 {
        words.reduce(counts(&[("a", 1)], "")).await.expect("added");
        alone.reduce(counts(&[("a", 10)], "")).await.expect("added");
    }
    let by_element = joined.stats().applications.iter().map(|application| application.map.lanes_element).sum::<u64>();
    assert!(by_element > 0, "the element has values: {:?}", joined.stats());
    assert_eq!(alone.query(wanted(&["a"])).await.expect("read").into_inner().kvs, Some(str_int(&[("a", 110)])));
    let (mut locks, mut lone) = (LocksClient::new(joined), LocksClient::new(plain(&server).await));
    for round in 0..4 {
        let ballot = format!("leader {round}");
        let first = locks.elect(names(&[&ballot], "")).await.expect("counted");
        let second = lone.elect(names(&[&ballot], "")).await.expect("counted");
        let third = locks.elect(names(&[&ballot], "")).await.expect("counted");
        let each = [&first, &second, &third].map(|reply| forwarded(reply).expect("a counting call"));
        assert_eq!(each, ["false", "true", "false"], "{ballot}: the second vote decides");
    }
}

/// Interceptor that refuses everybody.
fn refuse(_: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
    Err(Status::unauthenticated("who?"))
}

#[tokio::test]
async fn plain_caller_that_the_interceptor_refuses_has_no_effect() {
    use pathcall_test_support::service::TestHandlers;
    use pathcall_test_support::stubs::words_server::WordsServer;
    let layer = Layer::builder(&PATHCALL).build().await.expect("builds");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let service = WordsServer::with_interceptor(TestHandlers(std::sync::Arc::default()), refuse);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().layer(layer.clone()).add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut words = WordsClient::connect(url).await.expect("connects");
    for refused in [words.reduce(counts(&[("a", 1)], "")).await.map(drop), words.query(wanted(&["a"])).await.map(drop)]
    {
        assert_eq!(refused.expect_err("refused").message(), "who?");
    }
    let stats = layer.stats();
    assert!(stats.iter().all(|stats| stats.plain.calls == 0 && stats.map.keys == 0), "{stats:?}");
}

/// Adds, reads and votes with messages as bytes, and prints each reply.
const CALLER: &str = r#"
import grpc, sys
channel = grpc.insecure_channel(sys.argv[1])
for call in sys.argv[2:]:
    method, _, message = call.partition("=")
    send = channel.unary_unary(
        "/rpctest." + method, request_serializer=lambda sent: sent, response_deserializer=lambda got: got)
    try:
        print(send(bytes.fromhex(message), timeout=600).hex())
    except grpc.RpcError as error:
        print(error.code().name)
"#;

/// Python that has grpcio.
fn python() -> Option<&'static str> {
    let has_grpc = |python: &&str| {
        let imports = Command::new(python).args(["-c", "import grpc"]).stderr(Stdio::null()).status();
        imports.is_ok_and(|status| status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_grpc)
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_grpcio_adds_and_reads() {
    let Some(python) = python() else {
        assert!(
            std::env::var_os("PATHCALL_ROOT_TESTS").is_none(),
            "Python's grpcio is missing: install python3-grpcio"
        );
        return println!("skipped: Python's grpcio is missing");
    };
    let server = TestServer::start().await;
    let mut joined = WordsClient::new(server.channel().await);
    joined.reduce(counts(&[("tea", 40)], "")).await.expect("added");
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let add: Counts = counts(&[("tea", 2)], "");
    let calls = [
        format!("Words/Reduce={}", hex(add.encode_to_vec())),
        format!("Words/Query={}", hex(wanted(&["tea"]).encode_to_vec())),
        format!("Locks/Lock={}", hex(names(&["tea"], "").encode_to_vec())),
    ];
    let mut caller = Command::new(python);
    caller.args(["-c", CALLER, server.uri().trim_start_matches("http://")]).args(calls);
    let called = timeout(HANG, tokio::task::spawn_blocking(move || caller.output())).await.expect("in time");
    let output = called.expect("no panic").expect("Python runs");
    let read = Found { kvs: Some(str_int(&[("tea", 42)])), ..Found::default() };
    let expected = format!("\n{}\nFAILED_PRECONDITION\n", hex(read.encode_to_vec()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
}
