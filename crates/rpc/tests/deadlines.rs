//! Tests of calls that end before they are answered: by deadline, and by being dropped.

use std::time::{Duration, Instant};

use pathcall_test_support::service::{FOR_EVER, TestServer, counts, gradient, note, str_int, within};
use pathcall_test_support::stubs::Wanted;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use tonic::{Code, Status};

#[tokio::test]
async fn deadline_holds_for_each_kind_of_call() {
    let server = TestServer::start().await;
    let channel = server.channel().await;
    let mut training = TrainingClient::new(channel.clone());
    let mut words = WordsClient::new(channel.clone());
    let began = Instant::now();
    // A plain call, and the middle of a stream.
    let mut codes = vec![training.echo(within(50, note(FOR_EVER))).await.unwrap_err().code()];
    // A stalled machine needs more time to reach the middle of the stream.
    let middle = async |millis| {
        let mut watched = training.watch(within(millis, note(FOR_EVER))).await?.into_inner();
        for _ in 0..3 {
            watched.message().await?;
        }
        Ok::<_, Status>(watched.message().await.unwrap_err().code())
    };
    codes.push(with_growing_timeout(middle).await);
    // A sum that the other worker never adds to.
    codes.push(training.update(within(50, gradient(&[1.0]))).await.unwrap_err().code());
    // The handler of a call with a filter, and of a query. All earlier handlers have begun.
    training.echo(note("in turn")).await.unwrap();
    let before = server.seen.calls();
    let handled = async |millis: u64| {
        let key = format!("within {millis} ms");
        let code = words.reduce(within(millis, counts(&[(&key, 1)], FOR_EVER))).await.unwrap_err().code();
        if server.seen.calls() > before { Ok((code, key)) } else { Err(Status::deadline_exceeded("no handler")) }
    };
    let (code, key) = with_growing_timeout(handled).await;
    codes.push(code);
    let wanted = Wanted { keys: None, text: FOR_EVER.into() };
    codes.push(words.query(within(50, wanted)).await.unwrap_err().code());
    assert_eq!(codes, [Code::DeadlineExceeded; 5]);
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
    // The map operation has taken effect.
    let wanted = Wanted { keys: Some(str_int(&[(&key, 0)])), text: String::new() };
    assert_eq!(words.query(wanted).await.unwrap().into_inner().kvs, Some(str_int(&[(&key, 1)])));
}

/// Repeats a call with more and more time, in milliseconds, until it succeeds.
async fn with_growing_timeout<T>(mut call: impl AsyncFnMut(u64) -> Result<T, Status>) -> T {
    let mut millis = 50;
    loop {
        match call(millis).await {
            Ok(come) => return come,
            Err(late) => assert!(late.code() == Code::DeadlineExceeded && millis < 100_000, "{millis} ms: {late}"),
        }
        millis *= 2;
    }
}

#[tokio::test]
async fn dropped_call_cancels_handler() {
    let server = TestServer::start().await;
    let channel = server.channel().await;
    let mut training = TrainingClient::new(channel.clone());
    let mut words = WordsClient::new(channel.clone());
    {
        let echo = training.echo(note(FOR_EVER));
        tokio::select! {
            _ = echo => panic!("it never answers"),
            () = server.seen.stuck.notified() => {}
        }
    }
    server.seen.dropped.notified().await;
    {
        let reduce = words.reduce(counts(&[("a", 1)], FOR_EVER));
        tokio::select! {
            _ = reduce => panic!("it never answers"),
            () = server.seen.stuck.notified() => {}
        }
    }
    server.seen.dropped.notified().await;
    let mut watched = training.watch(note(FOR_EVER)).await.unwrap().into_inner();
    watched.message().await.unwrap();
    drop(watched);
    server.seen.dropped.notified().await;
}
