//! Calls that a host's processor or its accelerator answers: both are services of the same kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pathcall_control::Place;
use pathcall_place::door::{Question, ask};
use pathcall_place::model::Preset;
use pathcall_place::{Hardware, Role, Strategy};
use pathcall_proto::manifest::{Balance, Cloned, Manifest};
use pathcall_rpc::server::{BuildError, Builder, PlaceStats, Placing, PlacingError};
use pathcall_rpc::{ROLE, Server};
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
use tower::Layer;

static PLACED: Manifest =
    Manifest { methods: &[], delegated: &[], cloned: &[], placed: PATHCALL.placed, descriptor: PATHCALL.descriptor };

/// The values, which both roles have.
type Values = Arc<Mutex<BTreeMap<Vec<u8>, i64>>>;

/// One role.
#[derive(Clone)]
struct Part {
    values: Values,
    /// Calls take one each before they do anything.
    gate: Arc<Semaphore>,
    broken: Arc<AtomicBool>,
}

impl Part {
    fn new(values: &Values, open: bool) -> Self {
        let gate = Arc::new(Semaphore::new(if open { Semaphore::MAX_PERMITS } else { 0 }));
        Self { values: Arc::clone(values), gate, broken: Arc::default() }
    }

    async fn pass(&self) -> Result<(), Status> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Status::unavailable("the device is gone"));
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

/// A host with a processor and an accelerator, of one slot each.
struct Host {
    cpu: Part,
    acc: Part,
    pathcall: Server,
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
    async fn start(cpu_open: bool, acc_open: bool, strategy: Strategy) -> Self {
        Self::start_with(cpu_open, acc_open, |placing| placing.strategy(strategy)).await
    }

    async fn start_with(cpu_open: bool, acc_open: bool, with: impl FnOnce(Placing) -> Placing) -> Self {
        let values = Values::default();
        let (cpu, acc) = (Part::new(&values, cpu_open), Part::new(&values, acc_open));
        let placing = with(Placing::new(hardware()).acc(ShelfServer::new(acc.clone())));
        let pathcall = Server::builder(&PLACED).place(placing).build().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = tonic::transport::Server::builder()
            .layer(pathcall.layer())
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

    fn way(&self, request: &str, role: Role) -> PlaceStats {
        let mut stats = self.pathcall.place_stats().into_iter();
        stats.find(|way| way.request == request && way.role == role).expect("there is such a way")
    }

    /// Waits until so many are in flight that way.
    async fn until_in_flight(&self, request: &str, role: Role, count: u32) {
        let there = async {
            while self.way(request, role).state.in_flight != count {
                tokio::task::yield_now().await;
            }
        };
        timeout(HANG, there).await.expect("they are on their way");
    }
}

fn answer(response: Response<Slot>) -> (Slot, String) {
    let role = response.metadata().get(ROLE).expect("it says who answered").to_str().unwrap().to_owned();
    (response.into_inner(), role)
}

async fn soon<T>(task: JoinHandle<T>) -> T {
    timeout(HANG, task).await.expect("it is answered").unwrap()
}

#[tokio::test]
async fn calls_go_where_fewer_are() {
    let host = Host::start(false, false, Strategy::Leo).await;
    host.cpu.values.lock().unwrap().insert(b"k".to_vec(), 7);
    let calls: Vec<_> = (0..40).map(|_| host.get("k")).collect();
    let there = async {
        while host.way("GET", Role::Cpu).state.in_flight + host.way("GET", Role::Acc).state.in_flight < 40 {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, there).await.expect("nobody has been answered");
    let shares = [Role::Cpu, Role::Acc].map(|role| host.way("GET", role).state.in_flight);
    assert_eq!(shares, [20, 20], "both take as long");
    host.cpu.gate.add_permits(100);
    host.acc.gate.add_permits(100);
    let mut roles = BTreeMap::<String, u32>::new();
    for call in calls {
        let (slot, role) = soon(call).await.unwrap();
        assert_eq!(slot.value, 7);
        *roles.entry(role).or_default() += 1;
    }
    assert_eq!((roles["cpu"], roles["acc"]), (shares[0], shares[1]));
}

#[tokio::test]
async fn what_the_device_can_not_do_the_processor_does() {
    let host = Host::start(true, true, Strategy::AllAcc).await;
    soon(host.put("k", 7)).await.unwrap();
    assert_eq!(soon(host.get("k")).await.unwrap().1, "acc");
    host.acc.broken.store(true, Ordering::Relaxed);
    for _ in 0..50 {
        let (slot, role) = soon(host.get("k")).await.unwrap();
        assert_eq!((slot.value, role.as_str()), (7, "cpu"));
    }
    let acc = host.way("GET", Role::Acc).state;
    assert!(acc.failed >= 1 && acc.failed < 50 && acc.lefts >= 1, "it is left, and tried now and then: {acc:?}");
    assert_eq!(host.way("GET", Role::Cpu).state.done, 50);
    // An answer of the application, whoever gives it.
    host.acc.broken.store(false, Ordering::Relaxed);
    assert_eq!(soon(host.get("none")).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn caller_that_the_service_refuses_is_not_answered_by_the_accelerator() {
    let values = Values::default();
    let (cpu, acc) = (Part::new(&values, true), Part::new(&values, true));
    let placing = Placing::new(hardware()).acc(ShelfServer::new(acc)).strategy(Strategy::AllAcc);
    let pathcall = Server::builder(&PLACED).place(placing).build().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let known = |request: Request<()>| match request.metadata().get("token") {
        Some(_) => Ok(request),
        None => Err(Status::unauthenticated("who is it?")),
    };
    let serve = tonic::transport::Server::builder()
        .layer(pathcall.layer())
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

/// Whoever asks is told, here and at the door.
#[tokio::test]
async fn where_calls_went_is_told_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let door = dir.path().join("door");
    let host = Host::start_with(true, true, |placing| placing.strategy(Strategy::AllAcc).door(&door)).await;
    soon(host.put("k", 7)).await.unwrap();
    assert_eq!(soon(host.get("k")).await.unwrap().1, "acc");
    host.acc.broken.store(true, Ordering::Relaxed);
    assert_eq!(soon(host.get("k")).await.unwrap().1, "cpu");
    let asked = |question| {
        let door = door.clone();
        tokio::task::spawn_blocking(move || ask(&door, question).expect("somebody answers"))
    };
    let told = soon(asked(Question::Explain(10))).await;
    assert_eq!(told, host.pathcall.place_explain(10).concat());
    let lines: Vec<_> = told.lines().collect();
    let [put, get, broken] = lines[..] else { panic!("three calls: {told}") };
    assert!(put.starts_with("shelf 0 PUT: cpu-cpu (no other);"), "{put}");
    assert!(get.starts_with("shelf 1 GET: cpu-acc (least);") && get.contains("ns in all"), "{get}");
    assert!(
        broken.starts_with("shelf 2 GET: cpu-cpu") && broken.contains("on cpu-acc: the accelerator says UNAVAILABLE"),
        "{broken}"
    );
    let status = soon(asked(Question::Status)).await;
    assert!(status.contains("shelf GET cpu-acc (acc): T ") && status.contains("sent 2, done 1, failed 1"), "{status}");
    drop(host);
    let taken = dir.path().join("no/such");
    let placing = Placing::new(hardware()).acc(ShelfServer::new(Part::new(&Values::default(), true))).door(&taken);
    let said = Server::builder(&PLACED).place(placing).build().await.expect_err("no such directory").to_string();
    assert!(said.contains("no door at") && said.contains("no/such"), "{said}");
}

#[tokio::test]
async fn a_get_passes_no_put_of_its_key() {
    let host = Host::start(false, true, Strategy::AllAcc).await;
    host.cpu.values.lock().unwrap().insert(b"other".to_vec(), 1);
    let put = host.put("k", 7);
    host.until_in_flight("PUT", Role::Cpu, 1).await;
    let get = host.get("k");
    // The accelerator is idle, and answers others.
    assert_eq!(soon(host.get("other")).await.unwrap().1, "acc");
    assert!(!get.is_finished() && host.way("GET", Role::Acc).state.in_flight == 0);
    host.cpu.gate.add_permits(1);
    soon(put).await.unwrap();
    assert_eq!(soon(get).await.unwrap().0.value, 7);
}

#[tokio::test]
async fn a_call_that_nobody_wants_any_more_holds_up_nobody() {
    let host = Host::start(false, true, Strategy::AllAcc).await;
    host.cpu.values.lock().unwrap().insert(b"k".to_vec(), 1);
    let put = host.put("k", 7);
    host.until_in_flight("PUT", Role::Cpu, 1).await;
    let get = host.get("k");
    put.abort();
    assert_eq!(soon(get).await.unwrap().0.value, 1);
    host.until_in_flight("PUT", Role::Cpu, 0).await;
}

#[tokio::test]
async fn a_way_without_anybody_is_a_mistake() {
    let build = |placing| Server::builder(&PLACED).place(placing).build();
    let error = build(Placing::new(hardware())).await.unwrap_err();
    assert!(matches!(error, BuildError::Placing(PlacingError::NoService { .. })), "{error}");
    assert_eq!(
        error.to_string(),
        "/rpctest.Shelf/Get has a dataflow over the accelerator, and rpctest.Shelf is not there: give it to Placing::acc"
    );
    let without = Hardware::parse("host.yaml", WITHOUT).unwrap();
    let values = Values::default();
    let placing = Placing::new(without).acc(ShelfServer::new(Part::new(&values, true)));
    assert!(matches!(build(placing).await.unwrap_err(), BuildError::Placing(PlacingError::Model { .. })));
}

/// What is placed, and may be cloned.
static BOTH: Manifest = Manifest {
    cloned: &[Cloned {
        path: "/rpctest.Shelf/Get",
        clone: true,
        balance: Balance::Random,
        budget: 1.0,
        hedging: None,
        cancel: false,
        workers: 0,
    }],
    ..PLACED
};

fn both(controller: &str) -> Builder {
    let part = Part::new(&Values::default(), true);
    Server::builder(&BOTH).controller(controller).place(Placing::new(hardware()).acc(ShelfServer::new(part)))
}

#[tokio::test]
async fn a_pool_counts_the_slots_of_both() {
    let server = both("http://127.0.0.1:1").build().await.unwrap();
    assert_eq!(server.pool_stats().expect("it has a pool").workers, 2);
}

#[tokio::test]
async fn a_server_that_is_dropped_leaves_its_pool() {
    let controller = controller("127.0.0.1:0".parse().unwrap(), Place::Memory).await;
    let mut servers = Vec::new();
    for port in [1, 2] {
        let builder = both(&controller.url()).advertise(format!("http://127.0.0.1:{port}"));
        let server = builder.data_address("127.0.0.1:0".parse().unwrap()).build().await.unwrap();
        let services = server.layer().layer(ShelfServer::new(Part::new(&Values::default(), true)));
        servers.push((server, services));
    }
    let known = |(server, _): &(Server, _)| server.pool_stats().expect("it has a pool").servers;
    timeout(HANG, until(|| servers.iter().all(|server| known(server) == 2))).await.expect("both are in the pool");
    drop(servers.remove(0));
    timeout(HANG, until(|| known(&servers[0]) == 1)).await.expect("the other one is told");
}
