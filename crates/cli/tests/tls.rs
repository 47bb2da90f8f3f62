//! Tests of a whole system with certificates on its control connections: calls use the element with tokens, keys never
//! cross the network in plaintext, and certificates are renewed during calls.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use pathcall_auth::{AccessTable, Credentials, ExpectedPeer, PartyRole, Security, TlsIncoming};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{FollowPoolRequest, LookupNodeRequest, PoolView, StatusRequest, TokenKey};
use pathcall_rpc::delegate::{DelegatedCall, Handlers};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::certificates::Authority;
use pathcall_test_support::service::{TestHandlers as Service, counts, join, note, str_int, until};
use pathcall_test_support::store::{STORE, StoreHandler};
use pathcall_test_support::stubs::delegated::DocsLookup;
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::store_client::StoreClient;
use pathcall_test_support::stubs::store_server::StoreServer;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::words_server::WordsServer;
use pathcall_test_support::stubs::{Note, PATHCALL, Wanted, Wish};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, UdpSocket};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::transport::server::TcpIncoming;

use crate::isolation::is_alone;

const CALLS: i64 = 20;

/// Credentials of each party; default: none.
#[derive(Clone, Default)]
struct PartyCredentials {
    controller: Security,
    element: Security,
    server: Security,
    caller: Security,
    operator: Security,
}

impl PartyCredentials {
    /// Creates certificates as files in a folder.
    fn files(authority: &Authority, folder: &Path) -> Self {
        let of = |role: PartyRole| Security::new(authority.files(folder, role, role.name()), AccessTable::default());
        let [controller, element, server] = [PartyRole::Controller, PartyRole::Element, PartyRole::Server].map(of);
        let [caller, operator] = [PartyRole::Caller, PartyRole::Operator].map(of);
        Self { controller, element, server, caller, operator }
    }

    fn all(&self) -> impl Iterator<Item = &Credentials> {
        [&self.controller, &self.element, &self.server, &self.caller, &self.operator]
            .into_iter()
            .filter_map(|one| one.credentials())
    }
}

struct System {
    controller: pathcall_control::Handle,
    _element: pathcall_element::Handle,
    server: Layer,
    url: String,
    credentials_of: PartyCredentials,
    _serving: JoinSet<Result<(), tonic::transport::Error>>,
}

impl System {
    async fn start(credentials_of: PartyCredentials) -> Self {
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let config = pathcall_control::Config::default().security(credentials_of.controller.clone());
        let controller = pathcall_control::serve(pathcall_control::bind(free).await.unwrap(), config).await.unwrap();
        let config = pathcall_element::Config::default().data(free).control(free).controller(Some(controller.url()));
        // The test captures the network, so frames must not use shared memory.
        let config = config.shared_memory(false).security(credentials_of.element.clone());
        let element = pathcall_element::run(config).await.unwrap();
        let mut known = element.registration();
        let registered = known.wait_for(|known| matches!(known, pathcall_element::Registration::Known { .. }));
        timeout(HANG, registered).await.expect("the element is registered").unwrap();

        let listener = TcpListener::bind(free).await.unwrap();
        let url = format!("{}://{}", credentials_of.server.scheme(), listener.local_addr().unwrap());
        let builder = Layer::builder(&PATHCALL)
            .manifest(&STORE)
            .security(credentials_of.server.clone())
            .authenticate_frames(true);
        let lookup = async |_: Wish, call: DelegatedCall<Note>| call.reply(note("found")).await;
        let handlers = Handlers::new().handle::<DocsLookup, _, _>(lookup).controller(controller.url(), "docs");
        let handlers =
            handlers.security(credentials_of.server.clone()).authenticate_frames(true).start().await.unwrap();
        timeout(HANG, handlers.directory().wait_for(&"docs".into())).await.expect("the node is registered");
        let builder = builder.controller(controller.url()).advertise(url.clone()).data_address(free).handlers(handlers);
        let server = builder.shared_memory(false).build().await.unwrap();
        let services = tonic::transport::Server::builder()
            .layer(server.clone())
            .add_service(WordsServer::new(Service(Default::default())))
            .add_service(StoreServer::new(StoreHandler::new("one")));
        let mut serving = JoinSet::new();
        match credentials_of.server.credentials() {
            Some(credentials) => {
                serving.spawn(services.serve_with_incoming(TlsIncoming::new(listener, credentials.clone())))
            }
            None => serving.spawn(services.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))),
        };
        until(|| server.pool_stats().is_some_and(|pool| pool.servers == 1)).await;
        Self { controller, _element: element, server, url, credentials_of, _serving: serving }
    }

    async fn channel(&self) -> Channel {
        let mut builder = Channel::builder(self.url.clone(), &PATHCALL).unwrap().manifest(&STORE).shared_memory(false);
        if let Some(credentials) = self.credentials_of.caller.credentials() {
            builder = builder.credentials(credentials.clone());
        }
        timeout(HANG, builder.connect()).await.expect("the channel connects").unwrap()
    }

    /// Keys of map's and clone's frames, as a caller receives them when it connects.
    async fn keys(&self) -> Vec<TokenKey> {
        let channel = self
            .credentials_of
            .caller
            .target(&self.url, ExpectedPeer::new(PartyRole::Server))
            .unwrap()
            .connect()
            .await
            .unwrap();
        let mut peer = PeerClient::new(channel);
        let joined = peer.join(join("/rpctest.Words/Reduce")).await.unwrap().into_inner().message().await.unwrap();
        let method = "/rpctest.Store/Get".into();
        let follow = FollowPoolRequest { udp_port: 9, incarnation: 5, method, ..FollowPoolRequest::default() };
        let view: Option<PoolView> = peer.follow_pool(follow).await.unwrap().into_inner().message().await.unwrap();
        let node =
            peer.lookup_node(LookupNodeRequest { method: "/rpctest.Docs/Lookup".into() }).await.unwrap().into_inner();
        let keys = [joined.unwrap().token_key, view.unwrap().pool.unwrap().token_key, node.token_key];
        keys.into_iter().map(|key| key.expect("frames carry tokens")).collect()
    }
}

/// Makes calls of both kinds and checks each answer. `before` calls were counted earlier.
async fn call(channel: &Channel, before: i64) {
    let (mut words, mut store) = (WordsClient::new(channel.clone()), StoreClient::new(channel.clone()));
    for n in 0..CALLS {
        timeout(HANG, words.reduce(counts(&[("a", 1)], ""))).await.unwrap().unwrap();
        assert_eq!(
            timeout(HANG, store.get(note(&n.to_string()))).await.unwrap().unwrap().into_inner().text,
            n.to_string()
        );
    }
    let mut docs = DocsClient::new(channel.clone());
    let mut found = timeout(HANG, docs.lookup(Wish::default())).await.unwrap().unwrap().into_inner();
    assert_eq!(timeout(HANG, found.message()).await.unwrap().unwrap(), Some(note("found")));
    assert_eq!(timeout(HANG, found.message()).await.unwrap().unwrap(), None);
    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), ..Wanted::default() };
    let found = timeout(HANG, words.query(wanted)).await.unwrap().unwrap().into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("a", before + CALLS)])));
}

#[tokio::test]
async fn calls_with_certificates_use_element_with_tokens() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let system = System::start(PartyCredentials::files(&authority, folder.path())).await;
    let channel = system.channel().await;
    call(&channel, 0).await;
    let operator = system
        .credentials_of
        .operator
        .target(&system.controller.url(), ExpectedPeer::new(PartyRole::Controller))
        .unwrap();
    let status =
        ControllerClient::new(operator.connect().await.unwrap()).status(StatusRequest {}).await.unwrap().into_inner();
    let words = status.applications.iter().find(|application| application.name == "T-WORDS").unwrap();
    assert!(words.authenticated && words.memory.is_some(), "{words:?}");
    assert!(status.pools[0].authenticated, "{:?}", status.pools);
    assert!(system.server.stats().iter().any(|application| application.name == "T-WORDS" && application.element));
}

#[tokio::test]
async fn calls_survive_certificate_renewal() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let system = System::start(PartyCredentials::files(&authority, folder.path())).await;
    let lasting = system.channel().await;
    call(&lasting, 0).await;
    for round in 1..=10 {
        for role in
            [PartyRole::Controller, PartyRole::Element, PartyRole::Server, PartyRole::Caller, PartyRole::Operator]
        {
            authority.write(folder.path(), role, role.name());
        }
        system.credentials_of.all().for_each(Credentials::reload_if_changed);
        call(&lasting, (2 * round - 1) * CALLS).await;
        call(&system.channel().await, 2 * round * CALLS).await;
    }
}

/// Capture of the loopback traffic until `end`.
struct Capture {
    tcpdump: Child,
    file: tempfile::TempPath,
}

impl Capture {
    async fn start() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let mut command = Command::new("tcpdump");
        // Whole packets, with a buffer for the time that the machine stands still.
        command.args(["-i", "lo", "-s", "0", "-U", "--immediate-mode", "-B", "65536", "-Z", "root", "-w"]).arg(&file);
        let mut tcpdump = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().expect("tcpdump is installed");
        let mut printed = BufReader::new(tcpdump.stderr.take().expect("piped")).lines();
        while let Some(line) = timeout(HANG, printed.next_line()).await.expect("the context starts").unwrap() {
            if line.contains("listening on lo") {
                return Self { tcpdump, file };
            }
            assert!(line.starts_with("tcpdump: "), "{line}");
        }
        panic!("tcpdump does not start: it needs root");
    }

    /// Returns all bytes sent so far.
    async fn end(mut self) -> Vec<u8> {
        // Once the last datagram is captured, all earlier ones are.
        let (socket, last) = (UdpSocket::bind("127.0.0.1:0").await.unwrap(), rand::random::<[u8; 16]>());
        socket.send_to(&last, socket.local_addr().unwrap()).await.unwrap();
        until(|| std::fs::read(&self.file).unwrap().windows(last.len()).any(|window| window == last)).await;
        let pid =
            rustix::process::Pid::from_raw(self.tcpdump.id().expect("the program runs").try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        timeout(HANG, self.tcpdump.wait()).await.expect("the test finishes in time").unwrap();
        std::fs::read(&self.file).unwrap()
    }
}

/// Number of occurrences of the keys' words.
fn found(captured: &[u8], keys: &[TokenKey]) -> usize {
    let words: Vec<_> = keys.iter().flat_map(|key| [key.k0.to_le_bytes(), key.k1.to_le_bytes()]).collect();
    captured.windows(8).filter(|window| words.iter().any(|word| word == window)).count()
}

/// The test captures only what its own process sends.
#[tokio::test]
async fn token_keys_cross_network_only_without_certificates() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "capturing needs root");
        return;
    }
    if !is_alone("tls::token_keys_cross_network_only_without_certificates") {
        return;
    }
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    for (credentials_of, clear) in
        [(PartyCredentials::default(), true), (PartyCredentials::files(&authority, folder.path()), false)]
    {
        let capture = Capture::start().await;
        let system = System::start(credentials_of).await;
        call(&system.channel().await, 0).await;
        let keys = system.keys().await;
        let captured = capture.end().await;
        assert!(captured.len() > 10_000, "{} bytes", captured.len());
        assert_eq!(found(&captured, &keys) > 0, clear, "{} times", found(&captured, &keys));
    }
}
