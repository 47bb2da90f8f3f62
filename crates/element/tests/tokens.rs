//! An application whose frames carry tokens, on real sockets: a hostile host that knows every name,
//! and hears every frame, but has no key.

use crate::common::{BANK, GAID, Host, SERVER, World, application, keyed};
use pathcall_element::Handle;
use pathcall_proto::v1::{CountersReply, ElementApplication, InstallRequest};
use pathcall_wire::{Flags, Kind, MAX_FRAME, MapFlags, MapFrame, TokenKey};
use tokio::net::UdpSocket;

const KEY: TokenKey = TokenKey::new([0x1234_5678, 0x9abc_def0]);
const CALLER: u32 = 11;
/// Frames of the caller, each amid one of every hostile kind.
const TURNS: u32 = 600;

async fn signed_world() -> World {
    let mut world = crate::common::world().await;
    let application = ElementApplication { token_key: Some(KEY.words().into()), ..application() };
    let boot_id = world.element.boot_id();
    world.control.install(InstallRequest { boot_id, application: Some(application) }).await.unwrap();
    world
}

fn signed(frame: &[u8]) -> Vec<u8> {
    KEY.seal(frame, &mut [0; MAX_FRAME]).expect("room").to_vec()
}

/// Bytes that look random, the same at each run.
fn noise(turn: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(turn) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

struct Hostile {
    socket: UdpSocket,
    sent: u64,
}

impl Hostile {
    async fn new(element: &Handle) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(element.data_addr()).await.unwrap();
        Self { socket, sent: 0 }
    }

    async fn send(&mut self, frame: &[u8]) {
        self.socket.send(frame).await.unwrap();
        self.sent += 1;
    }
}

fn count(counters: &CountersReply, name: &str) -> u64 {
    counters.applications[&GAID].counters.get(name).or_else(|| counters.element.get(name)).copied().expect(name)
}

/// What the caller adds in a turn.
fn addition(caller: &Host, server: &Host, turn: u32) -> Vec<u8> {
    keyed(caller.base(Kind::MapData, server, turn), MapFlags::ADD, &[(1, 3), (2, turn.cast_signed())])
}

#[tokio::test]
async fn a_hostile_host_changes_nothing_and_is_counted() {
    let mut world = signed_world().await;
    let (server, caller) = (world.host(SERVER).await, world.host(CALLER).await);
    let mut hostile = Hostile::new(&world.element).await;
    let other = TokenKey::new([1, 2]);
    let mut heard: Vec<Vec<u8>> = Vec::new();
    for turn in 1..=TURNS {
        let frame = addition(&caller, &server, turn);
        let good = signed(&frame);
        // The next frame of the caller before it comes: no token, a guess, a token of another frame.
        hostile.send(&frame).await;
        hostile.send(other.seal(&frame, &mut [0; MAX_FRAME]).expect("room")).await;
        let mut changed = good.clone();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        hostile.send(&changed).await;
        // The server's words, as nobody but the server may say them.
        for kind in [Kind::MapWipe, Kind::MapClose, Kind::MapRead] {
            hostile.send(&keyed(server.base(kind, &server, 0), MapFlags::BARE, &[])).await;
        }
        // What is no frame.
        hostile.send(&good[..(turn as usize * 7) % good.len()]).await;
        hostile.send(&noise(turn, turn as usize % 700)).await;
        // What was right once.
        if let Some(earlier) = heard.get(turn as usize / 2) {
            hostile.send(earlier).await;
        }
        caller.send(&good).await;
        let ack = answer(&caller, turn).await;
        assert!(KEY.has_signed(ack.as_bytes()), "the element signs its answer");
        heard.push(good);
    }
    let turns = i64::from(TURNS);
    let sums = (world.row(1).await[BANK], world.row(2).await[BANK + 1]);
    assert_eq!(sums, (3 * turns as i32, (turns * (turns + 1) / 2) as i32), "each addition once");

    let counters = world.counters().await;
    assert_eq!(count(&counters, "applied"), u64::from(TURNS));
    assert_eq!(
        (count(&counters, "unauthentic"), count(&counters, "drop_unauthentic")),
        (6 * u64::from(TURNS), 6 * u64::from(TURNS))
    );
    assert_eq!(count(&counters, "drop_malformed"), 2 * u64::from(TURNS));
    let replays = hostile.sent - 8 * u64::from(TURNS);
    assert!(replays > u64::from(TURNS) / 2 && count(&counters, "repeats") + count(&counters, "stale") == replays);
    assert_eq!((count(&counters, "harvests"), count(&counters, "reads"), count(&counters, "not_admitted")), (0, 0, 0));
}

/// The answer to the caller's frame of a turn; those to replays are passed over.
async fn answer(caller: &Host, turn: u32) -> MapFrame<Vec<u8>> {
    loop {
        let frame = caller.receive().await;
        if frame.kind() == Kind::MapAck && frame.base().seq() == turn {
            return frame;
        }
    }
}

#[tokio::test]
async fn copies_of_a_multicast_are_signed_for_each() {
    let mut world = signed_world().await;
    let server = world.host(SERVER).await;
    let members = [world.host(CALLER).await, world.host(CALLER + 1).await];
    world.set_group(&[CALLER, CALLER + 1]).await;
    let mut base = server.base(Kind::MapSoft, &members[0], 0);
    base.flags |= Flags::MCAST;
    server.send(&signed(&keyed(base, MapFlags::BARE, &[]))).await;
    for member in &members {
        let frame = member.receive().await;
        assert_eq!((frame.base().dst(), KEY.has_signed(frame.as_bytes())), (member.endpoint, true));
    }
}
