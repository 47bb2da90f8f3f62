//! Calls of what the program declares itself: the body stands where the call stood.

use super::types::Type;
use super::value::{Place, Val};
use super::{ActionItem, Checked, Checker, Instance, Instantiated, Item, Within};
use crate::ast::{self, Stmt, StmtKind as Written};
use crate::diag::Diagnostic;
use crate::ir::{self, SlotKind, Span, StmtKind};

/// A body to write in place of its call.
struct Body<'a, 'b> {
    /// Scopes that it sees.
    scopes: usize,
    path: String,
    items: Vec<(ast::Name, Item<'a>)>,
    copies_back: Vec<(Place, Place)>,
    result: Option<Place>,
    body: &'b [Stmt],
    at: Span,
}

impl<'a> Checker<'a> {
    /// `action(args);`
    pub(super) fn call_action(&mut self, action: &ActionItem<'a>, args: &[ast::Arg], at: Span) -> Checked<()> {
        let ast = action.action;
        self.used.insert(std::ptr::from_ref(ast).cast());
        let bound = self.arguments_to(&ast.params, args, Some(&ast.body), at)?;
        let path = extended(&action.path, &ast.name.text);
        let (items, copies_back) = (bound.items, bound.copies_back);
        let scopes = action.scopes;
        self.write_body(Body { scopes, path, items, copies_back, result: None, body: &ast.body, at })
    }

    /// `function(args)`
    pub(super) fn call_function(&mut self, function: &'a ast::Function, args: &[ast::Arg], at: Span) -> Checked<Val> {
        self.used.insert(std::ptr::from_ref(function).cast());
        let ty = self.ty(&function.result)?;
        let bound = self.arguments_to(&function.params, args, None, at)?;
        let result = match &ty {
            Type::Void => None,
            _ => Some(self.place(&function.name.text, &ty, SlotKind::Local, at)?),
        };
        self.check_returns(function, &ty);
        let path = extended(&self.path, &function.name.text);
        let (items, copies_back) = (bound.items, bound.copies_back);
        let value = result.clone().map_or(Val::Void, Val::Place);
        self.write_body(Body { scopes: 1, path, items, copies_back, result, body: &function.body, at })?;
        Ok(value)
    }

    /// Complains of a function that may end without its result.
    pub(super) fn check_returns(&mut self, function: &ast::Function, ty: &Type) {
        if *ty != Type::Void && !returns(&function.body) {
            let wrong = Diagnostic::new(function.name.at, format!("`{}` may end without `return`", function.name.text));
            self.tell(wrong.hint(format!("it returns a `{ty}`")));
        }
    }

    /// `instance.apply(args);`
    pub(super) fn apply(&mut self, instance: &Instance<'a>, args: &[ast::Arg], at: Span) -> Checked<()> {
        let control = match instance.of {
            Instantiated::Control(control) => control,
            Instantiated::Parser(parser) => {
                let wrong = format!("parser `{}` is applied here", parser.name.text);
                let hint = "in a parser's state, as a statement outside of any `if`";
                return self.fail(Diagnostic::new(at, wrong).hint(hint));
            }
        };
        if self.within == Within::Parser || self.in_action || !self.results.is_empty() {
            let wrong = format!("control `{}` is applied here", control.name.text);
            return self.fail(Diagnostic::new(at, wrong).hint("controls are applied in `apply` of a control"));
        }
        let path = extended(&self.path, &instance.name);
        // `Control.apply()` is an instance of its own each time (P4_16 §15.1).
        if instance.name != control.name.text && self.holds_state(&path) {
            let wrong = format!("`{}` is applied a second time, and has tables, registers or counters", instance.name);
            return self
                .fail(Diagnostic::new(at, wrong).hint("apply it in one place, or declare an instance for each"));
        }
        // Actions of tables are made for these arguments, not for those of another application.
        self.actions.retain(|(_, made), _| *made != path && !within(&path, made));
        let bound = self.arguments_to(&control.params, args, None, at)?;
        self.nested(at, |checker| {
            let before = std::mem::replace(&mut checker.path, path);
            checker.copies_back.push(bound.copies_back);
            let (block, ()) = checker.apart(|checker| {
                checker.elsewhere(1, |checker| {
                    checker.bind_all(bound.items);
                    checker.constants(&control.constructor, &instance.constants);
                    checker.control_body(control);
                });
            });
            checker.path = before;
            checker.emit_body(block, at);
            let copies = checker.copies_back.pop().unwrap_or_default();
            checker.copy_back(&copies, at)
        })
    }

    /// Whether something that outlives a packet was declared under this path: it would be there twice.
    fn holds_state(&self, path: &str) -> bool {
        let ir::Program { tables, registers, counters, .. } = &self.program;
        tables.iter().any(|table| within(path, &table.name))
            || registers.iter().any(|register| within(path, &register.name))
            || counters.iter().any(|counter| within(path, &counter.name))
    }

    pub(super) fn bind_all(&mut self, items: Vec<(ast::Name, Item<'a>)>) {
        for (name, item) in items {
            self.bind(&name, item);
        }
    }

    /// Constructor's parameters.
    pub(super) fn constants(&mut self, params: &[ast::Param], values: &[(std::rc::Rc<str>, Val)]) {
        for (param, (_, value)) in params.iter().zip(values) {
            self.bind(&param.name, Item::Const(value.clone()));
        }
    }

    fn write_body(&mut self, body: Body<'a, '_>) -> Checked<()> {
        self.nested(body.at, |checker| {
            let before = std::mem::replace(&mut checker.path, body.path);
            checker.results.push(body.result);
            checker.copies_back.push(body.copies_back);
            let (block, ()) = checker.apart(|checker| {
                checker.elsewhere(body.scopes, |checker| {
                    checker.bind_all(body.items);
                    checker.statements(body.body);
                });
            });
            checker.results.pop();
            checker.path = before;
            checker.emit_body(block, body.at);
            let copies = checker.copies_back.pop().unwrap_or_default();
            checker.copy_back(&copies, body.at)
        })
    }

    /// Statements in which `return` ends just them.
    pub(super) fn emit_body(&mut self, mut block: ir::Block, at: Span) {
        if block.last().is_some_and(|last| last.kind == StmtKind::Return) {
            block.pop();
        }
        if leaves(&block) {
            self.emit(StmtKind::Body(block), at);
        } else {
            self.block.append(&mut block);
        }
    }
}

/// A path with one name more.
pub(super) fn extended(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether a name stands under a path.
fn within(path: &str, name: &str) -> bool {
    name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether a `return` within leaves these statements.
fn leaves(block: &ir::Block) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Return => true,
        StmtKind::If { then, otherwise, .. } => leaves(then) || leaves(otherwise),
        _ => false,
    })
}

/// Whether an `exit` stands within.
pub(super) fn exits(block: &ir::Block) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Exit => true,
        StmtKind::If { then, otherwise, .. } => exits(then) || exits(otherwise),
        StmtKind::Body(body) => exits(body),
        _ => false,
    })
}

/// Whether the statements always end with a `return` or `exit`.
fn returns(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        Written::Return(_) | Written::Exit => true,
        Written::Block(body) => returns(body),
        Written::If(_, then, Some(otherwise)) => {
            returns(std::slice::from_ref(then)) && returns(std::slice::from_ref(otherwise))
        }
        Written::Switch(_, cases) => {
            cases.iter().any(|case| case.label.is_none())
                && cases.iter().all(|case| case.body.as_ref().is_none_or(|body| returns(body)))
        }
        _ => false,
    })
}
