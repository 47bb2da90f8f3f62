//! Registers, counters and digests in C.

use super::bits::{computed, masked};
use super::layout::DigestLayout;
use super::{Emitter, Unsupported};
use crate::emit::visit;
use crate::ir::{Binary, Block, CounterId, Expr, ExprKind, RegisterId, SlotId, Stmt, StmtKind};

/// C type of a cell.
pub(super) fn cell_type(bytes: usize) -> &'static str {
    match bytes {
        4 => "__u32",
        8 => "u64",
        _ => "u128",
    }
}

impl Emitter<'_> {
    /// Emits `cell`, a pointer to the map's cell at this index, or null.
    fn emit_cell(&mut self, kind: &str, map: &str, index: &Expr) {
        self.emit_look_up(kind, map, index, "place", "cell", false);
    }

    /// Emits a lookup with given variable names. `within` says that the index is in range, so the verifier needs no
    /// null branch.
    fn emit_look_up(&mut self, kind: &str, map: &str, index: &Expr, place: &str, cell: &str, within: bool) {
        // An index wider than 32 bits is checked first.
        if index.ty.width() > 32 {
            self.emit_variable(&format!("index_{place}"), index);
            self.write_line(&format!("__u32 {place} = index_{place};"));
            let found = format!("index_{place} > 0xffffffffULL ? 0 : look_up(&{map}, &{place})");
            self.write_line(&format!("{kind} *{cell} = {found};"));
        } else {
            let line = format!("__u32 {place} = {};", self.plan.value(index));
            self.write_line(&line);
            self.write_line(&format!("{kind} *{cell} = look_up(&{map}, &{place});"));
        }
        self.write_line("");
        if within {
            self.write_line(&format!("if (!{cell})"));
            self.write_line("\treturn XDP_ABORTED;");
        }
    }

    /// Emits a single lookup for a read here and a later write of the same cell in the block.
    pub(super) fn share_cell(&mut self, block: &Block, at: usize) {
        let StmtKind::Read { register, index, .. } = &block[at].kind else { return };
        let mut used = Vec::new();
        visit::inside(index, &mut |expr| {
            if let ExprKind::Slot(slot) = expr.kind {
                used.push(slot);
            }
        });
        // A write to a slot of the index changes the cell.
        if disturbs(&block[at], &used) {
            return;
        }
        for later in &block[at + 1..] {
            match &later.kind {
                StmtKind::Write { register: of, index: again, .. } if of == register && again == index => {
                    let label = self.new_label();
                    self.shared.push(SharedCell { read: &raw const block[at], write: &raw const *later, label });
                    return;
                }
                _ if disturbs(later, &used) => return,
                _ => {}
            }
        }
    }

    pub(super) fn emit_read(&mut self, register: RegisterId, index: &Expr, to: SlotId, stmt: &Stmt) {
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
            self.emit_look_up(cell_type(layout.bytes), &layout.map, index, &place, &cell, within);
            self.emit_assign(to, &value(&cell));
            return;
        }
        self.write_braced("", |this| {
            this.emit_look_up(cell_type(layout.bytes), &layout.map, index, "place", "cell", within);
            this.emit_assign(to, &value("cell"));
        });
    }

    pub(super) fn emit_write(&mut self, register: RegisterId, index: &Expr, value: &Expr, stmt: &Stmt) {
        let layout = self.plan.layout.registers[register.0 as usize].clone();
        let shared = self.shared.iter().find(|shared| std::ptr::eq(shared.write, stmt)).map(|shared| shared.label);
        if let Some(label) = shared {
            self.write_line(&format!("if (cell_{label})"));
            let line = format!("\t*cell_{label} = {};", self.plan.value(value));
            self.write_line(&line);
            return;
        }
        self.write_braced("", |this| {
            this.emit_cell(cell_type(layout.bytes), &layout.map, index);
            this.write_line("if (cell)");
            let line = format!("\t*cell = {};", this.plan.value(value));
            this.write_line(&line);
        });
    }

    pub(super) fn emit_update(
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
        self.write_braced("", |this| {
            let kind = cell_type(layout.bytes);
            this.emit_cell(kind, &layout.map, index);
            this.emit_variable("operand", operand);
            // Carries into the bits above the width are never read.
            let step = format!("__sync_fetch_and_{name}(cell, ({kind})operand)");
            let Some(to) = to else {
                this.write_line("if (cell)");
                this.write_line(&format!("\t{step};"));
                return;
            };
            this.write_line("u64 after = 0;");
            this.write_line("");
            this.write_line("if (cell)");
            let after = masked(&format!("((u64){step} {sign} operand)"), layout.width);
            this.write_line(&format!("\tafter = {after};"));
            this.emit_assign(to, "after");
        });
        Ok(())
    }

    pub(super) fn emit_count(&mut self, counter: CounterId, index: &Expr) {
        let map = self.plan.layout.counters[counter.0 as usize].clone();
        self.write_braced("", |this| {
            this.emit_cell("struct counted", &map, index);
            this.write_braced("if (cell)", |this| {
                this.write_line("cell->packets++;");
                this.write_line("cell->bytes += length;");
            });
        });
    }

    pub(super) fn emit_digest(&mut self, name: &str, values: &[Expr]) {
        let widths: Vec<u16> = values.iter().map(|value| value.ty.width()).collect();
        let layout = DigestLayout::of(name, &widths);
        let kind = self.plan.layout.digests.iter().position(|known| *known == layout).unwrap_or(0);
        self.write_braced("", |this| {
            this.write_line(&format!("struct digest_{kind} *told = bpf_ringbuf_reserve(&digests, sizeof(*told), 0);"));
            this.write_line("");
            this.write_braced("if (told)", |this| {
                this.write_line(&format!("told->kind = {kind};"));
                for (i, value) in values.iter().enumerate() {
                    let line = format!("told->value_{i} = {};", this.plan.value(value));
                    this.write_line(&line);
                }
                this.write_line("bpf_ringbuf_submit(told, 0);");
            });
            this.write_braced("else", |this| this.write_line("count_lost(DIGEST_LOST);"));
        });
    }
}

/// Cell with a single lookup for a reading and a writing statement.
pub(super) struct SharedCell {
    read: *const Stmt,
    write: *const Stmt,
    /// Number in its variable's name.
    label: u32,
}

/// True if a statement may change these slots or their meaning, or may not continue with the next statement.
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

/// Upper bound of an expression's value.
fn most(expr: &Expr) -> u128 {
    let all = super::layout::mask(expr.ty.width());
    match &expr.kind {
        ExprKind::Const(value) => *value,
        ExprKind::Cast(of) if !of.ty.signed() => most(of).min(all),
        ExprKind::Mux(_, then, otherwise) => most(then).max(most(otherwise)),
        _ => all,
    }
}
