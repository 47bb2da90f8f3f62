//! Test with a forger between hosts and element, which records, forges, replays, damages and truncates frames, but has
//! no key: results stay correct, and counters show the drops.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{CountersReply, CountersRequest, ElementGrant, RegisterElementRequest};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::{TestServer, counts, gradient, names, str_int};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MAX_FRAME, MapFrame, TokenKey};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tonic::Streaming;

use crate::isolation::LIMIT;

const CALLERS: u64 = 2;
const CALLS: u64 = 150;
const VALUES: u64 = 600;
/// Recorded frames for replays.
const HEARD_MAX: usize = 512;

/// Controller and element, which hosts reach only through a relay.
struct Network {
    controller: pathcall_control::Handle,
    element: pathcall_element::Handle,
    _registered: Streaming<ElementGrant>,
    relay: JoinHandle<()>,
}

/// Controller, element, and the socket that the controller believes to be the element's.
pub(super) struct RelayedElement {
    pub(super) controller: pathcall_control::Handle,
    pub(super) element: pathcall_element::Handle,
    pub(super) registered: Streaming<ElementGrant>,
    pub(super) socket: UdpSocket,
}

/// Starts both on free ports, with the socket between the element and its hosts.
pub(super) async fn start_behind_relay(config: pathcall_element::Config) -> RelayedElement {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = pathcall_control::bind(free).await.expect("a free port");
    let controller = pathcall_control::serve(listener, pathcall_control::Config::default()).await.expect("starts");
    let size = config.size;
    let element = pathcall_element::run(config.data(free).control(free)).await.expect("starts");
    let socket = UdpSocket::bind(free).await.expect("a free port");
    let request = RegisterElementRequest {
        boot_id: element.boot_id(),
        data_address: socket.local_addr().expect("bound").to_string(),
        control_address: element.control_url().to_owned(),
        rows: size.rows as u32,
        lanes: size.lanes as u32,
        slots: size.slots as u32,
        holds_hedges: true,
        ..RegisterElementRequest::default()
    };
    let mut client = ControllerClient::connect(controller.url()).await.expect("connection to the service");
    let mut registered = client.register_element(request).await.expect("registers").into_inner();
    registered.message().await.expect("a stream").expect("a grant");
    RelayedElement { controller, element, registered, socket }
}

impl Network {
    async fn start() -> Self {
        let RelayedElement { controller, element, registered, socket } =
            start_behind_relay(pathcall_element::Config::default()).await;
        let relay =
            Relay { socket, element: element.data_addr(), hosts: HashMap::new(), received: Vec::new(), turn: 0 };
        Self { controller, element, _registered: registered, relay: tokio::spawn(relay.run()) }
    }

    async fn counters(&self) -> CountersReply {
        let mut client =
            ElementClient::connect(format!("http://{}", self.element.control_addr())).await.expect("serves");
        client.counters(CountersRequest {}).await.expect("answers").into_inner()
    }
}

/// Relay that forwards the frames of hosts to the element and adds forged ones.
struct Relay {
    socket: UdpSocket,
    element: SocketAddr,
    /// Source addresses of endpoints.
    hosts: HashMap<u32, SocketAddr>,
    received: Vec<Vec<u8>>,
    turn: usize,
}

impl Relay {
    async fn run(mut self) {
        let mut buffer = vec![0; 65_536];
        loop {
            // Errors of earlier datagrams do not matter.
            let Ok((len, from)) = self.socket.recv_from(&mut buffer).await else { continue };
            let frame = buffer[..len].to_vec();
            // Sent before the true frame, so that a forged frame with the right ids would take its place.
            self.attack(from, &frame).await;
            let _ = self.socket.send_to(&frame, self.element).await;
        }
    }

    async fn attack(&mut self, from: SocketAddr, frame: &[u8]) {
        self.turn += 1;
        let turn = self.turn;
        let base = MapFrame::new_checked(frame).expect("hosts send frames").base().repr();
        self.hosts.insert(base.src, from);
        let (bytes, to) = match turn % 8 {
            0 => (unsigned(frame, base), self.element),
            1 => (flipped(frame, turn), self.element),
            2 => (frame[..turn % frame.len()].to_vec(), self.element),
            3 => ((0..turn % 900).map(|i| (i * turn * 31) as u8).collect(), self.element),
            4 => (self.received.get(turn * 7 % HEARD_MAX).cloned().unwrap_or_default(), self.element),
            // Directly to the other host, as if it came past the element.
            5 => (another(frame, BaseRepr { flags: base.flags | Flags::CROSS, ..base }), self.other(base.dst)),
            // As from the server, to the element and to a caller.
            6 => (another(frame, from_server(base, FrameKind::MapWipe)), self.element),
            _ => (another(frame, from_server(base, FrameKind::MapResult)), from),
        };
        let _ = self.socket.send_to(&bytes, to).await;
        if self.received.len() < HEARD_MAX {
            self.received.push(frame.to_vec());
        } else {
            self.received[turn % HEARD_MAX] = frame.to_vec();
        }
    }

    fn other(&self, endpoint: u32) -> SocketAddr {
        self.hosts.get(&endpoint).copied().unwrap_or(self.element)
    }
}

/// Frame with other lanes and without token.
fn unsigned(frame: &[u8], base: BaseRepr) -> Vec<u8> {
    let mut bytes = [&frame[..44], &frame[52..]].concat();
    BaseRepr { flags: base.flags & !Flags::TOKEN, length: bytes.len() as u16, ..base }.emit(&mut bytes);
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    bytes
}

fn flipped(frame: &[u8], turn: usize) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    let bit = turn * 13 % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

/// Frame under another header, with a token of another key.
fn another(frame: &[u8], base: BaseRepr) -> Vec<u8> {
    let plain = unsigned(frame, base);
    TokenKey::new([1, 2]).insert_token(&plain, &mut [0; MAX_FRAME]).map_or(plain.clone(), <[u8]>::to_vec)
}

fn from_server(base: BaseRepr, kind: FrameKind) -> BaseRepr {
    BaseRepr {
        kind: kind as u8,
        flags: base.flags | Flags::FROM_SERVER,
        src: base.dst,
        src_incarnation: base.dst_incarnation,
        dst: base.src,
        dst_incarnation: base.src_incarnation,
        ..base
    }
}

/// Makes one caller's calls of three applications, and checks each answer. Returns the channel.
async fn calls(uri: String, caller: u64) -> Channel {
    // All frames pass the relay, so no shared memory.
    let builder = Channel::builder(uri, &PATHCALL).expect("an address").shared_memory(false);
    let channel = builder.connect().await.expect("connects");
    let mut words = WordsClient::new(channel.clone());
    let mut training = TrainingClient::new(channel.clone());
    let mut locks = LocksClient::new(channel.clone());
    let keys: Vec<String> = (0..40).map(|key| format!("key {key}")).collect();
    let pairs: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 1 + caller as i64)).collect();
    for call in 0..CALLS {
        words.reduce(counts(&pairs, "")).await.expect("added");
        let part: Vec<f64> = (0..VALUES).map(|i| (i * (caller + 1) + call) as f64).collect();
        let sums = training.update(gradient(&part)).await.expect("summed").into_inner().tensor.expect("sums");
        let expected = (0..VALUES).map(|i| (3 * i + 2 * call) as f64);
        assert!(sums.data.into_iter().eq(expected), "call {call} of caller {caller}");
        let own = format!("lock of {caller}");
        locks.lock(names(&[&own], "")).await.expect("taken");
        locks.release(names(&[&own], "")).await.expect("released");
    }
    channel
}

async fn play() {
    let network = Network::start().await;
    let builder = Layer::builder(&PATHCALL).controller(network.controller.url()).authenticate_frames(true);
    let builder = builder.shared_memory(false);
    let running = TestServer::start_with(builder.build().await.expect("the controller answers"), 0).await;
    let callers: Vec<_> = (0..CALLERS).map(|caller| tokio::spawn(calls(running.uri(), caller))).collect();
    let mut channels = Vec::new();
    for caller in callers {
        channels.push(caller.await.expect("correct answers"));
    }
    let wanted = Wanted { keys: Some(str_int(&[("key 7", 0), ("key 39", 0)])), ..Wanted::default() };
    let found = WordsClient::new(channels[0].clone()).query(wanted).await.expect("asked").into_inner();
    let sum = (CALLS * (1..=CALLERS).sum::<u64>()) as i64;
    assert_eq!(found.kvs, Some(str_int(&[("key 7", sum), ("key 39", sum)])), "each addition once");

    assert!(!network.relay.is_finished(), "the relay stopped");
    let element = network.counters().await;
    // Counters of pools are included.
    let counted = |name: &str| element.applications.values().filter_map(|of| of.counters.get(name)).sum::<u64>();
    assert!(counted("unauthentic") > 0 && element.element["drop_malformed"] > 0, "{element:?}");
    assert!(counted("repeats") + counted("stale") > 0, "replays were not counted: {element:?}");
    assert!(counted("applied") > 0 && counted("admitted") > counted("unauthentic"), "{element:?}");
    let servers = running.pathcall.stats();
    assert!(servers.iter().any(|application| application.map.frames_unauthentic > 0), "{servers:?}");
    for channel in &channels {
        let callers = channel.stats().applications;
        assert!(callers.iter().any(|application| application.map.frames_unauthentic > 0), "{callers:?}");
        assert!(callers.iter().any(|application| application.map.lanes_element > 0), "{callers:?}");
        assert!(callers.iter().all(|application| application.joins <= 1), "a member was dropped");
    }
}

#[tokio::test]
async fn calls_stay_correct_with_forger_on_path() {
    tokio::time::timeout(LIMIT, play()).await.expect("the test finishes in time");
}
