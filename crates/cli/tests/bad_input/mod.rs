//! Tests of bad input during calls: floods of datagrams at every port, a member of one application that attacks
//! another, and callers that die in the middle of a call. Results stay correct, memory stays bounded, and counters show
//! the reasons of drops.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pathcall_element::Registration;
use pathcall_proto::manifest::Manifest;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{ApplicationStatus, EndpointEntry, JoinGrant, JoinRequest, StatusReply, StatusRequest};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::{TestServer, counts, gradient, str_int, until, within};
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{AgtrGrad, PATHCALL, Wanted};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MapFlags, MapRepr, SplitMix64};
use tonic::{Code, Streaming};

pub(crate) mod flood;

use crate::isolation::{LIMIT, is_alone};
use flood::{Flood, resident};

/// Deadline of calls that must be answered, longer than a machine stands still.
const DEADLINE_MS: u64 = 120_000;
/// Least number of datagrams in a flood, during which calls continue.
const FLOOD: u64 = 100_000;
/// Limit of the memory growth of this process, which runs all parties, in bytes.
const GROWTH_MAX: u64 = 96 << 20;

/// Controller and element in this process.
struct Network {
    controller: pathcall_control::Handle,
    element: pathcall_element::Handle,
}

impl Network {
    async fn start() -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = pathcall_control::bind(free).await.expect("a free port");
        let controller = pathcall_control::serve(listener, pathcall_control::Config::default()).await.expect("starts");
        let config = pathcall_element::Config::default().data(free).control(free).controller(Some(controller.url()));
        let element = pathcall_element::run(config).await.expect("starts");
        let mut registration = element.registration();
        registration
            .wait_for(|known| matches!(known, Registration::Known { .. }))
            .await
            .expect("the element registers");
        Self { controller, element }
    }

    async fn server(&self, manifest: &'static Manifest, tokens: bool) -> TestServer {
        let builder = Layer::builder(manifest).controller(self.controller.url()).authenticate_frames(tokens);
        TestServer::start_with(builder.build().await.expect("the controller answers"), 0).await
    }

    async fn status(&self) -> StatusReply {
        let mut client = ControllerClient::connect(self.controller.url()).await.expect("connection to the service");
        client.status(StatusRequest {}).await.expect("an answer").into_inner()
    }

    async fn application(&self, name: &str) -> ApplicationStatus {
        self.status().await.applications.into_iter().find(|application| application.name == name).expect("registered")
    }

    /// Counters of the element, element-wide and of one application.
    async fn counted(&self, gaid: u32) -> impl Fn(&str) -> u64 + use<> {
        let counters = self.status().await.elements.remove(0).counters.expect("the element answers");
        move |name| {
            let of = counters.applications.get(&gaid).and_then(|application| application.counters.get(name));
            of.or_else(|| counters.element.get(name)).copied().unwrap_or_else(|| panic!("no counter {name}"))
        }
    }
}

/// Manifest with the methods of some applications only.
fn part(apps: &[&str]) -> &'static Manifest {
    let methods: Vec<_> = PATHCALL.methods.iter().filter(|method| apps.contains(&method.app)).copied().collect();
    Box::leak(Box::new(Manifest { methods: methods.leak(), ..PATHCALL }))
}

/// Random bits of this seed.
fn random(seed: u64) -> u64 {
    SplitMix64::new(seed).bits()
}

fn address(endpoint: &EndpointEntry) -> SocketAddr {
    endpoint.data_address.parse().expect("an address")
}

/// Frame of pairs under this header.
fn pairs_frame(base: BaseRepr, turn: u64) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::ADD, lanes: 1 + (turn % 32) as u16, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, usize::from(map.lanes), 0)];
    let mut frame = emit(&base, &map, &mut bytes);
    frame.set_bitmap(0, u32::MAX);
    for lane in 0..usize::from(map.lanes) {
        frame.set_keyed(lane, (turn % 7) as u32, 1_000_000);
    }
    bytes
}

/// Datagrams of an outsider that knows every id, epoch and incarnation, but no key: noise, truncated frames, and frames
/// with forged sources.
fn hostile(application: ApplicationStatus, element: SocketAddr) -> impl FnMut(u64, &mut Vec<u8>) -> SocketAddr {
    let owner = application.endpoints.iter().find(|endpoint| endpoint.slots == 0).expect("an owner").clone();
    let callers: Vec<_> = application.endpoints.iter().filter(|endpoint| endpoint.slots > 0).cloned().collect();
    let ports: Vec<_> = [element, element].into_iter().chain(application.endpoints.iter().map(address)).collect();
    move |turn, out| {
        let chance = random(turn);
        let caller = &callers[chance as usize % callers.len()];
        let base = BaseRepr {
            gaid: application.gaid,
            epoch: application.epoch,
            src: caller.endpoint,
            src_incarnation: caller.incarnation,
            dst: owner.endpoint,
            dst_incarnation: owner.incarnation,
            slot: caller.slot_base,
            seq: (chance >> 40) as u32,
            ..BaseRepr::new(FrameKind::MapData)
        };
        let kind = 1 + (chance >> 8) as u8 % 23;
        let server_says = BaseRepr {
            kind,
            flags: Flags::FROM_SERVER,
            src: owner.endpoint,
            src_incarnation: owner.incarnation,
            dst: caller.endpoint,
            dst_incarnation: caller.incarnation,
            ..base
        };
        let wrong = match turn % 8 {
            0 | 1 => {
                let len = (chance >> 20) as usize % 1500;
                out.extend((0..len.div_ceil(8) as u64).flat_map(|i| random(chance ^ i).to_le_bytes()).take(len));
                return ports[turn as usize / 8 % ports.len()];
            }
            2 => {
                out.extend(pairs_frame(base, turn));
                out.truncate((chance >> 20) as usize % out.len());
                return ports[turn as usize / 8 % ports.len()];
            }
            3 => BaseRepr { gaid: application.gaid.wrapping_add(1000 + (chance >> 50) as u32), ..base },
            4 => BaseRepr { src_incarnation: caller.incarnation ^ ((chance >> 40) as u32 & 1), ..base },
            5 => BaseRepr { epoch: application.epoch ^ 1, kind, ..base },
            // Forged frames of the server, also from a caller that claims to be the server.
            6 => server_says,
            _ => BaseRepr { flags: Flags::FROM_SERVER, kind, src_incarnation: caller.incarnation, ..base },
        };
        out.extend(pairs_frame(wrong, turn));
        ports[turn as usize / 8 % ports.len()]
    }
}

/// Adds to a hundred keys until `stop`, and then until `floor` calls are done. Returns the number of calls.
async fn add(channel: Channel, stop: Arc<AtomicBool>, floor: u64) -> u64 {
    let mut words = WordsClient::new(channel);
    let keys: Vec<String> = (0..100).map(|key| format!("key {key}")).collect();
    let pairs: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 1)).collect();
    let mut calls = 0;
    while calls < floor || !stop.load(Ordering::Relaxed) {
        words.reduce(within(DEADLINE_MS, counts(&pairs, ""))).await.expect("added");
        calls += 1;
    }
    calls
}

/// Sums until told to stop, in step with the other worker; checks each sum.
async fn sum(channel: Channel, worker: u64, calls: u64) {
    let mut training = TrainingClient::new(channel);
    for call in 0..calls {
        let part: Vec<f64> = (0..600).map(|i| (i * (worker + 1) + call) as f64).collect();
        let sums = training.update(within(DEADLINE_MS, gradient(&part))).await.expect("summed").into_inner();
        let expected = (0..600).map(|i| (3 * i + 2 * call) as f64);
        assert!(sums.tensor.expect("sums").data.into_iter().eq(expected), "call {call} of worker {worker}");
    }
}

async fn value(channel: &Channel, key: &str) -> i64 {
    let wanted = Wanted { keys: Some(str_int(&[(key, 0)])), ..Wanted::default() };
    let found = WordsClient::new(channel.clone()).query(wanted).await.expect("query answer").into_inner();
    found.kvs.and_then(|kvs| kvs.map.get(key).copied()).expect("a value")
}

async fn check_calls_under_floods() {
    let network = Network::start().await;
    let running = network.server(&PATHCALL, true).await;
    let channels = [running.channel().await, running.channel().await];
    // Both applications have their members before the attack.
    for channel in &channels {
        add(channel.clone(), Arc::new(AtomicBool::new(true)), 3).await;
    }
    let [a, b] = channels.clone();
    tokio::join!(sum(a, 0, 3), sum(b, 1, 3));
    let (words, sums) = (network.application("T-WORDS").await, network.application("T-SUM").await);
    let before = resident();

    let element = network.element.data_addr();
    let check_calls_under_floods = [Flood::start(hostile(words, element)), Flood::start(hostile(sums, element))];
    let stop = Arc::new(AtomicBool::new(false));
    let adding: Vec<_> =
        channels.iter().map(|channel| tokio::spawn(add(channel.clone(), Arc::clone(&stop), 20))).collect();
    let summing: Vec<_> = (0..2).map(|w| tokio::spawn(sum(channels[w as usize].clone(), w, 20))).collect();
    until(|| check_calls_under_floods.iter().map(Flood::sent).sum::<u64>() >= FLOOD).await;
    for worker in summing {
        worker.await.expect("correct sums");
    }
    stop.store(true, Ordering::Relaxed);
    let mut calls = 6;
    for adder in adding {
        calls += adder.await.expect("the task succeeds");
    }
    let grown = resident().saturating_sub(before);
    drop(check_calls_under_floods);
    assert!(grown < GROWTH_MAX, "grown by {grown} bytes");
    assert_eq!(value(&channels[0], "key 7").await, calls as i64, "each addition once");

    let counted = network.counted(0).await;
    for reason in ["drop_malformed", "drop_unauthentic", "drop_not_admitted"] {
        assert!(counted(reason) > 0, "{reason}");
    }
    let servers = running.pathcall.stats();
    let ignored = |app: &str| servers.iter().find(|a| a.name == app).expect("hosted").map.frames_ignored;
    assert!(ignored("T-WORDS") > 0 && ignored("T-SUM") > 0, "{servers:?}");
    for channel in &channels {
        let stats = channel.stats();
        assert!(stats.applications.iter().any(|app| app.map.frames_ignored > 0), "{stats:?}");
        assert!(stats.applications.iter().all(|app| app.joins <= 1), "a member was dropped: {stats:?}");
    }
}

/// Malicious caller: a member that abuses its membership.
struct MaliciousMember {
    socket: UdpSocket,
    grant: JoinGrant,
    _membership: Streaming<JoinGrant>,
}

impl MaliciousMember {
    const INCARNATION: u32 = 77;

    async fn join(server: &TestServer, app: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let method = PATHCALL.methods.iter().find(|method| method.app == app).expect("a method");
        let request = JoinRequest {
            application: app.into(),
            filter_digest: method.digest,
            udp_port: socket.local_addr().expect("bound").port().into(),
            incarnation: Self::INCARNATION,
            flows: 4,
            method: method.path.into(),
            ..JoinRequest::default()
        };
        let mut peer = PeerClient::connect(server.uri()).await.expect("connection to the service");
        let mut membership = peer.join(request).await.expect("admitted").into_inner();
        let grant = membership.message().await.expect("a stream").expect("a grant");
        Self { socket, grant, _membership: membership }
    }

    /// Floods with valid frames of its membership and with frames for another application.
    fn flood(&self, victim: &ApplicationStatus) -> Flood {
        let (grant, victim) = (self.grant.clone(), victim.clone());
        let element: SocketAddr = grant.element_address.parse().expect("an element");
        let owner = victim.endpoints.iter().find(|endpoint| endpoint.slots == 0).expect("an owner").clone();
        let socket = self.socket.try_clone().expect("a socket");
        Flood::from(socket, move |turn, out| {
            let own = BaseRepr {
                gaid: grant.gaid,
                epoch: grant.epoch,
                src: grant.endpoint,
                src_incarnation: Self::INCARNATION,
                dst: grant.server,
                dst_incarnation: grant.server_incarnation,
                slot: grant.slot_base + turn as u32 / 4 % grant.flows,
                seq: 1 + turn as u32 / 8,
                ..BaseRepr::new(FrameKind::MapData)
            };
            let theirs = BaseRepr { gaid: victim.gaid, epoch: victim.epoch, dst: owner.endpoint, ..own };
            let kinds = [
                FrameKind::MapRead,
                FrameKind::MapWipe,
                FrameKind::MapClose,
                FrameKind::MapResult,
                FrameKind::MapPlaces,
            ];
            let kind = kinds[turn as usize / 4 % kinds.len()];
            let base = match turn % 4 {
                0 | 1 => own,
                // Frames to registers of the victim, also as its server, which reads, clears and closes them.
                2 => theirs,
                _ => BaseRepr { flags: Flags::FROM_SERVER, round: 1 + turn as u32 % 50, ..theirs }.with_kind(kind),
            };
            out.extend(pairs_frame(base, turn));
            element
        })
    }
}

/// Copy of a header with another kind.
trait WithKind {
    fn with_kind(self, kind: FrameKind) -> Self;
}

impl WithKind for BaseRepr {
    fn with_kind(self, kind: FrameKind) -> Self {
        Self { kind: kind as u8, ..self }
    }
}

async fn check_isolation() {
    let network = Network::start().await;
    let words = network.server(part(&["T-WORDS"]), false).await;
    let others = network.server(part(&["T-SUM", "T-LOCKS"]), false).await;
    let channel = words.channel().await;
    add(channel.clone(), Arc::new(AtomicBool::new(true)), 3).await;
    let victim = network.application("T-WORDS").await;

    let stop = Arc::new(AtomicBool::new(false));
    let adding = tokio::spawn(add(channel.clone(), Arc::clone(&stop), 50));
    let rogue = MaliciousMember::join(&others, "T-LOCKS").await;
    let flood = rogue.flood(&victim);
    until(|| flood.sent() >= FLOOD).await;
    // The server stops and restarts during the flood.
    others.stop().await;
    let others = network.server(part(&["T-SUM", "T-LOCKS"]), false).await;
    let workers = [others.channel().await, others.channel().await];
    let [a, b] = workers.clone();
    tokio::join!(sum(a, 0, 5), sum(b, 1, 5));
    // The server waited for the end of its predecessor's lease, and uses the element again.
    for worker in &workers {
        assert!(worker.stats().applications.iter().any(|app| app.map.lanes_element > 0), "{:?}", worker.stats());
    }
    stop.store(true, Ordering::Relaxed);
    // All calls met their deadline: none was starved.
    let calls = 3 + adding.await.expect("the task succeeds");
    // Half of the flood targets the victim; the element receives as much of it as its queue holds.
    while network.counted(victim.gaid).await("not_admitted") < FLOOD / 8 {
        tokio::task::yield_now().await;
    }
    drop(flood);

    assert_eq!(value(&channel, "key 7").await, calls as i64, "each addition once, and no foreign ones");
    let after = network.application("T-WORDS").await;
    assert_eq!((after.epoch, &after.memory, &after.endpoints), (victim.epoch, &victim.memory, &victim.endpoints));
    let counted = network.counted(victim.gaid).await;
    assert!(counted("drop_not_admitted") > 0, "forged frames of the server were not dropped");
    let stats = channel.stats();
    let app = stats.applications.iter().find(|app| app.name == "T-WORDS").expect("joined");
    assert!(app.joins == 1 && app.map.lanes_element > 0, "{app:?}");
}

/// Kills a worker's process in the middle of a round, three times; each time a new one takes its place.
async fn check_dying_workers() {
    let network = Network::start().await;
    let running = network.server(&PATHCALL, false).await;
    let mut training = TrainingClient::new(running.channel().await);
    for _ in 0..3 {
        // As when a process is killed: its sockets are closed without a message.
        let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let doomed = doomed.expect("a runtime");
        doomed.spawn(sum_ones(running.uri()));
        // A worker that joins in a call whose other half is gone gets an error and starts afresh.
        while let Err(error) = training.update(within(5_000, gradient(&[1.0; 50_000]))).await.map(all_twos) {
            let told = matches!(error.code(), Code::FailedPrecondition | Code::DeadlineExceeded | Code::Unavailable);
            assert!(told, "{error}");
        }
        // The other worker has begun its next round, or is about to.
        doomed.shutdown_background();
        let began = Instant::now();
        let outcome = training.update(within(1_000, gradient(&[1.0; 50_000]))).await.map(all_twos);
        assert!(began.elapsed() < Duration::from_secs(120), "no answer after the call's deadline");
        if let Err(error) = outcome {
            assert!(matches!(error.code(), Code::DeadlineExceeded | Code::FailedPrecondition), "{error}");
        }
    }
}

/// Sums ones without end, whatever the outcome of the calls.
async fn sum_ones(uri: String) {
    let channel = Channel::connect(uri, &PATHCALL).await.expect("connects");
    loop {
        let outcome = TrainingClient::new(channel.clone()).update(gradient(&[1.0; 50_000])).await.map(all_twos);
        // Errors come in time; a client may retry at once.
        drop(outcome);
    }
}

fn all_twos(sums: tonic::Response<AgtrGrad>) {
    let sums = sums.into_inner().tensor.expect("sums").data;
    assert!(sums.len() == 50_000 && sums.iter().all(|sum| *sum == 2.0), "a wrong sum");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_stay_correct_under_datagram_floods() {
    // The test measures the memory of its process.
    if !is_alone("bad_input::calls_stay_correct_under_datagram_floods") {
        return;
    }
    tokio::time::timeout(LIMIT, check_calls_under_floods()).await.expect("the test finishes in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malicious_member_does_not_affect_other_application() {
    tokio::time::timeout(LIMIT, check_isolation()).await.expect("the test finishes in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_death_in_round_gives_result_or_error() {
    tokio::time::timeout(LIMIT, check_dying_workers()).await.expect("the test finishes in time");
}
