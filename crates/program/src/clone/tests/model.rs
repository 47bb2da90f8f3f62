//! The program beside a model of it: two idle bits become two servers, and one answer of each call passes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SERVERS: u32 = 4;

/// What happens.
#[derive(Debug, Clone)]
enum Step {
    /// A caller asks: group, table, whether it may be cloned, and to the shorter queue.
    Ask { grp: u32, idx: u8, clone: bool, shortest: bool },
    /// Of the calls on their way, one is answered by a server that has it, so busy.
    Answer { call: usize, by: usize, state: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (0..groups(SERVERS as usize), any::<u8>(), any::<bool>(), any::<bool>());
    prop_oneof![
        ask.prop_map(|(grp, idx, clone, shortest)| Step::Ask { grp, idx, clone, shortest }),
        (any::<usize>(), any::<usize>(), 0u16..3).prop_map(|(call, by, state)| Step::Answer { call, by, state }),
    ]
}

proptest! {
    #[test]
    fn the_program_does_what_its_model_does(steps in proptest::collection::vec(step(), 1..300)) {
        let many = CloneSize { slots: 1 << 12, ..TABLES };
        let mut program = Program::with_clones(SIZE, many, Profile::FullSequence);
        install(&mut program, 1, (0..SERVERS).map(|sid| FIRST + sid).collect());
        (0..SERVERS).map(|sid| FIRST + sid).chain([CALLER]).for_each(|endpoint| admit(&mut program, endpoint, GAID));
        let mut states = [0; SERVERS as usize];
        // By call: who has it and has not answered.
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
                        Action::Forward(endpoint) => got.push(endpoint),
                        Action::Clone(endpoint) => {
                            got.push(endpoint);
                            let again = program.recirculate(&mut bytes).action;
                            prop_assert!(matches!(again, Action::Forward(_)));
                            got.push(dst(&bytes).0);
                        }
                        other => prop_assert!(false, "{other:?}"),
                    }
                    prop_assert_eq!(got, to.iter().map(|sid| FIRST + u32::from(*sid)).collect::<Vec<_>>());
                    calls.push((bytes, to));
                }
                Step::Answer { call, by, state } if !calls.is_empty() => {
                    let call = call % calls.len();
                    let (asked, has) = &mut calls[call];
                    if has.is_empty() {
                        continue;
                    }
                    let sid = has.remove(by % has.len());
                    states[usize::from(sid)] = state;
                    let (action, _) = run(&mut program, answer(asked, sid, state));
                    let first = answered.insert(call);
                    prop_assert_eq!(action == Action::Forward(CALLER), first, "{:?}", action);
                    *passed.entry(call).or_default() += usize::from(first);
                }
                Step::Answer { .. } => {}
            }
            prop_assert_eq!(program.tables().loads(GAID), Ok((&states[..], &states[..])));
        }
        prop_assert!(passed.values().all(|answers| *answers == 1));
    }
}
