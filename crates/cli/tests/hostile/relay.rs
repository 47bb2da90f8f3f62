//! Another network, with somebody on the way between hosts and element who hears every frame, forges, repeats, damages and
//! cuts them, and has no key: calls stay right, and counters tell what was dropped where.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{CountersReply, CountersRequest, ElementGrant, RegisterElementRequest};
use pathcall_rpc::{Channel, Server};
use pathcall_test_support::service::{Running, counts, gradient, names, str_int};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use pathcall_wire::{BaseRepr, Flags, Kind, MAX_FRAME, MapFrame, TokenKey};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tonic::Streaming;

use crate::apart::LIMIT;

const CALLERS: u64 = 2;
const CALLS: u64 = 150;
const VALUES: u64 = 600;
/// Frames that the hostile relay keeps, to send them again.
const HEARD_MAX: usize = 512;

/// A controller and an element, which hosts reach by a relay only.
struct Network {
    controller: pathcall_control::Handle,
    element: pathcall_element::Handle,
    _registered: Streaming<ElementGrant>,
    relay: JoinHandle<()>,
}

/// A controller and an element, and the socket that the controller takes for the element's.
pub(super) struct Behind {
    pub(super) controller: pathcall_control::Handle,
    pub(super) element: pathcall_element::Handle,
    pub(super) registered: Streaming<ElementGrant>,
    pub(super) socket: UdpSocket,
}

/// Starts both on free ports, with the socket between the element and its hosts.
pub(super) async fn behind(config: pathcall_element::Config) -> Behind {
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
    };
    let mut client = ControllerClient::connect(controller.url()).await.expect("it serves");
    let mut registered = client.register_element(request).await.expect("registers").into_inner();
    registered.message().await.expect("a stream").expect("a grant");
    Behind { controller, element, registered, socket }
}

impl Network {
    async fn start() -> Self {
        let Behind { controller, element, registered, socket } = behind(pathcall_element::Config::default()).await;
        let relay = Relay { socket, element: element.data_addr(), hosts: HashMap::new(), heard: Vec::new(), turn: 0 };
        Self { controller, element, _registered: registered, relay: tokio::spawn(relay.run()) }
    }

    async fn counters(&self) -> CountersReply {
        let mut client =
            ElementClient::connect(format!("http://{}", self.element.control_addr())).await.expect("serves");
        client.counters(CountersRequest {}).await.expect("answers").into_inner()
    }
}

/// Passes on what hosts send to the element, and more.
struct Relay {
    socket: UdpSocket,
    element: SocketAddr,
    /// Where endpoints send from.
    hosts: HashMap<u32, SocketAddr>,
    heard: Vec<Vec<u8>>,
    turn: usize,
}

impl Relay {
    async fn run(mut self) {
        let mut buffer = vec![0; 65_536];
        loop {
            // What the system says of an earlier datagram is of no interest.
            let Ok((len, from)) = self.socket.recv_from(&mut buffer).await else { continue };
            let frame = buffer[..len].to_vec();
            // Before the frame, so that whatever names it right would take its place.
            self.be_hostile(from, &frame).await;
            let _ = self.socket.send_to(&frame, self.element).await;
        }
    }

    async fn be_hostile(&mut self, from: SocketAddr, frame: &[u8]) {
        self.turn += 1;
        let turn = self.turn;
        let base = MapFrame::new_checked(frame).expect("hosts send frames").base().repr();
        self.hosts.insert(base.src, from);
        let (bytes, to) = match turn % 8 {
            0 => (unsigned(frame, base), self.element),
            1 => (flipped(frame, turn), self.element),
            2 => (frame[..turn % frame.len()].to_vec(), self.element),
            3 => ((0..turn % 900).map(|i| (i * turn * 31) as u8).collect(), self.element),
            4 => (self.heard.get(turn * 7 % HEARD_MAX).cloned().unwrap_or_default(), self.element),
            // To the other end directly, as if it came past the element; from either host.
            5 => (another(frame, BaseRepr { flags: base.flags | Flags::CROSS, ..base }), self.other(base.dst)),
            // As the server would say it, to the element and to a caller.
            6 => (another(frame, from_server(base, Kind::MapWipe)), self.element),
            _ => (another(frame, from_server(base, Kind::MapResult)), from),
        };
        let _ = self.socket.send_to(&bytes, to).await;
        if self.heard.len() < HEARD_MAX {
            self.heard.push(frame.to_vec());
        } else {
            self.heard[turn % HEARD_MAX] = frame.to_vec();
        }
    }

    fn other(&self, endpoint: u32) -> SocketAddr {
        self.hosts.get(&endpoint).copied().unwrap_or(self.element)
    }
}

/// The frame with other lanes and no token.
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

/// The frame under another header, with a token by another key.
fn another(frame: &[u8], base: BaseRepr) -> Vec<u8> {
    let plain = unsigned(frame, base);
    TokenKey::new([1, 2]).seal(&plain, &mut [0; MAX_FRAME]).map_or(plain.clone(), <[u8]>::to_vec)
}

fn from_server(base: BaseRepr, kind: Kind) -> BaseRepr {
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

/// One caller's calls of three applications, each of which checks its answer; its channel at the end.
async fn calls(uri: String, caller: u64) -> Channel {
    // Frames go by the relay: there is none in memory that two processes share.
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
        locks.release(names(&[&own], "")).await.expect("given back");
    }
    channel
}

async fn play() {
    let network = Network::start().await;
    let builder = Server::builder(&PATHCALL).controller(network.controller.url()).authenticate_frames(true);
    let builder = builder.shared_memory(false);
    let running = Running::start_with(builder.build().await.expect("the controller is there"), 0).await;
    let callers: Vec<_> = (0..CALLERS).map(|caller| tokio::spawn(calls(running.uri(), caller))).collect();
    let mut channels = Vec::new();
    for caller in callers {
        channels.push(caller.await.expect("every answer is right"));
    }
    let wanted = Wanted { keys: Some(str_int(&[("key 7", 0), ("key 39", 0)])), ..Wanted::default() };
    let found = WordsClient::new(channels[0].clone()).query(wanted).await.expect("asked").into_inner();
    let sum = (CALLS * (1..=CALLERS).sum::<u64>()) as i64;
    assert_eq!(found.kvs, Some(str_int(&[("key 7", sum), ("key 39", sum)])), "each addition once");

    assert!(!network.relay.is_finished(), "hosts sent frames only");
    let element = network.counters().await;
    // Pools have counters of their own among them.
    let counted = |name: &str| element.applications.values().filter_map(|of| of.counters.get(name)).sum::<u64>();
    assert!(counted("unauthentic") > 0 && element.element["drop_malformed"] > 0, "{element:?}");
    assert!(counted("repeats") + counted("stale") > 0, "what was right once came again: {element:?}");
    assert!(counted("applied") > 0 && counted("admitted") > counted("unauthentic"), "{element:?}");
    let servers = running.pathcall.stats();
    assert!(servers.iter().any(|application| application.map.frames_unauthentic > 0), "{servers:?}");
    for channel in &channels {
        let callers = channel.stats().applications;
        assert!(callers.iter().any(|application| application.map.frames_unauthentic > 0), "{callers:?}");
        assert!(callers.iter().any(|application| application.map.lanes_element > 0), "{callers:?}");
        assert!(callers.iter().all(|application| application.joins <= 1), "nobody lost its place");
    }
}

#[tokio::test]
async fn calls_stay_right_with_a_forger_on_the_way() {
    tokio::time::timeout(LIMIT, play()).await.expect("it ends");
}
