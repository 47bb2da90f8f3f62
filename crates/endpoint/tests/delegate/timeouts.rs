//! Tests of timeouts when a process falls silent or its messages are old.

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, CallOutcome};
use pathcall_endpoint::delegate::worker::{AbortReason, DelegatedRequest, WorkerEvent};
use pathcall_endpoint::delegate::{ContextId, PeerNode};
use pathcall_wire::Instant;
use pathcall_wire::delegate::{DelegateMessage, ResponseGrant, parse};

use super::network::{MS, Net, Out, address, node};

const SHORT: fn() -> CallOptions = || CallOptions::default().ping_period(MS * 10).timeout(MS * 50);

fn call(net: &mut Net, options: CallOptions) -> ContextId {
    net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("below the limit");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    })
}

/// Delivers all messages, and begins the next request of a node.
fn begin(net: &mut Net, index: usize) -> DelegatedRequest {
    while net.deliver() {}
    net.at(index, |node, now, _| node.worker.next(now)).expect("a waiting request")
}

#[test]
fn deadline_of_silent_caller_stops_each_server() {
    let mut net = Net::new(3);
    // The timeout is so long that only the deadline ends the requests in time.
    let options = CallOptions::default().ping_period(MS * 5_000).timeout(MS * 10_000);
    let begun = net.now;
    call(&mut net, options.deadline(Some(MS * 200)));
    let first = begin(&mut net, 1);
    assert_eq!(first.deadline, Some(begun + MS * 200));
    net.advance(MS * 50);
    net.at(1, |node, now, out| {
        node.worker.delegate(now, first.execution, address(2), Bytes::new(), out).expect("in progress");
    });
    // The request was held for the manifest.
    net.now = net.now + MS;
    net.at(1, |node, now, out| node.worker.poll(now, out));
    let second = begin(&mut net, 2);
    assert_eq!(second.deadline, Some(begun + MS * 200), "the delegated request has the remaining time");
    // The caller's process has ended.
    net.nodes[0] = node(0, 2, |_| ());
    net.advance(MS * 148);
    for (index, work) in [(1, &first), (2, &second)] {
        assert!(net.nodes[index].worker.is_working(work.execution), "node {index} has a millisecond left");
    }
    net.advance(MS);
    for (index, work) in [(1, &first), (2, &second)] {
        let over = WorkerEvent::Aborted { execution: work.execution, reason: AbortReason::Deadline };
        assert_eq!(net.nodes[index].worker.next_event(), Some(over), "node {index}");
    }
}

#[test]
fn old_pong_does_not_confirm_later_round() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    begin(&mut net, 1);
    // A stranger keeps the pong of the first round and replays it.
    let mut pong = None;
    while pong.is_none() {
        net.now = net.now + MS;
        net.at(0, |node, now, out| node.caller.poll(now, out));
        net.deliver();
        let is_pong = |message: &Bytes| matches!(parse(message), Ok((DelegateMessage::Pong(..), _)));
        pong = net.in_flight.iter().find(|(_, _, message)| is_pong(message)).cloned();
    }
    let (_, from, pong): (_, PeerNode, Bytes) = pong.expect("it was found");
    let asked = net.now;
    while net.deliver() {}
    net.nodes[1] = node(1, 2, |_| ());
    let repeats = |net: &mut Net| net.at(0, |node, now, out| node.caller.handle(now, from, &pong, out));
    while net.outcome(call).is_none() {
        net.advance(MS * 5);
        repeats(&mut net);
        assert!(
            net.now <= asked + MS * 70,
            "a replayed pong confirms the call {:?} after the round",
            net.now.since(asked)
        );
    }
    assert!(matches!(net.outcome(call), Some(CallOutcome::Failed(CallFailure::Unconfirmed { millis: 50, .. }))));
    assert!(net.now > asked + MS * 50, "the pong confirms its own round");
}

/// Delivers a request `late_by` after the abort of its call; returns whether it is begun.
fn begun_after_abort(late_by: std::time::Duration) -> bool {
    let mut net = Net::new(2);
    net.nodes[1] = node(1, 1, |config| config.aborted_for = MS * 1_000);
    let call = call(&mut net, SHORT());
    let (_, from, request) = net.in_flight.pop_front().expect("a request");
    net.at(0, |node, now, out| node.caller.abort(now, call, out));
    let (_, _, ping) = net.in_flight.pop_front().expect("a ping with the abort");
    let worker = &mut net.nodes[1].worker;
    worker.handle(net.now, from, &ping, &mut Out::default());
    // The node is driven at each of its deadlines.
    let end = net.now + late_by;
    while let Some(at) = worker.next_deadline().filter(|at| *at <= end) {
        worker.poll(at, &mut Out::default());
    }
    worker.poll(end, &mut Out::default());
    worker.handle(end, from, &request, &mut Out::default());
    worker.next(end).is_some()
}

#[test]
fn aborted_call_is_remembered_for_its_whole_time() {
    for late_by in [0, 250, 500, 999] {
        assert!(!begun_after_abort(MS * late_by), "{late_by} ms after the abort");
    }
    assert!(begun_after_abort(MS * 1_000), "the abort is forgotten in the end");
}

#[test]
fn aborted_call_is_forgotten_after_its_time() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    net.at(0, |node, now, out| node.caller.abort(now, call, out));
    net.in_flight.pop_front();
    net.deliver_all_idle();
    let aborted_at: Instant = net.now;
    let remembered = |net: &Net| net.nodes[1].worker.next_deadline().map(|at| at.since(aborted_at));
    assert_eq!(remembered(&net), Some(MS * 33_000), "requests of the longest call may be in flight for as long");
}

#[test]
fn late_grant_does_not_lower_credit() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT().credit(4));
    let work = begin(&mut net, 1);
    let caller = net.nodes[0].peer;
    // The first grant has been overtaken by the second.
    for responses in [12, 8] {
        let grant = ResponseGrant { call, context: work.execution, responses };
        net.at(1, |node, now, out| node.worker.handle(now, caller, &Bytes::copy_from_slice(&grant.encode()), out));
    }
    net.at(1, |node, now, out| {
        for item in 0..12_u8 {
            node.worker.reply(now, work.execution, vec![item].into(), out).expect("in progress");
        }
        node.worker.finish(now, work.execution, out).expect("in progress");
    });
    net.deliver_all_idle();
    assert_eq!((net.replies(call).len(), net.outcome(call)), (12, Some(CallOutcome::Complete)));
}
