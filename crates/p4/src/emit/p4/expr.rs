//! Expressions; each cast is a sequence of casts that P4_16 allows (§8.11).

use super::{P4Writer, names, type_name};
use crate::ir::{Binary, Expr, ExprKind, SlotKind, StandardField, Ty, Unary};

impl P4Writer<'_> {
    pub(super) fn expr(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Const(value) => constant(expr.ty, *value),
            ExprKind::Slot(slot) => match self.params.iter().find(|(of, _)| of == slot) {
                Some((_, param)) => param.clone(),
                None => self.names.slot(self.program, *slot),
            },
            ExprKind::Valid(header) => format!("{}.isValid()", self.names.headers[header.0 as usize]),
            ExprKind::Lookahead { skip } => {
                let width = u32::from(expr.ty.width());
                let all = format!("packet.lookahead<bit<{}>>()", skip + width);
                let own = if *skip == 0 { all } else { format!("{all}[{}:0]", width - 1) };
                if expr.ty == Ty::Bit(width as u16) { own } else { cast_by_steps(own, Ty::Bit(width as u16), expr.ty) }
            }
            ExprKind::Unary(op, of) => {
                let op = match op {
                    Unary::Not => "!",
                    Unary::Complement => "~",
                    Unary::Negate => "-",
                };
                format!("{op}({})", self.expr(of))
            }
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right),
            ExprKind::Slice { of, high, low } => format!("({})[{high}:{low}]", self.expr(of)),
            ExprKind::Cast(of) => cast_by_steps(self.expr(of), of.ty, expr.ty),
            ExprKind::Mux(condition, then, otherwise) => {
                format!("({} ? {} : {})", self.expr(condition), self.expr(then), self.expr(otherwise))
            }
        }
    }

    fn binary(&self, op: Binary, left: &Expr, right: &Expr) -> String {
        let right = match (&left.kind, &right.kind) {
            // An error can be compared only with an error.
            (ExprKind::Slot(slot), ExprKind::Const(number))
                if self.program.slots[slot.0 as usize].kind == SlotKind::Standard(StandardField::ParserError) =>
            {
                format!("error.{}", names::error(*number as u16))
            }
            _ => self.expr(right),
        };
        format!("({} {} {right})", self.expr(left), op.symbol())
    }
}

/// Constant of this type.
pub(super) fn constant(ty: Ty, value: u128) -> String {
    let number = |sign: char, width: u16| match value {
        0..=9 => format!("{width}{sign}{value}"),
        _ => format!("{width}{sign}{value:#x}"),
    };
    match ty {
        Ty::Bool => if value == 0 { "false" } else { "true" }.to_owned(),
        Ty::Bit(width) => number('w', width),
        Ty::Float => number('w', 32),
        // Negative numbers are emitted by their bits.
        Ty::Int(width) if value >> (width - 1) & 1 == 1 => format!("(int<{width}>){}", number('w', width)),
        Ty::Int(width) => number('s', width),
    }
}

/// Cast as a sequence of allowed casts.
fn cast_by_steps(value: String, from: Ty, to: Ty) -> String {
    let step = |ty: Ty, value: String| format!("({})({value})", type_name(ty));
    let bits = |ty: Ty| if ty == Ty::Float { Ty::Bit(32) } else { ty };
    match (bits(from), bits(to)) {
        (from, to) if from == to => value,
        (Ty::Bool, Ty::Bit(1)) | (Ty::Bit(1), Ty::Bool) => step(to, value),
        (Ty::Bool, to) => cast_by_steps(step(Ty::Bit(1), value), Ty::Bit(1), to),
        (_, Ty::Bool) => step(Ty::Bool, format!("({value})[0:0]")),
        // The width is converted first, then the signedness.
        (Ty::Int(from), Ty::Bit(to)) if from != to => step(Ty::Bit(to), step(Ty::Int(to), value)),
        (Ty::Bit(from), Ty::Int(to)) if from != to => step(Ty::Int(to), step(Ty::Bit(to), value)),
        (_, to) => step(to, value),
    }
}
