//! Tests of failing delegated calls.

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, CallOutcome};
use pathcall_endpoint::delegate::worker::{AbortReason, ExecutionError, WorkerEvent};
use pathcall_endpoint::delegate::{ContextId, NodeId, PAYLOAD_MAX, PeerNode, Status};
use pathcall_wire::delegate::{DelegateMessage, DelegateResponse, Ping, PingSubject, RequestManifest, ResponseId};

use super::network::{MS, Net, address, node};

const SHORT: fn() -> CallOptions = || CallOptions::default().ping_period(MS * 10).timeout(MS * 50);

fn call(net: &mut Net, options: CallOptions) -> ContextId {
    net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("below the limit");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    })
}

fn failure(net: &Net, of: ContextId) -> CallFailure {
    match net.outcome(of) {
        Some(CallOutcome::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn handler_error_fails_call_and_stops_servers() {
    let mut net = Net::new(4);
    let call = call(&mut net, SHORT());
    let mut slow = None;
    net.deliver_all(|node, index, work, now, out| match index {
        1 => {
            node.worker.delegate(now, work.execution, address(2), Bytes::new(), out).expect("in progress");
            node.worker.delegate(now, work.execution, address(3), Bytes::new(), out).expect("in progress");
            node.worker.finish(now, work.execution, out).expect("in progress");
        }
        2 => slow = Some(work.execution),
        _ => node.worker.fail(now, work.execution, &Status::new(5, "no such thing"), out),
    });
    assert_eq!(failure(&net, call), CallFailure::Server(Status::new(5, "no such thing")));
    net.advance(MS);
    let event = net.nodes[2].worker.next_event();
    let execution = slow.expect("an execution");
    assert_eq!(event, Some(WorkerEvent::Aborted { execution, reason: AbortReason::Caller }));
    let late = net.at(2, |node, now, out| node.worker.reply(now, execution, Bytes::new(), out));
    assert_eq!(late, Err(ExecutionError::Ended));
    net.advance(MS * 40_000);
    assert!(net.is_empty());
}

#[test]
fn message_that_is_too_long_fails_call_with_its_length() {
    let (long, text) = (Bytes::from(vec![0; PAYLOAD_MAX + 1]), "is too long, at most");
    let mut net = Net::new(3);
    let refused = net.at(0, |node, now, out| {
        let call = node.caller.open(now, SHORT()).expect("below the limit");
        node.caller.send(now, call, address(1), long.clone(), out).map_err(|error| error.to_string())
    });
    assert!(refused.is_err_and(|error| error.contains(text)), "a request");
    for delegated in [false, true] {
        let call = call(&mut net, SHORT());
        net.deliver_all(|node, _, work, now, out| {
            let failed = match delegated {
                true => node.worker.delegate(now, work.execution, address(2), long.clone(), out),
                false => node.worker.reply(now, work.execution, long.clone(), out),
            };
            assert_eq!(failed, Err(ExecutionError::TooLong(PAYLOAD_MAX + 1)));
        });
        let CallFailure::Server(status) = failure(&net, call) else { panic!("no server reported it") };
        assert!(status.code == Status::RESOURCE_EXHAUSTED && status.message.contains(text), "{status:?}");
    }
}

#[test]
fn lost_error_is_reported_by_next_pong() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.at(1, |node, now, out| node.worker.fail(now, work.execution, &Status::new(5, "no such thing"), out));
    net.lose(|message| matches!(message, DelegateMessage::Fault(_)));
    net.advance(MS * 11);
    assert_eq!(failure(&net, call).status().code, 5);
}

#[test]
fn cycle_fails_with_clear_status() {
    let mut net = Net::new(3);
    let call = call(&mut net, SHORT());
    let mut served = 0;
    net.deliver_all(|node, index, work, now, out| {
        served += 1;
        let again = node.worker.delegate(now, work.execution, address(3 - index), Bytes::new(), out);
        if again.is_ok() {
            node.worker.finish(now, work.execution, out).expect("in progress");
        }
    });
    let status = failure(&net, call).status();
    assert_eq!((served, status.code), (65, Status::FAILED_PRECONDITION));
    assert_eq!(status.message, "the call passed through 64 servers, the most allowed: is there a cycle?");
}

#[test]
fn dead_server_is_detected_in_time() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    net.nodes[1] = node(1, 2, |_| ());
    net.advance(MS * 59);
    assert_eq!(net.outcome(call), None);
    net.advance(MS * 2);
    assert!(matches!(failure(&net, call), CallFailure::Unconfirmed { millis: 50, .. }));
}

#[test]
fn dead_server_is_named_if_it_alone_knows_the_next_one() {
    let mut net = Net::new(3);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.at(1, |node, now, out| {
        node.worker.delegate(now, work.execution, address(2), Bytes::new(), out).expect("in progress");
        node.worker.reply(now, work.execution, Bytes::new(), out).expect("in progress");
        node.worker.finish(now, work.execution, out).expect("in progress");
    });
    // The manifest announces a request, but not its server.
    while net.deliver() {}
    net.at(2, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.nodes[1] = node(1, 2, |_| ());
    net.advance(MS * 80);
    assert_eq!(failure(&net, call), CallFailure::Unconfirmed { server: Some(address(1)), millis: 50 });
}

#[test]
fn lost_reply_is_detected_in_time() {
    for replies in [1, 3] {
        let mut net = Net::new(2);
        let call = call(&mut net, SHORT());
        while net.deliver() {}
        let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
        net.at(1, |node, now, out| {
            for _ in 0..replies {
                node.worker.reply(now, work.execution, Bytes::new(), out).expect("in progress");
            }
            node.worker.finish(now, work.execution, out).expect("in progress");
        });
        net.in_flight.pop_front();
        net.advance(MS * 71);
        assert!(matches!(failure(&net, call), CallFailure::Lost { millis: 50, .. }), "{replies} replies");
    }
}

#[test]
fn stalled_handler_fails_call_and_slow_one_does_not() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.advance(MS * 1000);
    assert_eq!(net.outcome(call), None);
    net.nodes[1].worker.set_stalled(work.execution, true);
    net.advance(MS * 70);
    assert!(matches!(failure(&net, call), CallFailure::Unconfirmed { millis: 50, .. }));
    assert!(net.nodes[1].worker.next_event().is_some(), "the handler is told to stop");
}

#[test]
fn undelivered_request_fails_call_at_once() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.at(1, |node, now, out| {
        for _ in 0..2 {
            node.worker.delegate(now, work.execution, address(99), Bytes::new(), out).expect("in progress");
        }
    });
    let (to, _, message) = net.in_flight.pop_front().expect("a request");
    net.at(1, |node, now, out| node.worker.undelivered(now, to, &message, out));
    let aborted = WorkerEvent::Aborted { execution: work.execution, reason: AbortReason::Ended };
    assert_eq!(net.nodes[1].worker.next_event(), Some(aborted), "the handler is told to stop");
    while net.deliver() {}
    let failure = failure(&net, call);
    assert_eq!(failure.server(), Some(address(99)), "the caller can avoid it");
    let status = failure.status();
    let text = "the call was delegated to 10.0.0.99:7000, where nothing listens";
    assert_eq!((status.code, &status.message[..]), (Status::UNAVAILABLE, text));
}

#[test]
fn abort_is_confirmed_by_all_and_stops_late_requests() {
    let mut net = Net::new(4);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.at(1, |node, now, out| {
        for to in [2, 3] {
            node.worker.delegate(now, work.execution, address(to), Bytes::new(), out).expect("in progress");
        }
    });
    // The first request is in flight for long; the second is held for the manifest.
    let late = net.in_flight.pop_front().expect("a request");
    net.at(0, |node, now, out| node.caller.abort(now, call, out));
    net.advance(MS);
    assert_eq!(net.outcome(call), None, "node 2 has not confirmed");
    let growth = net.at(1, |node, now, out| node.worker.delegate(now, work.execution, address(3), Bytes::new(), out));
    assert_eq!(growth, Err(ExecutionError::Ended));
    net.in_flight.push_back(late);
    net.advance(MS * 11);
    assert_eq!(net.outcome(call), Some(CallOutcome::Aborted { confirmed: true }));
    assert_eq!(net.nodes[2].worker.stats().late, 1);
    net.advance(MS * 40_000);
    assert!(net.is_empty());
}

#[test]
fn servers_stop_and_forget_calls_of_dead_caller() {
    let mut net = Net::new(2);
    call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.nodes[0] = node(0, 2, |_| ());
    net.advance(MS * 129);
    let execution = work.execution;
    let orphaned = WorkerEvent::Aborted { execution, reason: AbortReason::Orphaned };
    assert_eq!(net.nodes[1].worker.next_event(), Some(orphaned));
    net.advance(MS * 129);
    assert!(net.is_empty());
}

#[test]
fn next_call_ends_state_of_previous_call() {
    let mut net = Net::new(2);
    call(&mut net, CallOptions::default());
    net.deliver_all(|node, _, work, now, out| drop(node.worker.finish(now, work.execution, out)));
    assert_eq!(net.nodes[1].worker.known(), 1, "the completed request is remembered");
    let next = call(&mut net, CallOptions::default());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    assert_eq!(work.call, next);
    assert_eq!(net.nodes[1].worker.known(), 1, "the first request is forgotten");
}

#[test]
fn waiting_requests_have_bounded_memory() {
    let mut net = Net::new(2);
    net.nodes[1] = node(1, 1, |config| config.queued_max = 1_000);
    let call = |net: &mut Net| {
        let call = net.at(0, |node, now, out| {
            let call = node.caller.open(now, SHORT()).expect("below the limit");
            node.caller.send(now, call, address(1), vec![7; 600].into(), out).expect("an open call");
            call
        });
        while net.deliver() {}
        call
    };
    let (waits, refused) = (call(&mut net), call(&mut net));
    assert_eq!(net.outcome(waits), None);
    assert_eq!(failure(&net, refused).status().code, Status::RESOURCE_EXHAUSTED);
    // Requests in progress or aborted no longer count as waiting.
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    assert_eq!(work.payload.len(), 600);
    let aborted = call(&mut net);
    assert_eq!(net.outcome(aborted), None);
    net.at(0, |node, now, out| node.caller.abort(now, aborted, out));
    while net.deliver() {}
    let waits = call(&mut net);
    assert_eq!(net.outcome(waits), None);
}

#[test]
fn messages_of_strangers_are_ignored() {
    let mut net = Net::new(3);
    let call = call(&mut net, SHORT());
    let (_, _, request) = net.in_flight.front().cloned().expect("a request");
    let stranger = net.nodes[2].peer;
    let as_stranger = |net: &mut Net, to: usize, message: Bytes| {
        net.in_flight.clear();
        net.in_flight.push_back((address(to), stranger, message));
        net.deliver();
    };
    as_stranger(&mut net, 1, request.clone());
    assert_eq!((net.nodes[1].worker.stats().requests, net.nodes[1].worker.stats().refused), (0, 1));
    let caller = net.nodes[0].peer;
    net.in_flight.push_back((address(1), caller, request));
    net.deliver();
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    let subject = PingSubject::Request(work.request);
    let ping = Ping { call, subject, abort: true, round: 1, first: 1 };
    as_stranger(&mut net, 1, Bytes::copy_from_slice(&ping.encode()));
    assert!(net.nodes[1].worker.is_working(work.execution));
    // With another node's id, and for a call that does not exist.
    let id = ResponseId::Numbered(work.execution, 1);
    let response = DelegateResponse { call, id, null: false, again: None, manifest: None };
    as_stranger(&mut net, 0, Bytes::copy_from_slice(&response.encode()));
    let response = DelegateResponse { call: ContextId::new(NodeId::new(3), 1), ..response };
    as_stranger(&mut net, 0, Bytes::copy_from_slice(&response.encode()));
    assert_eq!((net.replies(call).len(), net.nodes[0].caller.stats().ignored), (0, 2));
}

#[test]
fn excessive_manifest_takes_no_memory() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    let PeerNode { node, address: server } = net.nodes[1].peer;
    let context = ContextId::new(node, 1);
    let manifest =
        RequestManifest { request: call.request(1), context, requests: u32::MAX, responses: u32::MAX, server };
    let id = ResponseId::Numbered(context, 1);
    let response = DelegateResponse { call, id, null: true, again: None, manifest: Some(manifest) };
    net.in_flight.clear();
    net.in_flight.push_back((address(0), net.nodes[1].peer, Bytes::copy_from_slice(&response.encode())));
    net.deliver();
    assert_eq!(failure(&net, call), CallFailure::TooLarge(1 << 14));
}

/// Begins the next request; returns its execution.
fn begun(net: &mut Net, index: usize) -> ContextId {
    while net.deliver() {}
    net.at(index, |node, now, _| node.worker.next(now)).expect("a waiting request").execution
}

#[test]
fn standstill_does_not_fail_live_peers() {
    for still in (1..400).chain([10_000]) {
        let mut net = Net::new(2);
        let call = call(&mut net, SHORT());
        let execution = begun(&mut net, 1);
        net.advance(MS * 25);
        // Both processes stand still for longer than all timeouts; then the timers are checked first.
        net.now = net.now + MS * still;
        net.advance(MS * 40);
        assert_eq!(net.outcome(call), None, "the call is in progress after {still} ms");
        net.at(1, |node, now, out| {
            node.worker.reply(now, execution, Bytes::from_static(b"late"), out).expect("in progress");
            node.worker.finish(now, execution, out).expect("in progress");
        });
        net.deliver_all_idle();
        assert_eq!(net.outcome(call), Some(CallOutcome::Complete), "{still} ms");
    }
}

#[test]
fn silent_server_fails_call_one_timeout_after_standstill() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    begun(&mut net, 1);
    net.advance(MS * 25);
    net.now = net.now + MS * 10_000;
    // The server's process died during the standstill.
    net.nodes[1] = node(1, 2, |_| ());
    net.advance(MS * 30);
    assert_eq!(net.outcome(call), None, "the timeout has not passed since the standstill");
    net.advance(MS * 50);
    assert!(matches!(failure(&net, call), CallFailure::Unconfirmed { millis: 50, .. }));
}

#[test]
fn server_aborts_orphaned_request_after_standstill() {
    let mut net = Net::new(2);
    call(&mut net, SHORT());
    begun(&mut net, 1);
    net.advance(MS * 25);
    net.now = net.now + MS * 10_000;
    // The caller died during the standstill.
    net.nodes[0] = node(0, 2, |_| ());
    net.advance(MS * 20);
    assert_eq!(net.nodes[1].worker.next_event(), None, "a ping may still arrive");
    net.advance(MS * 300);
    let event = net.nodes[1].worker.next_event();
    assert!(matches!(event, Some(WorkerEvent::Aborted { reason: AbortReason::Orphaned, .. })), "{event:?}");
    net.advance(MS * 40_000);
    assert!(net.is_empty());
}
