//! Expressions of the program as C, where the same is meant: for `T_apply`.

use crate::ir::{Binary, Expr, ExprKind, SlotId, Ty};

/// `expr` as C of type `uint64_t`, with `name` for the slots that have one; none for what is wider, signed, or not plain.
pub(super) fn express(expr: &Expr, name: &dyn Fn(SlotId) -> Option<String>) -> Option<String> {
    if expr.ty.width() > 64 || expr.ty.signed() || expr.ty == Ty::Float {
        return None;
    }
    let of = |expr: &Expr| express(expr, name);
    let width = expr.ty.width();
    Some(match &expr.kind {
        ExprKind::Const(value) => format!("{value}ull"),
        ExprKind::Slot(slot) => format!("(uint64_t){}", name(*slot)?),
        ExprKind::Cast(inner) => cut(of(inner)?, width),
        ExprKind::Slice { of: inner, low, .. } => cut(format!("({} >> {low})", of(inner)?), width),
        ExprKind::Binary(op, left, right) => {
            let sign = match op {
                Binary::Add => "+",
                Binary::Sub => "-",
                Binary::And => "&",
                Binary::Or => "|",
                Binary::Xor => "^",
                Binary::Mul => "*",
                Binary::Concat if right.ty.width() < 64 => {
                    return Some(format!("({} << {} | {})", of(left)?, right.ty.width(), of(right)?));
                }
                _ => return None,
            };
            cut(format!("({} {sign} {})", of(left)?, of(right)?), width)
        }
        _ => return None,
    })
}

fn cut(c: String, width: u16) -> String {
    if width >= 64 { c } else { format!("({c} & {:#x}ull)", (1u64 << width) - 1) }
}
