//! Tests of two racks with an element each (NetClone §3.7): callers in one rack, servers in the other, and in both.
//!
//! ```text
//! caller ─▶ first element: decides, filters ─┬─▶ second element: passes ─▶ servers of its rack
//!                                            └─▶ servers of the caller's rack
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use pathcall_driver::clone::{
    CloneCallerHandle, CloneWorkerEvent, CloneWorkerEvents, CloneWorkerHandle, PoolAddresses,
};
use pathcall_driver::link::Link;
use pathcall_endpoint::clone::{CloneCall, CloneCallerConfig, CloneCallerStats, CloneOptions, CloneWorkerConfig, Pool};
use pathcall_proto::v1::{EndpointEntry, InstallPoolRequest, SetEndpointsRequest};
use pathcall_test_support::HANG;
use pathcall_wire::clone::switch_id;
use tokio::sync::watch;
use tokio::time::timeout;

#[cfg(feature = "xdp")]
use super::calls::network;
use super::common::{ElementFixture, config, fixture_with};
use crate::plane::keep_switch_id;
use crate::{Config, Registration};

const GAID: u32 = 9;
const CALLER: u32 = 31;
const INCARNATION: u32 = 4;
/// Endpoints of the servers, by SID.
const SERVERS: [u32; 3] = [41, 42, 43];
const CALLS: u64 = 40;

/// Two elements, the caller in the first rack, and the servers.
struct Racks {
    elements: [ElementFixture; 2],
    caller: CloneCallerHandle,
    _servers: Vec<CloneWorkerHandle>,
}

/// Counters of the pool in one element.
#[derive(Debug, PartialEq, Eq)]
struct PoolCounts {
    requests: u64,
    clones: u64,
    replies: u64,
    filtered: u64,
    passed: u64,
}

impl Racks {
    /// Starts elements with these configurations; `racks` has the rack of each server.
    async fn start(configs: [Config; 2], racks: [usize; 3], retry_min: Duration) -> Self {
        let [first, second] = configs;
        let mut elements = [fixture_with(first).await, fixture_with(second).await];
        let at = [0, 1].map(|rack| elements[rack].element.data_addr());
        let links: Vec<Link> = (0..=SERVERS.len()).map(|_| free_link()).collect();
        let addresses: Vec<SocketAddr> = links.iter().map(Link::local_addr).collect();
        for (rack, fixture) in elements.iter_mut().enumerate() {
            let (registered, registration) = watch::channel(Registration::Unknown);
            registered.send_replace(Registration::Known { element: rack as u32 + 1, endpoint: 100 });
            drop(registered);
            keep_switch_id(fixture.element.plane.handle(), registration).await;
            let boot_id = fixture.element.boot_id();
            let pool =
                InstallPoolRequest { boot_id, gaid: GAID, version: 1, servers: SERVERS.to_vec(), token_key: None };
            fixture.control.install_pool(pool).await.expect("it fits");
            // An endpoint of the other rack is reached through its element.
            let entry = |endpoint, host_rack: usize, address: SocketAddr| EndpointEntry {
                endpoint,
                incarnation: INCARNATION,
                data_address: if host_rack == rack { address } else { at[1 - rack] }.to_string(),
                gaid: GAID,
                slot_base: 0,
                slots: 0,
            };
            let servers = (0..SERVERS.len()).map(|sid| entry(SERVERS[sid], racks[sid], addresses[sid + 1]));
            let endpoints = servers.chain([entry(CALLER, 0, addresses[0])]).collect();
            fixture.control.set_endpoints(SetEndpointsRequest { boot_id, endpoints }).await.expect("they fit");
        }
        let table = |rack: usize| PoolAddresses {
            pool: Pool { gaid: GAID, version: 1, servers: SERVERS.to_vec() },
            addresses: addresses[1..].to_vec(),
            element: Some(at[rack]),
            switch_id: switch_id(rack as u32 + 1).get(),
            element_holds: false,
        };
        let mut links = links.into_iter();
        let caller_link = links.next().expect("a link of each host");
        let config = CloneCallerConfig::new(CALLER, INCARNATION, table(0).pool, 1);
        let config = CloneCallerConfig { retry_min, ..config };
        let servers = links.enumerate().map(|(sid, link)| {
            let config = CloneWorkerConfig::new(GAID, SERVERS[sid], INCARNATION, sid as u16, CALLS as usize);
            let (server, events) = CloneWorkerHandle::spawn(config, table(racks[sid]), None, link);
            tokio::spawn(answer(events));
            server
        });
        let servers = servers.collect();
        Self { elements, caller: CloneCallerHandle::spawn(config, table(0), None, caller_link), _servers: servers }
    }

    /// Makes one call.
    async fn call(&self) {
        let options = CloneOptions { patience: Some(Duration::ZERO), deadline: 2 * HANG, ..CloneOptions::default() };
        let call = CloneCall { request: Bytes::from_static(b"a request"), options };
        let answer = timeout(HANG, self.caller.call(call)).await.expect("an answer").expect("an answer");
        assert_eq!(answer.reply, b"a request"[..]);
    }

    async fn counts(&mut self, rack: usize) -> PoolCounts {
        let reply = self.elements[rack].counters().await;
        let of = |name: &str| reply.applications[&GAID].counters[name];
        let [requests, clones, replies, filtered, passed] =
            ["requests", "clones", "replies", "filtered", "passed"].map(of);
        PoolCounts { requests, clones, replies, filtered, passed }
    }
}

fn free_link() -> Link {
    Link::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port")
}

/// Answers each request with its payload.
async fn answer(mut events: CloneWorkerEvents) {
    let replies = events.replies();
    while let Some(event) = events.next().await {
        if let CloneWorkerEvent::Begin(request) = event {
            replies.finish(request.id, request.request, Bytes::new());
        }
    }
}

/// Makes calls, and checks that the first element has cloned each call once and filtered one answer of each, and that the
/// second one has only passed the frames of its `servers`, if all servers are there.
async fn clone_by_first_element_only(configs: [Config; 2], racks: [usize; 3]) {
    let mut test = Racks::start(configs, racks, HANG).await;
    for _ in 0..CALLS {
        test.call().await;
    }
    // The slower answer of the last call may still be on its way.
    let all = async {
        while test.counts(0).await.filtered < CALLS {
            tokio::task::yield_now().await;
        }
    };
    if timeout(HANG, all).await.is_err() {
        let [first, second] = [test.counts(0).await, test.counts(1).await];
        panic!("each call has a slower answer: {first:?}, {second:?}, {:?}", test.caller.stats());
    }
    let first = PoolCounts { requests: CALLS, clones: CALLS, replies: 2 * CALLS, filtered: CALLS, passed: 0 };
    assert_eq!(test.counts(0).await, first);
    let second = test.counts(1).await;
    if racks == [1; 3] {
        assert_eq!(second.passed, 4 * CALLS, "each request and each answer");
    }
    assert!(second.passed > 0, "{second:?}");
    assert_eq!(second, PoolCounts { requests: 0, clones: 0, replies: 0, filtered: 0, passed: second.passed });
    let CloneCallerStats { answered, cloned, redundant, repeated, .. } = test.caller.stats();
    assert_eq!((answered, cloned, redundant, repeated), (CALLS, CALLS, 0, 0));
}

#[tokio::test]
async fn calls_to_other_rack_are_cloned_and_filtered_by_first_element_only() {
    clone_by_first_element_only([config(), config()], [1, 1, 1]).await;
}

#[tokio::test]
async fn calls_to_both_racks_are_cloned_and_filtered_by_first_element_only() {
    clone_by_first_element_only([config(), config()], [0, 1, 1]).await;
}

/// One element has its program in the kernel, on the loopback interface of a separate network; the other one runs in user
/// space.
#[cfg(feature = "xdp")]
#[test]
fn calls_through_kernel_of_either_rack_are_cloned_and_filtered_once() {
    for rack in [0, 1] {
        let Some(network) = network::Network::own() else { return };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                network.enter();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let mut configs = [config(), config()];
                configs[rack] = config().xdp(vec!["lo".to_owned()]);
                runtime.block_on(clone_by_first_element_only(configs, [1, 1, 1]));
            });
            thread.join().expect("the test passes");
        });
    }
}

#[tokio::test]
async fn calls_are_answered_after_loss_of_either_element() {
    for lost in [0, 1] {
        let test = Racks::start([config(), config()], [1, 1, 1], Duration::from_millis(2)).await;
        test.call().await;
        let ElementFixture { element, control } = test.elements.into_iter().nth(lost).expect("two of them");
        drop(control);
        element.shutdown().await;
        let call = async |caller: &CloneCallerHandle| {
            let options = CloneOptions { deadline: 2 * HANG, ..CloneOptions::default() };
            let call = CloneCall { request: Bytes::from_static(b"a request"), options };
            timeout(HANG, caller.call(call)).await.expect("an answer").expect("an answer")
        };
        for _ in 0..5 {
            assert_eq!(call(&test.caller).await.reply, b"a request"[..]);
        }
    }
}
