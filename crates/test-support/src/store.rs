//! Servers of a pool, each in a runtime of its own, so that it can end as a process does.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stubs::store_client::StoreClient;
use crate::stubs::store_server::{Store, StoreServer};
use crate::stubs::{Note, PATHCALL};
use pathcall_control::{Config, Handle, Place, Timing};
use pathcall_proto::manifest::Manifest;
use pathcall_rpc::channel::{Balance, CloneOptions, Hedge};
use pathcall_rpc::{Channel, Server};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::transport::ServerTlsConfig;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};

use crate::HANG;
use crate::service::{note, until};

/// The cloned methods alone: an application, which the others make, has one server.
pub static STORE: Manifest =
    Manifest { methods: &[], delegated: &[], cloned: PATHCALL.cloned, placed: &[], descriptor: PATHCALL.descriptor };

/// No lease runs out, and no element is given up, on a machine that stands still: who is gone ends its connection.
pub const TIMING: Timing = Timing { grace: HANG, restart_grace: HANG, confirm: HANG };

/// Ways to make a call that the method's own options do not ask for.
#[must_use]
pub fn ways() -> [CloneOptions; 6] {
    let random = CloneOptions { clone: false, ..CloneOptions::default() };
    let hedge = Some(Hedge { delay: Duration::from_millis(10), max_attempts: 2 });
    [
        random,
        CloneOptions { balance: Balance::RoundRobin, ..random },
        CloneOptions { balance: Balance::Shortest, ..random },
        CloneOptions { hedge, ..random },
        CloneOptions { twice: true, ..random },
        CloneOptions { balance: Balance::Shortest, ..CloneOptions::default() },
    ]
}

/// What a server's handlers share with the tests.
#[derive(Debug, Default)]
pub struct Kept {
    /// Calls that may be done twice, and calls that may not.
    pub gets: AtomicU64,
    pub puts: AtomicU64,
    /// Told when a handler has begun that is held, and when one of these was dropped.
    pub began: Notify,
    pub dropped: Notify,
    /// Handlers of "held" wait as long as it is closed.
    pub gate: watch::Sender<bool>,
    /// How much time these were told to have, as gRPC says it.
    pub left: Mutex<Vec<String>>,
}

/// Its own texts are commands.
#[derive(Debug, Clone)]
pub struct Handler {
    name: String,
    kept: Arc<Kept>,
}

struct OnDrop(Arc<Kept>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.dropped.notify_one();
    }
}

impl Handler {
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
            ("refuse", name) if name == self.name => return Err(Status::aborted("not here")),
            ("deny", _) => return Err(Status::permission_denied("nowhere")),
            // Silently: to print where it was takes longer than a call waits until it is sent again.
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

#[tonic::async_trait]
impl Store for Handler {
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
    async fn put(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.kept.puts.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(request.into_inner()))
    }
}

/// A server of a pool; dropping it ends it as a killed process ends.
pub struct Member {
    pub address: SocketAddr,
    pub kept: Arc<Kept>,
    pub pathcall: Server,
    process: Option<Runtime>,
}

impl Member {
    /// Joins the pool of the controller.
    pub async fn start(controller: &str, change: fn(Options) -> Options) -> Self {
        Self::start_with(controller, None, change).await
    }

    /// The same, and callers come by TLS.
    pub async fn start_with(controller: &str, tls: Option<ServerTlsConfig>, change: fn(Options) -> Options) -> Self {
        Self::start_of(&STORE, controller, tls, change).await
    }

    /// The same, with this manifest.
    pub async fn start_of(
        manifest: &'static Manifest,
        controller: &str,
        tls: Option<ServerTlsConfig>,
        change: fn(Options) -> Options,
    ) -> Self {
        let process = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = process.spawn(TcpListener::bind("127.0.0.1:0")).await.unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let handler = Handler::new(&address.to_string());
        let kept = Arc::clone(&handler.kept);
        let options = Server::builder(manifest)
            .controller(controller)
            .advertise(format!("{}://{address}", if tls.is_some() { "https" } else { "http" }))
            .data_address("127.0.0.1:0".parse().unwrap());
        let build = change(options).build();
        let pathcall = process.spawn(build).await.unwrap().unwrap();
        let layer = pathcall.layer();
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

    /// Servers that it knows of.
    pub fn servers(&self) -> usize {
        self.pathcall.pool_stats().expect("it has a pool").servers
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

impl Drop for Member {
    fn drop(&mut self) {
        self.end();
    }
}

pub type Options = pathcall_rpc::server::Builder;

/// A controller and the servers of one pool.
pub struct Pool {
    pub controller: Option<Handle>,
    pub url: String,
    pub members: Vec<Member>,
}

impl Pool {
    pub async fn start(servers: usize) -> Self {
        Self::start_with(servers, Place::Memory, |options| options).await
    }

    pub async fn start_with(servers: usize, store: Place, change: fn(Options) -> Options) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), servers, store, change).await
    }

    /// One whose controller may come back at its address has that to itself ([`crate::loopback::own`]).
    pub async fn start_at(address: SocketAddr, servers: usize, store: Place, change: fn(Options) -> Options) -> Self {
        let controller = controller(address, store).await;
        let url = controller.url();
        let mut pool = Self { controller: Some(controller), url, members: Vec::new() };
        for _ in 0..servers {
            pool.members.push(Member::start(&pool.url, change).await);
        }
        pool.settled().await;
        pool
    }

    /// Waits until all members know of each other, and of nobody else.
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

pub async fn controller(address: SocketAddr, store: Place) -> Handle {
    controller_with(address, store, TIMING).await
}

pub async fn controller_with(address: SocketAddr, store: Place, timing: Timing) -> Handle {
    let listener = pathcall_control::bind(address).await.unwrap();
    let config = Config::default().store(store).timing(timing).keep_alive(HANG);
    pathcall_control::serve(listener, config).await.unwrap()
}

/// Makes so many calls at once; each must be answered as it was asked.
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

/// A time as gRPC says those of a second to a minute and a half.
pub fn micros(timeout: &str) -> u64 {
    timeout.strip_suffix('u').and_then(|micros| micros.parse().ok()).unwrap_or_else(|| panic!("{timeout:?}"))
}
