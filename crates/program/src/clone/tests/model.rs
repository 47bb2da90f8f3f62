//! Model test of calls: idle states decide the servers, and one answer of each call passes.

use std::collections::{BTreeMap, BTreeSet};

use pathcall_wire::clone::ServerReport;
use proptest::prelude::*;

use super::*;

const SERVERS: u32 = 4;

/// Step of a test.
#[derive(Debug, Clone)]
enum Step {
    /// Request with its group and table, whether it may be cloned, and whether it goes to the shorter queue.
    Ask { grp: u32, idx: u8, clone: bool, shortest: bool },
    /// Answer to one of the open calls by a server that has it, with the server's state. The
    /// network has delivered this number of later reports before.
    Answer { call: usize, by: usize, state: u16, late: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (0..groups(SERVERS as usize), any::<u8>(), any::<bool>(), any::<bool>());
    prop_oneof![
        ask.prop_map(|(grp, idx, clone, shortest)| Step::Ask { grp, idx, clone, shortest }),
        (any::<usize>(), any::<usize>(), 0u16..3, 0u32..3).prop_map(|(call, by, state, late)| Step::Answer {
            call,
            by,
            state,
            late
        }),
    ]
}

proptest! {
    #[test]
    fn program_matches_clone_model(steps in proptest::collection::vec(step(), 1..300)) {
        let many = CloneSize { slots: 1 << 12, ..TABLES };
        let mut program = SwitchProgram::with_clones(SIZE, many, RepeatFilterProfile::FullSequence);
        install(&mut program, 1, (0..SERVERS).map(|sid| FIRST + sid).collect());
        (0..SERVERS).map(|sid| FIRST + sid).chain([CALLER]).for_each(|endpoint| admit(&mut program, endpoint, GAID));
        let mut states = [0; SERVERS as usize];
        // Numbers of the reports, which wrap around soon.
        let mut numbers = [u32::MAX - 9; SERVERS as usize];
        let mut reported = BTreeSet::new();
        // For each call, the servers that have it and have not answered.
        let (mut calls, mut answered) = (Vec::new(), BTreeSet::new());
        let mut passed = BTreeMap::<usize, usize>::new();
        for step in steps {
            match step {
                Step::Ask { grp, idx, clone, shortest } => {
                    let flags = if clone { CloneFlags::CLONE } else { 0 } | if shortest { CloneFlags::SHORTEST } else { 0 };
                    let (first, second) = pair(grp, SERVERS as usize).expect("a group");
                    let [one, other] = [first, second].map(|sid| states[usize::from(sid)]);
                    let to = if clone && one == 0 && other == 0 {
                        vec![first, second]
                    } else if shortest && other < one {
                        vec![second]
                    } else {
                        vec![first]
                    };
                    let (action, mut bytes) = run(&mut program, request(CloneRepr { grp, idx, flags, ..head() }));
                    let mut got = Vec::new();
                    match action {
                        FrameAction::Forward(endpoint) => got.push(endpoint),
                        FrameAction::Clone(endpoint) => {
                            got.push(endpoint);
                            let again = program.recirculate(&mut bytes).action;
                            prop_assert!(matches!(again, FrameAction::Forward(_)));
                            got.push(dst(&bytes).0);
                        }
                        other => prop_assert!(false, "{other:?}"),
                    }
                    prop_assert_eq!(got, to.iter().map(|sid| FIRST + u32::from(*sid)).collect::<Vec<_>>());
                    calls.push((bytes, to));
                }
                Step::Answer { call, by, state, late } if !calls.is_empty() => {
                    let call = call % calls.len();
                    let (request, has) = &mut calls[call];
                    if has.is_empty() {
                        continue;
                    }
                    let sid = has.remove(by % has.len());
                    let number = &mut numbers[usize::from(sid)];
                    let late = if reported.insert(sid) { 0 } else { late };
                    if late == 0 {
                        *number = ServerReport { number: *number, state }.next(state).number;
                        states[usize::from(sid)] = state;
                    }
                    let mut bytes = answer(request, sid, state);
                    let number = if *number <= late { u32::MAX - late } else { *number - late };
                    let mut frame = CloneFrame::new_checked(&mut bytes[..]).expect("a frame");
                    frame.base_mut().set_round(number);
                    let (action, _) = run(&mut program, bytes);
                    let first = answered.insert(call);
                    prop_assert_eq!(action == FrameAction::Forward(CALLER), first, "{:?}", action);
                    *passed.entry(call).or_default() += usize::from(first);
                }
                Step::Answer { .. } => {}
            }
            prop_assert_eq!(self::states(&program, GAID), states);
        }
        prop_assert!(passed.values().all(|answers| *answers == 1));
    }
}
