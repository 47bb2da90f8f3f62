//! Calls: which one it is.

use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Instance, Instantiated, Item};
use crate::ast::{self, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::Span;
use std::rc::Rc;

impl<'a> Checker<'a> {
    /// `of<types>(args)`
    pub(super) fn call(&mut self, of: &ast::Expr, types: &[ast::Type], args: &[ast::Arg], at: Span) -> Checked<Val> {
        match &of.kind {
            ExprKind::Name(name) => match self.lookup(name) {
                Some(Item::Action(action)) => self.call_action(&action, args, at).map(|()| Val::Void),
                Some(Item::Function(function)) => self.call_function(function, args, at),
                Some(Item::Wrong) => Err(Reported),
                Some(Item::Control(_) | Item::Parser(_) | Item::Instance(_)) => {
                    let wrong = Diagnostic::new(at, format!("`{name}` is not called"));
                    self.fail(wrong.hint(format!("write `{name}.apply(…)`")))
                }
                Some(Item::Table(_)) => {
                    let wrong = Diagnostic::new(at, format!("table `{name}` is not called"));
                    self.fail(wrong.hint(format!("write `{name}.apply()`")))
                }
                Some(_) => self.fail(Diagnostic::new(of.at, format!("`{name}` can't be called"))),
                None => self.external(name, of.at, types, args, at),
            },
            ExprKind::Member(object, method) => self.method(object, method, types, args, at),
            _ => self.fail(Diagnostic::new(of.at, "expected the name of something to call")),
        }
    }

    /// The table, if this is `table.apply`.
    pub(super) fn applied(&self, called: &ast::Expr) -> Option<Rc<super::table::TableItem>> {
        let ExprKind::Member(object, method) = &called.kind else { return None };
        let ExprKind::Name(name) = &object.kind else { return None };
        match self.lookup(name) {
            Some(Item::Table(table)) if &*method.text == "apply" => Some(table),
            _ => None,
        }
    }

    fn method(
        &mut self,
        object: &ast::Expr,
        method: &ast::Name,
        types: &[ast::Type],
        args: &[ast::Arg],
        at: Span,
    ) -> Checked<Val> {
        let item = match &object.kind {
            ExprKind::Name(name) => self.lookup(name),
            _ => None,
        };
        let (what, known) = match item {
            Some(Item::Table(table)) if &*method.text == "apply" => {
                return self.apply_table(&table, args, at).map(|()| Val::Void);
            }
            Some(Item::Instance(instance)) if &*method.text == "apply" => {
                return self.apply(&instance, args, at).map(|()| Val::Void);
            }
            Some(Item::Control(control)) if &*method.text == "apply" => {
                let name = Rc::clone(&control.name.text);
                let instance = Instance { of: Instantiated::Control(control), name, constants: Vec::new() };
                return self.apply(&instance, args, at).map(|()| Val::Void);
            }
            Some(Item::Parser(parser)) if &*method.text == "apply" => {
                let name = Rc::clone(&parser.name.text);
                let instance = Instance { of: Instantiated::Parser(parser), name, constants: Vec::new() };
                return self.apply(&instance, args, at).map(|()| Val::Void);
            }
            Some(Item::Register(id, ty)) => return self.register(id, &ty, method, args, at),
            Some(Item::Counter(id)) => return self.counter(id, method, args, at),
            Some(Item::PacketIn) => return self.packet_in(method, types, args, at),
            Some(Item::PacketOut) => return self.packet_out(method, args, at),
            Some(Item::Wrong) => return Err(Reported),
            Some(Item::Table(_)) => ("a table", "`apply`"),
            Some(Item::Instance(_) | Item::Control(_) | Item::Parser(_)) => ("a control or parser", "`apply`"),
            None if &*method.text == "apply" && matches!(object.kind, ExprKind::Name(_)) => {
                let ExprKind::Name(name) = &object.kind else { return Err(Reported) };
                return self.unknown(object.at, name, "table or control");
            }
            _ => return self.method_of_value(object, method, args, at),
        };
        let wrong = Diagnostic::new(method.at, format!("{what} has no `{}`", method.text));
        self.fail(wrong.hint(format!("there is {known}")))
    }

    fn method_of_value(&mut self, object: &ast::Expr, method: &ast::Name, args: &[ast::Arg], at: Span) -> Checked<Val> {
        let value = self.expr(object)?;
        match &value {
            Val::Place(Place::Header(of, header, _)) => {
                if matches!(&*method.text, "setValid" | "setInvalid") {
                    self.target(object)?;
                }
                let (of, header) = (Rc::clone(of), *header);
                self.method_of_header(&of, header, method, args, at)
            }
            Val::Place(Place::Stack(_, items)) => {
                let items = Rc::clone(items);
                self.target(object)?;
                self.method_of_stack(&items, method, args, at)
            }
            _ => {
                let ty = value.ty();
                let wrong = Diagnostic::new(method.at, format!("{} has no `{}`", value.describe(), method.text));
                self.fail(match ty {
                    Some(Type::Struct(_)) => wrong.hint("only headers have isValid, setValid, setInvalid"),
                    _ => wrong,
                })
            }
        }
    }

    /// As many arguments as there should be, none of them named.
    pub(super) fn arguments<'x, const N: usize>(
        &mut self,
        args: &'x [ast::Arg],
        usage: &str,
        at: Span,
    ) -> Checked<&'x [ast::Arg; N]> {
        match <&[ast::Arg; N]>::try_from(args) {
            Ok(args) if args.iter().all(|arg| arg.name.is_none()) => Ok(args),
            _ => {
                let wrong = Diagnostic::new(at, format!("expected {N} arguments, found {}", args.len()));
                self.fail(wrong.hint(format!("it is called `{usage}`")))
            }
        }
    }
}
