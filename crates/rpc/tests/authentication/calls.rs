//! Tests of admission for methods with filters.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use pathcall_rpc::layer::builder::Builder;
use pathcall_rpc::{CALL_ID, Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{TestHandlers, counts, gradient, names, note, str_int, until};
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::words_server::WordsServer;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Status};
use tower::ServiceExt;
use tower::limit::ConcurrencyLimitLayer;

use super::{ALL, CheckLocation, Guarded, Rules, wanted, with};

const UNKNOWN: [&str; 2] = ["", "bad"];

#[tokio::test]
async fn refused_caller_has_no_effect_on_a_map() {
    for by in [CheckLocation::Interceptors, CheckLocation::Inner, CheckLocation::Outer] {
        let guarded = Guarded::start(by, Rules::new(&[("good", &[ALL])]), |builder| builder).await;
        let channel = guarded.channel().await;
        let (mut words, mut locks) = (WordsClient::new(channel.clone()), LocksClient::new(channel.clone()));
        // First without members, then through a channel with which other callers have joined.
        for joined in [false, true] {
            if joined {
                words.reduce(with("good", counts(&[("b", 5)], ""))).await.unwrap();
                locks.lock(with("good", names(&["mine"], ""))).await.unwrap();
            }
            for token in UNKNOWN {
                let refused = [
                    words.reduce(with(token, counts(&[("a", 1)], ""))).await.err(),
                    words.reduce(with(token, counts(&[("a", 1)], "to the handler"))).await.err(),
                    words.report(with(token, counts(&[("a", 1)], ""))).await.err(),
                    words.query(with(token, wanted("b", ""))).await.err(),
                    words.query(with(token, wanted("b", "to the handler"))).await.err(),
                    locks.lock(with(token, names(&["a"], ""))).await.err(),
                    locks.release(with(token, names(&["mine"], ""))).await.err(),
                    locks.vote(with(token, names(&["a"], ""))).await.err(),
                    locks.reset(with(token, note(""))).await.err(),
                ];
                for (nth, status) in refused.into_iter().enumerate() {
                    let status = status.unwrap_or_else(|| panic!("{by:?}, call {nth} with {token:?} is refused"));
                    assert_eq!(status.code(), Code::Unauthenticated, "{by:?}, call {nth}: {status}");
                    assert!(status.message().ends_with("no such token"), "{status}");
                }
            }
        }
        assert_eq!(guarded.value("a").await, 0, "{by:?}");
        assert_eq!(guarded.value("b").await, 5, "{by:?}");
        assert_eq!(guarded.seen.calls(), 0, "{by:?}: no handler ran");
        // The refused lock calls hold no lock.
        locks.lock(with("good", names(&["a"], ""))).await.unwrap();
        assert_eq!(guarded.members("T-VOTE"), 0, "{by:?}");
    }
}

#[tokio::test]
async fn method_without_service_admits_no_caller() {
    let guarded = Guarded::start(CheckLocation::Interceptors, Rules::new(&[("good", &[ALL])]), |builder| builder).await;
    let mut training = TrainingClient::new(guarded.channel().await);
    let refused = training.update(with("good", gradient(&[1.0]))).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("no service of this server has the method"), "{refused}");
    assert_eq!(guarded.members("T-SUM"), 0);
}

#[tokio::test]
async fn call_with_id_is_checked_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let guarded = Guarded::start(CheckLocation::Interceptors, Rules::new(&[("good", &[ALL])]), |builder| builder).await;
    let builder = Channel::builder(guarded.url.clone(), &PATHCALL).unwrap().journal(folder.path().join("journal"));
    let mut words = WordsClient::new(builder.connect().await.unwrap());
    for (id, token, text, expected) in [
        ("1", "bad", "", Err(Code::Unauthenticated)),
        ("2", "good", "", Ok(())),
        ("3", "bad", "", Err(Code::Unauthenticated)),
        ("4", "good", "to the handler", Ok(())),
        ("5", "bad", "to the handler", Err(Code::Unauthenticated)),
    ] {
        let mut request = with(token, counts(&[("a", 1)], text));
        request.metadata_mut().insert(CALL_ID, id.parse().unwrap());
        assert_eq!(words.reduce(request).await.map(drop).map_err(|status| status.code()), expected, "call {id}");
    }
    assert_eq!((guarded.value("a").await, guarded.seen.calls()), (2, 1));
}

/// Request of stock gRPC with metadata that only channels may send.
async fn forged(url: &str, path: &str, metadata: &[(&'static str, &'static str)]) -> Status {
    let channel = tonic::transport::Channel::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
    let mut request = http::Request::post(format!("{url}{path}"));
    for (name, value) in metadata {
        request = request.header(*name, *value);
    }
    let message = Bytes::from_static(&[0; 5]);
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let response = channel.oneshot(request.body(Body::new(Full::new(message))).unwrap()).await.unwrap();
    Status::from_header_map(response.headers()).unwrap_or_else(|| Status::ok("it was answered"))
}

#[tokio::test]
async fn internal_metadata_needs_a_session() {
    let guarded =
        Guarded::start(CheckLocation::Interceptors, Rules::new(&[("", &[ALL]), ("good", &[ALL])]), |builder| builder)
            .await;
    let mut words = WordsClient::new(guarded.channel().await);
    words.reduce(counts(&[("secret", 5)], "")).await.unwrap();
    let session = "00112233445566778899aabbccddeeff";
    for (path, says) in [
        ("/rpctest.Words/Query", "pathcall-direct"),
        ("/rpctest.Words/Reduce", "pathcall-direct"),
        ("/rpctest.Locks/Reset", "pathcall-direct"),
        ("/rpctest.Locks/Lock", "pathcall-call"),
        ("/rpctest.Words/Query", "pathcall-call"),
        ("/rpctest.Words/Reduce", "pathcall-call"),
    ] {
        for session in [None, Some(session), Some("")] {
            let metadata: Vec<_> =
                [(says, "1")].into_iter().chain(session.map(|id| ("pathcall-session", id))).collect();
            let status = forged(&guarded.url, path, &metadata).await;
            assert_eq!(status.code(), Code::Unavailable, "{path} {metadata:?}: {status}");
        }
    }
    assert_eq!(guarded.seen.calls(), 0);
    // Without this metadata the call does not come from a channel.
    assert_eq!(forged(&guarded.url, "/rpctest.Locks/Lock", &[]).await.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn caller_is_admitted_for_each_method() {
    let rules =
        Rules::new(&[("good", &[ALL]), ("reader", &["/rpctest.Words/Query"]), ("adder", &["/rpctest.Words/Reduce"])]);
    let guarded = Guarded::start(CheckLocation::Inner, rules, |builder| builder).await;
    // One shared channel, then one channel per caller: the credentials of the join do not matter.
    for shared in [true, false] {
        let one = guarded.channel().await;
        let channel = async || if shared { one.clone() } else { guarded.channel().await };
        let (mut reader, mut adder) = (WordsClient::new(channel().await), WordsClient::new(channel().await));
        let denied = |outcome: Result<(), Status>| assert_eq!(outcome.unwrap_err().code(), Code::PermissionDenied);
        for _ in 0..2 {
            adder.reduce(with("adder", counts(&[("a", 1)], ""))).await.unwrap();
            reader.query(with("reader", wanted("a", ""))).await.unwrap();
            denied(adder.query(with("adder", wanted("a", ""))).await.map(drop));
            denied(reader.reduce(with("reader", counts(&[("a", 1)], ""))).await.map(drop));
            denied(adder.report(with("adder", counts(&[("a", 1)], ""))).await.map(drop));
        }
    }
    assert_eq!(guarded.value("a").await, 4);
}

#[tokio::test]
async fn releases_of_different_grants_need_one_admission() {
    let guarded = Guarded::start(CheckLocation::Inner, Rules::new(&[("good", &[ALL])]), |builder| builder).await;
    let mut locks = LocksClient::new(guarded.channel().await);
    let mut tokens = Vec::new();
    for _ in 0..5 {
        let locked = locks.lock(with("good", names(&["door"], ""))).await.unwrap();
        let token = locked.metadata().get("pathcall-fencing-token").unwrap().clone();
        let mut release = with("good", names(&["door"], ""));
        release.metadata_mut().insert("pathcall-fencing-token", token.clone());
        locks.release(release).await.unwrap();
        tokens.push(token);
    }
    tokens.dedup();
    assert_eq!(tokens.len(), 5, "grants differ");
    assert_eq!(guarded.rules.asked("/rpctest.Locks/Release"), 1);
}

#[tokio::test]
async fn caller_with_renewed_credentials_stays_member() {
    let rules = Rules::new(&[("old", &[ALL]), ("new", &[ALL])]);
    let often = |builder: Builder| builder.admitted_for(Duration::from_secs(1));
    let guarded = Guarded::start(CheckLocation::Inner, rules, often).await;
    let channel = guarded.channel().await;
    let mut locks = LocksClient::new(channel.clone());
    locks.lock(with("old", names(&["held"], ""))).await.unwrap();
    locks.lock(with("new", names(&["more"], ""))).await.unwrap();
    guarded.rules.revoke("old");
    // The method that was never called has only been admitted with the old credentials.
    let path = "/rpctest.Locks/Release";
    let before = guarded.rules.asked(path);
    until(|| guarded.rules.asked(path) >= before + 8).await;
    locks.release(with("new", names(&["held", "more"], ""))).await.unwrap();
    let joins = channel.stats().applications.iter().find(|stats| stats.name == "T-LOCKS").unwrap().joins;
    assert_eq!((guarded.members("T-LOCKS"), joins), (1, 1));
}

#[tokio::test]
async fn query_and_its_check_share_permits_of_a_layer() {
    let server = Layer::builder(&PATHCALL).build().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = tonic::transport::Server::builder()
        .layer(server.clone())
        .layer(ConcurrencyLimitLayer::new(1))
        .add_service(WordsServer::new(TestHandlers(Arc::default())));
    tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))));
    let mut words = WordsClient::new(Channel::connect(url, &PATHCALL).await.unwrap());
    words.reduce(counts(&[("a", 1)], "to the handler")).await.unwrap();
    for text in ["", "to the handler"] {
        let found = timeout(HANG, words.query(wanted("a", text))).await.expect("in time").unwrap();
        assert_eq!(found.into_inner().kvs, Some(str_int(&[("a", 1)])));
    }
}

#[tokio::test]
async fn idle_admitted_caller_stays_member() {
    let rules = Rules::new(&[("good", &[ALL]), ("brief", &[ALL])]);
    let often = |builder: Builder| builder.admitted_for(Duration::from_secs(1)).lock_lease(Duration::from_secs(600));
    let guarded = Guarded::start(CheckLocation::Inner, rules, often).await;
    let channel = guarded.channel().await;
    let mut locks = LocksClient::new(channel.clone());
    locks.lock(with("brief", names(&["held"], ""))).await.unwrap();
    let path = "/rpctest.Locks/Lock";
    let before = guarded.rules.asked(path);
    until(|| guarded.rules.asked(path) >= before + 5).await;
    assert_eq!(guarded.members("T-LOCKS"), 1, "the admission was renewed repeatedly");
    guarded.rules.revoke("brief");
    until(|| guarded.members("T-LOCKS") == 0).await;
    let refused = locks.lock(with("brief", names(&["more"], ""))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    // Another caller gets its lock.
    locks.lock(with("good", names(&["held"], ""))).await.unwrap();
}
