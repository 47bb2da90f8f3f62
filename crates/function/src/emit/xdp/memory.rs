//! Registers, counters and digests in C: what outlives a packet, or tells of it.

use super::bits::{computed, masked};
use super::layout::DigestLayout;
use super::{Emitter, Unsupported};
use crate::ir::{Binary, CounterId, Expr, RegisterId, SlotId, Stmt};

/// The type of a cell in C.
pub(super) fn cell_type(bytes: usize) -> &'static str {
    match bytes {
        4 => "__u32",
        8 => "u64",
        _ => "u128",
    }
}

impl Emitter<'_> {
    /// Makes `cell` the cell of a map at this index, or null.
    fn cell(&mut self, kind: &str, map: &str, index: &Expr) {
        self.variable("index", index);
        self.line("__u32 place = index;");
        // The index may be wider than the map's.
        let beyond = if index.ty.width() > 32 { "index > 0xffffffffULL ? 0 : " } else { "" };
        self.line(&format!("{kind} *cell = {beyond}bpf_map_lookup_elem(&{map}, &place);"));
        self.line("");
    }

    pub(super) fn read(&mut self, register: RegisterId, index: &Expr, to: SlotId) {
        let layout = self.plan.layout.registers[register.0 as usize].clone();
        self.braced("", |this| {
            this.cell(cell_type(layout.bytes), &layout.map, index);
            let of = computed(layout.width);
            let value = masked(&format!("({of})*cell"), layout.width);
            this.assign(to, &format!("cell ? {value} : 0"));
        });
    }

    pub(super) fn write(&mut self, register: RegisterId, index: &Expr, value: &Expr) {
        let layout = self.plan.layout.registers[register.0 as usize].clone();
        self.braced("", |this| {
            this.cell(cell_type(layout.bytes), &layout.map, index);
            this.line("if (cell)");
            let line = format!("\t*cell = {};", this.plan.value(value));
            this.line(&line);
        });
    }

    pub(super) fn update(
        &mut self,
        register: RegisterId,
        index: &Expr,
        op: Binary,
        operand: &Expr,
        to: Option<SlotId>,
        stmt: &Stmt,
    ) -> Result<(), Unsupported> {
        let layout = self.plan.layout.registers[register.0 as usize].clone();
        if layout.width > 64 {
            let construct = format!("register {}", self.plan.program.registers[register.0 as usize].name);
            return Err(Unsupported { construct, why: "only cells of up to 64 bits change in one step", at: stmt.at });
        }
        let (name, sign) = match op {
            Binary::Sub => ("sub", "-"),
            Binary::And => ("and", "&"),
            Binary::Or => ("or", "|"),
            Binary::Xor => ("xor", "^"),
            _ => ("add", "+"),
        };
        self.braced("", |this| {
            let kind = cell_type(layout.bytes);
            this.cell(kind, &layout.map, index);
            this.variable("operand", operand);
            // Bits above the width carry, and nobody reads them.
            let step = format!("__sync_fetch_and_{name}(cell, ({kind})operand)");
            let Some(to) = to else {
                this.line("if (cell)");
                this.line(&format!("\t{step};"));
                return;
            };
            this.line("u64 after = 0;");
            this.line("");
            this.line("if (cell)");
            let after = masked(&format!("((u64){step} {sign} operand)"), layout.width);
            this.line(&format!("\tafter = {after};"));
            this.assign(to, "after");
        });
        Ok(())
    }

    pub(super) fn count(&mut self, counter: CounterId, index: &Expr) {
        let map = self.plan.layout.counters[counter.0 as usize].clone();
        self.braced("", |this| {
            this.cell("struct counted", &map, index);
            this.braced("if (cell)", |this| {
                this.line("cell->packets++;");
                this.line("cell->bytes += length;");
            });
        });
    }

    pub(super) fn digest(&mut self, name: &str, values: &[Expr]) {
        let widths: Vec<u16> = values.iter().map(|value| value.ty.width()).collect();
        let layout = DigestLayout::of(name, &widths);
        let kind = self.plan.layout.digests.iter().position(|known| *known == layout).unwrap_or(0);
        self.braced("", |this| {
            this.line(&format!("struct digest_{kind} *told = bpf_ringbuf_reserve(&digests, sizeof(*told), 0);"));
            this.line("");
            this.braced("if (told)", |this| {
                this.line(&format!("told->kind = {kind};"));
                for (i, value) in values.iter().enumerate() {
                    let line = format!("told->value_{i} = {};", this.plan.value(value));
                    this.line(&line);
                }
                this.line("bpf_ringbuf_submit(told, 0);");
            });
            this.braced("else", |this| this.line("count_lost(DIGEST_LOST);"));
        });
    }
}
