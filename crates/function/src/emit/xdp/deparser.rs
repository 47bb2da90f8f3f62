//! The deparser in C: where headers leave at the places that they came at, only what may have changed is written;
//! otherwise all headers are put together in a buffer and take the place of what came.

use super::Emitter;
use super::bits::{computed, store};
use super::plan::Plan;
use crate::ir::{HeaderId, Span};

impl Emitter<'_> {
    pub(super) fn deparser(&mut self) {
        self.construct("deparser", Span::default());
        let headers = self.plan.program.deparser.clone();
        if self.plan.fixed {
            self.in_place(&headers);
        } else {
            self.measured(&headers);
            let head = format!("if (!{})", self.plan.held("same"));
            self.braced(&head, |this| this.rewrite(&headers));
            self.braced("else", |this| this.in_place(&headers));
        }
        self.finish();
    }

    /// What happens to the packet when its bytes are right.
    fn finish(&mut self) {
        if self.plan.truncates {
            let keep = self.plan.held("keep");
            self.braced(&format!("if ({keep})"), |this| {
                this.line("length = (void *)(long)xdp->data_end - (void *)(long)xdp->data;");
                this.line(&format!("if ({keep} < length && bpf_xdp_adjust_tail(xdp, (int){keep} - (int)length))"));
                this.line("\treturn lose(NO_ROOM);");
            });
        }
        if self.plan.recirculates {
            let head = format!("if ({})", self.plan.held("again"));
            self.braced(&head, |this| {
                this.line(&format!("if (turn >= {})", crate::exec::RECIRCULATIONS_MAX));
                this.line("\treturn lose(RECIRCULATED);");
                this.line("*passes = turn + 1;");
                this.line("bpf_tail_call(xdp, &pipelines, 0);");
                this.line("*passes = 0;");
                this.line("return XDP_ABORTED;");
            });
        }
        let line = format!("return leave(xdp, {}, came);", self.plan.held("out"));
        self.line(&line);
    }

    /// Writes the fields that are held apart, of headers where they may have changed, where they were.
    fn in_place(&mut self, headers: &[HeaderId]) {
        let mut apart: Vec<HeaderId> = Vec::new();
        for header in headers {
            let plan = &self.plan.headers[header.0 as usize];
            if !plan.apart.is_empty() && plan.extracted && !apart.contains(header) {
                apart.push(*header);
            }
        }
        if apart.is_empty() {
            return;
        }
        let dirty = self.plan.held("dirty");
        self.braced(&format!("if ({dirty})"), |this| {
            for header in apart {
                let (off, bytes) = (this.plan.off(header), this.plan.headers[header.0 as usize].bytes);
                let head = format!("if ({off} < FRESH && ({dirty} & {}))", Plan::dirt(header));
                this.braced(&head, |this| {
                    this.line(&format!("at = PLACE({off});"));
                    this.line(&format!("if (at + {bytes} > end)"));
                    this.line("\treturn XDP_ABORTED;");
                    this.fields(header, "at");
                });
            }
        });
    }

    fn fields(&mut self, header: HeaderId, base: &str) {
        for (slot, first) in self.plan.headers[header.0 as usize].apart.clone() {
            let width = self.plan.program.width(slot);
            let value = self.plan.slot(slot);
            self.braced("", |this| {
                this.line(&format!("{} field = {value};", computed(width)));
                this.line("");
                this.all(&store(base, first, width, "field"));
            });
        }
    }

    /// Makes `same` whether the headers stand as they came, one behind the other: they do if the parser took them so, and
    /// nothing came or went since.
    fn measured(&mut self, headers: &[HeaderId]) {
        let same = self.plan.held("same");
        self.line(&format!("{same} = 1;"));
        if self.plan.ordered {
            let head = format!("if ({})", self.plan.held("moved"));
            self.braced(&head, |this| this.measure(headers));
        } else {
            self.measure(headers);
        }
    }

    fn measure(&mut self, headers: &[HeaderId]) {
        let [place, same, cur] = ["place", "same", "cur"].map(|name| self.plan.held(name));
        let nought = self.plan.nought();
        self.line(&format!("{place} = {nought};"));
        for header in headers {
            let (off, length) = (self.plan.off(*header), self.length(*header));
            let head = format!("if ({} != NOWHERE)", self.plan.off(*header));
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
        self.line("struct scratch *s = look_up(&scratch, &only);");
        self.line("int longer;");
        self.line("void *to;");
        self.line("");
        self.line("if (!s)");
        self.line("\treturn XDP_ABORTED;");
        let nought = self.plan.nought();
        self.line(&format!("{place} = {nought};"));
        for header in headers {
            let plan = &self.plan.headers[header.0 as usize];
            let (bytes, settable, extracted) = (plan.bytes, plan.settable, plan.extracted);
            let (off, length) = (self.plan.off(*header), self.bounded_length(*header));
            let head = format!("if ({} != NOWHERE)", self.plan.off(*header));
            self.braced(&head, |this| {
                this.line(&format!("to = s->bytes + ({place} & {:#x});", most - 1));
                if extracted {
                    let fresh = if settable { format!("{off} != FRESH && ") } else { String::new() };
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
        format!("({} + {})", plan.bytes, self.plan.var(header))
    }

    /// The same, so that the verifier sees its bound.
    fn bounded_length(&self, header: HeaderId) -> String {
        let plan = &self.plan.headers[header.0 as usize];
        if !self.has_varbit(header) {
            return plan.bytes.to_string();
        }
        let mask = (plan.varbytes_max + 1).next_power_of_two() - 1;
        format!("({} + ({} & {mask:#x}))", plan.bytes, self.plan.var(header))
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
