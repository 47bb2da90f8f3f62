//! Servers of a pool, each in its own runtime, so that it can end like a killed process.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stubs::store_client::StoreClient;
use crate::stubs::store_server::{Store, StoreServer};
use crate::stubs::{Note, PATHCALL};
use pathcall_control::{Config, Handle, LeaseTiming, StoreLocation};
use pathcall_proto::manifest::Manifest;
use pathcall_rpc::channel::{Balance, CloneOptions, Hedge, HedgeAfter};
use pathcall_rpc::{Channel, Layer};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::transport::ServerTlsConfig;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};

use crate::HANG;
use crate::service::{note, until};

/// Manifest with the cloned methods only: the other methods form an application, which has one server.
pub static STORE: Manifest =
    Manifest { methods: &[], delegated: &[], cloned: PATHCALL.cloned, placed: &[], descriptor: PATHCALL.descriptor };

/// Timing with which no lease expires and no element is dropped on a machine that stands still: a party that is gone
/// ends its connection.
pub const TIMING: LeaseTiming = LeaseTiming { grace: HANG, restart_grace: HANG, confirm: HANG };

/// Clone options besides those of the methods.
#[must_use]
pub fn ways() -> [CloneOptions; 6] {
    let random = CloneOptions { clone: false, ..CloneOptions::default() };
    let hedge = Some(Hedge { after: HedgeAfter::Delay(Duration::from_millis(10)), max_attempts: 2 });
    [
        random,
        CloneOptions { balance: Balance::RoundRobin, ..random },
        CloneOptions { balance: Balance::Shortest, ..random },
        CloneOptions { hedge, ..random },
        CloneOptions { send_to_two: true, ..random },
        CloneOptions { balance: Balance::Shortest, ..CloneOptions::default() },
    ]
}

/// Events that a server's handlers share with the tests.
#[derive(Debug, Default)]
pub struct StoreEvents {
    /// Calls of idempotent methods, and of other methods.
    pub gets: AtomicU64,
    pub puts: AtomicU64,
    /// Messages of endless streams.
    pub endless: AtomicU64,
    /// Notified when a held handler has started, and when one was dropped.
    pub began: Notify,
    pub dropped: Notify,
    /// Gate of the "held" handlers, which wait while it is closed.
    pub gate: watch::Sender<bool>,
    /// Time-outs that calls carried, in gRPC's format.
    pub left: Mutex<Vec<String>>,
}

/// Handler whose requests contain commands.
#[derive(Debug, Clone)]
pub struct StoreHandler {
    name: String,
    kept: Arc<StoreEvents>,
}

struct OnDrop(Arc<StoreEvents>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.dropped.notify_one();
    }
}

impl StoreHandler {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), kept: Arc::default() }
    }

    async fn answer(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.kept.gets.fetch_add(1, Ordering::SeqCst);
        let user = request.metadata().get("user").cloned();
        let left = request.metadata().get("grpc-timeout").map(|left| left.to_str().expect("text").to_owned());
        let text = request.into_inner().text;
        let reply = match text.split_once(' ').unwrap_or((&text, "")) {
            ("who", _) => self.name.clone(),
            ("fail", _) => {
                let mut status = Status::with_details(Code::Aborted, "as told", b"details"[..].into());
                status.metadata_mut().insert("why", MetadataValue::from_static("because"));
                return Err(status);
            }
            ("push", number) => {
                let number = number.split(' ').next().expect("a word").parse().expect("metadata");
                let mut status = Status::aborted("later");
                status.metadata_mut().insert("grpc-retry-pushback-ms", number);
                return Err(status);
            }
            ("refuse", name) if name == self.name => return Err(Status::aborted("not here")),
            ("deny", _) => return Err(Status::permission_denied("nowhere")),
            // Without printing a backtrace, which takes longer than a call waits before it is repeated.
            ("panic", _) => std::panic::resume_unwind(Box::new("as told")),
            ("left", _) => left.unwrap_or_default(),
            ("held", _) => {
                self.kept.left.lock().unwrap().extend(left);
                let _guard = OnDrop(Arc::clone(&self.kept));
                self.kept.began.notify_one();
                let _ = self.kept.gate.subscribe().wait_for(|open| *open).await;
                text
            }
            ("big", len) => "x".repeat(len.parse().expect("a length")),
            _ => text,
        };
        let mut response = Response::new(Note { text: reply });
        if let Some(user) = user {
            response.metadata_mut().insert("for", user);
        }
        response.metadata_mut().insert_bin("raw-bin", MetadataValue::from_bytes(&[0, 255]));
        Ok(response)
    }
}

/// Stream of a handler.
type Notes = Pin<Box<dyn Stream<Item = Result<Note, Status>> + Send>>;

impl StoreHandler {
    /// Answers with a stream, whose messages have this server's name and their number.
    async fn stream(&self, request: Request<Note>) -> Result<Response<Notes>, Status> {
        let text = request.get_ref().text.clone();
        let (command, argument) = text.split_once(' ').unwrap_or((&text, ""));
        let (count, name) = (argument.parse().unwrap_or(1), self.name.clone());
        let numbered = move |nth: u64| Ok(Note { text: format!("{name} {nth}") });
        let kept = Arc::clone(&self.kept);
        let notes: Notes = match command {
            "count" => Box::pin(tokio_stream::iter(0..count).map(numbered)),
            // Before the first message, after the headers.
            "held" => {
                let held = tokio_stream::once(()).then(move |()| hold(Arc::clone(&kept)));
                Box::pin(held.chain(tokio_stream::iter(1..count)).map(numbered))
            }
            // Before the headers.
            "late" => {
                hold(kept).await;
                Box::pin(tokio_stream::iter(0..count).map(numbered))
            }
            "break" => {
                let mut status = Status::aborted("in the middle");
                status.metadata_mut().insert("why", MetadataValue::from_static("because"));
                Box::pin(tokio_stream::iter(0..count).map(numbered).chain(tokio_stream::once(Err(status))))
            }
            "refuse-late" if argument == self.name => Box::pin(tokio_stream::once(Err(Status::aborted("not here")))),
            "empty" => Box::pin(tokio_stream::empty()),
            "endless" => {
                let guard = OnDrop(kept);
                Box::pin(tokio_stream::iter(0_u64..).map(move |_| {
                    guard.0.endless.fetch_add(1, Ordering::SeqCst);
                    Ok(Note { text: "x".repeat(count as usize) })
                }))
            }
            _ => {
                let answer = self.answer(request).await?;
                return Ok(answer.map(|note| -> Notes { Box::pin(tokio_stream::once(Ok(note))) }));
            }
        };
        self.kept.gets.fetch_add(1, Ordering::SeqCst);
        let mut response = Response::new(notes);
        response.metadata_mut().insert("server", self.name.parse().expect("metadata"));
        Ok(response)
    }
}

/// Waits until the gate is open. Returns the number of the first message.
async fn hold(kept: Arc<StoreEvents>) -> u64 {
    let _guard = OnDrop(Arc::clone(&kept));
    kept.began.notify_one();
    let _ = kept.gate.subscribe().wait_for(|open| *open).await;
    0
}

#[tonic::async_trait]
impl Store for StoreHandler {
    type ScanStream = Notes;
    type ScanTriedStream = Notes;

    async fn get(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.answer(request).await
    }
    async fn shortest(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.answer(request).await
    }
    async fn in_turn(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.answer(request).await
    }
    async fn hedged(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.answer(request).await
    }
    async fn tried(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.answer(request).await
    }
    async fn scan(&self, request: Request<Note>) -> Result<Response<Notes>, Status> {
        self.stream(request).await
    }
    async fn scan_tried(&self, request: Request<Note>) -> Result<Response<Notes>, Status> {
        self.stream(request).await
    }
    async fn put(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.kept.puts.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(request.into_inner()))
    }
}

/// Server of a pool; dropping it ends it like a killed process.
pub struct PoolServer {
    pub address: SocketAddr,
    pub kept: Arc<StoreEvents>,
    pub pathcall: Layer,
    process: Option<Runtime>,
}

impl PoolServer {
    /// Starts a server in the pool of the controller.
    pub async fn start(controller: &str, change: fn(LayerBuilder) -> LayerBuilder) -> Self {
        Self::start_with(controller, None, change).await
    }

    /// Starts a server that callers reach by TLS.
    pub async fn start_with(
        controller: &str,
        tls: Option<ServerTlsConfig>,
        change: fn(LayerBuilder) -> LayerBuilder,
    ) -> Self {
        Self::start_of(&STORE, controller, tls, change).await
    }

    /// Starts a server with this manifest.
    pub async fn start_of(
        manifest: &'static Manifest,
        controller: &str,
        tls: Option<ServerTlsConfig>,
        change: fn(LayerBuilder) -> LayerBuilder,
    ) -> Self {
        let process = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = process.spawn(TcpListener::bind("127.0.0.1:0")).await.unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let handler = StoreHandler::new(&address.to_string());
        let kept = Arc::clone(&handler.kept);
        let options = Layer::builder(manifest)
            .controller(controller)
            .advertise(format!("{}://{address}", if tls.is_some() { "https" } else { "http" }))
            .data_address("127.0.0.1:0".parse().unwrap());
        let build = change(options).build();
        let pathcall = process.spawn(build).await.unwrap().unwrap();
        let layer = pathcall.clone();
        let server = async move {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let service = StoreServer::new(handler).max_decoding_message_size(usize::MAX);
            let mut server = tonic::transport::Server::builder();
            if let Some(tls) = tls {
                server = server.tls_config(tls)?;
            }
            server.layer(layer).add_service(service).serve_with_incoming(incoming).await
        };
        process.spawn(server);
        Self { address, kept, pathcall, process: Some(process) }
    }

    pub fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of known servers of the pool.
    pub fn servers(&self) -> usize {
        self.pathcall.pool_stats().expect("the server has a pool").servers
    }

    pub fn gets(&self) -> u64 {
        self.kept.gets.load(Ordering::SeqCst)
    }

    pub fn puts(&self) -> u64 {
        self.kept.puts.load(Ordering::SeqCst)
    }

    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(process) = self.process.take() {
            process.shutdown_background();
        }
    }
}

impl Drop for PoolServer {
    fn drop(&mut self) {
        self.end();
    }
}

pub type LayerBuilder = pathcall_rpc::layer::Builder;

/// Controller and the servers of one pool.
pub struct TestPool {
    pub controller: Option<Handle>,
    pub url: String,
    pub members: Vec<PoolServer>,
}

impl TestPool {
    pub async fn start(servers: usize) -> Self {
        Self::start_with(servers, StoreLocation::Memory, |options| options).await
    }

    pub async fn start_with(servers: usize, store: StoreLocation, change: fn(LayerBuilder) -> LayerBuilder) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), servers, store, change).await
    }

    /// Starts a pool; a controller that is restarted at its address needs a unique one ([`crate::loopback::own`]).
    pub async fn start_at(
        address: SocketAddr,
        servers: usize,
        store: StoreLocation,
        change: fn(LayerBuilder) -> LayerBuilder,
    ) -> Self {
        let controller = controller(address, store).await;
        let url = controller.url();
        let mut pool = Self { controller: Some(controller), url, members: Vec::new() };
        for _ in 0..servers {
            pool.members.push(PoolServer::start(&pool.url, change).await);
        }
        pool.settled().await;
        pool
    }

    /// Waits until all servers know each other, and no other ones.
    pub async fn settled(&self) {
        let all = self.members.len();
        until(|| self.members.iter().all(|member| member.servers() == all)).await;
    }

    pub async fn channel(&self) -> Channel {
        Channel::connect(self.members[0].uri(), &STORE).await.unwrap()
    }

    pub async fn client(&self) -> StoreClient<Channel> {
        StoreClient::new(self.channel().await).max_decoding_message_size(usize::MAX)
    }
}

pub async fn controller(address: SocketAddr, store: StoreLocation) -> Handle {
    controller_with(address, store, TIMING).await
}

pub async fn controller_with(address: SocketAddr, store: StoreLocation, timing: LeaseTiming) -> Handle {
    let listener = pathcall_control::bind(address).await.unwrap();
    let config = Config::default().store(store).timing(timing).keep_alive(HANG);
    pathcall_control::serve(listener, config).await.unwrap()
}

/// Makes `count` concurrent calls; each must get its answer.
pub async fn calls(client: &StoreClient<Channel>, count: usize) {
    let mut tasks = JoinSet::new();
    for call in 0..count {
        let mut client = client.clone();
        tasks.spawn(async move {
            let text = format!("call {call}");
            let reply = client.get(note(&text)).await.unwrap().into_inner();
            assert_eq!(reply.text, text);
        });
    }
    timeout(HANG, tasks.join_all()).await.expect("all are answered");
}

/// Parses a time-out in gRPC's format, from a second to a minute and a half.
pub fn micros(timeout: &str) -> u64 {
    timeout.strip_suffix('u').and_then(|micros| micros.parse().ok()).unwrap_or_else(|| panic!("{timeout:?}"))
}
