//! Maps in C: all that is declared before the program's function.

use super::Emitter;
use super::memory::cell_type;
use crate::ir::Span;

/// Bytes of the buffer for digests.
const DIGEST_BYTES: u32 = 1 << 18;

impl Emitter<'_> {
    pub(super) fn maps(&mut self) {
        self.construct("maps", Span::default());
        for id in 0..self.plan.program.tables.len() {
            self.table_maps(id);
        }
        for (i, register) in self.plan.program.registers.iter().enumerate() {
            self.construct(format!("register {}", register.name), Span::default());
            let layout = self.plan.layout.registers[i].clone();
            self.map("BPF_MAP_TYPE_ARRAY", register.size, "__u32", cell_type(layout.bytes), &layout.map, "");
        }
        if !self.plan.program.counters.is_empty() {
            self.line("struct counted {");
            self.line("\tu64 packets;");
            self.line("\tu64 bytes;");
            self.line("};");
            self.line("");
        }
        for (i, counter) in self.plan.program.counters.iter().enumerate() {
            self.construct(format!("counter {}", counter.name), Span::default());
            let map = self.plan.layout.counters[i].clone();
            self.map("BPF_MAP_TYPE_PERCPU_ARRAY", counter.size, "__u32", "struct counted", &map, "");
        }
        self.digest_map();
        if self.plan.recirculates {
            include_str!("passes.h").lines().for_each(|line| self.line(line));
        }
        if !self.plan.fixed {
            self.line("struct scratch {");
            let bytes = self.scratch_bytes();
            self.line(&format!("\t__u8 bytes[{bytes}];"));
            self.line("};");
            self.line("");
            self.map("BPF_MAP_TYPE_PERCPU_ARRAY", 1, "__u32", "struct scratch", "scratch", "");
        }
        self.slots_map();
    }

    fn digest_map(&mut self) {
        let digests = self.plan.layout.digests.clone();
        if digests.is_empty() {
            return;
        }
        for (i, digest) in digests.iter().enumerate() {
            self.construct(format!("digest {}", digest.name), Span::default());
            self.line(&format!("struct digest_{i} {{"));
            self.line("\t__u32 kind;");
            self.line("\t__u32 zero;");
            let mut order: Vec<usize> = (0..digest.values.len()).collect();
            order.sort_by_key(|j| digest.values[*j].at);
            for j in order {
                let holder = super::bits::holder(digest.values[j].bytes as u16 * 8);
                self.line(&format!("\t{holder} value_{j};"));
            }
            self.line("} __attribute__((aligned(8)));");
            self.line("");
            self.line(&format!(
                "_Static_assert(sizeof(struct digest_{i}) == {}, \"as the loader has it\");",
                digest.bytes
            ));
            self.line("");
        }
        self.line("struct {");
        self.line("\t__uint(type, BPF_MAP_TYPE_RINGBUF);");
        self.line(&format!("\t__uint(max_entries, {DIGEST_BYTES});"));
        self.line("} digests SEC(\".maps\");");
        self.line("");
    }

    pub(super) fn map(&mut self, kind: &str, size: u32, key: &str, value: &str, name: &str, flags: &str) {
        self.line("struct {");
        self.line(&format!("\t__uint(type, {kind});"));
        self.line(&format!("\t__uint(max_entries, {});", size.max(1)));
        if !flags.is_empty() {
            self.line(&format!("\t__uint(map_flags, {flags});"));
        }
        self.line(&format!("\t__type(key, {key});"));
        self.line(&format!("\t__type(value, {value});"));
        self.line(&format!("}} {name} SEC(\".maps\");"));
        self.line("");
    }
}
