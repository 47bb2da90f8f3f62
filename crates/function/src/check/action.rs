//! Actions that tables run.

use super::inline::{exits, extended};
use super::{ActionItem, Checked, Checker, Item};
use crate::ast::{self, Direction, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Action, ActionId, ExprKind as Known, SlotKind, Span};
use std::rc::Rc;

impl<'a> Checker<'a> {
    /// The action that `name` or `name(args)` means, and its arguments.
    pub(super) fn action_named<'x>(
        &mut self,
        expr: &'x ast::Expr,
    ) -> Checked<(Rc<ActionItem<'a>>, &'x [ast::Arg], Rc<str>)> {
        let (of, args): (_, &[ast::Arg]) = match &expr.kind {
            ExprKind::Call { of, args, .. } => (&**of, args),
            _ => (expr, &[]),
        };
        let ExprKind::Name(name) = &of.kind else {
            return self.fail(Diagnostic::new(of.at, "expected the name of an action"));
        };
        match self.lookup(name) {
            Some(Item::Action(action)) => Ok((action, args, Rc::clone(name))),
            Some(Item::Wrong) => Err(Reported),
            Some(_) => self.fail(Diagnostic::new(of.at, format!("`{name}` is no action"))),
            None => self.unknown(of.at, name, "action"),
        }
    }

    /// The action with these arguments for its directed parameters; the others are data of entries.
    pub(super) fn table_action(&mut self, item: &ActionItem<'a>, args: &[ast::Arg], at: Span) -> Checked<ActionId> {
        let ast = item.action;
        self.used.insert(std::ptr::from_ref(ast).cast());
        let key = (std::ptr::from_ref(ast), item.path.clone());
        // An `exit` within copies back what the calls around it do: another's does not.
        let alone = self.copies_back.iter().all(Vec::is_empty);
        if args.is_empty()
            && let Some(known) = self.actions.get(&key)
            && (alone || !exits(&self.program.actions[known.0 as usize].body))
        {
            return Ok(*known);
        }
        let directed = ast.params.iter().take_while(|param| param.direction != Direction::None).count();
        if let Some(param) = ast.params[directed..].iter().find(|param| param.direction != Direction::None) {
            let wrong = Diagnostic::new(param.name.at, "a parameter with a direction behind one without");
            return self.fail(wrong.hint("parameters that entries give come last"));
        }
        let name = extended(&item.path, &ast.name.text);
        let before = std::mem::take(&mut self.path);
        let unique = self.unique(&name);
        self.path = unique.clone();
        let outer = std::mem::replace(&mut self.in_action, true);
        let mut params = Vec::new();
        let (body, done) = self.nested(at, |checker| {
            Ok(checker.apart(|checker| checker.action_body(item, &ast.params, directed, args, &mut params, at)))
        })?;
        self.in_action = outer;
        self.path = before;
        done?;
        let shared = args.is_empty() && (alone || !exits(&body));
        self.program.actions.push(Action { name: unique, params, body });
        let id = ActionId(self.program.actions.len() as u32 - 1);
        if shared {
            self.actions.insert(key, id);
        }
        Ok(id)
    }

    fn action_body(
        &mut self,
        item: &ActionItem<'a>,
        all: &'a [ast::Param],
        directed: usize,
        args: &[ast::Arg],
        params: &mut Vec<crate::ir::SlotId>,
        at: Span,
    ) -> Checked<()> {
        let body = &item.action.body;
        let bound = self.arguments_to(&all[..directed], args, Some(body), at)?;
        self.results.push(None);
        self.copies_back.push(bound.copies_back);
        let (block, done) = self.apart(|checker| {
            checker.elsewhere(item.scopes, |checker| {
                checker.bind_all(bound.items);
                for param in &all[directed..] {
                    let item = checker.data(param, params);
                    checker.bind(&param.name, item.unwrap_or(Item::Wrong));
                }
                checker.statements(body);
            });
            Ok(())
        });
        self.results.pop();
        let copies = self.copies_back.pop().unwrap_or_default();
        done?;
        self.emit_body(block, at);
        self.copy_back(&copies, at)
    }

    /// A parameter that entries give.
    fn data(&mut self, param: &ast::Param, params: &mut Vec<crate::ir::SlotId>) -> Checked<Item<'a>> {
        let ty = self.ty(&param.ty)?;
        let Some(scalar) = ty.scalar() else {
            let wrong = Diagnostic::new(param.ty.at, format!("an entry of a table gives no `{ty}`"));
            return self.fail(wrong.hint("a parameter for each of its fields"));
        };
        let slot = self.slot(&param.name.text, scalar, SlotKind::Local, param.name.at)?;
        params.push(slot);
        Ok(Item::Var { place: super::value::Place::Slot(ty, slot), writable: false })
    }

    /// An action of a table with the data that an entry or the default gives.
    pub(super) fn action_call(
        &mut self,
        expr: &ast::Expr,
        table: &super::table::TableItem,
        ids: &[ActionId],
    ) -> Checked<(ActionId, Vec<u128>)> {
        let (action, args, name) = self.action_named(expr)?;
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
            let wrong = format!("expected {} values for `{name}`, found {}", data.len(), args.len());
            return self.fail(Diagnostic::new(expr.at, wrong).hint(format!("its data are ({})", usage.join(", "))));
        }
        let mut values = Vec::new();
        for (param, arg) in data.iter().zip(args) {
            let ty = self.ty(&param.ty)?;
            values.push(self.known(&arg.value, &ty)?);
        }
        Ok((ids[index], values))
    }

    /// The bits of a value that is known when compiling.
    pub(super) fn known(&mut self, expr: &ast::Expr, ty: &super::types::Type) -> Checked<u128> {
        let (_, value) = self.apart(|checker| checker.expr_as(expr, ty));
        match value?.kind {
            Known::Const(value) => Ok(value),
            _ => self.fail(Diagnostic::new(expr.at, "expected a value that is known when compiling")),
        }
    }

    /// The place of an action's declaration.
    pub(super) fn action_item(&self, action: &'a ast::Action) -> Item<'a> {
        let (scopes, path) = (self.scopes.len(), self.path.clone());
        Item::Action(Rc::new(ActionItem { action, scopes, path }))
    }

    /// Writes the body of an action that nobody calls, to see what is wrong with it.
    pub(super) fn check_action(&mut self, action: &'a ast::Action) {
        let Some(Item::Action(item)) = self.lookup(&action.name.text) else { return };
        if self.used.contains(&std::ptr::from_ref(action).cast()) || !std::ptr::eq(item.action, action) {
            return;
        }
        let within = self.within;
        self.checked_only(within, |checker| {
            checker.elsewhere(item.scopes, |checker| {
                for param in &action.params {
                    let place = checker
                        .ty(&param.ty)
                        .and_then(|ty| checker.place(&param.name.text, &ty, SlotKind::Local, param.name.at));
                    let writable = matches!(param.direction, Direction::Out | Direction::InOut);
                    let item = place.map_or(Item::Wrong, |place| Item::Var { place, writable });
                    checker.bind(&param.name, item);
                }
                checker.results.push(None);
                let outer = std::mem::replace(&mut checker.in_action, true);
                checker.statements(&action.body);
                checker.in_action = outer;
                checker.results.pop();
            });
        });
        self.used.insert(std::ptr::from_ref(action).cast());
    }
}
