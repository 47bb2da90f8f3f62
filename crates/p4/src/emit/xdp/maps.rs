//! Map definitions in C: all declarations before the program's function.

use super::Emitter;
use super::memory::cell_type;
use crate::ir::SourceSpan;

/// Size of the ring buffer for digests.
const DIGEST_BYTES: u32 = 1 << 18;

impl Emitter<'_> {
    pub(super) fn emit_maps(&mut self) {
        self.begin_construct("maps", SourceSpan::default());
        for id in 0..self.plan.program.tables.len() {
            self.emit_table_maps(id);
        }
        for (i, register) in self.plan.program.registers.iter().enumerate() {
            self.begin_construct(format!("register {}", register.name), SourceSpan::default());
            let layout = self.plan.layout.registers[i].clone();
            self.emit_map("BPF_MAP_TYPE_ARRAY", register.size, "__u32", cell_type(layout.bytes), &layout.map, "");
        }
        if !self.plan.program.counters.is_empty() {
            self.write_line("struct counted {");
            self.write_line("\tu64 packets;");
            self.write_line("\tu64 bytes;");
            self.write_line("};");
            self.write_line("");
        }
        for (i, counter) in self.plan.program.counters.iter().enumerate() {
            self.begin_construct(format!("counter {}", counter.name), SourceSpan::default());
            let map = self.plan.layout.counters[i].clone();
            self.emit_map("BPF_MAP_TYPE_PERCPU_ARRAY", counter.size, "__u32", "struct counted", &map, "");
        }
        self.emit_digest_map();
        if self.plan.recirculates {
            include_str!("passes.h").lines().for_each(|line| self.write_line(line));
        }
        if !self.plan.fixed {
            self.write_line("struct scratch {");
            let bytes = self.scratch_bytes();
            self.write_line(&format!("\t__u8 bytes[{bytes}];"));
            self.write_line("};");
            self.write_line("");
            self.emit_map("BPF_MAP_TYPE_PERCPU_ARRAY", 1, "__u32", "struct scratch", "scratch", "");
        }
        self.emit_slots_map();
    }

    fn emit_digest_map(&mut self) {
        let digests = self.plan.layout.digests.clone();
        if digests.is_empty() {
            return;
        }
        for (i, digest) in digests.iter().enumerate() {
            self.begin_construct(format!("digest {}", digest.name), SourceSpan::default());
            self.write_line(&format!("struct digest_{i} {{"));
            self.write_line("\t__u32 kind;");
            self.write_line("\t__u32 zero;");
            let mut order: Vec<usize> = (0..digest.values.len()).collect();
            order.sort_by_key(|j| digest.values[*j].at);
            for j in order {
                let holder = super::bits::holder(digest.values[j].bytes as u16 * 8);
                self.write_line(&format!("\t{holder} value_{j};"));
            }
            self.write_line("} __attribute__((aligned(8)));");
            self.write_line("");
            self.write_line(&format!(
                "_Static_assert(sizeof(struct digest_{i}) == {}, \"as the loader has it\");",
                digest.bytes
            ));
            self.write_line("");
        }
        self.write_line("struct {");
        self.write_line("\t__uint(type, BPF_MAP_TYPE_RINGBUF);");
        self.write_line(&format!("\t__uint(max_entries, {DIGEST_BYTES});"));
        self.write_line("} digests SEC(\".maps\");");
        self.write_line("");
    }

    pub(super) fn emit_map(&mut self, kind: &str, size: u32, key: &str, value: &str, name: &str, flags: &str) {
        self.write_line("struct {");
        self.write_line(&format!("\t__uint(type, {kind});"));
        self.write_line(&format!("\t__uint(max_entries, {});", size.max(1)));
        if !flags.is_empty() {
            self.write_line(&format!("\t__uint(map_flags, {flags});"));
        }
        self.write_line(&format!("\t__type(key, {key});"));
        self.write_line(&format!("\t__type(value, {value});"));
        self.write_line(&format!("}} {name} SEC(\".maps\");"));
        self.write_line("");
    }
}
