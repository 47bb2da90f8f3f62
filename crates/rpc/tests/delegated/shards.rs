//! Tests of handlers whose node has several shards.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{DelegatedCall, Directory, Handlers, HandlersError, NodeConfig, Transport};
use pathcall_test_support::stubs::delegated::DocsFetch;
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL};
use tokio::runtime::{Builder, Handle, Runtime};

use super::cluster::{all, index, serve, wish};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Looks up documents in a store of several shards; returns the number of threads on which its handlers ran.
async fn look_up(adapt: impl FnOnce(Handlers) -> Handlers) -> usize {
    let threads = Arc::<Mutex<BTreeSet<String>>>::default();
    let seen = Arc::clone(&threads);
    let fetch = move |note: Note, call: DelegatedCall<Note>| {
        seen.lock().expect("no panic").insert(format!("{:?}", std::thread::current().id()));
        async move { call.reply(note).await }
    };
    let handlers = adapt(Handlers::new().node(NodeConfig::default().shards(3)));
    let store = handlers.handle::<DocsFetch, _, _>(fetch).start().await.expect("starts");
    let directory = Directory::of([("store-a", store.address())]);
    let index = index(Transport::Flows, directory, &Arc::default()).await;
    let channel = Channel::connect(serve(Some(index)).await, &PATHCALL).await.expect("connects");
    let mut client = DocsClient::new(channel);
    for turn in 0..20 {
        let names: Vec<String> = (0..10).map(|i| format!("document {turn:02} {i}")).collect();
        let (texts, ended) = all(client.lookup(wish(names.clone())).await).await;
        ended.expect("complete");
        assert_eq!(texts, names);
    }
    assert_eq!(store.stats().worker.requests, 200);
    threads.lock().expect("no panic").len()
}

#[tokio::test]
async fn stub_reaches_handlers_of_all_shards() {
    assert_eq!(look_up(|handlers| handlers).await, 1);
}

#[test]
fn handlers_run_on_the_runtimes_of_their_shards() {
    let (main, others) = (runtime(), [runtime(), runtime()]);
    let handles: Vec<Handle> = others.iter().map(|runtime| runtime.handle().clone()).collect();
    // A slot is not held by the receiver of another shard.
    let threads = main.block_on(look_up(|handlers| handlers.runtimes(handles).concurrency_limit(1)));
    assert_eq!(threads, 2);
}

#[tokio::test]
async fn shards_by_tcp_are_refused() {
    let node = NodeConfig::default().shards(2).transport(Transport::Tcp);
    let error = Handlers::new().node(node).start().await.expect_err("refused");
    assert!(matches!(error, HandlersError::Node { .. }) && error.to_string().contains("2 shards by Tcp"), "{error}");
}
