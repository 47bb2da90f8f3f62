//! Tests of elements in and out of service, restarted and silent, and of restarts of the controller.

use super::*;

#[test]
fn element_restart_starts_new_epoch() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (call, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    net.restart_element(0);
    let registered = net.register_element(0);
    net.deliver_all();
    let grants = net.grants(call);
    let last = grants.last().unwrap();
    assert!(grants.windows(2).all(|pair| pair[0].epoch < pair[1].epoch), "{grants:?}");
    assert!(last.memory.is_some() && last.epoch > grant.epoch);
    assert_eq!(net.element_grant(registered).unwrap().element, 1, "the element keeps its id");
    // The caller keeps its id, and gets a new lease of slots when its owner requests it.
    let now = net.caller(grant.gaid, 9, 4);
    assert_eq!((now.endpoint, now.flows), (caller.endpoint, 4));
    net.assert_tables_are_as_recorded();
}

/// Registration of the owner of MR-1, which reports these starts of elements as silent.
fn unanswered_by(silent: &[u64]) -> RegisterApplicationRequest {
    RegisterApplicationRequest { silent_elements: silent.into(), ..application("MR-1", 5, 100) }
}

#[test]
fn silent_element_is_used_again_after_restart() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (call, grant) = net.owner("MR-1", 5, 100);
    let memory = grant.memory.unwrap();
    assert_eq!(memory.boot_id, net.elements[0].request.boot_id);
    net.input(Input::Ended(call));
    let call = net.register(unanswered_by(&[memory.boot_id]));
    net.deliver_all();
    let without = net.grants(call).pop().unwrap();
    assert!(without.memory.is_none() && without.epoch > grant.epoch);
    assert!(net.elements[0].applications.is_empty(), "the memory is free");

    // The same start of the element serves other applications only.
    net.register_element(0);
    net.deliver_all();
    assert_eq!(net.grants(call), std::slice::from_ref(&without));
    let (_, other) = net.owner("MR-2", 6, 100);
    assert!(other.memory.is_some());

    // Another start is offered without a request.
    net.restart_element(0);
    net.register_element(0);
    net.deliver_all();
    let with = net.grants(call).pop().unwrap();
    assert!(with.epoch > without.epoch);
    assert_eq!(with.memory.unwrap().boot_id, net.elements[0].request.boot_id);
    net.assert_tables_are_as_recorded();
}

#[test]
fn owner_of_silent_element_gets_another_one() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (_, grant) = net.owner("MR-1", 5, 100);
    net.element(512, 1 << 19, 64);
    let first = grant.memory.unwrap();
    let call = net.register(unanswered_by(&[first.boot_id]));
    net.deliver_all();
    let second = net.grants(call).pop().unwrap().memory.unwrap();
    assert_eq!(second.element, 2);
    let call = net.register(unanswered_by(&[first.boot_id, second.boot_id]));
    net.deliver_all();
    assert_eq!(net.grants(call).pop().unwrap().memory, None);
    let call = net.register(unanswered_by(&[]));
    net.deliver_all();
    assert_eq!(net.grants(call).pop().unwrap().memory.unwrap().element, 1);
    net.assert_tables_are_as_recorded();
}

#[test]
fn restart_noticed_by_push_starts_new_epoch() {
    let mut net = TestNetwork::new();
    let first = net.add_element(1024, 1 << 20, 64);
    let stream = net.register_element(first);
    net.deliver_all();
    let (call, grant) = net.owner("MR-1", 5, 100);
    net.restart_element(0);
    let endpoint = net.register_caller(grant.gaid, 9, 4);
    net.deliver_all();
    assert_eq!(net.endpoint(endpoint).unwrap().unwrap().flows, 0);
    let last = net.grants(call).pop().unwrap();
    assert!(last.memory.is_none() && last.epoch > grant.epoch);
    assert!(
        matches!(net.refusal(stream), Some(RegistrationRefusal::OutOfService { .. })),
        "the element must register again"
    );
}

#[test]
fn reconnecting_element_keeps_epochs() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (call, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    let (applications, endpoints) = (net.elements[0].applications.clone(), net.elements[0].endpoints.clone());
    let stream = net.register_element(0);
    net.deliver_all();
    assert!(net.element_grant(stream).is_some());
    assert_eq!(net.grants(call), std::slice::from_ref(&grant), "no new grant");
    assert_eq!(net.caller(grant.gaid, 9, 4), caller);
    assert_eq!((&net.elements[0].applications, &net.elements[0].endpoints), (&applications, &endpoints));
}

#[test]
fn element_leaves_service_after_grace_period() {
    let mut net = TestNetwork::new();
    let index = net.add_element(1024, 1 << 20, 64);
    let stream = net.register_element(index);
    net.deliver_all();
    let (call, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    net.input(Input::Ended(stream));
    net.pass(TIMING.grace - Duration::from_nanos(1));
    assert_eq!(net.grants(call).len(), 1);
    net.pass(Duration::from_nanos(1));
    let last = net.grants(call).pop().unwrap();
    assert!(last.memory.is_none() && last.epoch > grant.epoch);
    assert!(!net.state.status().elements[0].alive);
    assert_eq!(net.state.status().elements[0].rows_used, 0);

    // Its tables still have all entries, which are removed before the registers are granted again.
    net.register_element(index);
    net.deliver_all();
    let back = net.grants(call).pop().unwrap();
    assert!(back.memory.is_some() && back.epoch > last.epoch);
    assert!(!net.elements[0].endpoints.contains_key(&caller.endpoint));
    net.assert_tables_are_as_recorded();
}

#[test]
fn silent_element_does_not_delay_owner() {
    let mut net = TestNetwork::new();
    let index = net.add_element(1024, 1 << 20, 64);
    let stream = net.register_element(index);
    net.deliver_all();
    net.elements[0].mute = true;
    let call = net.register(application("MR-1", 5, 100));
    net.pass(Duration::from_millis(600));
    let second = net.register(application("MR-2", 6, 100));
    assert!(net.grants(call).is_empty() && net.grants(second).is_empty());
    net.pass(Duration::from_millis(400));
    assert_eq!(net.grants(call).pop().unwrap().memory, None);
    assert_eq!(net.grants(second).pop().unwrap().memory, None);
    assert!(matches!(net.refusal(stream), Some(RegistrationRefusal::OutOfService { .. })));
    // It registers again and is still silent: its memory is not granted.
    let again = net.register_element(index);
    net.pass(Duration::from_secs(1));
    assert!(net.refusal(again).is_some());
    assert_eq!(net.grants(call).len(), 1);
    net.elements[0].mute = false;
    net.register_element(index);
    net.deliver_all();
    assert!(net.grants(call).pop().unwrap().memory.is_some());
    net.assert_tables_are_as_recorded();
}

#[test]
fn slow_element_is_removed_when_caller_waits_too_long() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (_, grant) = net.owner("MR-1", 5, 100);
    let call = net.register_caller(grant.gaid, 9, 4);
    for incarnation in 10..20 {
        // One change is confirmed, and new ones follow: progress, but not for the first caller.
        net.pass(Duration::from_millis(300));
        net.register_caller(grant.gaid, incarnation, 4);
        if incarnation == 10 {
            net.deliver(0);
        }
        if net.endpoint(call).is_some() {
            break;
        }
    }
    assert_eq!(net.endpoint(call).unwrap().unwrap().flows, 0);
    assert_eq!(net.now, Instant::default() + Duration::from_millis(1200));
}

#[test]
fn refused_application_works_without_element() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (call, grant) = net.owner("MR-1", 5, 100);
    net.elements[0].refuses = Some(2);
    let (second, refused) = net.owner("MR-2", 6, 100);
    assert_eq!((refused.gaid, refused.memory), (2, None));
    net.elements[0].refuses = None;
    net.register_element(0);
    net.deliver_all();
    assert_eq!((net.grants(call).len(), net.grants(second).len()), (1, 1), "the memory is not offered again");
    assert!(net.grants(call)[0] == grant);
    net.assert_tables_are_as_recorded();
}

#[test]
fn entries_of_lost_store_are_removed() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    net.owner("MR-1", 5, 100);
    net.owner("MR-2", 6, 100);
    let elements = std::mem::take(&mut net.elements);
    let mut net = TestNetwork { elements, ..TestNetwork::new() };
    let call = net.register(application("MR-3", 7, 200));
    net.register_element(0);
    net.deliver_all();
    assert!(net.grants(call).pop().unwrap().memory.is_some());
    assert_eq!(net.elements[0].applications.keys().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn restarted_controller_restores_everything() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (_, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    net.restart_controller();
    net.deliver_all();
    net.assert_tables_are_as_recorded();
    net.pass(Duration::from_secs(4));
    let other = net.register(application("MR-1", 6, 100));
    assert!(
        matches!(net.refusal(other), Some(RegistrationRefusal::LeaseExpiring { .. })),
        "the owner may still return"
    );
    assert_eq!(net.owner("MR-1", 5, 100).1, grant);
    let stream = net.register_element(0);
    net.deliver_all();
    assert_eq!(net.element_grant(stream).unwrap().element, 1);
    assert_eq!(net.caller(grant.gaid, 9, 4), caller);
    net.pass(Duration::from_secs(60));
    assert_eq!(net.owner("MR-1", 5, 100).1, grant);
    let (_, next) = net.owner("MR-2", 6, 100);
    assert_eq!((next.gaid, next.epoch), (grant.gaid + 1, FIRST_EPOCH));
    assert!(next.endpoint > caller.endpoint);
}

#[test]
fn missing_peer_is_removed_after_restart_grace() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    net.owner("MR-1", 5, 100);
    net.restart_controller();
    net.deliver_all();
    net.register_element(0);
    net.deliver_all();
    net.pass(TIMING.restart_grace);
    assert!(!net.state.lookup("MR-1").unwrap().alive);
    net.deliver_all();
    assert!(net.elements[0].applications.is_empty());
}

#[test]
fn element_restart_during_controller_downtime_is_noticed() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (_, grant) = net.owner("MR-1", 5, 100);
    net.restart_element(0);
    net.restart_controller();
    net.deliver_all();
    let (call, again) = net.owner("MR-1", 5, 100);
    assert!(again.epoch > grant.epoch);
    net.register_element(0);
    net.deliver_all();
    let last = net.grants(call).pop().unwrap();
    assert!(last.memory.is_some() && last.epoch > again.epoch);
}

#[test]
fn contradictory_records_are_refused() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (_, grant) = net.owner("MR-1", 5, 100);
    net.owner("MR-2", 6, 100);
    net.caller(grant.gaid, 9, 4);
    let good = net.state.snapshot();
    let broken: [fn(&mut Snapshot); 8] = [
        |s| s.ids = None,
        |s| s.elements.clear(),
        |s| s.applications[1].memory = s.applications[0].memory,
        |s| s.applications[1].name = "MR-1".into(),
        |s| s.applications[1].gaid = IDS_END,
        |s| s.endpoints[0].endpoint = 0,
        |s| s.endpoints[0].gaid = 99,
        |s| s.endpoints[0].slots = 65,
    ];
    for (i, break_it) in broken.into_iter().enumerate() {
        let mut snapshot = good.clone();
        break_it(&mut snapshot);
        assert!(ControllerState::restore(TIMING, snapshot, net.now).is_err(), "{i}");
    }
    assert!(ControllerState::restore(TIMING, good, net.now).is_ok());
}

#[test]
fn boot_id_and_sizes_identify_element_start() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (call, grant) = net.owner("MR-1", 5, 100);
    net.elements[0].request.rows = 512;
    net.register_element(0);
    net.deliver_all();
    assert!(net.grants(call).pop().unwrap().epoch > grant.epoch);
    assert_eq!(net.state.status().elements.len(), 1);
    net.assert_tables_are_as_recorded();
    for address in ["", "10.0.0.1:7701", "http://10.0.0.1", "ftp://10.0.0.1:7701"] {
        let request = RegisterElementRequest { control_address: address.into(), ..net.elements[0].request.clone() };
        let call = net.call();
        net.input(Input::RegisterElement(call, request));
        assert!(
            matches!(net.refusal(call), Some(RegistrationRefusal::Invalid { field: "control_address", .. })),
            "{address}"
        );
    }
}

#[test]
fn element_out_of_service_makes_room() {
    let mut net = TestNetwork::new();
    for _ in 0..ELEMENTS_MAX {
        net.element(16, 1 << 10, 4);
    }
    let index = net.add_element(16, 1 << 10, 4);
    let full = net.register_element(index);
    assert!(matches!(net.refusal(full), Some(RegistrationRefusal::Full { what: "element", .. })));
    net.elements[3].mute = true;
    net.register_element(3);
    net.pass(TIMING.confirm);
    net.register_element(index);
    net.deliver_all();
    let ids: Vec<_> = net.state.status().elements.iter().map(|element| element.element).collect();
    assert!(!ids.contains(&4) && ids.contains(&(ELEMENTS_MAX as u32 + 1)));
}

#[test]
fn overloaded_element_is_removed() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (call, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    net.elements[0].mute = true;
    net.register_caller(grant.gaid, 10, 4);
    let element = net.state.elements.get_mut(&1).unwrap();
    let filler =
        (0..PUSHES_MAX as u64).map(|i| (element.pushed + i, super::super::push::PushSubject::UnknownApplications));
    element.unconfirmed.extend(filler);
    net.release(grant.gaid, caller.endpoint).unwrap();
    assert_eq!(net.grants(call).pop().unwrap().memory, None);
}

/// Found by random histories: the element still had the wider entry of the second application when the first one was
/// installed in a part of its freed range.
#[test]
fn restarted_controller_removes_old_entries_first() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    net.owner("first", 5, 0);
    let wide = RegisterApplicationRequest { width: 64, ..application("second", 6, 5) };
    net.register(wide);
    net.deliver_all();
    net.register(application("second", 6, 5));
    net.register(application("first", 5, 5));
    net.restart_controller();
    net.deliver_all();
    assert_eq!(net.elements[0].applications[&1].lane_base, 5 * 32);
    net.assert_tables_are_as_recorded();
}

#[test]
fn removal_ends_with_its_last_confirmation() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    net.owner("first", 5, 0);
    let (_, grant) = net.owner("second", 6, 5);
    let caller = net.caller(grant.gaid, 9, 4);
    // The application is removed, installed again, and removed again …
    net.register(application("second", 6, 0));
    net.register(application("second", 6, 5));
    net.register_caller(grant.gaid, 9, 4);
    let until_here = net.elements[0].queue.len();
    net.register(application("second", 6, 0));
    // … and its registers go to another application, but the element gets only the first half of the changes.
    net.register(application("first", 5, 5));
    net.register(application("second", 6, 5));
    (0..until_here).for_each(|_| assert!(net.deliver(0)));
    assert!(net.elements[0].endpoints.contains_key(&caller.endpoint));
    net.restart_controller();
    net.deliver_all();
    assert_eq!(net.elements[0].applications[&1].row_base, 0);
    net.assert_tables_are_as_recorded();
}

#[test]
fn twice_removed_application_is_stale_until_last_confirmation() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (_, grant) = net.owner("MR-1", 5, 100);
    // Its memory is released, reserved again and released, while the element confirms nothing.
    for rows in [0, 100, 0] {
        net.register(application("MR-1", 5, rows));
    }
    let stale = |net: &TestNetwork| net.state.snapshot().elements[0].stale_applications.clone();
    while net.elements[0].queue.len() > 1 {
        assert!(net.deliver(0));
        assert_eq!(stale(&net), [grant.gaid], "the element may have the entry again: {:?}", net.elements[0].queue);
    }
    assert!(net.deliver(0));
    assert_eq!(stale(&net), [0; 0]);
    net.assert_tables_are_as_recorded();
}
