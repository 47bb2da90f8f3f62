//! Actions of tables.

use super::inline::{contains_exit, join_path};
use super::{ActionItem, Checked, Checker, Item};
use crate::ast::{self, Direction, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Action, ActionId, ExprKind as Known, SlotKind, SourceSpan};
use std::rc::Rc;

impl<'a> Checker<'a> {
    /// Finds the action that `name` or `name(args)` refers to, and its arguments.
    pub(super) fn resolve_action<'x>(
        &mut self,
        expr: &'x ast::Expr,
    ) -> Checked<(Rc<ActionItem<'a>>, &'x [ast::Arg], Rc<str>)> {
        let (of, args): (_, &[ast::Arg]) = match &expr.kind {
            ExprKind::Call { of, args, .. } => (&**of, args),
            _ => (expr, &[]),
        };
        let ExprKind::Name(name) = &of.kind else {
            return self.fail(Diagnostic::new(of.at, "expected an action name"));
        };
        match self.lookup(name) {
            Some(Item::Action(action)) => Ok((action, args, Rc::clone(name))),
            Some(Item::Invalid) => Err(Reported),
            Some(_) => self.fail(Diagnostic::new(of.at, format!("`{name}` is not an action"))),
            None => self.report_unknown(of.at, name, "action"),
        }
    }

    /// Adds a table's action with arguments for its directed parameters; the remaining parameters are entry data.
    pub(super) fn add_table_action(
        &mut self,
        item: &ActionItem<'a>,
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<ActionId> {
        let ast = item.action;
        self.used.insert(std::ptr::from_ref(ast).cast());
        let key = (std::ptr::from_ref(ast), item.path.clone());
        // An `exit` within the body depends on the copies of the enclosing calls, so such an action is not shared.
        let alone = self.copies_back.iter().all(Vec::is_empty);
        if args.is_empty()
            && let Some(known) = self.actions.get(&key)
            && (alone || !contains_exit(&self.program.actions[known.0 as usize].body))
        {
            return Ok(*known);
        }
        let directed = ast.params.iter().take_while(|param| param.direction != Direction::None).count();
        if let Some(param) = ast.params[directed..].iter().find(|param| param.direction != Direction::None) {
            let wrong = Diagnostic::new(param.name.at, "parameter with a direction after a parameter without one");
            return self.fail(wrong.hint("action data parameters come last"));
        }
        let name = join_path(&item.path, &ast.name.text);
        let before = std::mem::take(&mut self.path);
        let unique = self.unique_name(&name);
        self.path = unique.clone();
        let outer = std::mem::replace(&mut self.in_action, true);
        let mut params = Vec::new();
        let (body, done) = self.run_nested(at, |checker| {
            Ok(checker
                .collect_block(|checker| checker.check_action_body(item, &ast.params, directed, args, &mut params, at)))
        })?;
        self.in_action = outer;
        self.path = before;
        done?;
        let shared = args.is_empty() && (alone || !contains_exit(&body));
        self.program.actions.push(Action { name: unique, params, body });
        let id = ActionId(self.program.actions.len() as u32 - 1);
        if shared {
            self.actions.insert(key, id);
        }
        Ok(id)
    }

    fn check_action_body(
        &mut self,
        item: &ActionItem<'a>,
        all: &'a [ast::Param],
        directed: usize,
        args: &[ast::Arg],
        params: &mut Vec<crate::ir::SlotId>,
        at: SourceSpan,
    ) -> Checked<()> {
        let body = &item.action.body;
        let bound = self.bind_arguments(&all[..directed], args, Some(body), at)?;
        self.results.push(None);
        self.copies_back.push(bound.copies_back);
        let (block, done) = self.collect_block(|checker| {
            checker.with_outer_scopes(item.scopes, |checker| {
                checker.bind_all(bound.items);
                for param in &all[directed..] {
                    let item = checker.declare_action_data(param, params);
                    checker.bind(&param.name, item.unwrap_or(Item::Invalid));
                }
                checker.check_statements(body);
            });
            Ok(())
        });
        self.results.pop();
        let copies = self.copies_back.pop().unwrap_or_default();
        done?;
        self.emit_body(block, at);
        self.emit_copies_back(&copies, at)
    }

    /// Declares a parameter whose value comes from the entry.
    fn declare_action_data(&mut self, param: &ast::Param, params: &mut Vec<crate::ir::SlotId>) -> Checked<Item<'a>> {
        let ty = self.resolve_type(&param.ty)?;
        let Some(scalar) = ty.scalar() else {
            let wrong = Diagnostic::new(param.ty.at, format!("action data cannot have type `{ty}`"));
            return self.fail(wrong.hint("use one parameter for each field"));
        };
        let slot = self.new_slot(&param.name.text, scalar, SlotKind::Local, param.name.at)?;
        params.push(slot);
        Ok(Item::Var { place: super::value::Place::Slot(ty, slot), writable: false })
    }

    /// Action call of an entry or of `default_action`, with its data.
    pub(super) fn check_action_call(
        &mut self,
        expr: &ast::Expr,
        table: &super::table::TableItem,
        ids: &[ActionId],
    ) -> Checked<(ActionId, Vec<u128>)> {
        let (action, args, name) = self.resolve_action(expr)?;
        let Some(index) = table.actions.iter().position(|known| *known == name) else {
            let wrong = Diagnostic::new(expr.at, format!("table `{}` has no action `{name}`", table.name));
            return self.fail(wrong.hint(format!("add `{name};` to its actions")));
        };
        let params = &action.action.params;
        let directed = params.iter().take_while(|param| param.direction != Direction::None).count();
        let data = &params[directed..];
        let args = if args.len() == params.len() { &args[directed..] } else { args };
        if args.len() != data.len() {
            let usage: Vec<&str> = data.iter().map(|param| &*param.name.text).collect();
            let wrong = format!("expected {} arguments for `{name}`, found {}", data.len(), args.len());
            return self.fail(Diagnostic::new(expr.at, wrong).hint(format!("data parameters: ({})", usage.join(", "))));
        }
        let mut values = Vec::new();
        for (param, arg) in data.iter().zip(args) {
            let ty = self.resolve_type(&param.ty)?;
            values.push(self.eval_bits(&arg.value, &ty)?);
        }
        Ok((ids[index], values))
    }

    /// Bits of a compile-time constant.
    pub(super) fn eval_bits(&mut self, expr: &ast::Expr, ty: &super::types::Type) -> Checked<u128> {
        let (_, value) = self.collect_block(|checker| checker.check_expr_as(expr, ty));
        match value?.kind {
            Known::Const(value) => Ok(value),
            _ => self.fail(Diagnostic::new(expr.at, "expected a compile-time constant")),
        }
    }

    /// Item of an action's declaration.
    pub(super) fn make_action_item(&self, action: &'a ast::Action) -> Item<'a> {
        let (scopes, path) = (self.scopes.len(), self.path.clone());
        Item::Action(Rc::new(ActionItem { action, scopes, path }))
    }

    /// Checks the body of an action that is never called.
    pub(super) fn check_action(&mut self, action: &'a ast::Action) {
        let Some(Item::Action(item)) = self.lookup(&action.name.text) else { return };
        if self.used.contains(&std::ptr::from_ref(action).cast()) || !std::ptr::eq(item.action, action) {
            return;
        }
        let within = self.within;
        self.check_without_emitting(within, |checker| {
            checker.with_outer_scopes(item.scopes, |checker| {
                for param in &action.params {
                    let place = checker
                        .resolve_type(&param.ty)
                        .and_then(|ty| checker.new_place(&param.name.text, &ty, SlotKind::Local, param.name.at));
                    let writable = matches!(param.direction, Direction::Out | Direction::InOut);
                    let item = place.map_or(Item::Invalid, |place| Item::Var { place, writable });
                    checker.bind(&param.name, item);
                }
                checker.results.push(None);
                let outer = std::mem::replace(&mut checker.in_action, true);
                checker.check_statements(&action.body);
                checker.in_action = outer;
                checker.results.pop();
            });
        });
        self.used.insert(std::ptr::from_ref(action).cast());
    }
}
