//! Parser and deparser.

use super::expr::constant;
use super::{NotExpressibleInP4, P4Writer, names};
use crate::ir::{Keyset, StateId, Transition, Ty};

impl P4Writer<'_> {
    pub(super) fn write_parser(&mut self) -> Result<(), NotExpressibleInP4> {
        let head = "parser MyParser(packet_in packet, out headers hdr, inout metadata meta, \
                    inout standard_metadata_t standard_metadata)";
        self.write_braced(head, |this| {
            let mut refusals = Vec::new();
            for (i, state) in this.program.parser.states.iter().enumerate() {
                let name = this.names.states[i].clone();
                this.write_braced(&format!("state {name}"), |this| {
                    this.flags = vec![None];
                    this.write_block(&state.body)?;
                    this.write_transition(&state.next, &mut refusals);
                    Ok(())
                })?;
            }
            // States that end with a specific error.
            for (error, name) in refusals {
                this.write_braced(&format!("state {name}"), |this| {
                    this.write_line(&format!("verify(false, error.{});", names::error(error)));
                    this.write_line("transition reject;");
                });
            }
            Ok(())
        })?;
        self.write_line("");
        Ok(())
    }

    fn write_transition(&mut self, next: &Transition, refusals: &mut Vec<(u16, String)>) {
        let Transition::Select { keys, cases } = next else {
            let to = self.target(next, refusals);
            self.write_line(&format!("transition {to};"));
            return;
        };
        let on: Vec<String> = keys.iter().map(|key| self.expr(key)).collect();
        let types: Vec<Ty> = keys.iter().map(|key| key.ty).collect();
        self.write_braced(&format!("transition select({})", on.join(", ")), |this| {
            for (values, to) in cases {
                let set: Vec<String> = values.iter().zip(&types).map(|(value, ty)| keyset(*value, *ty)).collect();
                let set = match &set[..] {
                    [one] => one.clone(),
                    all => format!("({})", all.join(", ")),
                };
                let to = this.target(to, refusals);
                this.write_line(&format!("{set}: {to};"));
            }
        });
    }

    fn target(&mut self, next: &Transition, refusals: &mut Vec<(u16, String)>) -> String {
        match next {
            Transition::Accept => "accept".to_owned(),
            Transition::Reject(0) => "reject".to_owned(),
            Transition::Reject(error) => {
                if let Some((_, name)) = refusals.iter().find(|(known, _)| known == error) {
                    return name.clone();
                }
                let name = self.names.fresh(&format!("refuse_{}", names::error(*error)));
                refusals.push((*error, name.clone()));
                name
            }
            Transition::To(StateId(state)) => self.names.states[*state as usize].clone(),
            // The front end makes no nested `select`.
            Transition::Select { .. } => "reject".to_owned(),
        }
    }

    pub(super) fn write_deparser(&mut self) {
        self.write_braced("control MyDeparser(packet_out packet, in headers hdr)", |this| {
            this.write_braced("apply", |this| {
                for header in &this.program.deparser {
                    let line = format!("packet.emit({});", this.names.headers[header.0 as usize]);
                    this.write_line(&line);
                }
            });
        });
        self.write_line("");
    }
}

fn keyset(value: Keyset, ty: Ty) -> String {
    let all = if ty.width() >= 128 { u128::MAX } else { (1 << ty.width()) - 1 };
    match value {
        Keyset::Any => "_".to_owned(),
        Keyset::Mask(value, mask) if mask & all == all => constant(ty, value),
        Keyset::Mask(value, mask) => format!("{} &&& {}", constant(ty, value), constant(ty, mask & all)),
        Keyset::Range(low, high) => format!("{} .. {}", constant(ty, low), constant(ty, high)),
    }
}
