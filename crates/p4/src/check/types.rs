//! Types with their names resolved.

use crate::ast::{self, TypeKind};
use crate::check::{Checked, Checker, Item};
use crate::diag::Diagnostic;
use crate::ir::{SourceSpan, Ty};
use std::fmt;
use std::rc::Rc;

/// Widest scalar, bits.
pub(super) const WIDTH_MAX: u32 = 128;
/// Longest `varbit`, bits.
const VARBIT_MAX: u32 = 1 << 16;
/// Longest header stack.
const STACK_MAX: u32 = 1024;

/// Resolved type.
#[derive(Debug, Clone)]
pub(super) enum Type {
    Bool,
    Bit(u16),
    Int(u16),
    /// `int`, the type of compile-time numbers.
    Num,
    Float,
    Error,
    String,
    Void,
    Varbit(u32),
    Enum(Rc<Enum>),
    /// `type T name;`: distinct from T, except for casts.
    New(Rc<(Rc<str>, Type)>),
    Struct(Rc<Struct>),
    Header(Rc<Struct>),
    Stack(Rc<Struct>, u32),
    Tuple(Rc<[Type]>),
    PacketIn,
    PacketOut,
}

/// Enumeration.
#[derive(Debug)]
pub(super) struct Enum {
    pub name: Rc<str>,
    /// Underlying type of a serializable enum.
    pub of: Option<Type>,
    /// Members with their values.
    pub members: Vec<(Rc<str>, u128)>,
}

/// Struct or header type.
#[derive(Debug)]
pub(super) struct Struct {
    pub name: Rc<str>,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub name: Rc<str>,
    pub at: SourceSpan,
    pub ty: Type,
    /// True for a request's parameter annotated with `@flow`.
    pub flow: bool,
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool, Self::Bool)
            | (Self::Num, Self::Num)
            | (Self::Float, Self::Float)
            | (Self::Error, Self::Error)
            | (Self::String, Self::String)
            | (Self::Void, Self::Void)
            | (Self::PacketIn, Self::PacketIn)
            | (Self::PacketOut, Self::PacketOut) => true,
            (Self::Bit(a), Self::Bit(b)) | (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Varbit(a), Self::Varbit(b)) => a == b,
            (Self::Enum(a), Self::Enum(b)) => Rc::ptr_eq(a, b),
            (Self::New(a), Self::New(b)) => Rc::ptr_eq(a, b),
            (Self::Struct(a), Self::Struct(b)) | (Self::Header(a), Self::Header(b)) => Rc::ptr_eq(a, b),
            (Self::Stack(a, n), Self::Stack(b, m)) => Rc::ptr_eq(a, b) && n == m,
            (Self::Tuple(a), Self::Tuple(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Bit(width) => write!(f, "bit<{width}>"),
            Self::Int(width) => write!(f, "int<{width}>"),
            Self::Num => f.write_str("int"),
            Self::Float => f.write_str("float"),
            Self::Error => f.write_str("error"),
            Self::String => f.write_str("string"),
            Self::Void => f.write_str("void"),
            Self::Varbit(width) => write!(f, "varbit<{width}>"),
            Self::Enum(of) => f.write_str(&of.name),
            Self::New(new) => f.write_str(&new.0),
            Self::Struct(of) | Self::Header(of) => f.write_str(&of.name),
            Self::Stack(of, size) => write!(f, "{}[{size}]", of.name),
            Self::Tuple(items) => {
                f.write_str("tuple<")?;
                for (n, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if n == 0 { "" } else { ", " })?;
                }
                f.write_str(">")
            }
            Self::PacketIn => f.write_str("packet_in"),
            Self::PacketOut => f.write_str("packet_out"),
        }
    }
}

impl Type {
    /// Scalar type of one slot; `None` for aggregates.
    pub fn scalar(&self) -> Option<Ty> {
        match self {
            Self::Bool => Some(Ty::Bool),
            Self::Bit(width) => Some(Ty::Bit(*width)),
            Self::Int(width) => Some(Ty::Int(*width)),
            Self::Float => Some(Ty::Float),
            Self::Error => Some(Ty::Bit(16)),
            Self::Enum(of) => of.of.as_ref().map_or(Some(Ty::Bit(32)), Self::scalar),
            Self::New(new) => new.1.scalar(),
            _ => None,
        }
    }

    /// Underlying type of a `type` or serializable `enum`.
    pub fn base(&self) -> &Self {
        match self {
            Self::New(new) => new.1.base(),
            Self::Enum(of) => of.of.as_ref().map_or(self, Self::base),
            _ => self,
        }
    }

    /// True for `bit` and `int`.
    pub fn numeric(&self) -> bool {
        matches!(self, Self::Bit(_) | Self::Int(_) | Self::Num)
    }
}

impl Struct {
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| &*field.name == name)
    }
}

impl Checker<'_> {
    /// Resolves a type expression.
    pub(super) fn resolve_type(&mut self, ty: &ast::Type) -> Checked<Type> {
        let width = |width: u32| width as u16;
        Ok(match &ty.kind {
            TypeKind::Bool => Type::Bool,
            TypeKind::Bit(None) => Type::Bit(1),
            TypeKind::Int(None) => Type::Num,
            TypeKind::Bit(Some(bits)) => Type::Bit(width(self.eval_count(bits, "width", WIDTH_MAX)?)),
            TypeKind::Int(Some(bits)) => Type::Int(width(self.eval_count(bits, "width", WIDTH_MAX)?)),
            TypeKind::Varbit(bits) => Type::Varbit(self.eval_count(bits, "width", VARBIT_MAX)?),
            TypeKind::Float => Type::Float,
            TypeKind::Error => Type::Error,
            TypeKind::String => Type::String,
            TypeKind::Void => Type::Void,
            TypeKind::Any => return self.fail(Diagnostic::new(ty.at, "`_` is not a type")),
            TypeKind::Tuple(items) => {
                let items = items.iter().map(|item| self.resolve_type(item)).collect::<Checked<Vec<_>>>()?;
                Type::Tuple(items.into())
            }
            TypeKind::Stack(of, size) => {
                let of = self.resolve_type(of)?;
                let Type::Header(of) = of else {
                    let wrong = Diagnostic::new(ty.at, format!("a header stack cannot hold `{of}`"));
                    return self.fail(wrong.hint("its elements must be headers"));
                };
                let size = self.eval_count(size, "stack size", STACK_MAX)?;
                if of.fields.iter().any(|field| matches!(field.ty, Type::Varbit(_))) {
                    let wrong = Diagnostic::new(
                        ty.at,
                        format!("a header stack cannot hold `{}`, which has a varbit field", of.name),
                    );
                    return self.fail(wrong.hint("declare fields of the header type one by one"));
                }
                Type::Stack(of, size)
            }
            TypeKind::Named(name, arguments) => {
                if let Some(argument) = arguments.first() {
                    let wrong = Diagnostic::new(argument.at, format!("`{}` takes no type arguments", name.text));
                    return self.fail(wrong);
                }
                match self.lookup(&name.text) {
                    Some(Item::Type(found)) => found,
                    Some(_) => return self.fail(Diagnostic::new(name.at, format!("`{}` is not a type", name.text))),
                    None => return self.report_unknown(name.at, &name.text, "type"),
                }
            }
        })
    }

    /// Evaluates a compile-time number from 1 to `max`.
    pub(super) fn eval_count(&mut self, expr: &ast::Expr, what: &str, max: u32) -> Checked<u32> {
        let number = self.eval_number(expr)?;
        match number.to_u32().filter(|number| (1..=max).contains(number)) {
            Some(number) => Ok(number),
            None => self.fail(Diagnostic::new(expr.at, format!("invalid {what} {number} (1 to {max})"))),
        }
    }

    /// Resolves the fields of a struct or header.
    pub(super) fn resolve_fields(&mut self, fields: &[ast::Field], header: bool) -> Checked<Vec<Field>> {
        let mut known: Vec<Field> = Vec::new();
        for field in fields {
            let Ok(ty) = self.resolve_type(&field.ty) else { continue };
            if let Some(first) = known.iter().find(|first| first.name == field.name.text) {
                let wrong = Diagnostic::new(field.name.at, format!("duplicate field `{}`", field.name.text));
                self.report(wrong.also(first.at, "first one is here"));
                continue;
            }
            if known.last().is_some_and(|last| matches!(last.ty, Type::Varbit(_))) {
                let wrong = Diagnostic::new(field.name.at, "field after a varbit field");
                self.report(
                    wrong.hint("a varbit must be the last field: put the following fields into another header"),
                );
            }
            let right = match &ty {
                Type::Varbit(_) => header,
                Type::Num | Type::Void | Type::String | Type::PacketIn | Type::PacketOut => false,
                // P4_16 allows structs of bits in headers (§7.2.2); this subset allows scalars only.
                Type::Struct(_) | Type::Header(_) | Type::Stack(..) | Type::Tuple(_) | Type::Error => !header,
                Type::Enum(of) => !header || of.of.is_some(),
                _ => true,
            };
            if right {
                let flow = field.annotations.iter().any(|annotation| &*annotation.name.text == "flow");
                known.push(Field { name: field.name.text.clone(), at: field.name.at, ty, flow });
                continue;
            }
            let what = if header { "a header" } else { "a struct" };
            let wrong = Diagnostic::new(field.ty.at, format!("{what} cannot have a field of type `{ty}`"));
            self.report(match &ty {
                Type::Struct(_) if header => wrong.hint("list the struct's fields in the header"),
                Type::Varbit(_) => wrong.hint("varbit fields are allowed in headers only"),
                Type::String => wrong.hint("an element has no strings: use bits or numbers"),
                _ => wrong,
            });
        }
        Ok(known)
    }
}
