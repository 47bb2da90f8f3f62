//! Graceful shutdown of a tonic server that nobody tells Pathcall's layer of: it ends by itself, and calls under way are done.

use std::sync::Arc;

use pathcall_control::Place;
use pathcall_rpc::server::ServerLayer;
use pathcall_rpc::{Channel, Server};
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

type Layers = Stack<ServerLayer, Identity>;

/// A handler that answers when it is told to.
#[derive(Default)]
struct Told {
    began: Notify,
    go: Notify,
}

struct Handler(Arc<Told>);

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

/// Serves until it is told to end; the URL.
async fn serve(
    server: &Server,
    add: impl FnOnce(&mut tonic::transport::Server<Layers>) -> Router<Layers>,
) -> (String, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (end, ended) = oneshot::channel::<()>();
    let router = add(&mut tonic::transport::Server::builder().layer(server.layer()));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let signal = async move { drop(ended.await) };
    let served = tokio::spawn(async move { router.serve_with_incoming_shutdown(incoming, signal).await.unwrap() });
    (url, end, served)
}

#[tokio::test]
async fn server_ends_while_channels_have_joined_when_their_calls_are_done() {
    let server = Server::builder(&PATHCALL).build().await.unwrap();
    let told = Arc::<Told>::default();
    let words = WordsServer::new(Handler(Arc::clone(&told)));
    let (url, end, served) = serve(&server, |router| router.add_service(words)).await;
    let (busy, idle) =
        (Channel::connect(url.clone(), &PATHCALL).await.unwrap(), Channel::connect(url, &PATHCALL).await.unwrap());
    WordsClient::new(idle.clone()).reduce(counts(&[("a", 1)], "")).await.unwrap();
    let mut words = WordsClient::new(busy);
    let call = tokio::spawn(async move { words.reduce(counts(&[("a", 1)], "to the handler")).await });
    timeout(HANG, told.began.notified()).await.expect("it works on the call");

    end.send(()).unwrap();
    // The idle one leaves. The other has its call, whether it has noticed or not.
    let members = || server.stats().into_iter().find(|stats| stats.name == "T-WORDS").unwrap().members;
    until(|| members() == 1).await;
    told.go.notify_one();
    let reply = timeout(HANG, call).await.expect("in time").unwrap().unwrap();
    assert_eq!(reply.into_inner().text, "done");
    timeout(HANG, served).await.expect("the server ends by itself").unwrap();
}

#[tokio::test]
async fn server_ends_while_channels_follow_its_pool() {
    let controller = controller("127.0.0.1:0".parse().unwrap(), Place::Memory).await;
    let builder = Server::builder(&STORE).controller(controller.url()).data_address("127.0.0.1:0".parse().unwrap());
    let server = builder.build().await.unwrap();
    let store = StoreServer::new(store::Handler::new("only"));
    let (url, end, served) = serve(&server, |router| router.add_service(store)).await;
    let channel = Channel::connect(url, &STORE).await.unwrap();
    // By frames, once the server is in the pool.
    let by_frames = async {
        while channel.stats().pool.answered == 0 {
            StoreClient::new(channel.clone()).get(note("call")).await.unwrap();
        }
    };
    timeout(HANG, by_frames).await.expect("the channel follows the pool");
    end.send(()).unwrap();
    timeout(HANG, served).await.expect("the server ends by itself").unwrap();
}
