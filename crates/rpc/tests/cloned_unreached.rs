//! Tests of cloned calls to a server whose pool frames do not reach: the calls go by gRPC.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pathcall_proto::v1::peer_server::{Peer, PeerServer};
use pathcall_proto::v1::*;
use pathcall_rpc::Channel;
use pathcall_test_support::HANG;
use pathcall_test_support::service::{note, within};
use pathcall_test_support::store::{STORE, StoreHandler, calls, micros};
use pathcall_test_support::stubs::store_client::StoreClient;
use pathcall_test_support::stubs::store_server::StoreServer;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Empty, StreamExt};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

type Views = std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<PoolView, Status>> + Send>>;

/// Server with a pool whose only member is at an unused address.
struct FakePoolServer(Box<dyn Fn() -> Views + Send + Sync>);

fn unimplemented<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not used in this test"))
}

#[tonic::async_trait]
impl Peer for FakePoolServer {
    type JoinStream = Empty<Result<JoinGrant, Status>>;
    type CarryFramesStream = Empty<Result<CarryFramesReply, Status>>;
    type FollowPoolStream = Views;

    async fn follow_pool(&self, _: Request<FollowPoolRequest>) -> Result<Response<Views>, Status> {
        Ok(Response::new((self.0)()))
    }
    async fn join(&self, _: Request<JoinRequest>) -> Result<Response<Self::JoinStream>, Status> {
        unimplemented()
    }
    async fn admit(&self, _: Request<AdmitRequest>) -> Result<Response<AdmitReply>, Status> {
        unimplemented()
    }
    async fn cancel_sum(&self, _: Request<CancelSumRequest>) -> Result<Response<CancelSumReply>, Status> {
        unimplemented()
    }
    async fn number_keys(&self, _: Request<NumberKeysRequest>) -> Result<Response<NumberKeysReply>, Status> {
        unimplemented()
    }
    async fn carry_frames(
        &self,
        _: Request<Streaming<CarryFramesRequest>>,
    ) -> Result<Response<Self::CarryFramesStream>, Status> {
        unimplemented()
    }
    async fn open_journal(&self, _: Request<OpenJournalRequest>) -> Result<Response<OpenJournalReply>, Status> {
        unimplemented()
    }
    async fn apply_call(&self, _: Request<ApplyCallRequest>) -> Result<Response<ApplyCallReply>, Status> {
        unimplemented()
    }
    async fn lookup_node(&self, _: Request<LookupNodeRequest>) -> Result<Response<LookupNodeReply>, Status> {
        unimplemented()
    }
}

/// View of a pool whose only server is at this address.
fn view(data_address: SocketAddr) -> PoolView {
    let server = PoolServer { endpoint: 1, data_address: data_address.to_string(), ..PoolServer::default() };
    let pool = PoolTable { gaid: 1, version: 1, servers: vec![server], ..PoolTable::default() };
    PoolView { endpoint: 2, pool: Some(pool), outdated: false }
}

async fn start(view: PoolView) -> (String, watch::Sender<PoolView>) {
    start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), view, "plain", &Arc::default())
}

fn start_on(
    listener: TcpListener,
    view: PoolView,
    name: &str,
    asked: &Arc<AtomicU64>,
) -> (String, watch::Sender<PoolView>) {
    let (tell, told) = watch::channel(view);
    (serve(listener, move || Box::pin(WatchStream::new(told.clone()).map(Ok)), name, asked), tell)
}

/// Server that sends these views to its followers, and counts calls.
fn serve(
    listener: TcpListener,
    views: impl Fn() -> Views + Send + Sync + 'static,
    name: &str,
    asked: &Arc<AtomicU64>,
) -> String {
    let (url, asked) = (format!("http://{}", listener.local_addr().unwrap()), Arc::clone(asked));
    let counted = move |request: Request<()>| {
        asked.fetch_add(1, Ordering::SeqCst);
        Ok(request)
    };
    let server = tonic::transport::Server::builder()
        .add_service(PeerServer::new(FakePoolServer(Box::new(views))))
        .add_service(StoreServer::with_interceptor(StoreHandler::new(name), counted))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)));
    tokio::spawn(server);
    url
}

#[tokio::test]
async fn unreachable_pool_is_called_by_grpc() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (url, _tell) = start(view(silent.local_addr().unwrap())).await;
    let channel = Channel::connect(url, &STORE).await.unwrap();
    let mut client = StoreClient::new(channel.clone());
    let reply = tokio::time::timeout(HANG, client.get(note("who"))).await.expect("an answer").unwrap();
    assert_eq!(reply.into_inner().text, "plain");
    assert_eq!((channel.stats().cloned_calls, channel.stats().plain_calls), (1, 1));
    // Later calls use gRPC at once.
    client.get(note("who")).await.unwrap();
    assert_eq!((channel.stats().cloned_calls, channel.stats().plain_calls), (1, 2));
}

#[tokio::test]
async fn unreachable_pool_costs_one_try_per_call() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (url, _tell) = start(view(silent.local_addr().unwrap())).await;
    let channel = Channel::connect(url, &STORE).await.unwrap();
    calls(&StoreClient::new(channel.clone()), 200).await;
    // On a busy machine some calls start when the first ones have already failed.
    let stats = channel.stats();
    assert!((1..=200).contains(&stats.cloned_calls) && stats.plain_calls == 200, "{stats:?}");
}

#[tokio::test]
async fn grpc_fallback_has_remaining_time() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (url, _tell) = start(view(silent.local_addr().unwrap())).await;
    let mut client = StoreClient::new(Channel::connect(url, &STORE).await.unwrap());
    let reply = tokio::time::timeout(HANG, client.get(within(80_000, note("left")))).await.expect("an answer");
    let left = micros(&reply.unwrap().into_inner().text);
    assert!(left <= 79_100_000, "{left} µs, though frames were waited for for a second");
}

#[tokio::test]
async fn non_fatal_status_tries_next_server_by_grpc() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut listeners = Vec::new();
    let mut servers = Vec::new();
    for endpoint in 1..=2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service_address = format!("http://{}", listener.local_addr().unwrap());
        let data_address = silent.local_addr().unwrap().to_string();
        servers.push(PoolServer { endpoint, data_address, service_address, ..PoolServer::default() });
        listeners.push(listener);
    }
    let pool = PoolTable { gaid: 1, version: 1, servers, ..PoolTable::default() };
    let view = PoolView { endpoint: 3, pool: Some(pool), outdated: false };
    let asked = Arc::<AtomicU64>::default();
    let started = ["one", "two"].into_iter().zip(listeners);
    let started: Vec<_> = started.map(|(name, listener)| start_on(listener, view.clone(), name, &asked)).collect();
    let channel = Channel::connect(started[0].0.clone(), &STORE).await.unwrap();
    let mut client = StoreClient::new(channel.clone());
    for name in ["one", "two"] {
        let text = format!("refuse {name}");
        let reply = tokio::time::timeout(HANG, client.tried(note(&text))).await.expect("an answer");
        assert_eq!(reply.expect("an answer of the other server").into_inner().text, text);
    }
    // With this policy, the result is the status of the last server. A fatal status is the result at once, as is any
    // status of a method without the policy.
    for (text, code, times) in [("fail", tonic::Code::Aborted, 2), ("deny", tonic::Code::PermissionDenied, 1)] {
        let before = asked.load(Ordering::SeqCst);
        assert_eq!(client.tried(note(text)).await.expect_err("a failure").code(), code);
        assert_eq!(asked.load(Ordering::SeqCst) - before, times, "{text}");
    }
    let status = client.get(note("fail")).await.expect_err("a failure");
    assert_eq!((status.code(), channel.stats().plain_calls), (tonic::Code::Aborted, 5));
}

#[tokio::test]
async fn invalid_view_is_no_pool() {
    let nonsense = PoolServer { data_address: "here".into(), ..PoolServer::default() };
    let table = PoolTable { servers: vec![nonsense], ..PoolTable::default() };
    for view in
        [PoolView { endpoint: 2, ..PoolView::default() }, PoolView { endpoint: 2, pool: Some(table), outdated: false }]
    {
        let (url, _tell) = start(view).await;
        let channel = Channel::connect(url, &STORE).await.unwrap();
        let reply = StoreClient::new(channel.clone()).get(note("who")).await.unwrap();
        assert_eq!((reply.into_inner().text.as_str(), channel.stats().plain_calls), ("plain", 1));
    }
}

#[tokio::test]
async fn older_view_is_ignored() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let data_address = silent.local_addr().unwrap().to_string();
    let (tell, mut followed) = mpsc::unbounded_channel();
    let mut views = Vec::new();
    for version in [7, 6] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service_address = format!("http://{}", listener.local_addr().unwrap());
        let data_address = data_address.clone();
        let server = PoolServer { endpoint: 1, data_address, service_address, incarnation: 1, ..PoolServer::default() };
        let pool = PoolTable { gaid: 1, version, servers: vec![server], ..PoolTable::default() };
        let view = PoolView { endpoint: 2, pool: Some(pool), outdated: false };
        views.push(view.clone());
        let tell = tell.clone();
        let shows = move || -> Views {
            // The send fails when the test has ended.
            let _ = tell.send(version);
            Box::pin(tokio_stream::once(Ok(view.clone())).chain(tokio_stream::pending()))
        };
        serve(listener, shows, "server", &Arc::default());
    }
    // This server sends the newer view before the older one, and then ends.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let shows = move || -> Views { Box::pin(tokio_stream::iter(views.clone()).map(Ok)) };
    let url = serve(listener, shows, "named", &Arc::default());
    let channel = Channel::connect(url, &STORE).await.unwrap();
    StoreClient::new(channel.clone()).get(note("who")).await.unwrap();
    let server = tokio::time::timeout(HANG, followed.recv()).await.expect("another server is followed");
    assert_eq!(server, Some(7), "the newest view is used");
}
