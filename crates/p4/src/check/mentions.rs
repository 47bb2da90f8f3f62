//! Names that a body mentions: an argument bound by reference must not be reachable by name as well.

use crate::ast::{Expr, ExprKind, Stmt, StmtKind};

/// True if the statements mention this name, or call something that could.
pub(super) fn mentions(body: &[Stmt], name: &str) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::Empty | StmtKind::Exit | StmtKind::Return(None) => false,
        StmtKind::Block(body) => mentions(body, name),
        StmtKind::Assign(to, value) => expr_mentions(to, name) || expr_mentions(value, name),
        StmtKind::Call(expr) | StmtKind::Return(Some(expr)) => expr_mentions(expr, name),
        StmtKind::If(condition, then, otherwise) => {
            expr_mentions(condition, name)
                || mentions(std::slice::from_ref(then), name)
                || otherwise.as_ref().is_some_and(|otherwise| mentions(std::slice::from_ref(otherwise), name))
        }
        StmtKind::Switch(of, cases) => {
            expr_mentions(of, name)
                || cases.iter().any(|case| case.body.as_ref().is_some_and(|body| mentions(body, name)))
        }
        StmtKind::Variable(variable) | StmtKind::Const(variable) => {
            variable.value.as_ref().is_some_and(|value| expr_mentions(value, name))
        }
        StmtKind::Instance(_) => true,
    })
}

fn expr_mentions(expr: &Expr, name: &str) -> bool {
    match &expr.kind {
        ExprKind::Number(..) | ExprKind::Bool(_) | ExprKind::Text(_) | ExprKind::Any => false,
        ExprKind::Name(found) => **found == *name,
        ExprKind::Member(of, _) | ExprKind::Unary(_, of) | ExprKind::Cast(_, of) => expr_mentions(of, name),
        ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) | ExprKind::Mask(a, b) | ExprKind::Range(a, b) => {
            expr_mentions(a, name) || expr_mentions(b, name)
        }
        ExprKind::Slice(a, b, c) | ExprKind::Mux(a, b, c) => {
            expr_mentions(a, name) || expr_mentions(b, name) || expr_mentions(c, name)
        }
        ExprKind::List(items) => items.iter().any(|item| expr_mentions(item, name)),
        ExprKind::Record(items) => items.iter().any(|(_, item)| expr_mentions(item, name)),
        // A call of an action or function may have any effect; a method affects only the object that it names.
        ExprKind::Call { of, args, .. } => {
            matches!(of.kind, ExprKind::Name(_))
                || expr_mentions(of, name)
                || args.iter().any(|arg| expr_mentions(&arg.value, name))
        }
    }
}

/// True if the evaluation of the expression may have a side effect.
pub(super) fn has_side_effect(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Number(..) | ExprKind::Bool(_) | ExprKind::Text(_) | ExprKind::Any | ExprKind::Name(_) => false,
        ExprKind::Member(of, _) | ExprKind::Unary(_, of) | ExprKind::Cast(_, of) => has_side_effect(of),
        ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) | ExprKind::Mask(a, b) | ExprKind::Range(a, b) => {
            has_side_effect(a) || has_side_effect(b)
        }
        ExprKind::Slice(a, b, c) | ExprKind::Mux(a, b, c) => {
            has_side_effect(a) || has_side_effect(b) || has_side_effect(c)
        }
        ExprKind::List(items) => items.iter().any(has_side_effect),
        ExprKind::Record(items) => items.iter().any(|(_, item)| has_side_effect(item)),
        ExprKind::Call { of, .. } => {
            !matches!(&of.kind, ExprKind::Member(_, name) if matches!(&*name.text, "isValid" | "lookahead"))
        }
    }
}
