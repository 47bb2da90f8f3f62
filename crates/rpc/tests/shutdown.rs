//! Tests of the graceful shutdown of a tonic server without `Layer::close`: it ends by itself after the calls in
//! progress.

use std::sync::Arc;

use pathcall_control::StoreLocation;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{counts, note, until};
use pathcall_test_support::store::{self, STORE, controller};
use pathcall_test_support::stubs::store_client::StoreClient;
use pathcall_test_support::stubs::store_server::StoreServer;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::words_server::{Words, WordsServer};
use pathcall_test_support::stubs::{Bumped, Counts, Found, Indexed, PATHCALL, Said, Wanted};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::{Request, Response, Status};
use tower::layer::util::{Identity, Stack};

type Layers = Stack<Layer, Identity>;

/// Handler that answers when notified.
#[derive(Default)]
struct HandlerSignals {
    began: Notify,
    go: Notify,
}

struct Handler(Arc<HandlerSignals>);

#[tonic::async_trait]
impl Words for Handler {
    async fn reduce(&self, _: Request<Counts>) -> Result<Response<Said>, Status> {
        self.0.began.notify_one();
        self.0.go.notified().await;
        Ok(Response::new(Said { text: "done".into() }))
    }

    async fn query(&self, _: Request<Wanted>) -> Result<Response<Found>, Status> {
        Err(Status::unimplemented("no part of this test"))
    }

    async fn report(&self, request: Request<Counts>) -> Result<Response<Said>, Status> {
        self.reduce(request).await
    }

    async fn bump(&self, _: Request<Indexed>) -> Result<Response<Bumped>, Status> {
        Err(Status::unimplemented("no part of this test"))
    }
}

/// Serves until the returned sender is used; returns the URL as well.
async fn serve(
    server: &Layer,
    add: impl FnOnce(&mut tonic::transport::Server<Layers>) -> Router<Layers>,
) -> (String, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (end, ended) = oneshot::channel::<()>();
    let router = add(&mut tonic::transport::Server::builder().layer(server.clone()));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let signal = async move { drop(ended.await) };
    let served = tokio::spawn(async move { router.serve_with_incoming_shutdown(incoming, signal).await.unwrap() });
    (url, end, served)
}

#[tokio::test]
async fn server_with_members_ends_after_their_calls() {
    let server = Layer::builder(&PATHCALL).build().await.unwrap();
    let signals = Arc::<HandlerSignals>::default();
    let words = WordsServer::new(Handler(Arc::clone(&signals)));
    let (url, end, served) = serve(&server, |router| router.add_service(words)).await;
    let (busy, idle) =
        (Channel::connect(url.clone(), &PATHCALL).await.unwrap(), Channel::connect(url, &PATHCALL).await.unwrap());
    WordsClient::new(idle.clone()).reduce(counts(&[("a", 1)], "")).await.unwrap();
    let mut words = WordsClient::new(busy);
    let call = tokio::spawn(async move { words.reduce(counts(&[("a", 1)], "to the handler")).await });
    timeout(HANG, signals.began.notified()).await.expect("it works on the call");

    end.send(()).unwrap();
    // The idle caller leaves. The other one stays until its call ends.
    let members = || server.stats().into_iter().find(|stats| stats.name == "T-WORDS").unwrap().members;
    until(|| members() == 1).await;
    signals.go.notify_one();
    let reply = timeout(HANG, call).await.expect("in time").unwrap().unwrap();
    assert_eq!(reply.into_inner().text, "done");
    timeout(HANG, served).await.expect("the server ends by itself").unwrap();
}

#[tokio::test]
async fn server_with_followers_ends() {
    let controller = controller("127.0.0.1:0".parse().unwrap(), StoreLocation::Memory).await;
    let builder = Layer::builder(&STORE).controller(controller.url()).data_address("127.0.0.1:0".parse().unwrap());
    let server = builder.build().await.unwrap();
    let store = StoreServer::new(store::StoreHandler::new("only"));
    let (url, end, served) = serve(&server, |router| router.add_service(store)).await;
    let channel = Channel::connect(url, &STORE).await.unwrap();
    // Calls use frames once the server is in the pool.
    let by_frames = async {
        while channel.stats().pool.answered == 0 {
            StoreClient::new(channel.clone()).get(note("call")).await.unwrap();
        }
    };
    timeout(HANG, by_frames).await.expect("the channel follows the pool");
    end.send(()).unwrap();
    timeout(HANG, served).await.expect("the server ends by itself").unwrap();
}
