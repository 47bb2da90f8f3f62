//! Servers of a pool join, leave, fail; the element's table follows.

use super::*;

impl World {
    pub(super) fn join(&mut self, name: &str, incarnation: u32) -> CallId {
        let call = self.call();
        self.input(Input::JoinPool(call, joining(name, incarnation)));
        call
    }

    /// Joins, lets the elements confirm, and expects a grant.
    fn server(&mut self, name: &str, incarnation: u32) -> (CallId, PoolGrant) {
        let call = self.join(name, incarnation);
        self.deliver_all();
        (call, self.latest(call))
    }

    pub(super) fn pool_grants(&self, call: CallId) -> Vec<PoolGrant> {
        let grant = |output: &Output| match output {
            Output::Pool(to, Ok(grant)) if *to == call => Some(grant.clone()),
            _ => None,
        };
        self.answers.iter().filter_map(grant).collect()
    }

    fn latest(&self, call: CallId) -> PoolGrant {
        self.pool_grants(call).pop().unwrap_or_else(|| panic!("no grant: {:?}", self.answers.last()))
    }

    /// Registers a caller of a pool by one of its servers.
    pub(super) fn register_follower(&mut self, gaid: u32, server: u32, incarnation: u32) -> CallId {
        let call = self.call();
        let data_address = format!("10.3.0.1:{}", 1 + incarnation % 60_000);
        let request = RegisterEndpointRequest { gaid, incarnation, data_address, flows: 0, server, endpoint: 0 };
        self.input(Input::RegisterEndpoint(call, request));
        call
    }

    fn follower(&mut self, gaid: u32, server: u32, incarnation: u32) -> u32 {
        let call = self.register_follower(gaid, server, incarnation);
        self.deliver_all();
        self.endpoint(call).unwrap().unwrap().endpoint
    }

    pub(super) fn no_longer_follows(&mut self, gaid: u32, endpoint: u32, server: u32) {
        let call = self.call();
        self.input(Input::ReleaseEndpoint(call, ReleaseEndpointRequest { gaid, endpoint, server }));
    }

    /// The element's table of the only pool, by the last digits of the servers' addresses.
    fn table(&self, index: usize) -> Option<(u32, Vec<u32>)> {
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
    }
}

fn servers(grant: &PoolGrant) -> Vec<u32> {
    grant.pool.iter().flat_map(|pool| &pool.servers).map(|server| server.endpoint).collect()
}

fn version(grant: &PoolGrant) -> u32 {
    grant.pool.as_ref().unwrap().version
}

#[test]
fn all_are_told_when_one_joins_and_nobody_before_the_element_knows() {
    let mut world = World::new();
    let element = world.element(64, 64, 8);
    let (a, first) = world.server("kv", 1);
    assert_eq!(servers(&first), [first.endpoint]);
    assert_eq!(first.pool.as_ref().unwrap().element_address, "10.0.0.0:7702");
    let b = world.join("kv", 2);
    assert_eq!((world.pool_grants(a).len(), world.pool_grants(b).len()), (1, 0), "the element has not confirmed");
    // Its address comes before the table with it: no call is lost on it.
    assert!(world.deliver(element));
    assert_eq!((world.elements[element].endpoints.len(), world.table(element).unwrap().1.len()), (2, 1));
    world.deliver_all();
    let (of_a, of_b) = (world.latest(a), world.latest(b));
    assert_eq!(of_a.pool, of_b.pool);
    assert_eq!(servers(&of_a), [of_a.endpoint, of_b.endpoint]);
    assert!(version(&of_a) > version(&first));
    assert_eq!(world.table(element), Some((version(&of_a), servers(&of_a))));
}

#[test]
fn a_server_that_fails_is_out_of_the_table_at_once_and_moves_one_other() {
    let mut world = World::new();
    let element = world.element(64, 64, 8);
    let calls: Vec<_> = (1..=4).map(|incarnation| world.server("kv", incarnation).0).collect();
    let before = servers(&world.latest(calls[0]));
    world.input(Input::Ended(calls[1]));
    world.deliver_all();
    let after = [before[0], before[3], before[2]];
    assert_eq!(servers(&world.latest(calls[0])), after, "no time has passed");
    assert_eq!(world.table(element).unwrap().1, after);
    // Back within the grace it is the same endpoint, at the end; nobody else moves.
    world.pass(Duration::from_millis(2_000));
    let (_, back) = world.server("kv", 2);
    assert_eq!((back.endpoint, servers(&back)), (before[1], [&after[..], &[before[1]]].concat()));
    world.assert_tables_are_as_recorded();
}

#[test]
fn a_server_that_stays_away_is_forgotten_and_the_last_one_takes_the_pool_along() {
    let mut world = World::new();
    let element = world.element(64, 64, 8);
    let (a, first) = world.server("kv", 1);
    let (b, second) = world.server("kv", 2);
    world.input(Input::Ended(b));
    world.deliver_all();
    assert!(world.elements[element].endpoints.contains_key(&second.endpoint), "its last answers may be on their way");
    world.pass(TIMING.grace);
    world.deliver_all();
    assert!(!world.elements[element].endpoints.contains_key(&second.endpoint));
    world.input(Input::Ended(a));
    world.deliver_all();
    assert_eq!(world.table(element), None, "a table of nobody is none");
    world.pass(TIMING.grace);
    world.deliver_all();
    assert_eq!((world.state.snapshot().pools, world.state.snapshot().endpoints), (vec![], vec![]));
    assert!(world.elements[element].endpoints.is_empty());
    let (_, anew) = world.server("kv", 3);
    assert!(anew.pool.unwrap().gaid > first.pool.unwrap().gaid, "no id comes again");
}

#[test]
fn callers_outlive_the_server_they_came_by() {
    let mut world = World::new();
    let element = world.element(64, 64, 8);
    let (a, first) = world.server("kv", 1);
    let (_, second) = world.server("kv", 2);
    let gaid = first.pool.unwrap().gaid;
    let caller = world.follower(gaid, first.endpoint, 70);
    let stays_away = world.follower(gaid, first.endpoint, 71);
    world.input(Input::Ended(a));
    world.deliver_all();
    world.pass(TIMING.grace);
    world.deliver_all();
    assert_eq!(world.follower(gaid, second.endpoint, 70), caller, "the same process is the same endpoint");
    // A late word of the first server says nothing of who has come by another one.
    world.no_longer_follows(gaid, caller, first.endpoint);
    world.pass(TIMING.grace);
    world.deliver_all();
    let known = &world.elements[element].endpoints;
    assert!(known.contains_key(&caller), "{known:?}");
    assert!(!known.contains_key(&stays_away), "{known:?}");
    world.no_longer_follows(gaid, caller, second.endpoint);
    world.deliver_all();
    assert!(world.elements[element].endpoints.contains_key(&caller), "it may come back");
    world.pass(TIMING.grace);
    world.deliver_all();
    assert!(!world.elements[element].endpoints.contains_key(&caller));
    let unknown = world.register_follower(gaid, first.endpoint, 72);
    assert!(matches!(world.endpoint(unknown), Some(Err(Refusal::UnknownEndpoint { .. }))), "no such server any more");
}

#[test]
fn a_pool_follows_its_element() {
    let mut world = World::new();
    let (a, first) = world.server("kv", 1);
    assert_eq!(first.pool.as_ref().unwrap().element_address, "", "there is none yet");
    let one = world.element(64, 64, 8);
    assert_eq!(world.latest(a).pool.unwrap().element_address, "10.0.0.0:7702");
    let two = world.element(64, 64, 8);
    world.restart_element(one);
    world.register_element(one);
    world.deliver_all();
    assert_eq!(world.latest(a).pool.unwrap().element_address, "10.0.0.1:7702", "the other one is in service");
    assert_eq!((world.table(one), world.table(two).is_some()), (None, true));
    // It refuses: on without it.
    world.elements[two].refuses = first.pool.map(|pool| pool.gaid);
    let (b, _) = world.server("kv", 2);
    assert_eq!(world.latest(b).pool.unwrap().element_address, "");
    assert_eq!(world.latest(a).pool, world.latest(b).pool);
}

#[test]
fn after_a_restart_the_table_is_as_it_was_until_the_grace_is_over() {
    let mut world = World::new();
    let element = world.element(64, 64, 8);
    let (_, first) = world.server("kv", 1);
    world.server("kv", 2);
    let gaid = first.pool.unwrap().gaid;
    let caller = world.follower(gaid, first.endpoint, 70);
    let before = world.table(element);
    world.restart_controller();
    world.register_element(element);
    world.deliver_all();
    assert_eq!(world.table(element), before);
    let (a, again) = world.server("kv", 1);
    assert_eq!((again.endpoint, servers(&again).len()), (first.endpoint, 2));
    assert_eq!(world.follower(gaid, again.endpoint, 70), caller);
    world.pass(TIMING.restart_grace);
    world.deliver_all();
    assert_eq!(servers(&world.latest(a)), [first.endpoint], "the other one did not come back");
    world.assert_tables_are_as_recorded();
}

#[test]
fn what_cannot_be_joined_says_why() {
    let mut world = World::new();
    world.server("kv", 1);
    let mut refused = |change: &dyn Fn(&mut JoinPoolRequest)| {
        let (call, mut request) = (world.call(), joining("kv", 2));
        change(&mut request);
        world.input(Input::JoinPool(call, request));
        world.refusal(call).unwrap().to_string()
    };
    assert_eq!(refused(&|request| request.name.clear()), "name: expected 1 to 255 bytes, got \"\"");
    assert_eq!(
        refused(&|request| request.data_address = "here".into()),
        "data_address: expected ip:port, got \"here\""
    );
    let tokens = "the frames of pool \"kv\" carry no tokens, and this server wants some: all servers of a pool say the \
                  same of tokens";
    assert_eq!(refused(&|request| request.authenticate = true), tokens);
    for incarnation in 2..=64 {
        world.server("kv", incarnation);
    }
    let call = world.join("kv", 65);
    assert_eq!(world.refusal(call), Some(Refusal::Full { what: "server of this pool", limit: 64 }));
}

#[test]
fn pool_has_a_bounded_number_of_callers() {
    let mut world = World::new();
    let (_, first) = world.server("kv", 1);
    let gaid = first.pool.as_ref().unwrap().gaid;
    let known = world.follower(gaid, first.endpoint, 70);
    // The table is filled directly, as that of an application is.
    let pool = world.state.pools.get_mut(&gaid).unwrap();
    pool.callers.extend((1..CALLERS_MAX as u32).map(|i| ((i, "10.5.0.1:1".to_owned()), 1_000_000 + i)));
    let call = world.register_follower(gaid, first.endpoint, 71);
    assert_eq!(world.endpoint(call), Some(Err(Refusal::Full { what: "caller", limit: CALLERS_MAX as u32 })));
    assert_eq!(world.follower(gaid, first.endpoint, 70), known, "who is known takes no room");
}

#[test]
fn controller_has_a_bounded_number_of_pools() {
    let mut world = World::new();
    for pool in 1..=POOLS_MAX as u32 {
        let call = world.join(&format!("pool-{pool}"), pool);
        assert_eq!(world.refusal(call), None);
    }
    let full = world.join("one more", 5_000);
    assert_eq!(world.refusal(full), Some(Refusal::Full { what: "pool", limit: POOLS_MAX as u32 }));
    let known = world.join("pool-7", 5_001);
    assert_eq!(world.refusal(known), None, "a server more is no pool more");
}

#[test]
fn a_follower_that_the_element_can_not_send_to_is_not_in_its_table() {
    let mut world = World::new();
    let element = world.element(64, 64, 8);
    let (_, server) = world.server("kv", 1);
    let gaid = server.pool.as_ref().unwrap().gaid;
    for (incarnation, address) in [(9, "[fd00::1]:9"), (10, "10.0.0.0:7702")] {
        let (call, data_address) = (world.call(), address.to_owned());
        let request =
            RegisterEndpointRequest { gaid, incarnation, data_address, server: server.endpoint, ..Default::default() };
        world.input(Input::RegisterEndpoint(call, request));
        world.deliver_all();
        let follower = world.endpoint(call).unwrap().unwrap().endpoint;
        assert!(!world.elements[element].endpoints.contains_key(&follower), "{address}");
    }
    let other = world.follower(gaid, server.endpoint, 11);
    assert!(world.elements[element].endpoints.contains_key(&other), "others are not concerned");
}

#[test]
fn id_of_a_pools_server_is_kept_by_nobody_else() {
    let mut world = World::new();
    let (_, server) = world.server("kv", 1);
    let (_, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller_held(grant.gaid, 9, 4, server.endpoint);
    assert_ne!(caller.endpoint, server.endpoint);
    assert_ne!(grant.endpoint, server.endpoint);
}
