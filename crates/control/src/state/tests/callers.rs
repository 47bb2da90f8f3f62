//! Tests of callers and their slots.

use super::*;

#[test]
fn caller_is_answered_after_element_confirms() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 10);
    let (_, grant) = net.owner("MR-1", 5, 100);
    let call = net.register_caller(grant.gaid, 9, 4);
    assert_eq!(net.endpoint(call), None);
    net.deliver_all();
    let first = net.endpoint(call).unwrap().unwrap();
    assert_eq!((first.slot_base, first.flows), (0, 4));
    let entry = &net.elements[0].endpoints[&first.endpoint];
    assert_eq!((entry.incarnation, entry.slots, entry.data_address.as_str()), (9, 4, "10.1.0.1:10"));

    let second = net.caller(grant.gaid, 10, 4);
    assert_eq!((second.slot_base, second.flows), (4, 4));
    let third = net.caller(grant.gaid, 11, 4);
    assert_eq!((third.slot_base, third.flows), (8, 2), "the remaining slots");
    let fourth = net.caller(grant.gaid, 12, 4);
    assert_eq!(fourth.flows, 0);
    assert_eq!(net.elements[0].groups[&grant.gaid], [first.endpoint, second.endpoint, third.endpoint]);
    net.assert_tables_are_as_recorded();

    net.release(grant.gaid, second.endpoint).unwrap();
    net.release(grant.gaid, second.endpoint).unwrap();
    net.deliver_all();
    net.pass(FRAME_LIFE_MAX);
    let again = net.caller(grant.gaid, 12, 4);
    assert_eq!((again.endpoint, again.slot_base, again.flows), (fourth.endpoint, 4, 4), "the caller gets slots");
    net.assert_tables_are_as_recorded();
}

#[test]
fn same_caller_gets_same_endpoint() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 10);
    let (_, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    assert_eq!(net.caller(grant.gaid, 9, 2), caller);
    assert_ne!(net.caller(grant.gaid, 10, 2).endpoint, caller.endpoint);
    net.release(grant.gaid, caller.endpoint).unwrap();
    assert_ne!(net.caller(grant.gaid, 9, 4).endpoint, caller.endpoint);
}

#[test]
fn flows_of_caller_are_limited() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, u32::MAX);
    let (_, grant) = net.owner("MR-1", 5, 100);
    assert_eq!(net.caller(grant.gaid, 9, u32::MAX).flows, FLOWS_MAX);
    assert_eq!(net.caller(grant.gaid, 10, 0).flows, 0);
}

#[test]
fn caller_without_element_gets_id_only() {
    let mut net = TestNetwork::new();
    let (_, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    assert_eq!((caller.slot_base, caller.flows), (0, 0));
    net.element(1024, 1 << 20, 10);
    let now = net.caller(grant.gaid, 9, 4);
    assert_eq!((now.endpoint, now.flows), (caller.endpoint, 4));
    net.assert_tables_are_as_recorded();
}

#[test]
fn caller_of_unknown_application_is_refused() {
    let mut net = TestNetwork::new();
    let (owner, grant) = net.owner("MR-1", 5, 100);
    let (_, other) = net.owner("MR-2", 6, 100);
    let call = net.register_caller(99, 9, 4);
    assert_eq!(net.endpoint(call), Some(Err(RegistrationRefusal::UnknownApplication("99".into()))));
    let caller = net.caller(grant.gaid, 9, 4);
    assert!(net.release(other.gaid, caller.endpoint).is_err(), "another application");
    net.release(other.gaid, 12_345).unwrap();
    net.input(Input::Ended(owner));
    net.pass(TIMING.grace);
    let call = net.register_caller(grant.gaid, 9, 4);
    assert!(matches!(net.endpoint(call), Some(Err(RegistrationRefusal::NoOwner { .. }))));
    let call = net.call();
    let nowhere = RegisterEndpointRequest { gaid: other.gaid, data_address: "here".into(), ..Default::default() };
    net.input(Input::RegisterEndpoint(call, nowhere));
    assert!(matches!(net.endpoint(call), Some(Err(RegistrationRefusal::Invalid { field: "data_address", .. }))));
}

#[test]
fn caller_leaving_before_confirmation_is_answered() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 10);
    let (_, grant) = net.owner("MR-1", 5, 100);
    let call = net.register_caller(grant.gaid, 9, 4);
    let endpoint = net.state.snapshot().endpoints[0].endpoint;
    net.release(grant.gaid, endpoint).unwrap();
    net.deliver_all();
    let unknown = RegistrationRefusal::UnknownEndpoint { gaid: grant.gaid, endpoint };
    assert_eq!(net.endpoint(call), Some(Err(unknown)));
    net.assert_tables_are_as_recorded();
}

#[test]
fn callers_of_application_are_limited() {
    let mut net = TestNetwork::new();
    let (_, grant) = net.owner("MR-1", 5, 0);
    // Fills the table directly, since millions of registrations would be slow.
    let application = net.state.applications.get_mut(&grant.gaid).unwrap();
    application.callers.extend((0..CALLERS_MAX as u32).map(|i| ((i, "10.3.0.1:1".to_owned()), 1_000_000 + i)));
    let call = net.register_caller(grant.gaid, 1_000_000, 4);
    assert!(matches!(net.endpoint(call), Some(Err(RegistrationRefusal::Full { what: "caller", .. }))));
}

#[test]
fn unreachable_caller_does_not_use_element() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 10);
    let (_, grant) = net.owner("MR-1", 5, 100);
    // An address of another family, and the element's own address, which would make a forwarding loop.
    for (incarnation, address) in [(9, "[fd00::1]:9"), (10, "10.0.0.0:7702")] {
        let call = net.call();
        let data_address = address.to_owned();
        let request =
            RegisterEndpointRequest { gaid: grant.gaid, incarnation, data_address, flows: 4, ..Default::default() };
        net.input(Input::RegisterEndpoint(call, request));
        net.deliver_all();
        let caller = net.endpoint(call).unwrap().unwrap();
        assert_eq!(caller.flows, 0, "{address}");
        assert!(!net.elements[0].endpoints.contains_key(&caller.endpoint), "{address}");
    }
    assert_eq!(net.caller(grant.gaid, 11, 4).flows, 4, "other callers are not affected");
    net.assert_tables_are_as_recorded();
}
