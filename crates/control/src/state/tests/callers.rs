//! Callers and their slots.

use super::*;

#[test]
fn a_caller_gets_slots_and_is_known_to_the_element_before_it_is_told() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 10);
    let (_, grant) = world.owner("MR-1", 5, 100);
    let call = world.register_caller(grant.gaid, 9, 4);
    assert_eq!(world.endpoint(call), None);
    world.deliver_all();
    let first = world.endpoint(call).unwrap().unwrap();
    assert_eq!((first.slot_base, first.flows), (0, 4));
    let entry = &world.elements[0].endpoints[&first.endpoint];
    assert_eq!((entry.incarnation, entry.slots, entry.data_address.as_str()), (9, 4, "10.1.0.1:10"));

    let second = world.caller(grant.gaid, 10, 4);
    assert_eq!((second.slot_base, second.flows), (4, 4));
    let third = world.caller(grant.gaid, 11, 4);
    assert_eq!((third.slot_base, third.flows), (8, 2), "as many as are left");
    let fourth = world.caller(grant.gaid, 12, 4);
    assert_eq!(fourth.flows, 0);
    assert_eq!(world.elements[0].groups[&grant.gaid], [first.endpoint, second.endpoint, third.endpoint]);
    world.assert_tables_are_as_recorded();

    world.release(grant.gaid, second.endpoint).unwrap();
    world.release(grant.gaid, second.endpoint).unwrap();
    world.deliver_all();
    world.pass(FRAME_LIFE_MAX);
    let again = world.caller(grant.gaid, 12, 4);
    assert_eq!((again.endpoint, again.slot_base, again.flows), (fourth.endpoint, 4, 4), "it has slots now");
    world.assert_tables_are_as_recorded();
}

#[test]
fn the_same_caller_is_the_same_endpoint() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 10);
    let (_, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    assert_eq!(world.caller(grant.gaid, 9, 2), caller);
    assert_ne!(world.caller(grant.gaid, 10, 2).endpoint, caller.endpoint);
    world.release(grant.gaid, caller.endpoint).unwrap();
    assert_ne!(world.caller(grant.gaid, 9, 4).endpoint, caller.endpoint);
}

#[test]
fn nobody_has_more_than_the_most_flows() {
    let mut world = World::new();
    world.element(1024, 1 << 20, u32::MAX);
    let (_, grant) = world.owner("MR-1", 5, 100);
    assert_eq!(world.caller(grant.gaid, 9, u32::MAX).flows, FLOWS_MAX);
    assert_eq!(world.caller(grant.gaid, 10, 0).flows, 0);
}

#[test]
fn callers_without_an_element_have_an_id_only() {
    let mut world = World::new();
    let (_, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    assert_eq!((caller.slot_base, caller.flows), (0, 0));
    world.element(1024, 1 << 20, 10);
    let now = world.caller(grant.gaid, 9, 4);
    assert_eq!((now.endpoint, now.flows), (caller.endpoint, 4));
    world.assert_tables_are_as_recorded();
}

#[test]
fn callers_of_nobody_are_refused() {
    let mut world = World::new();
    let (owner, grant) = world.owner("MR-1", 5, 100);
    let (_, other) = world.owner("MR-2", 6, 100);
    let call = world.register_caller(99, 9, 4);
    assert_eq!(world.endpoint(call), Some(Err(Refusal::UnknownApplication("99".into()))));
    let caller = world.caller(grant.gaid, 9, 4);
    assert!(world.release(other.gaid, caller.endpoint).is_err(), "not its application");
    world.release(other.gaid, 12_345).unwrap();
    world.input(Input::Ended(owner));
    world.pass(TIMING.grace);
    let call = world.register_caller(grant.gaid, 9, 4);
    assert!(matches!(world.endpoint(call), Some(Err(Refusal::NoOwner { .. }))));
    let call = world.call();
    let nowhere = RegisterEndpointRequest { gaid: other.gaid, data_address: "here".into(), ..Default::default() };
    world.input(Input::RegisterEndpoint(call, nowhere));
    assert!(matches!(world.endpoint(call), Some(Err(Refusal::Invalid { field: "data_address", .. }))));
}

#[test]
fn a_caller_that_leaves_before_the_element_confirms_is_told_so() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 10);
    let (_, grant) = world.owner("MR-1", 5, 100);
    let call = world.register_caller(grant.gaid, 9, 4);
    let endpoint = world.state.snapshot().endpoints[0].endpoint;
    world.release(grant.gaid, endpoint).unwrap();
    world.deliver_all();
    let unknown = Refusal::UnknownEndpoint { gaid: grant.gaid, endpoint };
    assert_eq!(world.endpoint(call), Some(Err(unknown)));
    world.assert_tables_are_as_recorded();
}

#[test]
fn an_application_has_a_bounded_number_of_callers() {
    let mut world = World::new();
    let (_, grant) = world.owner("MR-1", 5, 0);
    // The table is filled directly: a hundred million comparisons of snapshots would be slow.
    let application = world.state.applications.get_mut(&grant.gaid).unwrap();
    application.callers.extend((0..CALLERS_MAX as u32).map(|i| ((i, "10.3.0.1:1".to_owned()), 1_000_000 + i)));
    let call = world.register_caller(grant.gaid, 1_000_000, 4);
    assert!(matches!(world.endpoint(call), Some(Err(Refusal::Full { what: "caller", .. }))));
}

#[test]
fn a_caller_that_its_element_can_not_send_to_works_past_it() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 10);
    let (_, grant) = world.owner("MR-1", 5, 100);
    // Another family, and the element itself: its own frames would come back to it for ever.
    for (incarnation, address) in [(9, "[fd00::1]:9"), (10, "10.0.0.0:7702")] {
        let call = world.call();
        let data_address = address.to_owned();
        let request =
            RegisterEndpointRequest { gaid: grant.gaid, incarnation, data_address, flows: 4, ..Default::default() };
        world.input(Input::RegisterEndpoint(call, request));
        world.deliver_all();
        let caller = world.endpoint(call).unwrap().unwrap();
        assert_eq!(caller.flows, 0, "{address}");
        assert!(!world.elements[0].endpoints.contains_key(&caller.endpoint), "{address}");
    }
    assert_eq!(world.caller(grant.gaid, 11, 4).flows, 4, "others are not concerned");
    world.assert_tables_are_as_recorded();
}
