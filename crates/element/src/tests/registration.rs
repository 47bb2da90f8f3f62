//! Tests of an element's registration with a controller that starts late, disappears and comes back.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use super::common::{ElementFixture, config, fixture_with};
use crate::{Registration, Security, run};
use pathcall_proto::v1::controller_server::{Controller, ControllerServer};
use pathcall_proto::v1::{
    ApplicationGrant, ElementGrant, EndpointEntry, EndpointGrant, InstallPoolRequest, LookupReply, LookupRequest,
    RegisterApplicationRequest, RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointReply,
    ReleaseEndpointRequest, SetEndpointsRequest, StatusReply, StatusRequest,
};
use pathcall_test_support::{HANG, loopback};
use pathcall_wire::clone::{emit, switch_id};
use pathcall_wire::{BaseRepr, CloneFrame, CloneRepr, FrameKind, MAX_FRAME};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

type Stream<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;
type Grants = mpsc::Sender<Result<ElementGrant, Status>>;

/// Controller that hands each registration to the test.
struct TestController(mpsc::Sender<(RegisterElementRequest, Grants)>);

#[tonic::async_trait]
impl Controller for TestController {
    type RegisterApplicationStream = Stream<ApplicationGrant>;
    type RegisterElementStream = Stream<ElementGrant>;
    type FollowNodesStream = tokio_stream::Empty<Result<pathcall_proto::v1::NodeList, Status>>;
    type JoinPoolStream = tokio_stream::Empty<Result<pathcall_proto::v1::PoolGrant, Status>>;

    async fn register_element(
        &self,
        request: Request<RegisterElementRequest>,
    ) -> Result<Response<Self::RegisterElementStream>, Status> {
        let (grants, stream) = mpsc::channel(1);
        self.0.send((request.into_inner(), grants)).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn register_application(
        &self,
        _: Request<RegisterApplicationRequest>,
    ) -> Result<Response<Self::RegisterApplicationStream>, Status> {
        Err(Status::unavailable("elements only"))
    }

    async fn register_endpoint(&self, _: Request<RegisterEndpointRequest>) -> Result<Response<EndpointGrant>, Status> {
        Err(Status::unavailable("elements only"))
    }

    async fn release_endpoint(
        &self,
        _: Request<ReleaseEndpointRequest>,
    ) -> Result<Response<ReleaseEndpointReply>, Status> {
        Err(Status::unavailable("elements only"))
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
        Err(Status::unimplemented("no part of this test"))
    }

    async fn lookup(&self, _: Request<LookupRequest>) -> Result<Response<LookupReply>, Status> {
        Err(Status::unavailable("elements only"))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Err(Status::unavailable("elements only"))
    }
}

struct FakeController {
    registrations: mpsc::Receiver<(RegisterElementRequest, Grants)>,
    server: JoinHandle<()>,
}

async fn controller(addr: SocketAddr) -> (SocketAddr, FakeController) {
    let listener = TcpListener::bind(addr).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (sender, registrations) = mpsc::channel(1);
    let server = Server::builder().add_service(ControllerServer::new(TestController(sender)));
    let server = tokio::spawn(async move { server.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap() });
    (addr, FakeController { registrations, server })
}

async fn until(registration: &mut watch::Receiver<Registration>, expected: Registration) {
    tokio::time::timeout(HANG, registration.wait_for(|state| *state == expected))
        .await
        .expect("within the time limit")
        .unwrap();
}

#[tokio::test]
async fn element_registers_again_after_controller_restart() {
    // No controller listens at this address yet.
    let addr = loopback::own();
    let element = run(config().controller(Some(format!("http://{addr}"))).rack("a")).await.unwrap();
    let mut registration = element.registration();
    assert_eq!(*registration.borrow_and_update(), Registration::Unknown, "the element runs unregistered");
    let mut earlier = 0;

    for element_id in [1, 2] {
        let (_, mut controller) = controller(addr).await;
        let asked =
            tokio::time::timeout(HANG, controller.registrations.recv()).await.expect("within the time limit").unwrap();
        let (request, grants) = asked;
        assert_eq!(request.boot_id, element.boot_id());
        assert_eq!(request.data_address, element.data_addr().to_string());
        assert_eq!(request.control_address, format!("http://{}", element.control_addr()));
        let size = config().size;
        let sizes = [request.rows, request.lanes, request.slots].map(|size| size as usize);
        assert_eq!(sizes, [size.rows, size.lanes, size.slots]);
        assert_eq!((request.rack.as_str(), request.element), ("a", earlier), "the id of the registration before");
        earlier = element_id;
        assert!(request.holds_hedges, "it runs in user space");

        grants.send(Ok(ElementGrant { element: element_id, endpoint: 100 })).await.unwrap();
        until(&mut registration, Registration::Known { element: element_id, endpoint: 100 }).await;
        controller.server.abort();
        assert!(controller.server.await.unwrap_err().is_cancelled());
        drop(grants);
        until(&mut registration, Registration::Unknown).await;
    }
    element.shutdown().await;
}

/// NetClone §3.7: an element's requests carry its id, which shows other elements that the choice is made.
#[tokio::test]
async fn registration_sets_switch_id() {
    const POOL: u32 = 9;
    let (addr, mut controller) = controller((Ipv4Addr::LOCALHOST, 0).into()).await;
    let mut fixture = fixture_with(config().controller(Some(format!("http://{addr}")))).await;
    let boot_id = fixture.element.boot_id();
    let pool = InstallPoolRequest { boot_id, gaid: POOL, version: 1, servers: vec![41], token_key: None };
    fixture.control.install_pool(pool).await.unwrap();
    let (caller, server) = (pool_host(&mut fixture, POOL, 31).await, pool_host(&mut fixture, POOL, 41).await);
    let (_, grants) =
        tokio::time::timeout(HANG, controller.registrations.recv()).await.expect("within the time limit").unwrap();
    let base = BaseRepr { gaid: POOL, epoch: 1, src: 31, src_incarnation: 1, ..BaseRepr::new(FrameKind::CloneRequest) };
    let mut frame = [0; MAX_FRAME];
    let len = emit(&base, &CloneRepr { parts: 1, ..CloneRepr::default() }, b"a request", &mut frame);
    // An id that does not fit is reduced modulo the range, from 1.
    for element in [7, 70_000] {
        let grant = ElementGrant { element, endpoint: 100 };
        grants.send(Ok(grant)).await.unwrap();
        let carried = async {
            loop {
                caller.send(&frame[..len]).await.unwrap();
                let mut bytes = [0; MAX_FRAME];
                let len = server.recv(&mut bytes).await.unwrap();
                let printed = CloneFrame::new_checked(&bytes[..len]).unwrap().head().switch_id();
                if printed == switch_id(element).get() {
                    return;
                }
            }
        };
        tokio::time::timeout(HANG, carried).await.expect("frames with the switch id");
    }
    fixture.element.shutdown().await;
}

/// Endpoint of a pool, registered with the element.
async fn pool_host(fixture: &mut ElementFixture, gaid: u32, endpoint: u32) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.connect(fixture.element.data_addr()).await.unwrap();
    let data_address = socket.local_addr().unwrap().to_string();
    let entry = EndpointEntry { endpoint, incarnation: 1, data_address, gaid, slot_base: 0, slots: 0 };
    let boot_id = fixture.element.boot_id();
    fixture.control.set_endpoints(SetEndpointsRequest { boot_id, endpoints: vec![entry] }).await.unwrap();
    socket
}

#[tokio::test]
async fn advertised_address_is_registered() {
    let (addr, mut controller) = controller((Ipv4Addr::LOCALHOST, 0).into()).await;
    let all = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let advertise = Some(Ipv4Addr::new(192, 0, 2, 9).into());
    let controller_url = Some(format!("http://{addr}"));
    let all = config().data(all).control(all).security(Security::default().insecure(true));
    let element = run(all.advertise(advertise).controller(controller_url));
    let element = element.await.unwrap();
    let asked =
        tokio::time::timeout(HANG, controller.registrations.recv()).await.expect("within the time limit").unwrap();
    assert_eq!(asked.0.data_address, format!("192.0.2.9:{}", element.data_addr().port()));
    assert_eq!(asked.0.control_address, format!("http://192.0.2.9:{}", element.control_addr().port()));
}

#[tokio::test]
async fn unreachable_controller_is_logged_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    // `tracing` caches by the first thread whether an event is enabled; with two subscribers it asks both.
    let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    // The listener is not a controller; the test observes each attempt.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let controller = format!("http://{}", listener.local_addr().unwrap());
    let element = run(config().controller(Some(controller))).await.unwrap();
    // An attempt makes up to two connections: these are at least three attempts.
    for _ in 0..8 {
        drop(tokio::time::timeout(HANG, listener.accept()).await.expect("another attempt").unwrap());
    }
    element.shutdown().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.matches("cannot register with the controller").count(), 1, "{log}");
}

/// Captured log output.
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
