//! Tests of the controller over real gRPC, with elements that only have tables.

use std::time::Duration;

use super::common::{
    FakeElement, Scratch, TIMING, application, caller, client, controller, next, start, start_at, within,
};
use crate::{Config, LeaseTiming, StoreLocation};
use pathcall_proto::v1::*;
use pathcall_test_support::{HANG, loopback};
use tonic::Code;

#[tokio::test]
async fn answer_waits_for_element_tables() {
    let (controller, element) = (controller().await, FakeElement::start(1).await);
    let mut client = client(&controller).await;
    let mut registered = client.register_element(element.registration()).await.unwrap().into_inner();
    let id = next(&mut registered).await.element;

    let mut grants = client.register_application(application("MR-1", 5)).await.unwrap().into_inner();
    let grant = next(&mut grants).await;
    let tables = element.tables();
    let installed = &tables.applications[&grant.gaid];
    let memory = grant.memory.clone().unwrap();
    assert_eq!((installed.epoch, installed.owner, installed.width), (grant.epoch, grant.endpoint, 32));
    assert_eq!((memory.element, memory.rows, memory.data_address.as_str()), (id, 100, "127.0.0.1:7702"));
    assert_eq!(tables.endpoints[&grant.endpoint].data_address, "127.0.0.1:9000");

    let first = client.register_endpoint(caller(grant.gaid, 9)).await.unwrap().into_inner();
    let tables = element.tables();
    assert_eq!((first.slot_base, first.flows), (0, 4));
    assert_eq!(tables.endpoints[&first.endpoint].incarnation, 9);
    assert_eq!(tables.groups[&grant.gaid], [first.endpoint]);

    client
        .release_endpoint(ReleaseEndpointRequest { gaid: grant.gaid, endpoint: first.endpoint, server: 0 })
        .await
        .unwrap();
    element.until(|tables| !tables.endpoints.contains_key(&first.endpoint)).await;
    assert!(element.tables().groups[&grant.gaid].is_empty());

    drop(grants);
    element.until(|tables| tables.applications.is_empty() && tables.endpoints.is_empty()).await;
    let lookup = client.lookup(LookupRequest { name: "MR-1".into() }).await.unwrap().into_inner();
    let gone = LookupReply { gaid: grant.gaid, service_address: "http://127.0.0.1:50005".into(), alive: false };
    assert_eq!(lookup, gone);
    controller.shutdown().await;
}

#[tokio::test]
async fn second_owner_is_refused_until_first_leaves() {
    let controller = controller().await;
    let mut client = client(&controller).await;
    let mut first = client.register_application(application("MR-1", 5)).await.unwrap().into_inner();
    let grant = next(&mut first).await;
    let refused = client.register_application(application("MR-1", 6)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let text = "application \"MR-1\" is owned by http://127.0.0.1:50005, which is alive; stop that server or use \
                another AppName";
    assert_eq!(refused.message(), text);
    let other = RegisterApplicationRequest { filter_digest: 8, ..application("MR-1", 6) };
    let refused = client.register_application(other).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);

    drop(first);
    let taken = loop {
        match client.register_application(application("MR-1", 6)).await {
            Ok(stream) => break next(&mut stream.into_inner()).await,
            // The end of the stream may not have arrived yet; afterwards the lease has to expire.
            Err(status) if status.code() == Code::FailedPrecondition => tokio::task::yield_now().await,
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
        }
    };
    assert_eq!(taken.gaid, grant.gaid);
    assert!(taken.epoch > grant.epoch && taken.endpoint != grant.endpoint);
    controller.shutdown().await;
}

#[tokio::test]
async fn element_restart_gives_owner_new_epoch() {
    let (controller, element) = (controller().await, FakeElement::start(1).await);
    let mut client = client(&controller).await;
    let registered = client.register_element(element.registration()).await.unwrap();
    let mut grants = client.register_application(application("MR-1", 5)).await.unwrap().into_inner();
    let before = next(&mut grants).await;
    assert!(before.memory.is_some());

    let address = element.stop().await;
    let element = FakeElement::start_at(2, address).await;
    let mut again = client.register_element(element.registration()).await.unwrap().into_inner();
    next(&mut again).await;
    let after = loop {
        let grant = next(&mut grants).await;
        assert!(grant.epoch > before.epoch);
        if grant.memory.is_some() {
            break grant;
        }
    };
    assert_eq!((after.gaid, after.endpoint), (before.gaid, before.endpoint));
    assert_eq!(element.tables().applications[&after.gaid].epoch, after.epoch);
    drop(registered);
    controller.shutdown().await;
}

#[tokio::test]
async fn restart_noticed_by_push_withdraws_memory() {
    let (controller, element) = (controller().await, FakeElement::start(1).await);
    let mut client = client(&controller).await;
    let mut registered = client.register_element(element.registration()).await.unwrap().into_inner();
    next(&mut registered).await;
    let mut grants = client.register_application(application("MR-1", 5)).await.unwrap().into_inner();
    let before = next(&mut grants).await;
    let address = element.stop().await;
    let _other = FakeElement::start_at(2, address).await;
    let endpoint = client.register_endpoint(caller(before.gaid, 9)).await.unwrap().into_inner();
    assert_eq!(endpoint.flows, 0);
    let after = next(&mut grants).await;
    assert!(after.memory.is_none() && after.epoch > before.epoch);
    let ended = within(registered.message()).await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable);
    assert!(ended.message().contains("has restarted"), "{ended}");
    controller.shutdown().await;
}

#[tokio::test]
async fn unresponsive_element_delays_no_owner() {
    let timing = LeaseTiming { confirm: Duration::from_millis(300), ..TIMING };
    let controller = start(Config::default().timing(timing).keep_alive(HANG)).await;
    let element = FakeElement::start(1).await;
    element.mute(true);
    let mut client = client(&controller).await;
    let refused = within(client.register_element(element.registration())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("has not answered within 300 ms"), "{refused}");

    element.mute(false);
    // On a stalled machine the element may not answer in time.
    let mut registered = loop {
        match client.register_element(element.registration()).await {
            Ok(registered) => break registered.into_inner(),
            Err(refused) => assert_eq!(refused.code(), Code::Unavailable, "{refused}"),
        }
    };
    next(&mut registered).await;
    element.mute(true);
    let mut grants = within(client.register_application(application("MR-1", 5))).await.unwrap().into_inner();
    let without = next(&mut grants).await;
    assert_eq!(without.memory, None);
    within(registered.message()).await.unwrap_err();

    // The element answers again. The controller first removes its stale entries.
    element.mute(false);
    let (registration, mut again) = (element.registration(), client.clone());
    let registering = tokio::spawn(async move {
        loop {
            let Ok(registered) = again.register_element(registration.clone()).await else { continue };
            let mut registered = registered.into_inner();
            while let Ok(Some(_)) = registered.message().await {}
        }
    });
    let with = loop {
        let grant = next(&mut grants).await;
        if grant.memory.is_some() {
            break grant;
        }
    };
    assert!(with.epoch > without.epoch);
    assert!(element.tables().applications[&with.gaid].epoch >= with.epoch);
    registering.abort();
    controller.shutdown().await;
}

#[tokio::test]
async fn lost_element_is_noticed() {
    let (controller, element) = (controller().await, FakeElement::start(1).await);
    let mut client = client(&controller).await;
    let registered = client.register_element(element.registration()).await.unwrap();
    let mut grants = client.register_application(application("MR-1", 5)).await.unwrap().into_inner();
    let before = next(&mut grants).await;
    drop((registered, element));
    let after = next(&mut grants).await;
    assert!(after.memory.is_none() && after.epoch > before.epoch);
    let status = client.status(StatusRequest {}).await.unwrap().into_inner();
    assert!(!status.elements[0].alive && status.elements[0].counters.is_none());
    controller.shutdown().await;
}

#[tokio::test]
async fn restarted_controller_loses_nothing() {
    let store = Scratch::new("restart");
    let first = start_at(loopback::own(), store.config()).await;
    let (addr, element) = (first.addr(), FakeElement::start(1).await);
    let mut client = client(&first).await;
    let registered = client.register_element(element.registration()).await.unwrap();
    let mut grants = client.register_application(application("MR-1", 5)).await.unwrap().into_inner();
    let grant = next(&mut grants).await;
    let endpoint = client.register_endpoint(caller(grant.gaid, 9)).await.unwrap().into_inner();
    let element_grant = next(&mut registered.into_inner()).await;
    let before = element.tables();
    first.shutdown().await;
    assert_eq!(within(grants.message()).await.ok().flatten(), None, "the stream ends with the controller");

    let second = start_at(addr, store.config()).await;
    let mut client = super::common::client(&second).await;
    // The name is reserved until its owner returns or expires.
    let other = client.register_application(application("MR-1", 6)).await.unwrap_err();
    assert_eq!(other.code(), Code::Unavailable, "{other}");
    let mut grants = client.register_application(application("MR-1", 5)).await.unwrap().into_inner();
    assert_eq!(next(&mut grants).await, grant);
    let mut registered = client.register_element(element.registration()).await.unwrap().into_inner();
    assert_eq!(next(&mut registered).await, element_grant);
    assert_eq!(client.register_endpoint(caller(grant.gaid, 9)).await.unwrap().into_inner(), endpoint);
    let tables = element.tables();
    assert_eq!(
        (&tables.applications, &tables.endpoints, &tables.groups),
        (&before.applications, &before.endpoints, &before.groups)
    );
    assert!(!tables.log.iter().any(|change| change.starts_with("remove")), "{:?}", tables.log);
    let mut next_grants = client.register_application(application("MR-2", 6)).await.unwrap().into_inner();
    assert!(next(&mut next_grants).await.gaid > grant.gaid);
    second.shutdown().await;
}

#[tokio::test]
async fn lost_store_leaves_no_entries_on_element() {
    let (first, element) = (controller().await, FakeElement::start(1).await);
    let mut client = client(&first).await;
    let registered = client.register_element(element.registration()).await.unwrap();
    let grants = client.register_application(application("MR-1", 5)).await.unwrap();
    let more = client.register_application(application("MR-2", 6)).await.unwrap();
    assert_eq!(element.tables().applications.len(), 2);
    first.shutdown().await;
    drop((registered, grants, more));

    let second = controller().await;
    let mut client = super::common::client(&second).await;
    let mut registered = client.register_element(element.registration()).await.unwrap().into_inner();
    next(&mut registered).await;
    assert!(element.tables().applications.is_empty());
    second.shutdown().await;
}

#[tokio::test]
async fn status_shows_all_registrations() {
    let (controller, element) = (controller().await, FakeElement::start(1).await);
    let mut client = client(&controller).await;
    let _registered = client.register_element(element.registration()).await.unwrap();
    let mut grants = client.register_application(application("MR-1", 5)).await.unwrap().into_inner();
    let grant = next(&mut grants).await;
    let endpoint = client.register_endpoint(caller(grant.gaid, 9)).await.unwrap().into_inner();
    let status = within(async {
        loop {
            let status = client.status(StatusRequest {}).await.unwrap().into_inner();
            // A stalled element does not answer with its counters in time.
            if status.elements[0].counters.is_some() {
                break status;
            }
        }
    })
    .await;
    let [application] = &status.applications[..] else { panic!("{status:?}") };
    assert_eq!((application.name.as_str(), application.alive, application.epoch), ("MR-1", true, grant.epoch));
    assert_eq!(application.memory, grant.memory);
    let endpoints: Vec<_> = application.endpoints.iter().map(|e| (e.endpoint, e.slots)).collect();
    assert_eq!(endpoints, [(grant.endpoint, 0), (endpoint.endpoint, 4)]);
    let [of_element] = &status.elements[..] else { panic!("{status:?}") };
    assert_eq!((of_element.rows_used, of_element.lanes_used, of_element.slots_used), (100, 3200, 4));
    assert!(of_element.counters.as_ref().unwrap().element["changes"] > 0);

    // Without an answer only the counters are missing.
    element.mute(true);
    let status = within(client.status(StatusRequest {})).await.unwrap().into_inner();
    assert_eq!(status.elements[0].counters, None);
    let unknown = client.lookup(LookupRequest { name: "MR-9".into() }).await.unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (Code::NotFound, "no application \"MR-9\""));
    controller.shutdown().await;
}

#[tokio::test]
async fn start_error_is_one_line() {
    let store = Scratch::new("start");
    let running = start(store.config()).await;
    let addr = running.addr();
    let in_use = crate::bind(addr).await.unwrap_err().to_string();
    let port = addr.port();
    let expected = "is in use: another controller may be running on 127.0.0.1; choose another with --listen";
    assert_eq!(in_use, format!("port {port} {expected}"));
    let elsewhere = crate::bind("192.0.2.1:7700".parse().unwrap()).await.unwrap_err().to_string();
    assert_eq!(elsewhere, "192.0.2.1 is not an address of this machine: choose one with --listen");

    let free = crate::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let in_use = crate::serve(free, store.config()).await.unwrap_err().to_string();
    assert!(in_use.starts_with("store ") && in_use.ends_with("choose another with --store"), "{in_use}");
    running.shutdown().await;

    let garbage = Scratch::new("garbage");
    std::fs::write(garbage.path(), [0x5a; 4096]).unwrap();
    let free = crate::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let broken = crate::serve(free, garbage.config()).await.unwrap_err().to_string();
    assert!(broken.starts_with("cannot open store "), "{broken}");
    let nowhere = Config::default().store(StoreLocation::File("/nonexistent/store".into()));
    let free = crate::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let broken = crate::serve(free, nowhere).await.unwrap_err().to_string();
    assert!(broken.starts_with("cannot open store /nonexistent/store: "), "{broken}");
}

/// A peer that is cut off sends nothing: no end of stream, no reset.
#[tokio::test]
async fn cut_off_peer_is_noticed() {
    let keep_alive = Duration::from_millis(200);
    let controller = start(Config::default().timing(TIMING).keep_alive(keep_alive)).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, to) = (listener.local_addr().unwrap(), controller.addr());
    let (cut, mut is_cut) = tokio::sync::oneshot::channel::<()>();
    let wire = tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => panic!("the connection ended too early"),
            _ = &mut is_cut => {}
        }
        // Both ends stay open and receive nothing more.
        (near, far)
    });

    let mut remote = controller_client::ControllerClient::connect(format!("http://{addr}")).await.unwrap();
    let mut grants = remote.register_application(application("MR-1", 5)).await.unwrap().into_inner();
    next(&mut grants).await;
    let mut client = client(&controller).await;
    cut.send(()).unwrap();
    let ends = wire.await.unwrap();
    let alive = async || {
        let lookup = LookupRequest { name: "MR-1".into() };
        client.lookup(lookup).await.unwrap().into_inner().alive
    };
    within(gone(alive)).await;
    drop((ends, grants));
    controller.shutdown().await;
}

async fn gone(mut alive: impl AsyncFnMut() -> bool) {
    while alive().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn pool_servers_are_notified_of_changes() {
    let (controller, element) = (controller().await, FakeElement::start(1).await);
    let mut operator = client(&controller).await;
    let mut registered = operator.register_element(element.registration()).await.unwrap().into_inner();
    next(&mut registered).await;
    let join = |incarnation: u32| JoinPoolRequest {
        name: "kv".into(),
        data_address: format!("127.0.0.1:{}", 9000 + incarnation),
        incarnation,
        service_address: format!("http://127.0.0.1:{}", 50_000 + incarnation),
        authenticate: true,
        rack: String::new(),
    };
    let mut first = operator.join_pool(join(1)).await.unwrap().into_inner();
    let alone = next(&mut first).await.pool.unwrap();
    assert!(alone.token_key.is_some() && alone.element_address == "127.0.0.1:7702");
    // A connection of its own, which ends like a process.
    let mut other = client(&controller).await;
    let mut second = other.join_pool(join(2)).await.unwrap().into_inner();
    let both = next(&mut second).await.pool.unwrap();
    assert_eq!(next(&mut first).await.pool.as_ref(), Some(&both));
    assert_eq!(both.servers.iter().map(|server| server.incarnation).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(both.token_key, alone.token_key);
    let table =
        |pool: &PoolTable| (pool.version, pool.servers.iter().map(|server| server.endpoint).collect::<Vec<_>>());
    assert_eq!(element.tables().pools[&both.gaid], table(&both));
    let caller = RegisterEndpointRequest { server: both.servers[1].endpoint, flows: 0, ..caller(both.gaid, 9) };
    let caller = other.register_endpoint(caller).await.unwrap().into_inner().endpoint;
    assert!(element.tables().endpoints.contains_key(&caller));
    let status = operator.status(StatusRequest {}).await.unwrap().into_inner().pools;
    let [PoolStatus { name, callers: 1, authenticated: true, pool: Some(shown), .. }] = &status[..] else {
        panic!("{status:?}")
    };
    assert_eq!((name.as_str(), &shown.servers, shown.token_key), ("kv", &both.servers, None));

    drop((second, other));
    let left = next(&mut first).await.pool.unwrap();
    assert_eq!(left.servers, both.servers[..1]);
    element.until(|tables| tables.pools[&left.gaid] == table(&left)).await;
    // After the grace period the server and the caller that followed it are removed.
    let one = left.servers[0].endpoint;
    element.until(|tables| tables.endpoints.keys().all(|endpoint| *endpoint == one)).await;
    drop(first);
    element.until(|tables| tables.pools.is_empty() && tables.endpoints.is_empty()).await;
    controller.shutdown().await;
}
