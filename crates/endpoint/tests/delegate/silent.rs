//! What ends, and when, once somebody falls silent or what it said is old.

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, Outcome};
use pathcall_endpoint::delegate::worker::{AbortReason, Work, WorkerEvent};
use pathcall_endpoint::delegate::{Context, Peer};
use pathcall_wire::Instant;
use pathcall_wire::delegate::{Grant, Message, parse};

use super::net::{MS, Net, Out, address, node};

const SHORT: fn() -> CallOptions = || CallOptions::default().ping_period(MS * 10).timeout(MS * 50);

fn call(net: &mut Net, options: CallOptions) -> Context {
    net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("room");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    })
}

/// Delivers what is on its way, and has a node begin to work.
fn begin(net: &mut Net, index: usize) -> Work {
    while net.deliver() {}
    net.at(index, |node, now, _| node.worker.next(now)).expect("a request is there")
}

#[test]
fn silent_callers_deadline_ends_the_work_at_each_server() {
    let mut net = Net::new(3);
    // So patient that nothing but the deadline ends it in time.
    let options = CallOptions::default().ping_period(MS * 5_000).timeout(MS * 10_000);
    let begun = net.now;
    call(&mut net, options.deadline(Some(MS * 200)));
    let first = begin(&mut net, 1);
    assert_eq!(first.deadline, Some(begun + MS * 200));
    net.pass(MS * 50);
    net.at(1, |node, now, out| {
        node.worker.delegate(now, first.execution, address(2), Bytes::new(), out).expect("at work");
    });
    // It was held for the manifest.
    net.now = net.now + MS;
    net.at(1, |node, now, out| node.worker.poll(now, out));
    let second = begin(&mut net, 2);
    assert_eq!(second.deadline, Some(begun + MS * 200), "what is passed on has the rest of the time");
    // The caller's process is gone, and says nothing any more.
    net.nodes[0] = node(0, 2, |_| ());
    net.pass(MS * 148);
    for (index, work) in [(1, &first), (2, &second)] {
        assert!(net.nodes[index].worker.is_working(work.execution), "node {index} has a millisecond left");
    }
    net.pass(MS);
    for (index, work) in [(1, &first), (2, &second)] {
        let over = WorkerEvent::Aborted { execution: work.execution, reason: AbortReason::Deadline };
        assert_eq!(net.nodes[index].worker.next_event(), Some(over), "node {index}");
    }
}

#[test]
fn old_pong_confirms_no_later_round() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    begin(&mut net, 1);
    // The first round's pong is kept by who repeats it ever after.
    let mut pong = None;
    while pong.is_none() {
        net.now = net.now + MS;
        net.at(0, |node, now, out| node.caller.poll(now, out));
        net.deliver();
        let is_pong = |message: &Bytes| matches!(parse(message), Ok((Message::Pong(..), _)));
        pong = net.on_way.iter().find(|(_, _, message)| is_pong(message)).cloned();
    }
    let (_, from, pong): (_, Peer, Bytes) = pong.expect("it was found");
    let asked = net.now;
    while net.deliver() {}
    net.nodes[1] = node(1, 2, |_| ());
    let repeats = |net: &mut Net| net.at(0, |node, now, out| node.caller.handle(now, from, &pong, out));
    while net.outcome(call).is_none() {
        net.pass(MS * 5);
        repeats(&mut net);
        assert!(net.now <= asked + MS * 70, "an old pong keeps the call: {:?} after the round", net.now.since(asked));
    }
    assert_eq!(net.outcome(call), Some(Outcome::Failed(CallFailure::Unconfirmed { millis: 50 })));
    assert!(net.now > asked + MS * 50, "the round that it answers counts");
}

/// A request of a call of node 0's to node 1, which comes so long after the word that the call is aborted; whether
/// it is begun.
fn begun_after_abort(late_by: std::time::Duration) -> bool {
    let mut net = Net::new(2);
    net.nodes[1] = node(1, 1, |config| config.aborted_for = MS * 1_000);
    let call = call(&mut net, SHORT());
    let (_, from, request) = net.on_way.pop_front().expect("a request");
    net.at(0, |node, now, out| node.caller.abort(now, call, out));
    let (_, _, ping) = net.on_way.pop_front().expect("a ping that says so");
    let worker = &mut net.nodes[1].worker;
    worker.handle(net.now, from, &ping, &mut Out::default());
    // Driven as a node is: at each of its deadlines.
    let end = net.now + late_by;
    while let Some(at) = worker.next_deadline().filter(|at| *at <= end) {
        worker.poll(at, &mut Out::default());
    }
    worker.poll(end, &mut Out::default());
    worker.handle(end, from, &request, &mut Out::default());
    worker.next(end).is_some()
}

#[test]
fn aborted_call_is_remembered_for_all_of_its_time() {
    for late_by in [0, 250, 500, 999] {
        assert!(!begun_after_abort(MS * late_by), "{late_by} ms after the abort");
    }
    assert!(begun_after_abort(MS * 1_000), "nothing is remembered for ever");
}

#[test]
fn aborted_call_is_forgotten_when_its_time_is_over() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT());
    net.at(0, |node, now, out| node.caller.abort(now, call, out));
    net.on_way.pop_front();
    net.rest();
    let aborted_at: Instant = net.now;
    let remembered = |net: &Net| net.nodes[1].worker.next_deadline().map(|at| at.since(aborted_at));
    assert_eq!(remembered(&net), Some(MS * 33_000), "as long as the longest call may have requests on their way");
}

#[test]
fn late_grant_takes_nothing_back() {
    let mut net = Net::new(2);
    let call = call(&mut net, SHORT().credit(4));
    let work = begin(&mut net, 1);
    let caller = net.nodes[0].peer;
    // The first has overtaken the second.
    for responses in [12, 8] {
        let grant = Grant { call, context: work.execution, responses };
        net.at(1, |node, now, out| node.worker.handle(now, caller, &Bytes::copy_from_slice(&grant.encode()), out));
    }
    net.at(1, |node, now, out| {
        for item in 0..12_u8 {
            node.worker.reply(now, work.execution, vec![item].into(), out).expect("at work");
        }
        node.worker.finish(now, work.execution, out).expect("at work");
    });
    net.rest();
    assert_eq!((net.replies(call).len(), net.outcome(call)), (12, Some(Outcome::Complete)));
}
