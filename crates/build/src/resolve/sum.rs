//! Checks of sums (SyncAgtr), with the results from the network or from the server's handler.

use pathcall_proto::manifest::{ClearPolicy, ForwardTarget, Kind, LaneFormat};

use super::ResolvedField;
use super::field;
use super::kind::FilterCheck;
use crate::filter::{ClearOption, CountedKey};

impl FilterCheck<'_> {
    /// SyncAgtr (NetRPC Fig. 3): adds the arrays of all callers and returns the sum to each.
    pub(super) fn sum(&mut self, added: &ResolvedField, get: Option<&ResolvedField>, threshold: u32) -> Kind {
        let filter = self.filter;
        let cnt_fwd = &filter.cnt_fwd;
        if added.shape.is_map() {
            let text = format!(
                "`{}` is {}; a sum over {threshold} callers needs an array or a number",
                added.name,
                field::with_article(added.shape.proto_name())
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
            Some(got) if !added.shape.is_map() => self.check_same_type(added, got),
            Some(_) => {}
        }
        let clear = match filter.clear.value {
            ClearOption::Shadow => ClearPolicy::Shadow,
            ClearOption::Lazy => ClearPolicy::Lazy,
            ClearOption::Copy => ClearPolicy::Copy,
            ClearOption::Nop => {
                self.problem(
                    "clear",
                    filter.clear.span,
                    format!("a sum over {threshold} callers must be cleared for the next one"),
                    "use \"copy\", \"shadow\" or \"lazy\"",
                );
                ClearPolicy::Copy
            }
        };
        match cnt_fwd.to.value {
            ForwardTarget::All => {}
            ForwardTarget::Src => {
                let text = format!("all {threshold} callers wait for the sum");
                let hint = "use \"ALL\", or \"SERVER\" to have the handler called with the sum";
                self.problem("CntFwd.to", cnt_fwd.to.span, text, hint);
            }
            ForwardTarget::Server => self.for_handler(),
        }
        if cnt_fwd.key.value != CountedKey::ClientId {
            self.problem(
                "CntFwd.key",
                cnt_fwd.key.span,
                format!("a sum over {threshold} callers must count callers"),
                "use \"ClientID\"",
            );
        }
        Kind::Sum { threshold, clear }
    }

    /// Parameter server (NetRPC Table 2): checks that sums go through the server, value by value.
    fn for_handler(&mut self) {
        let filter = self.filter;
        if matches!(filter.clear.value, ClearOption::Shadow | ClearOption::Lazy) {
            let text =
                "the element answers the callers itself, but with CntFwd.to \"SERVER\" the handler decides the answer";
            self.problem("clear", filter.clear.span, text, "use \"copy\"");
        }
        if filter.lanes.value != LaneFormat::Int32 {
            let text =
                "only the callers know the shared scales, but with CntFwd.to \"SERVER\" the handler gets the sum";
            self.problem("lanes", filter.lanes.span, text, "remove it, and set Precision");
        }
    }
}
