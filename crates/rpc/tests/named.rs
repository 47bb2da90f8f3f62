//! Calls with ids: each takes effect once, whoever repeats it, and what can't be known is said.

use std::path::Path;

use pathcall_rpc::channel::builder::ConnectError;
use pathcall_rpc::channel::journal::JournalError;
use pathcall_rpc::{CALL_ID, Channel, Server};
use pathcall_test_support::loopback;
use pathcall_test_support::service::{FOR_EVER, Running, counts, gradient, names, str_int, until};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{Counts, PATHCALL, Wanted};
use tonic::{Code, Request};

async fn journalled(server: &Running, journal: &Path) -> Channel {
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

/// Applied and repeated calls with ids of the application of the words.
fn applied(server: &Running) -> (u64, u64) {
    let stats = server.pathcall.stats().into_iter().find(|stats| stats.name == "T-WORDS").unwrap();
    (stats.map.calls_applied, stats.map.calls_repeated)
}

#[tokio::test]
async fn a_call_takes_effect_once_however_often_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let server = Running::start().await;
    let channel = journalled(&server, &journal).await;
    let mut words = WordsClient::new(channel.clone());
    for _ in 0..3 {
        words.reduce(with_id("first", one(""))).await.unwrap();
    }
    words.reduce(with_id("second", one(""))).await.unwrap();
    // Without an id as ever.
    words.reduce(one("")).await.unwrap();
    assert_eq!((value(&channel, "a").await.unwrap(), value(&channel, "b").await.unwrap()), (3, 3 << 40));
    assert_eq!((applied(&server), channel.stats().named_calls), ((2, 0), 4));
    drop((words, channel));

    // Another process knows what is done.
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

/// A process that dies between the server's answer and its own note: a copy of its journal from before
/// the answer is what the next one finds.
#[tokio::test]
async fn a_call_whose_answer_nobody_saw_is_not_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, copy) = (folder.path().join("journal"), folder.path().join("copy"));
    let server = Running::start().await;
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
async fn a_server_that_does_not_know_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, copy) = (folder.path().join("journal"), folder.path().join("copy"));
    let address = loopback::own();
    let server = Running::start_at(Server::builder(&PATHCALL).build().await.unwrap(), address).await;
    let channel = journalled(&server, &journal).await;
    let mut words = WordsClient::new(channel.clone());
    words.reduce(with_id("first", one(""))).await.unwrap();
    // As after a kill before the last note.
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&copy, &bytes[..bytes.len() - 1]).unwrap();
    drop((words, channel));
    server.stop().await;

    let server = Running::start_at(Server::builder(&PATHCALL).build().await.unwrap(), address).await;
    let channel = journalled(&server, &copy).await;
    let mut words = WordsClient::new(channel.clone());
    let error = words.reduce(with_id("first", one(""))).await.unwrap_err();
    assert_eq!(error.code(), Code::DataLoss);
    assert!(error.message().contains("no longer knows which calls"), "{}", error.message());
    // New calls go on, and who asks for values is told that some were lost.
    words.reduce(with_id("second", one(""))).await.unwrap();
    assert_eq!(value(&channel, "a").await.unwrap_err().code(), Code::DataLoss);
    assert_eq!(value(&channel, "a").await.unwrap(), 1);
}

#[tokio::test]
async fn what_can_have_no_id_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start().await;
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
    // All or nothing: the second key would leave 64 bits.
    let mut words = WordsClient::new(channel.clone());
    words.reduce(with_id("most", counts(&[("full", i64::MAX)], ""))).await.unwrap();
    let error = words.reduce(with_id("more", counts(&[("a", 1), ("full", 1)], ""))).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
    assert_eq!(value(&channel, "a").await.unwrap(), 0);
    // What was not done may be tried again.
    words.reduce(with_id("more", counts(&[("a", 1), ("full", 0)], ""))).await.unwrap();
    assert_eq!(value(&channel, "a").await.unwrap(), 1);
}

#[tokio::test]
async fn a_handler_that_did_not_answer_sees_the_call_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let server = Running::start().await;
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
async fn the_handler_sees_the_rest_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start().await;
    let mut words = WordsClient::new(journalled(&server, &folder.path().join("journal")).await);
    let said = words.reduce(with_id("x", one("hello"))).await.unwrap().into_inner();
    assert_eq!(said.text, "hello: no counts");
    let again = words.reduce(with_id("x", one("hello"))).await.unwrap().into_inner();
    assert_eq!((again.text.as_str(), server.seen.calls()), ("", 1));
}
