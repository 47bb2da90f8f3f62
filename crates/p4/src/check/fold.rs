//! Constant folding of IR expressions.

use super::num::{Num, mask};
use crate::ir::{Binary, Expr, ExprKind, HeaderId, SlotId, Ty, Unary};

/// Value of a constant expression.
fn constant_value(expr: &Expr) -> Option<u128> {
    match expr.kind {
        ExprKind::Const(value) => Some(value),
        _ => None,
    }
}

/// Folded `left op right` of type `ty`.
pub(super) fn binary(ty: Ty, op: Binary, left: Expr, right: Expr) -> Expr {
    if let (Some(a), Some(b)) = (constant_value(&left), constant_value(&right))
        && let Some(value) = value(left.ty, op, a, b, right.ty)
    {
        return Expr::constant(ty, value);
    }
    match (op, constant_value(&left), constant_value(&right)) {
        (Binary::LogicalAnd, Some(1), _) | (Binary::LogicalOr, Some(0), _) => right,
        (Binary::LogicalAnd, Some(_), _) | (Binary::LogicalOr, Some(_), _) => left,
        (Binary::LogicalAnd, _, Some(1)) | (Binary::LogicalOr, _, Some(0)) => left,
        (Binary::LogicalAnd, _, Some(_)) | (Binary::LogicalOr, _, Some(_)) => right,
        _ => Expr::binary(ty, op, left, right),
    }
}

/// Value of `a op b`. `ty` is the left operand's type; the right one differs only in shifts and `++`.
fn value(ty: Ty, op: Binary, a: u128, b: u128, right: Ty) -> Option<u128> {
    let width = ty.width();
    let number = |bits| Num::of_bits(bits, width, ty.signed());
    let order = number(a).cmp(&number(b));
    let saturated = |exact: Option<Num>, up: bool| match exact {
        Some(exact) if exact_fits(exact, ty) => exact.bits(width),
        _ if ty.signed() => (1 << (width - 1)) - u128::from(up),
        _ => {
            if up {
                mask(width)
            } else {
                0
            }
        }
    };
    Some(match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::AddSaturating => saturated(number(a).add(number(b)), number(b) >= Num::from(0)),
        Binary::SubSaturating => saturated(number(a).add(number(b).negate()), number(b) < Num::from(0)),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => u32::try_from(b).ok().and_then(|b| a.checked_shl(b)).unwrap_or(0),
        Binary::Shr => number(a).shr(Num::from(b))?.bits(width),
        Binary::Concat => a.checked_shl(u32::from(right.width())).unwrap_or(0) | b,
        Binary::Eq => u128::from(a == b),
        Binary::Ne => u128::from(a != b),
        Binary::Lt => u128::from(order.is_lt()),
        Binary::Le => u128::from(order.is_le()),
        Binary::Gt => u128::from(order.is_gt()),
        Binary::Ge => u128::from(order.is_ge()),
        Binary::LogicalAnd => a & b,
        Binary::LogicalOr => a | b,
    })
}

fn exact_fits(number: Num, ty: Ty) -> bool {
    (ty.signed() || number >= Num::from(0)) && number.fits(ty.width(), ty.signed())
}

/// Folded `op of`.
pub(super) fn unary(op: Unary, of: Expr) -> Expr {
    let ty = of.ty;
    match (op, constant_value(&of)) {
        (Unary::Not, Some(value)) => Expr::constant(ty, value ^ 1),
        (Unary::Complement, Some(value)) => Expr::constant(ty, !value),
        (Unary::Negate, Some(value)) => Expr::constant(ty, value.wrapping_neg()),
        (Unary::Not, None) if matches!(of.kind, ExprKind::Unary(Unary::Not, _)) => match of.kind {
            ExprKind::Unary(_, of) => *of,
            kind => Expr { ty, kind },
        },
        _ => Expr { ty, kind: ExprKind::Unary(op, Box::new(of)) },
    }
}

/// Folded `of[high:low]`.
pub(super) fn slice(of: Expr, high: u16, low: u16) -> Expr {
    let ty = Ty::Bit(high - low + 1);
    match constant_value(&of) {
        Some(value) => Expr::constant(ty, value >> low),
        None if low == 0 && of.ty == ty => of,
        None => Expr { ty, kind: ExprKind::Slice { of: Box::new(of), high, low } },
    }
}

/// Folded `left ++ right`.
pub(super) fn concat(left: Expr, right: Expr) -> Expr {
    let ty = Ty::Bit(left.ty.width() + right.ty.width());
    binary(ty, Binary::Concat, left, right)
}

/// Folded `(ty) of`.
pub(super) fn cast(of: Expr, ty: Ty) -> Expr {
    match constant_value(&of) {
        _ if of.ty == ty => of,
        Some(value) => Expr::constant(ty, Num::of_bits(value, of.ty.width(), of.ty.signed()).bits(ty.width())),
        None => Expr { ty, kind: ExprKind::Cast(Box::new(of)) },
    }
}

/// Folded `condition ? then : otherwise`.
pub(super) fn mux(condition: Expr, then: Expr, otherwise: Expr) -> Expr {
    match constant_value(&condition) {
        Some(1) => then,
        Some(_) => otherwise,
        None => {
            let kind = ExprKind::Mux(Box::new(condition), Box::new(then.clone()), Box::new(otherwise));
            Expr { ty: then.ty, kind }
        }
    }
}

/// True if the expression reads this slot.
pub(super) fn reads(expr: &Expr, slot: SlotId) -> bool {
    any_leaf(expr, &|kind| *kind == ExprKind::Slot(slot))
}

/// True if the expression tests this header's validity.
pub(super) fn reads_validity(expr: &Expr, header: HeaderId) -> bool {
    any_leaf(expr, &|kind| *kind == ExprKind::Valid(header))
}

fn any_leaf(expr: &Expr, leaf: &impl Fn(&ExprKind) -> bool) -> bool {
    match &expr.kind {
        kind @ (ExprKind::Slot(_) | ExprKind::Const(_) | ExprKind::Valid(_) | ExprKind::Lookahead { .. }) => leaf(kind),
        ExprKind::Unary(_, of) | ExprKind::Cast(of) | ExprKind::Slice { of, .. } => any_leaf(of, leaf),
        ExprKind::Binary(_, left, right) => any_leaf(left, leaf) || any_leaf(right, leaf),
        ExprKind::Mux(condition, then, otherwise) => {
            any_leaf(condition, leaf) || any_leaf(then, leaf) || any_leaf(otherwise, leaf)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(ty: Ty, op: Binary, a: u128, b: u128) -> u128 {
        let folded = binary(ty, op, Expr::constant(ty, a), Expr::constant(ty, b));
        constant_value(&folded).expect("both are known")
    }

    #[test]
    fn arithmetic_is_modulo_the_width() {
        assert_eq!(folded(Ty::Bit(8), Binary::Add, 255, 2), 1);
        assert_eq!(folded(Ty::Bit(8), Binary::Sub, 1, 2), 255);
        assert_eq!(folded(Ty::Bit(8), Binary::AddSaturating, 255, 2), 255);
        assert_eq!(folded(Ty::Bit(8), Binary::SubSaturating, 1, 2), 0);
        assert_eq!(folded(Ty::Int(8), Binary::AddSaturating, 127, 1), 127);
        assert_eq!(folded(Ty::Int(8), Binary::SubSaturating, 128, 1), 128);
        assert_eq!(folded(Ty::Int(8), Binary::SubSaturating, 127, 255), 127);
        assert_eq!(folded(Ty::Int(8), Binary::Shr, 0x80, 3), 0xf0);
        assert_eq!(folded(Ty::Bit(8), Binary::Shl, 0x81, 1), 2);
        assert_eq!(folded(Ty::Int(8), Binary::Lt, 255, 1), 1);
        assert_eq!(folded(Ty::Bit(8), Binary::Lt, 255, 1), 0);
    }

    #[test]
    fn folded_casts_extend_sign_and_truncate() {
        assert_eq!(constant_value(&cast(Expr::constant(Ty::Int(8), 0xff), Ty::Int(16))), Some(0xffff));
        assert_eq!(constant_value(&cast(Expr::constant(Ty::Bit(16), 0x1234), Ty::Bit(8))), Some(0x34));
    }
}
