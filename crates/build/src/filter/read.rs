//! JSON to [`NetFilter`]: the shape of the text. Reading goes on after a mistake, so that one run
//! reports all of them.

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use pathcall_proto::manifest::{Ack, Modify, Op, Target};

use super::words::{CNT_FWD_FIELDS, FIELDS, MODIFY_FIELDS, OPS, is_integer, is_reference, op_name, ops, takes_para};
use super::{ClearPolicy, CntFwd, Key, NetFilter, PRECISION_MAX};
use crate::diagnostic::{Diagnostic, Source, Span, Spanned, closest, one_of};

/// What the paper writes and nothing looser: comments and trailing commas (NetRPC Fig. 3).
const SYNTAX: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn filters(source: &Source) -> Result<Vec<NetFilter>, Vec<Diagnostic>> {
    let mut reader = Reader { source, base: 0, problems: Vec::new() };
    let filters = reader.file();
    if reader.problems.is_empty() { Ok(filters) } else { Err(reader.problems) }
}

struct Reader<'a> {
    source: &'a Source,
    /// Where the value that is being read starts in the text; ranges count from here.
    base: usize,
    problems: Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    /// One object after the other. The parser stops where a second value starts; that is where it
    /// is started again.
    fn file(&mut self) -> Vec<NetFilter> {
        let source: &'a Source = self.source;
        let mut filters = Vec::new();
        let mut rest = source.text();
        loop {
            let next = match parse_to_ast(rest, &CollectOptions::default(), &SYNTAX) {
                Ok(parsed) => {
                    parsed.value.iter().for_each(|value| self.value(value, &mut filters));
                    if filters.is_empty() && self.problems.is_empty() {
                        self.report(Diagnostic::error(source.locate(0), "there is no filter in this file"));
                    }
                    return filters;
                }
                Err(error) if matches!(error.kind(), ParseErrorKind::MultipleRootJsonValues) => error.range().start,
                Err(error) => {
                    self.syntax(&error);
                    return filters;
                }
            };
            // What stood before it parsed already, so this is never an error; were it one, it is told.
            match parse_to_ast(&rest[..next], &CollectOptions::default(), &SYNTAX) {
                Ok(parsed) => parsed.value.iter().for_each(|value| self.value(value, &mut filters)),
                Err(error) => self.syntax(&error),
            }
            rest = &rest[next..];
            self.base += next;
        }
    }

    /// An object, or an array of objects.
    fn value(&mut self, value: &Value<'_>, filters: &mut Vec<NetFilter>) {
        match value {
            Value::Object(object) => filters.extend(self.filter(object)),
            Value::Array(array) => array.elements.iter().for_each(|element| match element {
                Value::Object(object) => filters.extend(self.filter(object)),
                other => self.wrong_type(other, None, "an object"),
            }),
            other => self.wrong_type(other, None, "an object"),
        }
    }

    fn filter(&mut self, object: &Object<'_>) -> Option<NetFilter> {
        let before = self.problems.len();
        self.known_fields(object, None, &FIELDS);
        let brace = Span { end: self.span(object).start + 1, ..self.span(object) };

        let app_name = self.app_name(object, brace);
        let precision = self.integer(object, "Precision", "Precision", 0..=PRECISION_MAX.into());
        let get = self.reference(object, "get");
        let add_to = self.reference(object, "addTo");
        let clear = object.get("clear").and_then(|prop| self.clear(prop));
        let modify = object.get("modify").and_then(|prop| self.modify(prop));
        let ack = object.get("ack").and_then(|prop| self.ack(prop));
        let cnt_fwd = match object.get("CntFwd") {
            None => CntFwd {
                to: given(None, Target::Src, brace),
                threshold: given(None, 0, brace),
                key: given(None, Key::Null, brace),
            },
            Some(prop) => self.cnt_fwd(prop)?,
        };
        (self.problems.len() == before).then_some(())?;
        Some(NetFilter {
            span: self.span(object),
            app_name: app_name?,
            precision: given(precision.map(|digits| digits.map(|digits| digits as u8)), 0, brace),
            get: given(get, None, brace),
            add_to: given(add_to, None, brace),
            clear: given(clear, ClearPolicy::Nop, brace),
            modify: given(modify, Modify::NOP, brace),
            cnt_fwd,
            ack: given(ack, Ack::Element, brace),
        })
    }

    fn app_name(&mut self, object: &Object<'_>, brace: Span) -> Option<Spanned<String>> {
        let Some(prop) = object.get("AppName") else {
            let at = self.source.locate(brace.start);
            self.report(Diagnostic::error(at, "is missing").field("AppName").expected("the name of the application"));
            return None;
        };
        let name = self.string(prop, "AppName")?;
        if name.value.trim().is_empty() {
            self.report(self.error(name.span, "AppName", "is empty").expected("the name of the application"));
            return None;
        }
        Some(name.map(str::to_owned))
    }

    /// `"Message.field"` or `"nop"`.
    fn reference(&mut self, object: &Object<'_>, field: &str) -> Option<Spanned<Option<String>>> {
        let text = self.string(object.get(field)?, field)?;
        if text.value != "nop" && !is_reference(text.value) {
            let wrong = self.error(text.span, field, "is not a field").expected("`Message.field` or `nop`");
            self.report(wrong.got(format!("`{}`", text.value)));
            return None;
        }
        Some(text.map(|text| (text != "nop").then(|| text.to_owned())))
    }

    fn clear(&mut self, prop: &ObjectProp<'_>) -> Option<Spanned<ClearPolicy>> {
        let text = self.string(prop, "clear")?;
        let policy = match text.value {
            "nop" => ClearPolicy::Nop,
            "copy" => ClearPolicy::Copy,
            "shadow" => ClearPolicy::Shadow,
            // NetRPC §5.2.2 has this as well: registers are not cleared, and what they held before is subtracted.
            "lazy" => {
                let message =
                    "clear policy \"lazy\" is not available: use \"shadow\", which needs no pass to clear either";
                self.report(Diagnostic::error(self.source.locate(text.span.start), message));
                return None;
            }
            _ => return self.unknown_word("clear", &text, &["nop", "copy", "shadow"]),
        };
        Some(text.map(|_| policy))
    }

    /// Not of the paper, where the element's word is enough.
    fn ack(&mut self, prop: &ObjectProp<'_>) -> Option<Spanned<Ack>> {
        let text = self.string(prop, "ack")?;
        let ack = match text.value {
            "element" => Ack::Element,
            "server" => Ack::Server,
            _ => return self.unknown_word("ack", &text, &["element", "server"]),
        };
        Some(text.map(|_| ack))
    }

    /// `"nop"`, `"BNOT"`, or an operator and its operand (NetRPC Table 8).
    fn modify(&mut self, prop: &ObjectProp<'_>) -> Option<Spanned<Modify>> {
        let Value::Object(object) = &prop.value else {
            let Value::StringLit(_) = &prop.value else {
                self.wrong_type(&prop.value, Some("modify"), "`nop` or an object with `op` and `para`");
                return None;
            };
            let text = self.string(prop, "modify")?;
            let op = self.op("modify", &text)?;
            if takes_para(op) {
                let wrong = self.error(text.span, "modify", format!("{} needs a para", op_name(op)));
                self.report(wrong.hint(format!("write {{\"op\": \"{}\", \"para\": 1}}", op_name(op))));
                return None;
            }
            return Some(text.map(|_| Modify { op, para: 0 }));
        };
        self.known_fields(object, Some("modify"), &MODIFY_FIELDS);
        let span = self.span(object);
        let Some(op) = object.get("op") else {
            self.report(self.error(span, "modify.op", "is missing").expected(ops()));
            return None;
        };
        let text = self.string(op, "modify.op")?;
        let op = self.op("modify.op", &text)?;
        let allowed = match op {
            Op::ShiftL | Op::ShiftR => 0..=31,
            op if takes_para(op) => i64::from(i32::MIN)..=i64::from(i32::MAX),
            _ => 0..=0,
        };
        match self.integer(object, "para", "modify.para", allowed) {
            Some(para) => Some(Spanned { value: Modify { op, para: para.value as i32 }, span }),
            None if object.get("para").is_some() => None,
            None if takes_para(op) => {
                self.report(self.error(span, "modify.para", "is missing").expected("an integer"));
                None
            }
            None => Some(Spanned { value: Modify { op, para: 0 }, span }),
        }
    }

    fn op(&mut self, field: &str, text: &Spanned<&str>) -> Option<Op> {
        let op = OPS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text.value));
        if op.is_none() {
            let names: Vec<&str> = OPS.iter().map(|(name, _)| *name).collect();
            return self.unknown_word(field, text, &names);
        }
        op.map(|(_, op)| *op)
    }

    fn cnt_fwd(&mut self, prop: &ObjectProp<'_>) -> Option<CntFwd> {
        let Value::Object(object) = &prop.value else {
            self.wrong_type(&prop.value, Some("CntFwd"), "an object with `to`, `threshold` and `key`");
            return None;
        };
        self.known_fields(object, Some("CntFwd"), &CNT_FWD_FIELDS);
        let span = self.span(object);
        let to = object.get("to").and_then(|prop| self.target(prop));
        let threshold = self.integer(object, "threshold", "CntFwd.threshold", 0..=u32::MAX.into());
        let key = object.get("key").and_then(|prop| self.key(prop));
        Some(CntFwd {
            to: given(to, Target::Src, span),
            threshold: given(threshold.map(|count| count.map(|count| count as u32)), 0, span),
            key: given(key, Key::Null, span),
        })
    }

    fn target(&mut self, prop: &ObjectProp<'_>) -> Option<Spanned<Target>> {
        let text = self.string(prop, "CntFwd.to")?;
        let target = match text.value {
            "ALL" => Target::All,
            "SRC" => Target::Src,
            "SERVER" => Target::Server,
            _ => return self.unknown_word("CntFwd.to", &text, &["ALL", "SRC", "SERVER"]),
        };
        Some(text.map(|_| target))
    }

    fn key(&mut self, prop: &ObjectProp<'_>) -> Option<Spanned<Key>> {
        let text = self.string(prop, "CntFwd.key")?;
        let key = match text.value {
            "NULL" => Key::Null,
            "ClientID" => Key::ClientId,
            field if is_reference(field) => Key::Field(field.to_owned()),
            _ => return self.unknown_word("CntFwd.key", &text, &["NULL", "ClientID", "Message.field"]),
        };
        Some(text.map(|_| key))
    }

    /// Reports unknown and repeated fields; a repeated one counts as it stands first.
    fn known_fields(&mut self, object: &Object<'_>, of: Option<&str>, known: &[&str]) {
        let full = |name: &str| of.map_or_else(|| name.to_owned(), |of| format!("{of}.{name}"));
        for (i, prop) in object.properties.iter().enumerate() {
            let name = prop.name.as_str();
            let at = self.locate(&prop.name);
            if !known.contains(&name) {
                let mut unknown =
                    Diagnostic::error(at, "unknown field").field(full(name)).expected(one_of(known.iter().copied()));
                unknown.hint = closest(name, known.iter().copied()).map(|near| format!("did you mean {near:?}?"));
                self.report(unknown);
            } else if let Some(first) = object.properties[..i].iter().find(|first| first.name.as_str() == name) {
                let repeated = Diagnostic::error(at, "is given twice").field(full(name));
                self.report(repeated.see(self.locate(&first.name), "first given here"));
            }
        }
    }

    fn string<'p>(&mut self, prop: &'p ObjectProp<'_>, field: &str) -> Option<Spanned<&'p str>> {
        match &prop.value {
            Value::StringLit(text) => Some(Spanned { value: &*text.value, span: self.span(text) }),
            other => {
                self.wrong_type(other, Some(field), "a string");
                None
            }
        }
    }

    /// The integer under `name`, if it is there and in the range.
    fn integer(
        &mut self,
        object: &Object<'_>,
        name: &str,
        field: &str,
        allowed: std::ops::RangeInclusive<i64>,
    ) -> Option<Spanned<i64>> {
        let expected = match (*allowed.start(), *allowed.end()) {
            (0, end) if end == i64::from(u32::MAX) => "an integer not below 0".to_owned(),
            (0, 0) => "nothing or 0".to_owned(),
            (start, end) => format!("an integer from {start} to {end}"),
        };
        let Value::NumberLit(number) = &object.get(name)?.value else {
            self.wrong_type(&object.get(name)?.value, Some(field), &expected);
            return None;
        };
        let span = self.span(number);
        match number.value.parse() {
            Ok(value) if allowed.contains(&value) => Some(Spanned { value, span }),
            parsed => {
                let message =
                    if parsed.is_ok() || is_integer(number.value) { "is out of range" } else { "is not an integer" };
                self.report(self.error(span, field, message).expected(expected).got(number.value));
                None
            }
        }
    }

    fn unknown_word<T>(&mut self, field: &str, text: &Spanned<&str>, known: &[&str]) -> Option<T> {
        let mut unknown = self.error(text.span, field, "unknown value").expected(one_of(known.iter().copied()));
        unknown.hint = closest(text.value, known.iter().copied()).map(|near| format!("did you mean {near:?}?"));
        self.report(unknown.got(format!("`{}`", text.value)));
        None
    }

    fn wrong_type(&mut self, value: &Value<'_>, field: Option<&str>, expected: &str) {
        let got = match value {
            Value::StringLit(_) => "a string",
            Value::NumberLit(_) => "a number",
            Value::BooleanLit(_) => "a boolean",
            Value::Object(_) => "an object",
            Value::Array(_) => "an array",
            Value::NullKeyword(_) => "null",
        };
        let mut wrong = Diagnostic::error(self.locate(value), "wrong type").expected(expected).got(got);
        wrong.field = field.map(str::to_owned);
        self.report(wrong);
    }

    fn syntax(&mut self, error: &jsonc_parser::errors::ParseError) {
        let kind = error.kind().to_string();
        let mut message: String = kind.chars().take(1).flat_map(char::to_lowercase).collect();
        message.extend(kind.chars().skip(1));
        self.report(Diagnostic::error(self.source.locate(self.base + error.range().start), message));
    }

    fn error(&self, span: Span, field: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(self.source.locate(span.start), message).field(field)
    }

    fn report(&mut self, problem: Diagnostic) {
        self.problems.push(problem);
    }

    fn span(&self, node: &impl Ranged) -> Span {
        let range = node.range();
        Span { start: self.base + range.start, end: self.base + range.end }
    }

    fn locate(&self, node: &impl Ranged) -> crate::diagnostic::Location {
        self.source.locate(self.span(node).start)
    }
}

impl<T> Spanned<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned { value: f(self.value), span: self.span }
    }
}

/// What the text gives, or what stands for nothing given, at the place that lacks it.
fn given<T>(value: Option<Spanned<T>>, otherwise: T, span: Span) -> Spanned<T> {
    value.unwrap_or(Spanned { value: otherwise, span })
}
