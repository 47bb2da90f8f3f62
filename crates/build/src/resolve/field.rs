//! `Message.field.nested` to a typed field.

use pathcall_proto::manifest::Shape;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::Field;
use crate::diagnostic::{Diagnostic, Source, Spanned, closest, one_of};
use crate::load::Named;

/// Which of a method's messages a filter's field works on.
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

    pub(super) fn message(self, named: &Named) -> MessageDescriptor {
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

/// Looks up what `option` of the filter (`addTo`, `get`, `CntFwd.key`) names.
pub(super) fn find(
    option: &str,
    name: &Spanned<String>,
    side: Side,
    named: &Named,
    source: &Source,
) -> Result<Field, Box<Diagnostic>> {
    let message = side.message(named);
    let wrong = |text: String| Diagnostic::error(source.locate(name.span.start), text).field(option);
    let Some(fields) = within(&name.value, &message) else {
        let other = side.other().message(named);
        let expected = format!("a field of `{}`", message.name());
        let problem = match within(&name.value, &other) {
            Some(_) => wrong(format!(
                "`{}` is the {} of `{}`, and {option} works on the {}",
                other.name(),
                side.other().word(),
                named.method.name(),
                side.word()
            )),
            None => wrong(format!("`{}` is in no message of `{}`", name.value, named.method.name())),
        };
        return Err(Box::new(problem.expected(expected).got(format!("`{}`", name.value))));
    };
    walk(fields, message).map_err(|problem| {
        let mut diagnostic = wrong(problem.message).expected(problem.expected);
        diagnostic.got = problem.got;
        diagnostic.hint = problem.hint;
        Box::new(diagnostic)
    })
}

/// The part of `name` after the message, if it is this message. Its short name, its full name and
/// everything between (`Outer.Inner`) will do; the longest match counts.
pub(super) fn within<'n>(name: &'n str, message: &MessageDescriptor) -> Option<&'n str> {
    let mut known = message.full_name();
    loop {
        if let Some(fields) = name.strip_prefix(known).and_then(|rest| rest.strip_prefix('.')) {
            return Some(fields);
        }
        known = known.split_once('.')?.1;
    }
}

/// The typed fields that a message declares itself.
pub(super) fn typed(message: &MessageDescriptor) -> Vec<Field> {
    let fields = message.fields().filter(|field| !field.is_list() && !field.is_group() && real_oneof(field).is_none());
    let named = |field: FieldDescriptor| {
        let shape = shape(&field)?;
        Some(Field { path: vec![field.number()], name: format!("{}.{}", message.name(), field.name()), shape })
    };
    fields.filter_map(named).collect()
}

/// Names of the typed fields that are in a message and not declared by it to stand by themselves: those of messages within
/// it, in oneofs, and repeated ones.
pub(super) fn deeper(message: &MessageDescriptor) -> Vec<String> {
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

/// Whether a message declares anything besides this field, at any level above it.
pub(super) fn has_more_than(message: &MessageDescriptor, field: Option<&Field>) -> bool {
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
fn walk(fields: &str, mut message: MessageDescriptor) -> Result<Field, Problem> {
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
            return Err(problem(format!("is in the oneof `{oneof}`"), "a field that stands by itself", None));
        }
        if field.is_group() {
            return Err(problem("is a group".to_owned(), "a message", None));
        }
        if field.is_list() {
            return Err(problem("is repeated".to_owned(), "a single field", None));
        }
        match (shape(&field), rest.peek()) {
            (Some(shape), None) => return Ok(Field { path, name, shape }),
            (Some(shape), Some(more)) => {
                let hint = Some(format!("leave out `.{more}`"));
                return Err(problem(
                    format!("is the typed field, {}", article(shape.proto_name())),
                    "nothing after it",
                    hint,
                ));
            }
            (None, more) => match field.kind() {
                Kind::Message(inner) if !field.is_map() => {
                    if more.is_none() {
                        let candidate = typed(&inner)
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

/// The typed field that a field is, by the name of its message.
fn shape(field: &FieldDescriptor) -> Option<Shape> {
    let Kind::Message(message) = field.kind() else { return None };
    let name = message.full_name().strip_prefix("pathcall.")?;
    Shape::ALL.into_iter().find(|shape| shape.proto_name() == name)
}

/// The oneof a field is in; `optional` does not count as one.
fn real_oneof(field: &FieldDescriptor) -> Option<String> {
    field.containing_oneof().filter(|oneof| !oneof.is_synthetic()).map(|oneof| oneof.name().to_owned())
}

/// A field's type in words.
fn kind_name(field: &FieldDescriptor) -> String {
    if field.is_map() {
        return "a plain map".to_owned();
    }
    match field.kind() {
        Kind::Message(message) => format!("a message `{}`", message.name()),
        Kind::Enum(kind) => format!("an enum `{}`", kind.name()),
        scalar => article(&format!("{scalar:?}")),
    }
}

/// The noun with its article, as it is spoken: an `FPArray`.
pub(super) fn article(noun: &str) -> String {
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
