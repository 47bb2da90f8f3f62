//! Headers in C: where each begins, and its fields.
//!
//! A header that only the packet can bring stays there: its fields are read and written in place, each behind a look at
//! the packet's end, which is also the look at whether it is valid: an invalid one begins behind every end. The compiler
//! keeps what it has looked at. Fields of a header that the program may add are held apart, and written at the end.

use super::Emitter;
use super::bits::{computed, load, store};
use super::plan::Plan;
use crate::ir::{HeaderId, SlotId};

impl Plan<'_> {
    /// Whether a header is valid.
    pub(super) fn valid(&self, header: HeaderId) -> String {
        format!("({} != NOWHERE)", self.off(header))
    }

    /// The value of a slot; of a field of a header that is not valid it is 0.
    pub(super) fn read(&self, slot: SlotId) -> String {
        let width = self.program.width(slot);
        let kind = computed(width);
        let Some(header) = self.header_of(slot) else { return format!("({kind}){}", self.slot(slot)) };
        let plan = &self.headers[header.0 as usize];
        if plan.settable {
            return format!("({} ? ({kind}){} : 0)", self.valid(header), self.slot(slot));
        }
        let value = load("f", self.firsts[slot.0 as usize], width);
        let (off, bytes) = (self.off(header), plan.bytes);
        format!("({{ void *f = PLACE({off}); f + {bytes} > end ? 0 : ({kind}){value}; }})")
    }

    /// The length of a header's `varbit` field, bytes.
    pub(super) fn var(&self, header: HeaderId) -> String {
        self.of_header(&format!("var_{}", self.headers[header.0 as usize].name))
    }

    /// The bit of `dirty` that a header has: its fields are not what is in the packet. Of more than 64 headers some have
    /// one bit.
    pub(super) fn dirt(header: HeaderId) -> String {
        format!("{:#x}ULL", 1_u64 << (header.0 % 64))
    }

    /// Whether no two headers have one bit of `dirty`: only then may it be cleared for one of them.
    pub(super) fn tells_dirt(&self) -> bool {
        self.headers.len() <= 64
    }
}

impl Emitter<'_> {
    /// Writes a slot; a field only if its header is valid.
    pub(super) fn assign(&mut self, to: SlotId, value: &str) {
        let Some(header) = self.plan.header_of(to) else {
            let line = format!("{} = {value};", self.plan.slot(to));
            self.line(&line);
            return;
        };
        let plan = &self.plan.headers[header.0 as usize];
        let (settable, bytes) = (plan.settable, plan.bytes);
        if settable {
            let [slot, dirty] = [self.plan.slot(to), self.plan.held("dirty")];
            let head = format!("if {}", self.plan.valid(header));
            self.braced(&head, |this| {
                this.line(&format!("{slot} = {value};"));
                this.line(&format!("{dirty} |= {};", Plan::dirt(header)));
            });
            return;
        }
        let (off, first, width) = (self.plan.off(header), self.plan.firsts[to.0 as usize], self.plan.program.width(to));
        self.braced("", |this| {
            this.line(&format!("{} field = {value};", computed(width)));
            this.line(&format!("void *f = PLACE({off});"));
            this.line("");
            this.braced(&format!("if (f + {bytes} <= end)"), |this| this.all(&store("f", first, width, "field")));
        });
    }

    pub(super) fn set_valid(&mut self, header: HeaderId) {
        let off = self.plan.off(header);
        let fields = self.zeroed(header);
        let ordered = self.plan.ordered;
        self.braced(&format!("if ({off} == NOWHERE)"), |this| {
            this.line(&format!("{off} = FRESH;"));
            if this.has_varbit(header) {
                let line = format!("{} = 0;", this.plan.var(header));
                this.line(&line);
            }
            this.all(&fields);
            if ordered {
                let line = format!("{} = 1;", this.plan.held("moved"));
                this.line(&line);
            }
        });
    }

    pub(super) fn set_invalid(&mut self, header: HeaderId) {
        if self.parsing && self.plan.idle.contains(&(self.state, header)) {
            return;
        }
        let off = self.plan.off(header);
        if self.plan.ordered {
            let moved = self.plan.held("moved");
            self.line(&format!("{moved} |= {off} != NOWHERE;"));
        }
        self.line(&format!("{off} = NOWHERE;"));
    }

    /// A header that was not there has zeros.
    fn zeroed(&self, header: HeaderId) -> Vec<String> {
        let apart = &self.plan.headers[header.0 as usize].apart;
        apart.iter().map(|(slot, _)| format!("{} = 0;", self.plan.slot(*slot))).collect()
    }

    pub(super) fn has_varbit(&self, header: HeaderId) -> bool {
        self.plan.program.headers[header.0 as usize].varbit_bits_max.is_some()
    }
}
