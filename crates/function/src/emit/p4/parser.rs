//! The parser and the deparser.

use super::expr::constant;
use super::{Text, Unsayable, names};
use crate::ir::{StateId, Transition, Ty, Value};

impl Text<'_> {
    pub(super) fn parser(&mut self) -> Result<(), Unsayable> {
        let head = "parser MyParser(packet_in packet, out headers hdr, inout metadata meta, \
                    inout standard_metadata_t standard_metadata)";
        self.braced(head, |this| {
            let mut refusals = Vec::new();
            for (i, state) in this.program.parser.states.iter().enumerate() {
                let name = this.names.states[i].clone();
                this.braced(&format!("state {name}"), |this| {
                    this.flags = vec![None];
                    this.block(&state.body)?;
                    this.transition(&state.next, &mut refusals);
                    Ok(())
                })?;
            }
            // What ends with an error of its own.
            for (error, name) in refusals {
                this.braced(&format!("state {name}"), |this| {
                    this.line(&format!("verify(false, error.{});", names::error(error)));
                    this.line("transition reject;");
                });
            }
            Ok(())
        })?;
        self.line("");
        Ok(())
    }

    fn transition(&mut self, next: &Transition, refusals: &mut Vec<(u16, String)>) {
        let Transition::Select { keys, cases } = next else {
            let to = self.target(next, refusals);
            self.line(&format!("transition {to};"));
            return;
        };
        let on: Vec<String> = keys.iter().map(|key| self.expr(key)).collect();
        let types: Vec<Ty> = keys.iter().map(|key| key.ty).collect();
        self.braced(&format!("transition select({})", on.join(", ")), |this| {
            for (values, to) in cases {
                let set: Vec<String> = values.iter().zip(&types).map(|(value, ty)| keyset(*value, *ty)).collect();
                let set = match &set[..] {
                    [one] => one.clone(),
                    all => format!("({})", all.join(", ")),
                };
                let to = this.target(to, refusals);
                this.line(&format!("{set}: {to};"));
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
            // A choice within a choice: the front end makes none.
            Transition::Select { .. } => "reject".to_owned(),
        }
    }

    pub(super) fn deparser(&mut self) {
        self.braced("control MyDeparser(packet_out packet, in headers hdr)", |this| {
            this.braced("apply", |this| {
                for header in &this.program.deparser {
                    let line = format!("packet.emit({});", this.names.headers[header.0 as usize]);
                    this.line(&line);
                }
            });
        });
        self.line("");
    }
}

fn keyset(value: Value, ty: Ty) -> String {
    let all = if ty.width() >= 128 { u128::MAX } else { (1 << ty.width()) - 1 };
    match value {
        Value::Any => "_".to_owned(),
        Value::Mask(value, mask) if mask & all == all => constant(ty, value),
        Value::Mask(value, mask) => format!("{} &&& {}", constant(ty, value), constant(ty, mask & all)),
        Value::Range(low, high) => format!("{} .. {}", constant(ty, low), constant(ty, high)),
    }
}
