//! Tests of delegated messages with tokens: no handler runs for a caller that has not been admitted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pathcall_control::{Config, Handle, StoreLocation};
use pathcall_proto::v1::LookupNodeRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_rpc::delegate::{
    CallOptions, Client, DelegatedCall, Directory, Handlers, Node, NodeConfig, RunningHandlers, TokenKey, Transport,
};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use pathcall_test_support::{HANG, loopback, service::until};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::delegated::first;
use super::{ALL, CheckLocation, Guarded, Rules, with};

const LOOKUP: &str = "/rpctest.Docs/Lookup";

/// Handlers that reply with their name, or pass the request on to the node that it names; counts runs.
fn docs(name: &'static str, ran: &Arc<AtomicU64>) -> Handlers {
    let (ran, also) = (Arc::clone(ran), Arc::clone(ran));
    let lookup = move |wish: Wish, call: DelegatedCall<Note>| {
        ran.fetch_add(1, Ordering::Relaxed);
        async move {
            match wish.names.first() {
                Some(next) => call.delegate::<DocsFetch>(next.as_str(), &Note::default()),
                None => call.reply(Note { text: name.to_owned() }).await,
            }
        }
    };
    let fetch = move |_: Note, call: DelegatedCall<Note>| {
        also.fetch_add(1, Ordering::Relaxed);
        async move { call.reply(Note { text: name.to_owned() }).await }
    };
    Handlers::new().handle::<DocsLookup, _, _>(lookup).handle::<DocsFetch, _, _>(fetch)
}

/// Call through the caller's own node.
async fn by_node(node: &Node, to: SocketAddr) -> Result<String, Status> {
    let client = Client::new(node.clone(), Directory::of([("index", to)]));
    let mut replies = client.call::<Note>().request::<DocsLookup>("index", &Wish::default())?.begin()?;
    let reply = timeout(HANG, replies.message()).await.expect("in time")?;
    Ok(reply.expect("it replies").text)
}

async fn node(transport: Transport, key: Option<TokenKey>) -> Node {
    Node::start(&NodeConfig::default().transport(transport).key(key)).await.unwrap().0
}

async fn lone_server(transport: Transport) {
    let ran = Arc::default();
    let handlers = docs("index", &ran).node(NodeConfig::default().transport(transport.clone()));
    let handlers = handlers.authenticate_frames(true).start().await.unwrap();
    let rules = Rules::new(&[("good", &[ALL])]);
    let served = handlers.clone();
    let set_up = |builder: pathcall_rpc::layer::builder::Builder| builder.authenticate_frames(true).handlers(served);
    let guarded = Guarded::start(CheckLocation::Inner, rules, set_up).await;

    // With the channel's own node, a given node, and a caller without Pathcall.
    let own = node(transport.clone(), None).await;
    let handed = Channel::builder(guarded.url.clone(), &PATHCALL).unwrap().node(own.clone()).connect().await.unwrap();
    let stock = tonic::transport::Channel::from_shared(guarded.url.clone()).unwrap().connect().await.unwrap();
    let channel = guarded.channel().await;
    for replies in [
        DocsClient::new(channel.clone()).lookup(with("good", Wish::default())).await,
        DocsClient::new(handed).lookup(with("good", Wish::default())).await,
        DocsClient::new(stock).lookup(with("good", Wish::default())).await,
    ] {
        assert_eq!(first(replies).await.unwrap(), "index");
    }
    assert_eq!(channel.stats().delegated_calls, 1);
    assert_eq!(ran.load(Ordering::Relaxed), 3);
    assert_eq!(handlers.stats().messages.unauthenticated, 0);

    // Only admitted callers get the key.
    let mut peer = PeerClient::connect(guarded.url.clone()).await.unwrap();
    let mut ask = async |token, method: &str| {
        let request = LookupNodeRequest { method: method.to_owned() };
        peer.lookup_node(with(token, request))
            .await
            .map(|reply| reply.into_inner().token_key)
            .map_err(|status| status.code())
    };
    assert_eq!(ask("bad", LOOKUP).await, Err(Code::Unauthenticated));
    assert_eq!(ask("good", "/rpctest.Words/Reduce").await, Err(Code::InvalidArgument));
    assert_eq!(ask("good", LOOKUP).await.unwrap(), handlers.node().key().map(|key| key.words().into()));
    assert_eq!(own.key(), handlers.node().key());

    // Messages without the right key run no handler and are counted.
    let mut counted = 0;
    for key in [None, Some(TokenKey::new([1, 2]))] {
        let stranger = node(transport.clone(), key).await;
        by_node(&stranger, handlers.address()).await.unwrap_err();
        until(|| handlers.stats().messages.unauthenticated > counted).await;
        counted = handlers.stats().messages.unauthenticated;
    }
    assert_eq!(ran.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn only_calls_with_tokens_reach_handler_by_flows() {
    lone_server(Transport::Flows).await;
}

#[tokio::test]
async fn only_calls_with_tokens_reach_handler_by_tcp() {
    lone_server(Transport::Tcp).await;
}

#[tokio::test]
async fn forged_request_datagram_runs_no_handler() {
    let ran = Arc::default();
    let handlers = docs("index", &ran).authenticate_frames(true).start().await.unwrap();
    let key = handlers.node().key();
    // An attacker relays the messages of a caller with the key. It changes one byte of them, and sends each twice.
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (caller, at) = (node(Transport::Flows, key).await, stranger.local_addr().unwrap());
    let client = Client::new(caller.clone(), Directory::of([("index", at)]));
    let _call = client.call::<Note>().request::<DocsLookup>("index", &Wish::default()).unwrap().begin().unwrap();
    let (mut bytes, mut counted, mut forged) = ([0; 2048], 0, 0);
    while forged < 3 {
        let (len, from) = timeout(HANG, stranger.recv_from(&mut bytes)).await.expect("in time").unwrap();
        let to = if from == caller.address() { handlers.address() } else { caller.address() };
        // Only a request is longer than 48 bytes; a hello is shorter.
        if to == handlers.address() && len > 48 {
            bytes[len - 20] ^= 1;
            forged += 1;
        }
        for _ in 0..2 {
            stranger.send_to(&bytes[..len], to).await.unwrap();
        }
        if forged > counted {
            let refused = 2 * forged;
            until(|| handlers.stats().messages.unauthenticated >= refused).await;
            counted = forged;
        }
    }
    assert_eq!((ran.load(Ordering::Relaxed), handlers.stats().messages.arrived), (0, 0));
}

async fn controller(at: SocketAddr, store: StoreLocation) -> Handle {
    let listener = pathcall_control::bind(at).await.unwrap();
    pathcall_control::serve(listener, Config::default().keep_alive(HANG).store(store)).await.unwrap()
}

async fn serve(handlers: &RunningHandlers) -> String {
    let handlers = handlers.clone();
    crate::delegated::cluster::serve_by(|builder| builder.authenticate_frames(true).handlers(handlers)).await
}

/// Call that `index` passes on.
async fn passed_on(channel: &Channel, to: &str) -> Result<String, Status> {
    first(DocsClient::new(channel.clone()).lookup(Wish { names: vec![to.to_owned()] }).await).await
}

/// The same, repeated until all nodes have the keys.
async fn call_until_passed_on(channel: &Channel, to: &str) -> String {
    let began = Instant::now();
    loop {
        match passed_on(channel, to).await {
            Ok(text) => return text,
            Err(status) => assert!(began.elapsed() < HANG, "{status}"),
        }
    }
}

#[tokio::test]
async fn directory_key_survives_controller_restart() {
    let (folder, ran) = (std::env::temp_dir().join(format!("pathcall-keys-{}", std::process::id())), Arc::default());
    let _ = std::fs::remove_file(&folder);
    let first = controller(loopback::own(), StoreLocation::File(folder.clone())).await;
    let (at, url) = (first.addr(), first.url());
    let start = |name: &'static str| docs(name, &ran).controller(url.clone(), name).authenticate_frames(true).start();
    let (index, store) = (start("index").await.unwrap(), start("store").await.unwrap());
    for serving in [&index, &store] {
        timeout(HANG, serving.directory().wait_for(&"index".into())).await.expect("it registers");
        timeout(HANG, serving.directory().wait_for(&"store".into())).await.expect("it registers");
    }
    assert!(index.node().key().is_some() && index.node().key() == store.node().key());
    let channel = Channel::connect(serve(&index).await, &PATHCALL).await.unwrap();
    assert_eq!(passed_on(&channel, "store").await.unwrap(), "store");
    // A caller with its own node gets the directory's key, too.
    let own = node(Transport::Flows, None).await;
    let directory = Directory::authenticated(&url, &Default::default(), &own).unwrap();
    timeout(HANG, directory.wait_for(&"index".into())).await.expect("it is there");
    assert_eq!(by_node(&own, index.address()).await.unwrap(), "index");

    // A restarted controller has the key in its store.
    first.shutdown().await;
    let _second = controller(at, StoreLocation::File(folder.clone())).await;
    let late = start("late").await.unwrap();
    timeout(HANG, index.directory().wait_for(&"late".into())).await.expect("it registers");
    assert_eq!(late.node().key(), index.node().key());
    assert_eq!(passed_on(&channel, "late").await.unwrap(), "late");
    let _ = std::fs::remove_file(&folder);
}

#[tokio::test]
async fn server_setting_gives_handlers_directory_key() {
    let ran = Arc::default();
    let controller = controller(loopback::own(), StoreLocation::Memory).await;
    let start = |name: &'static str| docs(name, &ran).controller(controller.url(), name).start();
    let (index, store) = (start("index").await.unwrap(), start("store").await.unwrap());
    for serving in [&index, &store] {
        timeout(HANG, serving.directory().wait_for(&"store".into())).await.expect("it registers");
    }
    let (url, _other) = (serve(&index).await, serve(&store).await);
    // Each node registers again once the other one is no longer registered without tokens.
    until(|| index.node().key().is_some() && index.node().key() == store.node().key()).await;
    let channel = Channel::builder(url, &PATHCALL).unwrap().call_options(CallOptions::default());
    let channel = channel.connect().await.unwrap();
    assert_eq!(call_until_passed_on(&channel, "store").await, "store");
}

#[tokio::test]
async fn channel_takes_new_key_of_server() {
    let ran = Arc::default();
    let handlers = docs("index", &ran).authenticate_frames(true).start().await.unwrap();
    let channel = Channel::connect(serve(&handlers).await, &PATHCALL).await.unwrap();
    let ask = async || first(DocsClient::new(channel.clone()).lookup(Wish::default()).await).await;
    assert_eq!(ask().await.unwrap(), "index");
    handlers.node().set_key(Some(TokenKey::new([1, 2])));
    // The first call with the old key fails; then the channel requests the new key.
    let began = Instant::now();
    while let Err(status) = ask().await {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(began.elapsed() < HANG);
    }
    let before = channel.stats().delegated_calls;
    assert_eq!(ask().await.unwrap(), "index");
    assert_eq!(channel.stats().delegated_calls, before + 1);
}

#[tokio::test]
async fn server_without_tokens_sends_no_key() {
    let ran = Arc::default();
    let handlers = docs("index", &ran).node(NodeConfig::default().key(None)).start().await.unwrap();
    let server = Layer::builder(&PATHCALL).handlers(handlers.clone()).build().await.unwrap();
    let url = crate::delegated::cluster::serve(Some(handlers.clone())).await;
    let mut peer = PeerClient::connect(url).await.unwrap();
    let said = peer.lookup_node(LookupNodeRequest::default()).await.unwrap().into_inner();
    assert_eq!((said.token_key, handlers.node().key()), (None, None));
    drop(server);
}
