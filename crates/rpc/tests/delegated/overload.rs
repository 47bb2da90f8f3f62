//! Tests of calls beyond the capacity of servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{Client, DelegatedCall, Directory, Handlers, Node, NodeConfig, NodeTarget};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use super::cluster::{serve, wish};

/// Requests of each call.
const WIDTH: usize = 1_000;
/// Concurrent calls.
const CALLS: u64 = 30;

#[tokio::test]
async fn overload_drops_late_calls_and_answers_fresh_ones() {
    let (ran, gate) = (Arc::<AtomicU64>::default(), Arc::new(Semaphore::new(0)));
    let (counted, closed) = (Arc::clone(&ran), Arc::clone(&gate));
    let fetch = move |note: Note, call: DelegatedCall<Note>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let closed = Arc::clone(&closed);
        async move {
            let _passed = closed.acquire().await;
            call.reply(note).await
        }
    };
    let target = Handlers::new().concurrency_limit(4).handle::<DocsFetch, _, _>(fetch).start().await.unwrap();
    let directory = Directory::of([("target", target.address())]);
    let lookup = async |wish: Wish, call: DelegatedCall<Note>| {
        for name in wish.names {
            call.delegate::<DocsFetch>("target", &Note { text: name })?;
        }
        Ok(())
    };
    let front = Handlers::new().directory(directory).handle::<DocsLookup, _, _>(lookup).start().await.unwrap();
    let url = serve(Some(front)).await;
    let channel = Channel::connect(url, &PATHCALL).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..CALLS {
        let mut docs = DocsClient::new(channel.clone());
        tasks.spawn(async move {
            let mut request = Request::new(wish((0..WIDTH).map(|one| one.to_string())));
            request.set_timeout(Duration::from_secs(1));
            let mut replies = docs.lookup(request).await?.into_inner();
            while replies.message().await?.is_some() {}
            Ok::<_, Status>(())
        });
    }
    // No request is answered, so the calls end with their deadlines.
    while let Some(ended) = timeout(HANG, tasks.join_next()).await.expect("in time") {
        let code = ended.unwrap().expect_err("no answer").code();
        assert!(matches!(code, Code::DeadlineExceeded | Code::Unavailable), "{code:?}");
    }
    gate.add_permits(1);
    let fresh = async { while ask(&channel).await.is_err() {} };
    timeout(HANG, fresh).await.expect("a fresh call is answered");
    let ran = ran.load(Ordering::Relaxed);
    assert!(ran < CALLS * WIDTH as u64 / 10, "{ran} ran, and what is late is not begun");
}

/// Call with one request.
async fn ask(channel: &Channel) -> Result<(), Status> {
    let mut replies = DocsClient::new(channel.clone()).lookup(wish(["fresh"])).await?.into_inner();
    while replies.message().await?.is_some() {}
    Ok(())
}

#[tokio::test]
async fn unread_streams_leave_slots_to_other_calls() {
    let fetch = async |note: Note, call: DelegatedCall<Note>| {
        let is_endless = note.text == "endless";
        loop {
            call.reply(note.clone()).await?;
            if !is_endless {
                return Ok(());
            }
        }
    };
    let handlers = Handlers::new().concurrency_limit(2).handle::<DocsFetch, _, _>(fetch).start().await.unwrap();
    let target = NodeTarget::from(handlers.address());
    let (node, _) = Node::start(&NodeConfig::default()).await.unwrap();
    let client = Client::new(node, Directory::default());
    let ask = |text: &str| {
        let call = client.call::<Note>().request::<DocsFetch>(target.clone(), &Note { text: text.to_owned() });
        call.unwrap().begin().unwrap()
    };
    let mut unread = Vec::new();
    for _ in 0..10 {
        let mut replies = ask("endless");
        // It runs, and will wait for this caller.
        timeout(HANG, replies.message()).await.expect("in time").unwrap().expect("a reply");
        unread.push(replies);
    }
    let mut replies = ask("fresh");
    let reply = timeout(HANG, replies.message()).await.expect("in time").unwrap();
    assert_eq!(reply.map(|note| note.text).as_deref(), Some("fresh"));
}
