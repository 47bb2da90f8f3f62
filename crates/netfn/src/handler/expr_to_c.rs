//! Translation of IR expressions to C, for the generated function `T_apply`.

use pathcall_p4::ir::{Binary, Expr, ExprKind, SlotId, Ty};

/// C expression of type `uint64_t` for `expr`; `name` gives the C name of a slot. `None` for wider, signed or complex
/// expressions.
pub(super) fn expr_to_c(expr: &Expr, name: &dyn Fn(SlotId) -> Option<String>) -> Option<String> {
    if expr.ty.width() > 64 || expr.ty.signed() || expr.ty == Ty::Float {
        return None;
    }
    let of = |expr: &Expr| expr_to_c(expr, name);
    let width = expr.ty.width();
    Some(match &expr.kind {
        ExprKind::Const(value) => format!("{value}ull"),
        ExprKind::Slot(slot) => format!("(uint64_t){}", name(*slot)?),
        ExprKind::Cast(inner) => mask_to_width(of(inner)?, width),
        ExprKind::Slice { of: inner, low, .. } => mask_to_width(format!("({} >> {low})", of(inner)?), width),
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
            mask_to_width(format!("({} {sign} {})", of(left)?, of(right)?), width)
        }
        _ => return None,
    })
}

fn mask_to_width(c: String, width: u16) -> String {
    if width >= 64 { c } else { format!("({c} & {:#x}ull)", (1u64 << width) - 1) }
}
