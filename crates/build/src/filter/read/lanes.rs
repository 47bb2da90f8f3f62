//! Parser of `lanes` and `topk`.

use jsonc_parser::ast::{ObjectProp, Value};
use pathcall_proto::manifest::LaneFormat;

use super::Reader;
use crate::diagnostic::Positioned;

impl Reader<'_> {
    /// Extension of the paper, where each value has a lane.
    pub(super) fn lanes(&mut self, prop: &ObjectProp<'_>) -> Option<Positioned<LaneFormat>> {
        let text = self.string(prop, "lanes")?;
        match LaneFormat::ALL.into_iter().find(|lanes| lanes.name() == text.value) {
            Some(lanes) => Some(text.map(|_| lanes)),
            None => self.unknown_word("lanes", &text, &LaneFormat::ALL.map(LaneFormat::name)),
        }
    }

    /// Reads a share, in millionths.
    pub(super) fn share(&mut self, prop: &ObjectProp<'_>, field: &str) -> Option<Positioned<u32>> {
        let expected = "a number above 0 and below 1";
        let Value::NumberLit(number) = &prop.value else {
            self.wrong_type(&prop.value, Some(field), expected);
            return None;
        };
        let span = self.span(number);
        match number.value.parse::<f64>() {
            Ok(share) if share > 0.0 && share < 1.0 => {
                Some(Positioned { value: ((share * 1e6).round() as u32).clamp(1, 999_999), span })
            }
            _ => {
                self.report(self.error(span, field, "is out of range").expected(expected).got(number.value));
                None
            }
        }
    }
}
