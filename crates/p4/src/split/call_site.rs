//! Location of the handler's call, and checks that the function can be split.
//!
//! ```text
//! ingress: before… if (flight) { leading…  CALL  trailing… } else { otherwise… } after…
//! ```

use super::carried::read_by_parser;
use super::liveness::{PlaceSet, flatten, visit_statements, written_places};
use super::{SplitError, SplitWarning, SteeredKey};
use crate::ir::{
    Block, Expr, HeaderId, Program, RegisterId, SlotKind, SourceSpan, Stmt, StmtKind, TableId, Transition,
};

/// Parts of the ingress around the call.
#[derive(Debug, Clone)]
pub struct IngressParts {
    /// Statements before the branch with the call.
    pub before: Block,
    /// Condition of the branch, `None` if the call is unconditional.
    pub condition: Option<Expr>,
    /// Statements of the branch before the call.
    pub leading: Block,
    /// Statements of the branch after the call.
    pub trailing: Block,
    /// Statements if the condition is false.
    pub otherwise: Block,
    /// Statements after the branch.
    pub after: Block,
}

/// Divides the ingress at the call.
///
/// # Errors
/// If there is no call, more than one, or a call nested deeper than one branch.
pub fn split_ingress(program: &Program) -> Result<IngressParts, SplitError> {
    let calls: Vec<SourceSpan> =
        flatten(program, &program.ingress).iter().filter(|stmt| is_call(stmt)).map(|s| s.at).collect();
    let elsewhere = [&program.egress, &program.verify, &program.compute];
    if let Some(stmt) = elsewhere.into_iter().flat_map(|block| flatten(program, block)).find(|stmt| is_call(stmt)) {
        return Err(SplitError::CallPlace { at: stmt.at });
    }
    match calls.as_slice() {
        [] => return Err(SplitError::NoCall),
        [_] => {}
        [_, second, ..] => return Err(SplitError::TwoCalls { at: *second }),
    }
    let mut block: &[Stmt] = &program.ingress;
    // Unwraps a control that consists of the body of another one.
    while let [Stmt { kind: StmtKind::Body(inner), .. }] = block {
        block = inner;
    }
    for (at, stmt) in block.iter().enumerate() {
        let (before, after) = (block[..at].to_vec(), block[at + 1..].to_vec());
        match &stmt.kind {
            StmtKind::Remote => {
                let (leading, trailing, otherwise) = Default::default();
                return Ok(IngressParts { before, condition: None, leading, trailing, otherwise, after });
            }
            StmtKind::If { condition, then, otherwise } => {
                if let Some(call) = then.iter().position(is_call) {
                    return Ok(IngressParts {
                        before,
                        condition: Some(condition.clone()),
                        leading: then[..call].to_vec(),
                        trailing: then[call + 1..].to_vec(),
                        otherwise: otherwise.clone(),
                        after,
                    });
                }
            }
            _ => {}
        }
    }
    Err(SplitError::CallPlace { at: calls[0] })
}

fn is_call(stmt: &Stmt) -> bool {
    matches!(stmt.kind, StmtKind::Remote)
}

/// Refuses functions whose packets cannot be restored after the server.
///
/// # Errors
/// The first reason.
pub fn check_splittable(program: &Program, parts: &IngressParts) -> Result<(), SplitError> {
    let mut refused = None;
    for block in [&parts.before, &parts.leading] {
        visit_statements(program, block, &mut |stmt| {
            let what = match stmt.kind {
                StmtKind::Recirculate => "recirculates",
                StmtKind::Truncate(_) => "truncates",
                _ => return,
            };
            refused.get_or_insert(SplitError::Before { what, at: stmt.at });
        });
    }
    let read = read_by_parser(program);
    for block in [&parts.before, &parts.leading] {
        visit_statements(program, block, &mut |stmt| {
            if matches!(stmt.kind, StmtKind::If { .. } | StmtKind::Body(_) | StmtKind::Apply { .. }) {
                return;
            }
            let mut both = written_places(program, std::slice::from_ref(stmt));
            both.keep(&read);
            if let Some(slot) = both.slots().next() {
                let field = program.slots[slot.0 as usize].name.clone();
                refused.get_or_insert(SplitError::ParserReads { field, at: stmt.at });
            }
        });
    }
    let mut changed = written_places(program, &parts.before);
    changed.join(&written_places(program, &parts.leading));
    for (at, header) in program.headers.iter().enumerate() {
        if header.varbit_bits_max.is_some() && changed.has_valid(HeaderId(at as u32)) {
            refused.get_or_insert(SplitError::Varbit { header: header.name.clone() });
        }
    }
    match refused {
        Some(refused) => Err(refused),
        None => check_emission_order(program),
    }
}

/// Checks that the deparser emits the extracted headers in their order, so that a request holds the packet as received.
fn check_emission_order(program: &Program) -> Result<(), SplitError> {
    let states = &program.parser.states;
    let place = |header: HeaderId| program.deparser.iter().position(|other| *other == header);
    let name = |header: HeaderId| program.headers[header.0 as usize].name.clone();
    // Fixed point: for each state, the highest deparser index of a header extracted on any path to it.
    let mut reached: Vec<Option<usize>> = vec![None; states.len()];
    let mut waiting = if states.is_empty() { vec![] } else { vec![(0, 0)] };
    while let Some((state, least)) = waiting.pop() {
        if reached[state].is_some_and(|known| known >= least) {
            continue;
        }
        reached[state] = Some(least);
        let mut next = least;
        for stmt in flatten(program, &states[state].body) {
            match &stmt.kind {
                StmtKind::Extract { header, .. } => {
                    let Some(place) = place(*header) else {
                        return Err(SplitError::NotEmitted { header: name(*header), at: stmt.at });
                    };
                    if place < next {
                        return Err(SplitError::Order { header: name(*header), at: stmt.at });
                    }
                    next = place + 1;
                }
                StmtKind::Advance(_) => return Err(SplitError::Skipped { at: stmt.at }),
                _ => {}
            }
        }
        waiting.extend(target_states(&states[state].next).into_iter().map(|to| (to, next)));
    }
    check_parser_writes(program)
}

/// Checks that the parser does not write headers that are emitted: the parser runs again on the returned packet.
fn check_parser_writes(program: &Program) -> Result<(), SplitError> {
    let idle = crate::emit::xdp::idle(program);
    for (at, state) in program.parser.states.iter().enumerate() {
        for stmt in flatten(program, &state.body) {
            let written = match &stmt.kind {
                StmtKind::Assign { to, .. }
                | StmtKind::Read { to, .. }
                | StmtKind::Hash { to, .. }
                | StmtKind::Checksum { to, .. }
                | StmtKind::Update { to: Some(to), .. } => match program.slots[to.0 as usize].kind {
                    SlotKind::Field { header, .. } => Some(header),
                    _ => None,
                },
                StmtKind::SetValid { header, .. } if !idle.contains(&(at as u32, *header)) => Some(*header),
                _ => None,
            };
            if let Some(header) = written.filter(|header| program.deparser.contains(header)) {
                let header = program.headers[header.0 as usize].name.clone();
                return Err(SplitError::ParserWrites { header, at: stmt.at });
            }
        }
    }
    Ok(())
}

/// Target states of a transition.
pub fn target_states(next: &Transition) -> Vec<usize> {
    match next {
        Transition::Accept | Transition::Reject(_) => vec![],
        Transition::To(state) => vec![state.0 as usize],
        Transition::Select { cases, .. } => cases.iter().flat_map(|(_, to)| target_states(to)).collect(),
    }
}

/// Differences from the unsplit function that do not prevent a split.
pub fn find_warnings(program: &Program, parts: &IngressParts) -> Vec<SplitWarning> {
    let before = touched_registers(program, &[&parts.before, &parts.leading]);
    let after = touched_registers(program, &[&parts.trailing, &parts.after, &program.egress]);
    let mut warnings = Vec::new();
    for (at, register) in program.registers.iter().enumerate().filter(|(_, register)| !register.mirrored) {
        let of = |list: &[(RegisterId, bool)], writes: bool| {
            list.iter().any(|(id, wrote)| id.0 as usize == at && (*wrote || !writes))
        };
        if (of(&before, true) && of(&after, false)) || (of(&before, false) && of(&after, true)) {
            warnings.push(SplitWarning::RegisterAcross { register: register.name.clone() });
        }
    }
    warnings
}

/// Register arrays that the blocks use, and whether they write them.
fn touched_registers(program: &Program, blocks: &[&Block]) -> Vec<(RegisterId, bool)> {
    let mut found = Vec::new();
    for block in blocks {
        visit_statements(program, block, &mut |stmt| match &stmt.kind {
            StmtKind::Read { register, .. } => found.push((*register, false)),
            StmtKind::Write { register, .. } | StmtKind::Update { register, .. } => found.push((*register, true)),
            _ => {}
        });
    }
    found
}

/// Header fields that a block may write, and headers whose validity it may change.
pub fn changed_headers(program: &Program, places: &PlaceSet) -> (Vec<crate::ir::SlotId>, Vec<HeaderId>) {
    let field = |slot: &crate::ir::SlotId| matches!(program.slots[slot.0 as usize].kind, SlotKind::Field { .. });
    let headers = (0..program.headers.len() as u32).map(HeaderId).filter(|header| places.has_valid(*header));
    (places.slots().filter(field).collect(), headers.collect())
}

/// Keys of mirrored tables whose values are arguments of `steer`.
pub fn steered_keys(program: &Program) -> Vec<SteeredKey> {
    let mut keys = Vec::new();
    for stmt in flatten(program, &program.ingress) {
        let StmtKind::Steer { partition, value } = &stmt.kind else { continue };
        let Some(partition) = program.partitions.iter().position(|known| known.name == *partition) else { continue };
        for (at, table) in program.tables.iter().enumerate().filter(|(_, table)| table.mirrored) {
            let found = table.keys.iter().enumerate().filter(|(_, key)| key.expr == *value);
            keys.extend(found.map(|(key, _)| SteeredKey { partition, table: TableId(at as u32), key }));
        }
    }
    keys
}
