//! Controls: declarations and `apply` block.

use super::types::Type;
use super::{Checker, Item, PipelinePart};
use crate::ast::{self, Direction, Local};
use crate::ir::SlotKind;
use std::rc::Rc;

impl<'a> Checker<'a> {
    /// Checks a control's declarations and its `apply` block; the parameters are in scope.
    pub(super) fn check_control(&mut self, control: &'a ast::Control) {
        self.used.insert(std::ptr::from_ref(control).cast());
        for local in &control.locals {
            match local {
                Local::Stmt(stmt) => drop(self.check_statement(stmt)),
                Local::Action(action) => {
                    let item = self.make_action_item(action);
                    self.bind(&action.name, item);
                }
                Local::Table(table) => {
                    let item = self.declare_table(table).map_or(Item::Invalid, |table| Item::Table(Rc::new(table)));
                    self.bind(&table.name, item);
                }
            }
        }
        self.with_scope(|checker| checker.check_statements(&control.body));
        for local in &control.locals {
            if let Local::Action(action) = local {
                self.check_action(action);
            }
        }
    }

    /// Checks a control or parser that is never used, with parameters of its own.
    pub(super) fn check_unused(&mut self, params: &'a [ast::Param], work: impl FnOnce(&mut Self)) {
        self.check_without_emitting(PipelinePart::Ingress, |checker| {
            checker.with_outer_scopes(1, |checker| {
                for param in params {
                    let item = checker.declare_parameter(param);
                    checker.bind(&param.name, item);
                }
                work(checker);
            });
        });
    }

    /// Storage of a parameter without an argument.
    pub(super) fn declare_parameter(&mut self, param: &ast::Param) -> Item<'a> {
        let place = match self.resolve_type(&param.ty) {
            Ok(Type::PacketIn) => {
                self.within = PipelinePart::Parser;
                return Item::PacketIn;
            }
            Ok(Type::PacketOut) => {
                self.within = PipelinePart::Deparser;
                return Item::PacketOut;
            }
            Ok(Type::Num | Type::String) => return Item::Invalid,
            Ok(ty) => self.new_place(&param.name.text, &ty, SlotKind::Local, param.name.at),
            Err(reported) => Err(reported),
        };
        let writable = matches!(param.direction, Direction::Out | Direction::InOut);
        place.map_or(Item::Invalid, |place| Item::Var { place, writable })
    }
}
