//! Calls that take effect exactly once, with the application's help (DPC §3.5.3).

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, Outcome};
use pathcall_endpoint::delegate::worker::record::Record;
use pathcall_endpoint::delegate::worker::{Work, WorkerEvent};
use pathcall_endpoint::delegate::{Context, Status};
use pathcall_wire::delegate::Message;

use super::net::{MS, Net, address, node};

#[test]
fn a_call_is_made_again_until_it_is_complete_and_nothing_is_done_twice() {
    let mut net = Net::new(3);
    let options = CallOptions::default().ping_period(MS * 10).timeout(MS * 50).once(true);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("room");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    });
    let mut effects = Vec::new();
    let mut durable: Vec<(usize, Record)> = Vec::new();
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    net.at(1, |node, now, out| {
        node.worker.delegate(now, work.execution, address(2), Bytes::new(), out).expect("at work");
        node.worker.reply(now, work.execution, Bytes::from_static(b"one"), out).expect("at work");
        let record = node.worker.finish(now, work.execution, out).expect("at work").expect("a record");
        durable.push((1, record));
        effects.push(1);
    });
    assert!(net.on_way.is_empty(), "nothing leaves before it is durable");
    net.at(1, |node, now, out| node.worker.release(now, work.execution, out));
    net.lose(|message| matches!(message, Message::Request(_)));
    // The server is another process now, which knows what was recorded.
    net.nodes[1] = node(1, 2, |_| ());
    let stored = Record::from_bytes(durable[0].1.to_bytes().into()).expect("its own record");
    assert_eq!(stored, durable[0].1);
    net.nodes[1].worker.restore(net.now, stored);
    net.pass(MS * 200);
    assert_eq!(net.outcome(call), Some(Outcome::Failed(CallFailure::Unconfirmed { millis: 50 })));
    net.events.retain(|event| !matches!(event, pathcall_endpoint::delegate::caller::CallerEvent::Ended { .. }));

    net.at(0, |node, now, out| node.caller.retry(now, call, out)).expect("it failed");
    net.settle(|node, index, work, now, out| {
        effects.push(index);
        node.worker.reply(now, work.execution, Bytes::from_static(b"two"), out).expect("at work");
        let record = node.worker.finish(now, work.execution, out).expect("at work").expect("a record");
        durable.push((index, record));
        node.worker.release(now, work.execution, out);
    });
    assert_eq!((net.outcome(call), net.replies(call).len()), (Some(Outcome::Complete), 2));
    assert_eq!(effects, [1, 2]);

    // The next call of the caller says that this one has ended: its records may go.
    net.at(0, |node, now, out| {
        let next = node.caller.open(now, CallOptions::default()).expect("room");
        node.caller.send(now, next, address(1), Bytes::new(), out).expect("an open call");
    });
    net.settle(|node, _, work, now, out| drop(node.worker.finish(now, work.execution, out)));
    let forget = net.nodes[1].worker.next_event();
    assert_eq!(forget, Some(WorkerEvent::Forget { call, request: call.request(1).inherited(0) }));
}

#[test]
fn other_bytes_are_no_record() {
    for len in 0..40 {
        assert!(Record::from_bytes(vec![1; len].into()).is_err());
    }
    let error = Record::from_bytes(Bytes::from_static(b"??")).expect_err("no record");
    assert_eq!(error.to_string(), "2 bytes are not a record of a delegated request");
}

/// A call of node 0 to node 1, which has begun to work on it.
fn begun(net: &mut Net) -> (Context, Work) {
    let options = CallOptions::default().ping_period(MS * 10).timeout(MS * 50).once(true);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("room");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    });
    while net.deliver() {}
    (call, net.at(1, |node, now, _| node.worker.next(now)).expect("it is there"))
}

/// Seals a request that passes another on and replies.
fn seal(net: &mut Net, work: &Work) {
    net.at(1, |node, now, out| {
        node.worker.delegate(now, work.execution, address(2), Bytes::new(), out).expect("at work");
        node.worker.reply(now, work.execution, Bytes::from_static(b"one"), out).expect("at work");
        node.worker.finish(now, work.execution, out).expect("at work").expect("a record");
    });
}

#[test]
fn what_is_discarded_fails_at_once_and_is_done_again() {
    let mut net = Net::new(3);
    let (call, work) = begun(&mut net);
    seal(&mut net, &work);
    let full = Status::new(Status::UNAVAILABLE, "full");
    // What may be durable can't fail.
    net.at(1, |node, now, out| node.worker.fail(now, work.execution, &full, out));
    assert!(net.on_way.is_empty());
    net.at(1, |node, now, out| node.worker.discard(now, work.execution, &full, out));
    net.rest();
    assert_eq!(net.outcome(call), Some(Outcome::Failed(CallFailure::Server(full))));
    net.events.clear();
    net.at(0, |node, now, out| node.caller.retry(now, call, out)).expect("it failed");
    let mut done = Vec::new();
    net.settle(|node, index, work, now, out| {
        done.push(index);
        node.worker.reply(now, work.execution, Bytes::new(), out).expect("at work");
        node.worker.finish(now, work.execution, out).expect("at work");
        node.worker.release(now, work.execution, out);
    });
    assert_eq!((net.outcome(call), done), (Some(Outcome::Complete), vec![1]));
}

#[test]
fn what_nobody_decides_is_not_confirmed() {
    let mut net = Net::new(3);
    let (call, work) = begun(&mut net);
    seal(&mut net, &work);
    net.pass(MS * 500);
    assert_eq!(net.outcome(call), None, "it is to become durable");
    net.at(1, |node, _, _| node.worker.set_stalled(work.execution, true));
    net.pass(MS * 100);
    assert_eq!(net.outcome(call), Some(Outcome::Failed(CallFailure::Unconfirmed { millis: 50 })));
    // Made again it is not done again.
    net.events.clear();
    net.at(0, |node, now, out| node.caller.retry(now, call, out)).expect("it failed");
    net.pass(MS * 100);
    assert_eq!(net.outcome(call), Some(Outcome::Failed(CallFailure::Unconfirmed { millis: 50 })));
}

#[test]
fn late_copy_of_the_last_call_whose_record_was_deleted_is_not_worked_on() {
    let mut net = Net::new(2);
    let calls = [1, 2].map(|_| {
        net.at(0, |node, now, out| {
            let call = node.caller.open(now, CallOptions::default().once(true)).expect("room");
            node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
            call
        })
    });
    net.nodes[1].worker.restore_ended(calls[0]);
    while net.deliver() {}
    let mut begun = Vec::new();
    net.at(1, |node, now, _| begun.extend(std::iter::from_fn(|| node.worker.next(now)).map(|work| work.call)));
    assert_eq!((begun, net.nodes[1].worker.stats().late), (vec![calls[1]], 1));
}
