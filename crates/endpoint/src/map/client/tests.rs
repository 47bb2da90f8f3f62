//! A caller whose frames come to the end of their numbers.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, MapRepr};

use super::super::ClearPolicy;
use super::super::lease::{Era, LEASE};
use super::super::{Key, Modify};
use super::*;
use crate::flow::{SPENT, Timing};

const NOW: Instant = Instant(1);

#[derive(Default)]
struct Sent(usize);

impl Outbox for Sent {
    fn send(&mut self, _: Dest, _: &[u8]) {
        self.0 += 1;
    }
}

/// A caller with so many numbers left in one flow.
fn caller(left: u32) -> MapClient {
    let timing = Timing::default();
    let mut client = MapClient::new(ClientConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 10,
        incarnation: 5,
        server: 1,
        server_incarnation: 5,
        slot_base: 0,
        flows: 1,
        element: false,
        inline: false,
        rows: 4,
        width: 1,
        worker: 0,
        votes: false,
        clear: ClearPolicy::Copy,
        start_chunk: 0,
        lease: LEASE,
        era: Era::of_epoch(1).of_element(),
        timing,
    });
    client.flows = vec![Flow::starting_at(timing, u32::MAX - pathcall_wire::W_MAX - left)];
    client
}

/// Begins a call of so many chunks; how many frames are sent.
fn call(client: &mut MapClient, id: u64, chunks: usize) -> usize {
    let operation = Operation::Sum { lanes: vec![1; chunks].into(), modify: Modify::default(), threshold: 2 };
    client.start(NOW, CallId(id), operation);
    let mut sent = Sent::default();
    client.poll(NOW, &mut sent);
    sent.0
}

/// The server says the sum of a row's first round.
fn result(client: &mut MapClient, row: u32) {
    let base = BaseRepr {
        flags: Flags::FROM_SERVER,
        gaid: 7,
        epoch: 1,
        src: 1,
        src_incarnation: 5,
        dst: 10,
        dst_incarnation: 5,
        round: 1,
        ..BaseRepr::new(Kind::MapResult)
    };
    let map = MapRepr { flags: MapFlags::ROUND | MapFlags::LINEAR, lanes: 1, index: row, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 1, 0)];
    emit(&base, &map, &mut bytes).bitmap_and_lanes_mut().1.copy_from_slice(&2i32.to_be_bytes());
    client.handle(NOW, &bytes, &mut Sent::default());
    client.poll(NOW, &mut Sent::default());
}

#[test]
fn what_there_are_numbers_for_is_done_and_what_there_are_none_for_is_told() {
    let mut client = caller(3);
    assert!(client.is_spent(SPENT), "another caller had better do it");
    assert_eq!(call(&mut client, 1, 3), 3);
    (0..3).for_each(|row| result(&mut client, row));
    assert_eq!(client.next_event(), Some((CallId(1), Ok(Output::Sums(vec![2, 2, 2].into())))));
    assert_eq!(client.broken(), None);

    assert_eq!(call(&mut client, 2, 1), 0);
    assert_eq!(client.next_event(), Some((CallId(2), Err(CallError::Spent))));
    call(&mut client, 3, 1);
    assert_eq!(client.next_event(), Some((CallId(3), Err(CallError::Spent))));
}

#[test]
fn a_call_that_is_longer_than_the_numbers_last_ends() {
    let mut client = caller(3);
    assert_eq!(call(&mut client, 1, 4), 3);
    assert_eq!(client.next_event(), Some((CallId(1), Err(CallError::Spent))));
    assert_eq!(client.deadline(), None);
}

#[test]
fn whoever_asks_for_locks_goes_on() {
    let mut client = caller(3);
    let locks = Operation::Count { keys: vec![Key::from("a")], threshold: 1, to: pathcall_wire::Target::Src };
    client.start(NOW, CallId(1), locks);
    assert!(!client.is_spent(SPENT), "they would be lost with it");
}
