//! Tests of calls with ids: each takes effect once, even if repeated, and unknown results are errors.

use std::path::Path;

use pathcall_rpc::channel::builder::ConnectError;
use pathcall_rpc::channel::journal::JournalError;
use pathcall_rpc::{CALL_ID, Channel, Layer};
use pathcall_test_support::loopback;
use pathcall_test_support::service::{FOR_EVER, TestServer, counts, gradient, names, str_int, until};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{Counts, PATHCALL, Wanted};
use tonic::{Code, Request};

async fn journalled(server: &TestServer, journal: &Path) -> Channel {
    Channel::builder(server.uri(), &PATHCALL).unwrap().journal(journal).connect().await.unwrap()
}

fn with_id<T>(id: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(CALL_ID, id.parse().unwrap());
    request
}

async fn value(channel: &Channel, key: &str) -> Result<i64, tonic::Status> {
    let wanted = Wanted { keys: Some(str_int(&[(key, 0)])), ..Wanted::default() };
    let found = WordsClient::new(channel.clone()).query(wanted).await?.into_inner();
    Ok(found.kvs.unwrap().map[key])
}

fn one(text: &str) -> Counts {
    counts(&[("a", 1), ("b", 1 << 40)], text)
}

/// Numbers of applied and repeated calls with ids.
fn applied(server: &TestServer) -> (u64, u64) {
    let stats = server.pathcall.stats().into_iter().find(|stats| stats.name == "T-WORDS").unwrap();
    (stats.map.calls_applied, stats.map.calls_repeated)
}

#[tokio::test]
async fn repeated_call_takes_effect_once() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let server = TestServer::start().await;
    let channel = journalled(&server, &journal).await;
    let mut words = WordsClient::new(channel.clone());
    for _ in 0..3 {
        words.reduce(with_id("first", one(""))).await.unwrap();
    }
    words.reduce(with_id("second", one(""))).await.unwrap();
    // A call without an id.
    words.reduce(one("")).await.unwrap();
    assert_eq!((value(&channel, "a").await.unwrap(), value(&channel, "b").await.unwrap()), (3, 3 << 40));
    assert_eq!((applied(&server), channel.stats().idempotent_calls), ((2, 0), 4));
    drop((words, channel));

    // Another process learns the completed calls from the journal.
    let channel = loop {
        let builder = Channel::builder(server.uri(), &PATHCALL).unwrap().journal(&journal);
        match builder.connect().await {
            Ok(channel) => break channel,
            Err(ConnectError::Journal(JournalError::InUse { .. })) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let mut words = WordsClient::new(channel.clone());
    words.reduce(with_id("second", one(""))).await.unwrap();
    words.reduce(with_id("third", one(""))).await.unwrap();
    assert_eq!((value(&channel, "a").await.unwrap(), applied(&server)), (4, (3, 0)));
}

/// A process dies between the server's answer and its own record of it: the next process finds a copy of the journal
/// from before the answer.
#[tokio::test]
async fn call_with_lost_answer_is_not_applied_again() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, copy) = (folder.path().join("journal"), folder.path().join("copy"));
    let server = TestServer::start().await;
    let channel = journalled(&server, &journal).await;
    let mut words = WordsClient::new(channel.clone());
    words.reduce(with_id("first", one(""))).await.unwrap();
    let before = std::fs::read(&journal).unwrap();
    words.reduce(with_id("second", one(""))).await.unwrap();
    let after = std::fs::read(&journal).unwrap();
    drop((words, channel));
    for cut in before.len()..=after.len() {
        std::fs::write(&copy, &after[..cut]).unwrap();
        let channel = journalled(&server, &copy).await;
        let mut words = WordsClient::new(channel.clone());
        words.reduce(with_id("first", one(""))).await.unwrap();
        words.reduce(with_id("second", one(""))).await.unwrap();
        drop(words);
        assert_eq!(value(&channel, "a").await.unwrap(), 2, "of the first {cut} bytes");
        drop(channel);
        until(|| std::fs::OpenOptions::new().write(true).open(&copy).unwrap().try_lock().is_ok()).await;
    }
}

#[tokio::test]
async fn restarted_server_reports_data_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, copy) = (folder.path().join("journal"), folder.path().join("copy"));
    let address = loopback::own();
    let server = TestServer::start_at(Layer::builder(&PATHCALL).build().await.unwrap(), address).await;
    let channel = journalled(&server, &journal).await;
    let mut words = WordsClient::new(channel.clone());
    words.reduce(with_id("first", one(""))).await.unwrap();
    // As after a crash before the last journal entry.
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&copy, &bytes[..bytes.len() - 1]).unwrap();
    drop((words, channel));
    server.stop().await;

    let server = TestServer::start_at(Layer::builder(&PATHCALL).build().await.unwrap(), address).await;
    let channel = journalled(&server, &copy).await;
    let mut words = WordsClient::new(channel.clone());
    let error = words.reduce(with_id("first", one(""))).await.unwrap_err();
    assert_eq!(error.code(), Code::DataLoss);
    assert!(error.message().contains("no longer knows which calls"), "{}", error.message());
    // New calls succeed, and the next query reports the loss.
    words.reduce(with_id("second", one(""))).await.unwrap();
    assert_eq!(value(&channel, "a").await.unwrap_err().code(), Code::DataLoss);
    assert_eq!(value(&channel, "a").await.unwrap(), 1);
}

#[tokio::test]
async fn invalid_use_of_call_id_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let plain = server.channel().await;
    let error = WordsClient::new(plain).reduce(with_id("x", one(""))).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains(".journal("), "{}", error.message());
    let channel = journalled(&server, &folder.path().join("journal")).await;
    let sum = TrainingClient::new(channel.clone()).update(with_id("x", gradient(&[1.0]))).await;
    let lock = LocksClient::new(channel.clone()).lock(with_id("x", names(&["door"], ""))).await;
    let long = WordsClient::new(channel.clone()).reduce(with_id(&"x".repeat(129), one(""))).await;
    for code in [sum.unwrap_err().code(), lock.unwrap_err().code(), long.unwrap_err().code()] {
        assert_eq!(code, Code::InvalidArgument);
    }
    // A call with an overflow has no effect on any key.
    let mut words = WordsClient::new(channel.clone());
    words.reduce(with_id("most", counts(&[("full", i64::MAX)], ""))).await.unwrap();
    let error = words.reduce(with_id("more", counts(&[("a", 1), ("full", 1)], ""))).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
    assert_eq!(value(&channel, "a").await.unwrap(), 0);
    // The id of a failed call can be used again.
    words.reduce(with_id("more", counts(&[("a", 1), ("full", 0)], ""))).await.unwrap();
    assert_eq!(value(&channel, "a").await.unwrap(), 1);
}

#[tokio::test]
async fn unanswered_handler_sees_call_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let server = TestServer::start().await;
    let channel = journalled(&server, &journal).await;
    let mut words = WordsClient::new(channel.clone());
    {
        let late = words.reduce(with_id("x", one(FOR_EVER)));
        tokio::select! {
            _ = late => panic!("its handler never answers"),
            () = server.seen.stuck.notified() => {}
        }
    }
    let said = words.reduce(with_id("x", one("hello"))).await.unwrap().into_inner();
    assert_eq!((said.text.as_str(), value(&channel, "a").await.unwrap()), ("hello: no counts", 1));
    let again = words.reduce(with_id("x", one("hello"))).await.unwrap().into_inner();
    assert_eq!((again.text.as_str(), applied(&server)), ("", (1, 0)));
}

#[tokio::test]
async fn handler_sees_rest_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let mut words = WordsClient::new(journalled(&server, &folder.path().join("journal")).await);
    let said = words.reduce(with_id("x", one("hello"))).await.unwrap().into_inner();
    assert_eq!(said.text, "hello: no counts");
    let again = words.reduce(with_id("x", one("hello"))).await.unwrap().into_inner();
    assert_eq!((again.text.as_str(), server.seen.calls()), ("", 1));
}
