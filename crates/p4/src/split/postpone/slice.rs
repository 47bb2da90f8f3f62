//! Program slice of a value: side-effect-free statements that can run again elsewhere with the same result.

use crate::ir::{Block, Program, Stmt, StmtKind};
use crate::split::liveness::{self, PlaceSet};

/// Slice of a block: assignments and hashes only, under their original conditions.
#[derive(Debug)]
pub struct Slice {
    /// Statements, with their source positions.
    pub block: Block,
    /// Live places before the slice.
    pub needs: PlaceSet,
}

/// Slice that computes `wanted` in consecutive blocks; `None` if a table, a register or a change of a header's validity
/// is involved. The slice is valid for packets that reach the end of the blocks: statements that depend on an `exit`
/// are left out.
pub fn slice(program: &Program, blocks: &[&Block], wanted: &PlaceSet) -> Option<Slice> {
    let mut moving = PlaceSet::none(program);
    for block in blocks {
        liveness::visit_statements(program, block, &mut |stmt| {
            if let StmtKind::SetValid { header, .. } = stmt.kind {
                moving.add_valid(header);
                program.headers[header.0 as usize].fields.iter().for_each(|field| moving.add(*field));
            }
        });
    }
    let mut slicer = Slicer { program, impure: false };
    let (mut kept, mut needs) = (Vec::new(), wanted.clone());
    for block in blocks.iter().rev() {
        let more = !kept.is_empty();
        let (mut part, before) = slicer.block(block, needs, None, more);
        part.append(&mut kept);
        (kept, needs) = (part, before);
    }
    (!slicer.impure && !touches(program, &kept, &moving)).then_some(Slice { block: kept, needs })
}

/// True if a slice reads or writes any of these places.
fn touches(program: &Program, block: &Block, places: &PlaceSet) -> bool {
    let mut used = liveness::written_places(program, block);
    liveness::visit_statements(program, block, &mut |stmt| {
        liveness::visit_exprs(program, stmt, &mut |expr| liveness::add_read_places(expr, &mut used))
    });
    used.intersects(places)
}

struct Slicer<'a> {
    program: &'a Program,
    /// True if a needed value is not computed by assignments alone.
    impure: bool,
}

impl Slicer<'_> {
    /// Slices a block backwards. `at_return` is live behind the enclosing body, if there is one. `more` says that the
    /// slice has statements behind this block, so that a `return` matters.
    fn block(
        &mut self,
        block: &Block,
        mut live: PlaceSet,
        at_return: Option<&PlaceSet>,
        more: bool,
    ) -> (Block, PlaceSet) {
        let mut kept = Vec::new();
        for stmt in block.iter().rev() {
            let after = more || !kept.is_empty();
            let (stmt, before) = self.stmt(stmt, live, at_return, after);
            kept.extend(stmt);
            live = before;
        }
        kept.reverse();
        (kept, live)
    }

    fn stmt(
        &mut self,
        stmt: &Stmt,
        mut live: PlaceSet,
        at_return: Option<&PlaceSet>,
        more: bool,
    ) -> (Option<Stmt>, PlaceSet) {
        let program = self.program;
        let with = |kind| Some(Stmt { kind, at: stmt.at });
        match &stmt.kind {
            StmtKind::If { condition, then, otherwise } => {
                let (then, mut before) = self.block(then, live.clone(), at_return, more);
                let (otherwise, other) = self.block(otherwise, live.clone(), at_return, more);
                before.join(&other);
                // An empty conditional matters only if a `return` in it skips an `exit` behind it.
                if then.is_empty() && otherwise.is_empty() {
                    return (None, before);
                }
                liveness::add_read_places(condition, &mut before);
                (with(StmtKind::If { condition: condition.clone(), then, otherwise }), before)
            }
            StmtKind::Body(inner) => {
                let after = live.clone();
                let (inner, before) = self.block(inner, live, Some(&after), false);
                if inner.is_empty() { (None, after) } else { (with(StmtKind::Body(inner)), before) }
            }
            StmtKind::Return => match at_return {
                Some(needed) => (more.then(|| stmt.clone()), needed.clone()),
                // The ingress ends here, so such a packet does not reach the end of the blocks.
                None => (None, PlaceSet::none(program)),
            },
            StmtKind::Exit => (None, PlaceSet::none(program)),
            StmtKind::Assign { to, .. } | StmtKind::Hash { to, .. } => {
                if !live.has(*to) {
                    return (None, live);
                }
                live.remove(*to);
                liveness::visit_exprs(program, stmt, &mut |expr| liveness::add_read_places(expr, &mut live));
                (Some(stmt.clone()), live)
            }
            _ => {
                self.impure |= liveness::written_places(program, std::slice::from_ref(stmt)).intersects(&live);
                (None, live)
            }
        }
    }
}
