//! Controls: declarations and `apply` blocks.

use super::expr::constant;
use super::stmt::{Uses, uses};
use super::{NotExpressibleInP4, P4Writer, type_name};
use crate::emit::visit;
use crate::ir::{ActionId, Block, ExprKind, MatchKind, SlotKind, StmtKind, Table, TableEntry};

const PARAMS: &str = "inout headers hdr, inout metadata meta";
const STANDARD: &str = "inout standard_metadata_t standard_metadata";

impl P4Writer<'_> {
    pub(super) fn write_controls(&mut self) -> Result<(), NotExpressibleInP4> {
        let program = self.program;
        let (mut ingress, mut egress) = (Uses::default(), Uses::default());
        uses(program, &program.ingress, &mut ingress);
        uses(program, &program.egress, &mut egress);
        if let Some(table) = ingress.tables.iter().find(|table| egress.tables.contains(table)) {
            let table = &program.tables[*table as usize];
            let construct = format!("table {}", table.name);
            return Err(NotExpressibleInP4 { construct, why: "only one control can apply it", at: table.at });
        }
        // Unused declarations are emitted as well, since a controller may refer to them.
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
        // Declarations that both controls use precede them.
        let shared = |of: &mut Vec<u32>, other: &mut Vec<u32>| {
            let both: Vec<u32> = of.iter().filter(|id| other.contains(id)).copied().collect();
            of.retain(|id| !both.contains(id));
            other.retain(|id| !both.contains(id));
            both
        };
        let registers = shared(&mut ingress.registers, &mut egress.registers);
        let counters = shared(&mut ingress.counters, &mut egress.counters);
        self.write_memory(&registers, &counters);
        self.write_checksums("MyVerifyChecksum", &program.verify)?;
        self.write_pipeline("MyIngress", &program.ingress, &ingress)?;
        self.write_pipeline("MyEgress", &program.egress, &egress)?;
        self.write_checksums("MyComputeChecksum", &program.compute)
    }

    fn write_checksums(&mut self, name: &str, block: &Block) -> Result<(), NotExpressibleInP4> {
        let mut unseen = None;
        visit::block(block, &mut |stmt| {
            visit::operands(stmt, &mut |expr| {
                visit::inside(expr, &mut |expr| {
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
            return Err(NotExpressibleInP4 { construct, why: "assign it to metadata first", at });
        }
        self.write_braced(&format!("control {name}({PARAMS})"), |this| {
            this.write_braced("apply", |this| {
                this.flags = vec![None];
                this.write_block(block)
            })
        })?;
        self.write_line("");
        Ok(())
    }

    fn write_pipeline(&mut self, name: &str, block: &Block, uses: &Uses) -> Result<(), NotExpressibleInP4> {
        self.write_braced(&format!("control {name}({PARAMS}, {STANDARD})"), |this| {
            this.write_memory(&uses.registers, &uses.counters);
            let mut declared: Vec<ActionId> = Vec::new();
            for table in &uses.tables {
                for action in actions(&this.program.tables[*table as usize]) {
                    if !declared.contains(&action) {
                        declared.push(action);
                        this.write_action(action)?;
                    }
                }
                this.write_table(*table as usize);
            }
            let whole = this.write_with_flags(|this| this.write_block(block))?;
            this.write_braced("apply", |this| this.text.push_str(&whole));
            Ok(())
        })?;
        self.write_line("");
        Ok(())
    }

    /// Emits one level deeper, with the declarations of the flags that the text needs in front of it.
    fn write_with_flags(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), NotExpressibleInP4>,
    ) -> Result<String, NotExpressibleInP4> {
        let before = std::mem::take(&mut self.text);
        self.flags = vec![None];
        self.left.clear();
        self.depth += 1;
        let done = write(self);
        let body = std::mem::take(&mut self.text);
        for flag in std::mem::take(&mut self.left) {
            self.write_line(&format!("bool {flag};"));
        }
        self.depth -= 1;
        let flags = std::mem::replace(&mut self.text, before);
        done.map(|()| flags + &body)
    }

    fn write_memory(&mut self, registers: &[u32], counters: &[u32]) {
        for id in registers {
            let register = &self.program.registers[*id as usize];
            let (ty, name) = (type_name(register.ty), self.names.registers[*id as usize].clone());
            if register.mirrored {
                self.write_line("@mirrored");
            }
            self.write_line(&format!("register<{ty}>({}) {name};", register.size));
        }
        for id in counters {
            let (size, name) = (self.program.counters[*id as usize].size, self.names.counters[*id as usize].clone());
            self.write_line(&format!("counter({size}, CounterType.packets_and_bytes) {name};"));
        }
        if !registers.is_empty() || !counters.is_empty() {
            self.write_line("");
        }
    }

    fn write_action(&mut self, id: ActionId) -> Result<(), NotExpressibleInP4> {
        let action = &self.program.actions[id.0 as usize];
        let name = self.names.actions[id.0 as usize].clone();
        let params: Vec<String> =
            action.params.iter().map(|slot| format!("{} {}", self.ty(*slot), self.names.field(*slot))).collect();
        // An action's parameter takes the place of its slot.
        let taken: Vec<String> = action
            .params
            .iter()
            .map(|slot| format!("{} = {};", self.names.slot(self.program, *slot), self.names.field(*slot)))
            .collect();
        let written = written(&action.body);
        // A parameter that only this action reads, and nothing writes, needs no slot.
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
            .filter(|(slot, _)| written.contains(slot) || self.is_read_elsewhere(**slot, id))
            .map(|(_, line)| line)
            .collect();
        let body = self.write_with_flags(|this| {
            kept.iter().for_each(|line| this.write_line(line));
            this.write_block(&action.body)
        });
        self.params.clear();
        let body = body?;
        self.write_braced(&format!("action {name}({})", params.join(", ")), |this| this.text.push_str(&body));
        self.write_line("");
        Ok(())
    }

    /// True if anything but this action reads the slot.
    fn is_read_elsewhere(&self, slot: crate::ir::SlotId, action: ActionId) -> bool {
        let count = |program: &crate::ir::Program| {
            let mut reads = 0;
            visit::expressions(program, &mut |expr| {
                reads += u32::from(expr.kind == ExprKind::Slot(slot));
            });
            reads
        };
        let mut own = 0;
        visit::block(&self.program.actions[action.0 as usize].body, &mut |stmt| {
            visit::operands(stmt, &mut |expr| {
                visit::inside(expr, &mut |expr| own += u32::from(expr.kind == ExprKind::Slot(slot)));
            });
        });
        count(self.program) > own
    }

    fn write_table(&mut self, id: usize) {
        let table = &self.program.tables[id];
        let name = self.names.tables[id].clone();
        if table.mirrored {
            self.write_line("@mirrored");
        }
        self.write_braced(&format!("table {name}"), |this| {
            if !table.keys.is_empty() {
                this.write_braced("key =", |this| {
                    for key in &table.keys {
                        let kind = if key.kind == MatchKind::Lpm { "lpm" } else { "exact" };
                        let line = format!(
                            "{}: {kind} @name(\"{}\");",
                            this.expr(&key.expr),
                            super::names::identifier(&key.name)
                        );
                        this.write_line(&line);
                    }
                });
            }
            this.write_braced("actions =", |this| {
                for action in actions(table) {
                    let only = if table.actions.contains(&action) { "" } else { "@defaultonly " };
                    let line = format!("{only}{};", this.names.actions[action.0 as usize]);
                    this.write_line(&line);
                }
            });
            let default = this.call(table.default.0, &table.default.1);
            this.write_line(&format!("default_action = {default};"));
            if !table.entries.is_empty() {
                this.write_braced("const entries =", |this| {
                    table.entries.iter().for_each(|entry| this.write_entry(table, entry))
                });
            }
            if !table.keys.is_empty() {
                this.write_line(&format!("size = {};", table.size));
            }
            if let Some(idle) = table.idle_timeout_ms {
                this.write_line(&format!("idle_timeout = {idle};"));
            }
        });
        self.write_line("");
    }

    fn write_entry(&mut self, table: &Table, entry: &TableEntry) {
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
        self.write_line(&format!("{keys}: {call};"));
    }

    fn call(&self, action: ActionId, args: &[u128]) -> String {
        let params = &self.program.actions[action.0 as usize].params;
        let arg = |(slot, arg): (&crate::ir::SlotId, &u128)| constant(self.program.slots[slot.0 as usize].ty, *arg);
        let args: Vec<String> = params.iter().zip(args).map(arg).collect();
        format!("{}({})", self.names.actions[action.0 as usize], args.join(", "))
    }
}

/// Actions of a table, the default action included.
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
    visit::block(block, &mut |stmt| match &stmt.kind {
        StmtKind::Assign { to, .. } | StmtKind::Read { to, .. } | StmtKind::Hash { to, .. } => written.push(*to),
        StmtKind::Update { to, .. } => written.extend(to),
        StmtKind::Apply { hit, action, .. } => written.extend(hit.iter().chain(action)),
        _ => {}
    });
    written
}
