//! Registers, counters and digests in C: what outlives a packet, or tells of it.

use super::bits::{computed, masked};
use super::layout::DigestLayout;
use super::{Emitter, Unsupported};
use crate::emit::walk;
use crate::ir::{Binary, Block, CounterId, Expr, ExprKind, RegisterId, SlotId, Stmt, StmtKind};

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
        self.look_up(kind, map, index, "place", "cell", false);
    }

    /// The same, by other names. `within`: the index is never beyond the end, so the verifier need not go both ways.
    fn look_up(&mut self, kind: &str, map: &str, index: &Expr, place: &str, cell: &str, within: bool) {
        // The index may be wider than the map's.
        if index.ty.width() > 32 {
            self.variable(&format!("index_{place}"), index);
            self.line(&format!("__u32 {place} = index_{place};"));
            let found = format!("index_{place} > 0xffffffffULL ? 0 : look_up(&{map}, &{place})");
            self.line(&format!("{kind} *{cell} = {found};"));
        } else {
            let line = format!("__u32 {place} = {};", self.plan.value(index));
            self.line(&line);
            self.line(&format!("{kind} *{cell} = look_up(&{map}, &{place});"));
        }
        self.line("");
        if within {
            self.line(&format!("if (!{cell})"));
            self.line("\treturn XDP_ABORTED;");
        }
    }

    /// If a cell is read here and written later in the block, the same one whatever comes between: looks it up once.
    pub(super) fn share(&mut self, block: &Block, at: usize) {
        let StmtKind::Read { register, index, .. } = &block[at].kind else { return };
        let mut used = Vec::new();
        walk::inside(index, &mut |expr| {
            if let ExprKind::Slot(slot) = expr.kind {
                used.push(slot);
            }
        });
        // Whatever is written to a slot of the index: another cell.
        if disturbs(&block[at], &used) {
            return;
        }
        for later in &block[at + 1..] {
            match &later.kind {
                StmtKind::Write { register: of, index: again, .. } if of == register && again == index => {
                    let label = self.label();
                    self.shared.push(Shared { read: &raw const block[at], write: &raw const *later, label });
                    return;
                }
                _ if disturbs(later, &used) => return,
                _ => {}
            }
        }
    }

    pub(super) fn read(&mut self, register: RegisterId, index: &Expr, to: SlotId, stmt: &Stmt) {
        let layout = self.plan.layout.registers[register.0 as usize].clone();
        let of = computed(layout.width);
        let size = self.plan.program.registers[register.0 as usize].size;
        let within = !self.parsing && most(index) < u128::from(size);
        let value = |cell: &str| {
            let value = masked(&format!("({of})*{cell}"), layout.width);
            if within { value } else { format!("{cell} ? {value} : 0") }
        };
        let shared = self.shared.iter().find(|shared| std::ptr::eq(shared.read, stmt)).map(|shared| shared.label);
        if let Some(label) = shared {
            let (place, cell) = (format!("place_{label}"), format!("cell_{label}"));
            self.look_up(cell_type(layout.bytes), &layout.map, index, &place, &cell, within);
            self.assign(to, &value(&cell));
            return;
        }
        self.braced("", |this| {
            this.look_up(cell_type(layout.bytes), &layout.map, index, "place", "cell", within);
            this.assign(to, &value("cell"));
        });
    }

    pub(super) fn write(&mut self, register: RegisterId, index: &Expr, value: &Expr, stmt: &Stmt) {
        let layout = self.plan.layout.registers[register.0 as usize].clone();
        let shared = self.shared.iter().find(|shared| std::ptr::eq(shared.write, stmt)).map(|shared| shared.label);
        if let Some(label) = shared {
            self.line(&format!("if (cell_{label})"));
            let line = format!("\t*cell_{label} = {};", self.plan.value(value));
            self.line(&line);
            return;
        }
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

/// A cell that is looked up once, for a statement that reads it and one that writes it.
pub(super) struct Shared {
    read: *const Stmt,
    write: *const Stmt,
    /// What it is called by.
    label: u32,
}

/// Whether a statement may change one of these slots, or what they mean, or does not go on to the next.
fn disturbs(stmt: &Stmt, slots: &[SlotId]) -> bool {
    let within = |block: &Block| block.iter().any(|stmt| disturbs(stmt, slots));
    match &stmt.kind {
        StmtKind::Assign { to, .. } | StmtKind::Read { to, .. } | StmtKind::Hash { to, .. } => slots.contains(to),
        StmtKind::Update { to, .. } => to.is_some_and(|to| slots.contains(&to)),
        StmtKind::If { then, otherwise, .. } => within(then) || within(otherwise),
        StmtKind::Write { .. } | StmtKind::Count { .. } | StmtKind::Digest { .. } => false,
        _ => true,
    }
}

/// The greatest value that an expression may have, or more.
fn most(expr: &Expr) -> u128 {
    let all = super::layout::mask(expr.ty.width());
    match &expr.kind {
        ExprKind::Const(value) => *value,
        ExprKind::Cast(of) if !of.ty.signed() => most(of).min(all),
        ExprKind::Mux(_, then, otherwise) => most(then).max(most(otherwise)),
        _ => all,
    }
}
