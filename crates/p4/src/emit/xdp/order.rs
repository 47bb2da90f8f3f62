//! Order in which parsers extract headers, and the headers that can be valid in each state.

use std::collections::HashSet;

use super::plan::targets;
use crate::emit::visit;
use crate::ir::{HeaderId, Program, StateId, StmtKind};

/// (state, header) pairs where a parser invalidates a header that cannot be valid there; these statements have no
/// effect.
pub(crate) fn idle(program: &Program) -> HashSet<(u32, HeaderId)> {
    let states = &program.parser.states;
    let mut before = vec![HashSet::<HeaderId>::new(); states.len()];
    let made: Vec<HashSet<HeaderId>> = states.iter().map(|state| made(&state.body)).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for (at, state) in states.iter().enumerate() {
            let behind: HashSet<_> = before[at].union(&made[at]).copied().collect();
            let mut next = Vec::new();
            targets(&state.next, &mut next);
            for to in next {
                let known = &mut before[to.0 as usize];
                let count = known.len();
                known.extend(&behind);
                changed |= known.len() > count;
            }
        }
    }
    let mut idle = HashSet::new();
    for (at, state) in states.iter().enumerate() {
        visit::block(&state.body, &mut |stmt| {
            let StmtKind::SetValid { header, valid: false } = stmt.kind else { return };
            if !before[at].contains(&header) && !made[at].contains(&header) {
                idle.insert((at as u32, header));
            }
        });
    }
    idle
}

/// Headers that a state's statements may make valid.
fn made(body: &crate::ir::Block) -> HashSet<HeaderId> {
    let mut made = HashSet::new();
    visit::block(body, &mut |stmt| {
        if let StmtKind::Extract { header, .. } | StmtKind::SetValid { header, valid: true } = stmt.kind {
            made.insert(header);
        }
    });
    made
}

/// True if each acyclic path through the parser extracts the headers in the deparser's order and contiguously, and
/// makes none valid or invalid otherwise.
pub(super) fn keeps(program: &Program, idle: &HashSet<(u32, HeaderId)>) -> bool {
    let mut moves = false;
    for (at, state) in program.parser.states.iter().enumerate() {
        visit::block(&state.body, &mut |stmt| {
            moves |= match stmt.kind {
                StmtKind::SetValid { header, .. } => !idle.contains(&(at as u32, header)),
                StmtKind::Advance(_) => true,
                _ => false,
            };
        });
    }
    !moves && (program.parser.states.is_empty() || in_order(program, StateId(0), 0, &mut HashSet::new()))
}

/// Checks the paths from a state on; `least` is the lowest index of the next header in the deparser's list.
fn in_order(program: &Program, state: StateId, least: usize, seen: &mut HashSet<(u32, usize)>) -> bool {
    if !seen.insert((state.0, least)) {
        return true;
    }
    let of = &program.parser.states[state.0 as usize];
    let (mut least, mut holds) = (least, true);
    visit::block(&of.body, &mut |stmt| {
        let StmtKind::Extract { header, .. } = stmt.kind else { return };
        let deparser = &program.deparser;
        match deparser.iter().skip(least).position(|id| *id == header) {
            // A header that is listed twice is emitted twice.
            Some(at) if deparser.iter().filter(|id| **id == header).count() == 1 => least += at + 1,
            _ => holds = false,
        }
    });
    let mut next = Vec::new();
    targets(&of.next, &mut next);
    holds && next.into_iter().all(|to| in_order(program, to, least, seen))
}
