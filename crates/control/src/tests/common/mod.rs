//! Fake element that only has tables, over real gRPC, and calls for tests.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Config, Handle, LeaseTiming, StoreLocation};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::element_server::{Element, ElementServer};
use pathcall_proto::v1::*;
use pathcall_test_support::{HANG, loopback};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Short leases, so that tests that wait for their end are short. No lease expires while its owner's stream is open,
/// even on a slow machine.
pub(crate) const TIMING: LeaseTiming =
    LeaseTiming { grace: Duration::from_millis(150), restart_grace: HANG, confirm: HANG };

/// Pushes that the element has received.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tables {
    pub(crate) applications: BTreeMap<u32, ElementApplication>,
    pub(crate) endpoints: BTreeMap<u32, EndpointEntry>,
    pub(crate) groups: BTreeMap<u32, Vec<u32>>,
    /// Version and servers, by SID, of each pool.
    pub(crate) pools: BTreeMap<u32, (u32, Vec<u32>)>,
    /// All changes, in order.
    pub(crate) log: Vec<String>,
}

/// Running element; dropping it stops it.
pub(crate) struct FakeElement {
    pub(crate) boot_id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) tables: watch::Receiver<Tables>,
    state: Arc<Shared>,
    /// Runtime of the element: all its connections end with it.
    process: Option<Runtime>,
}

#[derive(Debug)]
struct Shared {
    boot_id: u64,
    tables: watch::Sender<Tables>,
    mute: watch::Sender<bool>,
}

#[derive(Debug, Clone)]
struct Service(Arc<Shared>);

impl FakeElement {
    /// Starts an element on an address of its own, so that another one can start there later.
    pub(crate) async fn start(boot_id: u64) -> Self {
        Self::start_at(boot_id, loopback::own()).await
    }

    /// Starts an element at this address.
    pub(crate) async fn start_at(boot_id: u64, address: SocketAddr) -> Self {
        let process = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = process.spawn(TcpListener::bind(address)).await.unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let (tables, receiver) = watch::channel(Tables::default());
        let state = Arc::new(Shared { boot_id, tables, mute: watch::Sender::new(false) });
        let service = ElementServer::new(Service(Arc::clone(&state)));
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        process.spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        Self { boot_id, address, tables: receiver, state, process: Some(process) }
    }

    /// Ends the element: its port is free, and its connections are broken.
    pub(crate) async fn stop(mut self) -> SocketAddr {
        let process = self.process.take();
        tokio::task::spawn_blocking(move || drop(process)).await.unwrap();
        self.address
    }

    /// Sets whether the element stops answering.
    pub(crate) fn mute(&self, mute: bool) {
        self.state.mute.send_replace(mute);
    }

    pub(crate) fn registration(&self) -> RegisterElementRequest {
        RegisterElementRequest {
            boot_id: self.boot_id,
            data_address: "127.0.0.1:7702".into(),
            control_address: format!("http://{}", self.address),
            rows: 1024,
            lanes: 1024 * 64,
            slots: 16,
            holds_hedges: true,
            ..RegisterElementRequest::default()
        }
    }

    pub(crate) fn tables(&self) -> Tables {
        self.tables.borrow().clone()
    }

    /// Waits until the tables match.
    pub(crate) async fn until(&self, tables: impl FnMut(&Tables) -> bool) {
        within(self.tables.clone().wait_for(tables)).await.unwrap();
    }
}

impl Drop for FakeElement {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.shutdown_background();
        }
    }
}

impl Service {
    fn tables(&self) -> Tables {
        self.0.tables.borrow().clone()
    }

    async fn change(&self, boot_id: u64, what: String, change: impl FnOnce(&mut Tables)) -> Reply<ElementReply> {
        self.0.mute.subscribe().wait_for(|mute| !mute).await.unwrap();
        if boot_id != self.0.boot_id {
            return Err(Status::failed_precondition(format!("boot id is {}, got {boot_id}", self.0.boot_id)));
        }
        self.0.tables.send_modify(|tables| {
            change(tables);
            tables.log.push(what);
        });
        Ok(Response::new(ElementReply {}))
    }
}

type Reply<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Element for Service {
    async fn install_application(&self, request: Request<InstallApplicationRequest>) -> Reply<ElementReply> {
        let InstallApplicationRequest { boot_id, application } = request.into_inner();
        let application = application.unwrap();
        let what = format!("install {} epoch {}", application.gaid, application.epoch);
        self.change(boot_id, what, |tables| tables.applications.extend([(application.gaid, application)])).await
    }

    async fn remove(&self, request: Request<RemoveRequest>) -> Reply<ElementReply> {
        let RemoveRequest { boot_id, gaid } = request.into_inner();
        let (applications, pools) = (self.tables().applications, self.tables().pools);
        let known = applications.contains_key(&gaid) || pools.contains_key(&gaid);
        let change = |tables: &mut Tables| {
            tables.applications.remove(&gaid);
            tables.endpoints.retain(|_, endpoint| endpoint.gaid != gaid);
            tables.groups.remove(&gaid);
            tables.pools.remove(&gaid);
        };
        let reply = self.change(boot_id, format!("remove {gaid}"), change).await?;
        if known { Ok(reply) } else { Err(Status::not_found(format!("no application {gaid}"))) }
    }

    async fn set_endpoints(&self, request: Request<SetEndpointsRequest>) -> Reply<ElementReply> {
        let SetEndpointsRequest { boot_id, endpoints } = request.into_inner();
        let what = format!("set {:?}", endpoints.iter().map(|e| e.endpoint).collect::<Vec<_>>());
        self.change(boot_id, what, |tables| tables.endpoints.extend(endpoints.into_iter().map(|e| (e.endpoint, e))))
            .await
    }

    async fn remove_endpoints(&self, request: Request<RemoveEndpointsRequest>) -> Reply<ElementReply> {
        let RemoveEndpointsRequest { boot_id, endpoints } = request.into_inner();
        let what = format!("remove endpoints {endpoints:?}");
        self.change(boot_id, what, |tables| tables.endpoints.retain(|id, _| !endpoints.contains(id))).await
    }

    async fn set_multicast_group(&self, request: Request<SetMulticastGroupRequest>) -> Reply<ElementReply> {
        let SetMulticastGroupRequest { boot_id, gaid, endpoints } = request.into_inner();
        let what = format!("group {gaid} {endpoints:?}");
        self.change(boot_id, what, |tables| drop(tables.groups.insert(gaid, endpoints))).await
    }

    async fn install_pool(&self, request: Request<InstallPoolRequest>) -> Reply<ElementReply> {
        let InstallPoolRequest { boot_id, gaid, version, servers, .. } = request.into_inner();
        let what = format!("pool {gaid} {servers:?}");
        self.change(boot_id, what, |tables| drop(tables.pools.insert(gaid, (version, servers)))).await
    }

    async fn read_registers(&self, _: Request<ReadRegistersRequest>) -> Reply<ReadRegistersReply> {
        Err(Status::unimplemented("no registers"))
    }

    async fn reset_registers(&self, _: Request<ResetRegistersRequest>) -> Reply<ElementReply> {
        Err(Status::unimplemented("no registers"))
    }

    async fn counters(&self, _: Request<CountersRequest>) -> Reply<CountersReply> {
        self.0.mute.subscribe().wait_for(|mute| !mute).await.unwrap();
        let tables = self.0.tables.borrow().clone();
        let element = [("changes".to_owned(), tables.log.len() as u64)].into();
        let installed = tables.applications.into_keys().chain(tables.pools.into_keys());
        let applications = installed.map(|gaid| (gaid, ApplicationCounters::default())).collect();
        Ok(Response::new(CountersReply { element, applications, ..CountersReply::default() }))
    }

    async fn last_seen(&self, _: Request<LastSeenRequest>) -> Reply<LastSeenReply> {
        Err(Status::unimplemented("no frames"))
    }
}

/// Controller with a store in memory.
pub(crate) async fn controller() -> Handle {
    start(Config::default().timing(TIMING).keep_alive(HANG)).await
}

/// Starts a controller on a free port.
pub(crate) async fn start(config: Config) -> Handle {
    start_at("127.0.0.1:0".parse().unwrap(), config).await
}

/// Starts a controller at this address.
pub(crate) async fn start_at(addr: SocketAddr, config: Config) -> Handle {
    let listener = crate::bind(addr).await.unwrap();
    crate::serve(listener, config).await.unwrap()
}

pub(crate) async fn client(controller: &Handle) -> ControllerClient<Channel> {
    ControllerClient::connect(controller.url()).await.unwrap()
}

pub(crate) fn application(name: &str, incarnation: u32) -> RegisterApplicationRequest {
    RegisterApplicationRequest {
        no_memory_reason: 0,
        name: name.into(),
        filter_digest: 7,
        width: 32,
        rows: 100,
        data_address: "127.0.0.1:9000".into(),
        incarnation,
        service_address: format!("http://127.0.0.1:{}", 50_000 + incarnation),
        authenticate: false,
        held: None,
        silent_elements: Vec::new(),
        yielded_epoch: 0,
        takes_narrow_rows: false,
    }
}

pub(crate) fn caller(gaid: u32, incarnation: u32) -> RegisterEndpointRequest {
    RegisterEndpointRequest {
        gaid,
        incarnation,
        data_address: "127.0.0.1:9001".into(),
        flows: 4,
        ..RegisterEndpointRequest::default()
    }
}

/// Next message of an open stream.
pub(crate) async fn next<T>(stream: &mut Streaming<T>) -> T {
    within(stream.message()).await.unwrap().expect("the stream has ended")
}

/// Waits with a time limit.
pub(crate) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, what).await.expect("timeout")
}

/// Temporary file name; the file is removed at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let file = format!("{name}-{}-{}.redb", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(file))
    }

    pub(crate) fn place(&self) -> StoreLocation {
        StoreLocation::File(self.0.clone())
    }

    pub(crate) fn config(&self) -> Config {
        Config::default().store(self.place()).timing(TIMING).keep_alive(HANG)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
