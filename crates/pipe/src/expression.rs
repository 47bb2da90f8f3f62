//! Expressions of a pipe: how a message is built from the messages before it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use prost_reflect::{DynamicMessage, FieldDescriptor, MapKey, MessageDescriptor, Value};

/// Checked expression. Its value has the type of its place.
#[derive(Debug, Clone)]
pub(crate) enum Expression {
    /// Constant.
    Constant(Value),
    /// Message or field of an earlier message.
    Reference(Reference),
    /// Message with the values of its fields, in the order of the file.
    Message(MessageDescriptor, Vec<(FieldDescriptor, Expression)>),
    /// List of values.
    List(Vec<Expression>),
    /// Map with its values.
    Map(Vec<(MapKey, Expression)>),
}

/// Reference to a message or a field.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    /// Source: 0 is the call, n the reply of step n.
    pub(crate) source: usize,
    /// Name of the source in the file.
    pub(crate) name: String,
    /// Fields from the source to the value; empty for the whole message.
    pub(crate) path: Vec<FieldDescriptor>,
}

impl Expression {
    /// Value of the expression; `None` if it refers to a field that is absent. `sources` are the call and the replies of
    /// the steps so far.
    pub(crate) fn evaluate(&self, sources: &[DynamicMessage]) -> Option<Value> {
        match self {
            Self::Constant(value) => Some(value.clone()),
            Self::Reference(reference) => reference.find(sources),
            Self::Message(descriptor, fields) => {
                let mut message = DynamicMessage::new(descriptor.clone());
                for (field, expression) in fields {
                    if let Some(value) = expression.evaluate(sources) {
                        message.set_field(field, value);
                    }
                }
                Some(Value::Message(message))
            }
            // An absent element is left out.
            Self::List(elements) => {
                Some(Value::List(elements.iter().filter_map(|element| element.evaluate(sources)).collect()))
            }
            Self::Map(entries) => {
                let present = |(key, value): &(MapKey, Self)| Some((key.clone(), value.evaluate(sources)?));
                Some(Value::Map(entries.iter().filter_map(present).collect::<HashMap<_, _>>()))
            }
        }
    }

    /// All references in the expression.
    pub(crate) fn references(&self) -> Vec<&Reference> {
        match self {
            Self::Constant(_) => Vec::new(),
            Self::Reference(reference) => vec![reference],
            Self::Message(_, fields) => fields.iter().flat_map(|(_, value)| value.references()).collect(),
            Self::List(elements) => elements.iter().flat_map(Self::references).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(_, value)| value.references()).collect(),
        }
    }
}

impl Reference {
    fn find(&self, sources: &[DynamicMessage]) -> Option<Value> {
        let mut message = sources.get(self.source)?;
        let Some((last, through)) = self.path.split_last() else { return Some(Value::Message(message.clone())) };
        for field in through {
            message = present(message, field)?.as_message()?;
        }
        if last.supports_presence() {
            return present(message, last).cloned();
        }
        Some(message.get_field(last).into_owned())
    }
}

/// Value of a field that is set.
fn present<'m>(message: &'m DynamicMessage, field: &FieldDescriptor) -> Option<&'m Value> {
    match message.get_field(field) {
        Cow::Borrowed(value) => Some(value),
        Cow::Owned(_) => None,
    }
}

/// As in the file; with `{:#}`, followed by the numbers of the fields.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => write!(f, "{value}"),
            Self::Reference(reference) => reference.fmt(f),
            Self::Message(_, fields) => listed(f, ("{", "}"), fields, |f, (field, value)| {
                write_field(f, field)?;
                f.write_str(": ")?;
                value.fmt(f)
            }),
            Self::List(elements) => listed(f, ("[", "]"), elements, |f, element| element.fmt(f)),
            Self::Map(entries) => listed(f, ("{", "}"), entries, |f, (key, value)| {
                write!(f, "{}: ", Value::from(key.clone()))?;
                value.fmt(f)
            }),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.name)?;
        self.path.iter().try_for_each(|field| {
            f.write_str(".")?;
            write_field(f, field)
        })
    }
}

fn write_field(f: &mut fmt::Formatter<'_>, field: &FieldDescriptor) -> fmt::Result {
    f.write_str(field.name())?;
    if f.alternate() { write!(f, "#{}", field.number()) } else { Ok(()) }
}

/// Writes values between two brackets.
fn listed<T>(
    f: &mut fmt::Formatter<'_>,
    (open, close): (&str, &str),
    values: &[T],
    mut write: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_str(open)?;
    for (n, value) in values.iter().enumerate() {
        if n > 0 {
            f.write_str(", ")?;
        }
        write(f, value)?;
    }
    f.write_str(close)
}
