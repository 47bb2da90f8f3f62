//! What a server and the controller have to say to each other.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use pathcall_proto::v1::controller_server::{Controller, ControllerServer};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{
    ApplicationGrant, EndpointGrant, HeldGrant, JoinRequest, LookupReply, LookupRequest, MemoryGrant,
    RegisterApplicationRequest, RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointReply,
    ReleaseEndpointRequest, StatusReply, StatusRequest,
};
use pathcall_rpc::Server;
use pathcall_test_support::service::{Running, counts, join, str_int, until};
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::{HANG, loopback};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};

/// What a controller was asked, and how it answers.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Registrations that are refused, as another server owns the name.
    refusals: usize,
    /// Callers are not registered.
    pub(crate) away: bool,
    /// Callers are answered when they are told to be.
    pub(crate) slow: Option<Arc<Notify>>,
    pub(crate) memory: Option<MemoryGrant>,
    registered: Vec<RegisterApplicationRequest>,
    pub(crate) endpoints: Vec<RegisterEndpointRequest>,
    pub(crate) released: Vec<ReleaseEndpointRequest>,
    /// Ends of the streams that applications hold.
    streams: Vec<mpsc::Sender<Result<ApplicationGrant, Status>>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FakeController(Arc<Mutex<Book>>);

#[tonic::async_trait]
impl Controller for FakeController {
    type RegisterApplicationStream = ReceiverStream<Result<ApplicationGrant, Status>>;
    type RegisterElementStream = ReceiverStream<Result<pathcall_proto::v1::ElementGrant, Status>>;
    type JoinPoolStream = tokio_stream::Empty<Result<pathcall_proto::v1::PoolGrant, Status>>;
    type NodesStream = tokio_stream::Empty<Result<pathcall_proto::v1::NodesReply, Status>>;

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
        let memory = memory.filter(|memory| request.rows > 0 && !request.silent.contains(&memory.boot_id));
        let counted = book.registered.len() as u32 + 1;
        let (gaid, endpoint) = request.held.map_or((counted, 100 + counted), |held| (held.gaid, held.endpoint));
        let epoch = request.held.map_or(7, |held| held.epoch + 1);
        book.registered.push(request);
        let (sender, receiver) = mpsc::channel(4);
        sender.try_send(Ok(ApplicationGrant { gaid, epoch, endpoint, memory, token_key: None })).unwrap();
        book.streams.push(sender);
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn register_endpoint(
        &self,
        request: Request<RegisterEndpointRequest>,
    ) -> Result<Response<EndpointGrant>, Status> {
        let request = request.into_inner();
        let endpoint = if request.endpoint == 0 { 1000 } else { request.endpoint };
        let slow = self.book().slow.clone();
        self.book().endpoints.push(request);
        if let Some(slow) = slow {
            slow.notified().await;
        }
        if self.book().away {
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

    async fn nodes(&self, _: Request<pathcall_proto::v1::NodesRequest>) -> Result<Response<Self::NodesStream>, Status> {
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

    /// The stream by which an application that registered last hears of its grants.
    pub(crate) fn stream_of(&self, name: &str) -> mpsc::Sender<Result<ApplicationGrant, Status>> {
        let book = self.book();
        let last = book.registered.iter().rposition(|request| request.name == name).expect("it has registered");
        book.streams[last].clone()
    }

    pub(crate) fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }
}

#[tokio::test]
async fn an_application_is_registered_with_what_it_needs() {
    let controller = FakeController::default();
    let address = controller.start("127.0.0.1:0").await;
    let pathcall =
        Server::builder(&PATHCALL).controller(format!("http://{address}")).advertise("http://me:1").build().await;
    let pathcall = pathcall.unwrap();
    let registered = controller.book().registered.clone();
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
    // Callers are known to the controller even without memory: there may be some one day.
    let server = Running::start_with(pathcall, 0).await;
    let mut words = WordsClient::new(server.channel().await);
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();
    assert_eq!(controller.book().endpoints.len(), 1);
}

#[tokio::test]
async fn a_refusal_of_the_controller_is_the_builders() {
    let controller = FakeController::default();
    controller.book().refusals = usize::MAX;
    let address = controller.start("127.0.0.1:0").await;
    let error = Server::builder(&PATHCALL).controller(format!("http://{address}")).build().await.unwrap_err();
    assert_eq!(error.to_string(), format!("the controller at http://{address} refuses T-BUMP: another server owns it"));
}

#[tokio::test]
async fn a_server_that_starts_before_its_predecessors_end_is_known_has_its_place() {
    let controller = FakeController::default();
    controller.book().refusals = 2;
    let address = controller.start("127.0.0.1:0").await;
    let built = Server::builder(&PATHCALL).controller(format!("http://{address}")).build().await;
    assert!(built.is_ok() && controller.book().refusals == 0, "{built:?}");
}

#[tokio::test]
async fn a_server_without_maps_asks_for_none_and_sends_callers_to_their_owner() {
    let controller = FakeController::default();
    controller.book().refusals = usize::MAX;
    let address = controller.start("127.0.0.1:0").await;
    let builder = Server::builder(&PATHCALL).controller(format!("http://{address}"));
    let server = Running::start_with(builder.without_maps().build().await.unwrap(), 0).await;
    let error = WordsClient::new(server.channel().await).reduce(counts(&[("a", 1)], "")).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::FailedPrecondition);
    let says = "this server does not have the application \"T-WORDS\": connect to the one that owns its map";
    assert!(error.message().contains(says), "{error}");
    assert_eq!(controller.book().registered.len(), 0);
}

#[tokio::test]
async fn a_port_in_use_is_said() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // One port can't do for all applications.
    let error = Server::builder(&PATHCALL).data_address(taken).build().await.unwrap_err().to_string();
    assert!(error.starts_with("no UDP port for T-ELECT on 127.0.0.1:"), "{error}");
    assert!(error.contains("in use"), "{error}");
    let error = Server::builder(&PATHCALL).controller("not a uri").build().await.unwrap_err().to_string();
    assert!(error.starts_with("controller address \"not a uri\": expected http://host:port"), "{error}");
}

#[tokio::test]
async fn a_controller_that_is_away_is_found_again() {
    let away = loopback::own();
    let pathcall = Server::builder(&PATHCALL).controller(format!("http://{away}")).build().await.unwrap();
    let server = Running::start_with(pathcall, 0).await;
    let mut words = WordsClient::new(server.channel().await);
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();

    let controller = FakeController::default();
    controller.start(&away.to_string()).await;
    let named = |app: &str| controller.book().registered.iter().any(|request| request.name == app);
    until(|| PATHCALL.methods.iter().all(|method| named(method.app))).await;
    let asked = |app: &str| {
        let request = controller.book().registered.iter().find(|request| request.name == app).cloned().unwrap();
        (request.rows, request.held.map(|held| held.in_software))
    };
    // One that has begun without it says what its callers know it by.
    assert_eq!((asked("T-WORDS"), asked("T-SUM")), ((1024, Some(true)), (1024, None)));
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();
    let wanted = pathcall_test_support::stubs::Wanted { keys: Some(str_int(&[("a", 0)])), text: String::new() };
    assert_eq!(words.query(wanted).await.unwrap().into_inner().kvs, Some(str_int(&[("a", 2)])));
}

#[tokio::test]
async fn with_memory_a_caller_is_registered_and_released() {
    let controller = FakeController::default();
    // Nobody is there, and nothing is sent: the caller only joins.
    let element = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let element_address = element.local_addr().unwrap().to_string();
    controller.book().memory = Some(MemoryGrant {
        element: 1,
        data_address: element_address.clone(),
        rows: 8,
        width: 256,
        ..MemoryGrant::default()
    });
    let address = controller.start("127.0.0.1:0").await;
    let pathcall = Server::builder(&PATHCALL).controller(format!("http://{address}")).build().await.unwrap();
    let server = Running::start_with(pathcall, 0).await;
    let request = JoinRequest { flows: 3, ..join("/rpctest.Training/Update") };

    let mut peer = PeerClient::connect(server.uri()).await.unwrap();
    let mut stream = peer.join(request.clone()).await.unwrap().into_inner();
    let grant = stream.message().await.unwrap().unwrap();
    assert_eq!((grant.gaid, grant.epoch, grant.server), (4, 7, 104));
    assert_eq!((grant.endpoint, grant.slot_base, grant.flows), (1000, 16, 2));
    assert_eq!((grant.element_address, grant.rows, grant.width), (element_address, 8, 256));
    let endpoints = controller.book().endpoints.clone();
    let registered = RegisterEndpointRequest {
        gaid: 4,
        incarnation: 5,
        data_address: "127.0.0.1:9".into(),
        flows: 3,
        server: 0,
        endpoint: 0,
    };
    assert_eq!(endpoints, [registered]);
    drop(stream);
    until(|| !controller.book().released.is_empty()).await;
    assert_eq!(controller.book().released, [ReleaseEndpointRequest { gaid: 4, endpoint: 1000, server: 0 }]);

    // The memory moves: those who come now work past the element.
    let moved = ApplicationGrant { gaid: 4, epoch: 8, endpoint: 104, memory: None, token_key: None };
    let sender = controller.stream_of("T-SUM");
    sender.send(Ok(moved)).await.unwrap();
    until(|| server.pathcall.stats().iter().all(|application| !application.element)).await;
    let mut stream = peer.join(request).await.unwrap().into_inner();
    let grant = stream.message().await.unwrap().unwrap();
    assert_eq!((grant.element_address.as_str(), grant.endpoint, grant.epoch), ("", 1000, 8));
}

#[tokio::test]
async fn an_element_that_does_not_answer_is_named_and_its_next_start_taken_at_once() {
    let controller = FakeController::default();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let data_address = silent.local_addr().unwrap().to_string();
    let memory = MemoryGrant { data_address, rows: 8, width: 64, boot_id: 5, ..MemoryGrant::default() };
    controller.book().memory = Some(memory.clone());
    let address = controller.start("127.0.0.1:0").await;
    let pathcall = Server::builder(&PATHCALL).controller(format!("http://{address}")).build().await.unwrap();
    let server = Running::start_with(pathcall, 0).await;
    let mut words = WordsClient::new(server.channel().await);
    let asked = || controller.book().registered.iter().rfind(|request| request.name == "T-WORDS").cloned().unwrap();
    // What goes to it is answered by the server when it has not been for a while.
    let silent = async {
        while asked().silent.is_empty() {
            words.reduce(counts(&[("a", 1)], "")).await.unwrap();
        }
    };
    tokio::time::timeout(HANG, silent).await.expect("it is silent");
    let asked = asked();
    assert_eq!((asked.silent, asked.rows), (vec![5], 1024));

    let memory = Some(MemoryGrant { boot_id: 6, ..memory });
    let HeldGrant { gaid, endpoint, epoch, .. } = asked.held.unwrap();
    let anew = ApplicationGrant { gaid, epoch: epoch + 2, endpoint, memory, token_key: None };
    let stream = controller.stream_of("T-WORDS");
    stream.send(Ok(anew)).await.unwrap();
    until(|| server.pathcall.stats().iter().any(|a| a.name == "T-WORDS" && a.element)).await;
}

#[tokio::test]
async fn an_application_that_gets_no_memory_says_so_once_unless_it_asked_for_none() {
    for (rows, said) in [(8, 1), (0, 0)] {
        let (log, controller) = (Log::default(), FakeController::default());
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        // With one subscriber the first thread to come by an event says for all whether it is wanted; with two, both say.
        let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let address = controller.start("127.0.0.1:0").await;
        let builder = Server::builder(&PATHCALL).controller(format!("http://{address}")).memory(rows);
        let server = Running::start_with(builder.build().await.unwrap(), 0).await;
        let mut words = WordsClient::new(server.channel().await);
        for _ in 0..2 {
            words.reduce(counts(&[("a", 1)], "")).await.unwrap();
        }
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.matches("working in software: no element has memory left").count(), said, "{log}");
    }
}

/// What was logged.
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
