//! Tests of the quarantine of slots.

use super::*;

const SHORT_PAUSE: Duration = Duration::from_nanos(1);

/// An element with ten slots, an application, and a caller that holds the first four.
fn net() -> (TestNetwork, ControlCallId, ApplicationGrant, EndpointGrant) {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 10);
    let (call, grant) = net.owner("MR-1", 5, 100);
    let caller = net.caller(grant.gaid, 9, 4);
    assert_eq!((caller.slot_base, caller.flows), (0, 4));
    (net, call, grant, caller)
}

impl TestNetwork {
    /// Releases the caller, and delivers the change to the element.
    fn leaves(&mut self, gaid: u32, endpoint: u32) {
        self.release(gaid, endpoint).unwrap();
        self.deliver_all();
    }

    fn slots_used(&self) -> u32 {
        self.state.status().elements[0].slots_used
    }
}

/// If the next caller got the slot of a caller that has left, frames of the latter could still arrive: `once` in the
/// switch program shows the effect on a frame.
#[test]
fn released_slots_are_quarantined() {
    let (mut net, _, grant, first) = net();
    net.leaves(grant.gaid, first.endpoint);
    let next = net.caller(grant.gaid, 10, 4);
    assert_eq!((next.slot_base, next.flows), (4, 4), "others");
    assert_eq!(net.caller(grant.gaid, 11, 4).flows, 2, "the remaining slots; the first four are in quarantine");
    assert_eq!(net.slots_used(), 10);

    net.pass(FRAME_LIFE_MAX - SHORT_PAUSE);
    assert_eq!(net.caller(grant.gaid, 12, 4).flows, 0, "still");
    net.pass(SHORT_PAUSE);
    net.input(Input::Tick);
    assert_eq!(net.slots_used(), 6);
    assert_eq!(net.caller(grant.gaid, 13, 4).slot_base, 0, "free again");
    assert!(net.state.snapshot().elements[0].quarantined.is_empty());
}

#[test]
fn controller_restart_restarts_quarantine() {
    let (mut net, _, grant, first) = net();
    net.leaves(grant.gaid, first.endpoint);
    net.pass(FRAME_LIFE_MAX / 2);
    net.restart_controller();
    net.register_element(0);
    net.register(application("MR-1", 5, 100));
    net.deliver_all();
    assert_eq!(net.caller(grant.gaid, 10, 10).flows, 6, "the first four are in quarantine");
    net.pass(FRAME_LIFE_MAX - SHORT_PAUSE);
    assert_eq!(net.slots_used(), 10);
    net.pass(SHORT_PAUSE);
    net.input(Input::Tick);
    assert_eq!(net.slots_used(), 6);
}

#[test]
fn new_epoch_needs_no_quarantine() {
    let (mut net, _, grant, first) = net();
    net.leaves(grant.gaid, first.endpoint);
    net.restart_element(0);
    net.register_element(0);
    net.deliver_all();
    assert_eq!(net.slots_used(), 0, "its filter is empty");
    assert_eq!(net.caller(grant.gaid, 10, 10).flows, 10);

    // Withdrawn memory ends the quarantine of its slots.
    let (mut net, call, ..) = network_with_second_application();
    net.input(Input::Ended(call));
    net.pass(TIMING.grace);
    net.deliver_all();
    assert_eq!(net.slots_used(), 0);
}

fn network_with_second_application() -> (TestNetwork, ControlCallId, ApplicationGrant) {
    let (mut net, call, grant, _) = net();
    net.caller(grant.gaid, 10, 4);
    (net, call, grant)
}

#[test]
fn overlapping_quarantined_slots_are_refused() {
    let (mut net, _, grant, first) = net();
    net.leaves(grant.gaid, first.endpoint);
    let mut snapshot = net.state.snapshot();
    snapshot.elements[0].quarantined.push(SlotRangeRecord { base: 2, slots: 4 });
    assert!(ControllerState::restore(TIMING, snapshot, net.now).is_err());
}
