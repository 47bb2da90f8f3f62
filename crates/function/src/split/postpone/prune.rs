//! Takes out of a block what nobody needs any more.

use crate::ir::{Block, Program, Stmt, StmtKind};
use crate::split::flow::{Live, Places};

/// A block from which something is taken out.
#[derive(Debug)]
pub struct Pruned {
    /// What is left.
    pub block: Block,
    /// What that needs before it.
    pub needs: Places,
    /// Values whose making is taken out, although something behind it that is left reads them.
    pub missed: Places,
}

/// Takes out assignments and hashes to `gone`, and those that nothing reads; `after`, `exit` as in
/// [`crate::split::flow::live_before`].
pub fn prune(program: &Program, block: &Block, after: Places, exit: &Places, gone: &Places) -> Pruned {
    let mut pruner = Pruner { live: Live::new(program), gone, missed: Places::none(program) };
    let (block, needs) = pruner.block(block, after, exit, exit);
    Pruned { block, needs, missed: pruner.missed }
}

struct Pruner<'a> {
    live: Live<'a>,
    gone: &'a Places,
    missed: Places,
}

impl Pruner<'_> {
    fn block(&mut self, block: &Block, mut live: Places, at_return: &Places, at_exit: &Places) -> (Block, Places) {
        let mut kept = Vec::new();
        for stmt in block.iter().rev() {
            let (stmt, before) = self.stmt(stmt, live, at_return, at_exit);
            kept.extend(stmt);
            live = before;
        }
        kept.reverse();
        (kept, live)
    }

    fn stmt(&mut self, stmt: &Stmt, live: Places, at_return: &Places, at_exit: &Places) -> (Option<Stmt>, Places) {
        let with = |kind| Some(Stmt { kind, at: stmt.at });
        match &stmt.kind {
            StmtKind::If { condition, then, otherwise } => {
                let (then, mut before) = self.block(then, live.clone(), at_return, at_exit);
                let (otherwise, other) = self.block(otherwise, live.clone(), at_return, at_exit);
                if then.is_empty() && otherwise.is_empty() {
                    return (None, live);
                }
                before.join(&other);
                crate::split::flow::read(condition, &mut before);
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
