//! Tests of delegated calls, through the stubs that tonic generates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{
    CallOptions, DelegatedCall, Directory, Handlers, HandlersError, Node, NodeConfig, Transport,
};
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use pathcall_test_support::{HANG, loopback};
use tokio::time::timeout;
use tonic::{Code, Request};

use super::cluster::{DelegateCluster, all, index, serve, store, wish};

async fn looked_up(transport: Transport) {
    let cluster = DelegateCluster::new(transport).await;
    let mut client = cluster.client().await;
    let names: Vec<String> = (0..40).map(|i| format!("document {i:02}")).collect();
    let (texts, ended) = all(client.lookup(wish(names.clone())).await).await;
    assert_eq!((texts, ended.map_err(|status| status.to_string())), (names, Ok(())));
    assert_eq!(cluster.requests(), 41, "one look-up, and each document once");
    assert!(cluster.stores.iter().all(|store| store.stats().worker.requests > 5), "both stores have some");
    // A call without replies completes, too.
    assert!(matches!(all(client.lookup(wish([""; 0])).await).await, (texts, Ok(())) if texts.is_empty()));
}

#[tokio::test]
async fn replies_come_from_delegated_servers_by_flows() {
    looked_up(Transport::Flows).await;
}

#[tokio::test]
async fn replies_come_from_delegated_servers_by_tcp() {
    looked_up(Transport::Tcp).await;
}

#[tokio::test]
async fn stub_without_pathcall_gets_same_replies() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let channel = tonic::transport::Endpoint::from_shared(cluster.url.clone()).expect("a URL").connect().await;
    let mut client = DocsClient::new(channel.expect("connects"));
    let mut request = Request::new(wish(["x", "y"]));
    request.metadata_mut().insert("user", "me".parse().expect("text"));
    let (texts, ended) = all(client.lookup(request).await).await;
    ended.expect("complete");
    assert_eq!(texts, ["for me", "x", "y"]);
}

#[tokio::test]
async fn metadata_reaches_the_first_handler() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let mut request = Request::new(wish(["x"]));
    request.metadata_mut().insert("user", "me".parse().expect("text"));
    let (texts, ended) = all(cluster.client().await.lookup(request).await).await;
    ended.expect("complete");
    assert_eq!(texts, ["for me", "x"]);
}

#[tokio::test]
async fn metadata_is_passed_on_unless_handler_changes_it() {
    // Each server replies with the metadata that it got, and passes the call on to the next one.
    let directory = Directory::default();
    let mut servers = Vec::new();
    for _ in 0..3 {
        let lookup = async |wish: Wish, call: DelegatedCall<Note>| {
            let heard = |name| call.metadata().get(name).map_or("nobody", |value| value.to_str().expect("text"));
            call.reply(Note { text: format!("{}, {}", heard("user"), heard("traceparent")) }).await?;
            match &wish.names[..] {
                [] => Ok(()),
                [next, rest @ ..] if next == "c" => {
                    let mut request = Request::new(Wish { names: rest.to_vec() });
                    request.metadata_mut().insert("user", "you".parse().expect("text"));
                    call.delegate_with::<DocsLookup>("c", request)
                }
                [next, rest @ ..] => call.delegate::<DocsLookup>(next.as_str(), &Wish { names: rest.to_vec() }),
            }
        };
        let handlers = Handlers::new().directory(directory.clone());
        servers.push(handlers.handle::<DocsLookup, _, _>(lookup).start().await.expect("starts"));
    }
    directory.set([("b", servers[1].address()), ("c", servers[2].address())]);
    let url = serve(Some(servers[0].clone())).await;
    let mut client = DocsClient::new(Channel::connect(url, &PATHCALL).await.expect("connects"));
    let mut request = Request::new(wish(["b", "c"]));
    request.metadata_mut().insert("user", "me".parse().expect("text"));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.metadata_mut().insert("traceparent", parent.parse().expect("text"));
    let (texts, ended) = all(client.lookup(request).await).await;
    ended.expect("complete");
    let expected = [format!("me, {parent}"), format!("me, {parent}"), "you, nobody".to_owned()];
    assert_eq!(texts, expected);
}

#[tokio::test]
async fn credentials_are_passed_on_only_by_servers_that_forward_them() {
    for forward in [false, true] {
        let reply = async |_: Note, call: DelegatedCall<Note>| {
            let mut names: Vec<_> = call.metadata().keys().map(|name| format!("{name:?}")).collect();
            names.sort();
            call.reply(Note { text: names.join(" ") }).await
        };
        let store = Handlers::new().handle::<DocsFetch, _, _>(reply).start().await.expect("starts");
        let lookup = async |_: Wish, call: DelegatedCall<Note>| {
            assert_eq!(call.metadata().get("cookie").map(|cookie| cookie.as_bytes()), Some(&b"secret"[..]));
            call.delegate::<DocsFetch>("store", &Note::default())
        };
        let index = Handlers::new().directory(Directory::of([("store", store.address())])).forward_credentials(forward);
        let url = serve(Some(index.handle::<DocsLookup, _, _>(lookup).start().await.expect("starts"))).await;
        let mut client = DocsClient::new(Channel::connect(url, &PATHCALL).await.expect("connects"));
        let mut request = Request::new(wish(["x"]));
        for name in ["authorization", "cookie", "x-api-key", "proxy-authorization", "user"] {
            request.metadata_mut().insert(name, "secret".parse().expect("text"));
        }
        let (texts, ended) = all(client.lookup(request).await).await;
        ended.expect("complete");
        let expected = if forward {
            r#"Ascii("authorization") Ascii("cookie") Ascii("proxy-authorization") Ascii("user") Ascii("x-api-key")"#
        } else {
            r#"Ascii("user")"#
        };
        assert_eq!(texts, [expected]);
    }
}

#[tokio::test]
async fn error_at_any_server_ends_stream() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let mut client = cluster.client().await;
    for (what, code, says) in
        [("fail", Code::NotFound, "no such document"), ("panic", Code::Internal, "the handler panicked")]
    {
        let (_, ended) = all(client.lookup(wish([what])).await).await;
        let status = ended.expect_err(what);
        assert_eq!((status.code(), status.message()), (code, says));
    }
    // The index has no handler for fetch.
    let (_, ended) = all(client.fetch(Note { text: "x".to_owned() }).await).await;
    let status = ended.expect_err("no handler");
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unimplemented, "this server has no handler of /rpctest.Docs/Fetch")
    );
}

#[tokio::test]
async fn unknown_target_fails_call() {
    let seen = Arc::default();
    let _store = store(Transport::Flows, &seen).await;
    let index = index(Transport::Flows, Directory::default(), &Arc::default()).await;
    let url = serve(Some(index)).await;
    let mut client = DocsClient::new(Channel::connect(url, &PATHCALL).await.expect("connects"));
    let status = all(client.lookup(wish(["x"])).await).await.1.expect_err("no node has this name");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("\"store-\""), "{status}");
}

#[tokio::test]
async fn deadline_holds_for_all_hops() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let mut client = cluster.client().await;
    let mut time = Duration::from_millis(300);
    loop {
        let mut request = Request::new(wish(["for ever"]));
        request.set_timeout(time);
        let status = match client.lookup(request).await {
            Ok(stream) => all(Ok(stream)).await.1.expect_err("it takes for ever"),
            Err(late) => late,
        };
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        if timeout(Duration::ZERO, cluster.seen.began.notified()).await.is_ok() {
            break;
        }
        // On a stalled machine the call has not reached the last handler.
        time *= 2;
        assert!(time < HANG, "the last handler does not begin");
    }
    timeout(HANG, cluster.seen.dropped.notified()).await.expect("the handler is dropped");
}

#[tokio::test]
async fn dropped_stream_stops_all_servers() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    // The caller aborts the call, or disappears itself.
    for goes_on in [true, false] {
        let mut client = cluster.client().await;
        let stream = client.lookup(wish(["for ever"])).await.expect("it begins");
        timeout(HANG, cluster.seen.began.notified()).await.expect("the last handler is there");
        let client = goes_on.then_some(client);
        drop(stream);
        timeout(HANG, cluster.seen.dropped.notified()).await.expect("the handler is dropped");
        drop(client);
    }
}

#[tokio::test]
async fn replies_wait_for_reader() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let (texts, ended) = all(cluster.client().await.lookup(wish(["many"])).await).await;
    ended.expect("complete");
    assert_eq!(texts.len(), 2_000);
}

#[tokio::test]
async fn server_without_handlers_is_called_by_grpc() {
    let url = serve(None).await;
    let channel = Channel::connect(url, &PATHCALL).await.expect("connects");
    let (texts, ended) = all(DocsClient::new(channel.clone()).lookup(wish(["x"])).await).await;
    ended.expect("complete");
    assert_eq!(texts, ["plain"]);
    assert_eq!((channel.stats().plain_calls, channel.stats().delegated_calls), (1, 0));
    let mut once = Request::new(wish(["x"]));
    once.extensions_mut().insert(CallOptions::new().once(true));
    let status = DocsClient::new(channel.clone()).lookup(once).await.expect_err("it may be executed twice");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().starts_with("the server has no handlers of delegated calls"), "{status}");
    assert_eq!(channel.stats().plain_calls, 1);
}

#[tokio::test]
async fn one_node_serves_several_channels() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let (node, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    for _ in 0..2 {
        let channel = Channel::builder(cluster.url.clone(), &PATHCALL).expect("a URL").node(node.clone());
        let channel = channel.connect().await.expect("connects");
        all(DocsClient::new(channel).lookup(wish(["x"])).await).await.1.expect("complete");
    }
    assert_eq!(node.stats().caller.complete, 2);
}

#[tokio::test]
async fn nodes_find_each_other_in_controllers_directory() {
    let listener = pathcall_control::bind(loopback::own()).await.expect("a free port");
    let config = || pathcall_control::Config::default().keep_alive(HANG);
    let controller = pathcall_control::serve(listener, config()).await.expect("starts");
    let (at, url) = (controller.addr(), controller.url());
    let store = |name: &str| {
        let said = name.to_owned();
        let fetch = move |_: Note, call: DelegatedCall<Note>| {
            let text = said.clone();
            async move { call.reply(Note { text }).await }
        };
        Handlers::new().controller(url.clone(), name).handle::<DocsFetch, _, _>(fetch).start()
    };
    let (a, b) = (store("store-a").await.expect("starts"), store("store-b").await.expect("starts"));
    let lookup = async |wish: Wish, call: DelegatedCall<Note>| {
        let target = wish.names[0].as_str();
        call.delegate::<DocsFetch>(target, &Note::default())
    };
    let index = Handlers::new().controller(url.clone(), "index").handle::<DocsLookup, _, _>(lookup);
    let index = index.start().await.expect("starts");
    let has = async |name: &str| timeout(HANG, index.directory().wait_for(&name.into())).await.expect("it registers");
    has("store-a").await;
    has("store-b").await;
    let mut client =
        DocsClient::new(Channel::connect(serve(Some(index.clone())).await, &PATHCALL).await.expect("connects"));
    assert_eq!(all(client.lookup(wish(["store-a"])).await).await.0, ["store-a"]);
    assert_eq!(all(client.lookup(wish(["store-b"])).await).await.0, ["store-b"]);

    // A node that has ended is no longer found.
    drop(b);
    let began = Instant::now();
    while index.directory().find(&"store-b".into()).is_ok() {
        assert!(began.elapsed() < HANG);
        tokio::task::yield_now().await;
    }
    // Calls work without the controller, and with a restarted one.
    controller.shutdown().await;
    assert_eq!(all(client.lookup(wish(["store-a"])).await).await.0, ["store-a"]);
    let listener = pathcall_control::bind(at).await.expect("its port");
    let _controller = pathcall_control::serve(listener, config()).await.expect("starts");
    assert_eq!(all(client.lookup(wish(["store-a"])).await).await.0, ["store-a"]);
    let other = store("store-c").await.expect("starts");
    has("store-c").await;
    assert_eq!(all(client.lookup(wish(["store-c"])).await).await.0, ["store-c"]);
    drop((a, other));
}

#[tokio::test]
async fn start_error_states_reason() {
    let twice =
        Handlers::new().handle::<DocsFetch, _, _>(async |_, _| Ok(())).handle::<DocsFetch, _, _>(async |_, _| Ok(()));
    let error = twice.start().await.expect_err("two handlers");
    assert!(matches!(error, HandlersError::DuplicateHandler(path) if path == "/rpctest.Docs/Fetch"));
    let taken: SocketAddr = Handlers::new().start().await.expect("starts").address();
    let held = std::net::UdpSocket::bind(taken).or_else(|_| std::net::UdpSocket::bind("127.0.0.1:0")).expect("a port");
    let listen = held.local_addr().expect("bound");
    let error = Handlers::new().node(NodeConfig::default().listen(listen)).start().await.expect_err("taken");
    assert!(error.to_string().starts_with(&format!("cannot start a node at {listen}: ")), "{error}");
}
