//! Checks of `lanes` and `topk`: gradients in small values, with shared scales.

use pathcall_proto::manifest::{Kind, LaneFormat, Modify};

use super::ResolvedField;
use super::kind::FilterCheck;

impl FilterCheck<'_> {
    /// Checks that `lanes` and `topk` are for sums of floating-point arrays, without keys that need single values.
    pub(super) fn lanes(&mut self, kind: Kind, request: Option<&ResolvedField>) {
        let filter = self.filter;
        let (lanes, topk) = (&filter.lanes, &filter.topk);
        if lanes.value == LaneFormat::Int32 {
            if topk.value > 0 {
                let text = "needs values with shared scales, of which the channel keeps the rest";
                self.problem("topk", topk.span, text, "set lanes to \"int16\" or \"int8\"");
            }
            return;
        }
        let Kind::Sum { threshold, .. } = kind else {
            let text = "applies to sums, but this method has no threshold for addTo";
            return self.problem("lanes", lanes.span, text, "remove it");
        };
        if let Some(field) = request.filter(|field| !(field.shape.is_array() && field.shape.is_float())) {
            let text = format!(
                "applies to arrays of floating-point numbers, but `{}` is {}",
                field.name,
                super::field::with_article(field.shape.proto_name())
            );
            self.problem("lanes", lanes.span, text, "use FPArray or FPArray32");
        }
        if threshold > lanes.value.workers_max() {
            let (name, most) = (lanes.value.name(), lanes.value.workers_max());
            let text = format!("a sum of {threshold} callers does not fit {name}, which has room for {most}");
            self.problem("lanes", lanes.span, text, "use a larger size");
        }
        if filter.precision.value > 0 {
            let text = "has no meaning with lanes: values have shared scales";
            self.problem("Precision", filter.precision.span, text, "remove it");
        }
        if filter.modify.value != Modify::NOP {
            let text = "applies to single values, but lanes have several";
            self.problem("modify", filter.modify.span, text, "use \"nop\"");
        }
    }
}
