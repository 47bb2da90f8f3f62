//! Tests of placed calls: processor and accelerator are services of the same type.

pub(crate) mod several;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pathcall_control::StoreLocation;
use pathcall_place::admin_socket::{AdminQuery, query_admin_socket};
use pathcall_place::model::Preset;
use pathcall_place::{DeviceRole, Hardware, SelectionStrategy};
use pathcall_proto::manifest::{Balance, Cloned, HedgeBudgetConfig, Manifest};
use pathcall_rpc::layer::{Builder, LayerError, PlaceOptions, PlaceSetupError, PlaceStats};
use pathcall_rpc::{Layer, ROLE};
use pathcall_test_support::HANG;
use pathcall_test_support::service::until;
use pathcall_test_support::store::controller;
use pathcall_test_support::stubs::shelf_client::ShelfClient;
use pathcall_test_support::stubs::shelf_server::{Shelf, ShelfServer};
use pathcall_test_support::stubs::{PATHCALL, Slot};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};
use tower::Layer as _;

static PLACED: Manifest =
    Manifest { methods: &[], delegated: &[], cloned: &[], placed: PATHCALL.placed, descriptor: PATHCALL.descriptor };

/// Values that both devices share.
type Values = Arc<Mutex<BTreeMap<Vec<u8>, i64>>>;

/// Service of one device.
#[derive(Clone)]
struct Part {
    values: Values,
    /// Each call takes one permit before it starts.
    gate: Arc<Semaphore>,
    fault: Arc<Mutex<Option<Fault>>>,
}

/// Fault of a device.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Status(Code),
    Panic,
    Hang,
}

impl Part {
    fn new(values: &Values, open: bool) -> Self {
        let gate = Arc::new(Semaphore::new(if open { Semaphore::MAX_PERMITS } else { 0 }));
        Self { values: Arc::clone(values), gate, fault: Arc::default() }
    }

    fn set_fault(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap() = fault;
    }

    async fn pass(&self) -> Result<(), Status> {
        let fault = *self.fault.lock().unwrap();
        match fault {
            Some(Fault::Status(code)) => return Err(Status::new(code, "the device is gone")),
            Some(Fault::Panic) => panic!("planted"),
            Some(Fault::Hang) => std::future::pending().await,
            None => {}
        }
        self.gate.acquire().await.map_err(|_| Status::internal("closed"))?.forget();
        Ok(())
    }
}

#[tonic::async_trait]
impl Shelf for Part {
    async fn get(&self, request: Request<Slot>) -> Result<Response<Slot>, Status> {
        self.pass().await?;
        let Slot { key, .. } = request.into_inner();
        let value = self.values.lock().unwrap().get(&key).copied();
        let value = value.ok_or_else(|| Status::not_found("no such key"))?;
        Ok(Response::new(Slot { key, value }))
    }

    async fn put(&self, request: Request<Slot>) -> Result<Response<Slot>, Status> {
        self.pass().await?;
        let Slot { key, value } = request.into_inner();
        self.values.lock().unwrap().insert(key.clone(), value);
        Ok(Response::new(Slot { key, value }))
    }
}

/// Host with a processor and an accelerator, of one slot each.
struct Host {
    cpu: Part,
    acc: Part,
    pathcall: Layer,
    client: ShelfClient<Channel>,
    _serving: JoinSet<()>,
}

const WITHOUT: &str = "hardware: plain
nodes:
  cpu: { role: cpu }
  nic: { role: nic }
links:
  - { between: [cpu, nic], bandwidth: 10 GB/s, messages: 10 M/s, latency: 300 ns }
";

fn hardware() -> Hardware {
    let mut hardware = Hardware::preset(Preset::Direct);
    hardware.nodes.iter_mut().for_each(|node| node.slots = 1);
    hardware
}

impl Host {
    /// Repairs the accelerator, and calls until it has answered.
    async fn until_repaired_acc_is_used(&self) {
        self.acc.set_fault(None);
        until(|| {
            drop(self.get("k"));
            self.path_stats("GET", DeviceRole::Acc).state.done > 0
        })
        .await;
    }

    async fn start(cpu_open: bool, acc_open: bool, strategy: SelectionStrategy) -> Self {
        Self::start_with(cpu_open, acc_open, |placing| placing.strategy(strategy)).await
    }

    async fn start_with(cpu_open: bool, acc_open: bool, with: impl FnOnce(PlaceOptions) -> PlaceOptions) -> Self {
        let values = Values::default();
        let (cpu, acc) = (Part::new(&values, cpu_open), Part::new(&values, acc_open));
        let placing = with(PlaceOptions::new(hardware()).acc(ShelfServer::new(acc.clone())));
        Self::serve(cpu, acc, placing).await
    }

    async fn serve(cpu: Part, acc: Part, placing: PlaceOptions) -> Self {
        let pathcall = Layer::builder(&PLACED).place(placing).build().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = tonic::transport::Server::builder()
            .layer(pathcall.clone())
            .add_service(ShelfServer::new(cpu.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        let mut serving = JoinSet::new();
        serving.spawn(async move { serve.await.unwrap() });
        let client = ShelfClient::connect(format!("http://{address}")).await.unwrap();
        Self { cpu, acc, pathcall, client, _serving: serving }
    }

    fn put(&self, key: &str, value: i64) -> JoinHandle<Result<(Slot, String), Status>> {
        let (mut client, slot) = (self.client.clone(), Slot { key: key.into(), value });
        tokio::spawn(async move { client.put(slot).await.map(answer) })
    }

    fn get(&self, key: &str) -> JoinHandle<Result<(Slot, String), Status>> {
        let (mut client, slot) = (self.client.clone(), Slot { key: key.into(), value: 0 });
        tokio::spawn(async move { client.get(slot).await.map(answer) })
    }

    fn path_stats(&self, request: &str, role: DeviceRole) -> PlaceStats {
        let mut stats = self.pathcall.place_stats().into_iter();
        stats.find(|path| path.request == request && path.role == role).expect("the path exists")
    }

    /// Waits until this many requests are in flight on the path.
    async fn until_in_flight(&self, request: &str, role: DeviceRole, count: u32) {
        let there = async {
            while self.path_stats(request, role).state.in_flight != count {
                tokio::task::yield_now().await;
            }
        };
        timeout(HANG, there).await.expect("requests are in flight");
    }
}

fn answer(response: Response<Slot>) -> (Slot, String) {
    let role = response.metadata().get(ROLE).expect("it says who answered").to_str().unwrap().to_owned();
    (response.into_inner(), role)
}

async fn in_time<T>(task: JoinHandle<T>) -> T {
    timeout(HANG, task).await.expect("it is answered").unwrap()
}

#[tokio::test]
async fn calls_go_to_less_loaded_device() {
    let host = Host::start(false, false, SelectionStrategy::Leo).await;
    host.cpu.values.lock().unwrap().insert(b"k".to_vec(), 7);
    let calls: Vec<_> = (0..40).map(|_| host.get("k")).collect();
    let there = async {
        while host.path_stats("GET", DeviceRole::Cpu).state.in_flight
            + host.path_stats("GET", DeviceRole::Acc).state.in_flight
            < 40
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, there).await.expect("no call has been answered");
    let shares = [DeviceRole::Cpu, DeviceRole::Acc].map(|role| host.path_stats("GET", role).state.in_flight);
    assert_eq!(shares, [20, 20], "both take as long");
    host.cpu.gate.add_permits(100);
    host.acc.gate.add_permits(100);
    let mut roles = BTreeMap::<String, u32>::new();
    for call in calls {
        let (slot, role) = in_time(call).await.unwrap();
        assert_eq!(slot.value, 7);
        *roles.entry(role).or_default() += 1;
    }
    assert_eq!((roles["cpu"], roles["acc"]), (shares[0], shares[1]));
}

#[tokio::test]
async fn unavailable_device_falls_back_to_processor() {
    let host = Host::start(true, true, SelectionStrategy::AllAcc).await;
    in_time(host.put("k", 7)).await.unwrap();
    assert_eq!(in_time(host.get("k")).await.unwrap().1, "acc");
    host.acc.set_fault(Some(Fault::Status(Code::Unavailable)));
    for _ in 0..50 {
        let (slot, role) = in_time(host.get("k")).await.unwrap();
        assert_eq!((slot.value, role.as_str()), (7, "cpu"));
    }
    let acc = host.path_stats("GET", DeviceRole::Acc).state;
    assert!(acc.failed >= 1 && acc.failed < 50 && acc.times_left >= 1, "the path is left, and probed: {acc:?}");
    assert_eq!(host.path_stats("GET", DeviceRole::Cpu).state.done, 50);
    // NOT_FOUND is an answer of the application, not a failure of the path.
    host.acc.set_fault(None);
    assert_eq!(in_time(host.get("none")).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn no_call_fails_while_the_accelerator_is_broken() {
    let codes = [Code::Unavailable, Code::ResourceExhausted, Code::Internal, Code::Unknown, Code::Unimplemented];
    for fault in codes.map(Fault::Status).into_iter().chain([Fault::Panic, Fault::Hang]) {
        let options =
            |placing: PlaceOptions| placing.strategy(SelectionStrategy::AllAcc).acc_timeout(Duration::from_millis(50));
        let host = Host::start_with(true, true, options).await;
        host.cpu.values.lock().unwrap().insert(b"k".to_vec(), 7);
        host.acc.set_fault(Some(fault));
        for _ in 0..10 {
            let calls: Vec<_> = (0..64).map(|_| host.get("k")).collect();
            for call in calls {
                let (slot, role) = in_time(call).await.unwrap_or_else(|status| panic!("{fault:?}: {status}"));
                assert_eq!((slot.value, role.as_str()), (7, "cpu"), "{fault:?}");
            }
        }
        let acc = host.path_stats("GET", DeviceRole::Acc).state;
        assert!(acc.failed > 0 && acc.done == 0 && acc.times_left > 0, "{fault:?}: {acc:?}");
        host.until_repaired_acc_is_used().await;
    }
}

#[tokio::test]
async fn refused_caller_gets_no_answer_from_accelerator() {
    let values = Values::default();
    let (cpu, acc) = (Part::new(&values, true), Part::new(&values, true));
    let placing = PlaceOptions::new(hardware()).acc(ShelfServer::new(acc)).strategy(SelectionStrategy::AllAcc);
    let pathcall = Layer::builder(&PLACED).place(placing).build().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let known = |request: Request<()>| match request.metadata().get("token") {
        Some(_) => Ok(request),
        None => Err(Status::unauthenticated("who is it?")),
    };
    let serve = tonic::transport::Server::builder()
        .layer(pathcall.clone())
        .add_service(ShelfServer::with_interceptor(cpu, known))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(serve);
    let mut client = ShelfClient::connect(url).await.unwrap();
    let put = || Request::new(Slot { key: b"k".to_vec(), value: 7 });
    assert_eq!(client.put(put()).await.unwrap_err().code(), Code::Unauthenticated);
    values.lock().unwrap().insert(b"k".to_vec(), 7);
    assert_eq!(client.get(put()).await.unwrap_err().code(), Code::Unauthenticated);
    let mut known = put();
    known.metadata_mut().insert("token", "yes".parse().unwrap());
    assert_eq!(client.get(known).await.map(answer).unwrap().1, "acc", "all that the device can do goes to it");
}

/// Shown by the layer and by the admin socket.
#[tokio::test]
async fn paths_and_reasons_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let socket_path = dir.path().join("admin.sock");
    let host =
        Host::start_with(true, true, |placing| placing.strategy(SelectionStrategy::AllAcc).admin_socket(&socket_path))
            .await;
    in_time(host.put("k", 7)).await.unwrap();
    assert_eq!(in_time(host.get("k")).await.unwrap().1, "acc");
    host.acc.set_fault(Some(Fault::Status(Code::Unavailable)));
    assert_eq!(in_time(host.get("k")).await.unwrap().1, "cpu");
    let asked = |question| {
        let socket_path = socket_path.clone();
        tokio::task::spawn_blocking(move || query_admin_socket(&socket_path, question).expect("a server answers"))
    };
    let told = in_time(asked(AdminQuery::Explain(10))).await;
    assert_eq!(told, host.pathcall.place_explain(10).concat());
    let lines: Vec<_> = told.lines().collect();
    let [put, get, broken] = lines[..] else { panic!("three calls: {told}") };
    assert!(put.starts_with("shelf 0 PUT: cpu-cpu (only path);"), "{put}");
    assert!(get.starts_with("shelf 1 GET: cpu-acc (lowest cost);") && get.contains("ns in total"), "{get}");
    assert!(
        broken.starts_with("shelf 2 GET: cpu-cpu")
            && broken.contains("on cpu-acc: the accelerator answered UNAVAILABLE"),
        "{broken}"
    );
    let status = in_time(asked(AdminQuery::Status)).await;
    assert!(status.contains("shelf GET cpu-acc (acc): T ") && status.contains("sent 2, done 1, failed 1"), "{status}");
    drop(host);
    let taken = dir.path().join("no/such");
    let placing =
        PlaceOptions::new(hardware()).acc(ShelfServer::new(Part::new(&Values::default(), true))).admin_socket(&taken);
    let said = Layer::builder(&PLACED).place(placing).build().await.expect_err("no such directory").to_string();
    assert!(said.contains("cannot open admin socket") && said.contains("no/such"), "{said}");
}

#[tokio::test]
async fn get_does_not_overtake_put_of_its_key() {
    let host = Host::start(false, true, SelectionStrategy::AllAcc).await;
    host.cpu.values.lock().unwrap().insert(b"other".to_vec(), 1);
    let put = host.put("k", 7);
    host.until_in_flight("PUT", DeviceRole::Cpu, 1).await;
    let get = host.get("k");
    // The accelerator is idle, and answers requests for other keys.
    assert_eq!(in_time(host.get("other")).await.unwrap().1, "acc");
    assert!(!get.is_finished() && host.path_stats("GET", DeviceRole::Acc).state.in_flight == 0);
    host.cpu.gate.add_permits(1);
    in_time(put).await.unwrap();
    assert_eq!(in_time(get).await.unwrap().0.value, 7);
}

#[tokio::test]
async fn dropped_call_does_not_block_others() {
    let host = Host::start(false, true, SelectionStrategy::AllAcc).await;
    host.cpu.values.lock().unwrap().insert(b"k".to_vec(), 1);
    let put = host.put("k", 7);
    host.until_in_flight("PUT", DeviceRole::Cpu, 1).await;
    let get = host.get("k");
    put.abort();
    assert_eq!(in_time(get).await.unwrap().0.value, 1);
    host.until_in_flight("PUT", DeviceRole::Cpu, 0).await;
}

#[tokio::test]
async fn path_without_service_is_an_error() {
    let build = |placing| Layer::builder(&PLACED).place(placing).build();
    let error = build(PlaceOptions::new(hardware())).await.unwrap_err();
    assert!(matches!(error, LayerError::Place(PlaceSetupError::NoService { .. })), "{error}");
    assert_eq!(
        error.to_string(),
        "/rpctest.Shelf/Get has a dataflow over the accelerator, but rpctest.Shelf is missing: add it with \
         PlaceOptions::acc"
    );
    let without = Hardware::parse("host.yaml", WITHOUT).unwrap();
    let values = Values::default();
    let placing = PlaceOptions::new(without).acc(ShelfServer::new(Part::new(&values, true)));
    assert!(matches!(build(placing).await.unwrap_err(), LayerError::Place(PlaceSetupError::Model { .. })));
}

/// Manifest of methods that are placed and cloned.
static BOTH: Manifest = Manifest {
    cloned: &[Cloned {
        path: "/rpctest.Shelf/Get",
        automatic: false,
        clone: true,
        balance: Balance::Random,
        budget: HedgeBudgetConfig { share: 1.0, burst: 500.0, per_second: 100.0 },
        cost: 1,
        hedging: None,
        cancel: false,
        workers: 0,
        streaming: false,
    }],
    ..PLACED
};

fn both(controller: &str) -> Builder {
    let part = Part::new(&Values::default(), true);
    Layer::builder(&BOTH).controller(controller).place(PlaceOptions::new(hardware()).acc(ShelfServer::new(part)))
}

#[tokio::test]
async fn pool_counts_slots_of_both_devices() {
    let server = both("http://127.0.0.1:1").build().await.unwrap();
    assert_eq!(server.pool_stats().expect("it has a pool").workers, 2);
}

#[tokio::test]
async fn dropped_layer_leaves_pool() {
    let controller = controller("127.0.0.1:0".parse().unwrap(), StoreLocation::Memory).await;
    let mut servers = Vec::new();
    for port in [1, 2] {
        let builder = both(&controller.url()).advertise(format!("http://127.0.0.1:{port}"));
        let server = builder.data_address("127.0.0.1:0".parse().unwrap()).build().await.unwrap();
        let services = server.layer(ShelfServer::new(Part::new(&Values::default(), true)));
        servers.push((server, services));
    }
    let known = |(server, _): &(Layer, _)| server.pool_stats().expect("it has a pool").servers;
    timeout(HANG, until(|| servers.iter().all(|server| known(server) == 2))).await.expect("both are in the pool");
    drop(servers.remove(0));
    timeout(HANG, until(|| known(&servers[0]) == 1)).await.expect("the other one is told");
}
