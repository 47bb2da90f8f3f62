//! Statements.

use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Instance, Instantiated, Item, Within};
use crate::ast::{self, ExprKind, Stmt, StmtKind as Written};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{self, SlotKind, Span, StmtKind};
use std::rc::Rc;

impl<'a> Checker<'a> {
    /// One after another; what is wrong in one does not stop the next.
    pub(super) fn statements(&mut self, body: &[Stmt]) {
        for stmt in body {
            let _told = self.statement(stmt);
        }
    }

    /// A block with a scope of its own, apart.
    pub(super) fn block_of(&mut self, body: &[Stmt]) -> ir::Block {
        self.apart(|checker| checker.scoped(|checker| checker.statements(body))).0
    }

    pub(super) fn statement(&mut self, stmt: &Stmt) -> Checked<()> {
        self.nested(stmt.at, |checker| checker.statement_within(stmt))
    }

    fn statement_within(&mut self, stmt: &Stmt) -> Checked<()> {
        let at = stmt.at;
        match &stmt.kind {
            Written::Empty => Ok(()),
            Written::Block(body) => {
                self.scoped(|checker| checker.statements(body));
                Ok(())
            }
            Written::Assign(to, value) => self.assignment(to, value, at),
            Written::Call(call) => self.expr(call).map(drop),
            Written::If(condition, then, otherwise) => self.conditional(condition, then, otherwise.as_deref(), at),
            Written::Switch(of, cases) => self.switch(of, cases, at),
            Written::Return(value) => self.leave(value.as_ref(), at),
            Written::Exit => self.exit(at),
            Written::Variable(variable) => self.variable(variable, at),
            Written::Const(constant) => self.constant(constant),
            Written::Instance(instance) => {
                let item = self.instance(instance);
                self.bind(&instance.name, item.unwrap_or(Item::Wrong));
                Ok(())
            }
        }
    }

    fn assignment(&mut self, to: &ast::Expr, value: &ast::Expr, at: Span) -> Checked<()> {
        let place = self.target(to);
        let found = self.expr(value);
        let (place, found) = (place?, found?);
        if let Place::Closed(ty, why) = &place {
            return self.fail(Diagnostic::new(to.at, format!("this `{ty}` can't be written")).hint(*why));
        }
        // Told where the value stands, not where the statement begins.
        let found = self.coerce(found, &place.ty(), value.at)?;
        self.assign(&place, found, at)
    }

    fn conditional(&mut self, condition: &ast::Expr, then: &Stmt, otherwise: Option<&Stmt>, at: Span) -> Checked<()> {
        let condition = self.condition(condition);
        let fill = self.fill.clone();
        let then = self.block_of(std::slice::from_ref(then));
        let changed = self.fill != fill;
        let otherwise = otherwise.map_or_else(Vec::new, |otherwise| self.block_of(std::slice::from_ref(otherwise)));
        if changed || self.fill != fill {
            let wrong = Diagnostic::new(at, "an `extract` to `.next` that may or may not happen");
            self.tell(wrong.hint("use a `select` and a state for it"));
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

    /// `return`
    fn leave(&mut self, value: Option<&ast::Expr>, at: Span) -> Checked<()> {
        if self.within == Within::Parser && self.results.is_empty() {
            return self
                .fail(Diagnostic::new(at, "`return` in a parser's state").hint("a state ends with a transition"));
        }
        match (self.results.last().cloned().flatten(), value) {
            (Some(result), Some(value)) => {
                let found = self.expr(value)?;
                let found = self.coerce(found, &result.ty(), value.at)?;
                self.assign(&result, found, at)?;
            }
            (Some(result), None) => {
                return self.fail(Diagnostic::new(at, format!("`return` needs a `{}`", result.ty())));
            }
            (None, Some(value)) => {
                return self.fail(Diagnostic::new(value.at, "nothing is returned here").hint("write `return;`"));
            }
            (None, None) => {}
        }
        self.emit(StmtKind::Return, at);
        Ok(())
    }

    /// `exit`: what calls around it copy back, they copy back first (P4_16 §12.8).
    fn exit(&mut self, at: Span) -> Checked<()> {
        if self.within == Within::Parser {
            let wrong = Diagnostic::new(at, "`exit` in a parser");
            return self.fail(wrong.hint("write `transition reject;`, or `verify(false, error.…)`"));
        }
        for copies in self.copies_back.clone().iter().rev() {
            self.copy_back(copies, at)?;
        }
        self.emit(StmtKind::Exit, at);
        Ok(())
    }

    /// `T name = value;`
    fn variable(&mut self, variable: &ast::Variable, at: Span) -> Checked<()> {
        let name = &variable.name;
        let value = variable.value.as_ref().map(|value| (self.expr(value), value.at));
        let place = self.ty(&variable.ty).and_then(|ty| {
            if ty == Type::Num {
                let wrong = Diagnostic::new(variable.ty.at, "a variable without a width");
                return self.fail(wrong.hint("write `bit<32>` or `int<32>`, or `const int`"));
            }
            self.place(&name.text, &ty, SlotKind::Local, name.at)
        });
        let item = match &place {
            Ok(place) => Item::Var { place: place.clone(), writable: true },
            Err(Reported) => Item::Wrong,
        };
        self.bind(name, item);
        let place = place?;
        match value {
            Some((value, value_at)) => {
                let value = self.coerce(value?, &place.ty(), value_at)?;
                self.assign(&place, value, at)
            }
            None => {
                // It begins as 0; one that is met once does so by itself.
                if self.parsing.is_some() || self.in_action {
                    self.cleared(&place, at);
                }
                Ok(())
            }
        }
    }

    /// `const T name = value;`
    pub(super) fn constant(&mut self, constant: &ast::Variable) -> Checked<()> {
        let value = self.constant_value(constant);
        self.bind(&constant.name, value.map_or(Item::Wrong, Item::Const));
        Ok(())
    }

    fn constant_value(&mut self, constant: &ast::Variable) -> Checked<Val> {
        let ty = self.ty(&constant.ty)?;
        let value = constant.value.as_ref().ok_or(Reported)?;
        let (written, found) = self.apart(|checker| checker.expr(value));
        let found = self.coerce(found?, &ty, value.at)?;
        if !written.is_empty() || !is_known(&found) {
            let wrong = "expected a value that is known when compiling";
            return self.fail(Diagnostic::new(value.at, wrong).hint("a variable has no `const` before it"));
        }
        Ok(found)
    }

    /// A register, a counter, a control or parser: what `T(args) name;` makes.
    pub(super) fn instance(&mut self, instance: &ast::Instance) -> Checked<Item<'a>> {
        let ast::TypeKind::Named(of, types) = &instance.ty.kind else {
            return self.fail(Diagnostic::new(instance.ty.at, "expected a control, a parser, a register or a counter"));
        };
        let (of_instance, params): (_, &'a [ast::Param]) = match self.lookup(&of.text) {
            Some(Item::Control(control)) => (Instantiated::Control(control), &control.constructor),
            Some(Item::Parser(parser)) => (Instantiated::Parser(parser), &parser.constructor),
            Some(Item::Wrong) => return Err(Reported),
            Some(_) => {
                return self.fail(Diagnostic::new(of.at, format!("`{}` has no instances", of.text)));
            }
            None => return self.external_instance(of, types, instance),
        };
        if params.len() != instance.args.len() {
            let wrong = format!("expected {} arguments, found {}", params.len(), instance.args.len());
            return self.fail(Diagnostic::new(instance.name.at, wrong));
        }
        let mut constants = Vec::new();
        for (param, arg) in params.iter().zip(&instance.args) {
            let ty = self.ty(&param.ty)?;
            let value = self.expr(&arg.value)?;
            let value = self.coerce(value, &ty, arg.value.at)?;
            if !is_known(&value) {
                let wrong = "expected a value that is known when compiling";
                return self.fail(Diagnostic::new(arg.value.at, wrong));
            }
            constants.push((Rc::clone(&param.name.text), value));
        }
        Ok(Item::Instance(Rc::new(Instance { of: of_instance, name: Rc::clone(&instance.name.text), constants })))
    }

    /// The parser that a statement applies, with its arguments.
    pub(super) fn applies_parser<'s>(&self, stmt: &'s Stmt) -> Option<(Rc<Instance<'a>>, &'s [ast::Arg])> {
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

fn is_known(value: &Val) -> bool {
    match value {
        Val::Num(_) | Val::Text => true,
        Val::Scalar(..) => value.constant().is_some(),
        Val::Whole(_, items) | Val::List(items) => items.iter().all(is_known),
        Val::Record(items) => items.iter().all(|(_, item)| is_known(item)),
        Val::Place(_) | Val::Void => false,
    }
}
