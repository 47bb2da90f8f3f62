//! The statements that a value is made of, and nothing else: they can run once more, elsewhere, and give the same.

use crate::ir::{Block, Program, Stmt, StmtKind};
use crate::split::flow::{self, Places};

/// A part of a block: only assignments and hashes, under the conditions that they stand under.
#[derive(Debug)]
pub struct Slice {
    /// The statements, with their places in the source.
    pub block: Block,
    /// What has to be there before it.
    pub needs: Places,
}

/// What makes the values of `wanted` in these blocks, one behind the other. None: a table, a register or the coming and
/// going of a header has a part in it. It holds for packets that come to the end of the blocks: what `exit` keeps from
/// that is left out.
pub fn slice(program: &Program, blocks: &[&Block], wanted: &Places) -> Option<Slice> {
    let mut moving = Places::none(program);
    for block in blocks {
        flow::walk(program, block, &mut |stmt| {
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

/// Whether a slice reads or writes any of these places.
fn touches(program: &Program, block: &Block, places: &Places) -> bool {
    let mut used = flow::written(program, block);
    flow::walk(program, block, &mut |stmt| flow::exprs(program, stmt, &mut |expr| flow::read(expr, &mut used)));
    used.meets(places)
}

struct Slicer<'a> {
    program: &'a Program,
    /// Something else than an assignment makes a value that is needed.
    impure: bool,
}

impl Slicer<'_> {
    /// Backwards. `at_return`: what is needed behind the body around, if there is one; `more`: whether anything of the
    /// slice stands behind this block, so that a `return` matters.
    fn block(&mut self, block: &Block, mut live: Places, at_return: Option<&Places>, more: bool) -> (Block, Places) {
        let mut kept = Vec::new();
        for stmt in block.iter().rev() {
            let behind = more || !kept.is_empty();
            let (stmt, before) = self.stmt(stmt, live, at_return, behind);
            kept.extend(stmt);
            live = before;
        }
        kept.reverse();
        (kept, live)
    }

    fn stmt(
        &mut self,
        stmt: &Stmt,
        mut live: Places,
        at_return: Option<&Places>,
        more: bool,
    ) -> (Option<Stmt>, Places) {
        let program = self.program;
        let with = |kind| Some(Stmt { kind, at: stmt.at });
        match &stmt.kind {
            StmtKind::If { condition, then, otherwise } => {
                let (then, mut before) = self.block(then, live.clone(), at_return, more);
                let (otherwise, other) = self.block(otherwise, live.clone(), at_return, more);
                before.join(&other);
                // Nothing stands here, but a `return` may leave what an `exit` behind it would not.
                if then.is_empty() && otherwise.is_empty() {
                    return (None, before);
                }
                flow::read(condition, &mut before);
                (with(StmtKind::If { condition: condition.clone(), then, otherwise }), before)
            }
            StmtKind::Body(inner) => {
                let behind = live.clone();
                let (inner, before) = self.block(inner, live, Some(&behind), false);
                if inner.is_empty() { (None, behind) } else { (with(StmtKind::Body(inner)), before) }
            }
            StmtKind::Return => match at_return {
                Some(needed) => (more.then(|| stmt.clone()), needed.clone()),
                // The ingress ends: such a packet does not come to the end of the blocks.
                None => (None, Places::none(program)),
            },
            StmtKind::Exit => (None, Places::none(program)),
            StmtKind::Assign { to, .. } | StmtKind::Hash { to, .. } => {
                if !live.has(*to) {
                    return (None, live);
                }
                live.remove(*to);
                flow::exprs(program, stmt, &mut |expr| flow::read(expr, &mut live));
                (Some(stmt.clone()), live)
            }
            _ => {
                self.impure |= flow::written(program, std::slice::from_ref(stmt)).meets(&live);
                (None, live)
            }
        }
    }
}
