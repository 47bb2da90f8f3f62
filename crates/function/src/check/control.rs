//! Controls: what is declared in them, then what they do.

use super::types::Type;
use super::{Checker, Item, Within};
use crate::ast::{self, Direction, Local};
use crate::ir::SlotKind;
use std::rc::Rc;

impl<'a> Checker<'a> {
    /// A control's declarations and its `apply`; its parameters are in scope.
    pub(super) fn control_body(&mut self, control: &'a ast::Control) {
        self.used.insert(std::ptr::from_ref(control).cast());
        for local in &control.locals {
            match local {
                Local::Stmt(stmt) => drop(self.statement(stmt)),
                Local::Action(action) => {
                    let item = self.action_item(action);
                    self.bind(&action.name, item);
                }
                Local::Table(table) => {
                    let item = self.table(table).map_or(Item::Wrong, |table| Item::Table(Rc::new(table)));
                    self.bind(&table.name, item);
                }
            }
        }
        self.scoped(|checker| checker.statements(&control.body));
        for local in &control.locals {
            if let Local::Action(action) = local {
                self.check_action(action);
            }
        }
    }

    /// Looks at a control or parser that nobody uses, with parameters of its own.
    pub(super) fn check_unused(&mut self, params: &'a [ast::Param], work: impl FnOnce(&mut Self)) {
        self.checked_only(Within::Ingress, |checker| {
            checker.elsewhere(1, |checker| {
                for param in params {
                    let item = checker.parameter(param);
                    checker.bind(&param.name, item);
                }
                work(checker);
            });
        });
    }

    /// A parameter that nothing is given for.
    pub(super) fn parameter(&mut self, param: &ast::Param) -> Item<'a> {
        let place = match self.ty(&param.ty) {
            Ok(Type::PacketIn) => {
                self.within = Within::Parser;
                return Item::PacketIn;
            }
            Ok(Type::PacketOut) => {
                self.within = Within::Deparser;
                return Item::PacketOut;
            }
            Ok(Type::Num | Type::String) => return Item::Wrong,
            Ok(ty) => self.place(&param.name.text, &ty, SlotKind::Local, param.name.at),
            Err(told) => Err(told),
        };
        let writable = matches!(param.direction, Direction::Out | Direction::InOut);
        place.map_or(Item::Wrong, |place| Item::Var { place, writable })
    }
}
