//! Test cluster: an index and stores, on free ports of the loopback interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pathcall_rpc::delegate::{DelegatedCall, Directory, Handlers, NodeConfig, NodeTarget, RunningHandlers, Transport};
use pathcall_rpc::layer::builder::Builder;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::docs_server::{Docs, DocsServer};
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// State that handlers share with their test.
#[derive(Debug, Default)]
pub struct Seen {
    /// Number of requests that handlers have processed.
    pub ran: AtomicU64,
    pub began: Notify,
    pub dropped: Notify,
}

struct OnDrop(Arc<Seen>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.dropped.notify_one();
    }
}

/// Store of documents: the name of a document is its text.
pub async fn store(transport: Transport, seen: &Arc<Seen>) -> RunningHandlers {
    let seen = Arc::clone(seen);
    let fetch = move |note: Note, call: DelegatedCall<Note>| {
        let seen = Arc::clone(&seen);
        seen.ran.fetch_add(1, Ordering::Relaxed);
        async move {
            match &*note.text {
                "fail" => return Err(Status::not_found("no such document")),
                "panic" => panic!("as told"),
                "for ever" => {
                    let _guard = OnDrop(Arc::clone(&seen));
                    seen.began.notify_one();
                    std::future::pending::<()>().await;
                }
                "many" => {
                    for i in 0..2_000 {
                        call.reply(Note { text: i.to_string() }).await?;
                    }
                }
                _ => call.reply(note).await?,
            }
            Ok(())
        }
    };
    let handlers = Handlers::new().node(NodeConfig::default().transport(transport));
    handlers.handle::<DocsFetch, _, _>(fetch).start().await.expect("starts")
}

/// Index of documents: a document belongs to a store by its name.
pub async fn index(transport: Transport, directory: Directory, seen: &Arc<Seen>) -> RunningHandlers {
    let seen = Arc::clone(seen);
    let lookup = move |wish: Wish, call: DelegatedCall<Note>| {
        seen.ran.fetch_add(1, Ordering::Relaxed);
        async move {
            if let Some(user) = call.metadata().get("user") {
                call.reply(Note { text: format!("for {}", user.to_str().expect("text")) }).await?;
            }
            for name in wish.names {
                let target = NodeTarget::key("store-", &name);
                call.delegate::<DocsFetch>(target, &Note { text: name })?;
            }
            Ok(())
        }
    };
    let handlers = Handlers::new().node(NodeConfig::default().transport(transport)).directory(directory);
    handlers.handle::<DocsLookup, _, _>(lookup).start().await.expect("starts")
}

/// Service of a server without delegated handlers.
struct Plain;

type Notes = tokio_stream::Once<Result<Note, Status>>;

#[tonic::async_trait]
impl Docs for Plain {
    type LookupStream = Notes;
    type FetchStream = Notes;

    async fn lookup(&self, _: Request<Wish>) -> Result<Response<Notes>, Status> {
        Ok(Response::new(tokio_stream::once(Ok(Note { text: "plain".to_owned() }))))
    }

    async fn fetch(&self, _: Request<Note>) -> Result<Response<Notes>, Status> {
        Err(Status::unimplemented("plain"))
    }
}

/// Starts a server, with these handlers if any; returns its URL.
pub async fn serve(handlers: Option<RunningHandlers>) -> String {
    serve_by(|builder| match handlers {
        Some(handlers) => builder.handlers(handlers),
        None => builder,
    })
    .await
}

/// Starts a server with this configuration; returns its URL.
pub async fn serve_by(set_up: impl FnOnce(Builder) -> Builder) -> String {
    let server = set_up(Layer::builder(&PATHCALL)).build().await.expect("starts");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(async move {
        let router = tonic::transport::Server::builder().layer(server.clone()).add_service(DocsServer::new(Plain));
        router.serve_with_incoming(TcpIncoming::from(listener)).await.expect("serves");
    });
    url
}

/// An index and two stores.
pub struct DelegateCluster {
    pub url: String,
    pub index: RunningHandlers,
    pub stores: [RunningHandlers; 2],
    pub seen: Arc<Seen>,
}

impl DelegateCluster {
    pub async fn new(transport: Transport) -> Self {
        let seen = Arc::default();
        let stores = [store(transport.clone(), &seen).await, store(transport.clone(), &seen).await];
        let directory = Directory::of([("store-a", stores[0].address()), ("store-b", stores[1].address())]);
        let index = index(transport, directory, &seen).await;
        Self { url: serve(Some(index.clone())).await, index, stores, seen }
    }

    pub async fn client(&self) -> DocsClient<Channel> {
        DocsClient::new(Channel::connect(self.url.clone(), &PATHCALL).await.expect("connects"))
    }

    /// Number of requests that its handlers have processed.
    pub fn requests(&self) -> u64 {
        self.seen.ran.load(Ordering::Relaxed)
    }
}

pub fn wish(names: impl IntoIterator<Item = impl Into<String>>) -> Wish {
    Wish { names: names.into_iter().map(Into::into).collect() }
}

/// All texts of a stream, sorted, and its outcome.
pub async fn all(stream: Result<Response<Streaming<Note>>, Status>) -> (Vec<String>, Result<(), Status>) {
    let mut stream = stream.expect("it begins").into_inner();
    let mut texts = Vec::new();
    loop {
        match timeout(HANG, stream.message()).await.expect("in time") {
            Ok(Some(note)) => texts.push(note.text),
            Ok(None) => {
                texts.sort();
                return (texts, Ok(()));
            }
            Err(status) => return (texts, Err(status)),
        }
    }
}
