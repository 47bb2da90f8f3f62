//! Tests of requests whose transfer takes longer than their call's timeout.

use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, CallOutcome};
use pathcall_endpoint::delegate::worker::DelegateWorkerStats;
use pathcall_endpoint::delegate::{ContextId, PeerNode};
use pathcall_wire::delegate::DelegateMessage;

use super::network::{MS, Net, address};

const OPTIONS: CallOptions = CallOptions::new().ping_period(MS.saturating_mul(10)).timeout(MS.saturating_mul(50));

/// A call of node 0 that node 1 has delegated to node 2, and the message to node 2, which is in flight.
fn delegated(net: &mut Net, chained: bool) -> (ContextId, (SocketAddr, PeerNode, Bytes)) {
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, OPTIONS).expect("below the limit");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    });
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.at(1, |node, now, out| {
        node.worker.delegate(now, work.execution, address(2), vec![7; 100_000].into(), out).expect("in progress");
        if !chained {
            node.worker.reply(now, work.execution, Bytes::new(), out).expect("in progress");
        }
        node.worker.finish(now, work.execution, out).expect("in progress");
    });
    let long = net.in_flight.iter().position(|(to, ..)| *to == address(2)).expect("it was sent");
    (call, net.in_flight.remove(long).expect("there"))
}

/// Advances the transfer of a message for `millis` milliseconds.
fn advance_transfer(net: &mut Net, (_, _, message): &(SocketAddr, PeerNode, Bytes), millis: u32) {
    for _ in 0..millis / 10 {
        net.at(2, |node, now, _| node.worker.arriving(now, &message[..200]));
        net.advance(MS * 10);
    }
}

#[test]
fn progressing_long_request_is_in_progress() {
    for chained in [false, true] {
        let mut net = Net::new(3);
        let (call, long) = delegated(&mut net, chained);
        advance_transfer(&mut net, &long, 1_000);
        assert_eq!(net.outcome(call), None, "chained: {chained}");
        net.in_flight.push_back(long);
        net.deliver_all(|node, _, work, now, out| drop(node.worker.finish(now, work.execution, out)));
        assert_eq!(net.outcome(call), Some(CallOutcome::Complete), "chained: {chained}");
        // The next call reports that this one has ended.
        net.advance(MS * 1_000);
        assert!(net.nodes[2].worker.is_empty());
    }
}

#[test]
fn stuck_long_request_fails_its_call_in_time() {
    let mut net = Net::new(3);
    let (call, long) = delegated(&mut net, false);
    advance_transfer(&mut net, &long, 300);
    assert_eq!(net.outcome(call), None);
    // The time of remembering is 128 ms here: a third of it counts.
    net.advance(MS * (50 + 43 + 20));
    assert!(matches!(net.outcome(call), Some(CallOutcome::Failed(CallFailure::Unconfirmed { millis: 50, .. }))));
    net.advance(MS * 34_000);
    assert!(net.nodes[2].worker.is_empty());
}

#[test]
fn late_long_request_of_aborted_call_is_not_begun() {
    let mut net = Net::new(3);
    let (call, long) = delegated(&mut net, false);
    advance_transfer(&mut net, &long, 100);
    net.at(0, |node, now, out| node.caller.abort(now, call, out));
    net.advance(MS * 30);
    assert_eq!(net.outcome(call), Some(CallOutcome::Aborted { confirmed: true }));
    // Longer than aborted calls are remembered.
    advance_transfer(&mut net, &long, 50_000);
    net.in_flight.push_back(long);
    net.deliver_all_idle();
    let DelegateWorkerStats { requests, late, .. } = net.nodes[2].worker.stats();
    assert_eq!((requests, late), (0, 1));
}

/// A call of node 0 that node 1 has answered by a sole response, which is lost; then a long message from `server` is in
/// flight for `millis` milliseconds.
fn lost_response_during_transfer(server: usize, millis: u32) -> (Net, ContextId) {
    let mut net = Net::new(3);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, OPTIONS).expect("below the limit");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    });
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.at(1, |node, now, out| {
        node.worker.reply(now, work.execution, Bytes::new(), out).expect("in progress");
        node.worker.finish(now, work.execution, out).expect("in progress");
    });
    net.lose(|message| matches!(message, DelegateMessage::Response(_)));
    for _ in 0..millis / 10 {
        net.advance(MS * 10);
        net.at(0, |node, now, _| node.caller.restart_timeouts(now, address(server)));
    }
    (net, call)
}

#[test]
fn lost_response_is_detected_during_other_transfer() {
    let (net, call) = lost_response_during_transfer(2, 1_000);
    assert!(matches!(net.outcome(call), Some(CallOutcome::Failed(CallFailure::Lost { millis: 50, .. }))));
    // If the server of the awaited response sends the long message, it may be the response.
    let (net, call) = lost_response_during_transfer(1, 1_000);
    assert_eq!(net.outcome(call), None);
}
