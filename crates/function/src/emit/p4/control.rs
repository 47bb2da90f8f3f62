//! Controls: what they declare, and what they apply.

use super::expr::constant;
use super::stmt::{Uses, uses};
use super::{Text, Unsayable, type_name};
use crate::emit::walk;
use crate::ir::{ActionId, Block, Entry, ExprKind, MatchKind, SlotKind, StmtKind, Table};

const PARAMS: &str = "inout headers hdr, inout metadata meta";
const STANDARD: &str = "inout standard_metadata_t standard_metadata";

impl Text<'_> {
    pub(super) fn controls(&mut self) -> Result<(), Unsayable> {
        let program = self.program;
        let (mut ingress, mut egress) = (Uses::default(), Uses::default());
        uses(program, &program.ingress, &mut ingress);
        uses(program, &program.egress, &mut egress);
        if let Some(table) = ingress.tables.iter().find(|table| egress.tables.contains(table)) {
            let table = &program.tables[*table as usize];
            let construct = format!("table {}", table.name);
            return Err(Unsayable { construct, why: "only one control may apply it", at: table.at });
        }
        // What nothing uses is there all the same: a controller may know it.
        let rest = |used: &mut Vec<u32>, other: &[u32], count: usize| {
            used.extend((0..count as u32).filter(|id| !other.contains(id)));
            used.sort_unstable();
            used.dedup();
        };
        rest(&mut ingress.tables, &egress.tables, program.tables.len());
        for table in &ingress.tables.clone() {
            for action in actions(&program.tables[*table as usize]) {
                uses(program, &program.actions[action.0 as usize].body, &mut ingress);
            }
        }
        rest(&mut ingress.registers, &egress.registers, program.registers.len());
        rest(&mut ingress.counters, &egress.counters, program.counters.len());
        // What both controls use stands before them.
        let shared = |of: &mut Vec<u32>, other: &mut Vec<u32>| {
            let both: Vec<u32> = of.iter().filter(|id| other.contains(id)).copied().collect();
            of.retain(|id| !both.contains(id));
            other.retain(|id| !both.contains(id));
            both
        };
        let registers = shared(&mut ingress.registers, &mut egress.registers);
        let counters = shared(&mut ingress.counters, &mut egress.counters);
        self.memory(&registers, &counters);
        self.checksums("MyVerifyChecksum", &program.verify)?;
        self.pipeline("MyIngress", &program.ingress, &ingress)?;
        self.pipeline("MyEgress", &program.egress, &egress)?;
        self.checksums("MyComputeChecksum", &program.compute)
    }

    fn checksums(&mut self, name: &str, block: &Block) -> Result<(), Unsayable> {
        let mut unseen = None;
        walk::block(block, &mut |stmt| {
            walk::operands(stmt, &mut |expr| {
                walk::inside(expr, &mut |expr| {
                    if let ExprKind::Slot(slot) = expr.kind
                        && matches!(self.program.slots[slot.0 as usize].kind, SlotKind::Standard(_))
                    {
                        unseen.get_or_insert((slot, stmt.at));
                    }
                });
            });
        });
        if let Some((slot, at)) = unseen {
            let construct = format!("{} in a checksum", self.program.slots[slot.0 as usize].name);
            return Err(Unsayable { construct, why: "put it in metadata before", at });
        }
        self.braced(&format!("control {name}({PARAMS})"), |this| {
            this.braced("apply", |this| {
                this.flags = vec![None];
                this.block(block)
            })
        })?;
        self.line("");
        Ok(())
    }

    fn pipeline(&mut self, name: &str, block: &Block, uses: &Uses) -> Result<(), Unsayable> {
        self.braced(&format!("control {name}({PARAMS}, {STANDARD})"), |this| {
            this.memory(&uses.registers, &uses.counters);
            let mut declared: Vec<ActionId> = Vec::new();
            for table in &uses.tables {
                for action in actions(&this.program.tables[*table as usize]) {
                    if !declared.contains(&action) {
                        declared.push(action);
                        this.action(action)?;
                    }
                }
                this.table(*table as usize);
            }
            let whole = this.with_flags(|this| this.block(block))?;
            this.braced("apply", |this| this.text.push_str(&whole));
            Ok(())
        })?;
        self.line("");
        Ok(())
    }

    /// Writes something at one level deeper, and declares the variables that it needs before: the text.
    fn with_flags(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Unsayable>) -> Result<String, Unsayable> {
        let before = std::mem::take(&mut self.text);
        self.flags = vec![None];
        self.left.clear();
        self.depth += 1;
        let done = write(self);
        let body = std::mem::take(&mut self.text);
        for flag in std::mem::take(&mut self.left) {
            self.line(&format!("bool {flag};"));
        }
        self.depth -= 1;
        let flags = std::mem::replace(&mut self.text, before);
        done.map(|()| flags + &body)
    }

    fn memory(&mut self, registers: &[u32], counters: &[u32]) {
        for id in registers {
            let register = &self.program.registers[*id as usize];
            let (ty, name) = (type_name(register.ty), self.names.registers[*id as usize].clone());
            if register.mirrored {
                self.line("@mirrored");
            }
            self.line(&format!("register<{ty}>({}) {name};", register.size));
        }
        for id in counters {
            let (size, name) = (self.program.counters[*id as usize].size, self.names.counters[*id as usize].clone());
            self.line(&format!("counter({size}, CounterType.packets_and_bytes) {name};"));
        }
        if !registers.is_empty() || !counters.is_empty() {
            self.line("");
        }
    }

    fn action(&mut self, id: ActionId) -> Result<(), Unsayable> {
        let action = &self.program.actions[id.0 as usize];
        let name = self.names.actions[id.0 as usize].clone();
        let params: Vec<String> =
            action.params.iter().map(|slot| format!("{} {}", self.ty(*slot), self.names.field(*slot))).collect();
        // A parameter stands in the slot that the program has for it.
        let taken: Vec<String> = action
            .params
            .iter()
            .map(|slot| format!("{} = {};", self.names.slot(self.program, *slot), self.names.field(*slot)))
            .collect();
        let written = written(&action.body);
        // One that nobody else looks at, and nobody writes, needs none.
        let only = action
            .params
            .iter()
            .filter(|slot| !written.contains(slot))
            .map(|slot| (*slot, self.names.field(*slot).to_owned()));
        self.params = only.collect();
        let kept: Vec<String> = action
            .params
            .iter()
            .zip(taken)
            .filter(|(slot, _)| written.contains(slot) || self.read_elsewhere(**slot, id))
            .map(|(_, line)| line)
            .collect();
        let body = self.with_flags(|this| {
            kept.iter().for_each(|line| this.line(line));
            this.block(&action.body)
        });
        self.params.clear();
        let body = body?;
        self.braced(&format!("action {name}({})", params.join(", ")), |this| this.text.push_str(&body));
        self.line("");
        Ok(())
    }

    /// Whether anything but this action reads a slot.
    fn read_elsewhere(&self, slot: crate::ir::SlotId, action: ActionId) -> bool {
        let count = |program: &crate::ir::Program| {
            let mut reads = 0;
            walk::expressions(program, &mut |expr| {
                reads += u32::from(expr.kind == ExprKind::Slot(slot));
            });
            reads
        };
        let mut own = 0;
        walk::block(&self.program.actions[action.0 as usize].body, &mut |stmt| {
            walk::operands(stmt, &mut |expr| {
                walk::inside(expr, &mut |expr| own += u32::from(expr.kind == ExprKind::Slot(slot)));
            });
        });
        count(self.program) > own
    }

    fn table(&mut self, id: usize) {
        let table = &self.program.tables[id];
        let name = self.names.tables[id].clone();
        if table.mirrored {
            self.line("@mirrored");
        }
        self.braced(&format!("table {name}"), |this| {
            if !table.keys.is_empty() {
                this.braced("key =", |this| {
                    for key in &table.keys {
                        let kind = if key.kind == MatchKind::Lpm { "lpm" } else { "exact" };
                        let line = format!(
                            "{}: {kind} @name(\"{}\");",
                            this.expr(&key.expr),
                            super::names::identifier(&key.name)
                        );
                        this.line(&line);
                    }
                });
            }
            this.braced("actions =", |this| {
                for action in actions(table) {
                    let only = if table.actions.contains(&action) { "" } else { "@defaultonly " };
                    let line = format!("{only}{};", this.names.actions[action.0 as usize]);
                    this.line(&line);
                }
            });
            let default = this.call(table.default.0, &table.default.1);
            this.line(&format!("default_action = {default};"));
            if !table.entries.is_empty() {
                this.braced("const entries =", |this| table.entries.iter().for_each(|entry| this.entry(table, entry)));
            }
            if !table.keys.is_empty() {
                this.line(&format!("size = {};", table.size));
            }
            if let Some(idle) = table.idle_timeout_ms {
                this.line(&format!("idle_timeout = {idle};"));
            }
        });
        self.line("");
    }

    fn entry(&mut self, table: &Table, entry: &Entry) {
        let keys: Vec<String> = table
            .keys
            .iter()
            .zip(&entry.keys)
            .map(|(key, of)| {
                let value = constant(key.expr.ty, of.value);
                let width = key.expr.ty.width();
                if of.prefix_bits == width {
                    return value;
                }
                let all = if width >= 128 { u128::MAX } else { (1 << width) - 1 };
                let rest = u32::from(width - of.prefix_bits);
                let mask = all & all.checked_shl(rest).unwrap_or(0);
                format!("{value} &&& {}", constant(key.expr.ty, mask))
            })
            .collect();
        let keys = if keys.len() == 1 { keys[0].clone() } else { format!("({})", keys.join(", ")) };
        let call = self.call(entry.action, &entry.args);
        self.line(&format!("{keys}: {call};"));
    }

    fn call(&self, action: ActionId, args: &[u128]) -> String {
        let params = &self.program.actions[action.0 as usize].params;
        let arg = |(slot, arg): (&crate::ir::SlotId, &u128)| constant(self.program.slots[slot.0 as usize].ty, *arg);
        let args: Vec<String> = params.iter().zip(args).map(arg).collect();
        format!("{}({})", self.names.actions[action.0 as usize], args.join(", "))
    }
}

/// A table's actions; what runs on a miss is among them.
pub(super) fn actions(table: &Table) -> Vec<ActionId> {
    let mut actions = table.actions.clone();
    if !actions.contains(&table.default.0) {
        actions.push(table.default.0);
    }
    actions
}

/// Slots that a block writes.
fn written(block: &Block) -> Vec<crate::ir::SlotId> {
    let mut written = Vec::new();
    walk::block(block, &mut |stmt| match &stmt.kind {
        StmtKind::Assign { to, .. } | StmtKind::Read { to, .. } | StmtKind::Hash { to, .. } => written.push(*to),
        StmtKind::Update { to, .. } => written.extend(to),
        StmtKind::Apply { hit, action, .. } => written.extend(hit.iter().chain(action)),
        _ => {}
    });
    written
}
