//! Checks of counts (Agreement), and of `modify` in methods that add nothing.

use pathcall_proto::manifest::{ForwardTarget, Kind, Modify};

use super::ResolvedField;
use super::field;
use super::kind::FilterCheck;
use crate::filter::ClearOption;

impl FilterCheck<'_> {
    /// Agreement (NetRPC Fig. 20): counts one vote for each key. With `get`, the reply has the counters of the keys for
    /// which the call is forwarded.
    pub(super) fn count(&mut self, key: Option<&ResolvedField>, get: Option<&ResolvedField>, threshold: u32) -> Kind {
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
                let text = format!(
                    "`{}` is {}; its keys cannot be counted",
                    key.name,
                    field::with_article(key.shape.proto_name())
                );
                self.problem("CntFwd.key", span, text, "name a map or an array of the request");
            }
            Some(key) => self.counters(key, get),
        }
        if filter.clear.value != ClearOption::Nop {
            self.problem(
                "clear",
                filter.clear.span,
                "one call cannot both count and clear",
                "use \"nop\", and clear in a separate method (threshold 0)",
            );
        }
        Kind::Count { threshold, to: filter.cnt_fwd.to.value }
    }

    /// Checks the field of the reply that gets the counters.
    fn counters(&mut self, key: &ResolvedField, get: Option<&ResolvedField>) {
        let Some(got) = get else { return };
        if got.shape.is_float() {
            let text = format!("counters are integers, `{}` has floating-point numbers", got.name);
            self.problem("get", self.filter.get.span, text, "use a map or an array of integers");
        } else if got.shape.is_scalar() {
            let text = format!("`{}` has one number, but each key has a counter", got.name);
            self.problem("get", self.filter.get.span, text, "use a map or an array");
        } else {
            self.query_keys(Some(key), get);
        }
    }

    /// `Stream.modify` alone: the values change on their way to the handler.
    pub(super) fn modify(&mut self) -> Kind {
        self.check_no_client_id();
        Kind::Modify
    }

    /// Checks `modify` in a method that adds nothing: only the handler gets the values.
    pub(super) fn modified(&mut self, kind: Kind, request: Option<&ResolvedField>) {
        let modify = &self.filter.modify;
        let what = match kind {
            _ if modify.value == Modify::NOP => return,
            Kind::Sum { .. } | Kind::Add { .. } => return,
            Kind::Query => "a query",
            Kind::Count { .. } => "a count",
            Kind::Clear => "a clear",
            Kind::Modify => "a filter without addTo",
        };
        if self.filter.cnt_fwd.to.value != ForwardTarget::Server {
            let text = format!("nobody gets the modified values: {what} adds nothing");
            self.problem("modify", modify.span, text, "set CntFwd.to to \"SERVER\" for the handler to get them");
        } else if request.is_none() {
            let text = format!("{what} has no values: the request has no typed field");
            self.problem("modify", modify.span, text, "add a typed field to the request");
        }
    }
}
