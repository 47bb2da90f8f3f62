//! Parser of NetFilters: JSON to [`NetFilter`]. It continues after an error, so that one run reports all of them.

mod lanes;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use pathcall_proto::manifest::{Ack, ForwardTarget, LaneFormat, MapPath, Modify, OpType, ReadMode};

use super::keywords::{OPS, is_integer, is_reference, op_name, ops, takes_para};
use super::{ClearOption, CntFwd, CountedKey, NetFilter, PRECISION_MAX};
use crate::diagnostic::{BuildDiagnostic, Positioned, SourceText, TextRange, closest, one_of};

/// Fields of a filter.
pub(super) const FIELDS: [&str; 12] =
    ["AppName", "Precision", "get", "addTo", "clear", "modify", "CntFwd", "ack", "path", "lanes", "topk", "read"];
/// Fields of `CntFwd`.
pub(super) const CNT_FWD_FIELDS: [&str; 3] = ["to", "threshold", "key"];
/// Fields of `modify`.
pub(super) const MODIFY_FIELDS: [&str; 2] = ["op", "para"];

/// Extensions of JSON that the paper uses, and no others: comments and trailing commas (NetRPC Fig. 3).
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

pub(super) fn filters(source: &SourceText) -> Result<Vec<NetFilter>, Vec<BuildDiagnostic>> {
    let mut reader = Reader { source, base: 0, problems: Vec::new() };
    let filters = reader.file();
    if reader.problems.is_empty() { Ok(filters) } else { Err(reader.problems) }
}

struct Reader<'a> {
    source: &'a SourceText,
    /// Position in the text of the value that is being read; ranges are relative to it.
    base: usize,
    problems: Vec<BuildDiagnostic>,
}

impl<'a> Reader<'a> {
    /// Reads one object after the other. The JSON parser stops at the start of a second value, where it is restarted.
    fn file(&mut self) -> Vec<NetFilter> {
        let source: &'a SourceText = self.source;
        let mut filters = Vec::new();
        let mut rest = source.text();
        loop {
            let next = match parse_to_ast(rest, &CollectOptions::default(), &SYNTAX) {
                Ok(parsed) => {
                    parsed.value.iter().for_each(|value| self.value(value, &mut filters));
                    if filters.is_empty() && self.problems.is_empty() {
                        self.report(BuildDiagnostic::error(source.locate(0), "the file has no filter"));
                    }
                    return filters;
                }
                Err(error) if matches!(error.kind(), ParseErrorKind::MultipleRootJsonValues) => error.range().start,
                Err(error) => {
                    self.syntax(&error);
                    return filters;
                }
            };
            // The text before was parsed already, so this never fails; a failure would be reported.
            match parse_to_ast(&rest[..next], &CollectOptions::default(), &SYNTAX) {
                Ok(parsed) => parsed.value.iter().for_each(|value| self.value(value, &mut filters)),
                Err(error) => self.syntax(&error),
            }
            rest = &rest[next..];
            self.base += next;
        }
    }

    /// Reads an object, or an array of objects.
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
        let brace = TextRange { end: self.span(object).start + 1, ..self.span(object) };

        let app_name = self.app_name(object, brace);
        let precision = self.integer(object, "Precision", "Precision", 0..=PRECISION_MAX.into());
        let get = self.reference(object, "get");
        let add_to = self.reference(object, "addTo");
        let clear = object.get("clear").and_then(|prop| self.clear(prop));
        let modify = object.get("modify").and_then(|prop| self.modify(prop));
        let ack = object.get("ack").and_then(|prop| self.ack(prop));
        let path = object.get("path").and_then(|prop| self.path(prop));
        let lanes = object.get("lanes").and_then(|prop| self.lanes(prop));
        let topk = object.get("topk").and_then(|prop| self.share(prop, "topk"));
        let read = object.get("read").and_then(|prop| self.read(prop));
        let cnt_fwd = match object.get("CntFwd") {
            None => CntFwd {
                to: given(None, ForwardTarget::Src, brace),
                threshold: given(None, 0, brace),
                key: given(None, CountedKey::Null, brace),
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
            clear: given(clear, ClearOption::Nop, brace),
            modify: given(modify, Modify::NOP, brace),
            cnt_fwd,
            ack: given(ack, Ack::Element, brace),
            path: given(path, MapPath::Automatic, brace),
            lanes: given(lanes, LaneFormat::Int32, brace),
            topk: given(topk, 0, brace),
            read: given(read, ReadMode::Linearizable, brace),
        })
    }

    fn app_name(&mut self, object: &Object<'_>, brace: TextRange) -> Option<Positioned<String>> {
        let Some(prop) = object.get("AppName") else {
            let at = self.source.locate(brace.start);
            self.report(
                BuildDiagnostic::error(at, "is missing").field("AppName").expected("the name of the application"),
            );
            return None;
        };
        let name = self.string(prop, "AppName")?;
        if name.value.trim().is_empty() {
            self.report(self.error(name.span, "AppName", "is empty").expected("the name of the application"));
            return None;
        }
        Some(name.map(str::to_owned))
    }

    /// Reads `"Message.field"` or `"nop"`.
    fn reference(&mut self, object: &Object<'_>, field: &str) -> Option<Positioned<Option<String>>> {
        let text = self.string(object.get(field)?, field)?;
        if text.value != "nop" && !is_reference(text.value) {
            let wrong = self.error(text.span, field, "is not a field").expected("`Message.field` or `nop`");
            self.report(wrong.got(format!("`{}`", text.value)));
            return None;
        }
        Some(text.map(|text| (text != "nop").then(|| text.to_owned())))
    }

    fn clear(&mut self, prop: &ObjectProp<'_>) -> Option<Positioned<ClearOption>> {
        let text = self.string(prop, "clear")?;
        let policy = match text.value {
            "nop" => ClearOption::Nop,
            "copy" => ClearOption::Copy,
            "shadow" => ClearOption::Shadow,
            "lazy" => ClearOption::Lazy,
            _ => return self.unknown_word("clear", &text, &["nop", "copy", "shadow", "lazy"]),
        };
        Some(text.map(|_| policy))
    }

    /// Extension of the paper, where an acknowledgement of the element is always enough.
    fn ack(&mut self, prop: &ObjectProp<'_>) -> Option<Positioned<Ack>> {
        let text = self.string(prop, "ack")?;
        let ack = match text.value {
            "element" => Ack::Element,
            "server" => Ack::Server,
            _ => return self.unknown_word("ack", &text, &["element", "server"]),
        };
        Some(text.map(|_| ack))
    }

    /// Extension of the paper, where all calls go by the element.
    fn path(&mut self, prop: &ObjectProp<'_>) -> Option<Positioned<MapPath>> {
        let text = self.string(prop, "path")?;
        match MapPath::ALL.into_iter().find(|path| path.name() == text.value) {
            Some(path) => Some(text.map(|_| path)),
            None => self.unknown_word("path", &text, &MapPath::ALL.map(MapPath::name)),
        }
    }

    /// Extension of the paper, where a query is answered by the server.
    fn read(&mut self, prop: &ObjectProp<'_>) -> Option<Positioned<ReadMode>> {
        let text = self.string(prop, "read")?;
        match ReadMode::ALL.into_iter().find(|read| read.name() == text.value) {
            Some(read) => Some(text.map(|_| read)),
            None => self.unknown_word("read", &text, &ReadMode::ALL.map(ReadMode::name)),
        }
    }

    /// Reads `"nop"`, `"BNOT"`, or an operator with its operand (NetRPC Table 8).
    fn modify(&mut self, prop: &ObjectProp<'_>) -> Option<Positioned<Modify>> {
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
            OpType::ShiftL | OpType::ShiftR => 0..=31,
            op if takes_para(op) => i64::from(i32::MIN)..=i64::from(i32::MAX),
            _ => 0..=0,
        };
        match self.integer(object, "para", "modify.para", allowed) {
            Some(para) => Some(Positioned { value: Modify { op, para: para.value as i32 }, span }),
            None if object.get("para").is_some() => None,
            None if takes_para(op) => {
                self.report(self.error(span, "modify.para", "is missing").expected("an integer"));
                None
            }
            None => Some(Positioned { value: Modify { op, para: 0 }, span }),
        }
    }

    fn op(&mut self, field: &str, text: &Positioned<&str>) -> Option<OpType> {
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
            to: given(to, ForwardTarget::Src, span),
            threshold: given(threshold.map(|count| count.map(|count| count as u32)), 0, span),
            key: given(key, CountedKey::Null, span),
        })
    }

    fn target(&mut self, prop: &ObjectProp<'_>) -> Option<Positioned<ForwardTarget>> {
        let text = self.string(prop, "CntFwd.to")?;
        let target = match text.value {
            "ALL" => ForwardTarget::All,
            "SRC" => ForwardTarget::Src,
            "SERVER" => ForwardTarget::Server,
            _ => return self.unknown_word("CntFwd.to", &text, &["ALL", "SRC", "SERVER"]),
        };
        Some(text.map(|_| target))
    }

    fn key(&mut self, prop: &ObjectProp<'_>) -> Option<Positioned<CountedKey>> {
        let text = self.string(prop, "CntFwd.key")?;
        let key = match text.value {
            "NULL" => CountedKey::Null,
            "ClientID" => CountedKey::ClientId,
            field if is_reference(field) => CountedKey::Field(field.to_owned()),
            _ => return self.unknown_word("CntFwd.key", &text, &["NULL", "ClientID", "Message.field"]),
        };
        Some(text.map(|_| key))
    }

    /// Reports unknown and repeated fields; the first value of a repeated field counts.
    fn known_fields(&mut self, object: &Object<'_>, of: Option<&str>, known: &[&str]) {
        let full = |name: &str| of.map_or_else(|| name.to_owned(), |of| format!("{of}.{name}"));
        for (i, prop) in object.properties.iter().enumerate() {
            let name = prop.name.as_str();
            let at = self.locate(&prop.name);
            if !known.contains(&name) {
                let mut unknown = BuildDiagnostic::error(at, "unknown field")
                    .field(full(name))
                    .expected(one_of(known.iter().copied()));
                unknown.hint = closest(name, known.iter().copied()).map(|near| format!("did you mean {near:?}?"));
                self.report(unknown);
            } else if let Some(first) = object.properties[..i].iter().find(|first| first.name.as_str() == name) {
                let repeated = BuildDiagnostic::error(at, "is given twice").field(full(name));
                self.report(repeated.see(self.locate(&first.name), "first given here"));
            }
        }
    }

    fn string<'p>(&mut self, prop: &'p ObjectProp<'_>, field: &str) -> Option<Positioned<&'p str>> {
        match &prop.value {
            Value::StringLit(text) => Some(Positioned { value: &*text.value, span: self.span(text) }),
            other => {
                self.wrong_type(other, Some(field), "a string");
                None
            }
        }
    }

    /// Integer value of field `name`, if present and in range.
    fn integer(
        &mut self,
        object: &Object<'_>,
        name: &str,
        field: &str,
        allowed: std::ops::RangeInclusive<i64>,
    ) -> Option<Positioned<i64>> {
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
            Ok(value) if allowed.contains(&value) => Some(Positioned { value, span }),
            parsed => {
                let message =
                    if parsed.is_ok() || is_integer(number.value) { "is out of range" } else { "is not an integer" };
                self.report(self.error(span, field, message).expected(expected).got(number.value));
                None
            }
        }
    }

    fn unknown_word<T>(&mut self, field: &str, text: &Positioned<&str>, known: &[&str]) -> Option<T> {
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
        let mut wrong = BuildDiagnostic::error(self.locate(value), "wrong type").expected(expected).got(got);
        wrong.field = field.map(str::to_owned);
        self.report(wrong);
    }

    fn syntax(&mut self, error: &jsonc_parser::errors::ParseError) {
        let kind = error.kind().to_string();
        let mut message: String = kind.chars().take(1).flat_map(char::to_lowercase).collect();
        message.extend(kind.chars().skip(1));
        self.report(BuildDiagnostic::error(self.source.locate(self.base + error.range().start), message));
    }

    fn error(&self, span: TextRange, field: &str, message: impl Into<String>) -> BuildDiagnostic {
        BuildDiagnostic::error(self.source.locate(span.start), message).field(field)
    }

    fn report(&mut self, problem: BuildDiagnostic) {
        self.problems.push(problem);
    }

    fn span(&self, node: &impl Ranged) -> TextRange {
        let range = node.range();
        TextRange { start: self.base + range.start, end: self.base + range.end }
    }

    fn locate(&self, node: &impl Ranged) -> crate::diagnostic::Location {
        self.source.locate(self.span(node).start)
    }
}

impl<T> Positioned<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> Positioned<U> {
        Positioned { value: f(self.value), span: self.span }
    }
}

/// Value of a field, or its default with the position of the object that lacks it.
fn given<T>(value: Option<Positioned<T>>, otherwise: T, span: TextRange) -> Positioned<T> {
    value.unwrap_or(Positioned { value: otherwise, span })
}
