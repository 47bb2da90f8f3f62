//! Fuzz target of delegated calls: messages to a caller and a worker. The input is a sequence of messages, each after
//! its length; time passes between messages. The call ID of each message is corrected, so that messages pass admission.
//! Checks: no panic, the number of sent messages is bounded.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, DelegateCaller, DelegateCallerConfig};
use pathcall_endpoint::delegate::worker::record::RequestRecord;
use pathcall_endpoint::delegate::worker::{DelegateWorker, DelegateWorkerConfig};
use pathcall_endpoint::delegate::{MessageOutbox, NodeId, PeerNode, is_for_caller};
use pathcall_wire::Instant;
use pathcall_wire::delegate::parse;

/// Outbox that counts the sent messages.
#[derive(Default)]
struct SentMessageCounter(usize);

impl MessageOutbox for SentMessageCounter {
    fn send(&mut self, _: SocketAddr, head: &[u8], payload: &Bytes) {
        parse(&[head, payload].concat()).expect("sent message is valid");
        self.0 += 1;
    }
}

/// Tests one input.
pub fn run(data: &[u8]) {
    let _ = parse(data);
    if let Ok(record) = RequestRecord::from_bytes(Bytes::copy_from_slice(data)) {
        assert_eq!(RequestRecord::from_bytes(record.to_bytes().into()).as_ref(), Ok(&record));
    }
    let address = SocketAddr::from(([10, 0, 0, 1], 7000));
    let peer = PeerNode { node: NodeId::new(2), address };
    let config = DelegateCallerConfig { requests_max: 1000, ..DelegateCallerConfig::new(NodeId::new(1), address) };
    let mut caller = DelegateCaller::new(config);
    let mut worker = DelegateWorker::new(DelegateWorkerConfig {
        executions_max: 1000,
        ..DelegateWorkerConfig::new(peer.node, address)
    });
    let (mut out, mut now, mut rest) = (SentMessageCounter::default(), Instant(1 << 40), data);
    let options = CallOptions::default().ping_period(Duration::from_millis(5)).traced(true);
    let call = caller.open(now, options).expect("room");
    caller.send(now, call, address, Bytes::new(), &mut out).expect("an open call");
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(after.len());
        let (message, after) = after.split_at(len);
        (rest, now) = (after, now + Duration::from_millis(3));
        let mut message = message.to_vec();
        if let Some(id) = message.get_mut(4..14) {
            id.copy_from_slice(&call.to_be_bytes());
        }
        let (message, before) = (Bytes::from(message), out.0);
        if is_for_caller(&message) {
            caller.handle(now, peer, &message, &mut out);
        } else {
            worker.handle(now, PeerNode { node: NodeId::new(1), ..peer }, &message, &mut out);
            worker.handle(now, peer, &message, &mut out);
        }
        while let Some(work) = worker.next(now) {
            let _ = worker.delegate(now, work.execution, address, Bytes::new(), &mut out);
            let _ = worker.reply(now, work.execution, work.payload, &mut out);
            if let Ok(Some(_)) = worker.finish(now, work.execution, &mut out) {
                worker.release(now, work.execution, &mut out);
            }
        }
        caller.poll(now, &mut out);
        worker.poll(now, &mut out);
        while caller.next_event().is_some() || worker.next_event().is_some() {}
        assert!(out.0 - before < 4096, "{} messages at once", out.0 - before);
    }
}
