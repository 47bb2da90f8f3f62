//! Takes out of a block what nobody needs any more.

use crate::ir::{Block, Program, Stmt, StmtKind};
use crate::split::flow::{Live, Places};

/// Takes out assignments and hashes to `gone`, and those that nothing reads. What is left, and what that needs before it;
/// `after`, `exit` as in [`crate::split::flow::live_before`].
pub fn prune(program: &Program, block: &Block, after: Places, exit: &Places, gone: &Places) -> (Block, Places) {
    let mut pruner = Pruner { live: Live::new(program), gone };
    pruner.block(block, after, exit, exit)
}

struct Pruner<'a> {
    live: Live<'a>,
    gone: &'a Places,
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
                (None, live)
            }
            _ => {
                let before = self.live.stmt(stmt, live, at_return, at_exit);
                (Some(stmt.clone()), before)
            }
        }
    }
}
