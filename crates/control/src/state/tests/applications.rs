//! Tests of owners, epochs and memory.

use super::*;

#[test]
fn owner_gets_requested_memory_after_confirmation() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let call = net.register(application("MR-1", 5, 100));
    assert!(net.grants(call).is_empty(), "not before the element has confirmed");
    net.deliver_all();
    let grant = net.grants(call).pop().unwrap();
    let memory = grant.memory.clone().unwrap();
    assert_eq!((grant.gaid, grant.epoch), (1, FIRST_EPOCH));
    assert_eq!((memory.row_base, memory.rows, memory.lane_base, memory.width), (0, 100, 0, 32));
    assert_eq!(memory.data_address, "10.0.0.0:7702");
    net.assert_tables_are_as_recorded();
    let (_, second) = net.owner("MR-2", 6, 50);
    let memory = second.memory.unwrap();
    assert_eq!((second.gaid, memory.row_base, memory.lane_base), (2, 100, 3200));
    assert_ne!(second.endpoint, grant.endpoint);
}

#[test]
fn owner_without_element_gets_memory_later() {
    let mut net = TestNetwork::new();
    let (call, grant) = net.owner("MR-1", 5, 100);
    assert_eq!(grant.memory, None);
    net.element(1024, 1 << 20, 64);
    let grants = net.grants(call);
    assert_eq!(grants.len(), 2);
    assert!(grants[1].memory.is_some());
    assert_eq!((grants[1].gaid, grants[1].endpoint), (grant.gaid, grant.endpoint));
    assert!(grants[1].epoch > grant.epoch, "memory moved");
}

#[test]
fn owner_requesting_no_rows_gets_none() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (call, grant) = net.owner("MR-1", 5, 0);
    assert_eq!(grant.memory, None);
    net.element(1024, 1 << 20, 64);
    assert_eq!(net.grants(call).len(), 1);
}

#[test]
fn request_is_met_in_part_down_to_minimum() {
    let mut net = TestNetwork::new();
    net.element(100, 32 * 80, 64);
    assert_eq!(net.owner("A", 1, 50).1.memory.unwrap().rows, 50);
    assert_eq!(net.owner("B", 2, 50).1.memory.unwrap().rows, 30, "limited by the lanes");
    assert_eq!(net.owner("C", 3, 50).1.memory, None);

    let mut net = TestNetwork::new();
    net.element(ROWS_MIN - 1, 1 << 20, 64);
    assert_eq!(net.owner("A", 1, 50).1.memory, None, "fewer than the minimum");
    assert_eq!(net.owner("B", 2, 5).1.memory.unwrap().rows, 5, "a small request is granted");
}

#[test]
fn first_element_with_room_for_all_rows_is_used() {
    let mut net = TestNetwork::new();
    net.element(40, 1 << 20, 64);
    net.element(100, 1 << 20, 64);
    net.element(200, 1 << 20, 64);
    assert_eq!(net.owner("A", 1, 80).1.memory.unwrap().element, 2);
    assert_eq!(net.owner("B", 2, 500).1.memory.unwrap().rows, 200);
    assert_eq!(net.owner("C", 3, 500).1.memory.unwrap().rows, 40);
}

#[test]
fn second_owner_is_refused_while_first_lives() {
    let mut net = TestNetwork::new();
    let (first, grant) = net.owner("MR-1", 5, 0);
    let second = net.register(application("MR-1", 6, 0));
    let text = "application \"MR-1\" is owned by http://server-5:50051, which is alive; stop that server or use \
                another AppName";
    assert_eq!(net.refusal(second).unwrap().to_string(), text);
    let other_filters = RegisterApplicationRequest { filter_digest: 1, ..application("MR-1", 6, 0) };
    let third = net.register(other_filters.clone());
    assert!(matches!(net.refusal(third), Some(RegistrationRefusal::OtherFilters { .. })));
    let own = net.register(RegisterApplicationRequest { filter_digest: 1, ..application("MR-1", 5, 0) });
    assert!(matches!(net.refusal(own), Some(RegistrationRefusal::OtherFilters { .. })));

    net.input(Input::Ended(first));
    net.pass(Duration::from_millis(2999));
    let early = net.register(application("MR-1", 6, 0));
    let Some(RegistrationRefusal::LeaseExpiring { left, .. }) = net.refusal(early) else {
        panic!("{:?}", net.refusal(early))
    };
    assert_eq!(left, Duration::from_millis(1));
    assert!(net.state.lookup("MR-1").unwrap().alive);
    net.pass(Duration::from_millis(1));
    assert!(!net.state.lookup("MR-1").unwrap().alive);

    let late = net.register(other_filters);
    let taken = net.grants(late).pop().unwrap();
    assert_eq!(taken.gaid, grant.gaid, "the name keeps its id");
    assert!(taken.epoch > grant.epoch, "another owner");
    assert_ne!(taken.endpoint, grant.endpoint, "another process");
    assert_eq!(net.state.lookup("MR-1").unwrap().service_address, "http://server-6:50051");
}

#[test]
fn owner_returning_in_time_keeps_everything() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (first, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    net.input(Input::Ended(first));
    net.pass(Duration::from_secs(2));
    assert_eq!(net.owner("MR-1", 5, 100).1, grant);
    net.pass(Duration::from_secs(60));
    assert_eq!(net.caller(grant.gaid, 9, 4), caller);

    // A second registration replaces a stream that still seems alive.
    let (call, again) = net.owner("MR-1", 5, 100);
    let (later, _) = net.owner("MR-1", 5, 100);
    assert_eq!(again, grant);
    assert_eq!(net.refusal(call), Some(RegistrationRefusal::Replaced));
    net.input(Input::Ended(call));
    net.pass(Duration::from_secs(60));
    assert!(net.state.lookup("MR-1").unwrap().alive, "the end of a replaced stream ends nothing");
    net.input(Input::Ended(later));
    net.pass(Duration::from_secs(60));
    assert!(!net.state.lookup("MR-1").unwrap().alive);
}

#[test]
fn owner_returning_too_late_starts_again() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (first, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    net.input(Input::Ended(first));
    net.pass(TIMING.grace);
    net.deliver_all();
    assert!(net.elements[0].applications.is_empty() && net.elements[0].endpoints.is_empty());
    let (_, again) = net.owner("MR-1", 5, 100);
    assert_eq!((again.gaid, again.endpoint), (grant.gaid, grant.endpoint));
    assert!(again.epoch > grant.epoch);
    assert_ne!(net.caller(grant.gaid, 9, 4).endpoint, caller.endpoint, "ids are never used twice");
    net.assert_tables_are_as_recorded();
}

#[test]
fn callers_keep_ids_when_owner_returns_too_late() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (mut stream, grant) = net.owner("MR-1", 5, 100);
    let element = net.state.snapshot().elements[0].endpoint;
    // One caller has an id of this controller, the other one began while the controller was unreachable.
    let callers = [(9, net.caller_held(grant.gaid, 9, 4, 0).endpoint), (10, 777)];
    for round in 0..3 {
        for (incarnation, id) in callers {
            let caller = net.caller_held(grant.gaid, incarnation, 4, id);
            assert_eq!((caller.endpoint, caller.flows), (id, 4), "round {round}");
        }
        net.assert_tables_are_as_recorded();
        net.input(Input::Ended(stream));
        net.pass(TIMING.grace);
        (stream, _) = net.owner("MR-1", 5, 100);
    }
    // A released caller keeps its id, too. No other caller gets it, nor the id of an owner or element.
    for (incarnation, id) in callers {
        net.caller_held(grant.gaid, incarnation, 4, id);
        net.release(grant.gaid, id).unwrap();
        assert_eq!(net.caller_held(grant.gaid, incarnation, 4, id).endpoint, id);
    }
    for (incarnation, id) in [(11, callers[0].1), (12, 777), (13, grant.endpoint), (14, element)] {
        assert_ne!(net.caller_held(grant.gaid, incarnation, 4, id).endpoint, id);
    }
    net.assert_tables_are_as_recorded();
}

#[test]
fn owner_can_release_memory_and_move() {
    let mut net = TestNetwork::new();
    net.element(128, 1 << 20, 64);
    let (_, grant) = net.owner("MR-1", 5, 128);
    let (_, without) = net.owner("MR-1", 5, 0);
    assert!(without.memory.is_none() && without.epoch > grant.epoch);
    assert!(net.owner("MR-2", 6, 128).1.memory.is_some(), "the memory is free for others");

    let mut net = TestNetwork::new();
    net.element(128, 1 << 20, 64);
    let (_, grant) = net.owner("MR-1", 5, 128);
    let moved = RegisterApplicationRequest { data_address: "10.9.9.9:9".into(), ..application("MR-1", 5, 128) };
    let call = net.register(moved);
    net.deliver_all();
    assert_eq!(net.grants(call), std::slice::from_ref(&grant), "the owner's address is not part of the grant");
    assert_eq!(net.elements[0].endpoints[&grant.endpoint].data_address, "10.9.9.9:9");
    let wider = RegisterApplicationRequest { width: 256, ..application("MR-1", 5, 128) };
    let call = net.register(wider);
    net.deliver_all();
    let wider = net.grants(call).pop().unwrap();
    assert_eq!(wider.memory.unwrap().width, 256);
    assert!(wider.epoch > grant.epoch);
}

#[test]
fn invalid_field_is_named_in_refusal() {
    let mut net = TestNetwork::new();
    let (good, held, silent_elements) = (application("MR-1", 5, 10), HeldGrant::default(), vec![1; SILENT_MAX + 1]);
    let bad = [
        ("name", RegisterApplicationRequest { name: String::new(), ..good.clone() }),
        ("name", RegisterApplicationRequest { name: "x".repeat(256), ..good.clone() }),
        ("width", RegisterApplicationRequest { width: 0, ..good.clone() }),
        ("width", RegisterApplicationRequest { width: 1 << 16, ..good.clone() }),
        ("data_address", RegisterApplicationRequest { data_address: "localhost:1".into(), ..good.clone() }),
        ("data_address", RegisterApplicationRequest { data_address: "10.0.0.1:0".into(), ..good.clone() }),
        ("data_address", RegisterApplicationRequest { data_address: "0.0.0.0:5".into(), ..good.clone() }),
        ("service_address", RegisterApplicationRequest { service_address: "x".repeat(256), ..good.clone() }),
        ("silent_elements", RegisterApplicationRequest { silent_elements, ..good.clone() }),
        ("held.epoch", RegisterApplicationRequest { held: Some(HeldGrant { epoch: 1 << 31, ..held }), ..good }),
    ];
    for (expected, request) in bad {
        let call = net.register(request);
        let Some(RegistrationRefusal::Invalid { field, .. }) = net.refusal(call) else { panic!("{expected}") };
        assert_eq!(field, expected);
    }
    assert_eq!(net.state.status().applications.len(), 0);
}

#[test]
fn ownerless_application_makes_room_and_can_return() {
    let mut net = TestNetwork::new();
    let (call, first) = net.owner("first", 1, 0);
    for i in 1..APPLICATIONS_MAX as u32 {
        net.register(application(&format!("app-{i}"), 1 + i, 0));
    }
    let full = net.register(application("one more", 9, 0));
    assert!(matches!(net.refusal(full), Some(RegistrationRefusal::Full { what: "application", .. })));
    net.input(Input::Ended(call));
    net.pass(TIMING.grace);
    let (call, grant) = net.owner("one more", 9, 0);
    assert_eq!(grant.gaid, APPLICATIONS_MAX as u32 + 1, "the removed application's id is not reused");
    assert!(net.state.lookup("first").is_err());

    net.input(Input::Ended(call));
    net.pass(TIMING.grace);
    let call = net.register(RegisterApplicationRequest { held: as_held(&first), ..application("first", 1, 0) });
    let again = net.grants(call).pop().unwrap();
    assert_eq!((again.gaid, again.endpoint), (first.gaid, first.endpoint));
    assert!(again.epoch > first.epoch);

    // An owner that does not know its earlier epoch gets a higher one, too: fencing tokens grow.
    net.input(Input::Ended(call));
    net.pass(TIMING.grace);
    let (call, _) = net.owner("one more", 9, 0);
    net.input(Input::Ended(call));
    net.pass(TIMING.grace);
    net.restart_controller();
    assert!(net.owner("first", 10_000, 0).1.epoch > again.epoch);
}

#[test]
fn id_range_ends_before_ids_of_servers() {
    let mut net = TestNetwork::new();
    net.register(application("MR-1", 1, 0));
    net.state.ids.endpoint = IDS_END;
    net.state.changed.ids = true;
    let call = net.register(application("MR-2", 2, 0));
    assert!(matches!(net.refusal(call), Some(RegistrationRefusal::Full { .. })));
    let endpoint = net.register_caller(1, 5, 1);
    assert!(matches!(net.endpoint(endpoint), Some(Err(RegistrationRefusal::Full { .. }))));
}

#[test]
fn repeated_request_waits_for_latest_one() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    net.register(application("MR-1", 5, 100));
    let until_here = net.elements[0].queue.len();
    let moved = RegisterApplicationRequest { data_address: "10.9.9.9:9".into(), ..application("MR-1", 5, 100) };
    let call = net.register(moved);
    (0..until_here).for_each(|_| assert!(net.deliver(0)));
    assert!(net.grants(call).is_empty(), "the element still has the old address");
    net.deliver_all();
    assert_eq!(net.grants(call).len(), 1);
}

/// Grant in the form in which its owner sends it when it registers again.
fn as_held(grant: &ApplicationGrant) -> Option<HeldGrant> {
    let ApplicationGrant { gaid, epoch, endpoint, token_key, .. } = *grant;
    Some(HeldGrant { gaid, epoch, endpoint, token_key, in_software: false })
}

#[test]
fn lost_store_keeps_ids_of_peers() {
    let (first, second) = ("MR-1", "MR-2");
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let grants = [net.owner(first, 5, 10).1, net.owner(second, 6, 10).1];
    let callers = grants.each_ref().map(|grant| net.caller(grant.gaid, 9, 4).endpoint);

    // Both controllers count from the same id, and the owners return in another order.
    for first_epoch in [1, FIRST_EPOCH, 1 << 30] {
        let mut anew = TestNetwork { state: ControllerState::new(TIMING, first_epoch, 1_000), ..TestNetwork::new() };
        anew.element(1024, 1 << 20, 64);
        for (name, incarnation, at) in [(second, 6, 1), (first, 5, 0)] {
            let held = as_held(&grants[at]);
            let call = anew.register(RegisterApplicationRequest { held, ..application(name, incarnation, 10) });
            anew.deliver_all();
            let grant = anew.grants(call).pop().unwrap();
            assert_eq!((grant.gaid, grant.endpoint), (grants[at].gaid, grants[at].endpoint), "{name}");
            assert!(grant.epoch > grants[at].epoch && grant.memory.is_some(), "{grant:?}");
            assert_eq!(anew.caller_held(grant.gaid, 9, 4, callers[at]).endpoint, callers[at]);
        }
        let (_, other) = anew.owner("MR-3", 7, 10);
        assert!(other.gaid >= 1_000, "new ids are counted: {other:?}");
        // The kept ids are in the store, too.
        anew.restart_controller();
        assert!(anew.owner("MR-4", 8, 0).1.gaid > other.gaid);
    }
}

#[test]
fn taken_ids_are_not_kept() {
    let mut net = TestNetwork::new();
    let (_, grant) = net.owner("MR-1", 5, 0);
    let register = |net: &mut TestNetwork, name: &str, held: HeldGrant| {
        let call = net.register(RegisterApplicationRequest { held: Some(held), ..application(name, 6, 0) });
        net.grants(call).pop().unwrap()
    };
    // An id in use, and ids that no controller assigns, are not kept.
    let other = register(&mut net, "MR-2", as_held(&grant).unwrap());
    assert!(other.gaid != grant.gaid && other.endpoint != grant.endpoint, "{other:?}");
    let (gaid, endpoint) = (IDS_END, u32::MAX);
    let other = register(&mut net, "MR-3", HeldGrant { gaid, endpoint, ..HeldGrant::default() });
    assert!(other.gaid < IDS_END && other.endpoint < IDS_END, "{other:?}");

    // Kept ids above the next id are skipped, also after a restart.
    let ahead = other.gaid + 2;
    let held = HeldGrant { gaid: ahead, endpoint: other.endpoint + 2, ..HeldGrant::default() };
    assert_eq!(register(&mut net, "MR-4", held).gaid, ahead);
    assert_ne!(register(&mut net, "MR-5", held).gaid, ahead, "once");
    net.restart_controller();
    let more = ["MR-6", "MR-7", "MR-8"].map(|name| net.owner(name, 6, 0).1);
    assert!(more.iter().all(|more| more.gaid != ahead && more.endpoint != held.endpoint), "{more:?}");
}

#[test]
fn software_owner_gets_new_epoch() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (_, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    let asks = |net: &mut TestNetwork, epoch, in_software| {
        let held = as_held(&grant).map(|held| HeldGrant { epoch, in_software, ..held });
        let call = net.register(RegisterApplicationRequest { held, ..application("MR-1", 5, 100) });
        net.deliver_all();
        net.grants(call).pop().unwrap()
    };
    assert_eq!(asks(&mut net, grant.epoch, false), grant, "the application uses the element");
    assert_eq!(asks(&mut net, grant.epoch - 1, true), grant, "the controller does not know this caller");
    let other = asks(&mut net, grant.epoch, true);
    assert_eq!(other, ApplicationGrant { epoch: grant.epoch + 1, ..grant.clone() });
    assert_eq!(asks(&mut net, grant.epoch, true), other, "a repeated request gets the same memory");
    assert_eq!(net.elements[0].applications[&grant.gaid].epoch, other.epoch);
    assert_eq!(net.caller(grant.gaid, 9, 4), caller, "callers keep their ids");
    net.assert_tables_are_as_recorded();
}

#[test]
fn owner_with_callers_keeps_its_ids() {
    let mut net = TestNetwork::new();
    net.element(128, 1 << 20, 64);
    let (first, grant) = net.owner("MR-1", 5, 128);
    let held = HeldGrant { gaid: 777, endpoint: 778, epoch: 400, token_key: None, in_software: true };
    let request = RegisterApplicationRequest { held: Some(held), ..application("MR-1", 5, 128) };
    let call = net.register(request.clone());
    net.deliver_all();
    let named = net.grants(call).pop().unwrap();
    assert_eq!((named.gaid, named.endpoint, named.epoch), (777, 778, 401));
    assert_eq!(named.memory, grant.memory, "the id is free again");
    assert_eq!(net.refusal(first), Some(RegistrationRefusal::Replaced));
    net.input(Input::Ended(first));
    net.pass(Duration::from_secs(60));
    assert_eq!(net.state.status().applications.len(), 1);
    assert_eq!(net.caller_held(777, 9, 4, 779).endpoint, 779, "a caller keeps its id as well");
    net.assert_tables_are_as_recorded();

    // The controller knows callers of the application, so the application keeps its ids.
    let other = HeldGrant { gaid: 888, ..held };
    let call = net.register(RegisterApplicationRequest { held: Some(other), ..request });
    net.deliver_all();
    assert_eq!(net.grants(call).pop().unwrap().gaid, 777);
}

#[test]
fn epochs_grow_over_owners_with_any_ids() {
    for epoch in [1, 400] {
        let mut net = TestNetwork::new();
        let (call, first) = net.owner("MR-1", 5, 0);
        net.input(Input::Ended(call));
        net.pass(Duration::from_secs(60));
        // The next owner had its first caller while the controller was unreachable.
        let held = HeldGrant { gaid: 777, endpoint: 778, epoch, ..HeldGrant::default() };
        let request = RegisterApplicationRequest { held: Some(held), ..application("MR-1", 6, 0) };
        let [taken, named] = [(); 2].map(|()| {
            let call = net.register(request.clone());
            net.grants(call).pop().unwrap()
        });
        assert_eq!((taken.gaid, named.gaid), (first.gaid, 777));
        assert!(first.epoch.max(epoch) < taken.epoch && taken.epoch < named.epoch, "{taken:?}, {named:?}");
    }
}

#[test]
fn key_known_to_callers_stays() {
    let mut net = TestNetwork::new();
    net.input(Input::Key(TokenKey { k0: 1, k1: 2 }));
    let held =
        HeldGrant { gaid: 7, epoch: 3, endpoint: 8, token_key: Some(TokenKey { k0: 3, k1: 4 }), in_software: false };
    let request = RegisterApplicationRequest { authenticate: true, held: Some(held), ..application("MR-1", 5, 0) };
    let call = net.register(request);
    assert_eq!(net.grants(call).pop().unwrap().token_key, held.token_key);
}
