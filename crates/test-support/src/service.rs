//! Test server with handlers that record their calls, on its own port.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::HANG;
use crate::stubs::filters::filters_server::FiltersServer;
use crate::stubs::filters::streams_server::StreamsServer;
use crate::stubs::locks_server::{Locks, LocksServer};
use crate::stubs::rounds::rounds_server::{Rounds, RoundsServer};
use crate::stubs::rounds::{Part, StepReply, StepRequest, Total};
use crate::stubs::training_server::{Training, TrainingServer};
use crate::stubs::words_server::{Words, WordsServer};
use crate::stubs::{AgtrGrad, Bumped, Counts, Found, Indexed, Layer, Names, NewGrad, Note, PATHCALL, Said, Wanted};
use pathcall_proto::types::{FpArray, IntfpMap, StrintMap};
use pathcall_proto::v1::JoinRequest;
use pathcall_rpc::Channel;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Pause between two checks of a condition.
const LOOK: Duration = Duration::from_millis(1);

/// Text of a note whose handler never answers.
pub const FOR_EVER: &str = "for ever";

/// Events that the handlers share with the tests.
#[derive(Debug, Default)]
pub struct HandlerEvents {
    /// Calls of any handler.
    pub calls: AtomicU32,
    /// Notified when a handler that never answers has started.
    pub stuck: Notify,
    /// Notified when such a handler was dropped.
    pub dropped: Notify,
}

impl HandlerEvents {
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns at once, unless `text` is a command.
    pub(crate) async fn handle(self: &Arc<Self>, text: &str) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if text == FOR_EVER {
            let _guard = DropGuard(Arc::clone(self));
            self.stuck.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

struct DropGuard(Arc<HandlerEvents>);

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.dropped.notify_one();
    }
}

#[derive(Debug, Clone)]
pub struct TestHandlers(pub Arc<HandlerEvents>);

type Notes = Pin<Box<dyn Stream<Item = Result<Note, Status>> + Send>>;

#[tonic::async_trait]
impl Training for TestHandlers {
    type WatchStream = Notes;
    type ChatStream = Notes;

    async fn update(&self, request: Request<NewGrad>) -> Result<Response<AgtrGrad>, Status> {
        let request = request.into_inner();
        self.0.handle(&request.worker).await;
        if request.worker == "fail" {
            return Err(Status::data_loss("as asked"));
        }
        let layer = request.layer.unwrap_or_default();
        Ok(Response::new(AgtrGrad {
            // The channel overwrites this value.
            tensor: Some(FpArray { data: vec![1e9] }),
            worker: format!("{} {}", request.worker, layer.name),
            bias: request.bias,
            handler_saw: layer.gradient.map_or(0, |gradient| 1 + gradient.data.len() as u32),
        }))
    }

    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.0.handle(&request.get_ref().text).await;
        Ok(Response::new(request.into_inner()))
    }

    /// Sends three notes, then ends or hangs.
    async fn watch(&self, request: Request<Note>) -> Result<Response<Notes>, Status> {
        let note = request.into_inner();
        self.0.handle("").await;
        let stuck = note.text == FOR_EVER;
        let seen = Arc::clone(&self.0);
        let notes = tokio_stream::iter(std::iter::repeat_n(Ok(note), 3));
        if !stuck {
            return Ok(Response::new(Box::pin(notes)));
        }
        let guard = DropGuard(seen);
        Ok(Response::new(Box::pin(notes.chain(tokio_stream::pending()).map(move |note| {
            let _held = &guard;
            note
        }))))
    }

    async fn chat(&self, request: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        self.0.handle("").await;
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

#[tonic::async_trait]
impl Words for TestHandlers {
    async fn reduce(&self, request: Request<Counts>) -> Result<Response<Said>, Status> {
        let Counts { kvs, text } = request.into_inner();
        self.0.handle(&text).await;
        let kvs = kvs.map_or("no counts".to_owned(), |kvs| format!("{} counts", kvs.map.len()));
        Ok(Response::new(Said { text: format!("{text}: {kvs}") }))
    }

    async fn query(&self, request: Request<Wanted>) -> Result<Response<Found>, Status> {
        let Wanted { keys, text } = request.into_inner();
        self.0.handle(&text).await;
        let map = [("not the handler's to say".to_owned(), 1)].into();
        let text = format!("{text}: {} keys", keys.map_or(0, |keys| keys.map.len()));
        Ok(Response::new(Found { kvs: Some(StrintMap { map }), text }))
    }

    async fn report(&self, request: Request<Counts>) -> Result<Response<Said>, Status> {
        self.reduce(request).await
    }

    async fn bump(&self, _: Request<Indexed>) -> Result<Response<Bumped>, Status> {
        self.0.handle("").await;
        Ok(Response::new(Bumped { now: None }))
    }
}

#[tonic::async_trait]
impl Locks for TestHandlers {
    async fn lock(&self, request: Request<Names>) -> Result<Response<Said>, Status> {
        let text = request.into_inner().text;
        self.0.handle(&text).await;
        Ok(Response::new(Said { text }))
    }

    async fn release(&self, request: Request<Names>) -> Result<Response<Said>, Status> {
        self.lock(request).await
    }

    async fn vote(&self, request: Request<Names>) -> Result<Response<Said>, Status> {
        self.lock(request).await
    }

    async fn elect(&self, request: Request<Names>) -> Result<Response<Said>, Status> {
        self.lock(request).await
    }

    async fn reset(&self, request: Request<Note>) -> Result<Response<Said>, Status> {
        let text = request.into_inner().text;
        self.0.handle(&text).await;
        Ok(Response::new(Said { text }))
    }
}

#[tonic::async_trait]
impl Rounds for TestHandlers {
    async fn add(&self, _: Request<Part>) -> Result<Response<Total>, Status> {
        self.0.handle("").await;
        Ok(Response::new(Total::default()))
    }

    /// Half of the sum, and the number of the call; or what the command says.
    async fn step(&self, request: Request<StepRequest>) -> Result<Response<StepReply>, Status> {
        let StepRequest { gradient, command } = request.into_inner();
        self.0.handle(&command).await;
        let sums = gradient.unwrap_or_default().data;
        let parameters = match command.as_str() {
            "fail" => return Err(Status::resource_exhausted("as asked")),
            "short" => sums[1..].to_vec(),
            "large" => sums.iter().map(|sum| sum * 1e9).collect(),
            _ => sums.iter().map(|sum| sum / 2.0).collect(),
        };
        Ok(Response::new(StepReply { parameters: Some(FpArray { data: parameters }), step: self.0.calls() }))
    }

    async fn add_small(&self, part: Request<Part>) -> Result<Response<Total>, Status> {
        self.add(part).await
    }
}

/// Running server.
pub struct TestServer {
    pub address: SocketAddr,
    pub pathcall: pathcall_rpc::Layer,
    pub seen: Arc<HandlerEvents>,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

impl TestServer {
    pub async fn start() -> Self {
        Self::start_with(pathcall_rpc::Layer::builder(&PATHCALL).build().await.unwrap(), 0).await
    }

    pub async fn start_with(pathcall: pathcall_rpc::Layer, port: u16) -> Self {
        Self::start_at(pathcall, ([127, 0, 0, 1], port).into()).await
    }

    /// Starts a server; one that is restarted at its address needs a unique one ([`crate::loopback::own`]).
    pub async fn start_at(pathcall: pathcall_rpc::Layer, address: SocketAddr) -> Self {
        let listener = bind(address).await;
        let address = listener.local_addr().unwrap();
        let seen = Arc::<HandlerEvents>::default();
        let (stop, stopped) = oneshot::channel::<()>();
        let closing = pathcall.clone();
        let handlers = TestHandlers(Arc::clone(&seen));
        let server = tonic::transport::Server::builder()
            .layer(pathcall.clone())
            .add_service(TrainingServer::new(handlers.clone()).max_encoding_message_size(usize::MAX))
            .add_service(WordsServer::new(handlers.clone()))
            .add_service(LocksServer::new(handlers.clone()))
            .add_service(RoundsServer::new(handlers.clone()))
            .add_service(FiltersServer::new(handlers.clone()))
            .add_service(StreamsServer::new(handlers))
            .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), async move {
                let _ = stopped.await;
                closing.close();
            });
        let served = tokio::spawn(async move { server.await.unwrap() });
        Self { address, pathcall, seen, stop, served }
    }

    pub fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    pub async fn channel(&self) -> Channel {
        Channel::connect(self.uri(), &PATHCALL).await.unwrap()
    }

    /// Shuts down gracefully.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap();
    }
}

/// Binds a listener. A process that another test starts has all sockets of this one until it runs its program, so an
/// address may be in use for a while after its listener was dropped.
async fn bind(address: SocketAddr) -> TcpListener {
    let free = async {
        loop {
            match TcpListener::bind(address).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => tokio::time::sleep(LOOK).await,
                bound => break bound.expect("binds"),
            }
        }
    };
    tokio::time::timeout(HANG, free).await.expect("the address is free in time")
}

/// Starts the same services without Pathcall's layer.
pub async fn start_plain() -> (SocketAddr, Arc<HandlerEvents>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::<HandlerEvents>::default();
    let handlers = TestHandlers(Arc::clone(&seen));
    let server = tonic::transport::Server::builder()
        .add_service(TrainingServer::new(handlers.clone()))
        .add_service(WordsServer::new(handlers))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)));
    tokio::spawn(server);
    (address, seen)
}

pub fn gradient(data: &[f64]) -> NewGrad {
    let gradient = Some(FpArray { data: data.to_vec() });
    NewGrad { layer: Some(Layer { name: String::new(), gradient }), ..NewGrad::default() }
}

pub fn counts(pairs: &[(&str, i64)], text: &str) -> Counts {
    Counts { kvs: Some(str_int(pairs)), text: text.into() }
}

pub fn str_int(pairs: &[(&str, i64)]) -> StrintMap {
    StrintMap { map: pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect() }
}

pub fn int_fp(pairs: &[(i64, f64)]) -> IntfpMap {
    IntfpMap { map: pairs.iter().copied().collect() }
}

pub fn names(names: &[&str], text: &str) -> Names {
    let map = names.iter().map(|name| ((*name).to_owned(), 1)).collect();
    Names { names: Some(StrintMap { map }), text: text.into() }
}

pub fn note(text: &str) -> Note {
    Note { text: text.into() }
}

/// Request of a caller without Pathcall's channel to join the application of the method with this path.
///
/// # Panics
/// Panics if there is no such method.
pub fn join(path: &str) -> JoinRequest {
    let method = PATHCALL.methods.iter().find(|method| method.path == path).expect("a method");
    JoinRequest {
        application: method.app.into(),
        filter_digest: method.digest,
        udp_port: 9,
        incarnation: 5,
        flows: 1,
        method: path.into(),
        ..JoinRequest::default()
    }
}

/// Request with a time-out of `millis`.
pub fn within<T>(millis: u64, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_millis(millis));
    request
}

/// Waits until a condition holds that other tasks establish; each turn lets them run.
///
/// # Panics
/// Panics if the condition does not hold in time.
pub async fn until(mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(HANG, holds).await.expect("the condition holds in time");
}
