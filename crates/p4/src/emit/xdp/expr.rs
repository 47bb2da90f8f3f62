//! Expressions in C, computed in 64 bits, or in 128 for wider ones. Bits above the width are always 0.

use super::bits::{computed, load, masked, number};
use super::plan::Plan;
use crate::ir::{Binary, Expr, ExprKind, Ty, Unary};

impl Plan<'_> {
    /// C expression of type `u64` or `u128`, by its width.
    pub(super) fn value(&self, expr: &Expr) -> String {
        let width = expr.ty.width();
        match &expr.kind {
            ExprKind::Const(value) => number(*value, width),
            ExprKind::Slot(slot) => self.read(*slot),
            ExprKind::Valid(header) => format!("(u64){}", self.valid(*header)),
            ExprKind::Lookahead { skip } => {
                let value = load("at", *skip, width);
                if width > 64 { format!("(u128)({value})") } else { format!("({value})") }
            }
            ExprKind::Unary(Unary::Not, of) => format!("(u64)!({})", self.value(of)),
            ExprKind::Unary(Unary::Complement, of) => masked(&format!("~({})", self.value(of)), width),
            ExprKind::Unary(Unary::Negate, of) => {
                masked(&arithmetic("-", "sub128", width, &number(0, width), &self.value(of)), width)
            }
            ExprKind::Binary(op, left, right) => self.binary(expr.ty, *op, left, right),
            ExprKind::Slice { of, low, .. } => {
                let of_width = of.ty.width();
                let value = self.value(of);
                let value = if *low == 0 { value } else { format!("({value} >> {low})") };
                masked(&converted(&value, of_width, width), width)
            }
            ExprKind::Cast(of) => self.cast(of, width),
            ExprKind::Mux(condition, then, otherwise) => {
                format!("({} ? {} : {})", self.value(condition), self.value(then), self.value(otherwise))
            }
        }
    }

    fn cast(&self, of: &Expr, width: u16) -> String {
        let (value, from) = (self.value(of), of.ty.width());
        if width <= from {
            let value = converted(&value, from, width);
            return if width == from { value } else { masked(&value, width) };
        }
        let value = converted(&value, from, width);
        if of.ty.signed() { masked(&signed(&value, from, width), width) } else { value }
    }

    fn binary(&self, ty: Ty, op: Binary, left: &Expr, right: &Expr) -> String {
        let width = ty.width();
        let (l, r) = (self.value(left), self.value(right));
        let plain = |op: &str| format!("({l} {op} {r})");
        // Saturating operators and sums with wrap-around are functions of prelude.h, by type.
        let saturating = |name: &str| {
            let (kind, wide) = (if ty.signed() { "s" } else { "u" }, if width > 64 { "128" } else { "" });
            format!("{kind}{name}{wide}({l}, {r}, {width})")
        };
        match op {
            Binary::Add => masked(&arithmetic("+", "add128", width, &l, &r), width),
            Binary::Sub => masked(&arithmetic("-", "sub128", width, &l, &r), width),
            Binary::Mul => masked(&arithmetic("*", "mul128", width, &l, &r), width),
            Binary::AddSaturating => saturating("add_sat"),
            Binary::SubSaturating => saturating("sub_sat"),
            Binary::And => plain("&"),
            Binary::Or => plain("|"),
            Binary::Xor => plain("^"),
            Binary::Shl | Binary::Shr => self.shift(ty, op, left, right),
            Binary::Concat => {
                let (l, r) = (converted(&l, left.ty.width(), width), converted(&r, right.ty.width(), width));
                format!("({l} << {} | {r})", right.ty.width())
            }
            Binary::Eq => format!("(u64){}", plain("==")),
            Binary::Ne => format!("(u64){}", plain("!=")),
            Binary::Lt => ordered(left.ty, &l, "<", &r),
            Binary::Le => ordered(left.ty, &l, "<=", &r),
            Binary::Gt => ordered(left.ty, &l, ">", &r),
            Binary::Ge => ordered(left.ty, &l, ">=", &r),
            Binary::LogicalAnd => format!("(u64){}", plain("&&")),
            Binary::LogicalOr => format!("(u64){}", plain("||")),
        }
    }

    /// Shift; a shift by the width or more leaves only the sign.
    fn shift(&self, ty: Ty, op: Binary, left: &Expr, right: &Expr) -> String {
        let width = ty.width();
        let (l, r) = (self.value(left), self.value(right));
        let wide = if width > 64 { "128" } else { "" };
        // Shift amount in 64 bits; the upper bits of a wider amount only saturate it.
        let by = match right.ty.width() {
            0..=64 => r,
            _ => format!("({r} > 255 ? 255ULL : (u64){r})"),
        };
        let shifted = match (&right.kind, op) {
            (ExprKind::Const(by), Binary::Shl) if *by < u128::from(width) => format!("({l} << {by})"),
            (ExprKind::Const(by), _) if *by < u128::from(width) && !ty.signed() => format!("({l} >> {by})"),
            (_, Binary::Shl) => format!("shl{wide}({l}, {by}, {width})"),
            _ if ty.signed() => format!("sar{wide}({l}, {by}, {width})"),
            _ => format!("shr{wide}({l}, {by}, {width})"),
        };
        masked(&shifted, width)
    }
}

/// Sum, difference or product; above 64 bits, a function of prelude.h.
fn arithmetic(op: &str, wide: &str, width: u16, left: &str, right: &str) -> String {
    if width > 64 { format!("{wide}({left}, {right})") } else { format!("({left} {op} {right})") }
}

/// Conversion between widths, whose types of computation may differ.
fn converted(value: &str, from: u16, to: u16) -> String {
    match (computed(from), computed(to)) {
        (from, to) if from == to => value.to_owned(),
        (_, to) => format!("({to})({value})"),
    }
}

/// Sign extension to the type in which `to` bits are computed.
fn signed(value: &str, from: u16, to: u16) -> String {
    if to > 64 { format!("sext128({value}, {from})") } else { format!("sext({value}, {from})") }
}

/// Comparison; signed numbers are compared as unsigned ones with the sign bit inverted.
fn ordered(ty: Ty, left: &str, op: &str, right: &str) -> String {
    if !ty.signed() {
        return format!("(u64)({left} {op} {right})");
    }
    let sign = number(1 << (ty.width() - 1), ty.width());
    format!("(u64)(({left} ^ {sign}) {op} ({right} ^ {sign}))")
}
