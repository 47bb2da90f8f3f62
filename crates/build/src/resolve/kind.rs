//! Meaning of a filter's primitives (NetRPC Table 1), with a diagnostic for each primitive that conflicts with the
//! others.
//!
//! | addTo | threshold | clear | get | meaning |
//! |---|---|---|---|---|
//! | field | ≥ 1 | copy, shadow, lazy | field | [`Kind::Sum`] |
//! | field | 0 | nop | field or nop | [`Kind::Add`] |
//! | nop | 0 | nop | field | [`Kind::Query`] |
//! | nop | ≥ 1 | nop | field or nop | [`Kind::Count`] |
//! | nop | 0 | copy | nop | [`Kind::Clear`] |
//! | nop | 0 | nop | nop | with `modify`: [`Kind::Modify`] |
//!
//! [Filters](../../../../docs/filters.md) has all combinations.

use pathcall_proto::manifest::{Ack, ForwardTarget, Kind, MapPath, Modify, ReadMode, Shape};

use super::field::{self, Side};
use super::{ResolvedField, ResolvedMethod};
use crate::diagnostic::{BuildDiagnostic, SourceText, TextRange};
use crate::filter::{ClearOption, CountedKey, NetFilter};
use crate::load::FilterMethod;

pub(super) fn method(
    source: &SourceText,
    filter: &NetFilter,
    named: &FilterMethod,
    problems: &mut Vec<BuildDiagnostic>,
) -> Option<ResolvedMethod> {
    let before = problems.len();
    let mut check = FilterCheck { source, filter, named, problems };
    let get = check.find("get", filter.get.span, filter.get.value.as_ref(), Side::Reply);
    let add_to = check.find("addTo", filter.add_to.span, filter.add_to.value.as_ref(), Side::Request);
    let key_field = match &filter.cnt_fwd.key.value {
        CountedKey::Field(name) => Some(name),
        CountedKey::Null | CountedKey::ClientId => None,
    };
    let key = check.find("CntFwd.key", filter.cnt_fwd.key.span, key_field, Side::Request);
    if check.problems.len() > before {
        return None;
    }

    let threshold = filter.cnt_fwd.threshold.value;
    let clears = filter.clear.value != ClearOption::Nop;
    let kind = match (&add_to, threshold) {
        (Some(field), 1..) => check.sum(field, get.as_ref(), threshold),
        (Some(field), 0) => check.add(field, get.as_ref()),
        (None, 1..) => check.count(key.as_ref(), get.as_ref(), threshold),
        (None, 0) if clears => check.clear(get.is_some()),
        (None, 0) if get.is_some() => check.query(),
        (None, 0) if filter.modify.value != Modify::NOP => check.modify(),
        (None, 0) => {
            check.problem(
                "",
                filter.span,
                "this filter does nothing",
                "name a field in addTo or get, set clear to \"copy\", set modify, or give CntFwd a threshold",
            );
            return None;
        }
    };
    let request = match kind {
        Kind::Sum { .. } | Kind::Add { .. } => add_to,
        Kind::Count { .. } => key,
        Kind::Query | Kind::Clear | Kind::Modify => key.or_else(|| check.only_typed()),
    };
    if check.problems.len() == before {
        check.modified(kind, request.as_ref());
    }
    if kind == Kind::Query {
        check.query_keys(request.as_ref(), get.as_ref());
    }
    check.precision(&[&request, &get]);
    check.ack(kind);
    check.path(kind);
    check.read(kind);
    check.lanes(kind, request.as_ref());
    check.streams(kind);
    if problems[before..].iter().any(|problem| problem.severity == crate::diagnostic::Severity::Error) {
        return None;
    }
    Some(ResolvedMethod::new(source, filter, named, kind, (request, get)))
}

pub(super) struct FilterCheck<'a> {
    source: &'a SourceText,
    pub(super) filter: &'a NetFilter,
    pub(super) named: &'a FilterMethod,
    problems: &'a mut Vec<BuildDiagnostic>,
}

impl FilterCheck<'_> {
    fn find(&mut self, option: &str, span: TextRange, name: Option<&String>, side: Side) -> Option<ResolvedField> {
        let name = crate::diagnostic::Positioned { value: name?.clone(), span };
        field::resolve(option, &name, side, self.named, self.source)
            .map_err(|problem| self.problems.push(*problem))
            .ok()
    }

    /// AsyncAgtr and KeyValue (NetRPC Fig. 17 and 23): adds values as they arrive.
    fn add(&mut self, added: &ResolvedField, get: Option<&ResolvedField>) -> Kind {
        let filter = self.filter;
        self.check_no_key();
        self.check_single_recipient("an addition");
        if let Some(got) = get {
            self.check_same_type(added, got);
        }
        if filter.clear.value != ClearOption::Nop {
            self.problem(
                "clear",
                filter.clear.span,
                "one call cannot both add and clear",
                "use \"nop\", and clear in a separate method (addTo and get \"nop\")",
            );
        }
        Kind::Add { get: get.is_some(), to: filter.cnt_fwd.to.value }
    }

    /// Clears keys, for example to release a lock (NetRPC Fig. 20).
    fn clear(&mut self, gets: bool) -> Kind {
        if gets {
            self.problem(
                "get",
                self.filter.get.span,
                "one call cannot both read and clear",
                "use \"nop\", and read in a separate method (clear \"nop\")",
            );
        }
        if matches!(self.filter.clear.value, ClearOption::Shadow | ClearOption::Lazy) {
            self.problem(
                "clear",
                self.filter.clear.span,
                "the policies \"shadow\" and \"lazy\" are for sums only",
                "use \"copy\", which saves the values at the server first",
            );
        }
        self.check_no_client_id();
        self.check_single_recipient("a clear");
        Kind::Clear
    }

    /// Query (NetRPC Fig. 17 and 23).
    fn query(&mut self) -> Kind {
        self.check_no_client_id();
        self.check_single_recipient("a query");
        Kind::Query
    }

    /// Checks that the query's keys have the type of the reply's.
    pub(super) fn query_keys(&mut self, request: Option<&ResolvedField>, reply: Option<&ResolvedField>) {
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

    /// Typed field of the request when the filter does not name one: the only one, if any.
    fn only_typed(&mut self) -> Option<ResolvedField> {
        let input = self.named.method.input();
        let mut direct_typed = field::direct_typed(&input);
        if direct_typed.len() > 1 {
            let names: Vec<_> = direct_typed.iter().map(|field| field.name.as_str()).collect();
            let text = format!("`{}` has {} typed fields", input.name(), direct_typed.len());
            let at = self.source.locate(self.filter.cnt_fwd.key.span.start);
            self.problems.push(
                BuildDiagnostic::error(at, text)
                    .field("CntFwd.key")
                    .expected(crate::diagnostic::one_of(names))
                    .hint("name the field that has the keys in CntFwd.key"),
            );
        }
        // A call without keys means all keys, so a field that could hold the keys must be named.
        let nested_typed = if direct_typed.is_empty() { field::nested_typed(&input) } else { Vec::new() };
        if !nested_typed.is_empty() {
            let at = self.source.locate(self.filter.cnt_fwd.key.span.start);
            let text =
                format!("`{}` has no typed field outside of nested messages, oneofs and repeated fields", input.name());
            self.problems.push(
                BuildDiagnostic::error(at, text)
                    .field("CntFwd.key")
                    .expected(crate::diagnostic::one_of(nested_typed.iter().map(String::as_str)))
                    .hint("name the field that has the keys in CntFwd.key"),
            );
        }
        (direct_typed.len() == 1).then(|| direct_typed.remove(0))
    }

    /// Checks that added and read fields have the same type: both arrays, both numbers, or both maps with the same
    /// keys; both integers or both floating-point.
    pub(super) fn check_same_type(&mut self, added: &ResolvedField, got: &ResolvedField) {
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

    fn check_no_key(&mut self) {
        if let CountedKey::Field(name) = &self.filter.cnt_fwd.key.value {
            let text = format!("counting `{name}` needs a threshold");
            self.problem("CntFwd.key", self.filter.cnt_fwd.key.span, text, "use \"NULL\"");
        }
        self.check_no_client_id();
    }

    pub(super) fn check_no_client_id(&mut self) {
        if self.filter.cnt_fwd.key.value == CountedKey::ClientId {
            self.problem(
                "CntFwd.key",
                self.filter.cnt_fwd.key.span,
                "counting callers needs a threshold",
                "use \"NULL\"",
            );
        }
    }

    pub(super) fn check_single_recipient(&mut self, kind: &str) {
        if self.filter.cnt_fwd.to.value == ForwardTarget::All {
            self.problem(
                "CntFwd.to",
                self.filter.cnt_fwd.to.span,
                format!("{kind} without a threshold is answered to its caller only"),
                "use \"SRC\", or \"SERVER\" to have the handler called",
            );
        }
    }

    fn precision(&mut self, fields: &[&Option<ResolvedField>]) {
        let precision = &self.filter.precision;
        if precision.value > 0 && !fields.iter().any(|field| field.as_ref().is_some_and(|field| field.shape.is_float()))
        {
            let at = self.source.locate(precision.span.start);
            let text = format!("has no effect: all values of `{}` are integers", self.named.method.name());
            self.problems.push(BuildDiagnostic::warning(at, text).field("Precision").hint("use 0"));
        }
    }

    /// Checks `ack`: only keyed additions and decisions of ballots can be acknowledged by the element alone.
    fn ack(&mut self, kind: Kind) {
        let ack = &self.filter.ack;
        if ack.value == Ack::Element {
            return;
        }
        let is_not_acked = match kind {
            Kind::Add { get: false, .. } => return,
            Kind::Add { get: true, .. } => {
                let at = self.source.locate(ack.span.start);
                let text = "has no effect on a call that gets values: the server answers it";
                self.problems.push(BuildDiagnostic::warning(at, text).field("ack").hint("remove it"));
                return;
            }
            Kind::Count { threshold: 2.., to: ForwardTarget::Server } => "the server decides votes for the server",
            Kind::Count { threshold: 2.., .. } => return,
            Kind::Sum { .. } => "a sum is answered by the server",
            Kind::Query => "a query adds nothing",
            Kind::Modify => "a modification adds nothing",
            Kind::Count { .. } => "a count to 1 is a lock",
            Kind::Clear => "a clear adds nothing",
        };
        let text = format!("applies to keyed additions and votes, but {is_not_acked}");
        self.problem("ack", ack.span, text, "remove it");
    }

    /// Checks `read`: only a query may have another answer than the server's.
    fn read(&mut self, kind: Kind) {
        let read = &self.filter.read;
        let is_not_a_query = match kind {
            _ if read.value == ReadMode::Linearizable => return,
            Kind::Query => return,
            Kind::Add { .. } => "an addition is answered by the server if it gets values",
            Kind::Sum { .. } => "a sum is the same for all callers",
            Kind::Count { .. } | Kind::Clear | Kind::Modify => "this method reads nothing",
        };
        self.problem("read", read.span, format!("applies to queries, but {is_not_a_query}"), "remove it");
    }

    /// Checks `path`: only keyed additions and queries have a meaning as one gRPC call.
    fn path(&mut self, kind: Kind) {
        let path = &self.filter.path;
        let needs_frames = match kind {
            _ if path.value != MapPath::Direct => return,
            Kind::Add { .. } | Kind::Query => return,
            Kind::Sum { .. } => "a sum waits for other callers",
            Kind::Count { .. } => "a count may wait for other callers",
            Kind::Clear => "a clear releases what frames took",
            Kind::Modify => "a modification has only one path",
        };
        let text = format!("`direct` applies to keyed additions and queries, but {needs_frames}");
        self.problem("path", path.span, text, "use `automatic`");
    }

    pub(super) fn problem(&mut self, option: &str, span: TextRange, text: impl Into<String>, hint: &str) {
        let mut problem = BuildDiagnostic::error(self.source.locate(span.start), text).hint(hint);
        problem.field = (!option.is_empty()).then(|| option.to_owned());
        self.problems.push(problem);
    }
}

fn different(what: &str, word: fn(Shape) -> &'static str, request: &ResolvedField, reply: &ResolvedField) -> String {
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

#[cfg(test)]
mod combinations;
