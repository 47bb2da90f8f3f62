//! Slots of callers that have left.

use super::*;

const MOMENT: Duration = Duration::from_nanos(1);

/// An element of ten slots, an application, and a caller of it that holds the first four.
fn world() -> (World, CallId, ApplicationGrant, EndpointGrant) {
    let mut world = World::new();
    world.element(1024, 1 << 20, 10);
    let (call, grant) = world.owner("MR-1", 5, 100);
    let caller = world.caller(grant.gaid, 9, 4);
    assert_eq!((caller.slot_base, caller.flows), (0, 4));
    (world, call, grant, caller)
}

impl World {
    /// Lets the caller go; the element hears of it.
    fn leaves(&mut self, gaid: u32, endpoint: u32) {
        self.release(gaid, endpoint).unwrap();
        self.deliver_all();
    }

    fn slots_used(&self) -> u32 {
        self.state.status().elements[0].slots_used
    }
}

/// With the slot of a caller that has left, the next one would get what is still on its way from it:
/// `once` in the switch program shows what becomes of a frame then.
#[test]
fn slots_are_not_leased_while_frames_of_their_last_holder_may_come() {
    let (mut world, _, grant, first) = world();
    world.leaves(grant.gaid, first.endpoint);
    let next = world.caller(grant.gaid, 10, 4);
    assert_eq!((next.slot_base, next.flows), (4, 4), "others");
    assert_eq!(world.caller(grant.gaid, 11, 4).flows, 2, "what is left; the first four wait");
    assert_eq!(world.slots_used(), 10);

    world.pass(FRAME_LIFE_MAX - MOMENT);
    assert_eq!(world.caller(grant.gaid, 12, 4).flows, 0, "still");
    world.pass(MOMENT);
    world.input(Input::Tick);
    assert_eq!(world.slots_used(), 6);
    assert_eq!(world.caller(grant.gaid, 13, 4).slot_base, 0, "free again");
    assert!(world.state.snapshot().elements[0].quarantined.is_empty());
}

#[test]
fn a_restarted_controller_has_them_wait_anew() {
    let (mut world, _, grant, first) = world();
    world.leaves(grant.gaid, first.endpoint);
    world.pass(FRAME_LIFE_MAX / 2);
    world.restart_controller();
    world.register_element(0);
    world.register(application("MR-1", 5, 100));
    world.deliver_all();
    assert_eq!(world.caller(grant.gaid, 10, 10).flows, 6, "the first four wait");
    world.pass(FRAME_LIFE_MAX - MOMENT);
    assert_eq!(world.slots_used(), 10);
    world.pass(MOMENT);
    world.input(Input::Tick);
    assert_eq!(world.slots_used(), 6);
}

#[test]
fn where_the_epoch_is_another_nothing_waits() {
    let (mut world, _, grant, first) = world();
    world.leaves(grant.gaid, first.endpoint);
    world.restart_element(0);
    world.register_element(0);
    world.deliver_all();
    assert_eq!(world.slots_used(), 0, "its filter is empty");
    assert_eq!(world.caller(grant.gaid, 10, 10).flows, 10);

    // Memory that is withdrawn takes the slots with it.
    let (mut world, call, ..) = world_with_a_second();
    world.input(Input::Ended(call));
    world.pass(TIMING.grace);
    world.deliver_all();
    assert_eq!(world.slots_used(), 0);
}

fn world_with_a_second() -> (World, CallId, ApplicationGrant) {
    let (mut world, call, grant, _) = world();
    world.caller(grant.gaid, 10, 4);
    (world, call, grant)
}

#[test]
fn a_store_with_quarantined_slots_of_others_is_refused() {
    let (mut world, _, grant, first) = world();
    world.leaves(grant.gaid, first.endpoint);
    let mut snapshot = world.state.snapshot();
    snapshot.elements[0].quarantined.push(SlotsRecord { base: 2, slots: 4 });
    assert!(State::restore(TIMING, snapshot, world.now).is_err());
}
