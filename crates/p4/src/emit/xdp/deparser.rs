//! Deparser in C. Headers that leave at their original offsets are updated in place, and only changed fields are
//! written. Otherwise all headers are assembled in a buffer that replaces the original ones.

use super::Emitter;
use super::bits::{computed, store};
use super::plan::Plan;
use crate::ir::{HeaderId, SourceSpan};

impl Emitter<'_> {
    pub(super) fn emit_deparser(&mut self) {
        self.begin_construct("deparser", SourceSpan::default());
        let headers = self.plan.program.deparser.clone();
        if self.plan.fixed {
            self.emit_in_place(&headers);
        } else {
            self.emit_unchanged_check(&headers);
            let head = format!("if (!{})", self.plan.packet_variable("same"));
            self.write_braced(&head, |this| this.emit_rewrite(&headers));
            self.write_braced("else", |this| this.emit_in_place(&headers));
        }
        self.emit_verdict();
    }

    /// Emits the verdict, after the packet's bytes have been written.
    fn emit_verdict(&mut self) {
        if self.plan.truncates {
            let keep = self.plan.packet_variable("keep");
            self.write_braced(&format!("if ({keep})"), |this| {
                this.write_line("length = (void *)(long)xdp->data_end - (void *)(long)xdp->data;");
                this.write_line(&format!(
                    "if ({keep} < length && bpf_xdp_adjust_tail(xdp, (int){keep} - (int)length))"
                ));
                this.write_line("\treturn lose(NO_ROOM);");
            });
        }
        if self.plan.recirculates {
            let head = format!("if ({})", self.plan.packet_variable("again"));
            self.write_braced(&head, |this| {
                this.write_line(&format!("if (turn >= {})", crate::exec::RECIRCULATIONS_MAX));
                this.write_line("\treturn lose(RECIRCULATED);");
                this.write_line("*passes = turn + 1;");
                this.write_line("bpf_tail_call(xdp, &pipelines, 0);");
                this.write_line("*passes = 0;");
                this.write_line("return XDP_ABORTED;");
            });
        }
        let line = format!("return leave(xdp, {}, came);", self.plan.packet_variable("out"));
        self.write_line(&line);
    }

    /// Writes the fields held in variables to their original places, for headers that may have changed.
    fn emit_in_place(&mut self, headers: &[HeaderId]) {
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
        let dirty = self.plan.packet_variable("dirty");
        self.write_braced(&format!("if ({dirty})"), |this| {
            for header in apart {
                let (off, bytes) = (this.plan.header_offset(header), this.plan.headers[header.0 as usize].bytes);
                let head = format!("if ({off} < FRESH && ({dirty} & {}))", Plan::dirty_bit(header));
                this.write_braced(&head, |this| {
                    this.write_line(&format!("at = PLACE({off});"));
                    this.write_line(&format!("if (at + {bytes} > end)"));
                    this.write_line("\treturn XDP_ABORTED;");
                    this.emit_fields(header, "at");
                });
            }
        });
    }

    fn emit_fields(&mut self, header: HeaderId, base: &str) {
        for (slot, first) in self.plan.headers[header.0 as usize].apart.clone() {
            let width = self.plan.program.width(slot);
            let value = self.plan.slot(slot);
            self.write_braced("", |this| {
                this.write_line(&format!("{} field = {value};", computed(width)));
                this.write_line("");
                this.write_lines(&store(base, first, width, "field"));
            });
        }
    }

    /// Computes `same`: true if the headers are contiguous in their original places, as the parser extracted them, and
    /// none was added or removed.
    fn emit_unchanged_check(&mut self, headers: &[HeaderId]) {
        let same = self.plan.packet_variable("same");
        self.write_line(&format!("{same} = 1;"));
        if self.plan.ordered {
            let head = format!("if ({})", self.plan.packet_variable("moved"));
            self.write_braced(&head, |this| this.emit_offset_checks(headers));
        } else {
            self.emit_offset_checks(headers);
        }
    }

    fn emit_offset_checks(&mut self, headers: &[HeaderId]) {
        let [place, same, cur] = ["place", "same", "cur"].map(|name| self.plan.packet_variable(name));
        let nought = self.plan.opaque_zero();
        self.write_line(&format!("{place} = {nought};"));
        for header in headers {
            let (off, length) = (self.plan.header_offset(*header), self.length(*header));
            let head = format!("if ({} != NOWHERE)", self.plan.header_offset(*header));
            self.write_braced(&head, |this| {
                this.write_line(&format!("{same} &= {off} == {place};"));
                this.write_line(&format!("{place} += {length};"));
            });
        }
        self.write_line(&format!("{same} &= {place} == {cur};"));
    }

    fn emit_rewrite(&mut self, headers: &[HeaderId]) {
        let (most, place, cur) =
            (self.header_bytes_max(), self.plan.packet_variable("place"), self.plan.packet_variable("cur"));
        self.write_line("__u32 only = 0;");
        self.write_line("struct scratch *s = look_up(&scratch, &only);");
        self.write_line("int longer;");
        self.write_line("void *to;");
        self.write_line("");
        self.write_line("if (!s)");
        self.write_line("\treturn XDP_ABORTED;");
        let nought = self.plan.opaque_zero();
        self.write_line(&format!("{place} = {nought};"));
        for header in headers {
            let plan = &self.plan.headers[header.0 as usize];
            let (bytes, settable, extracted) = (plan.bytes, plan.settable, plan.extracted);
            let (off, length) = (self.plan.header_offset(*header), self.bounded_length(*header));
            let head = format!("if ({} != NOWHERE)", self.plan.header_offset(*header));
            self.write_braced(&head, |this| {
                this.write_line(&format!("to = s->bytes + ({place} & {:#x});", most - 1));
                if extracted {
                    let fresh = if settable { format!("{off} != FRESH && ") } else { String::new() };
                    // A header whose bytes are all in an empty varbit field has length 0.
                    let some = if bytes == 0 { format!("{length} && ") } else { String::new() };
                    this.write_line(&format!("if ({some}{fresh}bpf_xdp_load_bytes(xdp, {off}, to, {length}))"));
                    this.write_line("\treturn XDP_ABORTED;");
                }
                // A new header's fields cover all of its bits, so all are written.
                this.emit_fields(*header, "to");
                this.write_line(&format!("{place} += {length};"));
            });
        }
        self.write_line(&format!("longer = (int){place} - (int){cur};"));
        self.write_line("if (longer && bpf_xdp_adjust_head(xdp, -longer))");
        self.write_line("\treturn lose(NO_ROOM);");
        self.write_line(&format!("length = held({place}) & {:#x};", most - 1));
        self.write_line("if (length && bpf_xdp_store_bytes(xdp, 0, s->bytes, length))");
        self.write_line("\treturn XDP_ABORTED;");
    }

    /// C expression of a header's length, bytes.
    fn length(&self, header: HeaderId) -> String {
        let plan = &self.plan.headers[header.0 as usize];
        if !self.has_varbit(header) {
            return plan.bytes.to_string();
        }
        format!("({} + {})", plan.bytes, self.plan.varbit_bytes(header))
    }

    /// Length with a bound that the verifier can see.
    fn bounded_length(&self, header: HeaderId) -> String {
        let plan = &self.plan.headers[header.0 as usize];
        if !self.has_varbit(header) {
            return plan.bytes.to_string();
        }
        let mask = (plan.varbytes_max + 1).next_power_of_two() - 1;
        format!("({} + ({} & {mask:#x}))", plan.bytes, self.plan.varbit_bytes(header))
    }

    /// Upper bound of the total header length, a power of two.
    fn header_bytes_max(&self) -> usize {
        let length = |id: &HeaderId| {
            let plan = &self.plan.headers[id.0 as usize];
            plan.bytes + plan.varbytes_max
        };
        (self.plan.program.deparser.iter().map(length).sum::<usize>() + 1).next_power_of_two()
    }

    /// Buffer size for all headers, with the verifier's upper bound for the offset of the last one.
    pub(super) fn scratch_bytes(&self) -> usize {
        let longest = self.plan.headers.iter().map(|plan| {
            let var = if plan.varbytes_max > 0 { (plan.varbytes_max + 1).next_power_of_two() } else { 0 };
            plan.bytes + var
        });
        self.header_bytes_max() + longest.max().unwrap_or(0)
    }
}
