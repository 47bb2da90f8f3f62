//! Renaming of the variables that a slice shares with the block that it was taken from.

use crate::ir::{Block, Expr, ExprKind, Program, Slot, SlotId, SlotKind, Stmt, StmtKind, Ty};
use crate::split::liveness::{self, PlaceSet};

/// Block in which slots that it writes and `written` contains are replaced by new variables, except for `kept`.
pub fn renamed(program: &mut Program, block: Block, written: &PlaceSet, kept: &PlaceSet) -> Block {
    let mut own = liveness::written_places(program, &block);
    own.keep(written);
    own.subtract(kept);
    let names: Vec<(SlotId, SlotId)> = own
        .slots()
        .map(|of| {
            let slot = &program.slots[of.0 as usize];
            let own = Slot { name: format!("pc.again.{}", slot.name), ty: slot.ty, kind: SlotKind::Local };
            program.slots.push(own);
            (of, SlotId(program.slots.len() as u32 - 1))
        })
        .collect();
    Renamer { program, names }.block(block)
}

struct Renamer<'a> {
    program: &'a Program,
    names: Vec<(SlotId, SlotId)>,
}

impl Renamer<'_> {
    fn name(&self, slot: SlotId) -> SlotId {
        self.names.iter().find(|(of, _)| *of == slot).map_or(slot, |(_, own)| *own)
    }

    fn block(&self, block: Block) -> Block {
        block.into_iter().map(|stmt| self.stmt(stmt)).collect()
    }

    fn stmt(&self, stmt: Stmt) -> Stmt {
        let at = stmt.at;
        let (to, kind) = match stmt.kind {
            StmtKind::Assign { to, value } => (to, StmtKind::Assign { to: self.name(to), value: self.expr(value) }),
            StmtKind::Hash { to, algorithm, base, inputs, max } => {
                let inputs = inputs.into_iter().map(|input| self.expr(input)).collect();
                let (base, max) = (self.expr(base), self.expr(max));
                (to, StmtKind::Hash { to: self.name(to), algorithm, base, inputs, max })
            }
            StmtKind::If { condition, then, otherwise } => {
                let (then, otherwise) = (self.block(then), self.block(otherwise));
                return Stmt { kind: StmtKind::If { condition: self.expr(condition), then, otherwise }, at };
            }
            StmtKind::Body(block) => return Stmt { kind: StmtKind::Body(self.block(block)), at },
            kind => return Stmt { kind, at },
        };
        // A field of an invalid header stays 0.
        match self.program.slots[to.0 as usize].kind {
            SlotKind::Field { header, .. } if self.name(to) != to => {
                let condition = Expr { ty: Ty::Bool, kind: ExprKind::Valid(header) };
                Stmt { kind: StmtKind::If { condition, then: vec![Stmt { kind, at }], otherwise: Block::new() }, at }
            }
            _ => Stmt { kind, at },
        }
    }

    fn expr(&self, expr: Expr) -> Expr {
        let one = |of: Box<Expr>| Box::new(self.expr(*of));
        let kind = match expr.kind {
            ExprKind::Slot(slot) => ExprKind::Slot(self.name(slot)),
            ExprKind::Unary(op, of) => ExprKind::Unary(op, one(of)),
            ExprKind::Binary(op, left, right) => ExprKind::Binary(op, one(left), one(right)),
            ExprKind::Slice { of, high, low } => ExprKind::Slice { of: one(of), high, low },
            ExprKind::Cast(of) => ExprKind::Cast(one(of)),
            ExprKind::Mux(condition, then, otherwise) => ExprKind::Mux(one(condition), one(then), one(otherwise)),
            kind @ (ExprKind::Const(_) | ExprKind::Valid(_) | ExprKind::Lookahead { .. }) => kind,
        };
        Expr { ty: expr.ty, kind }
    }
}
