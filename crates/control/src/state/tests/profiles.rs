//! Tests of elements with profiles: narrow rows, and elements without map or without pools.

use pathcall_proto::v1::NoMemoryReason;

use super::*;

/// Element of a profile: frames of 32 lanes, without the other ability.
fn profiled(net: &mut TestNetwork, frame_lanes: u32, [without_map, without_pools]: [bool; 2]) -> usize {
    let index = net.add_element(1024, 1 << 16, 64);
    let request = &mut net.elements[index].request;
    (request.frame_lanes, request.without_map, request.without_pools) = (frame_lanes, without_map, without_pools);
    net.register_element(index);
    net.deliver_all();
    index
}

/// Requests rows of this width, and also accepts narrower ones.
fn wide(name: &str, incarnation: u32, width: u32, takes_narrow_rows: bool) -> RegisterApplicationRequest {
    RegisterApplicationRequest { width, takes_narrow_rows, ..application(name, incarnation, 64) }
}

#[test]
fn narrow_element_grants_narrow_rows_to_owner_that_accepts_them() {
    let mut net = TestNetwork::new();
    profiled(&mut net, 32, [false, true]);
    let granted = |net: &mut TestNetwork, request| {
        let call = net.register(request);
        net.deliver_all();
        net.grants(call).pop().expect("a grant").memory.map(|memory| memory.width)
    };
    assert_eq!(granted(&mut net, wide("narrow", 5, 256, true)), Some(32));
    assert_eq!(granted(&mut net, wide("wide", 6, 256, false)), None);
    // Keys are in two banks of 32.
    assert_eq!(granted(&mut net, wide("keys", 7, 64, false)), Some(64));
    // An owner with callers requests the agreed width, and keeps its memory.
    let epoch = net.elements[0].applications[&1].epoch;
    assert_eq!(granted(&mut net, wide("narrow", 5, 32, false)), Some(32));
    assert_eq!(net.elements[0].applications[&1].epoch, epoch);
    // A wide element comes first for others.
    net.element(1024, 1 << 20, 64);
    assert_eq!(granted(&mut net, wide("late", 8, 256, true)), Some(256));
    net.assert_tables_are_as_recorded();
}

#[test]
fn element_without_map_grants_no_memory_and_status_says_so() {
    let mut net = TestNetwork::new();
    let shown = |net: &TestNetwork| net.state.status().applications[0].no_memory_reason();
    profiled(&mut net, 32, [true, false]);
    let call = net.register(wide("MR-1", 5, 256, true));
    net.deliver_all();
    assert_eq!(net.grants(call).pop().expect("a grant").memory, None);
    assert_eq!(shown(&net), NoMemoryReason::Profile);
    // An element that serves it offers its memory.
    profiled(&mut net, 16, [false, true]);
    let memory = net.grants(call).pop().expect("a grant").memory;
    assert_eq!(memory.map(|memory| memory.width), Some(16));
    assert_eq!(shown(&net), NoMemoryReason::Unspecified);
}

#[test]
fn pool_goes_to_element_with_pools() {
    let mut net = TestNetwork::new();
    profiled(&mut net, 32, [false, true]);
    let with_pools = profiled(&mut net, 0, [true, false]);
    net.server("store", 5);
    assert!(net.elements[0].pools.is_empty() && !net.elements[with_pools].pools.is_empty());
    net.assert_tables_are_as_recorded();
}
