//! Tests of the protocol between server and controller.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use pathcall_proto::v1::controller_server::{Controller, ControllerServer};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{
    ApplicationGrant, EndpointGrant, HeldGrant, JoinRequest, LookupReply, LookupRequest, MemoryGrant,
    RegisterApplicationRequest, RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointReply,
    ReleaseEndpointRequest, StatusReply, StatusRequest,
};
use pathcall_rpc::Layer;
use pathcall_test_support::service::{TestServer, counts, join, str_int, until};
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::{HANG, loopback};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};

/// Fake controller: records requests and returns set answers.
#[derive(Debug, Default)]
pub(crate) struct ControllerRecords {
    /// Number of registrations to refuse because another server owns the name.
    refusals: usize,
    /// Whether registrations of callers fail.
    pub(crate) away: bool,
    /// Registrations of callers wait for this notification.
    pub(crate) slow: Option<Arc<Notify>>,
    pub(crate) memory: Option<MemoryGrant>,
    pub(crate) registered: Vec<RegisterApplicationRequest>,
    pub(crate) endpoints: Vec<RegisterEndpointRequest>,
    pub(crate) released: Vec<ReleaseEndpointRequest>,
    /// Senders of the streams of applications.
    streams: Vec<mpsc::Sender<Result<ApplicationGrant, Status>>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FakeController(Arc<Mutex<ControllerRecords>>);

#[tonic::async_trait]
impl Controller for FakeController {
    type RegisterApplicationStream = ReceiverStream<Result<ApplicationGrant, Status>>;
    type RegisterElementStream = ReceiverStream<Result<pathcall_proto::v1::ElementGrant, Status>>;
    type JoinPoolStream = tokio_stream::Empty<Result<pathcall_proto::v1::PoolGrant, Status>>;
    type FollowNodesStream = tokio_stream::Empty<Result<pathcall_proto::v1::NodeList, Status>>;

    async fn register_application(
        &self,
        request: Request<RegisterApplicationRequest>,
    ) -> Result<Response<Self::RegisterApplicationStream>, Status> {
        let mut book = self.0.lock().unwrap();
        if book.refusals > 0 {
            book.refusals -= 1;
            return Err(Status::failed_precondition("another server owns it"));
        }
        let request = request.into_inner();
        let memory = book.memory.clone();
        let memory = memory.filter(|memory| request.rows > 0 && !request.silent_elements.contains(&memory.boot_id));
        let counted = book.registered.len() as u32 + 1;
        let (gaid, endpoint) = request.held.map_or((counted, 100 + counted), |held| (held.gaid, held.endpoint));
        let epoch = request.held.map_or(7, |held| held.epoch + 1);
        book.registered.push(request);
        let (sender, receiver) = mpsc::channel(4);
        sender.try_send(Ok(ApplicationGrant { gaid, epoch, endpoint, memory, token_key: None, recall: 0 })).unwrap();
        book.streams.push(sender);
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn register_endpoint(
        &self,
        request: Request<RegisterEndpointRequest>,
    ) -> Result<Response<EndpointGrant>, Status> {
        let request = request.into_inner();
        let endpoint = if request.endpoint == 0 { 1000 } else { request.endpoint };
        let slow = self.records().slow.clone();
        self.records().endpoints.push(request);
        if let Some(slow) = slow {
            slow.notified().await;
        }
        if self.records().away {
            return Err(Status::unavailable("away"));
        }
        Ok(Response::new(EndpointGrant { endpoint, slot_base: 16, flows: 2 }))
    }

    async fn release_endpoint(
        &self,
        request: Request<ReleaseEndpointRequest>,
    ) -> Result<Response<ReleaseEndpointReply>, Status> {
        self.0.lock().unwrap().released.push(request.into_inner());
        Ok(Response::new(ReleaseEndpointReply {}))
    }

    async fn register_element(
        &self,
        _: Request<RegisterElementRequest>,
    ) -> Result<Response<Self::RegisterElementStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn follow_nodes(
        &self,
        _: Request<pathcall_proto::v1::FollowNodesRequest>,
    ) -> Result<Response<Self::FollowNodesStream>, Status> {
        Err(Status::unimplemented("no part of this test"))
    }

    async fn join_pool(
        &self,
        _: Request<pathcall_proto::v1::JoinPoolRequest>,
    ) -> Result<Response<Self::JoinPoolStream>, Status> {
        Err(Status::unimplemented("no pools here"))
    }

    async fn lookup(&self, _: Request<LookupRequest>) -> Result<Response<LookupReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Err(Status::unimplemented(""))
    }
}

impl FakeController {
    pub(crate) async fn start(&self, address: &str) -> SocketAddr {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(ControllerServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        address
    }

    /// Sender of grants to the latest registration of an application.
    pub(crate) fn stream_of(&self, name: &str) -> mpsc::Sender<Result<ApplicationGrant, Status>> {
        let book = self.records();
        let last = book.registered.iter().rposition(|request| request.name == name).expect("it has registered");
        book.streams[last].clone()
    }

    pub(crate) fn records(&self) -> std::sync::MutexGuard<'_, ControllerRecords> {
        self.0.lock().unwrap()
    }
}

#[tokio::test]
async fn application_registers_its_needs() {
    let controller = FakeController::default();
    let address = controller.start("127.0.0.1:0").await;
    let pathcall =
        Layer::builder(&PATHCALL).controller(format!("http://{address}")).advertise("http://me:1").build().await;
    let pathcall = pathcall.unwrap();
    let registered = controller.records().registered.clone();
    let asked: Vec<_> = registered.iter().map(|request| (request.name.as_str(), request.width, request.rows)).collect();
    assert_eq!(
        asked,
        [
            ("T-BUMP", 64, 0),
            ("T-ELECT", 1, 1024),
            ("T-LOCKS", 1, 1024),
            ("T-SUM", 256, 1024),
            ("T-VOTE", 64, 0),
            ("T-WORDS", 64, 1024)
        ]
    );
    for request in &registered {
        let data: SocketAddr = request.data_address.parse().unwrap();
        assert!(data.ip().is_loopback() && data.port() != 0, "{data}");
        assert_eq!(request.service_address, "http://me:1");
        assert_ne!(request.incarnation, 0);
        assert_eq!(
            Some(request.filter_digest),
            PATHCALL.methods.iter().find(|m| m.app == request.name).map(|m| m.digest)
        );
    }
    // Callers register at the controller even without memory, since memory may become free later.
    let server = TestServer::start_with(pathcall, 0).await;
    let mut words = WordsClient::new(server.channel().await);
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();
    assert_eq!(controller.records().endpoints.len(), 1);
}

#[tokio::test]
async fn controller_refusal_fails_build() {
    let controller = FakeController::default();
    controller.records().refusals = usize::MAX;
    let address = controller.start("127.0.0.1:0").await;
    let error = Layer::builder(&PATHCALL).controller(format!("http://{address}")).build().await.unwrap_err();
    assert_eq!(error.to_string(), format!("the controller at http://{address} refused T-BUMP: another server owns it"));
}

#[tokio::test]
async fn successor_waits_for_predecessors_end() {
    let controller = FakeController::default();
    controller.records().refusals = 2;
    let address = controller.start("127.0.0.1:0").await;
    let built = Layer::builder(&PATHCALL).controller(format!("http://{address}")).build().await;
    assert!(built.is_ok() && controller.records().refusals == 0, "{built:?}");
}

#[tokio::test]
async fn server_without_maps_refers_callers_to_owner() {
    let controller = FakeController::default();
    controller.records().refusals = usize::MAX;
    let address = controller.start("127.0.0.1:0").await;
    let builder = Layer::builder(&PATHCALL).controller(format!("http://{address}"));
    let server = TestServer::start_with(builder.without_maps().build().await.unwrap(), 0).await;
    let error = WordsClient::new(server.channel().await).reduce(counts(&[("a", 1)], "")).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::FailedPrecondition);
    let says = "this server does not have the application \"T-WORDS\": connect to the one that owns its map";
    assert!(error.message().contains(says), "{error}");
    assert_eq!(controller.records().registered.len(), 0);
}

#[tokio::test]
async fn port_in_use_is_reported() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // One port is not enough for all applications.
    let error = Layer::builder(&PATHCALL).data_address(taken).build().await.unwrap_err().to_string();
    assert!(error.starts_with("cannot open a UDP port for T-ELECT on 127.0.0.1:"), "{error}");
    assert!(error.contains("in use"), "{error}");
    let error = Layer::builder(&PATHCALL).controller("not a uri").build().await.unwrap_err().to_string();
    assert!(error.starts_with("controller address \"not a uri\": expected http://host:port"), "{error}");
}

#[tokio::test]
async fn unreachable_controller_is_retried() {
    let away = loopback::own();
    let pathcall = Layer::builder(&PATHCALL).controller(format!("http://{away}")).build().await.unwrap();
    let server = TestServer::start_with(pathcall, 0).await;
    let mut words = WordsClient::new(server.channel().await);
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();

    let controller = FakeController::default();
    controller.start(&away.to_string()).await;
    let named = |app: &str| controller.records().registered.iter().any(|request| request.name == app);
    until(|| PATHCALL.methods.iter().all(|method| named(method.app))).await;
    let asked = |app: &str| {
        let request = controller.records().registered.iter().find(|request| request.name == app).cloned().unwrap();
        (request.rows, request.held.map(|held| held.in_software))
    };
    // An application that started without the controller sends the ids that its callers know.
    assert_eq!((asked("T-WORDS"), asked("T-SUM")), ((1024, Some(true)), (1024, None)));
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();
    let wanted = pathcall_test_support::stubs::Wanted { keys: Some(str_int(&[("a", 0)])), text: String::new() };
    assert_eq!(words.query(wanted).await.unwrap().into_inner().kvs, Some(str_int(&[("a", 2)])));
}

#[tokio::test]
async fn caller_is_registered_and_released_with_memory() {
    let controller = FakeController::default();
    // No element listens there; the caller only joins and sends nothing.
    let element = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let element_address = element.local_addr().unwrap().to_string();
    controller.records().memory = Some(MemoryGrant {
        element: 1,
        data_address: element_address.clone(),
        rows: 8,
        width: 256,
        ..MemoryGrant::default()
    });
    let address = controller.start("127.0.0.1:0").await;
    let pathcall = Layer::builder(&PATHCALL).controller(format!("http://{address}")).build().await.unwrap();
    let server = TestServer::start_with(pathcall, 0).await;
    let request = JoinRequest { flows: 3, ..join("/rpctest.Training/Update") };

    let mut peer = PeerClient::connect(server.uri()).await.unwrap();
    let mut stream = peer.join(request.clone()).await.unwrap().into_inner();
    let grant = stream.message().await.unwrap().unwrap();
    assert_eq!((grant.gaid, grant.epoch, grant.server), (4, 7, 104));
    assert_eq!((grant.endpoint, grant.slot_base, grant.flows), (1000, 16, 2));
    assert_eq!((grant.element_address, grant.rows, grant.width), (element_address, 8, 256));
    let endpoints = controller.records().endpoints.clone();
    let registered = RegisterEndpointRequest {
        gaid: 4,
        incarnation: 5,
        data_address: "127.0.0.1:9".into(),
        flows: 3,
        ..RegisterEndpointRequest::default()
    };
    assert_eq!(endpoints, [registered]);
    drop(stream);
    until(|| !controller.records().released.is_empty()).await;
    assert_eq!(controller.records().released, [ReleaseEndpointRequest { gaid: 4, endpoint: 1000, server: 0 }]);

    // The memory is withdrawn: new callers work without the element.
    let moved = ApplicationGrant { gaid: 4, epoch: 8, endpoint: 104, memory: None, token_key: None, recall: 0 };
    let sender = controller.stream_of("T-SUM");
    sender.send(Ok(moved)).await.unwrap();
    until(|| server.pathcall.stats().iter().all(|application| !application.element)).await;
    let mut stream = peer.join(request).await.unwrap().into_inner();
    let grant = stream.message().await.unwrap().unwrap();
    assert_eq!((grant.element_address.as_str(), grant.endpoint, grant.epoch), ("", 1000, 8));
}

#[tokio::test]
async fn silent_element_is_reported_and_its_restart_used() {
    let controller = FakeController::default();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let data_address = silent.local_addr().unwrap().to_string();
    let memory = MemoryGrant { data_address, rows: 8, width: 64, boot_id: 5, ..MemoryGrant::default() };
    controller.records().memory = Some(memory.clone());
    let address = controller.start("127.0.0.1:0").await;
    let pathcall = Layer::builder(&PATHCALL).controller(format!("http://{address}")).build().await.unwrap();
    let server = TestServer::start_with(pathcall, 0).await;
    let mut words = WordsClient::new(server.channel().await);
    let asked = || controller.records().registered.iter().rfind(|request| request.name == "T-WORDS").cloned().unwrap();
    // The element does not answer, so the server takes over after a while.
    let silent = async {
        while asked().silent_elements.is_empty() {
            words.reduce(counts(&[("a", 1)], "")).await.unwrap();
        }
    };
    tokio::time::timeout(HANG, silent).await.expect("the element is reported as silent");
    let asked = asked();
    assert_eq!((asked.silent_elements, asked.rows), (vec![5], 1024));

    let memory = Some(MemoryGrant { boot_id: 6, ..memory });
    let HeldGrant { gaid, endpoint, epoch, .. } = asked.held.unwrap();
    let anew = ApplicationGrant { gaid, epoch: epoch + 2, endpoint, memory, token_key: None, recall: 0 };
    let stream = controller.stream_of("T-WORDS");
    stream.send(Ok(anew)).await.unwrap();
    until(|| server.pathcall.stats().iter().any(|a| a.name == "T-WORDS" && a.element)).await;
}

#[tokio::test]
async fn missing_memory_is_logged_once() {
    for (rows, said) in [(8, 1), (0, 0)] {
        let (log, controller) = (Log::default(), FakeController::default());
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        // With one subscriber, the first thread at a log statement decides for all; with two, each thread decides.
        let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let address = controller.start("127.0.0.1:0").await;
        let builder = Layer::builder(&PATHCALL).controller(format!("http://{address}")).memory(rows);
        let server = TestServer::start_with(builder.build().await.unwrap(), 0).await;
        let mut words = WordsClient::new(server.channel().await);
        for _ in 0..2 {
            words.reduce(counts(&[("a", 1)], "")).await.unwrap();
        }
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.matches("working in software: no element has memory left").count(), said, "{log}");
    }
}

/// Recorded log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
