//! The primitives of a filter to one meaning (NetRPC Table 1), or a complaint for each that does
//! not go with the others.
//!
//! | addTo | threshold | clear | get | meaning |
//! |---|---|---|---|---|
//! | field | ≥ 1 | copy, shadow | field | [`Kind::Sum`] |
//! | field | 0 | nop | field or nop | [`Kind::Add`] |
//! | nop | 0 | nop | field | [`Kind::Query`] |
//! | nop | ≥ 1 | nop | nop | [`Kind::Count`] |
//! | nop | 0 | copy | nop | [`Kind::Clear`] |

use pathcall_proto::manifest::{self, Ack, Kind, Modify, Shape, Target};

use super::field::{self, Side};
use super::{Field, Method, path};
use crate::diagnostic::{Diagnostic, Source, Span};
use crate::filter::{ClearPolicy, Key, NetFilter};
use crate::load::Named;

pub(super) fn method(
    source: &Source,
    filter: &NetFilter,
    named: &Named,
    problems: &mut Vec<Diagnostic>,
) -> Option<Method> {
    let before = problems.len();
    let mut check = Check { source, filter, named, problems };
    let get = check.find("get", filter.get.span, filter.get.value.as_ref(), Side::Reply);
    let add_to = check.find("addTo", filter.add_to.span, filter.add_to.value.as_ref(), Side::Request);
    let key_field = match &filter.cnt_fwd.key.value {
        Key::Field(name) => Some(name),
        Key::Null | Key::ClientId => None,
    };
    let key = check.find("CntFwd.key", filter.cnt_fwd.key.span, key_field, Side::Request);
    if check.problems.len() > before {
        return None;
    }

    let threshold = filter.cnt_fwd.threshold.value;
    let clears = filter.clear.value != ClearPolicy::Nop;
    let kind = match (&add_to, threshold) {
        (Some(field), 1..) => check.sum(field, get.as_ref(), threshold),
        (Some(field), 0) => check.add(field, get.as_ref()),
        (None, 1..) => check.count(key.as_ref(), get.is_some(), threshold),
        (None, 0) if clears => check.clear(get.is_some()),
        (None, 0) if get.is_some() => check.query(),
        (None, 0) => {
            check.problem(
                "",
                filter.span,
                "this filter does nothing",
                "name a field in addTo or get, set clear to \"copy\", or give CntFwd a threshold",
            );
            return None;
        }
    };
    let request = match kind {
        Kind::Sum { .. } | Kind::Add { .. } => add_to,
        Kind::Count { .. } => key,
        Kind::Query | Kind::Clear => key.or_else(|| check.only_typed()),
    };
    if kind == Kind::Query {
        check.query_keys(request.as_ref(), get.as_ref());
    }
    check.precision(&[&request, &get]);
    check.ack(kind);
    if problems[before..].iter().any(|problem| problem.severity == crate::diagnostic::Severity::Error) {
        return None;
    }
    Some(Method {
        path: path(named),
        package: named.method.parent_file().package_name().to_owned(),
        app: filter.app_name.value.clone(),
        digest: 0,
        precision: filter.precision.value,
        kind,
        modify: filter.modify.value,
        untyped_request: field::has_more_than(&named.method.input(), request.as_ref()),
        request,
        reply: get,
        to: filter.cnt_fwd.to.value,
        ack: filter.ack.value,
        at: source.locate(filter.span.start),
    })
}

struct Check<'a> {
    source: &'a Source,
    filter: &'a NetFilter,
    named: &'a Named,
    problems: &'a mut Vec<Diagnostic>,
}

impl Check<'_> {
    fn find(&mut self, option: &str, span: Span, name: Option<&String>, side: Side) -> Option<Field> {
        let name = crate::diagnostic::Spanned { value: name?.clone(), span };
        field::find(option, &name, side, self.named, self.source).map_err(|problem| self.problems.push(*problem)).ok()
    }

    /// SyncAgtr (NetRPC Fig. 3): all callers' arrays are added, everyone gets the sum.
    fn sum(&mut self, added: &Field, get: Option<&Field>, threshold: u32) -> Kind {
        let filter = self.filter;
        let cnt_fwd = &filter.cnt_fwd;
        if added.shape.is_map() {
            let text = format!(
                "`{}` is {}; a sum over {threshold} callers needs an array or a number",
                added.name,
                field::article(added.shape.proto_name())
            );
            self.problem(
                "addTo",
                filter.add_to.span,
                text,
                "set CntFwd.threshold to 0 to add a map's values under its keys",
            );
        }
        match get {
            None => self.problem(
                "get",
                filter.get.span,
                format!("a sum over {threshold} callers needs the field of the reply that gets it"),
                "name an array or a number of the reply",
            ),
            Some(got) if !added.shape.is_map() => self.same_kind(added, got),
            Some(_) => {}
        }
        let clear = match filter.clear.value {
            ClearPolicy::Shadow => manifest::ClearPolicy::Shadow,
            ClearPolicy::Copy => manifest::ClearPolicy::Copy,
            ClearPolicy::Nop => {
                self.problem(
                    "clear",
                    filter.clear.span,
                    format!("a sum over {threshold} callers must be cleared for the next one"),
                    "use \"copy\" or \"shadow\"",
                );
                manifest::ClearPolicy::Copy
            }
        };
        if cnt_fwd.to.value != Target::All {
            self.problem(
                "CntFwd.to",
                cnt_fwd.to.span,
                format!("all {threshold} callers wait for the sum"),
                "use \"ALL\"",
            );
        }
        if cnt_fwd.key.value != Key::ClientId {
            self.problem(
                "CntFwd.key",
                cnt_fwd.key.span,
                format!("a sum over {threshold} callers counts callers"),
                "use \"ClientID\"",
            );
        }
        Kind::Sum { threshold, clear }
    }

    /// AsyncAgtr and KeyValue (NetRPC Fig. 17 and 23): values are added as they come.
    fn add(&mut self, added: &Field, get: Option<&Field>) -> Kind {
        let filter = self.filter;
        self.nothing_counted();
        self.answers_one("an addition");
        if let Some(got) = get {
            self.same_kind(added, got);
        }
        if filter.clear.value != ClearPolicy::Nop {
            self.problem(
                "clear",
                filter.clear.span,
                "what is added by one call cannot be cleared by it",
                "use \"nop\", and clear in a method of its own (addTo and get \"nop\")",
            );
        }
        Kind::Add { get: get.is_some(), to: filter.cnt_fwd.to.value }
    }

    /// Agreement (NetRPC Fig. 20): one vote for each key.
    fn count(&mut self, key: Option<&Field>, gets: bool, threshold: u32) -> Kind {
        let filter = self.filter;
        let span = filter.cnt_fwd.key.span;
        match key {
            None => self.problem(
                "CntFwd.key",
                span,
                format!("a count to {threshold} without addTo needs the field whose keys are counted"),
                "name a map or an array of the request",
            ),
            Some(key) if key.shape.is_scalar() => {
                let text =
                    format!("`{}` is {}; its keys cannot be counted", key.name, field::article(key.shape.proto_name()));
                self.problem("CntFwd.key", span, text, "name a map or an array of the request");
            }
            Some(_) => {}
        }
        if gets {
            self.problem(
                "get",
                filter.get.span,
                "a count is answered without values",
                "use \"nop\", and read in a method of its own (threshold 0)",
            );
        }
        if filter.clear.value != ClearPolicy::Nop {
            self.problem(
                "clear",
                filter.clear.span,
                "what is counted by one call cannot be cleared by it",
                "use \"nop\", and clear in a method of its own (threshold 0)",
            );
        }
        self.nothing_modified("a count");
        Kind::Count { threshold, to: filter.cnt_fwd.to.value }
    }

    /// The release of a lock, say (NetRPC Fig. 20).
    fn clear(&mut self, gets: bool) -> Kind {
        if gets {
            self.problem(
                "get",
                self.filter.get.span,
                "what is read by one call cannot be cleared by it",
                "use \"nop\", and read in a method of its own (clear \"nop\")",
            );
        }
        if self.filter.clear.value == ClearPolicy::Shadow {
            self.problem(
                "clear",
                self.filter.clear.span,
                "only sums are cleared by the next one",
                "use \"copy\": what is cleared is the server's first",
            );
        }
        self.callers_not_counted();
        self.nothing_modified("a clear");
        self.answers_one("a clear");
        Kind::Clear
    }

    /// NetRPC Fig. 17 and 23, Query.
    fn query(&mut self) -> Kind {
        self.callers_not_counted();
        self.nothing_modified("a query");
        self.answers_one("a query");
        Kind::Query
    }

    /// A query's keys must be such as the reply has.
    fn query_keys(&mut self, request: Option<&Field>, reply: Option<&Field>) {
        if let (Some(request), Some(reply)) = (request, reply)
            && request.shape.has_string_keys() != reply.shape.has_string_keys()
        {
            self.problem(
                "get",
                self.filter.get.span,
                different("keys", keys, request, reply),
                "use the same kind of keys in request and reply",
            );
        }
    }

    /// The request's typed field when the filter does not name one: the only one, if any.
    fn only_typed(&mut self) -> Option<Field> {
        let input = self.named.method.input();
        let mut typed = field::typed(&input);
        if typed.len() > 1 {
            let names: Vec<_> = typed.iter().map(|field| field.name.as_str()).collect();
            let text = format!("`{}` has {} typed fields", input.name(), typed.len());
            let at = self.source.locate(self.filter.cnt_fwd.key.span.start);
            self.problems.push(
                Diagnostic::error(at, text)
                    .field("CntFwd.key")
                    .expected(crate::diagnostic::one_of(names))
                    .hint("name the field that has the keys in CntFwd.key"),
            );
        }
        // A call without keys is for all of them: where a field may have been meant for them it is to be named.
        let deeper = if typed.is_empty() { field::deeper(&input) } else { Vec::new() };
        if !deeper.is_empty() {
            let at = self.source.locate(self.filter.cnt_fwd.key.span.start);
            self.problems.push(
                Diagnostic::error(at, format!("no typed field of `{}` stands by itself in it", input.name()))
                    .field("CntFwd.key")
                    .expected(crate::diagnostic::one_of(deeper.iter().map(String::as_str)))
                    .hint("name the field that has the keys in CntFwd.key"),
            );
        }
        (typed.len() == 1).then(|| typed.remove(0))
    }

    /// What is added and what is read are of one kind: both arrays, both numbers, or both maps with
    /// the same keys; both integers or both floating-point.
    fn same_kind(&mut self, added: &Field, got: &Field) {
        let span = self.filter.get.span;
        if family(added.shape) != family(got.shape) {
            self.problem("get", span, different("types", family, added, got), "use the same type in request and reply");
        } else if added.shape.is_float() != got.shape.is_float() {
            self.problem(
                "get",
                span,
                different("values", values, added, got),
                "use the same kind of values in request and reply",
            );
        }
    }

    fn nothing_counted(&mut self) {
        if let Key::Field(name) = &self.filter.cnt_fwd.key.value {
            let text = format!("`{name}` is counted by a threshold, and there is none");
            self.problem("CntFwd.key", self.filter.cnt_fwd.key.span, text, "use \"NULL\"");
        }
        self.callers_not_counted();
    }

    fn callers_not_counted(&mut self) {
        if self.filter.cnt_fwd.key.value == Key::ClientId {
            self.problem(
                "CntFwd.key",
                self.filter.cnt_fwd.key.span,
                "callers are counted by a threshold, and there is none",
                "use \"NULL\"",
            );
        }
    }

    fn nothing_modified(&mut self, kind: &str) {
        if self.filter.modify.value != Modify::NOP {
            self.problem(
                "modify",
                self.filter.modify.span,
                format!("modifies what addTo adds, and {kind} adds nothing"),
                "use \"nop\"",
            );
        }
    }

    fn answers_one(&mut self, kind: &str) {
        if self.filter.cnt_fwd.to.value == Target::All {
            self.problem(
                "CntFwd.to",
                self.filter.cnt_fwd.to.span,
                format!("{kind} without a threshold is answered to its caller alone"),
                "use \"SRC\", or \"SERVER\" to have the handler called",
            );
        }
    }

    fn precision(&mut self, fields: &[&Option<Field>]) {
        let precision = &self.filter.precision;
        if precision.value > 0 && !fields.iter().any(|field| field.as_ref().is_some_and(|field| field.shape.is_float()))
        {
            let at = self.source.locate(precision.span.start);
            let text = format!("has no effect on integers, and `{}` has nothing else", self.named.method.name());
            self.problems.push(Diagnostic::warning(at, text).field("Precision").hint("use 0"));
        }
    }

    /// Only what is added under keys may be with the element alone when the call completes.
    fn ack(&mut self, kind: Kind) {
        let ack = &self.filter.ack;
        if ack.value == Ack::Element {
            return;
        }
        let adds_nothing = match kind {
            Kind::Add { get: false, .. } => return,
            Kind::Add { get: true, .. } => {
                let at = self.source.locate(ack.span.start);
                let text = "has no effect on a call that gets values: the server answers it";
                self.problems.push(Diagnostic::warning(at, text).field("ack").hint("remove it"));
                return;
            }
            Kind::Sum { .. } => "a sum is answered by the server",
            Kind::Query => "a query adds nothing",
            Kind::Count { .. } => "a count adds nothing",
            Kind::Clear => "a clear adds nothing",
        };
        let text = format!("is about what addTo adds under keys, and {adds_nothing}");
        self.problem("ack", ack.span, text, "remove it");
    }

    fn problem(&mut self, option: &str, span: Span, text: impl Into<String>, hint: &str) {
        let mut problem = Diagnostic::error(self.source.locate(span.start), text).hint(hint);
        problem.field = (!option.is_empty()).then(|| option.to_owned());
        self.problems.push(problem);
    }
}

fn different(what: &str, word: fn(Shape) -> &'static str, request: &Field, reply: &Field) -> String {
    format!("{what} differ: `{}` has {}, `{}` has {}", request.name, word(request.shape), reply.name, word(reply.shape))
}

fn family(shape: Shape) -> &'static str {
    if shape.is_array() {
        "an array"
    } else if shape.is_scalar() {
        "one number"
    } else if shape.has_string_keys() {
        "a map with string keys"
    } else {
        "a map with integer keys"
    }
}

fn keys(shape: Shape) -> &'static str {
    if shape.has_string_keys() { "strings" } else { "integers" }
}

fn values(shape: Shape) -> &'static str {
    if shape.is_float() { "floating-point numbers" } else { "integers" }
}
