//! Removal of unneeded statements from a block.

use crate::ir::{Block, Program, Stmt, StmtKind};
use crate::split::liveness::{Liveness, PlaceSet};

/// Block after the removal.
#[derive(Debug)]
pub struct Pruned {
    /// Remaining statements.
    pub block: Block,
    /// Live places before the block.
    pub needs: PlaceSet,
    /// Values in `gone` that remaining statements still read.
    pub missed: PlaceSet,
}

/// Removes assignments and hashes to `gone`, and those that are never read; `after` and `exit` as in
/// [`crate::split::liveness::live_before`].
pub fn prune(program: &Program, block: &Block, after: PlaceSet, exit: &PlaceSet, gone: &PlaceSet) -> Pruned {
    let mut pruner = Pruner { live: Liveness::new(program), gone, missed: PlaceSet::none(program) };
    let (block, needs) = pruner.block(block, after, exit, exit);
    Pruned { block, needs, missed: pruner.missed }
}

struct Pruner<'a> {
    live: Liveness<'a>,
    gone: &'a PlaceSet,
    missed: PlaceSet,
}

impl Pruner<'_> {
    fn block(
        &mut self,
        block: &Block,
        mut live: PlaceSet,
        at_return: &PlaceSet,
        at_exit: &PlaceSet,
    ) -> (Block, PlaceSet) {
        let mut kept = Vec::new();
        for stmt in block.iter().rev() {
            let (stmt, before) = self.stmt(stmt, live, at_return, at_exit);
            kept.extend(stmt);
            live = before;
        }
        kept.reverse();
        (kept, live)
    }

    fn stmt(
        &mut self,
        stmt: &Stmt,
        live: PlaceSet,
        at_return: &PlaceSet,
        at_exit: &PlaceSet,
    ) -> (Option<Stmt>, PlaceSet) {
        let with = |kind| Some(Stmt { kind, at: stmt.at });
        match &stmt.kind {
            StmtKind::If { condition, then, otherwise } => {
                let (then, mut before) = self.block(then, live.clone(), at_return, at_exit);
                let (otherwise, other) = self.block(otherwise, live.clone(), at_return, at_exit);
                if then.is_empty() && otherwise.is_empty() {
                    return (None, live);
                }
                before.join(&other);
                crate::split::liveness::add_read_places(condition, &mut before);
                (with(StmtKind::If { condition: condition.clone(), then, otherwise }), before)
            }
            StmtKind::Body(inner) => {
                let (inner, before) = self.block(inner, live.clone(), &live, at_exit);
                if inner.is_empty() { (None, live) } else { (with(StmtKind::Body(inner)), before) }
            }
            StmtKind::Assign { to, .. } | StmtKind::Hash { to, .. } if self.gone.has(*to) || !live.has(*to) => {
                if live.has(*to) {
                    self.missed.add(*to);
                }
                (None, live)
            }
            _ => {
                let before = self.live.stmt(stmt, live, at_return, at_exit);
                (Some(stmt.clone()), before)
            }
        }
    }
}
