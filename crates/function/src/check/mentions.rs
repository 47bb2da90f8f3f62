//! Which names a body mentions: an argument that is passed by its place must not be reached by its name as well.

use crate::ast::{Expr, ExprKind, Stmt, StmtKind};

/// Whether the statements mention this name, or call something that could.
pub(super) fn mentions(body: &[Stmt], name: &str) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::Empty | StmtKind::Exit | StmtKind::Return(None) => false,
        StmtKind::Block(body) => mentions(body, name),
        StmtKind::Assign(to, value) => within(to, name) || within(value, name),
        StmtKind::Call(expr) | StmtKind::Return(Some(expr)) => within(expr, name),
        StmtKind::If(condition, then, otherwise) => {
            within(condition, name)
                || mentions(std::slice::from_ref(then), name)
                || otherwise.as_ref().is_some_and(|otherwise| mentions(std::slice::from_ref(otherwise), name))
        }
        StmtKind::Switch(of, cases) => {
            within(of, name) || cases.iter().any(|case| case.body.as_ref().is_some_and(|body| mentions(body, name)))
        }
        StmtKind::Variable(variable) | StmtKind::Const(variable) => {
            variable.value.as_ref().is_some_and(|value| within(value, name))
        }
        StmtKind::Instance(_) => true,
    })
}

fn within(expr: &Expr, name: &str) -> bool {
    match &expr.kind {
        ExprKind::Number(..) | ExprKind::Bool(_) | ExprKind::Text(_) | ExprKind::Any => false,
        ExprKind::Name(found) => **found == *name,
        ExprKind::Member(of, _) | ExprKind::Unary(_, of) | ExprKind::Cast(_, of) => within(of, name),
        ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) | ExprKind::Mask(a, b) | ExprKind::Range(a, b) => {
            within(a, name) || within(b, name)
        }
        ExprKind::Slice(a, b, c) | ExprKind::Mux(a, b, c) => within(a, name) || within(b, name) || within(c, name),
        ExprKind::List(items) => items.iter().any(|item| within(item, name)),
        ExprKind::Record(items) => items.iter().any(|(_, item)| within(item, name)),
        // An action or function by its name could do anything; a method works on what it names.
        ExprKind::Call { of, args, .. } => {
            matches!(of.kind, ExprKind::Name(_)) || within(of, name) || args.iter().any(|arg| within(&arg.value, name))
        }
    }
}

/// Whether working out an expression may change anything.
pub(super) fn changes(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Number(..) | ExprKind::Bool(_) | ExprKind::Text(_) | ExprKind::Any | ExprKind::Name(_) => false,
        ExprKind::Member(of, _) | ExprKind::Unary(_, of) | ExprKind::Cast(_, of) => changes(of),
        ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) | ExprKind::Mask(a, b) | ExprKind::Range(a, b) => {
            changes(a) || changes(b)
        }
        ExprKind::Slice(a, b, c) | ExprKind::Mux(a, b, c) => changes(a) || changes(b) || changes(c),
        ExprKind::List(items) => items.iter().any(changes),
        ExprKind::Record(items) => items.iter().any(|(_, item)| changes(item)),
        ExprKind::Call { of, .. } => {
            !matches!(&of.kind, ExprKind::Member(_, name) if matches!(&*name.text, "isValid" | "lookahead"))
        }
    }
}
