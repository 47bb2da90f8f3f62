//! Values and storage of expressions.

use super::types::{Struct, Type};
use super::{Checked, Checker, Num};
use crate::ast;
use crate::diag::Diagnostic;
use crate::ir::{Expr, ExprKind, HeaderId, SlotId, SourceSpan, Ty};
use std::rc::Rc;

/// Value of an expression.
#[derive(Debug, Clone)]
pub(super) enum Val {
    /// Compile-time number without a width.
    Num(Num),
    /// Scalar of one slot's type.
    Scalar(Type, Expr),
    /// Content of storage, read when the value is used.
    Place(Place),
    /// `{ a, b }`, not yet of a type.
    List(Vec<Val>),
    /// `{ x = a, y = b }`, not yet of a type.
    Record(Vec<(ast::Name, Val)>),
    /// Struct, valid header, or tuple.
    Whole(Type, Vec<Val>),
    /// String literal, used by annotations only.
    Text,
    Void,
}

/// Storage of a value.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Slot(Type, SlotId),
    /// Members of a struct or tuple.
    Struct(Type, Rc<[Place]>),
    Header(Rc<Struct>, HeaderId, Rc<[Place]>),
    Stack(Rc<Struct>, Rc<[Place]>),
    /// Bit range of a slot.
    Slice {
        slot: SlotId,
        of: Ty,
        high: u16,
        low: u16,
    },
    /// Inaccessible storage, with the reason.
    Closed(Type, &'static str),
}

impl Val {
    pub fn bool(value: bool) -> Self {
        Self::Scalar(Type::Bool, Expr::constant(Ty::Bool, u128::from(value)))
    }

    /// Type of the value. A list's type is a tuple; a record has none yet.
    pub fn ty(&self) -> Option<Type> {
        Some(match self {
            Self::Num(_) => Type::Num,
            Self::Scalar(ty, _) | Self::Whole(ty, _) => ty.clone(),
            Self::Place(place) => place.ty(),
            Self::List(items) => Type::Tuple(items.iter().map(Self::ty).collect::<Option<Vec<_>>>()?.into()),
            Self::Record(_) => return None,
            Self::Text => Type::String,
            Self::Void => Type::Void,
        })
    }

    /// Type of the value as diagnostics name it.
    pub fn describe(&self) -> String {
        match self {
            Self::Num(number) => format!("the number {number}"),
            Self::Record(_) => "a list of named fields".to_owned(),
            Self::List(items) => format!("a list of length {}", items.len()),
            Self::Void => "nothing".to_owned(),
            _ => self.ty().map_or_else(String::new, |ty| format!("`{ty}`")),
        }
    }

    /// Bits of a constant value.
    pub fn constant(&self) -> Option<u128> {
        match self {
            Self::Scalar(_, Expr { kind: ExprKind::Const(value), .. }) => Some(*value),
            _ => None,
        }
    }
}

impl Place {
    pub fn ty(&self) -> Type {
        match self {
            Self::Slot(ty, _) | Self::Struct(ty, _) | Self::Closed(ty, _) => ty.clone(),
            Self::Header(of, ..) => Type::Header(Rc::clone(of)),
            Self::Stack(of, items) => Type::Stack(Rc::clone(of), items.len() as u32),
            Self::Slice { high, low, .. } => Type::Bit(high - low + 1),
        }
    }

    /// Collects all slots.
    pub fn slots(&self, out: &mut Vec<SlotId>) {
        match self {
            Self::Slot(_, slot) | Self::Slice { slot, .. } => out.push(*slot),
            Self::Struct(_, items) | Self::Header(_, _, items) | Self::Stack(_, items) => {
                items.iter().for_each(|item| item.slots(out));
            }
            Self::Closed(..) => {}
        }
    }

    /// Collects all headers.
    pub fn headers(&self, out: &mut Vec<HeaderId>) {
        match self {
            Self::Header(_, header, _) => out.push(*header),
            Self::Struct(_, items) | Self::Stack(_, items) => items.iter().for_each(|item| item.headers(out)),
            Self::Slot(..) | Self::Slice { .. } | Self::Closed(..) => {}
        }
    }

    /// True if both share a slot or header.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        self.slots(&mut ours);
        other.slots(&mut theirs);
        theirs.sort_unstable();
        ours.iter().any(|slot| theirs.binary_search(slot).is_ok())
    }
}

impl Checker<'_> {
    /// Converts a value to an expression of a scalar type.
    pub(super) fn load_scalar(&mut self, value: &Val, at: SourceSpan) -> Checked<(Type, Expr)> {
        match value {
            Val::Scalar(ty, expr) => Ok((ty.clone(), expr.clone())),
            Val::Place(Place::Slot(ty, slot)) => {
                Ok((ty.clone(), Expr::slot(self.program.slots[slot.0 as usize].ty, *slot)))
            }
            Val::Place(Place::Slice { slot, of, high, low }) => {
                let of = Box::new(Expr::slot(*of, *slot));
                let ty = Type::Bit(high - low + 1);
                let kind = ExprKind::Slice { of, high: *high, low: *low };
                Ok((ty, Expr { ty: Ty::Bit(high - low + 1), kind }))
            }
            Val::Place(Place::Closed(ty, why)) => {
                self.fail(Diagnostic::new(at, format!("cannot use this `{ty}`")).hint(*why))
            }
            Val::Num(number) => {
                let wrong = Diagnostic::new(at, format!("number {number} needs a width"));
                self.fail(wrong.hint(format!("add a width: 32w{number}")))
            }
            _ => {
                let found = value.describe();
                self.fail(Diagnostic::new(at, format!("expected a bit, int, bool or enum value, found {found}")))
            }
        }
    }

    /// Field of a struct, header or tuple.
    pub(super) fn part(value: &Val, index: usize) -> Option<Val> {
        match value {
            Val::Place(Place::Struct(_, items) | Place::Header(_, _, items) | Place::Stack(_, items)) => {
                items.get(index).cloned().map(Val::Place)
            }
            Val::Whole(_, items) | Val::List(items) => items.get(index).cloned(),
            _ => None,
        }
    }

    /// Collects all scalars in order, for hashes, checksums, digests and comparisons.
    pub(super) fn flatten(&mut self, value: &Val, at: SourceSpan, out: &mut Vec<Expr>) -> Checked<()> {
        match value {
            Val::Place(Place::Struct(_, items) | Place::Header(_, _, items) | Place::Stack(_, items)) => {
                for item in items.iter() {
                    self.flatten(&Val::Place(item.clone()), at, out)?;
                }
            }
            Val::Whole(_, items) | Val::List(items) => {
                for item in items {
                    self.flatten(item, at, out)?;
                }
            }
            Val::Record(items) => {
                for (_, item) in items {
                    self.flatten(item, at, out)?;
                }
            }
            _ => out.push(self.load_scalar(value, at)?.1),
        }
        Ok(())
    }
}
