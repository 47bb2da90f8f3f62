//! Member access: fields, stack elements, bit slices, and assignable expressions.

use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Item, Num, PipelinePart, closest_name, fold};
use crate::ast::{self, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Expr, SourceSpan, Ty};

/// Largest number of fields that a hint lists.
const FIELDS_NAMED: usize = 8;

/// Text for a hint that lists the fields of a struct.
fn list_fields(of: &super::types::Struct) -> String {
    let mut names: Vec<&str> = of.fields.iter().take(FIELDS_NAMED).map(|field| &*field.name).collect();
    if of.fields.len() > FIELDS_NAMED {
        names.push("…");
    }
    match names.as_slice() {
        [] => "it has no fields".to_owned(),
        names => format!("available fields: {}", names.join(", ")),
    }
}

impl<'a> Checker<'a> {
    /// Type-checks `of.name`.
    pub(super) fn check_member(&mut self, of: &ast::Expr, name: &ast::Name, at: SourceSpan) -> Checked<Val> {
        if let ExprKind::Name(outer) = &of.kind {
            if &**outer == "error" {
                return self.resolve_error(name);
            }
            if let Some(Item::Type(ty)) = self.lookup(outer) {
                return self.resolve_enum_constant(&ty, outer, name);
            }
        }
        if let ExprKind::Call { of: called, args, .. } = &of.kind
            && let Some(table) = self.applied_table(called)
        {
            return self.check_table_result(&table, args, name, at);
        }
        let value = self.check_expr(of)?;
        self.check_field(value, name, at)
    }

    fn check_field(&mut self, value: Val, name: &ast::Name, at: SourceSpan) -> Checked<Val> {
        match value.ty() {
            Some(Type::Struct(of) | Type::Header(of)) => {
                let Some(part) = of.field(&name.text).and_then(|index| Self::part(&value, index)) else {
                    let wrong = Diagnostic::new(name.at, format!("`{}` has no field `{}`", of.name, name.text));
                    let known = of.fields.iter().map(|field| &*field.name).collect();
                    return self.fail(match (&*name.text, closest_name(&name.text, known)) {
                        ("isValid" | "setValid" | "setInvalid", _) => wrong.hint("it is a method: add `()`"),
                        (_, Some(known)) => wrong.hint(format!("did you mean `{known}`?")),
                        _ => wrong.hint(list_fields(&of)),
                    });
                };
                Ok(part)
            }
            Some(Type::Stack(..)) => self.check_stack_member(value, name, at),
            _ => {
                let found = value.describe();
                self.fail(Diagnostic::new(at, format!("{found} has no field `{}`", name.text)))
            }
        }
    }

    /// Type-checks `stack.next`, `.last`, `.lastIndex` and `.size`.
    fn check_stack_member(&mut self, value: Val, name: &ast::Name, at: SourceSpan) -> Checked<Val> {
        let Val::Place(Place::Stack(_, items)) = value else { return Err(Reported) };
        if &*name.text == "size" {
            return Ok(Val::Num(Num::from(items.len() as u128)));
        }
        if self.within != PipelinePart::Parser {
            let wrong = Diagnostic::new(at, format!("`.{}` of a header stack is allowed in parsers only", name.text));
            return self.fail(wrong.hint("use an index: `stack[0]`"));
        }
        let filled = match items.first() {
            Some(Place::Header(_, first, _)) => self.fill.get(first).copied().unwrap_or(0),
            _ => 0,
        };
        let index = match &*name.text {
            "next" => Some(filled),
            "last" => filled.checked_sub(1),
            "lastIndex" => return Ok(Val::Scalar(Type::Bit(32), last_index_expr(filled))),
            _ => {
                let wrong = Diagnostic::new(name.at, format!("a header stack has no member `{}`", name.text));
                return self.fail(wrong.hint("available: next, last, lastIndex, size"));
            }
        };
        match index.and_then(|index| items.get(index as usize)) {
            Some(place) => Ok(Val::Place(place.clone())),
            None => self.emit_stack_out_of_bounds(at),
        }
    }

    /// Type-checks `stack[1]` and `tuple[0]`.
    pub(super) fn check_index(&mut self, of: &ast::Expr, index: &ast::Expr, _at: SourceSpan) -> Checked<Val> {
        let value = self.check_expr(of)?;
        let count = match &value {
            Val::Place(Place::Stack(_, items) | Place::Struct(Type::Tuple(_), items)) => items.len(),
            Val::Whole(Type::Tuple(_), items) | Val::List(items) => items.len(),
            _ => {
                let found = value.describe();
                let wrong = Diagnostic::new(of.at, format!("expected a header stack, found {found}"));
                return self.fail(match value.ty() {
                    Some(Type::Bit(_)) => wrong.hint("for a single bit write `x[3:3]`"),
                    _ => wrong,
                });
            }
        };
        let (_, known) = self.collect_block(|checker| checker.check_expr(index));
        let known = known?;
        let number = match &known {
            Val::Num(number) => number.to_u32(),
            other => other.constant().and_then(|bits| u32::try_from(bits).ok()),
        };
        let Some(number) = number else {
            let wrong = Diagnostic::new(index.at, "index is not a compile-time constant");
            return self.fail(wrong.hint("write one statement for each index, or keep the values in a register"));
        };
        match Self::part(&value, number as usize) {
            Some(part) => Ok(part),
            None => {
                self.fail(Diagnostic::new(index.at, format!("index {number} is out of range: the length is {count}")))
            }
        }
    }

    /// Type-checks `of[high:low]`.
    pub(super) fn check_slice(&mut self, of: &ast::Expr, high: &ast::Expr, low: &ast::Expr) -> Checked<Val> {
        let value = self.check_expr(of)?;
        let (high, low) = self.check_slice_bounds(&value, of.at, high, low)?;
        let (_, expr) = self.load_scalar(&value, of.at)?;
        Ok(Val::Scalar(Type::Bit(high - low + 1), fold::slice(expr, high, low)))
    }

    fn check_slice_bounds(
        &mut self,
        of: &Val,
        at: SourceSpan,
        high: &ast::Expr,
        low: &ast::Expr,
    ) -> Checked<(u16, u16)> {
        let width = match of.ty().as_ref().map(Type::base) {
            Some(Type::Bit(width) | Type::Int(width)) => *width,
            _ => {
                let found = of.describe();
                return self.fail(Diagnostic::new(at, format!("cannot take bits of {found}")));
            }
        };
        let (first, last) = (self.eval_number(high)?, self.eval_number(low)?);
        match (first.to_u32(), last.to_u32()) {
            (Some(first), Some(last)) if last <= first && first < u32::from(width) => Ok((first as u16, last as u16)),
            _ => {
                let span = SourceSpan { end: low.at.end.max(high.at.start), ..high.at };
                let wrong =
                    Diagnostic::new(span, format!("invalid bit range [{first}:{last}] of a value of {width} bits"));
                self.fail(wrong.hint(format!("the highest bit comes first: [{}:0] selects all bits", width - 1)))
            }
        }
    }

    /// Storage that an assignable expression denotes.
    pub(super) fn resolve_target(&mut self, expr: &ast::Expr) -> Checked<Place> {
        if let ExprKind::Slice(of, high, low) = &expr.kind {
            let place = self.resolve_target(of)?;
            let (high, low) = self.check_slice_bounds(&Val::Place(place.clone()), of.at, high, low)?;
            return match place {
                Place::Slot(_, slot) => {
                    Ok(Place::Slice { slot, of: self.program.slots[slot.0 as usize].ty, high, low })
                }
                Place::Slice { slot, of, low: base, .. } => {
                    Ok(Place::Slice { slot, of, high: base + high, low: base + low })
                }
                _ => Err(Reported),
            };
        }
        let mut root = expr;
        while let ExprKind::Member(of, _) | ExprKind::Index(of, _) = &root.kind {
            root = of;
        }
        if let ExprKind::Name(name) = &root.kind {
            match self.lookup(name) {
                Some(Item::Var { writable: false, .. }) => {
                    let wrong = Diagnostic::new(expr.at, format!("cannot assign to `{name}`: it is read-only here"));
                    return self.fail(wrong.hint("declare the parameter `inout` or `out` to write it"));
                }
                Some(Item::Const(_)) => {
                    let wrong = Diagnostic::new(expr.at, format!("cannot assign to constant `{name}`"));
                    return self.fail(wrong.hint("`in` parameters and action data are read-only"));
                }
                _ => {}
            }
        }
        match self.check_expr(expr)? {
            Val::Place(place) => Ok(place),
            other => {
                let found = other.describe();
                self.fail(Diagnostic::new(expr.at, format!("cannot assign to {found}")))
            }
        }
    }

    /// Error constant `error.NoMatch`.
    fn resolve_error(&mut self, name: &ast::Name) -> Checked<Val> {
        match self.errors.iter().position(|error| *error == name.text) {
            Some(index) => Ok(Val::Scalar(Type::Error, Expr::constant(Ty::Bit(16), index as u128))),
            None => {
                let wrong = Diagnostic::new(name.at, format!("unknown error `{}`", name.text));
                self.fail(match self.errors.is_empty() {
                    true => wrong.hint("write #include <core.p4>"),
                    false => wrong.hint(format!("declare it: error {{ {} }}", name.text)),
                })
            }
        }
    }

    /// Enum constant `Enum.member`.
    fn resolve_enum_constant(&mut self, ty: &Type, outer: &str, name: &ast::Name) -> Checked<Val> {
        let Type::Enum(of) = ty else {
            return self.fail(Diagnostic::new(name.at, format!("type `{outer}` has no member `{}`", name.text)));
        };
        match of.members.iter().find(|(member, _)| *member == name.text) {
            Some((_, value)) => {
                let scalar = ty.scalar().unwrap_or(Ty::Bit(32));
                Ok(Val::Scalar(ty.clone(), Expr::constant(scalar, *value)))
            }
            None => {
                let wrong = Diagnostic::new(name.at, format!("`{outer}` has no member `{}`", name.text));
                let known = of.members.iter().map(|(member, _)| &**member).collect();
                self.fail(match closest_name(&name.text, known) {
                    Some(known) => wrong.hint(format!("did you mean `{known}`?")),
                    None => wrong,
                })
            }
        }
    }
}

/// Index of a stack's last header; all bits set for an empty stack.
fn last_index_expr(filled: u32) -> Expr {
    Expr::constant(Ty::Bit(32), u128::from(filled.wrapping_sub(1)))
}
