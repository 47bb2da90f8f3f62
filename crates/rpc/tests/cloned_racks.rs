//! Tests of cloned calls in two racks with an element each, through a real controller (NetClone §3.7).
//!
//! ```text
//! rack a: a caller, two servers, an element ◀──▶ rack b: an element, two servers, a caller
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use pathcall_control::{Handle, LeaseTiming, StoreLocation};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{PoolStatus, StatusReply, StatusRequest};
use pathcall_rpc::Channel;
use pathcall_test_support::store::{PoolServer, STORE, calls, controller_with};
use pathcall_test_support::stubs::store_client::StoreClient;
use pathcall_test_support::{HANG, loopback};
use tokio::time::timeout;

use crate::cloned_element::{element_in, servers, until_known, until_pool};

const RACKS: [&str; 2] = ["a", "b"];
/// Lost elements are removed soon, since no live one loses its connection to the controller.
const TIMING: LeaseTiming =
    LeaseTiming { grace: Duration::from_millis(50), restart_grace: Duration::from_secs(2), confirm: HANG };

/// Controller, and in each rack an element, two servers and a caller.
struct TwoRacks {
    controller: Handle,
    /// Addresses of each element.
    addresses: [[SocketAddr; 2]; 2],
    elements: Vec<pathcall_element::Handle>,
    members: Vec<PoolServer>,
    callers: [Channel; 2],
}

/// Counters of the pool in the element of a rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PoolCounts {
    requests: u64,
    clones: u64,
    replies: u64,
    filtered: u64,
    passed: u64,
}

impl TwoRacks {
    async fn start(address: SocketAddr, store: StoreLocation) -> Self {
        let controller = controller_with(address, store, TIMING).await;
        let (url, addresses) =
            (controller.url(), [[loopback::own(), loopback::own()], [loopback::own(), loopback::own()]]);
        let mut elements = Vec::new();
        for (rack, addresses) in RACKS.into_iter().zip(addresses) {
            elements.push(element_in(rack, &url, addresses).await);
        }
        let mut members = Vec::new();
        for _ in 0..2 {
            members.push(PoolServer::start(&url, |options| options.rack("a")).await);
            members.push(PoolServer::start(&url, |options| options.rack("b")).await);
        }
        until_pool(&url, |pool| servers(pool) == 4 && elements_of(pool) == 2).await;
        for member in &members {
            until_known(&member.uri(), 4, 2).await;
        }
        // Both callers follow a server of the first rack.
        let uri = members[0].uri();
        let caller =
            async |rack: &str| Channel::builder(uri.clone(), &STORE).unwrap().rack(rack).connect().await.unwrap();
        let callers = [caller("a").await, caller("b").await];
        Self { controller, addresses, elements, members, callers }
    }

    fn client(&self, rack: usize) -> StoreClient<Channel> {
        StoreClient::new(self.callers[rack].clone())
    }

    async fn status(&self) -> StatusReply {
        let mut client = ControllerClient::connect(self.controller.url()).await.expect("a controller");
        client.status(StatusRequest {}).await.expect("its status").into_inner()
    }

    async fn counts(&self, rack: usize) -> PoolCounts {
        let read = async {
            loop {
                let status = self.status().await;
                let gaid = status.pools[0].pool.as_ref().expect("a table").gaid;
                let element = status.elements.into_iter().find(|element| element.rack == RACKS[rack]);
                let counters = element.and_then(|element| element.counters);
                // An element may be late with its counters.
                if let Some(counters) = counters.and_then(|mut reply| reply.applications.remove(&gaid)) {
                    return counters.counters;
                }
            }
        };
        let counters = timeout(HANG, read).await.expect("the element answers");
        let [requests, clones, replies, filtered, passed] =
            ["requests", "clones", "replies", "filtered", "passed"].map(|name| counters[name]);
        PoolCounts { requests, clones, replies, filtered, passed }
    }

    /// Makes calls from a rack until they are cloned by the element of a rack, which has filtered slower answers.
    async fn until_cloned(&self, caller: usize, by: usize) {
        let before = self.counts(by).await;
        let cloned = async {
            loop {
                let known = self.callers[caller].stats().pool.cloned;
                calls(&self.client(caller), 50).await;
                let now = self.counts(by).await;
                let cloned = self.callers[caller].stats().pool.cloned - known;
                if cloned > 0 && now.clones > before.clones + 20 && now.filtered > before.filtered {
                    break;
                }
            }
        };
        let seen = timeout(HANG, cloned).await;
        assert!(seen.is_ok(), "{:?}, {:?}", self.counts(by).await, self.callers[caller].stats().pool);
    }
}

fn elements_of(pool: &PoolStatus) -> usize {
    pool.pool.as_ref().map_or(0, |pool| pool.elements.len())
}

#[tokio::test]
async fn calls_are_cloned_and_filtered_once_by_element_of_callers_rack() {
    let net = TwoRacks::start(([127, 0, 0, 1], 0).into(), StoreLocation::Memory).await;
    net.until_cloned(0, 0).await;
    let first = net.counts(0).await;
    let second = net.counts(1).await;
    let PoolCounts { passed, .. } = second;
    assert_eq!(second, PoolCounts { requests: 0, clones: 0, replies: 0, filtered: 0, passed });
    assert!(passed > 0 && first.passed == 0, "{first:?} {second:?}");

    net.until_cloned(1, 1).await;
    let (after, second) = (net.counts(0).await, net.counts(1).await);
    assert_eq!((after.requests, after.clones), (first.requests, first.clones), "it only passes them");
    assert!(after.passed > 0, "{after:?}");
    // Servers of both racks have executed calls: each request once, and once more for each clone.
    assert!(net.members.iter().all(|member| member.gets() > 0));
    let executed: u64 = net.members.iter().map(PoolServer::gets).sum();
    let stats = net.callers.each_ref().map(|caller| caller.stats().pool);
    let sent: u64 = stats.iter().map(|stats| stats.calls + stats.extra() - stats.cloned).sum();
    assert!(executed <= sent + after.clones + second.clones, "{executed} executions: {stats:?} {after:?} {second:?}");
    let racks = net.status().await.pools.remove(0).racks;
    let named = |rack: &str| racks.iter().find(|of| of.rack == rack).map(|of| (of.servers, of.callers));
    assert_eq!((named("a"), named("b")), (Some((2, 1)), Some((2, 1))), "{racks:?}");
}

#[tokio::test]
async fn calls_go_on_without_either_element() {
    for lost in [0, 1] {
        let mut net = TwoRacks::start(([127, 0, 0, 1], 0).into(), StoreLocation::Memory).await;
        let url = net.controller.url();
        for rack in [0, 1] {
            calls(&net.client(rack), 50).await;
        }
        net.elements.remove(lost).shutdown().await;
        for rack in [0, 1] {
            calls(&net.client(rack), 100).await;
        }
        // The callers of both racks use the element that is left.
        until_pool(&url, |pool| elements_of(pool) == 1).await;
        for rack in [0, 1] {
            net.until_cloned(rack, 1 - lost).await;
        }
        net.elements.push(element_in(RACKS[lost], &url, net.addresses[lost]).await);
        until_pool(&url, |pool| elements_of(pool) == 2).await;
        net.until_cloned(lost, lost).await;
        calls(&net.client(1 - lost), 50).await;
    }
}

#[tokio::test]
async fn calls_go_on_while_controller_and_servers_change() {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreLocation::File(directory.path().join("store"));
    let address = loopback::own();
    let mut net = TwoRacks::start(address, store.clone()).await;
    let url = net.controller.url();
    let ids = |status: StatusReply| {
        status.elements.into_iter().map(|element| (element.rack, element.element)).collect::<Vec<_>>()
    };
    let before = ids(net.status().await);
    for rack in [0, 1] {
        calls(&net.client(rack), 50).await;
    }
    net.controller.shutdown().await;
    net.controller = controller_with(address, store, TIMING).await;
    assert_eq!(ids(net.status().await), before, "the store has the racks");
    for rack in [0, 1] {
        calls(&net.client(rack), 50).await;
    }
    // A server leaves in one rack, and one joins in the other.
    net.members.remove(0).kill();
    net.members.push(PoolServer::start(&url, |options| options.rack("b")).await);
    for rack in [0, 1] {
        calls(&net.client(rack), 50).await;
    }
    let came = net.members.last().expect("four of them").uri();
    let is_as_started = |pool: &PoolStatus| {
        let table = pool.pool.as_ref();
        let joined = table.is_some_and(|table| table.servers.iter().any(|server| server.service_address == came));
        joined && servers(pool) == 4 && elements_of(pool) == 2
    };
    until_pool(&url, is_as_started).await;
    for rack in [0, 1] {
        net.until_cloned(rack, rack).await;
    }
}
