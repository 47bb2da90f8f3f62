//! Owners, epochs, memory.

use super::*;

#[test]
fn an_owner_is_granted_what_it_wishes_for_once_the_element_has_it() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let call = world.register(application("MR-1", 5, 100));
    assert!(world.grants(call).is_empty(), "not before the element has confirmed");
    world.deliver_all();
    let grant = world.grants(call).pop().unwrap();
    let memory = grant.memory.clone().unwrap();
    assert_eq!((grant.gaid, grant.epoch), (1, FIRST_EPOCH));
    assert_eq!((memory.row_base, memory.rows, memory.lane_base, memory.width), (0, 100, 0, 32));
    assert_eq!(memory.data_address, "10.0.0.0:7702");
    world.assert_tables_are_as_recorded();

    let (_, second) = world.owner("MR-2", 6, 50);
    let memory = second.memory.unwrap();
    assert_eq!((second.gaid, memory.row_base, memory.lane_base), (2, 100, 3200));
    assert_ne!(second.endpoint, grant.endpoint);
}

#[test]
fn without_an_element_the_answer_is_immediate_and_memory_follows() {
    let mut world = World::new();
    let (call, grant) = world.owner("MR-1", 5, 100);
    assert_eq!(grant.memory, None);
    world.element(1024, 1 << 20, 64);
    let grants = world.grants(call);
    assert_eq!(grants.len(), 2);
    assert!(grants[1].memory.is_some());
    assert_eq!((grants[1].gaid, grants[1].endpoint), (grant.gaid, grant.endpoint));
    assert!(grants[1].epoch > grant.epoch, "memory moved");
}

#[test]
fn who_wishes_for_none_gets_none() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (call, grant) = world.owner("MR-1", 5, 0);
    assert_eq!(grant.memory, None);
    world.element(1024, 1 << 20, 64);
    assert_eq!(world.grants(call).len(), 1);
}

#[test]
fn a_wish_is_met_in_part_down_to_a_minimum() {
    let mut world = World::new();
    world.element(100, 32 * 80, 64);
    assert_eq!(world.owner("A", 1, 50).1.memory.unwrap().rows, 50);
    assert_eq!(world.owner("B", 2, 50).1.memory.unwrap().rows, 30, "as many as there are lanes for");
    assert_eq!(world.owner("C", 3, 50).1.memory, None);

    let mut world = World::new();
    world.element(ROWS_MIN - 1, 1 << 20, 64);
    assert_eq!(world.owner("A", 1, 50).1.memory, None, "too few to be worth it");
    assert_eq!(world.owner("B", 2, 5).1.memory.unwrap().rows, 5, "but that is all that was wished for");
}

#[test]
fn the_first_element_with_room_for_all_is_taken() {
    let mut world = World::new();
    world.element(40, 1 << 20, 64);
    world.element(100, 1 << 20, 64);
    world.element(200, 1 << 20, 64);
    assert_eq!(world.owner("A", 1, 80).1.memory.unwrap().element, 2);
    assert_eq!(world.owner("B", 2, 500).1.memory.unwrap().rows, 200);
    assert_eq!(world.owner("C", 3, 500).1.memory.unwrap().rows, 40);
}

#[test]
fn a_second_server_is_refused_while_the_first_lives() {
    let mut world = World::new();
    let (first, grant) = world.owner("MR-1", 5, 0);
    let second = world.register(application("MR-1", 6, 0));
    let text = "application \"MR-1\" is owned by http://server-5:50051, alive; stop it or use another AppName";
    assert_eq!(world.refusal(second).unwrap().to_string(), text);
    let other_filters = RegisterApplicationRequest { filter_digest: 1, ..application("MR-1", 6, 0) };
    let third = world.register(other_filters.clone());
    assert!(matches!(world.refusal(third), Some(Refusal::OtherFilters { .. })));
    let own = world.register(RegisterApplicationRequest { filter_digest: 1, ..application("MR-1", 5, 0) });
    assert!(matches!(world.refusal(own), Some(Refusal::OtherFilters { .. })));

    world.input(Input::Ended(first));
    world.pass(Duration::from_millis(2999));
    let early = world.register(application("MR-1", 6, 0));
    let Some(Refusal::Lapsing { left, .. }) = world.refusal(early) else { panic!("{:?}", world.refusal(early)) };
    assert_eq!(left, Duration::from_millis(1));
    assert!(world.state.lookup("MR-1").unwrap().alive);
    world.pass(Duration::from_millis(1));
    assert!(!world.state.lookup("MR-1").unwrap().alive);

    let late = world.register(other_filters);
    let taken = world.grants(late).pop().unwrap();
    assert_eq!(taken.gaid, grant.gaid, "the name keeps its id");
    assert!(taken.epoch > grant.epoch, "another owner");
    assert_ne!(taken.endpoint, grant.endpoint, "another process");
    assert_eq!(world.state.lookup("MR-1").unwrap().service_address, "http://server-6:50051");
}

#[test]
fn an_owner_that_comes_back_in_time_finds_everything() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (first, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    world.input(Input::Ended(first));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.owner("MR-1", 5, 100).1, grant);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.caller(grant.gaid, 9, 4), caller);

    // Asking again while the old stream still seems alive replaces that stream.
    let (call, again) = world.owner("MR-1", 5, 100);
    let (later, _) = world.owner("MR-1", 5, 100);
    assert_eq!(again, grant);
    assert_eq!(world.refusal(call), Some(Refusal::Replaced));
    world.input(Input::Ended(call));
    world.pass(Duration::from_secs(60));
    assert!(world.state.lookup("MR-1").unwrap().alive, "the end of a replaced stream ends nothing");
    world.input(Input::Ended(later));
    world.pass(Duration::from_secs(60));
    assert!(!world.state.lookup("MR-1").unwrap().alive);
}

#[test]
fn an_owner_that_comes_back_too_late_starts_anew() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (first, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    world.input(Input::Ended(first));
    world.pass(TIMING.grace);
    world.deliver_all();
    assert!(world.elements[0].applications.is_empty() && world.elements[0].endpoints.is_empty());
    let (_, again) = world.owner("MR-1", 5, 100);
    assert_eq!((again.gaid, again.endpoint), (grant.gaid, grant.endpoint));
    assert!(again.epoch > grant.epoch);
    assert_ne!(world.caller(grant.gaid, 9, 4).endpoint, caller.endpoint, "ids are never used twice");
    world.assert_tables_are_as_recorded();
}

#[test]
fn callers_of_an_owner_that_comes_back_too_late_keep_their_ids() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (mut stream, grant) = world.owner("MR-1", 5, 100);
    let element = world.state.snapshot().elements[0].endpoint;
    // One was counted here, another one began while the controller was away.
    let callers = [(9, world.caller_held(grant.gaid, 9, 4, 0).endpoint), (10, 777)];
    for round in 0..3 {
        for (incarnation, id) in callers {
            let caller = world.caller_held(grant.gaid, incarnation, 4, id);
            assert_eq!((caller.endpoint, caller.flows), (id, 4), "round {round}");
        }
        world.assert_tables_are_as_recorded();
        world.input(Input::Ended(stream));
        world.pass(TIMING.grace);
        (stream, _) = world.owner("MR-1", 5, 100);
    }
    // So does who was released; nobody else has it then, or an id of an owner or an element.
    for (incarnation, id) in callers {
        world.caller_held(grant.gaid, incarnation, 4, id);
        world.release(grant.gaid, id).unwrap();
        assert_eq!(world.caller_held(grant.gaid, incarnation, 4, id).endpoint, id);
    }
    for (incarnation, id) in [(11, callers[0].1), (12, 777), (13, grant.endpoint), (14, element)] {
        assert_ne!(world.caller_held(grant.gaid, incarnation, 4, id).endpoint, id);
    }
    world.assert_tables_are_as_recorded();
}

#[test]
fn an_owner_can_give_its_memory_back_and_move() {
    let mut world = World::new();
    world.element(128, 1 << 20, 64);
    let (_, grant) = world.owner("MR-1", 5, 128);
    let (_, without) = world.owner("MR-1", 5, 0);
    assert!(without.memory.is_none() && without.epoch > grant.epoch);
    assert!(world.owner("MR-2", 6, 128).1.memory.is_some(), "it is free for others");

    let mut world = World::new();
    world.element(128, 1 << 20, 64);
    let (_, grant) = world.owner("MR-1", 5, 128);
    let moved = RegisterApplicationRequest { data_address: "10.9.9.9:9".into(), ..application("MR-1", 5, 128) };
    let call = world.register(moved);
    world.deliver_all();
    assert_eq!(world.grants(call), std::slice::from_ref(&grant), "its address is no part of the grant");
    assert_eq!(world.elements[0].endpoints[&grant.endpoint].data_address, "10.9.9.9:9");
    let wider = RegisterApplicationRequest { width: 256, ..application("MR-1", 5, 128) };
    let call = world.register(wider);
    world.deliver_all();
    let wider = world.grants(call).pop().unwrap();
    assert_eq!(wider.memory.unwrap().width, 256);
    assert!(wider.epoch > grant.epoch);
}

#[test]
fn what_can_not_be_used_is_refused_by_name() {
    let mut world = World::new();
    let (good, held, silent) = (application("MR-1", 5, 10), HeldGrant::default(), vec![1; SILENT_MAX + 1]);
    let bad = [
        ("name", RegisterApplicationRequest { name: String::new(), ..good.clone() }),
        ("name", RegisterApplicationRequest { name: "x".repeat(256), ..good.clone() }),
        ("width", RegisterApplicationRequest { width: 0, ..good.clone() }),
        ("width", RegisterApplicationRequest { width: 1 << 16, ..good.clone() }),
        ("data_address", RegisterApplicationRequest { data_address: "localhost:1".into(), ..good.clone() }),
        ("data_address", RegisterApplicationRequest { data_address: "10.0.0.1:0".into(), ..good.clone() }),
        ("data_address", RegisterApplicationRequest { data_address: "0.0.0.0:5".into(), ..good.clone() }),
        ("service_address", RegisterApplicationRequest { service_address: "x".repeat(256), ..good.clone() }),
        ("silent", RegisterApplicationRequest { silent, ..good.clone() }),
        ("held.epoch", RegisterApplicationRequest { held: Some(HeldGrant { epoch: 1 << 31, ..held }), ..good }),
    ];
    for (expected, request) in bad {
        let call = world.register(request);
        let Some(Refusal::Invalid { field, .. }) = world.refusal(call) else { panic!("{expected}") };
        assert_eq!(field, expected);
    }
    assert_eq!(world.state.status().applications.len(), 0);
}

#[test]
fn applications_without_an_owner_make_room_for_others_and_are_back_as_what_they_were() {
    let mut world = World::new();
    let (call, first) = world.owner("first", 1, 0);
    for i in 1..APPLICATIONS_MAX as u32 {
        world.register(application(&format!("app-{i}"), 1 + i, 0));
    }
    let full = world.register(application("one more", 9, 0));
    assert!(matches!(world.refusal(full), Some(Refusal::Full { what: "application", .. })));
    world.input(Input::Ended(call));
    world.pass(TIMING.grace);
    let (call, grant) = world.owner("one more", 9, 0);
    assert_eq!(grant.gaid, APPLICATIONS_MAX as u32 + 1, "not the id of the forgotten one");
    assert!(world.state.lookup("first").is_err());

    world.input(Input::Ended(call));
    world.pass(TIMING.grace);
    let call = world.register(RegisterApplicationRequest { held: as_held(&first), ..application("first", 1, 0) });
    let again = world.grants(call).pop().unwrap();
    assert_eq!((again.gaid, again.endpoint), (first.gaid, first.endpoint));
    assert!(again.epoch > first.epoch);

    // So is who does not know what it was, as far as fencing tokens go.
    world.input(Input::Ended(call));
    world.pass(TIMING.grace);
    let (call, _) = world.owner("one more", 9, 0);
    world.input(Input::Ended(call));
    world.pass(TIMING.grace);
    world.restart_controller();
    assert!(world.owner("first", 10_000, 0).1.epoch > again.epoch);
}

#[test]
fn ids_end_before_those_that_servers_give_out() {
    let mut world = World::new();
    world.register(application("MR-1", 1, 0));
    world.state.ids.endpoint = IDS_END;
    world.state.changed.ids = true;
    let call = world.register(application("MR-2", 2, 0));
    assert!(matches!(world.refusal(call), Some(Refusal::Full { .. })));
    let endpoint = world.register_caller(1, 5, 1);
    assert!(matches!(world.endpoint(endpoint), Some(Err(Refusal::Full { .. }))));
}

#[test]
fn who_asks_again_waits_for_what_it_asked_for_last() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    world.register(application("MR-1", 5, 100));
    let until_here = world.elements[0].queue.len();
    let moved = RegisterApplicationRequest { data_address: "10.9.9.9:9".into(), ..application("MR-1", 5, 100) };
    let call = world.register(moved);
    (0..until_here).for_each(|_| assert!(world.deliver(0)));
    assert!(world.grants(call).is_empty(), "the element has its old address");
    world.deliver_all();
    assert_eq!(world.grants(call).len(), 1);
}

/// As its owner says that it is known.
fn as_held(grant: &ApplicationGrant) -> Option<HeldGrant> {
    let ApplicationGrant { gaid, epoch, endpoint, token_key, .. } = *grant;
    Some(HeldGrant { gaid, epoch, endpoint, token_key, in_software: false })
}

#[test]
fn a_controller_that_has_lost_its_store_leaves_everyone_what_they_go_by() {
    let (first, second) = ("MR-1", "MR-2");
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let grants = [world.owner(first, 5, 10).1, world.owner(second, 6, 10).1];
    let callers = grants.each_ref().map(|grant| world.caller(grant.gaid, 9, 4).endpoint);

    // Both count from the same id, and the owners are back in another order.
    for first_epoch in [1, FIRST_EPOCH, 1 << 30] {
        let mut anew = World { state: State::new(TIMING, first_epoch, 1_000), ..World::new() };
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
        assert!(other.gaid >= 1_000, "new ones are counted: {other:?}");
        // What was kept is stored as all else is.
        anew.restart_controller();
        assert!(anew.owner("MR-4", 8, 0).1.gaid > other.gaid);
    }
}

#[test]
fn ids_that_are_taken_are_not_kept() {
    let mut world = World::new();
    let (_, grant) = world.owner("MR-1", 5, 0);
    let register = |world: &mut World, name: &str, held: HeldGrant| {
        let call = world.register(RegisterApplicationRequest { held: Some(held), ..application(name, 6, 0) });
        world.grants(call).pop().unwrap()
    };
    // Somebody has it, somebody had it, and no controller gives it out.
    let other = register(&mut world, "MR-2", as_held(&grant).unwrap());
    assert!(other.gaid != grant.gaid && other.endpoint != grant.endpoint, "{other:?}");
    let (gaid, endpoint) = (IDS_END, u32::MAX);
    let other = register(&mut world, "MR-3", HeldGrant { gaid, endpoint, ..HeldGrant::default() });
    assert!(other.gaid < IDS_END && other.endpoint < IDS_END, "{other:?}");

    // What is kept ahead of the count is left out by it, also after a restart.
    let ahead = other.gaid + 2;
    let held = HeldGrant { gaid: ahead, endpoint: other.endpoint + 2, ..HeldGrant::default() };
    assert_eq!(register(&mut world, "MR-4", held).gaid, ahead);
    assert_ne!(register(&mut world, "MR-5", held).gaid, ahead, "once");
    world.restart_controller();
    let more = ["MR-6", "MR-7", "MR-8"].map(|name| world.owner(name, 6, 0).1);
    assert!(more.iter().all(|more| more.gaid != ahead && more.endpoint != held.endpoint), "{more:?}");
}

#[test]
fn who_works_in_software_under_an_epoch_gets_another() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (_, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    let asks = |world: &mut World, epoch, in_software| {
        let held = as_held(&grant).map(|held| HeldGrant { epoch, in_software, ..held });
        let call = world.register(RegisterApplicationRequest { held, ..application("MR-1", 5, 100) });
        world.deliver_all();
        world.grants(call).pop().unwrap()
    };
    assert_eq!(asks(&mut world, grant.epoch, false), grant, "it works by the element");
    assert_eq!(asks(&mut world, grant.epoch - 1, true), grant, "it has not heard of this one");
    let other = asks(&mut world, grant.epoch, true);
    assert_eq!(other, ApplicationGrant { epoch: grant.epoch + 1, ..grant.clone() });
    assert_eq!(asks(&mut world, grant.epoch, true), other, "asked for once more, given once");
    assert_eq!(world.elements[0].applications[&grant.gaid].epoch, other.epoch);
    assert_eq!(world.caller(grant.gaid, 9, 4), caller, "callers stay as they are");
    world.assert_tables_are_as_recorded();
}

#[test]
fn who_had_callers_before_it_was_known_goes_by_what_they_know() {
    let mut world = World::new();
    world.element(128, 1 << 20, 64);
    let (first, grant) = world.owner("MR-1", 5, 128);
    let held = HeldGrant { gaid: 777, endpoint: 778, epoch: 400, token_key: None, in_software: true };
    let request = RegisterApplicationRequest { held: Some(held), ..application("MR-1", 5, 128) };
    let call = world.register(request.clone());
    world.deliver_all();
    let named = world.grants(call).pop().unwrap();
    assert_eq!((named.gaid, named.endpoint, named.epoch), (777, 778, 401));
    assert_eq!(named.memory, grant.memory, "it is free again");
    assert_eq!(world.refusal(first), Some(Refusal::Replaced));
    world.input(Input::Ended(first));
    world.pass(Duration::from_secs(60));
    assert_eq!(world.state.status().applications.len(), 1);
    assert_eq!(world.caller_held(777, 9, 4, 779).endpoint, 779, "a caller keeps its id as well");
    world.assert_tables_are_as_recorded();

    // Whoever has callers that are known here goes by what they know already.
    let other = HeldGrant { gaid: 888, ..held };
    let call = world.register(RegisterApplicationRequest { held: Some(other), ..request });
    world.deliver_all();
    assert_eq!(world.grants(call).pop().unwrap().gaid, 777);
}

#[test]
fn epochs_grow_from_owner_to_owner_whatever_ids_they_go_by() {
    for epoch in [1, 400] {
        let mut world = World::new();
        let (call, first) = world.owner("MR-1", 5, 0);
        world.input(Input::Ended(call));
        world.pass(Duration::from_secs(60));
        // The next one had its first caller while it could not reach the controller.
        let held = HeldGrant { gaid: 777, endpoint: 778, epoch, ..HeldGrant::default() };
        let request = RegisterApplicationRequest { held: Some(held), ..application("MR-1", 6, 0) };
        let [taken, named] = [(); 2].map(|()| {
            let call = world.register(request.clone());
            world.grants(call).pop().unwrap()
        });
        assert_eq!((taken.gaid, named.gaid), (first.gaid, 777));
        assert!(first.epoch.max(epoch) < taken.epoch && taken.epoch < named.epoch, "{taken:?}, {named:?}");
    }
}

#[test]
fn frames_stay_signed_as_callers_know() {
    let mut world = World::new();
    world.input(Input::Key(TokenKey { k0: 1, k1: 2 }));
    let held =
        HeldGrant { gaid: 7, epoch: 3, endpoint: 8, token_key: Some(TokenKey { k0: 3, k1: 4 }), in_software: false };
    let request = RegisterApplicationRequest { authenticate: true, held: Some(held), ..application("MR-1", 5, 0) };
    let call = world.register(request);
    assert_eq!(world.grants(call).pop().unwrap().token_key, held.token_key);
}
