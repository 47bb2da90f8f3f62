//! Checks of streams: each message of a stream is one call of the filter.

use pathcall_proto::manifest::{ForwardTarget, Kind};

use super::kind::FilterCheck;

impl FilterCheck<'_> {
    /// Refuses calls that need what a message of a stream does not have.
    pub(super) fn streams(&mut self, kind: Kind) {
        if !self.named.method.is_client_streaming() {
            return;
        }
        let to = &self.filter.cnt_fwd.to;
        match kind {
            Kind::Sum { .. } if to.value == ForwardTarget::Server => {
                let text = "each sum is one call of the handler for all callers, but a stream is of one caller";
                self.problem("CntFwd.to", to.span, text, "use \"ALL\", or a unary method");
            }
            Kind::Count { threshold: 1, .. } => {
                let text =
                    "lease and token of a lock are metadata of its reply, which messages of a stream do not have";
                self.problem("CntFwd.threshold", self.filter.cnt_fwd.threshold.span, text, "use a unary method");
            }
            _ => {}
        }
    }
}
