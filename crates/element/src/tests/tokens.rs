//! Tests of an application with tokens on real sockets. A hostile host knows every name and receives every frame, but
//! has no key.

use super::common::{BANK, ElementFixture, GAID, Host, SERVER, application, keyed};
use crate::Handle;
use pathcall_proto::v1::{CountersReply, ElementApplication, InstallApplicationRequest};
use pathcall_wire::{Flags, FrameKind, MAX_FRAME, MapFlags, MapFrame, TokenKey};
use tokio::net::UdpSocket;

const KEY: TokenKey = TokenKey::new([0x1234_5678, 0x9abc_def0]);
const CALLER: u32 = 11;
/// Frames of the caller, each accompanied by one hostile frame of every kind.
const TURNS: u32 = 600;

async fn signed_fixture() -> ElementFixture {
    let mut fixture = super::common::fixture().await;
    let application = ElementApplication { token_key: Some(KEY.words().into()), ..application() };
    let boot_id = fixture.element.boot_id();
    fixture
        .control
        .install_application(InstallApplicationRequest { boot_id, application: Some(application) })
        .await
        .unwrap();
    fixture
}

fn signed(frame: &[u8]) -> Vec<u8> {
    KEY.insert_token(frame, &mut [0; MAX_FRAME]).expect("room").to_vec()
}

/// Deterministic bytes that look random.
fn random_bytes(turn: u32, len: usize) -> Vec<u8> {
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

/// Addition that the caller makes in a turn.
fn addition(caller: &Host, server: &Host, turn: u32) -> Vec<u8> {
    keyed(caller.base(FrameKind::MapData, server, turn), MapFlags::ADD, &[(1, 3), (2, turn.cast_signed())])
}

#[tokio::test]
async fn hostile_host_changes_nothing_and_is_counted() {
    let mut fixture = signed_fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(CALLER).await);
    let mut hostile = Hostile::new(&fixture.element).await;
    let other = TokenKey::new([1, 2]);
    let mut received: Vec<Vec<u8>> = Vec::new();
    for turn in 1..=TURNS {
        let frame = addition(&caller, &server, turn);
        let good = signed(&frame);
        // Forgeries of the caller's next frame: without token, with a guessed one, with the token of another frame.
        hostile.send(&frame).await;
        hostile.send(other.insert_token(&frame, &mut [0; MAX_FRAME]).expect("room")).await;
        let mut changed = good.clone();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        hostile.send(&changed).await;
        // Kinds of frames that only the server may send.
        for kind in [FrameKind::MapWipe, FrameKind::MapClose, FrameKind::MapRead] {
            hostile.send(&keyed(server.base(kind, &server, 0), MapFlags::BARE, &[])).await;
        }
        // Bytes that are no frame.
        hostile.send(&good[..(turn as usize * 7) % good.len()]).await;
        hostile.send(&random_bytes(turn, turn as usize % 700)).await;
        // Replay of an earlier valid frame.
        if let Some(earlier) = received.get(turn as usize / 2) {
            hostile.send(earlier).await;
        }
        caller.send(&good).await;
        let ack = answer(&caller, turn).await;
        assert!(KEY.has_signed(ack.as_bytes()), "the element signs its answer");
        received.push(good);
    }
    let turns = i64::from(TURNS);
    let sums = (fixture.row(1).await[BANK], fixture.row(2).await[BANK + 1]);
    assert_eq!(sums, (3 * turns as i32, (turns * (turns + 1) / 2) as i32), "each addition once");

    let counters = fixture.counters().await;
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

/// Answer to the caller's frame of a turn; answers to replays are skipped.
async fn answer(caller: &Host, turn: u32) -> MapFrame<Vec<u8>> {
    loop {
        let frame = caller.receive().await;
        if frame.kind() == FrameKind::MapAck && frame.base().seq() == turn {
            return frame;
        }
    }
}

#[tokio::test]
async fn each_multicast_copy_is_signed() {
    let mut fixture = signed_fixture().await;
    let server = fixture.host(SERVER).await;
    let members = [fixture.host(CALLER).await, fixture.host(CALLER + 1).await];
    fixture.set_group(&[CALLER, CALLER + 1]).await;
    let mut base = server.base(FrameKind::MapSoft, &members[0], 0);
    base.flags |= Flags::MCAST;
    server.send(&signed(&keyed(base, MapFlags::BARE, &[]))).await;
    for member in &members {
        let frame = member.receive().await;
        assert_eq!((frame.base().dst(), KEY.has_signed(frame.as_bytes())), (member.endpoint, true));
    }
}
