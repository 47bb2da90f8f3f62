//! Resolution of references `Message.field.nested` to typed fields.

use pathcall_proto::manifest::Shape;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::ResolvedField;
use crate::diagnostic::{BuildDiagnostic, Positioned, SourceText, closest, one_of};
use crate::load::FilterMethod;

/// Message of a method that a field of the filter refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Reply,
}

impl Side {
    fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Reply => "reply",
        }
    }

    pub(super) fn message(self, named: &FilterMethod) -> MessageDescriptor {
        match self {
            Self::Request => named.method.input(),
            Self::Reply => named.method.output(),
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Request => Self::Reply,
            Self::Reply => Self::Request,
        }
    }
}

/// Resolves the reference in `option` of the filter (`addTo`, `get`, `CntFwd.key`).
pub(super) fn resolve(
    option: &str,
    name: &Positioned<String>,
    side: Side,
    named: &FilterMethod,
    source: &SourceText,
) -> Result<ResolvedField, Box<BuildDiagnostic>> {
    let message = side.message(named);
    let wrong = |text: String| BuildDiagnostic::error(source.locate(name.span.start), text).field(option);
    let Some(fields) = after_message(&name.value, &message) else {
        let other = side.other().message(named);
        let expected = format!("a field of `{}`", message.name());
        let problem = match after_message(&name.value, &other) {
            Some(_) => wrong(format!(
                "`{}` is the {} of `{}`, but {option} needs the {}",
                other.name(),
                side.other().word(),
                named.method.name(),
                side.word()
            )),
            None => wrong(format!("`{}` is in no message of `{}`", name.value, named.method.name())),
        };
        return Err(Box::new(problem.expected(expected).got(format!("`{}`", name.value))));
    };
    follow(fields, message).map_err(|problem| {
        let mut diagnostic = wrong(problem.message).expected(problem.expected);
        diagnostic.got = problem.got;
        diagnostic.hint = problem.hint;
        Box::new(diagnostic)
    })
}

/// Part of `name` after the message, if it names this message. Short name, full name and partially qualified names
/// (`Outer.Inner`) are accepted; the longest match counts.
pub(super) fn after_message<'n>(name: &'n str, message: &MessageDescriptor) -> Option<&'n str> {
    let mut known = message.full_name();
    loop {
        if let Some(fields) = name.strip_prefix(known).and_then(|rest| rest.strip_prefix('.')) {
            return Some(fields);
        }
        known = known.split_once('.')?.1;
    }
}

/// Typed fields that are declared directly in a message.
pub(super) fn direct_typed(message: &MessageDescriptor) -> Vec<ResolvedField> {
    let fields = message.fields().filter(|field| !field.is_list() && !field.is_group() && real_oneof(field).is_none());
    let named = |field: FieldDescriptor| {
        let shape = shape(&field)?;
        Some(ResolvedField { path: vec![field.number()], name: format!("{}.{}", message.name(), field.name()), shape })
    };
    fields.filter_map(named).collect()
}

/// Names of the other typed fields in a message: in nested messages, in oneofs, and repeated ones.
pub(super) fn nested_typed(message: &MessageDescriptor) -> Vec<String> {
    fn look(message: &MessageDescriptor, name: &str, above: &mut Vec<String>, found: &mut Vec<String>) {
        if above.iter().any(|above| above == message.full_name()) {
            return;
        }
        above.push(message.full_name().to_owned());
        for field in message.fields() {
            let name = format!("{name}.{}", field.name());
            match field.kind() {
                _ if shape(&field).is_some() => found.push(name),
                Kind::Message(inner) => look(&inner, &name, above, found),
                _ => {}
            }
        }
        above.pop();
    }
    let mut found = Vec::new();
    look(message, message.name(), &mut Vec::new(), &mut found);
    found
}

/// True if a message has anything besides this field, at any level above it.
pub(super) fn has_more_than(message: &MessageDescriptor, field: Option<&ResolvedField>) -> bool {
    let Some(field) = field else { return message.fields().len() > 0 };
    let mut message = message.clone();
    for number in &field.path {
        if message.fields().len() > 1 {
            return true;
        }
        match message.get_field(*number).map(|field| field.kind()) {
            Some(Kind::Message(next)) => message = next,
            _ => return false,
        }
    }
    false
}

struct Problem {
    message: String,
    expected: String,
    got: Option<String>,
    hint: Option<String>,
}

/// Follows the names down to the typed field.
fn follow(fields: &str, mut message: MessageDescriptor) -> Result<ResolvedField, Problem> {
    let mut name = message.name().to_owned();
    let mut path = Vec::new();
    let mut rest = fields.split('.').peekable();
    while let Some(part) = rest.next() {
        let field = message.get_field_by_name(part).ok_or_else(|| unknown(&name, part, &message))?;
        name = format!("{name}.{part}");
        path.push(field.number());
        let problem = |what: String, expected: &str, hint: Option<String>| Problem {
            message: format!("`{name}` {what}"),
            expected: expected.to_owned(),
            got: None,
            hint,
        };
        if let Some(oneof) = real_oneof(&field) {
            return Err(problem(format!("is in the oneof `{oneof}`"), "a field outside of any oneof", None));
        }
        if field.is_group() {
            return Err(problem("is a group".to_owned(), "a message", None));
        }
        if field.is_list() {
            return Err(problem("is repeated".to_owned(), "a single field", None));
        }
        match (shape(&field), rest.peek()) {
            (Some(shape), None) => return Ok(ResolvedField { path, name, shape }),
            (Some(shape), Some(more)) => {
                let hint = Some(format!("remove `.{more}`"));
                return Err(problem(
                    format!("is the typed field, {}", with_article(shape.proto_name())),
                    "nothing after it",
                    hint,
                ));
            }
            (None, more) => match field.kind() {
                Kind::Message(inner) if !field.is_map() => {
                    if more.is_none() {
                        let candidate = direct_typed(&inner)
                            .into_iter()
                            .next()
                            .map(|typed| format!("did you mean {:?}?", format!("{name}.{}", last(&typed.name))));
                        return Err(problem(format!("is {}", kind_name(&field)), &typed_names(), candidate));
                    }
                    message = inner;
                }
                _ => return Err(problem(format!("is {}", kind_name(&field)), &typed_names(), None)),
            },
        }
    }
    Err(unknown(&name, "", &message))
}

fn unknown(name: &str, part: &str, message: &MessageDescriptor) -> Problem {
    let fields: Vec<FieldDescriptor> = message.fields().collect();
    let names = || fields.iter().map(FieldDescriptor::name);
    let expected = if fields.is_empty() { "a message with fields".to_owned() } else { one_of(names()) };
    Problem {
        message: format!("`{name}` has no such field"),
        expected,
        got: Some(format!("`{part}`")),
        hint: closest(part, names()).map(|near| format!("did you mean {:?}?", format!("{name}.{near}"))),
    }
}

/// Shape of a typed field, from the name of its message.
fn shape(field: &FieldDescriptor) -> Option<Shape> {
    let Kind::Message(message) = field.kind() else { return None };
    let name = message.full_name().strip_prefix("pathcall.")?;
    Shape::ALL.into_iter().find(|shape| shape.proto_name() == name)
}

/// Oneof of a field; `optional` does not count as one.
fn real_oneof(field: &FieldDescriptor) -> Option<String> {
    field.containing_oneof().filter(|oneof| !oneof.is_synthetic()).map(|oneof| oneof.name().to_owned())
}

/// Description of a field's type.
fn kind_name(field: &FieldDescriptor) -> String {
    if field.is_map() {
        return "a plain map".to_owned();
    }
    match field.kind() {
        Kind::Message(message) => format!("a message `{}`", message.name()),
        Kind::Enum(kind) => format!("an enum `{}`", kind.name()),
        scalar => with_article(&format!("{scalar:?}")),
    }
}

/// Noun with its article, by pronunciation: an `FPArray`.
pub(super) fn with_article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'I']) || noun.starts_with("FP");
    format!("{} {noun}", if vowel { "an" } else { "a" })
}

fn typed_names() -> String {
    let names: Vec<_> = Shape::ALL.iter().map(|shape| shape.proto_name()).collect();
    format!("one of {}", names.join(", "))
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
