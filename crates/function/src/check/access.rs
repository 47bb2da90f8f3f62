//! Parts of values: fields, elements of stacks, bits; and what may be written to.

use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Item, Num, Within, closest, fold};
use crate::ast::{self, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Expr, Span, Ty};

/// How many fields a hint names.
const FIELDS_NAMED: usize = 8;

/// What there is, in words.
fn fields(of: &super::types::Struct) -> String {
    let mut names: Vec<&str> = of.fields.iter().take(FIELDS_NAMED).map(|field| &*field.name).collect();
    if of.fields.len() > FIELDS_NAMED {
        names.push("…");
    }
    match names.as_slice() {
        [] => "it has none".to_owned(),
        names => format!("its fields are {}", names.join(", ")),
    }
}

impl<'a> Checker<'a> {
    /// `of.name`
    pub(super) fn member(&mut self, of: &ast::Expr, name: &ast::Name, at: Span) -> Checked<Val> {
        if let ExprKind::Name(outer) = &of.kind {
            if &**outer == "error" {
                return self.error(name);
            }
            if let Some(Item::Type(ty)) = self.lookup(outer) {
                return self.constant_of(&ty, outer, name);
            }
        }
        if let ExprKind::Call { of: called, args, .. } = &of.kind
            && let Some(table) = self.applied(called)
        {
            return self.table_result(&table, args, name, at);
        }
        let value = self.expr(of)?;
        self.field(value, name, at)
    }

    fn field(&mut self, value: Val, name: &ast::Name, at: Span) -> Checked<Val> {
        match value.ty() {
            Some(Type::Struct(of) | Type::Header(of)) => {
                let Some(part) = of.field(&name.text).and_then(|index| Self::part(&value, index)) else {
                    let wrong = Diagnostic::new(name.at, format!("`{}` has no field `{}`", of.name, name.text));
                    let known = of.fields.iter().map(|field| &*field.name).collect();
                    return self.fail(match (&*name.text, closest(&name.text, known)) {
                        ("isValid" | "setValid" | "setInvalid", _) => wrong.hint("it is called: write `()` behind it"),
                        (_, Some(known)) => wrong.hint(format!("there is `{known}`")),
                        _ => wrong.hint(fields(&of)),
                    });
                };
                Ok(part)
            }
            Some(Type::Stack(..)) => self.of_stack(value, name, at),
            _ => {
                let found = value.describe();
                self.fail(Diagnostic::new(at, format!("{found} has no fields, and no `{}`", name.text)))
            }
        }
    }

    /// `stack.next`, `.last`, `.lastIndex`, `.size`
    fn of_stack(&mut self, value: Val, name: &ast::Name, at: Span) -> Checked<Val> {
        let Val::Place(Place::Stack(_, items)) = value else { return Err(Reported) };
        if &*name.text == "size" {
            return Ok(Val::Num(Num::from(items.len() as u128)));
        }
        if self.within != Within::Parser {
            let wrong = Diagnostic::new(at, format!("`.{}` of a stack outside of a parser", name.text));
            return self.fail(wrong.hint("write the index: `stack[0]`"));
        }
        let filled = match items.first() {
            Some(Place::Header(_, first, _)) => self.fill.get(first).copied().unwrap_or(0),
            _ => 0,
        };
        let index = match &*name.text {
            "next" => Some(filled),
            "last" => filled.checked_sub(1),
            "lastIndex" => return Ok(Val::Scalar(Type::Bit(32), last_index(filled))),
            _ => {
                let wrong = Diagnostic::new(name.at, format!("a stack has no `{}`", name.text));
                return self.fail(wrong.hint("there are next, last, lastIndex, size"));
            }
        };
        match index.and_then(|index| items.get(index as usize)) {
            Some(place) => Ok(Val::Place(place.clone())),
            None => self.past_the_end(at),
        }
    }

    /// `stack[1]`, `tuple[0]`
    pub(super) fn index(&mut self, of: &ast::Expr, index: &ast::Expr, _at: Span) -> Checked<Val> {
        let value = self.expr(of)?;
        let count = match &value {
            Val::Place(Place::Stack(_, items) | Place::Struct(Type::Tuple(_), items)) => items.len(),
            Val::Whole(Type::Tuple(_), items) | Val::List(items) => items.len(),
            _ => {
                let found = value.describe();
                let wrong = Diagnostic::new(of.at, format!("expected a header stack, found {found}"));
                return self.fail(match value.ty() {
                    Some(Type::Bit(_)) => wrong.hint("one bit is `x[3:3]`"),
                    _ => wrong,
                });
            }
        };
        let (_, known) = self.apart(|checker| checker.expr(index));
        let known = known?;
        let number = match &known {
            Val::Num(number) => number.to_u32(),
            other => other.constant().and_then(|bits| u32::try_from(bits).ok()),
        };
        let Some(number) = number else {
            let wrong = Diagnostic::new(index.at, "an index that is not known when compiling");
            return self.fail(wrong.hint("write one statement for each index, or keep the values in a register"));
        };
        match Self::part(&value, number as usize) {
            Some(part) => Ok(part),
            None => self.fail(Diagnostic::new(index.at, format!("index {number} of {count}"))),
        }
    }

    /// `of[high:low]`
    pub(super) fn slice(&mut self, of: &ast::Expr, high: &ast::Expr, low: &ast::Expr) -> Checked<Val> {
        let value = self.expr(of)?;
        let (high, low) = self.bounds(&value, of.at, high, low)?;
        let (_, expr) = self.scalar(&value, of.at)?;
        Ok(Val::Scalar(Type::Bit(high - low + 1), fold::slice(expr, high, low)))
    }

    fn bounds(&mut self, of: &Val, at: Span, high: &ast::Expr, low: &ast::Expr) -> Checked<(u16, u16)> {
        let width = match of.ty().as_ref().map(Type::base) {
            Some(Type::Bit(width) | Type::Int(width)) => *width,
            _ => {
                let found = of.describe();
                return self.fail(Diagnostic::new(at, format!("expected bits to take some of, found {found}")));
            }
        };
        let (first, last) = (self.number(high)?, self.number(low)?);
        match (first.to_u32(), last.to_u32()) {
            (Some(first), Some(last)) if last <= first && first < u32::from(width) => Ok((first as u16, last as u16)),
            _ => {
                let span = Span { end: low.at.end.max(high.at.start), ..high.at };
                let wrong = Diagnostic::new(span, format!("no bits [{first}:{last}] of {width}"));
                self.fail(wrong.hint(format!("the highest comes first: [{}:0] are all", width - 1)))
            }
        }
    }

    /// What can be written to.
    pub(super) fn target(&mut self, expr: &ast::Expr) -> Checked<Place> {
        if let ExprKind::Slice(of, high, low) = &expr.kind {
            let place = self.target(of)?;
            let (high, low) = self.bounds(&Val::Place(place.clone()), of.at, high, low)?;
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
                    let wrong = Diagnostic::new(expr.at, format!("`{name}` is read only here"));
                    return self.fail(wrong.hint("declare the parameter `inout` or `out` to write it"));
                }
                Some(Item::Const(_)) => {
                    let wrong = Diagnostic::new(expr.at, format!("`{name}` is a constant here"));
                    return self.fail(wrong.hint("what is given to `in` and to an action's data is not written"));
                }
                _ => {}
            }
        }
        match self.expr(expr)? {
            Val::Place(place) => Ok(place),
            other => {
                let found = other.describe();
                self.fail(Diagnostic::new(expr.at, format!("expected something to write to, found {found}")))
            }
        }
    }

    /// `error.NoMatch`
    fn error(&mut self, name: &ast::Name) -> Checked<Val> {
        match self.errors.iter().position(|error| *error == name.text) {
            Some(index) => Ok(Val::Scalar(Type::Error, Expr::constant(Ty::Bit(16), index as u128))),
            None => {
                let wrong = Diagnostic::new(name.at, format!("no error `{}`", name.text));
                self.fail(match self.errors.is_empty() {
                    true => wrong.hint("write #include <core.p4>"),
                    false => wrong.hint(format!("declare it: error {{ {} }}", name.text)),
                })
            }
        }
    }

    /// `Enum.member`
    fn constant_of(&mut self, ty: &Type, outer: &str, name: &ast::Name) -> Checked<Val> {
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
                self.fail(match closest(&name.text, known) {
                    Some(known) => wrong.hint(format!("there is `{known}`")),
                    None => wrong,
                })
            }
        }
    }
}

/// The place of the stack's last header; of none, all bits set.
fn last_index(filled: u32) -> Expr {
    Expr::constant(Ty::Bit(32), u128::from(filled.wrapping_sub(1)))
}
