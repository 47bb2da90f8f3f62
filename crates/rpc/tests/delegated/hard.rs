//! Calls at their limits: wide, deep, and not wanted any more.

use std::sync::Arc;
use std::time::Duration;

use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{Call, CallOptions, Directory, Handlers, Node, NodeConfig, Serving, Transport};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::house::{House, all, serve, wish};

/// A client that is patient: tests share processors.
async fn client(url: String) -> DocsClient<Channel> {
    let options = CallOptions::default().timeout(Duration::from_secs(10));
    let builder = Channel::builder(url, &PATHCALL).expect("a URL").call_options(options);
    DocsClient::new(builder.connect().await.expect("connects"))
}

async fn wide(transport: Transport) {
    let house = House::new(transport).await;
    let names: Vec<String> = (0..10_000).map(|i| format!("{i:05}")).collect();
    let (texts, ended) = all(client(house.url.clone()).await.lookup(wish(names.clone())).await).await;
    assert!(ended.is_ok(), "{} replies, {ended:?}", texts.len());
    assert!(texts == names, "{} of them", texts.len());
    assert_eq!(house.requests(), 10_001);
}

#[tokio::test]
async fn one_request_leads_to_ten_thousand() {
    wide(Transport::Flows).await;
}

#[tokio::test]
async fn and_so_it_does_by_tcp() {
    wide(Transport::Tcp).await;
}

/// A server that passes what it is asked on to `next`, and replies how deep that was.
async fn passes_on(directory: &Directory, next: &'static str) -> Serving {
    let lookup = move |wish: Wish, call: Call<Note>| async move {
        call.reply(Note { text: call.depth().to_string() }).await?;
        call.delegate::<DocsLookup>(next, &wish)
    };
    let handlers = Handlers::new().directory(directory.clone());
    handlers.handle::<DocsLookup, _, _>(lookup).start().await.expect("starts")
}

#[tokio::test]
async fn a_cycle_ends_with_a_clear_status() {
    let directory = Directory::default();
    let (one, other) = (passes_on(&directory, "other").await, passes_on(&directory, "one").await);
    directory.set([("one", one.address()), ("other", other.address())]);
    let (texts, ended) = all(client(serve(Some(one.clone())).await).await.lookup(wish(["x"])).await).await;
    let status = ended.expect_err("a cycle");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.message(), "the call went through 64 servers, as many as it may: is there a cycle?");
    assert!(texts.len() <= 65, "{texts:?}");
    let requests = one.stats().worker.requests + other.stats().worker.requests;
    // And those by which the channel finds out whether it reaches the first.
    assert!((66..=67).contains(&requests), "{requests}");
}

#[tokio::test]
async fn calls_go_by_grpc_where_messages_do_not_come_back() {
    let house = House::new(Transport::Flows).await;
    // Where the channel's node says that it is, nobody hears what servers send.
    let hole = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let config = NodeConfig::default().reached(Some(hole.local_addr().expect("bound")));
    let (node, _requests) = Node::start(&config).await.expect("starts");
    let builder = Channel::builder(house.url.clone(), &PATHCALL).expect("a URL").node(node);
    let channel = builder.connect().await.expect("connects");
    let ask = async || all(DocsClient::new(channel.clone()).lookup(wish(["a", "b"])).await).await;
    let call = format!("/rpctest.Docs/Lookup at {}: ", house.index.address());
    loop {
        let status = ask().await.1.expect_err("replies are lost");
        assert_eq!(status.code(), Code::Unavailable);
        let what = status.message().strip_prefix(&call).unwrap_or_else(|| panic!("{status}"));
        // A machine that stands still may hear nothing at all.
        if what.starts_with("a reply was sent") {
            break;
        }
    }
    both_by_grpc(&channel).await;
}

/// The next two calls are made by the server's layer.
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
async fn calls_go_by_grpc_where_messages_do_not_pass() {
    let house = House::new(Transport::Flows).await;
    // Nobody listens for what the channel's node sends.
    let (node, _requests) = Node::start(&NodeConfig::default().transport(Transport::Tcp)).await.expect("starts");
    let builder = Channel::builder(house.url.clone(), &PATHCALL).expect("a URL").node(node);
    both_by_grpc(&builder.connect().await.expect("connects")).await;
    assert_eq!(house.requests(), 6, "each once");
}

#[tokio::test]
async fn who_replies_after_an_abort_is_told_that_nobody_wants_it() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let (begun, mut began) = mpsc::unbounded_channel();
    let lookup = move |wish: Wish, call: Call<Note>| {
        let (tell, begun, late) = (tell.clone(), begun.clone(), call.clone());
        async move {
            if wish.names.is_empty() {
                return call.reply(Note { text: "next".to_owned() }).await;
            }
            // The handler is dropped when the call is aborted; this goes on.
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
        let status = result.expect_err("nobody wants it");
        assert_eq!((status.code(), status.message()), (Code::Cancelled, "nobody wants the result any more"));
    }
    // The next call hears nothing of it.
    let (texts, ended) = all(client.lookup(wish([""; 0])).await).await;
    ended.expect("complete");
    assert_eq!(texts, ["next"]);
    assert_eq!(index.stats().worker.aborted, 1);
}

#[tokio::test]
async fn a_handler_that_panics_ends_its_own_call_only() {
    let house = House::new(Transport::Flows).await;
    let client = Arc::new(client(house.url.clone()).await);
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
async fn a_handler_that_panics_ends_its_call_though_others_have_it() {
    let (told, mut hears) = mpsc::unbounded_channel();
    let fetch = move |_: Note, call: Call<Note>| {
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
    assert_eq!(timeout(HANG, hears.recv()).await, Ok(Some(true)), "what it left behind hears of it");
}
