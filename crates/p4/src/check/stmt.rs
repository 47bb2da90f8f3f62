//! Statements.

use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Instance, Instantiated, Item, PipelinePart};
use crate::ast::{self, ExprKind, Stmt, StmtKind as Written};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{self, SlotKind, SourceSpan, StmtKind};
use std::rc::Rc;

impl<'a> Checker<'a> {
    /// Checks statements in order; a mistake in one does not stop the next.
    pub(super) fn check_statements(&mut self, body: &[Stmt]) {
        for stmt in body {
            let _told = self.check_statement(stmt);
        }
    }

    /// Checks a block in a scope of its own, into a separate IR block.
    pub(super) fn check_block(&mut self, body: &[Stmt]) -> ir::Block {
        self.collect_block(|checker| checker.with_scope(|checker| checker.check_statements(body))).0
    }

    pub(super) fn check_statement(&mut self, stmt: &Stmt) -> Checked<()> {
        self.run_nested(stmt.at, |checker| checker.check_statement_inner(stmt))
    }

    fn check_statement_inner(&mut self, stmt: &Stmt) -> Checked<()> {
        let at = stmt.at;
        match &stmt.kind {
            Written::Empty => Ok(()),
            Written::Block(body) => {
                self.with_scope(|checker| checker.check_statements(body));
                Ok(())
            }
            Written::Assign(to, value) => self.check_assignment(to, value, at),
            Written::Call(call) => self.check_expr(call).map(drop),
            Written::If(condition, then, otherwise) => {
                self.check_conditional(condition, then, otherwise.as_deref(), at)
            }
            Written::Switch(of, cases) => self.check_switch(of, cases, at),
            Written::Return(value) => self.check_return(value.as_ref(), at),
            Written::Exit => self.check_exit(at),
            Written::Variable(variable) => self.declare_variable(variable, at),
            Written::Const(constant) => self.declare_constant(constant),
            Written::Instance(instance) => {
                let item = self.declare_instance(instance);
                self.bind(&instance.name, item.unwrap_or(Item::Invalid));
                Ok(())
            }
        }
    }

    fn check_assignment(&mut self, to: &ast::Expr, value: &ast::Expr, at: SourceSpan) -> Checked<()> {
        let place = self.resolve_target(to);
        let found = self.check_expr(value);
        let (place, found) = (place?, found?);
        if let Place::Closed(ty, why) = &place {
            return self.fail(Diagnostic::new(to.at, format!("cannot write this `{ty}`")).hint(*why));
        }
        // The span is the value's, not the statement's.
        let found = self.coerce(found, &place.ty(), value.at)?;
        self.emit_assign(&place, found, at)
    }

    fn check_conditional(
        &mut self,
        condition: &ast::Expr,
        then: &Stmt,
        otherwise: Option<&Stmt>,
        at: SourceSpan,
    ) -> Checked<()> {
        let condition = self.check_condition(condition);
        let fill = self.fill.clone();
        let then = self.check_block(std::slice::from_ref(then));
        let changed = self.fill != fill;
        let otherwise = otherwise.map_or_else(Vec::new, |otherwise| self.check_block(std::slice::from_ref(otherwise)));
        if changed || self.fill != fill {
            let wrong = Diagnostic::new(at, "an `extract` to `.next` cannot be conditional");
            self.report(wrong.hint("use a `select` and a separate state"));
            self.fill = fill;
        }
        let condition = condition?;
        match condition.kind {
            ir::ExprKind::Const(1) => self.block.extend(then),
            ir::ExprKind::Const(_) => self.block.extend(otherwise),
            _ => self.emit(StmtKind::If { condition, then, otherwise }, at),
        }
        Ok(())
    }

    /// Checks `return`.
    fn check_return(&mut self, value: Option<&ast::Expr>, at: SourceSpan) -> Checked<()> {
        if self.within == PipelinePart::Parser && self.results.is_empty() {
            return self.fail(
                Diagnostic::new(at, "`return` is not allowed in a parser state").hint("a state ends with a transition"),
            );
        }
        match (self.results.last().cloned().flatten(), value) {
            (Some(result), Some(value)) => {
                let found = self.check_expr(value)?;
                let found = self.coerce(found, &result.ty(), value.at)?;
                self.emit_assign(&result, found, at)?;
            }
            (Some(result), None) => {
                return self.fail(Diagnostic::new(at, format!("missing return value of type `{}`", result.ty())));
            }
            (None, Some(value)) => {
                return self.fail(Diagnostic::new(value.at, "unexpected return value").hint("write `return;`"));
            }
            (None, None) => {}
        }
        self.emit(StmtKind::Return, at);
        Ok(())
    }

    /// Checks `exit`; the enclosing calls perform their copies first (P4_16 §12.8).
    fn check_exit(&mut self, at: SourceSpan) -> Checked<()> {
        if self.within == PipelinePart::Parser {
            let wrong = Diagnostic::new(at, "`exit` is not allowed in a parser");
            return self.fail(wrong.hint("write `transition reject;`, or `verify(false, error.…)`"));
        }
        for copies in self.copies_back.clone().iter().rev() {
            self.emit_copies_back(copies, at)?;
        }
        self.emit(StmtKind::Exit, at);
        Ok(())
    }

    /// Declares `T name = value;`.
    fn declare_variable(&mut self, variable: &ast::Variable, at: SourceSpan) -> Checked<()> {
        let name = &variable.name;
        let value = variable.value.as_ref().map(|value| (self.check_expr(value), value.at));
        let place = self.resolve_type(&variable.ty).and_then(|ty| {
            if ty == Type::Num {
                let wrong = Diagnostic::new(variable.ty.at, "missing width of the variable");
                return self.fail(wrong.hint("write `bit<32>` or `int<32>`, or `const int`"));
            }
            self.new_place(&name.text, &ty, SlotKind::Local, name.at)
        });
        let item = match &place {
            Ok(place) => Item::Var { place: place.clone(), writable: true },
            Err(Reported) => Item::Invalid,
        };
        self.bind(name, item);
        let place = place?;
        match value {
            Some((value, value_at)) => {
                let value = self.coerce(value?, &place.ty(), value_at)?;
                self.emit_assign(&place, value, at)
            }
            None => {
                // Zero initialisation; only needed where the declaration can be executed again.
                if self.parsing.is_some() || self.in_action {
                    self.clear(&place, at);
                }
                Ok(())
            }
        }
    }

    /// Declares `const T name = value;`.
    pub(super) fn declare_constant(&mut self, constant: &ast::Variable) -> Checked<()> {
        let value = self.eval_constant(constant);
        self.bind(&constant.name, value.map_or(Item::Invalid, Item::Const));
        Ok(())
    }

    fn eval_constant(&mut self, constant: &ast::Variable) -> Checked<Val> {
        let ty = self.resolve_type(&constant.ty)?;
        let value = constant.value.as_ref().ok_or(Reported)?;
        let (written, found) = self.collect_block(|checker| checker.check_expr(value));
        let found = self.coerce(found?, &ty, value.at)?;
        if !written.is_empty() || !is_constant(&found) {
            let wrong = "expected a compile-time constant";
            return self.fail(Diagnostic::new(value.at, wrong).hint("for a variable, remove `const`"));
        }
        Ok(found)
    }

    /// Declares `T(args) name;`: a register, counter, control or parser.
    pub(super) fn declare_instance(&mut self, instance: &ast::Instance) -> Checked<Item<'a>> {
        let ast::TypeKind::Named(of, types) = &instance.ty.kind else {
            return self.fail(Diagnostic::new(instance.ty.at, "expected a control, a parser, a register or a counter"));
        };
        let (of_instance, params): (_, &'a [ast::Param]) = match self.lookup(&of.text) {
            Some(Item::Control(control)) => (Instantiated::Control(control), &control.constructor),
            Some(Item::Parser(parser)) => (Instantiated::Parser(parser), &parser.constructor),
            Some(Item::Invalid) => return Err(Reported),
            Some(_) => {
                return self.fail(Diagnostic::new(of.at, format!("`{}` cannot be instantiated", of.text)));
            }
            None => return self.declare_extern(of, types, instance),
        };
        if params.len() != instance.args.len() {
            let wrong = format!("expected {} arguments, found {}", params.len(), instance.args.len());
            return self.fail(Diagnostic::new(instance.name.at, wrong));
        }
        let mut constants = Vec::new();
        for (param, arg) in params.iter().zip(&instance.args) {
            let ty = self.resolve_type(&param.ty)?;
            let value = self.check_expr(&arg.value)?;
            let value = self.coerce(value, &ty, arg.value.at)?;
            if !is_constant(&value) {
                let wrong = "expected a compile-time constant";
                return self.fail(Diagnostic::new(arg.value.at, wrong));
            }
            constants.push((Rc::clone(&param.name.text), value));
        }
        Ok(Item::Instance(Rc::new(Instance { of: of_instance, name: Rc::clone(&instance.name.text), constants })))
    }

    /// Parser that a statement applies, with the arguments.
    pub(super) fn applied_parser<'s>(&self, stmt: &'s Stmt) -> Option<(Rc<Instance<'a>>, &'s [ast::Arg])> {
        let Written::Call(ast::Expr { kind: ExprKind::Call { of, args, .. }, .. }) = &stmt.kind else { return None };
        let ExprKind::Member(object, method) = &of.kind else { return None };
        let ExprKind::Name(name) = &object.kind else { return None };
        if &*method.text != "apply" {
            return None;
        }
        let instance = match self.lookup(name)? {
            Item::Instance(instance) => instance,
            Item::Parser(parser) => Rc::new(Instance {
                of: Instantiated::Parser(parser),
                name: Rc::clone(&parser.name.text),
                constants: Vec::new(),
            }),
            _ => return None,
        };
        matches!(instance.of, Instantiated::Parser(_)).then_some((instance, args))
    }
}

fn is_constant(value: &Val) -> bool {
    match value {
        Val::Num(_) | Val::Text => true,
        Val::Scalar(..) => value.constant().is_some(),
        Val::Whole(_, items) | Val::List(items) => items.iter().all(is_constant),
        Val::Record(items) => items.iter().all(|(_, item)| is_constant(item)),
        Val::Place(_) | Val::Void => false,
    }
}
