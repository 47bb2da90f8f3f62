//! Finds the handler's call in a program, and what would keep the two parts from being the whole.
//!
//! ```text
//! ingress: before… if (flight) { leading…  CALL  trailing… } else { otherwise… } behind…
//! ```

use super::carried::read_by_parser;
use super::flow::{Places, flat, walk, written};
use super::{Refused, SteeredKey, Warning};
use crate::ir::{Block, Expr, HeaderId, Program, RegisterId, SlotKind, Span, Stmt, StmtKind, TableId, Transition};

/// The ingress, taken apart at the call.
#[derive(Debug, Clone)]
pub struct Parts {
    /// What comes before the branch with the call.
    pub before: Block,
    /// The branch: its condition (none: always), and where it stands.
    pub condition: Option<Expr>,
    /// In the branch, before the call.
    pub leading: Block,
    /// In the branch, behind the call.
    pub trailing: Block,
    /// If the condition does not hold.
    pub otherwise: Block,
    /// What comes behind.
    pub behind: Block,
}

/// Takes the ingress apart.
///
/// # Errors
/// If there is no call, more than one, or it stands deeper than in one branch.
pub fn parts(program: &Program) -> Result<Parts, Refused> {
    let calls: Vec<Span> = flat(program, &program.ingress).iter().filter(|stmt| is_call(stmt)).map(|s| s.at).collect();
    let elsewhere = [&program.egress, &program.verify, &program.compute];
    if let Some(stmt) = elsewhere.into_iter().flat_map(|block| flat(program, block)).find(|stmt| is_call(stmt)) {
        return Err(Refused::CallPlace { at: stmt.at });
    }
    match calls.as_slice() {
        [] => return Err(Refused::NoCall),
        [_] => {}
        [_, second, ..] => return Err(Refused::TwoCalls { at: *second }),
    }
    let mut block: &[Stmt] = &program.ingress;
    // A control that is nothing but the body of another one.
    while let [Stmt { kind: StmtKind::Body(inner), .. }] = block {
        block = inner;
    }
    for (at, stmt) in block.iter().enumerate() {
        let (before, behind) = (block[..at].to_vec(), block[at + 1..].to_vec());
        match &stmt.kind {
            StmtKind::Remote => {
                let (leading, trailing, otherwise) = Default::default();
                return Ok(Parts { before, condition: None, leading, trailing, otherwise, behind });
            }
            StmtKind::If { condition, then, otherwise } => {
                if let Some(call) = then.iter().position(is_call) {
                    return Ok(Parts {
                        before,
                        condition: Some(condition.clone()),
                        leading: then[..call].to_vec(),
                        trailing: then[call + 1..].to_vec(),
                        otherwise: otherwise.clone(),
                        behind,
                    });
                }
            }
            _ => {}
        }
    }
    Err(Refused::CallPlace { at: calls[0] })
}

fn is_call(stmt: &Stmt) -> bool {
    matches!(stmt.kind, StmtKind::Remote)
}

/// Refuses what can't go to a server and come back as it was.
///
/// # Errors
/// The first such thing.
pub fn check(program: &Program, parts: &Parts) -> Result<(), Refused> {
    let mut refused = None;
    for block in [&parts.before, &parts.leading] {
        walk(program, block, &mut |stmt| {
            let what = match stmt.kind {
                StmtKind::Recirculate => "recirculates",
                StmtKind::Truncate(_) => "truncates",
                _ => return,
            };
            refused.get_or_insert(Refused::Before { what, at: stmt.at });
        });
    }
    let read = read_by_parser(program);
    for block in [&parts.before, &parts.leading] {
        walk(program, block, &mut |stmt| {
            if matches!(stmt.kind, StmtKind::If { .. } | StmtKind::Body(_) | StmtKind::Apply { .. }) {
                return;
            }
            let mut both = written(program, std::slice::from_ref(stmt));
            both.keep(&read);
            if let Some(slot) = both.slots().next() {
                let field = program.slots[slot.0 as usize].name.clone();
                refused.get_or_insert(Refused::ParserReads { field, at: stmt.at });
            }
        });
    }
    let mut changed = written(program, &parts.before);
    changed.join(&written(program, &parts.leading));
    for (at, header) in program.headers.iter().enumerate() {
        if header.varbit_bits_max.is_some() && changed.has_valid(HeaderId(at as u32)) {
            refused.get_or_insert(Refused::Varbit { header: header.name.clone() });
        }
    }
    match refused {
        Some(refused) => Err(refused),
        None => as_it_came(program),
    }
}

/// A request holds the packet as it came: the deparser has to give back what the parser took, in its order.
fn as_it_came(program: &Program) -> Result<(), Refused> {
    let states = &program.parser.states;
    let place = |header: HeaderId| program.deparser.iter().position(|other| *other == header);
    let name = |header: HeaderId| program.headers[header.0 as usize].name.clone();
    // The largest place that any way to a state has taken, to a fixed point.
    let mut reached: Vec<Option<usize>> = vec![None; states.len()];
    let mut waiting = if states.is_empty() { vec![] } else { vec![(0, 0)] };
    while let Some((state, least)) = waiting.pop() {
        if reached[state].is_some_and(|known| known >= least) {
            continue;
        }
        reached[state] = Some(least);
        let mut next = least;
        for stmt in flat(program, &states[state].body) {
            match &stmt.kind {
                StmtKind::Extract { header, .. } => {
                    let Some(place) = place(*header) else {
                        return Err(Refused::NotEmitted { header: name(*header), at: stmt.at });
                    };
                    if place < next {
                        return Err(Refused::Order { header: name(*header), at: stmt.at });
                    }
                    next = place + 1;
                }
                StmtKind::Advance(_) => return Err(Refused::Skipped { at: stmt.at }),
                _ => {}
            }
        }
        waiting.extend(targets(&states[state].next).into_iter().map(|to| (to, next)));
    }
    only_takes(program)
}

/// The parser runs on the packet once more when that is back: it may take what leaves, and not change it.
fn only_takes(program: &Program) -> Result<(), Refused> {
    let idle = crate::emit::xdp::idle(program);
    for (at, state) in program.parser.states.iter().enumerate() {
        for stmt in flat(program, &state.body) {
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
                return Err(Refused::ParserWrites { header, at: stmt.at });
            }
        }
    }
    Ok(())
}

/// The states that a transition may go to.
pub fn targets(next: &Transition) -> Vec<usize> {
    match next {
        Transition::Accept | Transition::Reject(_) => vec![],
        Transition::To(state) => vec![state.0 as usize],
        Transition::Select { cases, .. } => cases.iter().flat_map(|(_, to)| targets(to)).collect(),
    }
}

/// What may differ from the function in one piece, although nothing is refused.
pub fn warnings(program: &Program, parts: &Parts) -> Vec<Warning> {
    let before = touched(program, &[&parts.before, &parts.leading]);
    let behind = touched(program, &[&parts.trailing, &parts.behind, &program.egress]);
    let mut warnings = Vec::new();
    for (at, register) in program.registers.iter().enumerate().filter(|(_, register)| !register.mirrored) {
        let of = |list: &[(RegisterId, bool)], writes: bool| {
            list.iter().any(|(id, wrote)| id.0 as usize == at && (*wrote || !writes))
        };
        if (of(&before, true) && of(&behind, false)) || (of(&before, false) && of(&behind, true)) {
            warnings.push(Warning::RegisterAcross { register: register.name.clone() });
        }
    }
    warnings
}

/// Register arrays that blocks use, and whether they write.
fn touched(program: &Program, blocks: &[&Block]) -> Vec<(RegisterId, bool)> {
    let mut found = Vec::new();
    for block in blocks {
        walk(program, block, &mut |stmt| match &stmt.kind {
            StmtKind::Read { register, .. } => found.push((*register, false)),
            StmtKind::Write { register, .. } | StmtKind::Update { register, .. } => found.push((*register, true)),
            _ => {}
        });
    }
    found
}

/// Fields of headers that a block may write, and headers whose validity it may change.
pub fn changed_headers(program: &Program, places: &Places) -> (Vec<crate::ir::SlotId>, Vec<HeaderId>) {
    let field = |slot: &crate::ir::SlotId| matches!(program.slots[slot.0 as usize].kind, SlotKind::Field { .. });
    let headers = (0..program.headers.len() as u32).map(HeaderId).filter(|header| places.has_valid(*header));
    (places.slots().filter(field).collect(), headers.collect())
}

/// Keys of mirrored tables that are what some `steer` says.
pub fn steered_keys(program: &Program) -> Vec<SteeredKey> {
    let mut keys = Vec::new();
    for stmt in flat(program, &program.ingress) {
        let StmtKind::Steer { partition, value } = &stmt.kind else { continue };
        let Some(partition) = program.partitions.iter().position(|known| known.name == *partition) else { continue };
        for (at, table) in program.tables.iter().enumerate().filter(|(_, table)| table.mirrored) {
            let found = table.keys.iter().enumerate().filter(|(_, key)| key.expr == *value);
            keys.extend(found.map(|(key, _)| SteeredKey { partition, table: TableId(at as u32), key }));
        }
    }
    keys
}
