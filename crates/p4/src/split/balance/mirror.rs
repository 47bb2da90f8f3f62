//! Mirrored tables in the element: entries carry a number and a mode.

use std::collections::HashMap;

use super::constructors::{action, number, var};
use super::{ElementTable, MirroredAction, NUMBERLESS, Sizes};
use crate::ir::{Action, ActionId, Block, Expr, ExprKind, Program, RegisterId, SlotId, StmtKind, TableId, Ty};

/// Adds number and mode to the entries of a table. Its actions only record the entry found, because the decision
/// whether a hit is used comes after the lookup.
pub(super) fn mirror(
    program: &mut Program,
    id: TableId,
    sizes: &Sizes,
    first_number: u32,
    mirrored: &[RegisterId],
) -> ElementTable {
    let at = id.0 as usize;
    let name = program.tables[at].name.clone();
    let number_of = var(program, &format!("{name}.number"), Ty::Bit(32));
    let mode = var(program, &format!("{name}.mode"), Ty::Bit(2));
    let tag = var(program, &format!("{name}.tag"), Ty::Bit(8));
    let indices = index_slots(program, mirrored);
    let originals = program.tables[at].actions.clone();
    let mut actions = Vec::new();
    for (place, of_server) in originals.iter().copied().enumerate() {
        let original = &program.actions[of_server.0 as usize];
        let index_arg = index_arg(original, &indices);
        let mut params = original.params.clone();
        params.extend([number_of.slot, mode.slot]);
        let called = format!("{name}.{}", original.name);
        let body = vec![tag.set(number(8, place as u128))];
        let of_element = action(program, &called, params, body);
        actions.push(MirroredAction { of_server, of_element, index_arg });
    }
    let miss = action(program, &format!("{name}.miss"), Vec::new(), Vec::new());
    let table = &mut program.tables[at];
    let (default, args) = std::mem::replace(&mut table.default, (miss, Vec::new()));
    let default_at = originals.iter().position(|action| *action == default).unwrap_or(originals.len()) as u32;
    table.actions = actions.iter().map(|acting| acting.of_element).chain([miss]).collect();
    for entry in &mut table.entries {
        if let Some(acting) = actions.iter().find(|acting| acting.of_server == entry.action) {
            entry.action = acting.of_element;
            entry.args.extend([u128::from(NUMBERLESS), 2]);
        }
    }
    let capacity = table.size.min(sizes.entries).max(table.entries.len() as u32 + 1);
    table.size = capacity;
    let capacity = capacity - table.entries.len() as u32;
    let handed = actions.iter().any(|acting| acting.index_arg.is_some());
    let numbers = capacity.saturating_mul(2);
    ElementTable {
        table: id,
        capacity,
        first_number,
        numbers,
        handed,
        actions,
        number: number_of,
        mode,
        tag,
        default: (default, args, default_at),
    }
}

/// Index parameters: for each action whose entries name cells of mirrored registers, the parameter with the cell's
/// index.
pub fn index_args(program: &Program) -> HashMap<ActionId, usize> {
    let mirrored = (0..program.registers.len()).filter(|at| program.registers[*at].mirrored);
    let mirrored: Vec<RegisterId> = mirrored.map(|at| RegisterId(at as u32)).collect();
    let indices = index_slots(program, &mirrored);
    let found = |(at, action)| Some((ActionId(at as u32), index_arg(action, &indices)?));
    program.actions.iter().enumerate().filter_map(found).collect()
}

/// Slots that index mirrored registers in the program.
fn index_slots(program: &Program, mirrored: &[RegisterId]) -> Vec<SlotId> {
    fn walk(block: &Block, mirrored: &[RegisterId], found: &mut Vec<SlotId>) {
        for statement in block {
            match &statement.kind {
                StmtKind::Read { register, index, .. }
                | StmtKind::Write { register, index, .. }
                | StmtKind::Update { register, index, .. }
                    if mirrored.contains(register) =>
                {
                    if let ExprKind::Slot(slot) = plain(index) {
                        found.push(*slot);
                    }
                }
                StmtKind::If { then, otherwise, .. } => {
                    walk(then, mirrored, found);
                    walk(otherwise, mirrored, found);
                }
                StmtKind::Body(body) => walk(body, mirrored, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    let bodies = program.actions.iter().map(|action| &action.body);
    bodies.chain([&program.ingress, &program.egress]).for_each(|block| walk(block, mirrored, &mut found));
    found
}

/// Operand of nested casts.
fn plain(expr: &Expr) -> &ExprKind {
    match &expr.kind {
        ExprKind::Cast(of) => plain(of),
        kind => kind,
    }
}

/// Parameter that becomes an index, directly or by an assignment.
fn index_arg(action: &Action, indices: &[SlotId]) -> Option<usize> {
    let assigned = action.body.iter().filter_map(|statement| match &statement.kind {
        StmtKind::Assign { to, value } if indices.contains(to) => match plain(value) {
            ExprKind::Slot(slot) => Some(*slot),
            _ => None,
        },
        _ => None,
    });
    let sources: Vec<SlotId> = indices.iter().copied().chain(assigned).collect();
    action.params.iter().position(|param| sources.contains(param))
}
