//! Tests of calls to a pool through an element on real sockets: cloned to two servers, answered once.

use std::net::Ipv4Addr;

use super::common::{ElementFixture, config, fixture, fixture_with};
use crate::Config;
use pathcall_proto::v1::{CountersReply, EndpointEntry, InstallPoolRequest, SetEndpointsRequest, TokenKey};
use pathcall_test_support::HANG;
use pathcall_wire::clone::{CLONE, ORIGINAL, emit};
use pathcall_wire::{BaseRepr, CloneFlags, CloneFrame, CloneRepr, Flags, FrameKind, MAX_FRAME};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use tonic::Code;

pub(super) const GAID: u32 = 9;
pub(super) const CALLER: u32 = 31;
/// Endpoints of the servers, by SID.
pub(super) const SERVERS: [u32; 2] = [41, 42];
pub(super) const INCARNATION: u32 = 4;
pub(super) const KEY: [u64; 2] = [7, 8];

/// Socket of a caller or a server. Its frames are signed if it has a key.
pub(super) struct ElementHost {
    socket: UdpSocket,
    key: Option<pathcall_wire::TokenKey>,
}

impl ElementHost {
    pub(super) async fn send(&self, kind: FrameKind, src: u32, dst: u32, head: CloneRepr) {
        self.send_with(BaseRepr::new(kind), src, dst, head).await;
    }

    /// Sends a frame with the kind and the round of `base`.
    pub(super) async fn send_with(&self, base: BaseRepr, src: u32, dst: u32, head: CloneRepr) {
        let flags = if src == CALLER { 0 } else { Flags::FROM_SERVER };
        let (gaid, src_incarnation) = (GAID, INCARNATION);
        let base = BaseRepr { flags, gaid, epoch: 1, src, src_incarnation, dst, seq: 1, ..base };
        let (mut bytes, mut room) = ([0; MAX_FRAME], [0; MAX_FRAME]);
        let len = emit(&base, &head, b"a request", &mut bytes);
        let plain = &bytes[..len];
        let frame = self.key.as_ref().map_or(plain, |key| key.insert_token(plain, &mut room).unwrap());
        self.socket.send(frame).await.unwrap();
    }

    pub(super) async fn receive(&self) -> CloneFrame<Vec<u8>> {
        let mut bytes = vec![0; MAX_FRAME];
        let len = timeout(HANG, self.socket.recv(&mut bytes)).await.expect("a frame").unwrap();
        bytes.truncate(len);
        assert!(self.key.is_none_or(|key| key.has_signed(&bytes)), "the frame is signed");
        CloneFrame::new_checked(bytes).unwrap()
    }
}

fn pool(boot_id: u64, key: Option<[u64; 2]>) -> InstallPoolRequest {
    let token_key = key.map(TokenKey::from);
    InstallPoolRequest { boot_id, gaid: GAID, version: 1, servers: SERVERS.to_vec(), token_key }
}

/// Installs the pool, its caller and its servers.
pub(super) async fn hosts(fixture: &mut ElementFixture, key: Option<[u64; 2]>) -> [ElementHost; 3] {
    let boot_id = fixture.element.boot_id();
    fixture.control.install_pool(pool(boot_id, key)).await.unwrap();
    let mut hosts = Vec::new();
    for endpoint in [CALLER, SERVERS[0], SERVERS[1]] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        socket.connect(fixture.element.data_addr()).await.unwrap();
        let data_address = socket.local_addr().unwrap().to_string();
        let entry =
            EndpointEntry { endpoint, incarnation: INCARNATION, data_address, gaid: GAID, slot_base: 0, slots: 0 };
        fixture.control.set_endpoints(SetEndpointsRequest { boot_id, endpoints: vec![entry] }).await.unwrap();
        hosts.push(ElementHost { socket, key: key.map(pathcall_wire::TokenKey::new) });
    }
    hosts.try_into().unwrap_or_else(|_| unreachable!("three of them"))
}

async fn call_clone_and_answer(config: Config, key: Option<[u64; 2]>) -> CountersReply {
    let mut fixture = fixture_with(config).await;
    let [caller, first, second] = hosts(&mut fixture, key).await;
    let may = CloneRepr { flags: CloneFlags::CLONE, parts: 1, ..CloneRepr::default() };
    caller.send(FrameKind::CloneRequest, CALLER, 0, may).await;
    let (original, clone) = (first.receive().await, second.receive().await);
    assert_eq!((original.head().clo(), clone.head().clo()), (ORIGINAL, CLONE));
    assert_eq!((original.base().dst(), clone.base().dst()), (SERVERS[0], SERVERS[1]));
    assert_eq!((original.payload(), original.head().req_id()), (clone.payload(), clone.head().req_id()));

    let head = |sid, state| CloneRepr { sid, state, ..original.head().repr() };
    second.send(FrameKind::CloneReply, SERVERS[1], CALLER, head(1, 0)).await;
    assert_eq!(caller.receive().await.head().sid(), 1);
    // The slower answer is dropped; a working message is never filtered.
    first.send(FrameKind::CloneReply, SERVERS[0], CALLER, head(0, 2)).await;
    first.send(FrameKind::CloneWorking, SERVERS[0], CALLER, head(0, 2)).await;
    assert_eq!(caller.receive().await.kind(), FrameKind::CloneWorking, "the slower answer was filtered");

    caller.send(FrameKind::CloneRequest, CALLER, 0, may).await;
    assert_eq!(first.receive().await.head().clo(), 0, "no clone to a busy server");
    let reply = fixture.counters().await;
    let counters = &reply.applications[&GAID].counters;
    let of = ["requests", "clones", "replies", "filtered"].map(|name| counters[name]);
    assert_eq!((of, reply.element["drop_filtered"]), ([2, 1, 3, 1], 1));
    assert!(
        fixture
            .control
            .last_seen(pathcall_proto::v1::LastSeenRequest {})
            .await
            .unwrap()
            .into_inner()
            .age_ns
            .contains_key(&GAID)
    );
    reply
}

#[tokio::test]
async fn call_is_cloned_and_answered_once() {
    call_clone_and_answer(config(), None).await;
}

#[tokio::test]
async fn call_with_tokens_is_cloned_and_answered_once() {
    call_clone_and_answer(config(), Some(KEY)).await;
}

/// Test with the XDP program on the loopback interface of a separate network. The kernel has no route out there, so
/// each frame goes to user space after processing, and user space makes the second pass.
#[cfg(feature = "xdp")]
#[test]
fn call_through_kernel_is_cloned_and_answered_once() {
    let Some(network) = network::Network::own() else { return };
    network.enter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reply = runtime.block_on(call_clone_and_answer(config().xdp(vec!["lo".to_owned()]), None));
    assert_eq!(reply.element["xdp_slow"], 4, "every frame but the clones of user space");
}

#[cfg(feature = "xdp")]
pub(super) mod network {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::process::{self, Command};
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    /// Network namespace of one test; dropped with the value.
    pub(crate) struct Network(String);

    impl Network {
        /// Creates the namespace. Prints a note and returns `None` without the rights.
        pub(crate) fn own() -> Option<Self> {
            if !rustix::process::geteuid().is_root() && std::env::var_os("PATHCALL_ROOT_TESTS").is_none() {
                println!("skipped: needs root");
                return None;
            }
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let network = Self(format!("pc-element-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
            network.ip(&["netns", "add", &network.0]);
            network.ip(&["-n", &network.0, "link", "set", "lo", "up"]);
            // An element sends frames for the same address in one batch, which this interface would not split.
            network.ip(&["-n", &network.0, "link", "set", "lo", "gso_max_segs", "1"]);
            Some(network)
        }

        /// Moves this thread, and all threads that it starts, into the namespace.
        pub(crate) fn enter(&self) {
            let namespace = File::open(format!("/run/netns/{}", self.0)).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        }

        fn ip(&self, arguments: &[&str]) {
            let printed = Command::new("ip").args(arguments).output().expect("ip: Debian package iproute2");
            assert!(printed.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&printed.stderr));
        }
    }

    impl Drop for Network {
        fn drop(&mut self) {
            // The namespace may not exist.
            let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
        }
    }
}

#[tokio::test]
async fn invalid_pool_is_refused() {
    let mut fixture = fixture().await;
    let right = pool(fixture.element.boot_id(), None);
    for (wrong, code) in [
        (InstallPoolRequest { boot_id: right.boot_id ^ 1, ..right.clone() }, Code::FailedPrecondition),
        (InstallPoolRequest { gaid: super::common::GAID, ..right.clone() }, Code::AlreadyExists),
        (InstallPoolRequest { servers: vec![1, 2, 1], ..right.clone() }, Code::InvalidArgument),
        (InstallPoolRequest { servers: (0..=512).collect(), ..right.clone() }, Code::OutOfRange),
    ] {
        assert_eq!(fixture.control.install_pool(wrong).await.unwrap_err().code(), code);
    }
    fixture.control.install_pool(right).await.unwrap();
}
