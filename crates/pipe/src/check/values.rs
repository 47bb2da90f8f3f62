//! Type checker of the expressions of a pipe.

use std::fmt;

use pathcall_build::BuildDiagnostic;
use pathcall_build::diagnostic::one_of;
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use serde_saphyr::Spanned;

use super::{type_name, wrong};
use crate::expression::{Expression, Reference};
use crate::file::Node;

/// Type that a value must have.
#[derive(Debug)]
enum ValueType {
    Single(Kind),
    List(Kind),
    Map(Kind, Kind),
}

impl ValueType {
    fn of(field: &FieldDescriptor) -> Self {
        match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                Self::Map(entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind())
            }
            kind if field.is_list() => Self::List(kind),
            kind => Self::Single(kind),
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(kind) => f.write_str(&type_name(kind)),
            Self::List(kind) => write!(f, "list of {}", type_name(kind)),
            Self::Map(key, value) => write!(f, "map of {} to {}", type_name(key), type_name(value)),
        }
    }
}

/// Checker of the expressions in one file.
#[derive(Debug)]
pub(super) struct ValueChecker<'a> {
    file: &'a str,
    /// Call and earlier steps, with their messages.
    sources: Vec<(String, MessageDescriptor)>,
    /// Names of this step and of later ones.
    later: Vec<String>,
}

type Checked<T> = Result<T, Box<BuildDiagnostic>>;

impl<'a> ValueChecker<'a> {
    pub(super) fn new(file: &'a str) -> Self {
        Self { file, sources: Vec::new(), later: Vec::new() }
    }

    /// Adds the message of the call or of a step to those that expressions may name.
    pub(super) fn add_source(&mut self, name: &str, message: MessageDescriptor) {
        self.sources.push((name.to_owned(), message));
    }

    /// Sets the steps that expressions may not name yet.
    pub(super) fn set_later(&mut self, names: Vec<String>) {
        self.later = names;
    }

    /// Checks an expression for a whole message.
    pub(super) fn message(&self, node: &Spanned<Node>, what: &str, of: &MessageDescriptor) -> Checked<Expression> {
        self.single(node, what, &Kind::Message(of.clone()))
    }

    fn fail<T, S>(&self, at: &Spanned<S>, message: impl AsRef<str>) -> Checked<T> {
        Err(wrong(self.file, at, message))
    }

    /// Checks the value of a field.
    fn field(&self, node: &Spanned<Node>, field: &FieldDescriptor) -> Checked<Expression> {
        let (what, wanted) = (format!("`{}`", field.name()), ValueType::of(field));
        match (&wanted, &node.value) {
            (ValueType::Single(kind), _) => self.single(node, &what, kind),
            (_, Node::Text(text)) if is_reference(text) => self.reference(node, text, &what, &wanted),
            (ValueType::List(kind), Node::List(elements)) => {
                let element = format!("an element of {what}");
                let elements = elements.iter().map(|node| self.single(node, &element, kind));
                Ok(Expression::List(elements.collect::<Checked<_>>()?))
            }
            (ValueType::Map(key, value), Node::Map(entries)) => {
                let entries = entries.iter().map(|(name, node)| {
                    let entry = format!("the value of `{}` in {what}", name.value);
                    let Some(key) = map_key(&name.value, key) else {
                        return self.fail(name, format!("`{}` is no {}: correct the key", name.value, type_name(key)));
                    };
                    Ok((key, self.single(node, &entry, value)?))
                });
                Ok(Expression::Map(entries.collect::<Checked<_>>()?))
            }
            (wanted, got) => self.fail(node, format!("{what} has type {wanted}; {} does not fit", got.kind())),
        }
    }

    /// Checks a single value.
    fn single(&self, node: &Spanned<Node>, what: &str, kind: &Kind) -> Checked<Expression> {
        match (&node.value, kind) {
            (Node::Text(text), _) if is_reference(text) => {
                self.reference(node, text, what, &ValueType::Single(kind.clone()))
            }
            (Node::Map(entries), Kind::Message(message)) => {
                let mut fields: Vec<(FieldDescriptor, Expression)> = Vec::with_capacity(entries.len());
                for (name, value) in entries {
                    let field = self.field_of(message, name, &name.value)?;
                    self.check_oneof(name, &field, &fields)?;
                    let value = self.field(value, &field)?;
                    fields.push((field, value));
                }
                let missing = message.fields().find(|field| {
                    field.is_required() && !fields.iter().any(|(given, _)| given.number() == field.number())
                });
                match missing {
                    Some(field) => {
                        let (name, of) = (field.name(), message.full_name());
                        self.fail(node, format!("the required field `{name}` of {of} is missing; add it"))
                    }
                    None => Ok(Expression::Message(message.clone(), fields)),
                }
            }
            (Node::Missing, _) => self.fail(node, format!("{what} has no value; write one or remove the key")),
            (Node::Text(text), Kind::Enum(of)) => self.enum_value(node, what, text, of),
            (value, kind) => match constant(value, kind) {
                Some(value) => Ok(Expression::Constant(value)),
                None => {
                    let quotes = match kind {
                        Kind::String | Kind::Bytes if !matches!(value, Node::List(_) | Node::Map(_)) => {
                            "; put it in quotes"
                        }
                        _ => "",
                    };
                    let (wanted, got) = (type_name(kind), value.kind());
                    self.fail(node, format!("{what} has type {wanted}; {got} does not fit{quotes}"))
                }
            },
        }
    }

    fn enum_value(&self, at: &Spanned<Node>, what: &str, name: &str, of: &EnumDescriptor) -> Checked<Expression> {
        match of.get_value_by_name(name) {
            Some(value) => Ok(Expression::Constant(Value::EnumNumber(value.number()))),
            None => {
                let names: Vec<_> = of.values().map(|value| value.name().to_owned()).collect();
                let known = one_of(names.iter().map(String::as_str));
                self.fail(at, format!("{what} has type {}; its values are {known}, not `{name}`", of.full_name()))
            }
        }
    }

    fn field_of<T>(&self, message: &MessageDescriptor, at: &Spanned<T>, name: &str) -> Checked<FieldDescriptor> {
        if let Some(field) = message.get_field_by_name(name) {
            return Ok(field);
        }
        let of = message.full_name();
        let names: Vec<_> = message.fields().map(|field| field.name().to_owned()).collect();
        match names.is_empty() {
            true => self.fail(at, format!("{of} has no field `{name}`: it has no fields")),
            false => {
                let known = one_of(names.iter().map(String::as_str));
                self.fail(at, format!("{of} has no field `{name}`; it has {known}"))
            }
        }
    }

    fn check_oneof<T>(
        &self,
        at: &Spanned<T>,
        field: &FieldDescriptor,
        before: &[(FieldDescriptor, Expression)],
    ) -> Checked<()> {
        let Some(oneof) = field.containing_oneof() else { return Ok(()) };
        match before.iter().find(|(given, _)| given.containing_oneof().as_ref() == Some(&oneof)) {
            Some((given, _)) => {
                let (name, other, of) = (field.name(), given.name(), oneof.name());
                self.fail(at, format!("`{other}` and `{name}` belong to the oneof `{of}`; keep one of them"))
            }
            None => Ok(()),
        }
    }

    /// Checks a reference: `$call`, `$step.field.field`.
    fn reference(&self, at: &Spanned<Node>, text: &str, what: &str, wanted: &ValueType) -> Checked<Expression> {
        let mut names = text[1..].split('.');
        let name = names.next().unwrap_or_default();
        let Some(source) = self.sources.iter().position(|(known, _)| known == name) else {
            let known = one_of(self.sources.iter().map(|(known, _)| known.as_str()));
            let why = match self.later.iter().any(|later| later == name) {
                true => "has not replied when this request is sent",
                false => "does not exist",
            };
            return self.fail(at, format!("the step `{name}` of `{text}` {why}; use {known}"));
        };
        let mut found = ValueType::Single(Kind::Message(self.sources[source].1.clone()));
        let mut path = Vec::new();
        for name in names {
            let ValueType::Single(Kind::Message(message)) = &found else {
                return self
                    .fail(at, format!("`{name}` of `{text}` does not exist: the value before it has type {found}"));
            };
            let field = self.field_of(message, at, name)?;
            found = ValueType::of(&field);
            path.push(field);
        }
        if found.to_string() != wanted.to_string() {
            return self.fail(at, format!("{what} has type {wanted}; `{text}` has type {found}"));
        }
        Ok(Expression::Reference(Reference { source, name: name.to_owned(), path }))
    }
}

/// Whether a text is a reference. Two dollars begin a text with one.
fn is_reference(text: &str) -> bool {
    text.starts_with('$') && !text.starts_with("$$")
}

/// Value of a constant, if it has this type.
fn constant(node: &Node, kind: &Kind) -> Option<Value> {
    Some(match (node, kind) {
        (Node::Bool(value), Kind::Bool) => Value::Bool(*value),
        (Node::Text(text), Kind::String) => Value::String(unescaped(text).to_owned()),
        (Node::Text(text), Kind::Bytes) => Value::Bytes(unescaped(text).to_owned().into()),
        (Node::Float(value), Kind::Double) => Value::F64(*value),
        (Node::Float(value), Kind::Float) => Value::F32(*value as f32),
        (Node::Integer(value), Kind::Double) => Value::F64(*value as f64),
        (Node::Integer(value), Kind::Float) => Value::F32(*value as f32),
        (Node::Integer(value), kind) => integer(*value, kind)?,
        _ => return None,
    })
}

fn integer(value: i128, kind: &Kind) -> Option<Value> {
    Some(match kind {
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(value.try_into().ok()?),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(value.try_into().ok()?),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(value.try_into().ok()?),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(value.try_into().ok()?),
        _ => return None,
    })
}

fn unescaped(text: &str) -> &str {
    if text.starts_with("$$") { &text[1..] } else { text }
}

/// Key of a map field.
fn map_key(text: &str, kind: &Kind) -> Option<MapKey> {
    match kind {
        Kind::String => Some(MapKey::String(text.to_owned())),
        Kind::Bool => text.parse().ok().map(MapKey::Bool),
        kind => integer(text.parse().ok()?, kind)?.into_map_key(),
    }
}
