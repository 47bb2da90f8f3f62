//! Requests that take longer to come than their call's time-out.

use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, Outcome};
use pathcall_endpoint::delegate::worker::WorkerStats;
use pathcall_endpoint::delegate::{Context, Peer};
use pathcall_wire::delegate::Message;

use super::net::{MS, Net, address};

const OPTIONS: CallOptions = CallOptions::new().ping_period(MS.saturating_mul(10)).timeout(MS.saturating_mul(50));

/// A call of node 0 that node 1 has passed on to node 2, by a message that is on its way: that message.
fn passed_on(net: &mut Net, chained: bool) -> (Context, (SocketAddr, Peer, Bytes)) {
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, OPTIONS).expect("room");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    });
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    net.at(1, |node, now, out| {
        node.worker.delegate(now, work.execution, address(2), vec![7; 100_000].into(), out).expect("at work");
        if !chained {
            node.worker.reply(now, work.execution, Bytes::new(), out).expect("at work");
        }
        node.worker.finish(now, work.execution, out).expect("at work");
    });
    let long = net.on_way.iter().position(|(to, ..)| *to == address(2)).expect("it was sent");
    (call, net.on_way.remove(long).expect("there"))
}

/// It gets on for so many milliseconds.
fn gets_on(net: &mut Net, (_, _, message): &(SocketAddr, Peer, Bytes), millis: u32) {
    for _ in 0..millis / 10 {
        net.at(2, |node, now, _| node.worker.arriving(now, &message[..200]));
        net.pass(MS * 10);
    }
}

#[test]
fn one_that_gets_on_is_in_progress() {
    for chained in [false, true] {
        let mut net = Net::new(3);
        let (call, long) = passed_on(&mut net, chained);
        gets_on(&mut net, &long, 1_000);
        assert_eq!(net.outcome(call), None, "chained: {chained}");
        net.on_way.push_back(long);
        net.settle(|node, _, work, now, out| drop(node.worker.finish(now, work.execution, out)));
        assert_eq!(net.outcome(call), Some(Outcome::Complete), "chained: {chained}");
        // The next call says that this one has ended.
        net.pass(MS * 1_000);
        assert!(net.nodes[2].worker.is_empty());
    }
}

#[test]
fn one_that_gets_stuck_fails_its_call_in_time() {
    let mut net = Net::new(3);
    let (call, long) = passed_on(&mut net, false);
    gets_on(&mut net, &long, 300);
    assert_eq!(net.outcome(call), None);
    // Time kept is 128 ms here: a third of that counts.
    net.pass(MS * (50 + 43 + 20));
    assert_eq!(net.outcome(call), Some(Outcome::Failed(CallFailure::Unconfirmed { millis: 50 })));
    net.pass(MS * 34_000);
    assert!(net.nodes[2].worker.is_empty());
}

#[test]
fn one_of_a_call_that_is_aborted_meanwhile_is_not_begun_however_late_it_comes() {
    let mut net = Net::new(3);
    let (call, long) = passed_on(&mut net, false);
    gets_on(&mut net, &long, 100);
    net.at(0, |node, now, out| node.caller.abort(now, call, out));
    net.pass(MS * 30);
    assert_eq!(net.outcome(call), Some(Outcome::Aborted { confirmed: true }));
    // Longer than aborted calls are remembered.
    gets_on(&mut net, &long, 50_000);
    net.on_way.push_back(long);
    net.rest();
    let WorkerStats { requests, late, .. } = net.nodes[2].worker.stats();
    assert_eq!((requests, late), (0, 1));
}

/// A call of node 0 that node 1 has answered by one response, which is lost; then a long message from `server` gets
/// on for so many milliseconds.
fn lost_while_another_comes(server: usize, millis: u32) -> (Net, Context) {
    let mut net = Net::new(3);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, OPTIONS).expect("room");
        node.caller.send(now, call, address(1), Bytes::new(), out).expect("an open call");
        call
    });
    while net.deliver() {}
    let work = net.at(1, |node, now, _| node.worker.next(now)).expect("it is there");
    net.at(1, |node, now, out| {
        node.worker.reply(now, work.execution, Bytes::new(), out).expect("at work");
        node.worker.finish(now, work.execution, out).expect("at work");
    });
    net.lose(|message| matches!(message, Message::Response(_)));
    for _ in 0..millis / 10 {
        net.pass(MS * 10);
        net.at(0, |node, now, _| node.caller.alive(now, address(server)));
    }
    (net, call)
}

#[test]
fn a_lost_response_is_noticed_while_a_long_message_of_another_server_comes() {
    let (net, call) = lost_while_another_comes(2, 1_000);
    assert_eq!(net.outcome(call), Some(Outcome::Failed(CallFailure::Lost { millis: 50 })));
    // From where it is awaited it may be what comes.
    let (net, call) = lost_while_another_comes(1, 1_000);
    assert_eq!(net.outcome(call), None);
}
