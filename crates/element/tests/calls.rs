//! Calls to a pool through an element on real sockets: cloned to two servers, answered once.

use std::net::Ipv4Addr;

use crate::common::{World, config, world, world_of};
use pathcall_element::Config;
use pathcall_proto::v1::{CountersReply, EndpointEntry, InstallPoolRequest, SetEndpointsRequest, TokenKey};
use pathcall_test_support::HANG;
use pathcall_wire::clone::{CLONE, ORIGINAL, emit};
use pathcall_wire::{BaseRepr, CloneFlags, CloneFrame, CloneRepr, Flags, Kind, MAX_FRAME};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use tonic::Code;

const GAID: u32 = 9;
const CALLER: u32 = 31;
/// Endpoints of the servers, by SID.
const SERVERS: [u32; 2] = [41, 42];
const INCARNATION: u32 = 4;
const KEY: [u64; 2] = [7, 8];

/// A caller or a server; its frames are signed if they are to be.
struct Party {
    socket: UdpSocket,
    key: Option<pathcall_wire::TokenKey>,
}

impl Party {
    async fn send(&self, kind: Kind, src: u32, dst: u32, head: CloneRepr) {
        let flags = if src == CALLER { 0 } else { Flags::FROM_SERVER };
        let (gaid, src_incarnation) = (GAID, INCARNATION);
        let base = BaseRepr { flags, gaid, epoch: 1, src, src_incarnation, dst, seq: 1, ..BaseRepr::new(kind) };
        let (mut bytes, mut room) = ([0; MAX_FRAME], [0; MAX_FRAME]);
        let len = emit(&base, &head, b"a question", &mut bytes);
        let plain = &bytes[..len];
        let frame = self.key.as_ref().map_or(plain, |key| key.seal(plain, &mut room).unwrap());
        self.socket.send(frame).await.unwrap();
    }

    async fn receive(&self) -> CloneFrame<Vec<u8>> {
        let mut bytes = vec![0; MAX_FRAME];
        let len = timeout(HANG, self.socket.recv(&mut bytes)).await.expect("a frame should come").unwrap();
        bytes.truncate(len);
        assert!(self.key.is_none_or(|key| key.has_signed(&bytes)), "it leaves signed");
        CloneFrame::new_checked(bytes).unwrap()
    }
}

fn pool(boot_id: u64, key: Option<[u64; 2]>) -> InstallPoolRequest {
    let token_key = key.map(TokenKey::from);
    InstallPoolRequest { boot_id, gaid: GAID, version: 1, servers: SERVERS.to_vec(), token_key }
}

/// The pool, its caller and its servers, known to the element.
async fn parties(world: &mut World, key: Option<[u64; 2]>) -> [Party; 3] {
    let boot_id = world.element.boot_id();
    world.control.install_pool(pool(boot_id, key)).await.unwrap();
    let mut parties = Vec::new();
    for endpoint in [CALLER, SERVERS[0], SERVERS[1]] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        socket.connect(world.element.data_addr()).await.unwrap();
        let data_address = socket.local_addr().unwrap().to_string();
        let entry =
            EndpointEntry { endpoint, incarnation: INCARNATION, data_address, gaid: GAID, slot_base: 0, slots: 0 };
        world.control.set_endpoints(SetEndpointsRequest { boot_id, endpoints: vec![entry] }).await.unwrap();
        parties.push(Party { socket, key: key.map(pathcall_wire::TokenKey::new) });
    }
    parties.try_into().unwrap_or_else(|_| unreachable!("three of them"))
}

async fn answered_once(config: Config, key: Option<[u64; 2]>) -> CountersReply {
    let mut world = world_of(config).await;
    let [caller, first, second] = parties(&mut world, key).await;
    let may = CloneRepr { flags: CloneFlags::CLONE, parts: 1, ..CloneRepr::default() };
    caller.send(Kind::CloneRequest, CALLER, 0, may).await;
    let (original, clone) = (first.receive().await, second.receive().await);
    assert_eq!((original.head().clo(), clone.head().clo()), (ORIGINAL, CLONE));
    assert_eq!((original.base().dst(), clone.base().dst()), (SERVERS[0], SERVERS[1]));
    assert_eq!((original.payload(), original.head().req_id()), (clone.payload(), clone.head().req_id()));

    let head = |sid, state| CloneRepr { sid, state, ..original.head().repr() };
    second.send(Kind::CloneReply, SERVERS[1], CALLER, head(1, 0)).await;
    assert_eq!(caller.receive().await.head().sid(), 1);
    // The slower answer, and then a word that is never stopped.
    first.send(Kind::CloneReply, SERVERS[0], CALLER, head(0, 2)).await;
    first.send(Kind::CloneWorking, SERVERS[0], CALLER, head(0, 2)).await;
    assert_eq!(caller.receive().await.kind(), Kind::CloneWorking, "nothing came before it");

    caller.send(Kind::CloneRequest, CALLER, 0, may).await;
    assert_eq!(first.receive().await.head().clo(), 0, "it is busy");
    let reply = world.counters().await;
    let counters = &reply.applications[&GAID].counters;
    let of = ["requests", "clones", "replies", "filtered"].map(|name| counters[name]);
    assert_eq!((of, reply.element["drop_filtered"]), ([2, 1, 3, 1], 1));
    assert!(
        world
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
async fn a_call_is_cloned_and_answered_once() {
    answered_once(config(), None).await;
}

#[tokio::test]
async fn and_with_tokens() {
    answered_once(config(), Some(KEY)).await;
}

/// With the program in the kernel, at the loopback of a network of its own: there is no way out for it there, so each
/// frame comes up when it is worked on, and user space makes the second pass.
#[cfg(feature = "xdp")]
#[test]
fn and_with_the_program_in_the_kernel() {
    let Some(network) = network::Network::own() else { return };
    network.enter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reply = runtime.block_on(answered_once(config().xdp(vec!["lo".to_owned()]), None));
    assert_eq!(reply.element["xdp_slow"], 4, "all that left but what user space makes");
}

#[cfg(feature = "xdp")]
mod network {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::process::{self, Command};

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    /// A network namespace that only this test is in; dropping it takes it away.
    pub(crate) struct Network(String);

    impl Network {
        /// Nothing, said aloud, where that takes more rights than there are.
        pub(crate) fn own() -> Option<Self> {
            if !rustix::process::geteuid().is_root() && std::env::var_os("PATHCALL_ROOT_TESTS").is_none() {
                println!("skipped: it takes root");
                return None;
            }
            let network = Self(format!("pc-element-{}", process::id()));
            network.ip(&["netns", "add", &network.0]);
            network.ip(&["-n", &network.0, "link", "set", "lo", "up"]);
            Some(network)
        }

        /// Moves this thread there, and all that it starts.
        pub(crate) fn enter(&self) {
            let namespace = File::open(format!("/run/netns/{}", self.0)).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        }

        fn ip(&self, arguments: &[&str]) {
            let said = Command::new("ip").args(arguments).output().expect("ip: Debian package iproute2");
            assert!(said.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
        }
    }

    impl Drop for Network {
        fn drop(&mut self) {
            // One that was never made is no concern.
            let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
        }
    }
}

#[tokio::test]
async fn a_pool_that_can_not_be_is_refused() {
    let mut world = world().await;
    let right = pool(world.element.boot_id(), None);
    for (wrong, code) in [
        (InstallPoolRequest { boot_id: right.boot_id ^ 1, ..right.clone() }, Code::FailedPrecondition),
        (InstallPoolRequest { gaid: crate::common::GAID, ..right.clone() }, Code::AlreadyExists),
        (InstallPoolRequest { servers: vec![1, 2, 1], ..right.clone() }, Code::InvalidArgument),
        (InstallPoolRequest { servers: (0..65).collect(), ..right.clone() }, Code::OutOfRange),
    ] {
        assert_eq!(world.control.install_pool(wrong).await.unwrap_err().code(), code);
    }
    world.control.install_pool(right).await.unwrap();
}
