//! Calls: resolution of the callee.

use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Instance, Instantiated, Item};
use crate::ast::{self, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::SourceSpan;
use std::rc::Rc;

impl<'a> Checker<'a> {
    /// Type-checks `of<types>(args)`.
    pub(super) fn check_call(
        &mut self,
        of: &ast::Expr,
        types: &[ast::Type],
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        match &of.kind {
            ExprKind::Name(name) => match self.lookup(name) {
                Some(Item::Action(action)) => self.inline_action(&action, args, at).map(|()| Val::Void),
                Some(Item::Function(function)) => self.inline_function(function, args, at),
                Some(Item::Invalid) => Err(Reported),
                Some(Item::Control(_) | Item::Parser(_) | Item::Instance(_)) => {
                    let wrong = Diagnostic::new(at, format!("`{name}` cannot be called"));
                    self.fail(wrong.hint(format!("write `{name}.apply(…)`")))
                }
                Some(Item::Table(_)) => {
                    let wrong = Diagnostic::new(at, format!("table `{name}` cannot be called"));
                    self.fail(wrong.hint(format!("write `{name}.apply()`")))
                }
                Some(_) => self.fail(Diagnostic::new(of.at, format!("`{name}` cannot be called"))),
                None => self.check_extern_call(name, of.at, types, args, at),
            },
            ExprKind::Member(object, method) => self.check_method(object, method, types, args, at),
            _ => self.fail(Diagnostic::new(of.at, "expected a function or method name")),
        }
    }

    /// Table of the callee `table.apply`.
    pub(super) fn applied_table(&self, called: &ast::Expr) -> Option<Rc<super::table::TableItem>> {
        let ExprKind::Member(object, method) = &called.kind else { return None };
        let ExprKind::Name(name) = &object.kind else { return None };
        match self.lookup(name) {
            Some(Item::Table(table)) if &*method.text == "apply" => Some(table),
            _ => None,
        }
    }

    fn check_method(
        &mut self,
        object: &ast::Expr,
        method: &ast::Name,
        types: &[ast::Type],
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        let item = match &object.kind {
            ExprKind::Name(name) => self.lookup(name),
            _ => None,
        };
        let (what, known) = match item {
            Some(Item::Table(table)) if &*method.text == "apply" => {
                return self.emit_apply(&table, args, at).map(|()| Val::Void);
            }
            Some(Item::Instance(instance)) if &*method.text == "apply" => {
                return self.inline_apply(&instance, args, at).map(|()| Val::Void);
            }
            Some(Item::Control(control)) if &*method.text == "apply" => {
                let name = Rc::clone(&control.name.text);
                let instance = Instance { of: Instantiated::Control(control), name, constants: Vec::new() };
                return self.inline_apply(&instance, args, at).map(|()| Val::Void);
            }
            Some(Item::Parser(parser)) if &*method.text == "apply" => {
                let name = Rc::clone(&parser.name.text);
                let instance = Instance { of: Instantiated::Parser(parser), name, constants: Vec::new() };
                return self.inline_apply(&instance, args, at).map(|()| Val::Void);
            }
            Some(Item::Register(id, ty)) => return self.check_register_call(id, &ty, method, args, at),
            Some(Item::Counter(id)) => return self.check_counter_call(id, method, args, at),
            Some(Item::PacketIn) => return self.check_packet_in(method, types, args, at),
            Some(Item::PacketOut) => return self.check_packet_out(method, args, at),
            Some(Item::Invalid) => return Err(Reported),
            Some(Item::Table(_)) => ("a table", "`apply`"),
            Some(Item::Instance(_) | Item::Control(_) | Item::Parser(_)) => ("a control or parser", "`apply`"),
            None if &*method.text == "apply" && matches!(object.kind, ExprKind::Name(_)) => {
                let ExprKind::Name(name) = &object.kind else { return Err(Reported) };
                return self.report_unknown(object.at, name, "table or control");
            }
            _ => return self.check_value_method(object, method, args, at),
        };
        let wrong = Diagnostic::new(method.at, format!("{what} has no method `{}`", method.text));
        self.fail(wrong.hint(format!("available: {known}")))
    }

    fn check_value_method(
        &mut self,
        object: &ast::Expr,
        method: &ast::Name,
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        let value = self.check_expr(object)?;
        match &value {
            Val::Place(Place::Header(of, header, _)) => {
                if matches!(&*method.text, "setValid" | "setInvalid") {
                    self.resolve_target(object)?;
                }
                let (of, header) = (Rc::clone(of), *header);
                self.check_header_method(&of, header, method, args, at)
            }
            Val::Place(Place::Stack(_, items)) => {
                let items = Rc::clone(items);
                self.resolve_target(object)?;
                self.check_stack_method(&items, method, args, at)
            }
            _ => {
                let ty = value.ty();
                let wrong = Diagnostic::new(method.at, format!("{} has no method `{}`", value.describe(), method.text));
                self.fail(match ty {
                    Some(Type::Struct(_)) => wrong.hint("only headers have isValid, setValid, setInvalid"),
                    _ => wrong,
                })
            }
        }
    }

    /// Positional arguments, exactly `N`.
    pub(super) fn expect_arguments<'x, const N: usize>(
        &mut self,
        args: &'x [ast::Arg],
        usage: &str,
        at: SourceSpan,
    ) -> Checked<&'x [ast::Arg; N]> {
        match <&[ast::Arg; N]>::try_from(args) {
            Ok(args) if args.iter().all(|arg| arg.name.is_none()) => Ok(args),
            _ => {
                let wrong = Diagnostic::new(at, format!("expected {N} arguments, found {}", args.len()));
                self.fail(wrong.hint(format!("usage: `{usage}`")))
            }
        }
    }
}
