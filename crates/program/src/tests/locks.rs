//! Tests of locks in the element: owners, counts of grants, and the transfer to the server.

use std::collections::BTreeMap;

use pathcall_wire::map::{LOCK_PARKED, LOCK_TAG};

use super::*;

const ROW: u32 = 2;

fn answer(src: u32, seq: u32, flags: u16, tag: u32) -> Vec<u8> {
    let map = MapRepr { flags, threshold: 1, index: ROW, tag, ..MapRepr::default() };
    frame(base(FrameKind::MapData, src, seq), map, &[])
}

/// Frame of the server that asks for the owner, and frees the lock if exactly this acquisition has it; raises the count
/// to `grants`.
fn free(owner: u32, tag: u32, grants: u32) -> Vec<u8> {
    of_server(FrameKind::MapFree, grants, MapRepr { index: ROW, threshold: owner, tag, ..MapRepr::default() })
}

/// Answer to a lock frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockAnswer {
    /// Granted, with the number of grants; or released.
    Granted(u32),
    /// Denied, with the number of the current grant.
    Denied(u32),
    /// Parked for the server, with the number of grants.
    Parked(u32),
    /// Former owner and tag, and the number of grants.
    Owner(u32, u32, u32),
}

fn send(program: &mut SwitchProgram, bytes: Vec<u8>) -> LockAnswer {
    let src = MapFrame::new_checked(&bytes[..]).expect("own frame").base().src();
    let (action, bytes) = run(program, bytes);
    let frame = MapFrame::new_checked(&bytes[..]).expect("own frame");
    let (base, map) = (frame.base(), frame.map());
    match frame.kind() {
        FrameKind::MapFreed => LockAnswer::Owner(base.slot(), map.para().cast_unsigned(), base.round()),
        FrameKind::MapData => {
            assert!(action == FrameAction::Forward(1) && map.has(MapFlags::DIVERTED), "{action:?}");
            LockAnswer::Parked(base.round())
        }
        FrameKind::MapAck => {
            assert_eq!(action, FrameAction::Forward(src));
            if map.has(MapFlags::DENIED) { LockAnswer::Denied(base.round()) } else { LockAnswer::Granted(base.round()) }
        }
        kind => panic!("{kind:?}"),
    }
}

fn acquire(program: &mut SwitchProgram, src: u32, seq: u32, tag: u32) -> LockAnswer {
    send(program, answer(src, seq, MapFlags::COUNT, tag))
}

fn release(program: &mut SwitchProgram, src: u32, seq: u32, tag: u32) -> LockAnswer {
    send(program, answer(src, seq, MapFlags::CLEAR, tag))
}

#[test]
fn lock_belongs_to_one_acquisition_until_its_release() {
    let program = &mut program();
    assert_eq!(acquire(program, 10, 1, 5), LockAnswer::Granted(1));
    assert_eq!(acquire(program, 10, 1, 5), LockAnswer::Granted(1), "a repeat gets the same grant");
    assert_eq!(release(program, 11, 1, 5), LockAnswer::Granted(1), "not the owner: nothing is released");
    assert_eq!(release(program, 10, 2, 6), LockAnswer::Granted(1), "not the tag of the owner: nothing is released");
    assert_eq!(release(program, 10, 3, 5), LockAnswer::Granted(1));
    assert_eq!(
        acquire(program, 10, 1, 5),
        LockAnswer::Denied(0),
        "a late repeat acquires nothing, and waits for nobody"
    );
    assert_eq!(acquire(program, 11, 2, 7), LockAnswer::Granted(2));
    assert_eq!(acquire(program, 10, 4, 6), LockAnswer::Denied(2));
    assert_eq!(acquire(program, 10, 4, 6), LockAnswer::Denied(2));
}

#[test]
fn wanted_lock_is_parked_for_server() {
    let program = &mut program();
    acquire(program, 10, 1, 5);
    assert_eq!(acquire(program, 11, 1, 7), LockAnswer::Denied(1));
    assert_eq!(release(program, 10, 2, 5), LockAnswer::Parked(1));
    assert_eq!(release(program, 10, 2, 5), LockAnswer::Parked(1), "the server may not have received the first release");
    assert_eq!(acquire(program, 11, 2, 8), LockAnswer::Denied(1), "the lock is parked for the server");
    assert_eq!(
        send(program, free(10, 5, 9)),
        LockAnswer::Owner(10, 5 | LOCK_PARKED, 1),
        "wrong tag: the lock is not freed"
    );
    assert_eq!(send(program, free(10, 5 | LOCK_PARKED, 4)), LockAnswer::Owner(10, 5 | LOCK_PARKED, 4));
    assert_eq!(acquire(program, 11, 3, 9), LockAnswer::Granted(5), "the server has granted it three times");
    assert_eq!(send(program, free(10, 5 | LOCK_PARKED, 4)), LockAnswer::Owner(11, 9, 5), "a late copy frees nothing");
    assert_eq!(acquire(program, 10, 3, 6), LockAnswer::Denied(5));
}

#[test]
fn server_frees_lock_of_lost_holder() {
    let program = &mut program();
    acquire(program, 10, 1, 5);
    assert_eq!(send(program, free(10, 0, 0)), LockAnswer::Owner(10, 5, 1), "a question frees nothing");
    assert_eq!(send(program, free(11, 5, 0)), LockAnswer::Owner(10, 5, 1));
    assert_eq!(send(program, free(10, 5, 0)), LockAnswer::Owner(10, 5, 1));
    assert_eq!(acquire(program, 11, 1, 7), LockAnswer::Granted(2));
}

#[test]
fn tag_with_element_bits_is_rejected() {
    for tag in [LOCK_TAG + 1, u32::MAX] {
        let (action, _) = run(&mut program(), answer(10, 1, MapFlags::COUNT, tag));
        assert_eq!(action, FrameAction::Drop(FrameDropReason::Malformed));
    }
}

proptest! {
    /// For any sequence of frames of callers and server, with repeats: at most one holder, and the grant number always
    /// rises.
    #[test]
    fn lock_grant_numbers_rise_with_each_grant(steps in proptest::collection::vec((0..5u8, any::<bool>(), 1..4usize), 1..200)) {
        let program = &mut program();
        let (mut seqs, mut tags) = (BTreeMap::from([(10, 0), (11, 0)]), 0);
        let mut holder: Option<(u32, u32)> = None;
        let mut parked: Option<(u32, u32)> = None;
        let mut last = 0;
        for (operation, first_caller, times) in steps {
            let src = if first_caller { 10 } else { 11 };
            let seq = seqs.get_mut(&src).expect("a known caller");
            *seq += 1;
            match operation {
                0..=1 => {
                    tags += 1;
                    let answers: Vec<LockAnswer> = (0..times).map(|_| acquire(program, src, *seq, tags)).collect();
                    prop_assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
                    match answers[0] {
                        LockAnswer::Granted(count) => {
                            prop_assert!(holder.is_none() && parked.is_none() && count > last);
                            (holder, last) = (Some((src, tags)), count);
                        }
                        LockAnswer::Denied(count) => prop_assert!((holder.is_some() || parked.is_some()) && count == last),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                2..=3 => {
                    let Some((owner, tag)) = holder.filter(|(owner, _)| *owner == src) else { continue };
                    let answers: Vec<LockAnswer> = (0..times).map(|_| release(program, src, *seq, tag)).collect();
                    prop_assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
                    parked = matches!(answers[0], LockAnswer::Parked(_)).then_some((owner, tag));
                    holder = None;
                }
                _ => {
                    // The server has granted the lock several times, and returns it.
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
