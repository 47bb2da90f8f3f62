//! The deparser in C: where headers leave at the places that they came at, only what may have changed is written;
//! otherwise all headers are put together in a buffer and take the place of what came.

use super::Emitter;
use super::bits::{computed, store};
use crate::ir::{HeaderId, Span};

impl Emitter<'_> {
    pub(super) fn deparser(&mut self) {
        self.construct("deparser", Span::default());
        let mut seen = Vec::new();
        let headers = self.plan.program.deparser.clone();
        let mut in_place = |this: &mut Self| {
            for header in &headers {
                if !seen.contains(header) {
                    seen.push(*header);
                    this.in_place(*header);
                }
            }
        };
        if self.plan.fixed {
            in_place(self);
        } else {
            self.measure(&headers);
            let head = format!("if (!{})", self.plan.held("same"));
            self.braced(&head, |this| this.rewrite(&headers));
            self.braced("else", in_place);
        }
        self.finish();
    }

    /// What happens to the packet when its bytes are right.
    fn finish(&mut self) {
        if self.plan.truncates {
            let keep = self.plan.held("keep");
            self.line("length = (void *)(long)xdp->data_end - (void *)(long)xdp->data;");
            self.line(&format!(
                "if ({keep} && {keep} < length && bpf_xdp_adjust_tail(xdp, (int){keep} - (int)length))"
            ));
            self.line("\treturn lose(NO_ROOM);");
        }
        if self.plan.recirculates {
            let head = format!("if ({})", self.plan.held("again"));
            self.braced(&head, |this| {
                this.line(&format!("if (*passes >= {})", crate::exec::RECIRCULATIONS_MAX));
                this.line("\treturn lose(RECIRCULATED);");
                this.line("*passes += 1;");
                this.line("bpf_tail_call(xdp, &pipelines, 0);");
                this.line("return XDP_ABORTED;");
            });
        }
        let line = format!("return leave(xdp, {}, came);", self.plan.held("out"));
        self.line(&line);
    }

    /// Writes the fields of a header that may have changed where they were.
    fn in_place(&mut self, header: HeaderId) {
        let plan = &self.plan.headers[header.0 as usize];
        if plan.stored.is_empty() || !plan.extracted {
            return;
        }
        let (name, bytes) = (plan.name.clone(), plan.bytes);
        let [off, dirty] = ["off", "dirty"].map(|what| self.plan.held(&format!("{what}_{name}")));
        let head = format!("if ({} && {dirty})", self.plan.valid(header.0));
        self.braced(&head, |this| {
            this.line(&format!("at = held(data + WITHIN({off}));"));
            this.line(&format!("if (at + {bytes} > end)"));
            this.line("\treturn XDP_ABORTED;");
            this.fields(header, "at");
        });
    }

    fn fields(&mut self, header: HeaderId, base: &str) {
        for (slot, first) in self.plan.headers[header.0 as usize].stored.clone() {
            let width = self.plan.program.width(slot);
            let value = self.plan.slot(slot);
            self.braced("", |this| {
                this.line(&format!("{} field = {value};", computed(width)));
                this.line("");
                this.all(&store(base, first, width, "field"));
            });
        }
    }

    /// Makes `same` whether the headers stand as they came, one behind the other.
    fn measure(&mut self, headers: &[HeaderId]) {
        let [place, same, cur] = ["place", "same", "cur"].map(|name| self.plan.held(name));
        self.line(&format!("{same} = 1;"));
        for header in headers {
            let name = self.plan.headers[header.0 as usize].name.clone();
            let off = self.plan.held(&format!("off_{name}"));
            let length = self.length(*header);
            let head = format!("if ({})", self.plan.valid(header.0));
            self.braced(&head, |this| {
                this.line(&format!("{same} &= {off} == {place};"));
                this.line(&format!("{place} += {length};"));
            });
        }
        self.line(&format!("{same} &= {place} == {cur};"));
    }

    fn rewrite(&mut self, headers: &[HeaderId]) {
        let (most, place, cur) = (self.most(), self.plan.held("place"), self.plan.held("cur"));
        self.line("__u32 only = 0;");
        self.line("struct scratch *s = bpf_map_lookup_elem(&scratch, &only);");
        self.line("int longer;");
        self.line("void *to;");
        self.line("");
        self.line("if (!s)");
        self.line("\treturn XDP_ABORTED;");
        self.line(&format!("{place} = 0;"));
        for header in headers {
            let plan = &self.plan.headers[header.0 as usize];
            let (name, bytes, settable, extracted) = (plan.name.clone(), plan.bytes, plan.settable, plan.extracted);
            let off = self.plan.held(&format!("off_{name}"));
            let length = self.bounded_length(*header);
            let head = format!("if ({})", self.plan.valid(header.0));
            self.braced(&head, |this| {
                this.line(&format!("to = s->bytes + ({place} & {:#x});", most - 1));
                if extracted {
                    let fresh = if settable { format!("{off} != NOWHERE && ") } else { String::new() };
                    // A header may have all its bytes in its varbit field, and that be empty.
                    let some = if bytes == 0 { format!("{length} && ") } else { String::new() };
                    this.line(&format!("if ({some}{fresh}bpf_xdp_load_bytes(xdp, {off}, to, {length}))"));
                    this.line("\treturn XDP_ABORTED;");
                }
                // All fields of a header that was not there are written: they have all its bits.
                this.fields(*header, "to");
                this.line(&format!("{place} += {length};"));
            });
        }
        self.line(&format!("longer = (int){place} - (int){cur};"));
        self.line("if (longer && bpf_xdp_adjust_head(xdp, -longer))");
        self.line("\treturn lose(NO_ROOM);");
        self.line(&format!("length = held({place}) & {:#x};", most - 1));
        self.line("if (length && bpf_xdp_store_bytes(xdp, 0, s->bytes, length))");
        self.line("\treturn XDP_ABORTED;");
    }

    /// A header's length in C, bytes.
    fn length(&self, header: HeaderId) -> String {
        let plan = &self.plan.headers[header.0 as usize];
        if !self.has_varbit(header) {
            return plan.bytes.to_string();
        }
        format!("({} + {})", plan.bytes, self.plan.held(&format!("var_{}", plan.name)))
    }

    /// The same, so that the verifier sees its bound.
    fn bounded_length(&self, header: HeaderId) -> String {
        let plan = &self.plan.headers[header.0 as usize];
        if !self.has_varbit(header) {
            return plan.bytes.to_string();
        }
        let mask = (plan.varbytes_max + 1).next_power_of_two() - 1;
        format!("({} + ({} & {mask:#x}))", plan.bytes, self.plan.held(&format!("var_{}", plan.name)))
    }

    /// More than all headers together have, a power of two.
    fn most(&self) -> usize {
        let length = |id: &HeaderId| {
            let plan = &self.plan.headers[id.0 as usize];
            plan.bytes + plan.varbytes_max
        };
        (self.plan.program.deparser.iter().map(length).sum::<usize>() + 1).next_power_of_two()
    }

    /// Room for all headers, wherever the verifier thinks that the last one begins.
    pub(super) fn scratch_bytes(&self) -> usize {
        let longest = self.plan.headers.iter().map(|plan| {
            let var = if plan.varbytes_max > 0 { (plan.varbytes_max + 1).next_power_of_two() } else { 0 };
            plan.bytes + var
        });
        self.most() + longest.max().unwrap_or(0)
    }
}
