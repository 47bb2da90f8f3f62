//! What ends, and when, once somebody falls silent or what it said is old.

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_endpoint::delegate::worker::{AbortReason, Work, WorkerEvent};
use pathcall_endpoint::delegate::Context;

use super::net::{MS, Net, address, node};

const SHORT: fn() -> CallOptions = || CallOptions { ping_period: MS * 10, timeout: MS * 50, ..CallOptions::default() };

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
    let options = CallOptions { ping_period: MS * 5_000, timeout: MS * 10_000, ..CallOptions::default() };
    let begun = net.now;
    call(&mut net, CallOptions { deadline: Some(MS * 200), ..options });
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
