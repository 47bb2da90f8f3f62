//! Elements: in and out of service, restarted, silent; and restarts of the controller.

use super::*;

#[test]
fn a_restart_of_the_element_is_a_new_epoch() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (call, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    world.restart_element(0);
    let registered = world.register_element(0);
    world.deliver_all();
    let grants = world.grants(call);
    let last = grants.last().unwrap();
    assert!(grants.windows(2).all(|pair| pair[0].epoch < pair[1].epoch), "{grants:?}");
    assert!(last.memory.is_some() && last.epoch > grant.epoch);
    assert_eq!(world.element_grant(registered).unwrap().element, 1, "the element keeps its id");
    // The caller has its id; its slots are leased anew when its owner asks.
    let now = world.caller(grant.gaid, 9, 4);
    assert_eq!((now.endpoint, now.flows), (caller.endpoint, 4));
    world.assert_tables_are_as_recorded();
}

/// The owner of MR-1, to which these starts of elements do not answer.
fn unanswered_by(silent: &[u64]) -> RegisterApplicationRequest {
    RegisterApplicationRequest { silent: silent.into(), ..application("MR-1", 5, 100) }
}

#[test]
fn an_element_that_does_not_answer_an_owner_is_its_again_from_its_next_start_on() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (call, grant) = world.owner("MR-1", 5, 100);
    let memory = grant.memory.unwrap();
    assert_eq!(memory.boot_id, world.elements[0].request.boot_id);
    world.input(Input::Ended(call));
    let call = world.register(unanswered_by(&[memory.boot_id]));
    world.deliver_all();
    let without = world.grants(call).pop().unwrap();
    assert!(without.memory.is_none() && without.epoch > grant.epoch);
    assert!(world.elements[0].applications.is_empty(), "it is another's to have");

    // The same start comes back, to others.
    world.register_element(0);
    world.deliver_all();
    assert_eq!(world.grants(call), std::slice::from_ref(&without));
    let (_, other) = world.owner("MR-2", 6, 100);
    assert!(other.memory.is_some());

    // Another does, and is offered without being asked for.
    world.restart_element(0);
    world.register_element(0);
    world.deliver_all();
    let with = world.grants(call).pop().unwrap();
    assert!(with.epoch > without.epoch);
    assert_eq!(with.memory.unwrap().boot_id, world.elements[0].request.boot_id);
    world.assert_tables_are_as_recorded();
}

#[test]
fn an_owner_that_an_element_does_not_answer_is_given_another_and_may_ask_for_it_again() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (_, grant) = world.owner("MR-1", 5, 100);
    world.element(512, 1 << 19, 64);
    let first = grant.memory.unwrap();
    let call = world.register(unanswered_by(&[first.boot_id]));
    world.deliver_all();
    let second = world.grants(call).pop().unwrap().memory.unwrap();
    assert_eq!(second.element, 2);
    let call = world.register(unanswered_by(&[first.boot_id, second.boot_id]));
    world.deliver_all();
    assert_eq!(world.grants(call).pop().unwrap().memory, None);
    let call = world.register(unanswered_by(&[]));
    world.deliver_all();
    assert_eq!(world.grants(call).pop().unwrap().memory.unwrap().element, 1);
    world.assert_tables_are_as_recorded();
}

#[test]
fn a_restart_that_is_noticed_by_a_push_first_is_a_new_epoch_too() {
    let mut world = World::new();
    let first = world.add_element(1024, 1 << 20, 64);
    let stream = world.register_element(first);
    world.deliver_all();
    let (call, grant) = world.owner("MR-1", 5, 100);
    world.restart_element(0);
    let endpoint = world.register_caller(grant.gaid, 9, 4);
    world.deliver_all();
    assert_eq!(world.endpoint(endpoint).unwrap().unwrap().flows, 0);
    let last = world.grants(call).pop().unwrap();
    assert!(last.memory.is_none() && last.epoch > grant.epoch);
    assert!(matches!(world.refusal(stream), Some(Refusal::OutOfService { .. })), "so that it registers again");
}

#[test]
fn an_element_that_reconnects_keeps_its_epochs() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (call, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    let (applications, endpoints) = (world.elements[0].applications.clone(), world.elements[0].endpoints.clone());
    let stream = world.register_element(0);
    world.deliver_all();
    assert!(world.element_grant(stream).is_some());
    assert_eq!(world.grants(call), std::slice::from_ref(&grant), "nothing new to tell");
    assert_eq!(world.caller(grant.gaid, 9, 4), caller);
    assert_eq!((&world.elements[0].applications, &world.elements[0].endpoints), (&applications, &endpoints));
}

#[test]
fn the_end_of_an_elements_stream_takes_it_out_of_service_after_the_grace() {
    let mut world = World::new();
    let index = world.add_element(1024, 1 << 20, 64);
    let stream = world.register_element(index);
    world.deliver_all();
    let (call, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    world.input(Input::Ended(stream));
    world.pass(TIMING.grace - Duration::from_nanos(1));
    assert_eq!(world.grants(call).len(), 1);
    world.pass(Duration::from_nanos(1));
    let last = world.grants(call).pop().unwrap();
    assert!(last.memory.is_none() && last.epoch > grant.epoch);
    assert!(!world.state.status().elements[0].alive);
    assert_eq!(world.state.status().elements[0].rows_used, 0);

    // Its tables still have everything: that is removed before anyone gets the registers.
    world.register_element(index);
    world.deliver_all();
    let back = world.grants(call).pop().unwrap();
    assert!(back.memory.is_some() && back.epoch > last.epoch);
    assert!(!world.elements[0].endpoints.contains_key(&caller.endpoint));
    world.assert_tables_are_as_recorded();
}

#[test]
fn a_silent_element_does_not_hold_up_an_owner() {
    let mut world = World::new();
    let index = world.add_element(1024, 1 << 20, 64);
    let stream = world.register_element(index);
    world.deliver_all();
    world.elements[0].mute = true;
    let call = world.register(application("MR-1", 5, 100));
    world.pass(Duration::from_millis(600));
    let second = world.register(application("MR-2", 6, 100));
    assert!(world.grants(call).is_empty() && world.grants(second).is_empty());
    world.pass(Duration::from_millis(400));
    assert_eq!(world.grants(call).pop().unwrap().memory, None);
    assert_eq!(world.grants(second).pop().unwrap().memory, None);
    assert!(matches!(world.refusal(stream), Some(Refusal::OutOfService { .. })));
    // It registers again, as silent as before: nobody is granted anything of it.
    let again = world.register_element(index);
    world.pass(Duration::from_secs(1));
    assert!(world.refusal(again).is_some());
    assert_eq!(world.grants(call).len(), 1);
    world.elements[0].mute = false;
    world.register_element(index);
    world.deliver_all();
    assert!(world.grants(call).pop().unwrap().memory.is_some());
    world.assert_tables_are_as_recorded();
}

#[test]
fn a_slow_element_is_given_up_when_a_caller_has_waited_too_long() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (_, grant) = world.owner("MR-1", 5, 100);
    let call = world.register_caller(grant.gaid, 9, 4);
    for incarnation in 10..20 {
        // One change confirmed, others new: there is progress, but not for the first caller.
        world.pass(Duration::from_millis(300));
        world.register_caller(grant.gaid, incarnation, 4);
        if incarnation == 10 {
            world.deliver(0);
        }
        if world.endpoint(call).is_some() {
            break;
        }
    }
    assert_eq!(world.endpoint(call).unwrap().unwrap().flows, 0);
    assert_eq!(world.now, Instant::default() + Duration::from_millis(1200));
}

#[test]
fn what_an_element_refuses_works_without_it() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (call, grant) = world.owner("MR-1", 5, 100);
    world.elements[0].refuses = Some(2);
    let (second, refused) = world.owner("MR-2", 6, 100);
    assert_eq!((refused.gaid, refused.memory), (2, None));
    world.elements[0].refuses = None;
    world.register_element(0);
    world.deliver_all();
    assert_eq!((world.grants(call).len(), world.grants(second).len()), (1, 1), "and is not offered it again");
    assert!(world.grants(call)[0] == grant);
    world.assert_tables_are_as_recorded();
}

#[test]
fn what_a_lost_store_left_on_an_element_is_removed() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    world.owner("MR-1", 5, 100);
    world.owner("MR-2", 6, 100);
    let elements = std::mem::take(&mut world.elements);
    let mut world = World { elements, ..World::new() };
    let call = world.register(application("MR-3", 7, 200));
    world.register_element(0);
    world.deliver_all();
    assert!(world.grants(call).pop().unwrap().memory.is_some());
    assert_eq!(world.elements[0].applications.keys().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_restarted_controller_finds_everything() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (_, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    world.restart_controller();
    world.deliver_all();
    world.assert_tables_are_as_recorded();
    world.pass(Duration::from_secs(4));
    let other = world.register(application("MR-1", 6, 100));
    assert!(matches!(world.refusal(other), Some(Refusal::Lapsing { .. })), "the owner may still come back");
    assert_eq!(world.owner("MR-1", 5, 100).1, grant);
    let stream = world.register_element(0);
    world.deliver_all();
    assert_eq!(world.element_grant(stream).unwrap().element, 1);
    assert_eq!(world.caller(grant.gaid, 9, 4), caller);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.owner("MR-1", 5, 100).1, grant);
    let (_, next) = world.owner("MR-2", 6, 100);
    assert_eq!((next.gaid, next.epoch), (grant.gaid + 1, FIRST_EPOCH));
    assert!(next.endpoint > caller.endpoint);
}

#[test]
fn who_does_not_come_back_to_a_restarted_controller_is_given_up() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    world.owner("MR-1", 5, 100);
    world.restart_controller();
    world.deliver_all();
    world.register_element(0);
    world.deliver_all();
    world.pass(TIMING.restart_grace);
    assert!(!world.state.lookup("MR-1").unwrap().alive);
    world.deliver_all();
    assert!(world.elements[0].applications.is_empty());
}

#[test]
fn an_element_that_restarted_while_the_controller_slept_is_found_out() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (_, grant) = world.owner("MR-1", 5, 100);
    world.restart_element(0);
    world.restart_controller();
    world.deliver_all();
    let (call, again) = world.owner("MR-1", 5, 100);
    assert!(again.epoch > grant.epoch);
    world.register_element(0);
    world.deliver_all();
    let last = world.grants(call).pop().unwrap();
    assert!(last.memory.is_some() && last.epoch > again.epoch);
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (_, grant) = world.owner("MR-1", 5, 100);
    world.owner("MR-2", 6, 100);
    world.caller(grant.gaid, 9, 4);
    let good = world.state.snapshot();
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
        assert!(State::restore(TIMING, snapshot, world.now).is_err(), "{i}");
    }
    assert!(State::restore(TIMING, good, world.now).is_ok());
}

#[test]
fn an_element_is_told_apart_by_its_boot_id_and_what_it_has() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (call, grant) = world.owner("MR-1", 5, 100);
    world.elements[0].request.rows = 512;
    world.register_element(0);
    world.deliver_all();
    assert!(world.grants(call).pop().unwrap().epoch > grant.epoch);
    assert_eq!(world.state.status().elements.len(), 1);
    world.assert_tables_are_as_recorded();
    for address in ["", "10.0.0.1:7701", "http://10.0.0.1", "ftp://10.0.0.1:7701"] {
        let request = RegisterElementRequest { control_address: address.into(), ..world.elements[0].request.clone() };
        let call = world.call();
        world.input(Input::RegisterElement(call, request));
        assert!(matches!(world.refusal(call), Some(Refusal::Invalid { field: "control_address", .. })), "{address}");
    }
}

#[test]
fn elements_out_of_service_make_room_for_others() {
    let mut world = World::new();
    for _ in 0..ELEMENTS_MAX {
        world.element(16, 1 << 10, 4);
    }
    let index = world.add_element(16, 1 << 10, 4);
    let full = world.register_element(index);
    assert!(matches!(world.refusal(full), Some(Refusal::Full { what: "element", .. })));
    world.elements[3].mute = true;
    world.register_element(3);
    world.pass(TIMING.confirm);
    world.register_element(index);
    world.deliver_all();
    let ids: Vec<_> = world.state.status().elements.iter().map(|element| element.element).collect();
    assert!(!ids.contains(&4) && ids.contains(&(ELEMENTS_MAX as u32 + 1)));
}

#[test]
fn an_element_that_can_not_keep_up_is_given_up() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (call, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    world.elements[0].mute = true;
    world.register_caller(grant.gaid, 10, 4);
    let element = world.state.elements.get_mut(&1).unwrap();
    let filler = (0..PUSHES_MAX as u64).map(|i| (element.pushed + i, super::super::push::Subject::Strangers));
    element.unconfirmed.extend(filler);
    world.release(grant.gaid, caller.endpoint).unwrap();
    assert_eq!(world.grants(call).pop().unwrap().memory, None);
}

/// Found by random histories: the element still had the wider entry of the second application when
/// the first was installed in what had become free of it.
#[test]
fn older_entries_are_removed_before_a_restarted_controller_installs_anything() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    world.owner("first", 5, 0);
    let wide = RegisterApplicationRequest { width: 64, ..application("second", 6, 5) };
    world.register(wide);
    world.deliver_all();
    world.register(application("second", 6, 5));
    world.register(application("first", 5, 5));
    world.restart_controller();
    world.deliver_all();
    assert_eq!(world.elements[0].applications[&1].lane_base, 5 * 32);
    world.assert_tables_are_as_recorded();
}

#[test]
fn a_removal_is_settled_by_its_last_confirmation_only() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    world.owner("first", 5, 0);
    let (_, grant) = world.owner("second", 6, 5);
    let caller = world.caller(grant.gaid, 9, 4);
    // Everything is removed, installed again, removed again …
    world.register(application("second", 6, 0));
    world.register(application("second", 6, 5));
    world.register_caller(grant.gaid, 9, 4);
    let until_here = world.elements[0].queue.len();
    world.register(application("second", 6, 0));
    // … and its registers go to another, but the element gets to hear the first half only.
    world.register(application("first", 5, 5));
    world.register(application("second", 6, 5));
    (0..until_here).for_each(|_| assert!(world.deliver(0)));
    assert!(world.elements[0].endpoints.contains_key(&caller.endpoint));
    world.restart_controller();
    world.deliver_all();
    assert_eq!(world.elements[0].applications[&1].row_base, 0);
    world.assert_tables_are_as_recorded();
}

#[test]
fn application_that_was_removed_twice_is_stale_until_the_last_removal_is_confirmed() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (_, grant) = world.owner("MR-1", 5, 100);
    // Its memory is given back, had again and given back, while the element confirms nothing.
    for rows in [0, 100, 0] {
        world.register(application("MR-1", 5, rows));
    }
    let stale = |world: &World| world.state.snapshot().elements[0].stale_applications.clone();
    while world.elements[0].queue.len() > 1 {
        assert!(world.deliver(0));
        assert_eq!(stale(&world), [grant.gaid], "it may be there again: {:?}", world.elements[0].queue);
    }
    assert!(world.deliver(0));
    assert_eq!(stale(&world), [0; 0]);
    world.assert_tables_are_as_recorded();
}
