//! Tests of exactly-once calls with the application's help (DPC §3.5.3).

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, CallOutcome};
use pathcall_endpoint::delegate::worker::record::RequestRecord;
use pathcall_endpoint::delegate::worker::{DelegatedRequest, WorkerEvent};
use pathcall_endpoint::delegate::{ContextId, Status};
use pathcall_wire::delegate::DelegateMessage;

use super::network::{MS, Net, address, node};

#[test]
fn repeated_call_completes_without_double_effect() {
    let mut net = Net::new(3);
    let options = CallOptions::default().ping_period(MS * 10).timeout(MS * 50).once(true);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("below the limit");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    });
    let mut effects = Vec::new();
    let mut durable: Vec<(usize, RequestRecord)> = Vec::new();
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request");
    net.at(1, |node, now, out| {
        node.worker.delegate(now, work.execution, address(2), Bytes::new(), out).expect("in progress");
        node.worker.reply(now, work.execution, Bytes::from_static(b"one"), out).expect("in progress");
        let record = node.worker.finish(now, work.execution, out).expect("in progress").expect("a record");
        durable.push((1, record));
        effects.push(1);
    });
    assert!(net.in_flight.is_empty(), "no message leaves before the record is durable");
    net.at(1, |node, now, out| node.worker.release(now, work.execution, out));
    net.lose(|message| matches!(message, DelegateMessage::Request(_)));
    // The server restarts with the stored records.
    net.nodes[1] = node(1, 2, |_| ());
    let stored = RequestRecord::from_bytes(durable[0].1.to_bytes().into()).expect("a valid record");
    assert_eq!(stored, durable[0].1);
    net.nodes[1].worker.restore(net.now, stored);
    net.advance(MS * 200);
    assert!(matches!(net.outcome(call), Some(CallOutcome::Failed(CallFailure::Unconfirmed { millis: 50, .. }))));
    net.events.retain(|event| !matches!(event, pathcall_endpoint::delegate::caller::CallerEvent::Ended { .. }));

    net.at(0, |node, now, out| node.caller.retry(now, call, out)).expect("a failed call");
    net.deliver_all(|node, index, work, now, out| {
        effects.push(index);
        node.worker.reply(now, work.execution, Bytes::from_static(b"two"), out).expect("in progress");
        let record = node.worker.finish(now, work.execution, out).expect("in progress").expect("a record");
        durable.push((index, record));
        node.worker.release(now, work.execution, out);
    });
    assert_eq!((net.outcome(call), net.replies(call).len()), (Some(CallOutcome::Complete), 2));
    assert_eq!(effects, [1, 2]);

    // The next call of the caller reports that this one has ended: its records are obsolete.
    net.at(0, |node, now, out| {
        let next = node.caller.open(now, CallOptions::default()).expect("below the limit");
        node.caller.send(now, next, address(1), Bytes::new(), out).expect("an open call");
    });
    net.deliver_all(|node, _, work, now, out| drop(node.worker.finish(now, work.execution, out)));
    let forget = net.nodes[1].worker.next_event();
    assert_eq!(forget, Some(WorkerEvent::RecordObsolete { call, request: call.request(1).inherited(0) }));
}

#[test]
fn invalid_record_bytes_are_refused() {
    for len in 0..40 {
        assert!(RequestRecord::from_bytes(vec![1; len].into()).is_err());
    }
    let error = RequestRecord::from_bytes(Bytes::from_static(b"??")).expect_err("no record");
    assert_eq!(error.to_string(), "2 bytes are not a record of a delegated request");
}

/// A call of node 0, and its request at node 1, which is in progress.
fn begun(net: &mut Net) -> (ContextId, DelegatedRequest) {
    let options = CallOptions::default().ping_period(MS * 10).timeout(MS * 50).once(true);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("below the limit");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    });
    while net.deliver() {}
    (call, net.at(1, |node, now, _| node.worker.next(now)).expect("a waiting request"))
}

/// Finishes an exactly-once request that delegates and replies.
fn prepare(net: &mut Net, work: &DelegatedRequest) {
    net.at(1, |node, now, out| {
        node.worker.delegate(now, work.execution, address(2), Bytes::new(), out).expect("in progress");
        node.worker.reply(now, work.execution, Bytes::from_static(b"one"), out).expect("in progress");
        node.worker.finish(now, work.execution, out).expect("in progress").expect("a record");
    });
}

#[test]
fn discarded_request_fails_and_runs_again() {
    let mut net = Net::new(3);
    let (call, work) = begun(&mut net);
    prepare(&mut net, &work);
    let full = Status::new(Status::UNAVAILABLE, "full");
    // A request that may be durable cannot fail.
    net.at(1, |node, now, out| node.worker.fail(now, work.execution, &full, out));
    assert!(net.in_flight.is_empty());
    net.at(1, |node, now, out| node.worker.discard(now, work.execution, &full, out));
    net.deliver_all_idle();
    assert_eq!(net.outcome(call), Some(CallOutcome::Failed(CallFailure::Server(full))));
    net.events.clear();
    net.at(0, |node, now, out| node.caller.retry(now, call, out)).expect("a failed call");
    let mut done = Vec::new();
    net.deliver_all(|node, index, work, now, out| {
        done.push(index);
        node.worker.reply(now, work.execution, Bytes::new(), out).expect("in progress");
        node.worker.finish(now, work.execution, out).expect("in progress");
        node.worker.release(now, work.execution, out);
    });
    assert_eq!((net.outcome(call), done), (Some(CallOutcome::Complete), vec![1]));
}

#[test]
fn undecided_request_is_not_confirmed() {
    let mut net = Net::new(3);
    let (call, work) = begun(&mut net);
    prepare(&mut net, &work);
    net.advance(MS * 500);
    assert_eq!(net.outcome(call), None, "the request is confirmed while undecided");
    net.at(1, |node, _, _| node.worker.set_stalled(work.execution, true));
    net.advance(MS * 100);
    assert!(matches!(net.outcome(call), Some(CallOutcome::Failed(CallFailure::Unconfirmed { millis: 50, .. }))));
    // The repeated call does not run the request again.
    net.events.clear();
    net.at(0, |node, now, out| node.caller.retry(now, call, out)).expect("a failed call");
    net.advance(MS * 100);
    assert!(matches!(net.outcome(call), Some(CallOutcome::Failed(CallFailure::Unconfirmed { millis: 50, .. }))));
}

#[test]
fn late_copy_after_record_deletion_is_not_run() {
    let mut net = Net::new(2);
    let calls = [1, 2].map(|_| {
        net.at(0, |node, now, out| {
            let call = node.caller.open(now, CallOptions::default().once(true)).expect("below the limit");
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
