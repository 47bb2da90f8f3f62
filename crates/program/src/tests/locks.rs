//! Locks in the element: who holds one, how its grants are counted, and how it comes to the server.

use std::collections::BTreeMap;

use pathcall_wire::map::{LOCK_PARKED, LOCK_TAG};

use super::*;

const ROW: u32 = 2;

fn word(src: u32, seq: u32, flags: u16, tag: u32) -> Vec<u8> {
    let map = MapRepr { flags, threshold: 1, index: ROW, tag, ..MapRepr::default() };
    frame(base(Kind::MapData, src, seq), map, &[])
}

/// Asks who has the lock, and frees it if exactly this acquiring has; the count is at least `grants`.
fn free(owner: u32, tag: u32, grants: u32) -> Vec<u8> {
    of_server(Kind::MapFree, grants, MapRepr { index: ROW, threshold: owner, tag, ..MapRepr::default() })
}

/// What came of a frame for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// Granted, and how often it was by then; or given back.
    Yes(u32),
    /// Denied for this grant.
    No(u32),
    /// It is the server's after so many grants.
    Parked(u32),
    /// Who had it, and how often it was granted.
    Had(u32, u32, u32),
}

fn send(program: &mut Program, bytes: Vec<u8>) -> Said {
    let src = MapFrame::new_checked(&bytes[..]).expect("own frame").base().src();
    let (action, bytes) = run(program, bytes);
    let frame = MapFrame::new_checked(&bytes[..]).expect("own frame");
    let (base, map) = (frame.base(), frame.map());
    match frame.kind() {
        Kind::MapFreed => Said::Had(base.slot(), map.para().cast_unsigned(), base.round()),
        Kind::MapData => {
            assert!(action == Action::Forward(1) && map.has(MapFlags::DIVERTED), "{action:?}");
            Said::Parked(base.round())
        }
        Kind::MapAck => {
            assert_eq!(action, Action::Forward(src));
            if map.has(MapFlags::DENIED) { Said::No(base.round()) } else { Said::Yes(base.round()) }
        }
        kind => panic!("{kind:?}"),
    }
}

fn take(program: &mut Program, src: u32, seq: u32, tag: u32) -> Said {
    send(program, word(src, seq, MapFlags::COUNT, tag))
}

fn give(program: &mut Program, src: u32, seq: u32, tag: u32) -> Said {
    send(program, word(src, seq, MapFlags::CLEAR, tag))
}

#[test]
fn a_lock_belongs_to_one_acquiring_until_that_gives_it_back() {
    let program = &mut program();
    assert_eq!(take(program, 10, 1, 5), Said::Yes(1));
    assert_eq!(take(program, 10, 1, 5), Said::Yes(1), "a repeat is granted again, and is no other grant");
    assert_eq!(give(program, 11, 1, 5), Said::Yes(1), "not its own: nothing is given back");
    assert_eq!(give(program, 10, 2, 6), Said::Yes(1), "nor by another acquiring");
    assert_eq!(give(program, 10, 3, 5), Said::Yes(1));
    assert_eq!(take(program, 10, 1, 5), Said::No(0), "a late repeat takes nothing, and waits for nobody");
    assert_eq!(take(program, 11, 2, 7), Said::Yes(2));
    assert_eq!(take(program, 10, 4, 6), Said::No(2));
    assert_eq!(take(program, 10, 4, 6), Said::No(2));
}

#[test]
fn a_lock_that_is_wanted_goes_to_the_server() {
    let program = &mut program();
    take(program, 10, 1, 5);
    assert_eq!(take(program, 11, 1, 7), Said::No(1));
    assert_eq!(give(program, 10, 2, 5), Said::Parked(1));
    assert_eq!(give(program, 10, 2, 5), Said::Parked(1), "the server may not have heard of it");
    assert_eq!(take(program, 11, 2, 8), Said::No(1), "it is the server's to give");
    assert_eq!(send(program, free(10, 5, 9)), Said::Had(10, 5 | LOCK_PARKED, 1), "another state of it");
    assert_eq!(send(program, free(10, 5 | LOCK_PARKED, 4)), Said::Had(10, 5 | LOCK_PARKED, 4));
    assert_eq!(take(program, 11, 3, 9), Said::Yes(5), "the server has granted it three times meanwhile");
    assert_eq!(send(program, free(10, 5 | LOCK_PARKED, 4)), Said::Had(11, 9, 5), "a late copy frees nobody's");
    assert_eq!(take(program, 10, 3, 6), Said::No(5));
}

#[test]
fn the_server_frees_what_a_holder_has_left_behind() {
    let program = &mut program();
    take(program, 10, 1, 5);
    assert_eq!(send(program, free(10, 0, 0)), Said::Had(10, 5, 1), "asking frees nothing");
    assert_eq!(send(program, free(11, 5, 0)), Said::Had(10, 5, 1));
    assert_eq!(send(program, free(10, 5, 0)), Said::Had(10, 5, 1));
    assert_eq!(take(program, 11, 1, 7), Said::Yes(2));
}

#[test]
fn a_tag_has_no_bits_of_the_element() {
    for tag in [LOCK_TAG + 1, u32::MAX] {
        let (action, _) = run(&mut program(), word(10, 1, MapFlags::COUNT, tag));
        assert_eq!(action, Action::Drop(Reason::Malformed));
    }
}

proptest! {
    /// Whatever callers and server do, and however often it arrives: one holder at a time, and every
    /// grant has a greater number than all before.
    #[test]
    fn grants_are_counted_in_their_order(steps in proptest::collection::vec((0..5u8, any::<bool>(), 1..4usize), 1..200)) {
        let program = &mut program();
        let (mut seqs, mut tags) = (BTreeMap::from([(10, 0), (11, 0)]), 0);
        let mut holder: Option<(u32, u32)> = None;
        let mut parked: Option<(u32, u32)> = None;
        let mut last = 0;
        for (what, one, times) in steps {
            let src = if one { 10 } else { 11 };
            let seq = seqs.get_mut(&src).expect("both are there");
            *seq += 1;
            match what {
                0..=1 => {
                    tags += 1;
                    let said: Vec<Said> = (0..times).map(|_| take(program, src, *seq, tags)).collect();
                    prop_assert!(said.iter().all(|word| *word == said[0]), "{said:?}");
                    match said[0] {
                        Said::Yes(count) => {
                            prop_assert!(holder.is_none() && parked.is_none() && count > last);
                            (holder, last) = (Some((src, tags)), count);
                        }
                        Said::No(count) => prop_assert!((holder.is_some() || parked.is_some()) && count == last),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                2..=3 => {
                    let Some((owner, tag)) = holder.filter(|(owner, _)| *owner == src) else { continue };
                    let said: Vec<Said> = (0..times).map(|_| give(program, src, *seq, tag)).collect();
                    prop_assert!(said.iter().all(|word| *word == said[0]), "{said:?}");
                    parked = matches!(said[0], Said::Parked(_)).then_some((owner, tag));
                    holder = None;
                }
                _ => {
                    // The server has granted it some times, and returns it.
                    let Some((owner, tag)) = parked.take() else { continue };
                    last += times as u32;
                    for _ in 0..times {
                        send(program, free(owner, tag | LOCK_PARKED, last));
                    }
                }
            }
        }
    }
}
