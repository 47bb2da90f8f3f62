//! Tests of successful delegated calls.

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome, CallStatus, CallerEvent};
use pathcall_endpoint::delegate::worker::{DelegateWorker, DelegateWorkerConfig, RequestOrder};
use pathcall_wire::delegate::{DelegateMessage, ResponseId, parse};

use super::network::{MS, Net, Out, address, node};

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn chain_of_n_servers_takes_n_plus_one_messages() {
    let mut net = Net::new(5);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, CallOptions::default()).expect("below the limit");
        node.caller.send(now, call, address(1), text("x"), out).expect("an open call");
        call
    });
    assert_eq!(net.nodes[0].caller.status(call), CallStatus::InProgress);
    net.deliver_all(|node, index, work, now, out| {
        if index < 4 {
            node.worker.delegate(now, work.execution, address(index + 1), work.payload, out).expect("in progress");
        } else {
            node.worker.reply(now, work.execution, text("done"), out).expect("in progress");
        }
        assert_eq!(node.worker.finish(now, work.execution, out), Ok(None));
    });
    assert_eq!((net.outcome(call), net.replies(call)), (Some(CallOutcome::Complete), vec![text("done")]));
    assert_eq!(net.delivered.len(), 5);
    // The whole chain is one branch, without a manifest.
    for message in &net.delivered {
        match parse(message).expect("a message").0 {
            DelegateMessage::Request(request) => {
                assert_eq!((request.request.branch(), request.manifest), (call.request(1), None))
            }
            DelegateMessage::Response(response) => assert_eq!(response.id, ResponseId::Sole(call.request(1))),
            other => panic!("{other:?}"),
        }
    }
    net.advance(MS * 3000);
    assert!(net.is_empty());
}

#[test]
fn execution_with_ten_thousand_requests_sends_no_further_message_for_them() {
    let mut net = Net::new(3);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, CallOptions::default()).expect("below the limit");
        node.caller.send(now, call, address(1), text("x"), out).expect("an open call");
        call
    });
    net.deliver_all(|node, index, work, now, out| {
        if index == 1 {
            for _ in 0..10_000 {
                node.worker.delegate(now, work.execution, address(2), text("y"), out).expect("in progress");
            }
        } else {
            node.worker.reply(now, work.execution, text("z"), out).expect("in progress");
        }
        node.worker.finish(now, work.execution, out).expect("in progress");
    });
    assert_eq!((net.outcome(call), net.replies(call).len()), (Some(CallOutcome::Complete), 10_000));
    assert_eq!(net.delivered.len(), 1 + 2 * 10_000);
}

#[test]
fn ten_thousand_slow_requests_are_pinged() {
    let mut net = Net::new(3);
    let options = CallOptions::default().ping_period(MS * 10).timeout(MS * 50);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("below the limit");
        node.caller.send(now, call, address(1), text("x"), out).expect("an open call");
        call
    });
    let mut at_work = Vec::new();
    net.deliver_all(|node, index, work, now, out| {
        if index == 2 {
            return at_work.push(work.execution);
        }
        for _ in 0..10_000 {
            node.worker.delegate(now, work.execution, address(2), text("y"), out).expect("in progress");
        }
        node.worker.finish(now, work.execution, out).expect("in progress");
    });
    // Far longer than the timeout.
    net.advance(MS * 300);
    assert_eq!(net.outcome(call), None);
    net.at(2, |node, now, out| {
        for execution in at_work {
            node.worker.finish(now, execution, out).expect("in progress");
        }
    });
    net.deliver_all_idle();
    assert_eq!(net.outcome(call), Some(CallOutcome::Complete));
}

#[test]
fn held_message_leaves_before_its_manifest() {
    let mut net = Net::new(2);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, CallOptions::default()).expect("below the limit");
        node.caller.send(now, call, address(1), text("x"), out).expect("an open call");
        call
    });
    let mut execution = None;
    net.deliver_all(|node, _, work, now, out| {
        node.worker.reply(now, work.execution, text("a"), out).expect("in progress");
        execution = Some(work.execution);
    });
    assert_eq!(net.replies(call), Vec::<Bytes>::new(), "the reply is held for the manifest");
    net.advance(MS);
    assert_eq!(net.replies(call), [text("a")]);
    net.at(1, |node, now, out| node.worker.finish(now, execution.expect("an execution"), out)).expect("in progress");
    net.deliver_all_idle();
    assert_eq!((net.outcome(call), net.replies(call)), (Some(CallOutcome::Complete), vec![text("a")]));
    assert_eq!(net.nodes[1].worker.stats().nulls, 1);
}

#[test]
fn replies_wait_for_grants_without_failing() {
    let mut net = Net::new(2);
    let options = CallOptions::default().credit(4).ping_period(MS * 10).timeout(MS * 50);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("below the limit");
        node.caller.send(now, call, address(1), text("x"), out).expect("an open call");
        call
    });
    net.deliver_all(|node, _, work, now, out| {
        for item in 0..100_u8 {
            node.worker.reply(now, work.execution, vec![item].into(), out).expect("in progress");
        }
        node.worker.finish(now, work.execution, out).expect("in progress");
        assert_eq!(node.worker.waiting(work.execution), 96);
    });
    net.advance(MS * 500);
    assert_eq!((net.outcome(call), net.replies(call).len()), (None, 4));
    let mut taken = 0;
    while net.outcome(call).is_none() {
        let CallerEvent::Reply { call, from, .. } = net.events[taken].clone() else { panic!("replies come first") };
        taken += 1;
        net.at(0, |node, _, out| node.caller.record_consumed(call, from, 1, out));
        net.deliver_all_idle();
        assert!(net.replies(call).len() <= taken + 6, "more replies than the credit are in flight");
    }
    let items: Vec<Bytes> = (0..100_u8).map(|item| vec![item].into()).collect();
    assert_eq!((net.outcome(call), net.replies(call)), (Some(CallOutcome::Complete), items));
}

#[test]
fn large_replies_wait_for_grants_by_bytes() {
    const ITEM: usize = 100_000;
    let mut net = Net::new(2);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, CallOptions::default().credit(32)).expect("below the limit");
        node.caller.send(now, call, address(1), text("x"), out).expect("an open call");
        call
    });
    net.deliver_all(|node, _, work, now, out| {
        for item in 0..40_u8 {
            node.worker.reply(now, work.execution, vec![item; ITEM].into(), out).expect("in progress");
        }
        node.worker.finish(now, work.execution, out).expect("in progress");
    });
    // Half a mebibyte, and the reply that crosses it.
    assert_eq!((net.outcome(call), net.replies(call).len()), (None, 6));
    let mut taken = 0;
    while net.outcome(call).is_none() {
        let CallerEvent::Reply { call, from, .. } = net.events[taken].clone() else { panic!("replies come first") };
        taken += 1;
        net.at(0, |node, _, out| node.caller.record_consumed(call, from, ITEM, out));
        net.deliver_all_idle();
        assert!(net.replies(call).len() <= taken + 6, "more bytes than the credit are in flight");
    }
    let items: Vec<Bytes> = (0..40_u8).map(|item| vec![item; ITEM].into()).collect();
    assert_eq!((net.outcome(call), net.replies(call)), (Some(CallOutcome::Complete), items));
}

#[test]
fn oldest_call_is_processed_first() {
    let begun = |order| {
        let mut net = Net::new(3);
        net.nodes[2] = node(2, 1, |config| config.order = order);
        let old = net.at(0, |node, now, _| node.caller.open(now, CallOptions::default()).expect("below the limit"));
        net.now = net.now + MS * 5;
        let new = net.at(1, |node, now, _| node.caller.open(now, CallOptions::default()).expect("below the limit"));
        for (index, call) in [(1, new), (0, old)] {
            net.at(index, |node, now, out| node.caller.send(now, call, address(2), text("x"), out)).expect("open");
        }
        while net.deliver() {}
        let first = net.nodes[2].worker.next(net.now).map(|work| work.call == old);
        first.expect("a waiting request")
    };
    assert!(!begun(RequestOrder::Arrival) && begun(RequestOrder::OldestCall));
}

#[test]
fn large_call_leaves_fair_share_to_others() {
    let mut net = Net::new(4);
    let open = |net: &mut Net, index: usize| {
        net.at(index, |node, now, _| node.caller.open(now, CallOptions::default()).expect("below the limit"))
    };
    let send = |net: &mut Net, index: usize, call, count| {
        for _ in 0..count {
            net.at(index, |node, now, out| node.caller.send(now, call, address(3), text("x"), out)).expect("open");
        }
        while net.deliver() {}
    };
    let calls = [0, 1, 2].map(|index| open(&mut net, index));
    send(&mut net, 0, calls[0], 100);
    let next = |net: &mut Net| {
        let work = net.nodes[3].worker.next(net.now).expect("a waiting request");
        calls.iter().position(|call| *call == work.call).expect("of these")
    };
    assert_eq!([(); 10].map(|()| next(&mut net)), [0; 10]);
    send(&mut net, 1, calls[1], 3);
    send(&mut net, 2, calls[2], 1);
    // The requests of the first call alternate with those of each other call.
    let mut begun = [(); 7].map(|()| next(&mut net));
    begun[..3].sort_unstable();
    begun[3..5].sort_unstable();
    begun[5..].sort_unstable();
    assert_eq!(begun, [0, 1, 2, 0, 1, 0, 1]);
    assert_eq!([(); 87].map(|()| next(&mut net)), [0; 87], "all requests are processed");
    assert!(net.nodes[3].worker.next(net.now).is_none());
}

#[test]
fn expired_request_is_not_begun() {
    let mut net = Net::new(2);
    let options = |deadline| CallOptions::default().deadline(deadline).timeout(MS * 60_000);
    let [late, in_time] = [Some(MS * 10), None].map(|deadline| {
        let call = net.at(0, |node, now, _| node.caller.open(now, options(deadline)).expect("below the limit"));
        for _ in 0..3 {
            net.at(0, |node, now, out| node.caller.send(now, call, address(1), text("x"), out)).expect("open");
        }
        call
    });
    while net.deliver() {}
    let next = |net: &mut Net| net.nodes[1].worker.next(net.now).map(|work| work.call);
    assert_eq!(next(&mut net), Some(late));
    // The clock was not checked since, and the caller has sent nothing.
    net.now = net.now + MS * 11;
    assert_eq!([(); 4].map(|()| next(&mut net)), [Some(in_time), Some(in_time), Some(in_time), None]);
    assert_eq!(net.nodes[1].worker.stats().aborted, 2);
}

#[test]
fn traced_call_returns_its_tree() {
    let mut net = Net::new(4);
    let options = CallOptions::default().traced(true);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, options).expect("below the limit");
        node.caller.send(now, call, address(1), text("x"), out).expect("an open call");
        call
    });
    net.deliver_all(|node, index, work, now, out| {
        node.worker.set_label(work.execution, &format!("step {index}"));
        match index {
            1 => {
                node.worker.delegate(now, work.execution, address(2), text("y"), out).expect("in progress");
                node.worker.delegate(now, work.execution, address(3), text("y"), out).expect("in progress");
            }
            _ => node.worker.reply(now, work.execution, text("z"), out).expect("in progress"),
        }
        node.worker.finish(now + MS * index as u32, work.execution, out).expect("in progress");
    });
    assert_eq!(net.outcome(call), Some(CallOutcome::Complete));
    let Some(CallerEvent::Trace { tree, .. }) = net.events.last() else { panic!("no trace: {:?}", net.events.last()) };
    let labels: Vec<_> = tree.spans.iter().map(|(depth, span)| (*depth, &span.label[..], span.run_time)).collect();
    assert_eq!(labels, [(0, "step 1", MS), (1, "step 2", MS * 2), (1, "step 3", MS * 3)]);
    assert!(tree.complete && tree.to_string().contains("10.0.0.3:7000 step 3: waited 0.000ns, ran 3.000ms"), "{tree}");
}

#[test]
fn request_after_completion_is_refused() {
    let mut net = Net::new(2);
    let call = net.at(0, |node, now, out| {
        let call = node.caller.open(now, CallOptions::default()).expect("below the limit");
        node.caller.send(now, call, address(1), text("x"), out).expect("an open call");
        node.caller.send(now, call, address(1), text("y"), out).expect("an open call");
        call
    });
    net.deliver_all(|node, _, work, now, out| drop(node.worker.finish(now, work.execution, out)));
    assert_eq!(net.outcome(call), Some(CallOutcome::Complete));
    assert!(net.at(0, |node, now, out| node.caller.send(now, call, address(1), text("z"), out)).is_err());
    let mut worker = DelegateWorker::new(DelegateWorkerConfig::new(net.nodes[1].peer.node, address(1)));
    assert!(worker.reply(net.now, call, text("z"), &mut Out::default()).is_err(), "the request is not in progress");
}
