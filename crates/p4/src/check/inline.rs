//! Inlining of calls to the program's own actions, functions, controls and parsers.

use super::types::Type;
use super::value::{Place, Val};
use super::{ActionItem, Checked, Checker, Instance, Instantiated, Item, PipelinePart};
use crate::ast::{self, Stmt, StmtKind as Written};
use crate::diag::Diagnostic;
use crate::ir::{self, SlotKind, SourceSpan, StmtKind};

/// Body to inline at its call.
struct Body<'a, 'b> {
    /// Number of outer scopes visible to the body.
    scopes: usize,
    path: String,
    items: Vec<(ast::Name, Item<'a>)>,
    copies_back: Vec<(Place, Place)>,
    result: Option<Place>,
    body: &'b [Stmt],
    at: SourceSpan,
}

impl<'a> Checker<'a> {
    /// Inlines `action(args);`.
    pub(super) fn inline_action(&mut self, action: &ActionItem<'a>, args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        let ast = action.action;
        self.used.insert(std::ptr::from_ref(ast).cast());
        let bound = self.bind_arguments(&ast.params, args, Some(&ast.body), at)?;
        let path = join_path(&action.path, &ast.name.text);
        let (items, copies_back) = (bound.items, bound.copies_back);
        let scopes = action.scopes;
        self.inline_body(Body { scopes, path, items, copies_back, result: None, body: &ast.body, at })
    }

    /// Inlines `function(args)`.
    pub(super) fn inline_function(
        &mut self,
        function: &'a ast::Function,
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        self.used.insert(std::ptr::from_ref(function).cast());
        let ty = self.resolve_type(&function.result)?;
        let bound = self.bind_arguments(&function.params, args, None, at)?;
        let result = match &ty {
            Type::Void => None,
            _ => Some(self.new_place(&function.name.text, &ty, SlotKind::Local, at)?),
        };
        self.check_returns(function, &ty);
        let path = join_path(&self.path, &function.name.text);
        let (items, copies_back) = (bound.items, bound.copies_back);
        let value = result.clone().map_or(Val::Void, Val::Place);
        self.inline_body(Body { scopes: 1, path, items, copies_back, result, body: &function.body, at })?;
        Ok(value)
    }

    /// Reports a function that may end without a result.
    pub(super) fn check_returns(&mut self, function: &ast::Function, ty: &Type) {
        if *ty != Type::Void && !always_returns(&function.body) {
            let wrong = Diagnostic::new(
                function.name.at,
                format!("function `{}` may end without `return`", function.name.text),
            );
            self.report(wrong.hint(format!("its result has type `{ty}`")));
        }
    }

    /// Inlines `instance.apply(args);`.
    pub(super) fn inline_apply(&mut self, instance: &Instance<'a>, args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        let control = match instance.of {
            Instantiated::Control(control) => control,
            Instantiated::Parser(parser) => {
                let wrong = format!("parser `{}` cannot be applied here", parser.name.text);
                let hint = "apply it in a parser's state, outside of `if`";
                return self.fail(Diagnostic::new(at, wrong).hint(hint));
            }
        };
        if self.within == PipelinePart::Parser || self.in_action || !self.results.is_empty() {
            let wrong = format!("control `{}` cannot be applied here", control.name.text);
            return self.fail(Diagnostic::new(at, wrong).hint("apply controls in the `apply` block of a control"));
        }
        let path = join_path(&self.path, &instance.name);
        // `Control.apply()` creates an instance for each use (P4_16 §15.1).
        if instance.name != control.name.text && self.holds_state(&path) {
            let wrong = format!("`{}` has tables, registers or counters, and can be applied only once", instance.name);
            return self
                .fail(Diagnostic::new(at, wrong).hint("apply it in one place, or declare an instance for each"));
        }
        // Actions of tables are specialised for these arguments, so another application must not share them.
        self.actions.retain(|(_, made), _| *made != path && !is_under_path(&path, made));
        let bound = self.bind_arguments(&control.params, args, None, at)?;
        self.run_nested(at, |checker| {
            let before = std::mem::replace(&mut checker.path, path);
            checker.copies_back.push(bound.copies_back);
            let (block, ()) = checker.collect_block(|checker| {
                checker.with_outer_scopes(1, |checker| {
                    checker.bind_all(bound.items);
                    checker.bind_constants(&control.constructor, &instance.constants);
                    checker.check_control(control);
                });
            });
            checker.path = before;
            checker.emit_body(block, at);
            let copies = checker.copies_back.pop().unwrap_or_default();
            checker.emit_copies_back(&copies, at)
        })
    }

    /// True if a table, register or counter was declared under this path: a second inlining would duplicate it.
    fn holds_state(&self, path: &str) -> bool {
        let ir::Program { tables, registers, counters, .. } = &self.program;
        tables.iter().any(|table| is_under_path(path, &table.name))
            || registers.iter().any(|register| is_under_path(path, &register.name))
            || counters.iter().any(|counter| is_under_path(path, &counter.name))
    }

    pub(super) fn bind_all(&mut self, items: Vec<(ast::Name, Item<'a>)>) {
        for (name, item) in items {
            self.bind(&name, item);
        }
    }

    /// Binds the constructor's parameters.
    pub(super) fn bind_constants(&mut self, params: &[ast::Param], values: &[(std::rc::Rc<str>, Val)]) {
        for (param, (_, value)) in params.iter().zip(values) {
            self.bind(&param.name, Item::Const(value.clone()));
        }
    }

    fn inline_body(&mut self, body: Body<'a, '_>) -> Checked<()> {
        self.run_nested(body.at, |checker| {
            let before = std::mem::replace(&mut checker.path, body.path);
            checker.results.push(body.result);
            checker.copies_back.push(body.copies_back);
            let (block, ()) = checker.collect_block(|checker| {
                checker.with_outer_scopes(body.scopes, |checker| {
                    checker.bind_all(body.items);
                    checker.check_statements(body.body);
                });
            });
            checker.results.pop();
            checker.path = before;
            checker.emit_body(block, body.at);
            let copies = checker.copies_back.pop().unwrap_or_default();
            checker.emit_copies_back(&copies, body.at)
        })
    }

    /// Emits an inlined body, in which `return` ends only the body.
    pub(super) fn emit_body(&mut self, mut block: ir::Block, at: SourceSpan) {
        if block.last().is_some_and(|last| last.kind == StmtKind::Return) {
            block.pop();
        }
        if contains_return(&block) {
            self.emit(StmtKind::Body(block), at);
        } else {
            self.block.append(&mut block);
        }
    }
}

/// Path with one more component.
pub(super) fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// True if a name is under a path.
fn is_under_path(path: &str, name: &str) -> bool {
    name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
}

/// True if the block contains a `return` that leaves it.
fn contains_return(block: &ir::Block) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Return => true,
        StmtKind::If { then, otherwise, .. } => contains_return(then) || contains_return(otherwise),
        _ => false,
    })
}

/// True if the block contains an `exit`.
pub(super) fn contains_exit(block: &ir::Block) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Exit => true,
        StmtKind::If { then, otherwise, .. } => contains_exit(then) || contains_exit(otherwise),
        StmtKind::Body(body) => contains_exit(body),
        _ => false,
    })
}

/// True if all paths through the statements end with `return` or `exit`.
fn always_returns(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        Written::Return(_) | Written::Exit => true,
        Written::Block(body) => always_returns(body),
        Written::If(_, then, Some(otherwise)) => {
            always_returns(std::slice::from_ref(then)) && always_returns(std::slice::from_ref(otherwise))
        }
        Written::Switch(_, cases) => {
            cases.iter().any(|case| case.label.is_none())
                && cases.iter().all(|case| case.body.as_ref().is_none_or(|body| always_returns(body)))
        }
        _ => false,
    })
}
