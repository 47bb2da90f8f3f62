//! Visitors of all statements and expressions of a program, in order.

use crate::ir::{Block, Expr, ExprKind, Program, Stmt, StmtKind, Transition};

/// Visits every statement of the program: parser states, the five blocks and actions.
pub(super) fn statements<'a>(program: &'a Program, visit: &mut impl FnMut(&'a Stmt)) {
    for state in &program.parser.states {
        block(&state.body, visit);
    }
    for part in [&program.verify, &program.ingress, &program.egress, &program.compute] {
        block(part, visit);
    }
    for action in &program.actions {
        block(&action.body, visit);
    }
}

/// Visits every statement of a block, nested statements included.
pub(super) fn block<'a>(stmts: &'a Block, visit: &mut impl FnMut(&'a Stmt)) {
    for stmt in stmts {
        visit(stmt);
        match &stmt.kind {
            StmtKind::If { then, otherwise, .. } => {
                block(then, visit);
                block(otherwise, visit);
            }
            StmtKind::Body(body) => block(body, visit),
            _ => {}
        }
    }
}

/// Visits every expression of the program, subexpressions and the keys of tables and `select`s included.
pub(super) fn expressions<'a>(program: &'a Program, visit: &mut impl FnMut(&'a Expr)) {
    statements(program, &mut |stmt| operands(stmt, &mut |expr| inside(expr, visit)));
    for state in &program.parser.states {
        keys(&state.next, &mut |expr| inside(expr, visit));
    }
    for key in program.tables.iter().flat_map(|table| &table.keys) {
        inside(&key.expr, visit);
    }
}

/// Visits the direct operands of a statement.
pub(super) fn operands<'a>(stmt: &'a Stmt, visit: &mut impl FnMut(&'a Expr)) {
    match &stmt.kind {
        StmtKind::Assign { value, .. } => visit(value),
        StmtKind::If { condition, .. } | StmtKind::Require { condition, .. } => visit(condition),
        StmtKind::Read { index, .. } | StmtKind::Count { index, .. } => visit(index),
        StmtKind::Write { index, value, .. } => [index, value].into_iter().for_each(visit),
        StmtKind::Update { index, operand, .. } => [index, operand].into_iter().for_each(visit),
        StmtKind::Hash { base, inputs, max, .. } => [base, max].into_iter().chain(inputs).for_each(visit),
        StmtKind::Checksum { condition, inputs, .. } => [condition].into_iter().chain(inputs).for_each(visit),
        StmtKind::Verify { condition, expected, inputs, .. } => {
            [condition, expected].into_iter().chain(inputs).for_each(visit);
        }
        StmtKind::Extract { varbits, .. } => varbits.iter().for_each(visit),
        StmtKind::Advance(by) | StmtKind::Truncate(by) => visit(by),
        StmtKind::Steer { value, .. } => visit(value),
        StmtKind::Digest { values, .. } => values.iter().for_each(visit),
        StmtKind::Clone { session } => visit(session),
        StmtKind::SetValid { .. }
        | StmtKind::Apply { .. }
        | StmtKind::Body(_)
        | StmtKind::Return
        | StmtKind::Exit
        | StmtKind::Recirculate
        | StmtKind::Remote => {}
    }
}

/// Visits the keys of a transition.
pub(super) fn keys<'a>(next: &'a Transition, visit: &mut impl FnMut(&'a Expr)) {
    if let Transition::Select { keys: of, cases } = next {
        of.iter().for_each(&mut *visit);
        cases.iter().for_each(|(_, next)| keys(next, visit));
    }
}

/// Visits an expression and its subexpressions.
pub(super) fn inside<'a>(expr: &'a Expr, visit: &mut impl FnMut(&'a Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Slot(_) | ExprKind::Valid(_) | ExprKind::Lookahead { .. } => {}
        ExprKind::Unary(_, of) | ExprKind::Slice { of, .. } | ExprKind::Cast(of) => inside(of, visit),
        ExprKind::Binary(_, left, right) => {
            inside(left, visit);
            inside(right, visit);
        }
        ExprKind::Mux(condition, then, otherwise) => {
            inside(condition, visit);
            inside(then, visit);
            inside(otherwise, visit);
        }
    }
}
