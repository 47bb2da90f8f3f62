//! Calls whose callers, or runtimes, are gone.

use pathcall_test_support::HANG;
use pathcall_test_support::service::{FOR_EVER, Running, counts, names, within};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tonic::Code;

#[test]
fn a_channel_whose_runtime_is_gone_says_so() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let server = second.block_on(Running::start());
    let channel = first.block_on(server.channel());
    let mut words = WordsClient::new(channel);
    first.block_on(words.reduce(counts(&[("a", 1)], ""))).unwrap();
    // All of it: its threads have ended.
    first.shutdown_timeout(HANG);
    let late = async { timeout(HANG, words.reduce(counts(&[("a", 1)], ""))).await };
    assert_eq!(second.block_on(late).expect("it does not wait").unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_lock_whose_caller_never_hears_of_it_is_given_back() {
    let server = Running::start().await;
    let (first, second) = (server.channel().await, server.channel().await);
    {
        let mut locks = LocksClient::new(first.clone());
        let lock = locks.lock(names(&["door"], FOR_EVER));
        tokio::select! {
            _ = lock => panic!("its handler never answers"),
            () = server.seen.stuck.notified() => {}
        }
    }
    // It waits for as long as the first one has it.
    LocksClient::new(second)
        .lock(within(HANG.as_millis() as u64, names(&["door"], "")))
        .await
        .expect("it was given back");
}
