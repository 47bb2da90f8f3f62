//! Headers in C: offsets and fields.
//!
//! A header that only the parser can make valid stays in the packet. Its fields are read and written in place, each
//! after a check against the packet's end. The same check tests the validity, because an invalid header has an offset
//! beyond any end; the C compiler removes repeated checks. Fields of a header that the program may add are held in
//! variables and written at the end.

use super::Emitter;
use super::bits::{computed, load, store};
use super::plan::Plan;
use crate::ir::{HeaderId, SlotId};

impl Plan<'_> {
    /// Validity of a header.
    pub(super) fn valid(&self, header: HeaderId) -> String {
        format!("({} != NOWHERE)", self.header_offset(header))
    }

    /// Value of a slot; 0 for a field of an invalid header.
    pub(super) fn read(&self, slot: SlotId) -> String {
        let width = self.program.width(slot);
        let kind = computed(width);
        let Some(header) = self.header_of(slot) else { return format!("({kind}){}", self.slot(slot)) };
        let plan = &self.headers[header.0 as usize];
        if plan.settable {
            return format!("({} ? ({kind}){} : 0)", self.valid(header), self.slot(slot));
        }
        let value = load("f", self.firsts[slot.0 as usize], width);
        let (off, bytes) = (self.header_offset(header), plan.bytes);
        format!("({{ void *f = PLACE({off}); f + {bytes} > end ? 0 : ({kind}){value}; }})")
    }

    /// Length of a header's `varbit` field, bytes.
    pub(super) fn varbit_bytes(&self, header: HeaderId) -> String {
        self.header_variable(&format!("var_{}", self.headers[header.0 as usize].name))
    }

    /// Bit of a header in `dirty`, which is set if the fields differ from the packet. With more than 64 headers, some
    /// share a bit.
    pub(super) fn dirty_bit(header: HeaderId) -> String {
        format!("{:#x}ULL", 1_u64 << (header.0 % 64))
    }

    /// True if no two headers share a bit of `dirty`; only then may a single header's bit be cleared.
    pub(super) fn has_unique_dirty_bits(&self) -> bool {
        self.headers.len() <= 64
    }
}

impl Emitter<'_> {
    /// Emits a write of a slot; a field is written only if its header is valid.
    pub(super) fn emit_assign(&mut self, to: SlotId, value: &str) {
        let Some(header) = self.plan.header_of(to) else {
            let line = format!("{} = {value};", self.plan.slot(to));
            self.write_line(&line);
            return;
        };
        let plan = &self.plan.headers[header.0 as usize];
        let (settable, bytes) = (plan.settable, plan.bytes);
        if settable {
            let [slot, dirty] = [self.plan.slot(to), self.plan.packet_variable("dirty")];
            let head = format!("if {}", self.plan.valid(header));
            self.write_braced(&head, |this| {
                this.write_line(&format!("{slot} = {value};"));
                this.write_line(&format!("{dirty} |= {};", Plan::dirty_bit(header)));
            });
            return;
        }
        let (off, first, width) =
            (self.plan.header_offset(header), self.plan.firsts[to.0 as usize], self.plan.program.width(to));
        self.write_braced("", |this| {
            this.write_line(&format!("{} field = {value};", computed(width)));
            this.write_line(&format!("void *f = PLACE({off});"));
            this.write_line("");
            this.write_braced(&format!("if (f + {bytes} <= end)"), |this| {
                this.write_lines(&store("f", first, width, "field"))
            });
        });
    }

    pub(super) fn emit_set_valid(&mut self, header: HeaderId) {
        let off = self.plan.header_offset(header);
        let fields = self.zero_statements(header);
        let ordered = self.plan.ordered;
        self.write_braced(&format!("if ({off} == NOWHERE)"), |this| {
            this.write_line(&format!("{off} = FRESH;"));
            if this.has_varbit(header) {
                let line = format!("{} = 0;", this.plan.varbit_bytes(header));
                this.write_line(&line);
            }
            this.write_lines(&fields);
            if ordered {
                let line = format!("{} = 1;", this.plan.packet_variable("moved"));
                this.write_line(&line);
            }
        });
    }

    pub(super) fn emit_set_invalid(&mut self, header: HeaderId) {
        if self.parsing && self.plan.idle.contains(&(self.state, header)) {
            return;
        }
        let off = self.plan.header_offset(header);
        if self.plan.ordered {
            let moved = self.plan.packet_variable("moved");
            self.write_line(&format!("{moved} |= {off} != NOWHERE;"));
        }
        self.write_line(&format!("{off} = NOWHERE;"));
    }

    /// Statements that zero the fields of a new header.
    fn zero_statements(&self, header: HeaderId) -> Vec<String> {
        let apart = &self.plan.headers[header.0 as usize].apart;
        apart.iter().map(|(slot, _)| format!("{} = 0;", self.plan.slot(*slot))).collect()
    }

    pub(super) fn has_varbit(&self, header: HeaderId) -> bool {
        self.plan.program.headers[header.0 as usize].varbit_bits_max.is_some()
    }
}
