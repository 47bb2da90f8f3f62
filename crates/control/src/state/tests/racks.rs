//! Tests of pools whose servers and callers are in several racks.

use super::pools::{joining, servers};
use super::*;

impl TestNetwork {
    /// Adds an element of a rack and brings it into service.
    fn element_in(&mut self, rack: &str) -> usize {
        let index = self.add_element(64, 64, 8);
        self.elements[index].request.rack = rack.into();
        self.register_element(index);
        self.deliver_all();
        index
    }

    pub(super) fn join_in(&mut self, name: &str, incarnation: u32, rack: &str) -> ControlCallId {
        let call = self.call();
        let request = JoinPoolRequest { rack: rack.into(), ..joining(name, incarnation) };
        self.input(Input::JoinPool(call, request));
        call
    }

    fn server_in(&mut self, incarnation: u32, rack: &str) -> (ControlCallId, PoolGrant) {
        let call = self.join_in("kv", incarnation, rack);
        self.deliver_all();
        (call, self.latest(call))
    }

    pub(super) fn register_follower_in(
        &mut self,
        gaid: u32,
        server: u32,
        incarnation: u32,
        rack: &str,
    ) -> ControlCallId {
        let call = self.call();
        let data_address = format!("10.3.0.1:{}", 1 + incarnation % 60_000);
        let rack = rack.into();
        let request = RegisterEndpointRequest { gaid, incarnation, data_address, server, rack, ..Default::default() };
        self.input(Input::RegisterEndpoint(call, request));
        call
    }

    fn follower_in(&mut self, of: &PoolGrant, incarnation: u32, rack: &str) -> u32 {
        let call = self.register_follower_in(gaid(of), of.endpoint, incarnation, rack);
        self.deliver_all();
        self.endpoint(call).unwrap().unwrap().endpoint
    }

    /// Address of an endpoint in an element's table; empty without an entry.
    pub(super) fn address_at(&self, index: usize, endpoint: u32) -> &str {
        self.elements[index].endpoints.get(&endpoint).map_or("", |entry| &entry.data_address)
    }

    /// Racks that have been reported to have no element.
    fn reported(&self) -> Vec<&str> {
        let racks = self.answers.iter().filter_map(|output| match output {
            Output::RackWithoutElement { rack, .. } => Some(rack.as_str()),
            _ => None,
        });
        racks.collect()
    }
}

fn gaid(grant: &PoolGrant) -> u32 {
    grant.pool.as_ref().unwrap().gaid
}

/// Elements of the pool by rack.
fn elements(grant: &PoolGrant) -> Vec<(&str, u32)> {
    let elements = grant.pool.iter().flat_map(|table| &table.elements);
    elements.map(|element| (element.rack.as_str(), element.element)).collect()
}

const A: &str = "10.0.0.0:7702";
const B: &str = "10.0.0.1:7702";
/// Own addresses of servers and callers, without their ports.
const SERVER: &str = "10.4.0.1:";
const CALLER: &str = "10.3.0.1:";

#[test]
fn pool_of_two_racks_is_on_both_elements() {
    let mut net = TestNetwork::new();
    let (a, b) = (net.element_in("a"), net.element_in("b"));
    let (first, _) = net.server_in(1, "a");
    let (_, second) = net.server_in(2, "b");
    let (one, two) = (net.latest(first).endpoint, second.endpoint);
    assert_eq!(net.latest(first).pool, second.pool, "one table for all");
    assert_eq!(elements(&second), [("a", 1), ("b", 2)]);
    assert_eq!((net.table(a), net.table(b)), (net.table(b), net.table(a)));
    assert_eq!(servers(&second), net.table(a).unwrap().1);
    assert!(net.address_at(a, one).starts_with(SERVER) && net.address_at(b, two).starts_with(SERVER));
    assert_eq!((net.address_at(a, two), net.address_at(b, one)), (B, A));
    // The caller follows a server of the other rack.
    let caller = net.follower_in(&second, 70, "a");
    assert!(net.address_at(a, caller).starts_with(CALLER));
    assert_eq!(net.address_at(b, caller), A);
    net.assert_tables_are_as_recorded();
}

#[test]
fn rack_with_callers_only_has_pool_until_last_one_leaves() {
    let mut net = TestNetwork::new();
    let (a, b) = (net.element_in("a"), net.element_in("b"));
    let (stream, server) = net.server_in(1, "a");
    assert_eq!((elements(&server), net.table(b)), (vec![("a", 1)], None));
    let caller = net.follower_in(&server, 70, "b");
    assert_eq!(elements(&net.latest(stream)), [("a", 1), ("b", 2)]);
    assert_eq!((net.address_at(a, caller), net.address_at(b, server.endpoint)), (B, A));
    net.no_longer_follows(gaid(&server), caller, server.endpoint);
    net.pass(TIMING.grace);
    net.deliver_all();
    assert_eq!((elements(&net.latest(stream)), net.table(b)), (vec![("a", 1)], None));
    assert!(net.elements[b].endpoints.is_empty());
    net.assert_tables_are_as_recorded();
}

#[test]
fn pool_of_three_racks_follows_its_servers() {
    let mut net = TestNetwork::new();
    for rack in ["a", "b", "c"] {
        net.element_in(rack);
    }
    let (stream, _) = net.server_in(1, "a");
    net.server_in(2, "b");
    let (leaving, third) = net.server_in(3, "c");
    assert_eq!(elements(&third), [("a", 1), ("b", 2), ("c", 3)]);
    net.assert_tables_are_as_recorded();
    net.input(Input::Ended(leaving));
    net.deliver_all();
    let left = net.latest(stream);
    assert_eq!((servers(&left).len(), elements(&left).len()), (2, 3), "its last answers may be on their way");
    let version = |grant: &PoolGrant| grant.pool.as_ref().unwrap().version;
    net.pass(TIMING.grace);
    net.deliver_all();
    assert_eq!(elements(&net.latest(stream)), [("a", 1), ("b", 2)]);
    assert_eq!(version(&net.latest(stream)), version(&left), "the table of servers is the same");
    assert!(net.elements[2].pools.is_empty() && net.elements[2].endpoints.is_empty());
    let (_, back) = net.server_in(4, "c");
    assert_eq!(elements(&back).len(), 3);
    net.assert_tables_are_as_recorded();
}

#[test]
fn element_is_named_to_others_after_its_confirmation() {
    let mut net = TestNetwork::new();
    let a = net.element_in("a");
    let (stream, first) = net.server_in(1, "a");
    let (_, second) = net.server_in(2, "b");
    let caller = net.follower_in(&second, 70, "b");
    assert_eq!(net.reported(), ["b"], "once");
    // Without an element of its rack, a server is reached directly, and a caller by the default element.
    assert_eq!((elements(&second), second.pool.as_ref().unwrap().element), (vec![("a", 1)], 1));
    assert!(net.address_at(a, second.endpoint).starts_with(SERVER) && net.address_at(a, caller).starts_with(CALLER));

    let b = net.add_element(64, 64, 8);
    net.elements[b].request.rack = "b".into();
    net.register_element(b);
    // It comes into service, and gets the pool; it has not confirmed the addresses yet.
    while !matches!(net.elements[b].queue.front(), Some((_, Push::SetEndpoints(_)))) {
        assert!(net.deliver(b));
    }
    while net.deliver(a) {}
    assert_eq!((elements(&net.latest(stream)), net.table(b).is_some()), (vec![("a", 1)], true));
    assert!(net.address_at(a, second.endpoint).starts_with(SERVER) && net.address_at(a, caller).starts_with(CALLER));
    net.deliver_all();
    assert_eq!((net.address_at(a, second.endpoint), net.address_at(a, caller)), (B, B));
    assert_eq!(net.address_at(b, first.endpoint), A);
    assert_eq!(elements(&net.latest(stream)), [("a", 1), ("b", 2)]);
    net.assert_tables_are_as_recorded();
}

#[test]
fn rack_of_lost_element_is_served_by_other_one() {
    let mut net = TestNetwork::new();
    let (a, b) = (net.element_in("a"), net.element_in("b"));
    let (stream, _) = net.server_in(1, "a");
    let (_, second) = net.server_in(2, "b");
    let caller = net.follower_in(&second, 70, "b");
    net.elements[b].mute = true;
    let joining = net.join_in("kv", 3, "b");
    net.deliver_all();
    assert_eq!(net.pool_grants(joining).len(), 0, "both elements have to admit the server");
    net.pass(TIMING.confirm);
    net.deliver_all();
    assert_eq!(elements(&net.latest(joining)), [("a", 1)]);
    assert!(net.address_at(a, second.endpoint).starts_with(SERVER) && net.address_at(a, caller).starts_with(CALLER));
    assert_eq!(net.reported(), ["b"]);
    // It returns as another process.
    net.elements[b].mute = false;
    net.restart_element(b);
    net.register_element(b);
    net.deliver_all();
    assert_eq!(elements(&net.latest(stream)), [("a", 1), ("b", 2)]);
    assert_eq!((net.address_at(a, second.endpoint), net.address_at(a, caller)), (B, B));
    net.assert_tables_are_as_recorded();
}

#[test]
fn second_element_of_rack_replaces_first_one() {
    let mut net = TestNetwork::new();
    let (a, one, two) = (net.element_in("a"), net.element_in("b"), net.element_in("b"));
    let (stream, _) = net.server_in(1, "a");
    let (_, second) = net.server_in(2, "b");
    assert_eq!((elements(&second), net.table(two)), (vec![("a", 1), ("b", 2)], None));
    net.restart_element(one);
    net.register_element(one);
    net.deliver_all();
    assert_eq!(elements(&net.latest(stream)), [("a", 1), ("b", 3)]);
    assert_eq!(net.address_at(a, second.endpoint), "10.0.0.2:7702");
    assert_eq!(net.table(one), None, "the other one keeps the pool");
    net.assert_tables_are_as_recorded();
}

#[test]
fn element_of_unnamed_rack_is_default() {
    let mut net = TestNetwork::new();
    let (a, unnamed) = (net.element_in("a"), net.element_in(""));
    let (stream, first) = net.server("kv", 1);
    assert_eq!((elements(&first), net.table(a)), (vec![("", 2)], None));
    let (_, second) = net.server_in(2, "a");
    let table = second.pool.as_ref().unwrap();
    assert_eq!((elements(&second), table.element), (vec![("a", 1), ("", 2)], 2));
    let caller = net.follower_in(&second, 70, "c");
    assert!(net.address_at(unnamed, caller).starts_with(CALLER));
    assert_eq!(net.address_at(a, caller), B);
    let racks = net.state.status().pools.remove(0).racks;
    let racks: Vec<_> = racks.iter().map(|r| (r.rack.as_str(), r.element, r.servers, r.callers)).collect();
    assert_eq!(racks, [("", 2, 1, 0), ("a", 1, 1, 0), ("c", 2, 0, 1)]);
    assert_eq!(net.latest(stream).pool, second.pool);
    net.assert_tables_are_as_recorded();
}

#[test]
fn restarted_controller_keeps_racks() {
    let mut net = TestNetwork::new();
    let (a, b) = (net.element_in("a"), net.element_in("b"));
    net.server_in(1, "a");
    let (_, second) = net.server_in(2, "b");
    let caller = net.follower_in(&second, 70, "b");
    let entries = |net: &TestNetwork| [a, b].map(|index| (net.table(index), net.elements[index].endpoints.clone()));
    let before = entries(&net);
    net.restart_controller();
    net.deliver_all();
    assert_eq!(entries(&net), before);
    net.register_element(a);
    net.register_element(b);
    net.server_in(1, "a");
    let (stream, again) = net.server_in(2, "b");
    assert_eq!((again.pool, again.endpoint), (second.pool.clone(), second.endpoint));
    assert_eq!((net.follower_in(&second, 70, "b"), entries(&net)), (caller, before));
    // A restart while an element joins: it is named to others after its confirmation all the same.
    let c = net.add_element(64, 64, 8);
    net.elements[c].request.rack = "c".into();
    net.register_element(c);
    net.deliver_all();
    net.join_in("kv", 3, "c");
    assert_eq!(net.state.snapshot().pools[0].joining, [3]);
    net.restart_controller();
    assert_eq!(elements(&net.latest(stream)).len(), 2);
    for index in [a, b, c] {
        net.register_element(index);
    }
    while net.deliver(a) || net.deliver(b) {}
    let third = net.state.snapshot().pools[0].servers[2].endpoint;
    assert!(net.address_at(a, third).starts_with(SERVER));
    net.deliver_all();
    assert_eq!(net.address_at(a, third), "10.0.0.2:7702");
    net.assert_tables_are_as_recorded();
}

/// A store of an earlier version has one element in the field of the elements.
#[test]
fn pool_record_of_earlier_version_is_read() {
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    struct EarlierPoolRecord {
        #[prost(uint32, tag = "1")]
        gaid: u32,
        #[prost(uint32, optional, tag = "6")]
        element: Option<u32>,
    }
    for element in [None, Some(3)] {
        let bytes = prost::Message::encode_to_vec(&EarlierPoolRecord { gaid: 9, element });
        let read = <PoolRecord as prost::Message>::decode(&bytes[..]).unwrap();
        assert_eq!((read.gaid, read.elements), (9, element.into_iter().collect()));
    }
}

#[test]
fn elements_have_different_switch_ids() {
    let mut net = TestNetwork::new();
    net.element_in("a");
    // The next id has the same 16 bits as the first one.
    net.state.ids.element = 1 + u32::from(u16::MAX);
    net.element_in("b");
    let ids = |net: &TestNetwork| net.state.status().elements.iter().map(|e| e.element).collect::<Vec<_>>();
    assert_eq!(ids(&net), [1, 65_537]);

    // A controller that has lost its store gives elements their ids back.
    let mut elements = std::mem::take(&mut net.elements);
    for (element, id) in elements.iter_mut().zip([1, 65_537]) {
        element.request.element = id;
    }
    let mut net = TestNetwork { elements, ..TestNetwork::new() };
    net.register_element(1);
    net.deliver_all();
    net.element_in("c");
    net.register_element(0);
    net.deliver_all();
    assert_eq!(ids(&net), [1, 3, 65_537], "the id 2 has the same 16 bits as 65537; the newcomer had 1 before");
    net.restart_controller();
    net.deliver_all();
    assert_eq!(ids(&net), [1, 3, 65_537]);
}

#[test]
fn racks_of_pool_are_limited() {
    let mut net = TestNetwork::new();
    let (_, server) = net.server("kv", 1);
    for rack in 1..RACKS_MAX as u32 {
        net.follower_in(&server, 1_000 + rack, &rack.to_string());
    }
    let full = RegistrationRefusal::Full { what: "rack of this pool", limit: RACKS_MAX as u32 };
    let caller = net.register_follower_in(gaid(&server), server.endpoint, 70, "one more");
    assert_eq!(net.endpoint(caller), Some(Err(full.clone())));
    let joining = net.join_in("kv", 2, "one more");
    assert_eq!(net.refusal(joining), Some(full));
    net.follower_in(&server, 71, "7");
    net.server_in(3, "7");
    net.server_in(4, "");
}

#[test]
fn invalid_rack_is_refused() {
    let mut net = TestNetwork::new();
    let (_, server) = net.server("kv", 1);
    let expected = "rack: expected up to 255 bytes without control characters, got \"a\\nb\"";
    let joining = net.join_in("kv", 2, "a\nb");
    assert_eq!(net.refusal(joining).unwrap().to_string(), expected);
    let caller = net.register_follower_in(gaid(&server), server.endpoint, 70, "a\nb");
    assert_eq!(net.endpoint(caller).unwrap().unwrap_err().to_string(), expected);
    let index = net.add_element(64, 64, 8);
    net.elements[index].request.rack = "a\nb".into();
    let element = net.register_element(index);
    assert_eq!(net.refusal(element).unwrap().to_string(), expected);
}
