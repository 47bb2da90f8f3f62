//! Tests of delegated calls at their limits: wide, deep, aborted, and with lost messages.

use std::sync::Arc;
use std::time::Duration;

use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{
    CallOptions, DelegatedCall, Directory, Handlers, Node, NodeConfig, RunningHandlers, Transport,
};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use super::cluster::{DelegateCluster, all, serve, wish};

/// Client with long timeouts: tests share processors.
async fn client(url: String) -> DocsClient<Channel> {
    let options = CallOptions::default().timeout(Duration::from_secs(10));
    let builder = Channel::builder(url, &PATHCALL).expect("a URL").call_options(options);
    DocsClient::new(builder.connect().await.expect("connects"))
}

async fn wide(transport: Transport) {
    let cluster = DelegateCluster::new(transport).await;
    let names: Vec<String> = (0..10_000).map(|i| format!("{i:05}")).collect();
    let (texts, ended) = all(client(cluster.url.clone()).await.lookup(wish(names.clone())).await).await;
    assert!(ended.is_ok(), "{} replies, {ended:?}", texts.len());
    assert!(texts == names, "{} of them", texts.len());
    assert_eq!(cluster.requests(), 10_001);
}

#[tokio::test]
async fn one_request_leads_to_ten_thousand_by_flows() {
    wide(Transport::Flows).await;
}

#[tokio::test]
async fn one_request_leads_to_ten_thousand_by_tcp() {
    wide(Transport::Tcp).await;
}

/// Server that passes each request on to `next`, and replies with its depth.
async fn passes_on(directory: &Directory, next: &'static str) -> RunningHandlers {
    let lookup = move |wish: Wish, call: DelegatedCall<Note>| async move {
        call.reply(Note { text: call.depth().to_string() }).await?;
        call.delegate::<DocsLookup>(next, &wish)
    };
    let handlers = Handlers::new().directory(directory.clone());
    handlers.handle::<DocsLookup, _, _>(lookup).start().await.expect("starts")
}

#[tokio::test]
async fn cycle_ends_with_status() {
    let directory = Directory::default();
    let (one, other) = (passes_on(&directory, "other").await, passes_on(&directory, "one").await);
    directory.set([("one", one.address()), ("other", other.address())]);
    let (texts, ended) = all(client(serve(Some(one.clone())).await).await.lookup(wish(["x"])).await).await;
    let status = ended.expect_err("a cycle");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.message(), "the call passed through 64 servers, the most allowed: is there a cycle?");
    assert!(texts.len() <= 65, "{texts:?}");
    let requests = one.stats().worker.requests + other.stats().worker.requests;
    // The channel also sends a test request to the first server.
    assert!((66..=67).contains(&requests), "{requests}");
}

#[tokio::test]
async fn lost_replies_switch_calls_to_grpc() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    // The address that the channel's node announces receives nothing.
    let hole = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let config = NodeConfig::default().advertised(Some(hole.local_addr().expect("bound")));
    let (node, _requests) = Node::start(&config).await.expect("starts");
    let builder = Channel::builder(cluster.url.clone(), &PATHCALL).expect("a URL").node(node);
    let channel = builder.connect().await.expect("connects");
    let ask = async || all(DocsClient::new(channel.clone()).lookup(wish(["a", "b"])).await).await;
    let call = format!("/rpctest.Docs/Lookup at {}: ", cluster.index.address());
    loop {
        let status = ask().await.1.expect_err("replies are lost");
        assert_eq!(status.code(), Code::Unavailable);
        let what = status.message().strip_prefix(&call).unwrap_or_else(|| panic!("{status}"));
        // A stalled machine may not even get the confirmation.
        if what.starts_with("a reply of ") {
            break;
        }
    }
    both_by_grpc(&channel).await;
}

/// Both calls are made by the server's layer.
async fn both_by_grpc(channel: &Channel) {
    let before = channel.stats();
    for _ in 0..2 {
        let (texts, ended) = all(DocsClient::new(channel.clone()).lookup(wish(["a", "b"])).await).await;
        assert_eq!((texts, ended.map_err(|status| status.to_string())), (vec!["a".into(), "b".into()], Ok(())));
    }
    let stats = channel.stats();
    assert_eq!(
        (stats.delegated_calls, stats.plain_calls),
        (before.delegated_calls, before.plain_calls + 2),
        "{stats:?}"
    );
}

#[tokio::test]
async fn blocked_messages_switch_calls_to_grpc() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    // No node listens on TCP, which the channel's node uses.
    let (node, _requests) = Node::start(&NodeConfig::default().transport(Transport::Tcp)).await.expect("starts");
    let builder = Channel::builder(cluster.url.clone(), &PATHCALL).expect("a URL").node(node);
    both_by_grpc(&builder.connect().await.expect("connects")).await;
    assert_eq!(cluster.requests(), 6, "each request once");
}

#[tokio::test]
async fn exactly_once_call_does_not_switch_to_grpc() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let (node, _requests) = Node::start(&NodeConfig::default().transport(Transport::Tcp)).await.expect("starts");
    let builder = Channel::builder(cluster.url.clone(), &PATHCALL).expect("a URL").node(node);
    let mut client = DocsClient::new(builder.connect().await.expect("connects"));
    for _ in 0..2 {
        let mut once = Request::new(wish(["a"]));
        once.extensions_mut().insert(CallOptions::new().once(true).deadline(Some(Duration::from_millis(200))));
        let (texts, ended) = all(client.lookup(once).await).await;
        let code = ended.expect_err("no message passes").code();
        assert!(texts.is_empty() && [Code::Unavailable, Code::DeadlineExceeded].contains(&code), "{texts:?} {code:?}");
    }
    assert_eq!(cluster.requests(), 0);
}

#[tokio::test]
async fn reply_after_abort_is_cancelled() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let (begun, mut began) = mpsc::unbounded_channel();
    let lookup = move |wish: Wish, call: DelegatedCall<Note>| {
        let (tell, begun, late) = (tell.clone(), begun.clone(), call.clone());
        async move {
            if wish.names.is_empty() {
                return call.reply(Note { text: "next".to_owned() }).await;
            }
            // The handler is dropped when the call is aborted, but this task continues.
            tokio::spawn(async move {
                late.aborted().await;
                let reply = late.reply(Note { text: "late".to_owned() }).await;
                let passed_on =
                    late.delegate::<DocsFetch>(std::net::SocketAddr::from(([127, 0, 0, 1], 1)), &Note::default());
                let sealed = late.seal().map(drop);
                let _ = tell.send([reply, passed_on, sealed]);
            });
            let _ = begun.send(());
            std::future::pending::<Result<(), Status>>().await
        }
    };
    let index = Handlers::new().handle::<DocsLookup, _, _>(lookup).start().await.expect("starts");
    let mut client = client(serve(Some(index.clone())).await).await;
    let stream = client.lookup(wish(["x"])).await.expect("it begins");
    timeout(HANG, began.recv()).await.expect("in time").expect("it begins");
    drop(stream);
    let results = timeout(HANG, told.recv()).await.expect("in time").expect("it is told");
    for result in results {
        let status = result.expect_err("the call was aborted");
        assert_eq!((status.code(), status.message()), (Code::Cancelled, "the caller no longer needs the result"));
    }
    // The next call is not affected.
    let (texts, ended) = all(client.lookup(wish([""; 0])).await).await;
    ended.expect("complete");
    assert_eq!(texts, ["next"]);
    assert_eq!(index.stats().worker.aborted, 1);
}

#[tokio::test]
async fn panic_ends_only_its_own_call() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let client = Arc::new(client(cluster.url.clone()).await);
    let calls = (0..50).map(|i| {
        let mut client = (*client).clone();
        let name = if i % 2 == 0 { "panic".to_owned() } else { format!("document {i}") };
        tokio::spawn(async move { (i, all(client.lookup(wish([name])).await).await) })
    });
    for call in calls.collect::<Vec<_>>() {
        match call.await.expect("no panic here") {
            (i, (_, Err(status))) => {
                assert_eq!((i % 2, status.code(), status.message()), (0, Code::Internal, "the handler panicked"));
            }
            (i, (texts, Ok(()))) => assert_eq!((i % 2, texts), (1, vec![format!("document {i}")])),
        }
    }
}

#[tokio::test]
async fn panic_ends_call_with_living_clones() {
    let (told, mut hears) = mpsc::unbounded_channel();
    let fetch = move |_: Note, call: DelegatedCall<Note>| {
        let told = told.clone();
        async move {
            let late = call.clone();
            tokio::spawn(async move {
                late.aborted().await;
                told.send(late.is_aborted()).expect("the test listens");
            });
            panic!("as told");
        }
    };
    let serving = Handlers::new().handle::<DocsFetch, _, _>(fetch).start().await.expect("starts");
    let mut client = client(serve(Some(serving)).await).await;
    let (_, ended) = all(client.fetch(Note { text: String::new() }).await).await;
    let status = ended.expect_err("it panicked");
    assert_eq!((status.code(), status.message()), (Code::Internal, "the handler panicked"));
    assert_eq!(timeout(HANG, hears.recv()).await, Ok(Some(true)), "the spawned task sees the abort");
}
