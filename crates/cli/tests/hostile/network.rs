//! Who is attacked: a controller, an element behind a relay that records, a server with everything, another one of its
//! pool, and two that requests are delegated to.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{CountersReply, CountersRequest, ElementGrant, StatusReply, StatusRequest};
use pathcall_rpc::Server;
use pathcall_rpc::delegate::{Call, Directory, NodeConfig, Serving, Target};
use pathcall_test_support::service::Handlers;
use pathcall_test_support::store::{Handler, STORE};
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::locks_server::LocksServer;
use pathcall_test_support::stubs::store_server::StoreServer;
use pathcall_test_support::stubs::training_server::TrainingServer;
use pathcall_test_support::stubs::words_server::WordsServer;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use pathcall_wire::{Base, TokenKey};
use tokio::net::{TcpListener, UdpSocket};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Status, Streaming};
use tower::Layer;

use super::honest::Honest;
use super::relay::{Behind, behind};

/// What honest callers say who they are by. Nobody else knows it.
pub(super) const HONEST: &str = "honest";
/// A caller of applications of its own; one that may read words, and not add any.
pub(super) const INSIDER: &str = "insider";
pub(super) const READER: &str = "reader";
/// Nobody.
pub(super) const OUTSIDER: &str = "";
/// Paths begin like this that a token opens.
const RULES: [(&str, &[&str]); 3] = [
    (HONEST, &["/"]),
    (INSIDER, &["/rpctest.Locks/Vote", "/rpctest.Locks/Elect", "/rpctest.Training/Watch", "/rpctest.Store/Tried"]),
    (READER, &["/rpctest.Words/Query"]),
];
const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Frames that the relay keeps.
const HEARD_MAX: usize = 4096;
/// No lock is lost on a machine that stands still.
const LEASE: Duration = Duration::from_secs(600);
/// Bytes that keys of one application may take: those of votes fill them.
const KEY_MEMORY: usize = 8 << 20;

pub(super) struct Network {
    pub(super) tokens: bool,
    pub(super) controller: pathcall_control::Handle,
    pub(super) element: pathcall_element::Handle,
    _registered: Streaming<ElementGrant>,
    /// Where hosts reach the element.
    pub(super) relay: SocketAddr,
    pub(super) heard: Arc<Mutex<Heard>>,
    pub(super) server: SocketAddr,
    pathcall: [Server; 2],
    /// An index, and stores.
    pub(super) nodes: [Serving; 3],
}

/// What the relay has heard on its way to the element.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) frames: Vec<Vec<u8>>,
    /// Where endpoints send from.
    pub(super) hosts: HashMap<u32, SocketAddr>,
    turn: usize,
}

impl Heard {
    fn hear(&mut self, from: SocketAddr, frame: &[u8]) {
        // What links say to each other beneath the frames is none.
        let Ok(base) = Base::new_checked(frame) else { return };
        self.hosts.insert(base.src(), from);
        self.turn += 1;
        match self.frames.len() < HEARD_MAX {
            true => self.frames.push(frame.to_vec()),
            false => self.frames[self.turn % HEARD_MAX] = frame.to_vec(),
        }
    }
}

/// Passes on what hosts send to the element.
async fn relay(socket: Arc<UdpSocket>, element: SocketAddr, heard: Arc<Mutex<Heard>>) {
    let mut buffer = vec![0; 65_536];
    loop {
        // What the system says of an earlier datagram is of no interest.
        let Ok((len, from)) = socket.recv_from(&mut buffer).await else { continue };
        // Hostile frames go past it: all that comes by it is a host's own.
        heard.lock().expect("no panic").hear(from, &buffer[..len]);
        let _ = socket.send_to(&buffer[..len], element).await;
    }
}

/// Lets a request through if its token opens the path.
fn check(path: &str, token: Option<&str>) -> Result<(), Status> {
    match RULES.iter().find(|(of, _)| Some(*of) == token) {
        None => Err(Status::unauthenticated("no such token")),
        Some((_, paths)) if paths.iter().any(|opens| path.starts_with(opens)) => Ok(()),
        Some(_) => Err(Status::permission_denied("not with this token")),
    }
}

/// A layer that checks each request before it goes on.
#[derive(Clone)]
struct Checks;

#[derive(Clone)]
struct Checked<S>(S);

impl<S> Layer<S> for Checks {
    type Service = Checked<S>;

    fn layer(&self, inner: S) -> Checked<S> {
        Checked(inner)
    }
}

impl<S> Service<http::Request<Body>> for Checked<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Future: Send + 'static>,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let token = request.headers().get("authorization").and_then(|token| token.to_str().ok());
        match check(request.uri().path(), token) {
            Ok(()) => Box::pin(self.0.call(request)),
            Err(status) => Box::pin(async move { Ok(status.into_http()) }),
        }
    }
}

fn interceptor(request: Request<()>) -> Result<Request<()>, Status> {
    check("/rpctest.Docs/", request.metadata().get("authorization").and_then(|token| token.to_str().ok()))?;
    Ok(request)
}

/// A store: documents are their names.
async fn store(node: NodeConfig) -> Serving {
    let fetch = async |note: Note, call: Call<Note>| call.reply(note).await;
    let handlers = pathcall_rpc::delegate::Handlers::new().node(node).interceptor(interceptor);
    handlers.handle::<DocsFetch, _, _>(fetch).start().await.expect("starts")
}

/// Passes on to stores what is asked for.
async fn index(node: NodeConfig, directory: Directory) -> Serving {
    let lookup = async |wish: Wish, call: Call<Note>| {
        for name in wish.names {
            call.delegate::<DocsFetch>(Target::key("store-", &name), &Note { text: name })?;
        }
        Ok(())
    };
    let handlers = pathcall_rpc::delegate::Handlers::new().node(node).directory(directory);
    let handlers = handlers.interceptor(interceptor);
    handlers.handle::<DocsLookup, _, _>(lookup).start().await.expect("starts")
}

/// Serves, all that there is or cloned calls alone.
async fn serve(pathcall: &Server, listener: TcpListener, whole: bool) {
    let store = Handler::new(&listener.local_addr().expect("bound").to_string());
    let builder = tonic::transport::Server::builder().layer(pathcall.layer()).layer(Checks);
    let mut builder = builder;
    let mut router = builder.add_service(StoreServer::new(store));
    if whole {
        let handlers = Handlers(Arc::default());
        router = router
            .add_service(TrainingServer::new(handlers.clone()))
            .add_service(WordsServer::new(handlers.clone()))
            .add_service(LocksServer::new(handlers));
    }
    tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))));
}

impl Network {
    pub(super) async fn start(tokens: bool) -> Self {
        let config = pathcall_element::Config::default().shared_memory(false);
        let Behind { controller, element, registered, socket } = behind(config).await;
        let address = socket.local_addr().expect("bound");
        let socket = Arc::new(socket);
        let heard = Arc::<Mutex<Heard>>::default();
        tokio::spawn(relay(socket, element.data_addr(), Arc::clone(&heard)));

        let node = NodeConfig::default().key(tokens.then(|| TokenKey::new([7, 8])));
        let stores = [store(node.clone()).await, store(node.clone()).await];
        let directory = Directory::of([("store-a", stores[0].address()), ("store-b", stores[1].address())]);
        let index = index(node, directory).await;
        let mut servers = Vec::new();
        for whole in [true, false] {
            let listener = TcpListener::bind(FREE).await.expect("a free port");
            let address = listener.local_addr().expect("bound");
            let builder = Server::builder(if whole { &PATHCALL } else { &STORE });
            let builder = builder.controller(controller.url()).advertise(format!("http://{address}"));
            let builder = builder.authenticate_frames(tokens).shared_memory(false).lock_lease(LEASE);
            let builder = builder.key_memory(KEY_MEMORY);
            let builder = if whole { builder.handlers(index.clone()) } else { builder };
            let pathcall = builder.build().await.expect("the controller is there");
            serve(&pathcall, listener, whole).await;
            servers.push((address, pathcall));
        }
        let [(server, whole), (_, other)] = <[_; 2]>::try_from(servers).unwrap_or_else(|_| unreachable!("two"));
        let network = Self {
            tokens,
            controller,
            element,
            _registered: registered,
            relay: address,
            heard,
            server,
            pathcall: [whole, other],
            nodes: {
                let [a, b] = stores;
                [index, a, b]
            },
        };
        super::until("the pool has two servers", || network.pathcall.iter().all(|server| pool(server) == 2)).await;
        network
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.server)
    }

    /// A connection of stock gRPC to the server.
    pub(super) fn connection(&self) -> tonic::transport::Channel {
        tonic::transport::Channel::from_shared(self.url()).expect("an address").connect_lazy()
    }

    pub(super) async fn status(&self) -> StatusReply {
        let mut client = ControllerClient::connect(self.controller.url()).await.expect("it serves");
        client.status(StatusRequest {}).await.expect("it answers").into_inner()
    }

    pub(super) async fn element_counters(&self) -> CountersReply {
        let url = format!("http://{}", self.element.control_addr());
        let mut client = ElementClient::connect(url).await.expect("it serves");
        client.counters(CountersRequest {}).await.expect("it answers").into_inner()
    }

    /// Callers that have joined, of all applications.
    pub(super) fn members(&self) -> usize {
        self.pathcall[0].stats().iter().map(|application| application.members).sum()
    }

    /// What everybody has refused so far, by who counts it.
    pub(super) async fn refusals(&self, honest: &Honest) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::<String, u64>::new();
        let mut add = |name: &str, count: u64| *all.entry(name.to_owned()).or_default() += count;
        let counters = self.element_counters().await;
        let of_all = counters.applications.values().flat_map(|of| &of.counters);
        for (name, count) in counters.element.iter().filter(|(name, _)| name.starts_with("drop_")).chain(of_all) {
            if ["not_admitted", "unauthentic", "repeats", "stale", "refused"].contains(&name.as_str())
                || name.starts_with("drop_")
            {
                add(&format!("element {name}"), *count);
            }
        }
        for application in self.pathcall[0].stats() {
            add("server ignored", application.map.frames_ignored);
            add("server refused", application.map.frames_refused);
            add("server foreign", application.carried.foreign);
        }
        for queue in self.pathcall.iter().filter_map(|server| Some(server.pool_stats()?.queue)) {
            add("pool ignored", queue.ignored);
            add("pool repeats", queue.repeats);
        }
        for stats in honest.stats() {
            let ignored = stats.applications.iter().map(|application| application.map.frames_ignored).sum::<u64>();
            add("caller ignored", ignored);
            add("pool's caller ignored", stats.pool.ignored + stats.pool.redundant);
        }
        for stats in self.nodes.iter().map(Serving::stats) {
            let messages = stats.messages;
            add("node ignored", messages.ignored + messages.refused + messages.repeats + messages.unauthenticated);
            add("node refused", stats.worker.refused + stats.caller.ignored);
        }
        all
    }

    /// Ports for frames of the server, as far as the relay has heard of them; and those of callers.
    pub(super) fn hosts(&self) -> HashMap<u32, SocketAddr> {
        self.heard.lock().expect("no panic").hosts.clone()
    }
}

fn pool(server: &Server) -> usize {
    server.pool_stats().map_or(0, |pool| pool.servers)
}

/// A request that says who it is from.
pub(super) fn by<T>(token: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        request.metadata_mut().insert("authorization", token.parse().expect("text"));
    }
    request
}
