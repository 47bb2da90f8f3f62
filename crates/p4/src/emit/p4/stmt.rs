//! Statements.

use super::{NotExpressibleInP4, P4Writer, names, type_name};
use crate::emit::visit;
use crate::ir::{Block, HashAlgorithm, SlotId, Stmt, StmtKind, Ty};

impl P4Writer<'_> {
    /// Emits statements; those after a statement that may leave the body become conditional.
    pub(super) fn write_block(&mut self, block: &[Stmt]) -> Result<(), NotExpressibleInP4> {
        let Some((first, rest)) = block.split_first() else { return Ok(()) };
        self.write_stmt(first)?;
        if matches!(first.kind, StmtKind::Return | StmtKind::Exit) {
            return Ok(());
        }
        match self.flags.last().cloned().flatten() {
            Some(flag) if may_leave(first) && !rest.is_empty() => {
                self.write_braced(&format!("if (!{flag})"), |this| this.write_block(rest))
            }
            _ => self.write_block(rest),
        }
    }

    fn write_stmt(&mut self, stmt: &Stmt) -> Result<(), NotExpressibleInP4> {
        let refuse =
            |construct: &str, why| Err(NotExpressibleInP4 { construct: construct.to_owned(), why, at: stmt.at });
        match &stmt.kind {
            StmtKind::Assign { to, value } => {
                let value = self.expr(value);
                self.write_assign(*to, &value);
            }
            StmtKind::SetValid { header, valid } => {
                let set = if *valid { "setValid" } else { "setInvalid" };
                let line = format!("{}.{set}();", self.names.headers[header.0 as usize]);
                self.write_line(&line);
            }
            StmtKind::If { condition, then, otherwise } => {
                let condition = self.expr(condition);
                self.write_braced(&format!("if ({condition})"), |this| this.write_block(then))?;
                if !otherwise.is_empty() {
                    self.write_braced("else", |this| this.write_block(otherwise))?;
                }
            }
            StmtKind::Apply { hit: Some(_), action: Some(_), .. } => {
                return refuse("a table's hit and action at once", "use only one of both");
            }
            StmtKind::Apply { table, hit, action } => self.write_apply(table.0 as usize, *hit, *action),
            StmtKind::Body(block) => self.write_body(block)?,
            StmtKind::Return => match self.flags.last().cloned().flatten() {
                Some(flag) => self.write_line(&format!("{flag} = true;")),
                None => self.write_line("return;"),
            },
            StmtKind::Exit => self.write_line("exit;"),
            StmtKind::Read { register, index, to } => {
                let (name, index) = (self.names.registers[register.0 as usize].clone(), self.index(index));
                let to = self.place(*to);
                self.write_line(&format!("{name}.read({to}, {index});"));
            }
            StmtKind::Write { register, index, value } => {
                let (name, index) = (self.names.registers[register.0 as usize].clone(), self.index(index));
                let value = self.expr(value);
                self.write_line(&format!("{name}.write({index}, {value});"));
            }
            StmtKind::Update { register, index, op, operand, to } => {
                let of = &self.program.registers[register.0 as usize];
                let (name, ty) = (self.names.registers[register.0 as usize].clone(), type_name(of.ty));
                let (index, operand) = (self.index(index), self.expr(operand));
                let (cell, to) = (self.names.fresh("cell"), to.map(|to| self.place(to)));
                self.write_braced("", |this| {
                    this.write_line(&format!("{ty} {cell};"));
                    this.write_line(&format!("{name}.read({cell}, {index});"));
                    this.write_line(&format!("{cell} = {cell} {} {operand};", op.symbol()));
                    this.write_line(&format!("{name}.write({index}, {cell});"));
                    if let Some(to) = to {
                        this.write_line(&format!("{to} = {cell};"));
                    }
                });
            }
            StmtKind::Count { counter, index } => {
                let (name, index) = (self.names.counters[counter.0 as usize].clone(), self.index(index));
                self.write_line(&format!("{name}.count({index});"));
            }
            StmtKind::Hash { to, algorithm, base, inputs, max } => {
                let (to, base, max) = (self.place(*to), self.expr(base), self.expr(max));
                let line = format!("hash({to}, {}, {base}, {}, {max});", algorithm_name(*algorithm), self.list(inputs));
                self.write_line(&line);
            }
            StmtKind::Checksum { condition, to, algorithm, inputs, payload } => {
                let to = self.place(*to);
                self.write_checksum("update_checksum", *payload, condition, inputs, &to, *algorithm);
            }
            StmtKind::Verify { condition, expected, algorithm, inputs, payload } => {
                let expected = self.expr(expected);
                self.write_checksum("verify_checksum", *payload, condition, inputs, &expected, *algorithm);
            }
            StmtKind::Extract { header, varbits } => {
                let name = self.names.headers[header.0 as usize].clone();
                let varbit = self.program.headers[header.0 as usize].varbit_bits_max.is_some();
                match varbits {
                    Some(bits) => {
                        let bits = self.as_32_bits(bits);
                        self.write_line(&format!("packet.extract({name}, {bits});"));
                    }
                    None if varbit => self.write_line(&format!("packet.extract({name}, 32w0);")),
                    None => self.write_line(&format!("packet.extract({name});")),
                }
            }
            StmtKind::Advance(by) => {
                let by = self.as_32_bits(by);
                self.write_line(&format!("packet.advance({by});"));
            }
            StmtKind::Require { condition, error } => {
                let line = format!("verify({}, error.{});", self.expr(condition), names::error(*error));
                self.write_line(&line);
            }
            StmtKind::Digest { name, values } => {
                self.digest_count += 1;
                let (variable, values) = (format!("told_{}", self.digest_count), self.list(values));
                let name = names::identifier(name);
                self.write_braced("", |this| {
                    this.write_line(&format!("{name} {variable} = {values};"));
                    this.write_line(&format!("digest<{name}>(1, {variable});"));
                });
            }
            StmtKind::Clone { session } => {
                let session = self.as_32_bits(session);
                self.write_line(&format!("clone(CloneType.I2E, {session});"));
            }
            StmtKind::Recirculate => self.write_line("recirculate_preserving_field_list(0);"),
            StmtKind::Truncate(to) => {
                let to = self.as_32_bits(to);
                self.write_line(&format!("truncate({to});"));
            }
            StmtKind::Steer { .. } => return refuse("steer", "split the function first"),
            StmtKind::Remote => return refuse("remote_handler", "split the function first"),
        }
        Ok(())
    }

    /// Emits a body; a `return` that is not at its end sets a flag variable.
    fn write_body(&mut self, block: &Block) -> Result<(), NotExpressibleInP4> {
        let flag = block.iter().any(may_leave).then(|| self.names.fresh("left"));
        if let Some(flag) = &flag {
            self.left.push(flag.clone());
            self.write_line(&format!("{flag} = false;"));
        }
        self.flags.push(flag);
        let done = self.write_block(block);
        self.flags.pop();
        done
    }

    fn write_apply(&mut self, table: usize, hit: Option<SlotId>, action: Option<SlotId>) {
        let name = self.names.tables[table].clone();
        if let Some(hit) = hit {
            let hit = self.place(hit);
            self.write_braced(&format!("if ({name}.apply().hit)"), |this| this.write_line(&format!("{hit} = true;")));
            self.write_braced("else", |this| this.write_line(&format!("{hit} = false;")));
            return;
        }
        let Some(action) = action else {
            self.write_line(&format!("{name}.apply();"));
            return;
        };
        let place = self.place(action);
        let ty = self.program.slots[action.0 as usize].ty;
        let actions = super::control::actions(&self.program.tables[table]);
        self.write_braced(&format!("switch ({name}.apply().action_run)"), |this| {
            for (i, action) in actions.iter().enumerate() {
                let name = this.names.actions[action.0 as usize].clone();
                let number = super::expr::constant(ty, i as u128);
                this.write_line(&format!("{name}: {{ {place} = {number}; }}"));
            }
        });
    }

    fn write_checksum(
        &mut self,
        name: &str,
        payload: bool,
        condition: &crate::ir::Expr,
        inputs: &[crate::ir::Expr],
        field: &str,
        algorithm: HashAlgorithm,
    ) {
        let (condition, inputs) = (self.expr(condition), self.list(inputs));
        let payload = if payload { "_with_payload" } else { "" };
        self.write_line(&format!("{name}{payload}({condition}, {inputs}, {field}, {});", algorithm_name(algorithm)));
    }

    fn write_assign(&mut self, to: SlotId, value: &str) {
        let to = self.place(to);
        self.write_line(&format!("{to} = {value};"));
    }

    /// Assignable expression of a slot.
    fn place(&self, slot: SlotId) -> String {
        self.names.slot(self.program, slot)
    }

    fn list(&self, values: &[crate::ir::Expr]) -> String {
        format!("{{ {} }}", values.iter().map(|value| self.expr(value)).collect::<Vec<_>>().join(", "))
    }

    /// Cell index, as `bit<32>`.
    fn index(&self, index: &crate::ir::Expr) -> String {
        self.as_32_bits(index)
    }

    /// Number as `bit<32>`.
    fn as_32_bits(&self, of: &crate::ir::Expr) -> String {
        if of.ty == Ty::Bit(32) {
            return self.expr(of);
        }
        let kind = crate::ir::ExprKind::Cast(Box::new(of.clone()));
        self.expr(&crate::ir::Expr { ty: Ty::Bit(32), kind })
    }
}

/// True if a statement may leave the body that contains it.
fn may_leave(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Return => true,
        StmtKind::If { then, otherwise, .. } => then.iter().chain(otherwise).any(may_leave),
        // A nested body ends its own returns.
        _ => false,
    }
}

fn algorithm_name(algorithm: HashAlgorithm) -> &'static str {
    match algorithm {
        HashAlgorithm::Crc32 => "HashAlgorithm.crc32",
        HashAlgorithm::Crc16 => "HashAlgorithm.crc16",
        HashAlgorithm::Csum16 => "HashAlgorithm.csum16",
        HashAlgorithm::Xor16 => "HashAlgorithm.xor16",
        HashAlgorithm::Identity => "HashAlgorithm.identity",
    }
}

/// Registers, counters and tables that a block uses, by number.
#[derive(Debug, Default)]
pub(super) struct Uses {
    pub(super) registers: Vec<u32>,
    pub(super) counters: Vec<u32>,
    pub(super) tables: Vec<u32>,
}

/// Collects the uses of a block and of the actions of its tables.
pub(super) fn uses(program: &crate::ir::Program, block: &Block, found: &mut Uses) {
    let mut tables = Vec::new();
    visit::block(block, &mut |stmt| match &stmt.kind {
        StmtKind::Read { register, .. } | StmtKind::Write { register, .. } | StmtKind::Update { register, .. } => {
            found.registers.push(register.0);
        }
        StmtKind::Count { counter, .. } => found.counters.push(counter.0),
        StmtKind::Apply { table, .. } => tables.push(table.0),
        _ => {}
    });
    for table in tables {
        if !found.tables.contains(&table) {
            found.tables.push(table);
            for action in super::control::actions(&program.tables[table as usize]) {
                uses(program, &program.actions[action.0 as usize].body, found);
            }
        }
    }
    found.registers.sort_unstable();
    found.registers.dedup();
    found.counters.sort_unstable();
    found.counters.dedup();
}
