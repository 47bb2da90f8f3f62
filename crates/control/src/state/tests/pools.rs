//! Tests of pools: servers join, leave and fail, and the element's table follows.

use super::*;

impl TestNetwork {
    pub(super) fn join(&mut self, name: &str, incarnation: u32) -> ControlCallId {
        let call = self.call();
        self.input(Input::JoinPool(call, joining(name, incarnation)));
        call
    }

    /// Joins, lets the elements confirm, and expects a grant.
    pub(super) fn server(&mut self, name: &str, incarnation: u32) -> (ControlCallId, PoolGrant) {
        let call = self.join(name, incarnation);
        self.deliver_all();
        (call, self.latest(call))
    }

    pub(super) fn pool_grants(&self, call: ControlCallId) -> Vec<PoolGrant> {
        let grant = |output: &Output| match output {
            Output::Pool(to, Ok(grant)) if *to == call => Some(grant.clone()),
            _ => None,
        };
        self.answers.iter().filter_map(grant).collect()
    }

    pub(super) fn latest(&self, call: ControlCallId) -> PoolGrant {
        self.pool_grants(call).pop().unwrap_or_else(|| panic!("no grant: {:?}", self.answers.last()))
    }

    /// Registers a caller of a pool by one of its servers.
    pub(super) fn register_follower(&mut self, gaid: u32, server: u32, incarnation: u32) -> ControlCallId {
        let call = self.call();
        let data_address = format!("10.3.0.1:{}", 1 + incarnation % 60_000);
        let request = RegisterEndpointRequest { gaid, incarnation, data_address, server, ..Default::default() };
        self.input(Input::RegisterEndpoint(call, request));
        call
    }

    pub(super) fn follower(&mut self, gaid: u32, server: u32, incarnation: u32) -> u32 {
        let call = self.register_follower(gaid, server, incarnation);
        self.deliver_all();
        self.endpoint(call).unwrap().unwrap().endpoint
    }

    pub(super) fn no_longer_follows(&mut self, gaid: u32, endpoint: u32, server: u32) {
        let call = self.call();
        self.input(Input::ReleaseEndpoint(call, ReleaseEndpointRequest { gaid, endpoint, server }));
    }

    /// Version and servers of the only pool in the element's table; servers by the last digits of their addresses.
    pub(super) fn table(&self, index: usize) -> Option<(u32, Vec<u32>)> {
        self.elements[index].pools.values().next().map(|pool| (pool.version, pool.servers.clone()))
    }
}

pub(super) fn joining(name: &str, incarnation: u32) -> JoinPoolRequest {
    JoinPoolRequest {
        name: name.into(),
        data_address: format!("10.4.0.1:{}", 1 + incarnation % 60_000),
        incarnation,
        service_address: format!("http://server-{incarnation}:50051"),
        authenticate: false,
        rack: String::new(),
    }
}

pub(super) fn servers(grant: &PoolGrant) -> Vec<u32> {
    grant.pool.iter().flat_map(|pool| &pool.servers).map(|server| server.endpoint).collect()
}

fn version(grant: &PoolGrant) -> u32 {
    grant.pool.as_ref().unwrap().version
}

#[test]
fn join_reaches_all_servers_after_confirmation() {
    let mut net = TestNetwork::new();
    let element = net.element(64, 64, 8);
    let (a, first) = net.server("kv", 1);
    assert_eq!(servers(&first), [first.endpoint]);
    assert_eq!(first.pool.as_ref().unwrap().element_address, "10.0.0.0:7702");
    let b = net.join("kv", 2);
    assert_eq!((net.pool_grants(a).len(), net.pool_grants(b).len()), (1, 0), "the element has not confirmed");
    // The server's address is pushed before the table with the server, so no call is lost.
    assert!(net.deliver(element));
    assert_eq!((net.elements[element].endpoints.len(), net.table(element).unwrap().1.len()), (2, 1));
    net.deliver_all();
    let (of_a, of_b) = (net.latest(a), net.latest(b));
    assert_eq!(of_a.pool, of_b.pool);
    assert_eq!(servers(&of_a), [of_a.endpoint, of_b.endpoint]);
    assert!(version(&of_a) > version(&first));
    assert_eq!(net.table(element), Some((version(&of_a), servers(&of_a))));
}

#[test]
fn failed_server_leaves_table_and_moves_one_other() {
    let mut net = TestNetwork::new();
    let element = net.element(64, 64, 8);
    let calls: Vec<_> = (1..=4).map(|incarnation| net.server("kv", incarnation).0).collect();
    let before = servers(&net.latest(calls[0]));
    net.input(Input::Ended(calls[1]));
    net.deliver_all();
    let after = [before[0], before[3], before[2]];
    assert_eq!(servers(&net.latest(calls[0])), after, "no time has passed");
    assert_eq!(net.table(element).unwrap().1, after);
    // A server that returns within the grace period keeps its endpoint, and is the last in the table.
    net.pass(Duration::from_millis(2_000));
    let (_, back) = net.server("kv", 2);
    assert_eq!((back.endpoint, servers(&back)), (before[1], [&after[..], &[before[1]]].concat()));
    net.assert_tables_are_as_recorded();
}

#[test]
fn absent_server_is_removed_and_last_one_ends_pool() {
    let mut net = TestNetwork::new();
    let element = net.element(64, 64, 8);
    let (a, first) = net.server("kv", 1);
    let (b, second) = net.server("kv", 2);
    net.input(Input::Ended(b));
    net.deliver_all();
    assert!(net.elements[element].endpoints.contains_key(&second.endpoint), "its last answers may be on their way");
    net.pass(TIMING.grace);
    net.deliver_all();
    assert!(!net.elements[element].endpoints.contains_key(&second.endpoint));
    net.input(Input::Ended(a));
    net.deliver_all();
    assert_eq!(net.table(element), None, "a pool without servers has no table");
    net.pass(TIMING.grace);
    net.deliver_all();
    assert_eq!((net.state.snapshot().pools, net.state.snapshot().endpoints), (vec![], vec![]));
    assert!(net.elements[element].endpoints.is_empty());
    let (_, anew) = net.server("kv", 3);
    assert!(anew.pool.unwrap().gaid > first.pool.unwrap().gaid, "no id is reused");
}

#[test]
fn caller_outlives_its_server() {
    let mut net = TestNetwork::new();
    let element = net.element(64, 64, 8);
    let (a, first) = net.server("kv", 1);
    let (_, second) = net.server("kv", 2);
    let gaid = first.pool.unwrap().gaid;
    let caller = net.follower(gaid, first.endpoint, 70);
    let stays_away = net.follower(gaid, first.endpoint, 71);
    net.input(Input::Ended(a));
    net.deliver_all();
    net.pass(TIMING.grace);
    net.deliver_all();
    assert_eq!(net.follower(gaid, second.endpoint, 70), caller, "the same process is the same endpoint");
    // A late release by the first server does not affect a caller that follows another one.
    net.no_longer_follows(gaid, caller, first.endpoint);
    net.pass(TIMING.grace);
    net.deliver_all();
    let known = &net.elements[element].endpoints;
    assert!(known.contains_key(&caller), "{known:?}");
    assert!(!known.contains_key(&stays_away), "{known:?}");
    net.no_longer_follows(gaid, caller, second.endpoint);
    net.deliver_all();
    assert!(net.elements[element].endpoints.contains_key(&caller), "the server may return");
    net.pass(TIMING.grace);
    net.deliver_all();
    assert!(!net.elements[element].endpoints.contains_key(&caller));
    let unknown = net.register_follower(gaid, first.endpoint, 72);
    assert!(
        matches!(net.endpoint(unknown), Some(Err(RegistrationRefusal::UnknownEndpoint { .. }))),
        "no such server any more"
    );
}

#[test]
fn pool_follows_element() {
    let mut net = TestNetwork::new();
    let (a, first) = net.server("kv", 1);
    assert_eq!(first.pool.as_ref().unwrap().element_address, "", "there is none yet");
    let one = net.element(64, 64, 8);
    let pool = net.latest(a).pool.unwrap();
    assert_eq!((&pool.element_address[..], pool.element_holds_hedges), ("10.0.0.0:7702", true));
    let two = net.element(64, 64, 8);
    net.restart_element(one);
    net.register_element(one);
    net.deliver_all();
    let pool = net.latest(a).pool.unwrap();
    assert_eq!((&pool.element_address[..], pool.element_holds_hedges), ("10.0.0.1:7702", false), "the other one");
    assert_eq!((net.table(one), net.table(two).is_some()), (None, true));
    // The element refuses the pool, which moves back; when both refuse it, it works without one.
    net.elements[two].refuses = first.pool.as_ref().map(|pool| pool.gaid);
    let (b, _) = net.server("kv", 2);
    assert_eq!(net.latest(b).pool.unwrap().element_address, "10.0.0.0:7702");
    net.elements[one].refuses = first.pool.map(|pool| pool.gaid);
    net.server("kv", 3);
    assert_eq!(net.latest(b).pool.unwrap().element_address, "");
    assert_eq!(net.latest(a).pool, net.latest(b).pool);
}

#[test]
fn restart_keeps_table_during_grace_period() {
    let mut net = TestNetwork::new();
    let element = net.element(64, 64, 8);
    let (_, first) = net.server("kv", 1);
    net.server("kv", 2);
    let gaid = first.pool.unwrap().gaid;
    let caller = net.follower(gaid, first.endpoint, 70);
    let before = net.table(element);
    net.restart_controller();
    net.register_element(element);
    net.deliver_all();
    assert_eq!(net.table(element), before);
    let (a, again) = net.server("kv", 1);
    assert_eq!((again.endpoint, servers(&again).len()), (first.endpoint, 2));
    assert_eq!(net.follower(gaid, again.endpoint, 70), caller);
    net.pass(TIMING.restart_grace);
    net.deliver_all();
    assert_eq!(servers(&net.latest(a)), [first.endpoint], "the other server did not return");
    net.assert_tables_are_as_recorded();
}

#[test]
fn refused_join_states_reason() {
    let mut net = TestNetwork::new();
    net.server("kv", 1);
    let mut refused = |change: &dyn Fn(&mut JoinPoolRequest)| {
        let (call, mut request) = (net.call(), joining("kv", 2));
        change(&mut request);
        net.input(Input::JoinPool(call, request));
        net.refusal(call).unwrap().to_string()
    };
    assert_eq!(refused(&|request| request.name.clear()), "name: expected 1 to 255 bytes, got \"\"");
    assert_eq!(
        refused(&|request| request.data_address = "here".into()),
        "data_address: expected ip:port, got \"here\""
    );
    let tokens = "the frames of pool \"kv\" carry no tokens, and those of this server do: set the same \
                  authenticate_frames on all servers of a pool";
    assert_eq!(refused(&|request| request.authenticate = true), tokens);
    for incarnation in 2..=512 {
        net.server("kv", incarnation);
    }
    let call = net.join("kv", 513);
    assert_eq!(net.refusal(call), Some(RegistrationRefusal::Full { what: "server of this pool", limit: 512 }));
}

#[test]
fn callers_of_pool_are_limited() {
    let mut net = TestNetwork::new();
    let (_, first) = net.server("kv", 1);
    let gaid = first.pool.as_ref().unwrap().gaid;
    let known = net.follower(gaid, first.endpoint, 70);
    // Fills the table directly, as for an application.
    let pool = net.state.pools.get_mut(&gaid).unwrap();
    pool.callers.extend((1..CALLERS_MAX as u32).map(|i| ((i, "10.5.0.1:1".to_owned()), 1_000_000 + i)));
    let call = net.register_follower(gaid, first.endpoint, 71);
    assert_eq!(net.endpoint(call), Some(Err(RegistrationRefusal::Full { what: "caller", limit: CALLERS_MAX as u32 })));
    assert_eq!(net.follower(gaid, first.endpoint, 70), known, "a known caller needs no room");
}

#[test]
fn pools_are_limited() {
    let mut net = TestNetwork::new();
    for pool in 1..=POOLS_MAX as u32 {
        let call = net.join(&format!("pool-{pool}"), pool);
        assert_eq!(net.refusal(call), None);
    }
    let full = net.join("one more", 5_000);
    assert_eq!(net.refusal(full), Some(RegistrationRefusal::Full { what: "pool", limit: POOLS_MAX as u32 }));
    let known = net.join("pool-7", 5_001);
    assert_eq!(net.refusal(known), None, "another server adds no pool");
}

#[test]
fn unreachable_follower_is_not_in_element_table() {
    let mut net = TestNetwork::new();
    let element = net.element(64, 64, 8);
    let (_, server) = net.server("kv", 1);
    let gaid = server.pool.as_ref().unwrap().gaid;
    for (incarnation, address) in [(9, "[fd00::1]:9"), (10, "10.0.0.0:7702")] {
        let (call, data_address) = (net.call(), address.to_owned());
        let request =
            RegisterEndpointRequest { gaid, incarnation, data_address, server: server.endpoint, ..Default::default() };
        net.input(Input::RegisterEndpoint(call, request));
        net.deliver_all();
        let follower = net.endpoint(call).unwrap().unwrap().endpoint;
        assert!(!net.elements[element].endpoints.contains_key(&follower), "{address}");
    }
    let other = net.follower(gaid, server.endpoint, 11);
    assert!(net.elements[element].endpoints.contains_key(&other), "other pools are not affected");
}

#[test]
fn id_of_pool_server_is_not_kept_by_others() {
    let mut net = TestNetwork::new();
    let (_, server) = net.server("kv", 1);
    let (_, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller_held(grant.gaid, 9, 4, server.endpoint);
    assert_ne!(caller.endpoint, server.endpoint);
    assert_ne!(grant.endpoint, server.endpoint);
}
