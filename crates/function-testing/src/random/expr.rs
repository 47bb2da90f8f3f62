//! Random expressions of a given type.

use super::Choices;
use pathcall_p4::ir::{Binary, Expr, ExprKind, HeaderId, SlotId, Ty, Unary};

/// Storage that expressions may use.
pub(super) struct ExprScope<'a> {
    /// Slots with their types.
    pub(super) slots: &'a [(SlotId, Ty)],
    pub(super) headers: &'a [HeaderId],
}

const BITWISE: [Binary; 3] = [Binary::And, Binary::Or, Binary::Xor];
const SUMS: [Binary; 4] = [Binary::Add, Binary::Sub, Binary::AddSaturating, Binary::SubSaturating];
const COMPARISONS: [Binary; 6] = [Binary::Eq, Binary::Ne, Binary::Lt, Binary::Le, Binary::Gt, Binary::Ge];

/// Random type, often one that header fields have.
pub(super) fn ty(choices: &mut Choices<'_>) -> Ty {
    match choices.below(12) {
        0..=4 => Ty::Bit(choices.pick(&[8, 16, 32, 1, 4, 48, 64, 128])),
        5 | 6 => Ty::Bit(1 + choices.below(128) as u16),
        7 => Ty::Int(choices.pick(&[8, 16, 32, 64, 128])),
        8 => Ty::Int(2 + choices.below(127) as u16),
        9 => Ty::Bool,
        _ => Ty::Bit(choices.pick(&[3, 9, 12, 24, 33, 65, 72, 127])),
    }
}

/// Cast by steps that P4_16 allows.
pub(super) fn cast(of: Expr, ty: Ty) -> Expr {
    if of.ty == ty {
        return of;
    }
    let through = match (of.ty, ty) {
        (Ty::Bool, Ty::Bit(1)) | (Ty::Bit(1), Ty::Bool) => None,
        (Ty::Bool, _) | (_, Ty::Bool) => Some(Ty::Bit(1)),
        (Ty::Int(from), Ty::Bit(to)) if from != to => Some(Ty::Int(to)),
        (Ty::Bit(from), Ty::Int(to)) if from != to => Some(Ty::Bit(to)),
        _ => None,
    };
    let of = match through {
        Some(through) if through != of.ty => cast(of, through),
        _ => of,
    };
    Expr { ty, kind: ExprKind::Cast(Box::new(of)) }
}

impl ExprScope<'_> {
    /// Random expression of this type, with a bounded depth.
    pub(super) fn expr(&self, choices: &mut Choices<'_>, ty: Ty, depth: usize) -> Expr {
        if depth == 0 || choices.is_empty() {
            return self.leaf(choices, ty);
        }
        match ty {
            Ty::Bool => self.boolean(choices, depth - 1),
            _ => self.number(choices, ty, depth - 1),
        }
    }

    fn leaf(&self, choices: &mut Choices<'_>, ty: Ty) -> Expr {
        let same: Vec<SlotId> = self.slots.iter().filter(|(_, of)| *of == ty).map(|(slot, _)| *slot).collect();
        match choices.below(4) {
            1 if !same.is_empty() => Expr::slot(ty, choices.pick(&same)),
            2 if !self.slots.is_empty() => {
                let (slot, of) = choices.pick(self.slots);
                cast(Expr::slot(of, slot), ty)
            }
            3 if ty == Ty::Bool && !self.headers.is_empty() => {
                Expr { ty, kind: ExprKind::Valid(choices.pick(self.headers)) }
            }
            _ => Expr::constant(ty, choices.number(ty.width())),
        }
    }

    fn boolean(&self, choices: &mut Choices<'_>, depth: usize) -> Expr {
        match choices.below(6) {
            0..=2 => {
                let of = match ty(choices) {
                    Ty::Bool => Ty::Bit(8),
                    other => other,
                };
                let (left, right) = (self.expr(choices, of, depth), self.expr(choices, of, depth));
                Expr::binary(Ty::Bool, choices.pick(&COMPARISONS), left, right)
            }
            3 => {
                let op = choices.pick(&[Binary::LogicalAnd, Binary::LogicalOr]);
                let (left, right) = (self.expr(choices, Ty::Bool, depth), self.expr(choices, Ty::Bool, depth));
                Expr::binary(Ty::Bool, op, left, right)
            }
            4 => {
                let of = self.expr(choices, Ty::Bool, depth);
                Expr { ty: Ty::Bool, kind: ExprKind::Unary(Unary::Not, Box::new(of)) }
            }
            _ => self.leaf(choices, Ty::Bool),
        }
    }

    fn number(&self, choices: &mut Choices<'_>, ty: Ty, depth: usize) -> Expr {
        let width = ty.width();
        let two = |this: &Self, op: Binary, choices: &mut Choices<'_>| {
            let (left, right) = (this.expr(choices, ty, depth), this.expr(choices, ty, depth));
            Expr::binary(ty, op, left, right)
        };
        match choices.below(12) {
            0 | 1 => {
                let op = choices.pick(&SUMS);
                two(self, op, choices)
            }
            2 => {
                let op = choices.pick(&BITWISE);
                two(self, op, choices)
            }
            3 => two(self, Binary::Mul, choices),
            4 => {
                let op = choices.pick(&[Binary::Shl, Binary::Shr]);
                let by = if choices.one_of(2) {
                    self.expr(choices, Ty::Bit(8), depth)
                } else {
                    Expr::constant(Ty::Bit(8), choices.number(7))
                };
                Expr::binary(ty, op, self.expr(choices, ty, depth), by)
            }
            5 => {
                let op = choices.pick(&[Unary::Complement, Unary::Negate]);
                Expr { ty, kind: ExprKind::Unary(op, Box::new(self.expr(choices, ty, depth))) }
            }
            6 => {
                let condition = Box::new(self.expr(choices, Ty::Bool, depth));
                let (then, otherwise) = (self.expr(choices, ty, depth), self.expr(choices, ty, depth));
                Expr { ty, kind: ExprKind::Mux(condition, Box::new(then), Box::new(otherwise)) }
            }
            7 if matches!(ty, Ty::Bit(2..)) => {
                let left = 1 + choices.below(usize::from(width) - 1) as u16;
                let (l, r) = (Ty::Bit(left), Ty::Bit(width - left));
                let (l, r) = (self.expr(choices, l, depth), self.expr(choices, r, depth));
                Expr::binary(ty, Binary::Concat, l, r)
            }
            8 if matches!(ty, Ty::Bit(_)) => {
                let of = Ty::Bit(width + choices.below(129 - usize::from(width)) as u16);
                let low = choices.below(usize::from(of.width() - width) + 1) as u16;
                let of = Box::new(self.expr(choices, of, depth));
                Expr { ty, kind: ExprKind::Slice { of, high: low + width - 1, low } }
            }
            9 => {
                let of = match self::ty(choices) {
                    Ty::Bool => Ty::Bit(16),
                    other => other,
                };
                cast(self.expr(choices, of, depth), ty)
            }
            _ => self.leaf(choices, ty),
        }
    }
}
