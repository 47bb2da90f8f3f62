//! How callers become members of an application, and cease to be; and what the controller has to do
//! with it.

mod common;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::{Running, counts, gradient, note, str_int};
use http_body_util::Full;
use pathcall_proto::manifest::{Manifest, Method};
use pathcall_proto::v1::controller_server::{Controller, ControllerServer};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{
    ApplicationGrant, EndpointGrant, JoinRequest, LookupReply, LookupRequest, MemoryGrant, RegisterApplicationRequest,
    RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointReply, ReleaseEndpointRequest, StatusReply,
    StatusRequest,
};
use pathcall_rpc::{Channel, Server};
use pathcall_rpc_stubs::PATHCALL;
use pathcall_rpc_stubs::training_client::TrainingClient;
use pathcall_rpc_stubs::words_client::WordsClient;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Status};
use tower::Service;

fn joins(channel: &Channel, app: &str) -> u64 {
    channel.stats().applications.iter().find(|application| application.name == app).unwrap().joins
}

fn members(server: &Server, app: &str) -> usize {
    server.stats().iter().find(|application| application.name == app).unwrap().members
}

/// Waits until a condition that other tasks bring about holds; each turn lets them run.
async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn calls_at_once_join_once() {
    let server = Running::start().await;
    let channel = server.channel().await;
    assert_eq!(joins(&channel, "T-WORDS"), 0);
    let calls = (0..20).map(|_| {
        let mut words = WordsClient::new(channel.clone());
        tokio::spawn(async move { words.reduce(counts(&[("a", 1)], "")).await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(joins(&channel, "T-WORDS"), 1);
    assert_eq!(joins(&channel, "T-SUM"), 0);
    assert_eq!(channel.stats().filtered_calls, 20);
    assert_eq!(channel.stats().handler_calls, 0);
    assert_eq!(members(&server.pathcall, "T-WORDS"), 1);
    drop(channel);
    until(|| members(&server.pathcall, "T-WORDS") == 0).await;
}

#[tokio::test]
async fn a_surplus_worker_is_refused_and_takes_a_place_that_becomes_free() {
    let server = Running::start().await;
    let first = server.channel().await;
    let second = server.channel().await;
    let update = |channel: &Channel| {
        let mut client = TrainingClient::new(channel.clone());
        async move { client.update(gradient(&[1.0])).await }
    };
    let (a, b) = tokio::join!(update(&first), update(&second));
    assert!(a.is_ok() && b.is_ok());
    let third = server.channel().await;
    let error = update(&third).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("T-SUM") && error.message().contains("2 workers"), "{}", error.message());

    drop(first);
    let (a, b) = tokio::join!(update(&third), update(&second));
    assert_eq!(a.unwrap().into_inner().tensor.unwrap().data, [2.0]);
    assert!(b.is_ok());
}

/// The test's manifest, with other digests.
fn other_filters() -> &'static Manifest {
    let methods: Vec<Method> =
        PATHCALL.methods.iter().map(|method| Method { digest: method.digest ^ 1, ..*method }).collect();
    Box::leak(Box::new(Manifest { methods: methods.leak(), ..PATHCALL }))
}

#[tokio::test]
async fn other_filters_are_refused() {
    let server = Running::start().await;
    let channel = Channel::connect(server.uri(), other_filters()).await.unwrap();
    let error = WordsClient::new(channel).reduce(counts(&[("a", 1)], "")).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(
        error.message(),
        format!(
            "/rpctest.Words/Reduce: joining T-WORDS at {}/: client and server were built from different filters of T-WORDS",
            server.uri()
        )
    );
    let both = Channel::builder(server.uri(), &PATHCALL).unwrap().manifest(other_filters());
    assert!(both.connect().await.unwrap_err().to_string().contains("different filters"));
}

#[tokio::test]
async fn a_server_that_comes_back_is_joined_again() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let mut words = WordsClient::new(channel.clone());
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();
    let port = server.address.port();
    // Graceful: it ends although the channel holds its stream.
    server.stop().await;

    let server = Running::start_with(Server::builder(&PATHCALL).build().await.unwrap(), port).await;
    // The loss is noticed as the stream's end, which may come after the first call is on its way.
    let mut outcome = words.reduce(counts(&[("a", 2)], "")).await;
    if let Err(error) = &outcome {
        assert_eq!(error.code(), Code::Unavailable, "{error}");
        outcome = words.reduce(counts(&[("a", 2)], "")).await;
    }
    outcome.unwrap();
    assert_eq!(joins(&channel, "T-WORDS"), 2);
    assert_eq!(members(&server.pathcall, "T-WORDS"), 1);
}

#[tokio::test]
async fn a_call_in_flight_ends_with_its_server() {
    let server = Running::start().await;
    let mut client = TrainingClient::new(server.channel().await);
    // The other worker never comes.
    let waiting = tokio::spawn(async move { client.update(gradient(&[1.0])).await });
    until(|| members(&server.pathcall, "T-SUM") == 1).await;
    let uri = server.uri();
    server.stop().await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains(&uri), "{}", error.message());
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = Channel::connect(format!("http://{gone}"), &PATHCALL).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("no gRPC server answers at http://{gone}/:")), "{error}");
    assert!(error.contains("refused"), "{error}");
    assert!(Channel::connect("not a uri", &PATHCALL).await.unwrap_err().to_string().starts_with("not the address"));

    let lazy = Channel::builder(format!("http://{gone}"), &PATHCALL).unwrap().connect_lazy().unwrap();
    let error = WordsClient::new(lazy.clone()).reduce(counts(&[("a", 1)], "")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let error = TrainingClient::new(lazy.clone()).echo(note("hi")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);

    // It comes up later.
    let pathcall = Server::builder(&PATHCALL).build().await.unwrap();
    let _server = Running::start_with(pathcall, gone.port()).await;
    WordsClient::new(lazy).reduce(counts(&[("a", 1)], "")).await.unwrap();
}

#[tokio::test]
async fn a_compressed_request_is_refused_and_counted() {
    let server = Running::start().await;
    let mut channel = server.channel().await;
    let body = tonic::body::Body::new(Full::new(Bytes::from_static(b"\x01\0\0\0\x01x")));
    let request = http::Request::post("/rpctest.Words/Reduce").body(body).unwrap();
    let error = channel.call(request).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("without compression"), "{}", error.message());
    assert_eq!(channel.stats().compressed_refused, 1);
}

/// What a controller was asked, and how it answers.
#[derive(Debug, Default)]
struct Book {
    refuse: bool,
    memory: Option<MemoryGrant>,
    registered: Vec<RegisterApplicationRequest>,
    endpoints: Vec<RegisterEndpointRequest>,
    released: Vec<ReleaseEndpointRequest>,
    /// Ends of the streams that applications hold.
    streams: Vec<mpsc::Sender<Result<ApplicationGrant, Status>>>,
}

#[derive(Debug, Clone, Default)]
struct FakeController(Arc<Mutex<Book>>);

#[tonic::async_trait]
impl Controller for FakeController {
    type RegisterApplicationStream = ReceiverStream<Result<ApplicationGrant, Status>>;
    type RegisterElementStream = ReceiverStream<Result<pathcall_proto::v1::ElementGrant, Status>>;

    async fn register_application(
        &self,
        request: Request<RegisterApplicationRequest>,
    ) -> Result<Response<Self::RegisterApplicationStream>, Status> {
        let mut book = self.0.lock().unwrap();
        if book.refuse {
            return Err(Status::failed_precondition("another server owns it"));
        }
        let request = request.into_inner();
        let memory = book.memory.clone().filter(|_| request.rows > 0);
        book.registered.push(request);
        let gaid = book.registered.len() as u32;
        let (sender, receiver) = mpsc::channel(4);
        sender.try_send(Ok(ApplicationGrant { gaid, epoch: 7, endpoint: 100 + gaid, memory })).unwrap();
        book.streams.push(sender);
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn register_endpoint(
        &self,
        request: Request<RegisterEndpointRequest>,
    ) -> Result<Response<EndpointGrant>, Status> {
        let mut book = self.0.lock().unwrap();
        book.endpoints.push(request.into_inner());
        Ok(Response::new(EndpointGrant { endpoint: 1000, slot_base: 16, flows: 2 }))
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

    async fn lookup(&self, _: Request<LookupRequest>) -> Result<Response<LookupReply>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Err(Status::unimplemented(""))
    }
}

impl FakeController {
    async fn start(&self, address: &str) -> SocketAddr {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(ControllerServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        address
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
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
            ("T-BUMP", 32, 1024),
            ("T-LOCKS", 32, 1024),
            ("T-SUM", 256, 1024),
            ("T-VOTE", 32, 1024),
            ("T-WORDS", 32, 1024)
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
    // Without an element's memory callers need not be known to the controller.
    let server = Running::start_with(pathcall, 0).await;
    let mut words = WordsClient::new(server.channel().await);
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();
    assert!(controller.book().endpoints.is_empty());
}

#[tokio::test]
async fn a_refusal_of_the_controller_is_the_builders() {
    let controller = FakeController::default();
    controller.book().refuse = true;
    let address = controller.start("127.0.0.1:0").await;
    let error = Server::builder(&PATHCALL).controller(format!("http://{address}")).build().await.unwrap_err();
    assert_eq!(error.to_string(), format!("the controller at http://{address} refuses T-BUMP: another server owns it"));
}

#[tokio::test]
async fn a_controller_that_is_away_is_found_again() {
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let pathcall = Server::builder(&PATHCALL).controller(format!("http://{away}")).build().await.unwrap();
    let server = Running::start_with(pathcall, 0).await;
    let mut words = WordsClient::new(server.channel().await);
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();

    let controller = FakeController::default();
    controller.start(&away.to_string()).await;
    until(|| controller.book().registered.len() == 5).await;
    let rows = |app: &str| controller.book().registered.iter().find(|request| request.name == app).unwrap().rows;
    // Memory would be of no use to an application that has begun without.
    assert_eq!((rows("T-WORDS"), rows("T-SUM")), (0, 1024));
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();
    let wanted = pathcall_rpc_stubs::Wanted { keys: Some(str_int(&[("a", 0)])), text: String::new() };
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
    let digest = PATHCALL.methods.iter().find(|method| method.app == "T-SUM").unwrap().digest;
    let request =
        JoinRequest { application: "T-SUM".into(), filter_digest: digest, udp_port: 9, incarnation: 5, flows: 3 };

    let mut peer = PeerClient::connect(server.uri()).await.unwrap();
    let mut stream = peer.join(request.clone()).await.unwrap().into_inner();
    let grant = stream.message().await.unwrap().unwrap();
    assert_eq!((grant.gaid, grant.epoch, grant.server), (3, 7, 103));
    assert_eq!((grant.endpoint, grant.slot_base, grant.flows), (1000, 16, 2));
    assert_eq!((grant.element_address, grant.rows, grant.width), (element_address, 8, 256));
    let endpoints = controller.book().endpoints.clone();
    let registered = RegisterEndpointRequest { gaid: 3, incarnation: 5, data_address: "127.0.0.1:9".into(), flows: 3 };
    assert_eq!(endpoints, [registered]);
    drop(stream);
    until(|| !controller.book().released.is_empty()).await;
    assert_eq!(controller.book().released, [ReleaseEndpointRequest { gaid: 3, endpoint: 1000 }]);

    // The memory moves: those who come now work past the element.
    let moved = ApplicationGrant { gaid: 3, epoch: 8, endpoint: 103, memory: None };
    let sender = controller.book().streams[2].clone();
    sender.send(Ok(moved)).await.unwrap();
    until(|| server.pathcall.stats().iter().all(|application| !application.element)).await;
    let mut stream = peer.join(request).await.unwrap().into_inner();
    let grant = stream.message().await.unwrap().unwrap();
    assert_eq!(grant.element_address, "");
    assert_ne!(grant.endpoint, 1000);
}

#[tokio::test]
async fn a_join_that_makes_no_sense_is_refused() {
    let server = Running::start().await;
    let mut peer = PeerClient::connect(server.uri()).await.unwrap();
    let digest = PATHCALL.methods.iter().find(|method| method.app == "T-SUM").unwrap().digest;
    let good =
        JoinRequest { application: "T-SUM".into(), filter_digest: digest, udp_port: 9, incarnation: 5, flows: 3 };
    for (request, code) in [
        (JoinRequest { udp_port: 0, ..good.clone() }, Code::InvalidArgument),
        (JoinRequest { udp_port: 70_000, ..good.clone() }, Code::InvalidArgument),
        (JoinRequest { application: "no such".into(), ..good.clone() }, Code::FailedPrecondition),
        (JoinRequest { filter_digest: 0, ..good }, Code::FailedPrecondition),
    ] {
        assert_eq!(peer.join(request).await.unwrap_err().code(), code);
    }
    assert_eq!(members(&server.pathcall, "T-SUM"), 0);
}
