//! Tests of a caller that uses up its sequence numbers.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, MapFlags, MapRepr};

use super::super::{Ack, Key, Modify};
use super::*;
use crate::flow::{FlowTiming, RENEWAL_AT};

const NOW: Instant = Instant(1);

#[derive(Default)]
struct Sent(usize);

impl FrameSink for Sent {
    fn send(&mut self, _: Dest, _: &[u8]) {
        self.0 += 1;
    }
}

/// Caller with one flow and `left` sequence numbers.
fn caller(left: u32) -> MapClient {
    let mut client = MapClient::new(ClientConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 10,
        incarnation: 5,
        server: 1,
        server_incarnation: 5,
        rows: 4,
        width: 1,
        ..ClientConfig::default()
    });
    client.flows = vec![Flow::starting_at(FlowTiming::default(), u32::MAX - pathcall_wire::W_MAX - left)];
    client
}

/// Starts a call of this number of chunks. Returns the number of sent frames.
fn call(client: &mut MapClient, id: u64, chunks: usize) -> usize {
    let operation = Operation::Sum {
        lanes: vec![1; chunks].into(),
        modify: Modify::default(),
        threshold: 2,
        to: ForwardTarget::All,
    };
    client.start(NOW, CallId(id), operation);
    let mut sent = Sent::default();
    client.poll(NOW, &mut sent);
    sent.0
}

/// Delivers the server's result of round 1 of a row.
fn deliver_result(client: &mut MapClient, row: u32) {
    let base = BaseRepr {
        flags: Flags::FROM_SERVER,
        gaid: 7,
        epoch: 1,
        src: 1,
        src_incarnation: 5,
        dst: 10,
        dst_incarnation: 5,
        round: 1,
        ..BaseRepr::new(FrameKind::MapResult)
    };
    let map = MapRepr { flags: MapFlags::ROUND | MapFlags::LINEAR, lanes: 1, index: row, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 1, 0)];
    emit(&base, &map, &mut bytes).bitmap_and_lanes_mut().1.copy_from_slice(&2i32.to_be_bytes());
    client.handle(NOW, &bytes);
    client.poll(NOW, &mut Sent::default());
}

#[test]
fn call_without_sequence_numbers_fails_after_earlier_calls() {
    let mut client = caller(3);
    assert!(client.needs_successor(RENEWAL_AT), "a new caller should replace this one");
    assert_eq!(call(&mut client, 1, 3), 3);
    (0..3).for_each(|row| deliver_result(&mut client, row));
    assert_eq!(client.next_event(), Some((CallId(1), Ok(Output::Sums(vec![2, 2, 2].into())))));
    assert_eq!(client.failure(), None);

    assert_eq!(call(&mut client, 2, 1), 0);
    assert_eq!(client.next_event(), Some((CallId(2), Err(CallError::SequenceExhausted))));
    call(&mut client, 3, 1);
    assert_eq!(client.next_event(), Some((CallId(3), Err(CallError::SequenceExhausted))));
}

#[test]
fn call_longer_than_remaining_sequence_numbers_fails() {
    let mut client = caller(3);
    assert_eq!(call(&mut client, 1, 4), 3);
    assert_eq!(client.next_event(), Some((CallId(1), Err(CallError::SequenceExhausted))));
    assert_eq!(client.deadline(), None);
}

#[test]
fn caller_with_lock_request_is_not_replaced() {
    let mut client = caller(3);
    let locks = Operation::Count {
        keys: vec![Key::from("a")],
        threshold: 1,
        to: pathcall_wire::ForwardTarget::Src,
        ack: Ack::Element,
    };
    client.start(NOW, CallId(1), locks);
    assert!(!client.needs_successor(RENEWAL_AT), "a new caller would lose the locks");
}
