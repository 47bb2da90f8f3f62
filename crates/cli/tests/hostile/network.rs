//! Network under attack: a controller, an element behind a recording relay, a server with all abilities, another server
//! of its pool, and two delegate nodes.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{CountersReply, CountersRequest, ElementGrant, StatusReply, StatusRequest};
use pathcall_rpc::Layer;
use pathcall_rpc::delegate::{DelegatedCall, Directory, NodeConfig, NodeTarget, RunningHandlers};
use pathcall_test_support::service::TestHandlers;
use pathcall_test_support::store::{STORE, StoreHandler};
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::locks_server::LocksServer;
use pathcall_test_support::stubs::store_server::StoreServer;
use pathcall_test_support::stubs::training_server::TrainingServer;
use pathcall_test_support::stubs::words_server::WordsServer;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use pathcall_wire::{Base, TokenKey, clone};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Notify;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Status, Streaming};

use super::honest::Honest;
use super::relay::{RelayedElement, start_behind_relay};

/// Credential of the honest callers, which nobody else knows.
pub(super) const HONEST: &str = "honest";
/// Credentials of a caller with its own applications, and of one that may only read words.
pub(super) const INSIDER: &str = "insider";
pub(super) const READER: &str = "reader";
/// No credential.
pub(super) const OUTSIDER: &str = "";
/// Path prefixes that each credential opens.
const RULES: [(&str, &[&str]); 3] = [
    (HONEST, &["/"]),
    (INSIDER, &["/rpctest.Locks/Vote", "/rpctest.Locks/Elect", "/rpctest.Training/Watch", "/rpctest.Store/Tried"]),
    (READER, &["/rpctest.Words/Query"]),
];
const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Frames that the relay keeps.
const HEARD_MAX: usize = 4096;
/// Lease that does not expire on a machine that stands still.
const LEASE: Duration = Duration::from_secs(600);
/// Memory limit of the keys of one application; keys of votes fill it.
const KEY_MEMORY: usize = 8 << 20;

pub(super) struct Network {
    pub(super) tokens: bool,
    pub(super) controller: pathcall_control::Handle,
    pub(super) element: pathcall_element::Handle,
    _registered: Streaming<ElementGrant>,
    /// Address at which hosts reach the element.
    pub(super) relay: SocketAddr,
    pub(super) received: Arc<Mutex<RecordedFrames>>,
    /// Notified after each recorded frame.
    pub(super) recorded: Arc<Notify>,
    pub(super) server: SocketAddr,
    pathcall: [Layer; 2],
    /// One index node and the store nodes.
    pub(super) nodes: [RunningHandlers; 3],
}

/// Frames recorded by the relay on their way to the element.
#[derive(Default)]
pub(super) struct RecordedFrames {
    /// The last frames of *map*, and of *clone*.
    frames: [Vec<Vec<u8>>; 2],
    /// Source addresses of endpoints.
    pub(super) hosts: HashMap<u32, SocketAddr>,
    turn: usize,
}

impl RecordedFrames {
    fn hear(&mut self, from: SocketAddr, frame: &[u8]) {
        // Messages of the link layer are no frames.
        let Ok(base) = Base::new_checked(frame) else { return };
        self.hosts.insert(base.src(), from);
        self.turn += 1;
        let frames = &mut self.frames[usize::from(clone::is_clone(frame))];
        match frames.len() < HEARD_MAX {
            true => frames.push(frame.to_vec()),
            false => frames[self.turn % HEARD_MAX] = frame.to_vec(),
        }
    }

    /// Recorded frame of *clone* or of *map*; `None` before the first one.
    pub(super) fn choose(&self, clone: bool, random: &mut StdRng) -> Option<Vec<u8>> {
        self.frames[usize::from(clone)].choose(random).cloned()
    }
}

/// Forwards datagrams of hosts to the element.
async fn relay(
    socket: Arc<UdpSocket>,
    element: SocketAddr,
    received: Arc<Mutex<RecordedFrames>>,
    recorded: Arc<Notify>,
) {
    let mut buffer = vec![0; 65_536];
    loop {
        // Errors of earlier datagrams do not matter.
        let Ok((len, from)) = socket.recv_from(&mut buffer).await else { continue };
        // Hostile frames bypass the relay: all frames here are of the hosts.
        received.lock().expect("the task succeeds").hear(from, &buffer[..len]);
        recorded.notify_one();
        let _ = socket.send_to(&buffer[..len], element).await;
    }
}

/// Lets a request pass if its token opens the path.
fn check(path: &str, token: Option<&str>) -> Result<(), Status> {
    match RULES.iter().find(|(of, _)| Some(*of) == token) {
        None => Err(Status::unauthenticated("no such token")),
        Some((_, paths)) if paths.iter().any(|opens| path.starts_with(opens)) => Ok(()),
        Some(_) => Err(Status::permission_denied("not with this token")),
    }
}

/// Tower layer that checks each request.
#[derive(Clone)]
struct Checks;

#[derive(Clone)]
struct Checked<S>(S);

impl<S> tower::Layer<S> for Checks {
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

/// Store node, whose documents are their names.
async fn store(node: NodeConfig) -> RunningHandlers {
    let fetch = async |note: Note, call: DelegatedCall<Note>| call.reply(note).await;
    let handlers = pathcall_rpc::delegate::Handlers::new().node(node).interceptor(interceptor);
    handlers.handle::<DocsFetch, _, _>(fetch).start().await.expect("starts")
}

/// Index node, which delegates to the stores.
async fn index(node: NodeConfig, directory: Directory) -> RunningHandlers {
    let lookup = async |wish: Wish, call: DelegatedCall<Note>| {
        for name in wish.names {
            call.delegate::<DocsFetch>(NodeTarget::key("store-", &name), &Note { text: name })?;
        }
        Ok(())
    };
    let handlers = pathcall_rpc::delegate::Handlers::new().node(node).directory(directory).forward_credentials(true);
    let handlers = handlers.interceptor(interceptor);
    handlers.handle::<DocsLookup, _, _>(lookup).start().await.expect("starts")
}

/// Serves all methods, or cloned calls only.
async fn serve(pathcall: &Layer, listener: TcpListener, whole: bool) {
    let store = StoreHandler::new(&listener.local_addr().expect("bound").to_string());
    let builder = tonic::transport::Server::builder().layer(pathcall.clone()).layer(Checks);
    let mut builder = builder;
    let mut router = builder.add_service(StoreServer::new(store));
    if whole {
        let handlers = TestHandlers(Arc::default());
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
        let RelayedElement { controller, element, registered, socket } = start_behind_relay(config).await;
        let address = socket.local_addr().expect("bound");
        let socket = Arc::new(socket);
        let received = Arc::<Mutex<RecordedFrames>>::default();
        let recorded = Arc::<Notify>::default();
        tokio::spawn(relay(socket, element.data_addr(), Arc::clone(&received), Arc::clone(&recorded)));

        let node = NodeConfig::default().key(tokens.then(|| TokenKey::new([7, 8])));
        let stores = [store(node.clone()).await, store(node.clone()).await];
        let directory = Directory::of([("store-a", stores[0].address()), ("store-b", stores[1].address())]);
        let index = index(node, directory).await;
        let mut servers = Vec::new();
        for whole in [true, false] {
            let listener = TcpListener::bind(FREE).await.expect("a free port");
            let address = listener.local_addr().expect("bound");
            let builder = Layer::builder(if whole { &PATHCALL } else { &STORE });
            let builder = builder.controller(controller.url()).advertise(format!("http://{address}"));
            let builder = builder.authenticate_frames(tokens).shared_memory(false).lock_lease(LEASE);
            let builder = builder.key_memory(KEY_MEMORY);
            let builder = if whole { builder.handlers(index.clone()) } else { builder };
            let pathcall = builder.build().await.expect("the controller answers");
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
            received,
            recorded,
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

    /// Plain gRPC connection to the server.
    pub(super) fn connection(&self) -> tonic::transport::Channel {
        tonic::transport::Channel::from_shared(self.url()).expect("an address").connect_lazy()
    }

    pub(super) async fn status(&self) -> StatusReply {
        let mut client = ControllerClient::connect(self.controller.url()).await.expect("connection to the service");
        client.status(StatusRequest {}).await.expect("an answer").into_inner()
    }

    pub(super) async fn element_counters(&self) -> CountersReply {
        let url = format!("http://{}", self.element.control_addr());
        let mut client = ElementClient::connect(url).await.expect("connection to the service");
        client.counters(CountersRequest {}).await.expect("an answer").into_inner()
    }

    /// Number of joined callers of all applications.
    pub(super) fn members(&self) -> usize {
        self.pathcall[0].stats().iter().map(|application| application.members).sum()
    }

    /// Refusals so far, by the party that counts them.
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
        for stats in self.nodes.iter().map(RunningHandlers::stats) {
            let messages = stats.messages;
            add("node ignored", messages.ignored + messages.refused + messages.repeats + messages.unauthenticated);
            add("node refused", stats.worker.refused + stats.caller.ignored);
        }
        all
    }

    /// Frame ports of the server, as recorded by the relay, and of callers.
    pub(super) fn hosts(&self) -> HashMap<u32, SocketAddr> {
        self.received.lock().expect("the task succeeds").hosts.clone()
    }
}

fn pool(server: &Layer) -> usize {
    server.pool_stats().map_or(0, |pool| pool.servers)
}

/// Request with a credential.
pub(super) fn by<T>(token: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        request.metadata_mut().insert("authorization", token.parse().expect("text"));
    }
    request
}
