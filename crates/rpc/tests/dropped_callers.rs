//! Tests of calls whose caller or runtime has been dropped.

use pathcall_test_support::HANG;
use pathcall_test_support::service::{FOR_EVER, TestServer, counts, names, within};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tonic::Code;

#[test]
fn calls_fail_once_tokio_runtime_has_ended() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let server = second.block_on(TestServer::start());
    let channel = first.block_on(server.channel());
    let mut words = WordsClient::new(channel);
    first.block_on(words.reduce(counts(&[("a", 1)], ""))).unwrap();
    // Ends the runtime with all its threads.
    first.shutdown_timeout(HANG);
    let late = async { timeout(HANG, words.reduce(counts(&[("a", 1)], ""))).await };
    assert_eq!(second.block_on(late).expect("it does not wait").unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn unreported_lock_is_released() {
    let server = TestServer::start().await;
    let (first, second) = (server.channel().await, server.channel().await);
    {
        let mut locks = LocksClient::new(first.clone());
        let lock = locks.lock(names(&["door"], FOR_EVER));
        tokio::select! {
            _ = lock => panic!("its handler never answers"),
            () = server.seen.stuck.notified() => {}
        }
    }
    // The second caller waits until the lock is free.
    LocksClient::new(second)
        .lock(within(HANG.as_millis() as u64, names(&["door"], "")))
        .await
        .expect("the lock was released");
}
