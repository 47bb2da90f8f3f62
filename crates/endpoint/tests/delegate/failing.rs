//! Calls that go wrong.

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, Outcome};
use pathcall_endpoint::delegate::worker::{AbortReason, WorkError, WorkerEvent};
use pathcall_endpoint::delegate::{Context, NodeId, Peer, Status};
use pathcall_wire::delegate::{Ids, Manifest, Message, Ping, Response, Subject};

use super::net::{MS, Net, address, node};

const SHORT: fn() -> CallOptions = || CallOptions::default().ping_period(MS * 10).timeout(MS * 50);

fn call(net: &mut Net, options: CallOptions) -> Context {
    net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("room");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    })
}

fn failure(net: &Net, of: Context) -> CallFailure {
    match net.outcome(of) {
        Some(Outcome::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_handlers_error_ends_the_call_and_stops_the_others() {
    let mut net = Net::new(4);
    let call = call(&mut net, SHORT());
    let mut slow = None;
    net.settle(|node, index, work, now, out| match index {
        1 => {
            node.worker.delegate(now, work.execution, address(2), Bytes::new(), out).expect("at work");
            node.worker.delegate(now, work.execution, address(3), Bytes::new(), out).expect("at work");
            node.worker.finish(now, work.execution, out).expect("at work");
        }
        2 => slow = Some(work.execution),
        _ => node.worker.fail(now, work.execution, &Status::new(5, "no such thing"), out),
    });
    assert_eq!(failure(&net, call), CallFailure::Server(Status::new(5, "no such thing")));
    net.pass(MS);
    let event = net.nodes[2].worker.next_event();
    let execution = slow.expect("it is at work");
    assert_eq!(event, Some(WorkerEvent::Aborted { execution, reason: AbortReason::Caller }));
    let late = net.at(2, |node, now, out| node.worker.reply(now, execution, Bytes::new(), out));
    assert_eq!(late, Err(WorkError::Gone));
    net.pass(MS * 40_000);
    assert!(net.is_empty());
}

#[test]
fn an_error_whose_message_is_lost_is_told_by_the_next_pong() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    net.at(1, |node, now, out| node.worker.fail(now, work.execution, &Status::new(5, "no such thing"), out));
    net.lose(|message| matches!(message, Message::Fault(_)));
    net.pass(MS * 11);
    assert_eq!(failure(&net, call).status().code, 5);
}

#[test]
fn a_cycle_ends_with_a_clear_status() {
    let mut net = Net::new(3);
    let call = call(&mut net, SHORT());
    let mut served = 0;
    net.settle(|node, index, work, now, out| {
        served += 1;
        let again = node.worker.delegate(now, work.execution, address(3 - index), Bytes::new(), out);
        if again.is_ok() {
            node.worker.finish(now, work.execution, out).expect("at work");
        }
    });
    let status = failure(&net, call).status();
    assert_eq!((served, status.code), (65, Status::FAILED_PRECONDITION));
    assert_eq!(status.message, "the call went through 64 servers, as many as it may: is there a cycle?");
}

#[test]
fn a_server_that_dies_is_noticed_in_time() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    net.nodes[1] = node(1, 2, |_| ());
    net.pass(MS * 59);
    assert_eq!(net.outcome(call), None);
    net.pass(MS * 2);
    assert_eq!(failure(&net, call), CallFailure::Unconfirmed { millis: 50 });
}

#[test]
fn a_lost_reply_is_noticed_in_time_also_if_it_is_all_there_was() {
    for replies in [1, 3] {
        let mut net = Net::new(2);
        let call = call(&mut net, SHORT());
        while net.deliver() {}
        let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
        net.at(1, |node, now, out| {
            for _ in 0..replies {
                node.worker.reply(now, work.execution, Bytes::new(), out).expect("at work");
            }
            node.worker.finish(now, work.execution, out).expect("at work");
        });
        net.on_way.pop_front();
        net.pass(MS * 71);
        assert_eq!(failure(&net, call), CallFailure::Lost { millis: 50 }, "{replies} replies");
    }
}

#[test]
fn a_stalled_handler_fails_the_call_and_a_slow_one_does_not() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    net.pass(MS * 1000);
    assert_eq!(net.outcome(call), None);
    net.nodes[1].worker.set_stalled(work.execution, true);
    net.pass(MS * 70);
    assert_eq!(failure(&net, call), CallFailure::Unconfirmed { millis: 50 });
    assert!(net.nodes[1].worker.next_event().is_some(), "it is told to stop");
}

#[test]
fn requests_to_nobody_fail_the_call_at_once_where_the_transport_knows() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    net.at(1, |node, now, out| {
        for _ in 0..2 {
            node.worker.delegate(now, work.execution, address(99), Bytes::new(), out).expect("at work");
        }
    });
    let (to, _, message) = net.on_way.pop_front().expect("a request");
    net.at(1, |node, now, out| node.worker.undelivered(now, to, &message, out));
    let aborted = WorkerEvent::Aborted { execution: work.execution, reason: AbortReason::Ended };
    assert_eq!(net.nodes[1].worker.next_event(), Some(aborted), "its handler need not go on");
    while net.deliver() {}
    let status = failure(&net, call).status();
    let text = "the call was passed on to 10.0.0.99:7000: nobody is there";
    assert_eq!((status.code, &status.message[..]), (Status::UNAVAILABLE, text));
}

#[test]
fn an_abort_is_confirmed_when_all_have_stopped_and_late_requests_are_not_begun() {
    let mut net = Net::new(4);
    let call = call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    net.at(1, |node, now, out| {
        for to in [2, 3] {
            node.worker.delegate(now, work.execution, address(to), Bytes::new(), out).expect("at work");
        }
    });
    // The first is on its way for long; the second is held for the manifest.
    let late = net.on_way.pop_front().expect("a request");
    net.at(0, |node, now, out| node.caller.abort(now, call, out));
    net.pass(MS);
    assert_eq!(net.outcome(call), None, "node 2 has not said anything");
    let growth = net.at(1, |node, now, out| node.worker.delegate(now, work.execution, address(3), Bytes::new(), out));
    assert_eq!(growth, Err(WorkError::Gone));
    net.on_way.push_back(late);
    net.pass(MS * 11);
    assert_eq!(net.outcome(call), Some(Outcome::Aborted { confirmed: true }));
    assert_eq!(net.nodes[2].worker.stats().late, 1);
    net.pass(MS * 40_000);
    assert!(net.is_empty());
}

#[test]
fn servers_stop_and_forget_when_the_caller_is_gone() {
    let mut net = Net::new(2);
    call(&mut net, SHORT());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    net.nodes[0] = node(0, 2, |_| ());
    net.pass(MS * 129);
    let execution = work.execution;
    let orphaned = WorkerEvent::Aborted { execution, reason: AbortReason::Orphaned };
    assert_eq!(net.nodes[1].worker.next_event(), Some(orphaned));
    net.pass(MS * 129);
    assert!(net.is_empty());
}

#[test]
fn what_servers_keep_goes_with_the_next_call_of_the_caller() {
    let mut net = Net::new(2);
    call(&mut net, CallOptions::default());
    net.settle(|node, _, work, now, out| drop(node.worker.finish(now, work.execution, out)));
    assert_eq!(net.nodes[1].worker.known(), 1, "it may be asked about");
    let next = call(&mut net, CallOptions::default());
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    assert_eq!(work.call, next);
    assert_eq!(net.nodes[1].worker.known(), 1, "the first is forgotten");
}

#[test]
fn requests_that_wait_have_bounded_memory() {
    let mut net = Net::new(2);
    net.nodes[1] = node(1, 1, |config| config.queued_max = 1_000);
    let call = |net: &mut Net| {
        let call = net.at(0, |node, now, out| {
            let call = node.caller.open(now, SHORT()).expect("room");
            node.caller.send(now, call, address(1), vec![7; 600].into(), out).expect("an open call");
            call
        });
        while net.deliver() {}
        call
    };
    let (waits, refused) = (call(&mut net), call(&mut net));
    assert_eq!(net.outcome(waits), None);
    assert_eq!(failure(&net, refused).status().code, Status::RESOURCE_EXHAUSTED);
    // What is worked on waits no more, and what is aborted does not.
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("one waits");
    assert_eq!(work.payload.len(), 600);
    let aborted = call(&mut net);
    assert_eq!(net.outcome(aborted), None);
    net.at(0, |node, now, out| node.caller.abort(now, aborted, out));
    while net.deliver() {}
    let waits = call(&mut net);
    assert_eq!(net.outcome(waits), None);
}

#[test]
fn strangers_are_not_heard() {
    let mut net = Net::new(3);
    let call = call(&mut net, SHORT());
    let (_, _, request) = net.on_way.front().cloned().expect("a request");
    let stranger = net.nodes[2].peer;
    let as_stranger = |net: &mut Net, to: usize, message: Bytes| {
        net.on_way.clear();
        net.on_way.push_back((address(to), stranger, message));
        net.deliver();
    };
    as_stranger(&mut net, 1, request.clone());
    assert_eq!((net.nodes[1].worker.stats().requests, net.nodes[1].worker.stats().refused), (0, 1));
    let caller = net.nodes[0].peer;
    net.on_way.push_back((address(1), caller, request));
    net.deliver();
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    let subject = Subject::Request(work.request);
    let ping = Ping { call, subject, abort: true, round: 1, first: 1 };
    as_stranger(&mut net, 1, Bytes::copy_from_slice(&ping.encode()));
    assert!(net.nodes[1].worker.is_working(work.execution));
    // Under another's name, and of a call that there is not.
    let id = Ids::Numbered(work.execution, 1);
    let response = Response { call, id, null: false, again: None, manifest: None };
    as_stranger(&mut net, 0, Bytes::copy_from_slice(&response.encode()));
    let response = Response { call: Context::new(NodeId::new(3), 1), ..response };
    as_stranger(&mut net, 0, Bytes::copy_from_slice(&response.encode()));
    assert_eq!((net.replies(call).len(), net.nodes[0].caller.stats().ignored), (0, 2));
}

#[test]
fn a_manifest_that_announces_too_much_costs_no_memory() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    let Peer { node, address: server } = net.nodes[1].peer;
    let context = Context::new(node, 1);
    let manifest = Manifest { request: call.request(1), context, requests: u32::MAX, responses: u32::MAX, server };
    let id = Ids::Numbered(context, 1);
    let response = Response { call, id, null: true, again: None, manifest: Some(manifest) };
    net.on_way.clear();
    net.on_way.push_back((address(0), net.nodes[1].peer, Bytes::copy_from_slice(&response.encode())));
    net.deliver();
    assert_eq!(failure(&net, call), CallFailure::TooLarge(1 << 18));
}

/// Work on requests is begun; what was begun.
fn begun(net: &mut Net, index: usize) -> Context {
    while net.deliver() {}
    net.at(index, |node, now, _| node.worker.next(now)).expect("it is there").execution
}

#[test]
fn a_process_that_stood_still_takes_nobody_for_dead() {
    for still in (1..400).chain([10_000]) {
        let mut net = Net::new(2);
        let call = call(&mut net, SHORT());
        let execution = begun(&mut net, 1);
        net.pass(MS * 25);
        // Both are stopped, for longer than anything is waited for as well; what they look at first is the time.
        net.now = net.now + MS * still;
        net.pass(MS * 40);
        assert_eq!(net.outcome(call), None, "it is worked on after {still} ms");
        net.at(1, |node, now, out| {
            node.worker.reply(now, execution, Bytes::from_static(b"late"), out).expect("at work");
            node.worker.finish(now, execution, out).expect("at work");
        });
        net.rest();
        assert_eq!(net.outcome(call), Some(Outcome::Complete), "{still} ms");
    }
}

#[test]
fn a_server_that_is_silent_after_the_caller_stood_still_is_dead_a_time_out_later() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    begun(&mut net, 1);
    net.pass(MS * 25);
    net.now = net.now + MS * 10_000;
    // Its process has died meanwhile.
    net.nodes[1] = node(1, 2, |_| ());
    net.pass(MS * 30);
    assert_eq!(net.outcome(call), None, "it has not had its time");
    net.pass(MS * 50);
    assert_eq!(failure(&net, call), CallFailure::Unconfirmed { millis: 50 });
}

#[test]
fn a_server_that_stood_still_gives_up_what_nobody_asks_for() {
    let mut net = Net::new(2);
    call(&mut net, SHORT());
    begun(&mut net, 1);
    net.pass(MS * 25);
    net.now = net.now + MS * 10_000;
    // Its caller has died meanwhile.
    net.nodes[0] = node(0, 2, |_| ());
    net.pass(MS * 20);
    assert_eq!(net.nodes[1].worker.next_event(), None, "nobody has had time to ask");
    net.pass(MS * 300);
    let event = net.nodes[1].worker.next_event();
    assert!(matches!(event, Some(WorkerEvent::Aborted { reason: AbortReason::Orphaned, .. })), "{event:?}");
    net.pass(MS * 40_000);
    assert!(net.is_empty());
}
