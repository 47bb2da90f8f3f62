//! Statements.

use super::{Text, Unsayable, names, type_name};
use crate::emit::walk;
use crate::ir::{Block, HashAlgorithm, SlotId, Stmt, StmtKind, Ty};

impl Text<'_> {
    /// Statements in order; those behind one that may leave the body stand under a condition.
    pub(super) fn block(&mut self, block: &[Stmt]) -> Result<(), Unsayable> {
        let Some((first, rest)) = block.split_first() else { return Ok(()) };
        self.stmt(first)?;
        if matches!(first.kind, StmtKind::Return | StmtKind::Exit) {
            return Ok(());
        }
        match self.flags.last().cloned().flatten() {
            Some(flag) if may_leave(first) && !rest.is_empty() => {
                self.braced(&format!("if (!{flag})"), |this| this.block(rest))
            }
            _ => self.block(rest),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), Unsayable> {
        let unsayable = |construct: &str, why| Err(Unsayable { construct: construct.to_owned(), why, at: stmt.at });
        match &stmt.kind {
            StmtKind::Assign { to, value } => {
                let value = self.expr(value);
                self.assign(*to, &value);
            }
            StmtKind::SetValid { header, valid } => {
                let set = if *valid { "setValid" } else { "setInvalid" };
                let line = format!("{}.{set}();", self.names.headers[header.0 as usize]);
                self.line(&line);
            }
            StmtKind::If { condition, then, otherwise } => {
                let condition = self.expr(condition);
                self.braced(&format!("if ({condition})"), |this| this.block(then))?;
                if !otherwise.is_empty() {
                    self.braced("else", |this| this.block(otherwise))?;
                }
            }
            StmtKind::Apply { hit: Some(_), action: Some(_), .. } => {
                return unsayable("a table's hit and action at once", "ask for one of them");
            }
            StmtKind::Apply { table, hit, action } => self.apply(table.0 as usize, *hit, *action),
            StmtKind::Body(block) => self.body(block)?,
            StmtKind::Return => match self.flags.last().cloned().flatten() {
                Some(flag) => self.line(&format!("{flag} = true;")),
                None => self.line("return;"),
            },
            StmtKind::Exit => self.line("exit;"),
            StmtKind::Read { register, index, to } => {
                let (name, index) = (self.names.registers[register.0 as usize].clone(), self.index(index));
                let to = self.place(*to);
                self.line(&format!("{name}.read({to}, {index});"));
            }
            StmtKind::Write { register, index, value } => {
                let (name, index) = (self.names.registers[register.0 as usize].clone(), self.index(index));
                let value = self.expr(value);
                self.line(&format!("{name}.write({index}, {value});"));
            }
            StmtKind::Update { register, index, op, operand, to } => {
                let of = &self.program.registers[register.0 as usize];
                let (name, ty) = (self.names.registers[register.0 as usize].clone(), type_name(of.ty));
                let (index, operand) = (self.index(index), self.expr(operand));
                let (cell, to) = (self.names.fresh("cell"), to.map(|to| self.place(to)));
                self.braced("", |this| {
                    this.line(&format!("{ty} {cell};"));
                    this.line(&format!("{name}.read({cell}, {index});"));
                    this.line(&format!("{cell} = {cell} {} {operand};", op.symbol()));
                    this.line(&format!("{name}.write({index}, {cell});"));
                    if let Some(to) = to {
                        this.line(&format!("{to} = {cell};"));
                    }
                });
            }
            StmtKind::Count { counter, index } => {
                let (name, index) = (self.names.counters[counter.0 as usize].clone(), self.index(index));
                self.line(&format!("{name}.count({index});"));
            }
            StmtKind::Hash { to, algorithm, base, inputs, max } => {
                let (to, base, max) = (self.place(*to), self.expr(base), self.expr(max));
                let line = format!("hash({to}, {}, {base}, {}, {max});", algorithm_name(*algorithm), self.list(inputs));
                self.line(&line);
            }
            StmtKind::Checksum { condition, to, algorithm, inputs, payload } => {
                let to = self.place(*to);
                self.checksum("update_checksum", *payload, condition, inputs, &to, *algorithm);
            }
            StmtKind::Verify { condition, expected, algorithm, inputs, payload } => {
                let expected = self.expr(expected);
                self.checksum("verify_checksum", *payload, condition, inputs, &expected, *algorithm);
            }
            StmtKind::Extract { header, varbits } => {
                let name = self.names.headers[header.0 as usize].clone();
                let varbit = self.program.headers[header.0 as usize].varbit_bits_max.is_some();
                match varbits {
                    Some(bits) => {
                        let bits = self.wide(bits);
                        self.line(&format!("packet.extract({name}, {bits});"));
                    }
                    None if varbit => self.line(&format!("packet.extract({name}, 32w0);")),
                    None => self.line(&format!("packet.extract({name});")),
                }
            }
            StmtKind::Advance(by) => {
                let by = self.wide(by);
                self.line(&format!("packet.advance({by});"));
            }
            StmtKind::Require { condition, error } => {
                let line = format!("verify({}, error.{});", self.expr(condition), names::error(*error));
                self.line(&line);
            }
            StmtKind::Digest { name, values } => {
                self.told += 1;
                let (told, values) = (format!("told_{}", self.told), self.list(values));
                let name = names::identifier(name);
                self.braced("", |this| {
                    this.line(&format!("{name} {told} = {values};"));
                    this.line(&format!("digest<{name}>(1, {told});"));
                });
            }
            StmtKind::Clone { session } => {
                let session = self.wide(session);
                self.line(&format!("clone(CloneType.I2E, {session});"));
            }
            StmtKind::Recirculate => self.line("recirculate_preserving_field_list(0);"),
            StmtKind::Truncate(to) => {
                let to = self.wide(to);
                self.line(&format!("truncate({to});"));
            }
            StmtKind::Steer { .. } => return unsayable("steer", "split the function first"),
            StmtKind::Remote => return unsayable("remote_handler", "split the function first"),
        }
        Ok(())
    }

    /// A body that `return` leaves: under a variable, if it is left in its middle.
    fn body(&mut self, block: &Block) -> Result<(), Unsayable> {
        let flag = block.iter().any(may_leave).then(|| self.names.fresh("left"));
        if let Some(flag) = &flag {
            self.left.push(flag.clone());
            self.line(&format!("{flag} = false;"));
        }
        self.flags.push(flag);
        let done = self.block(block);
        self.flags.pop();
        done
    }

    fn apply(&mut self, table: usize, hit: Option<SlotId>, action: Option<SlotId>) {
        let name = self.names.tables[table].clone();
        if let Some(hit) = hit {
            let hit = self.place(hit);
            self.braced(&format!("if ({name}.apply().hit)"), |this| this.line(&format!("{hit} = true;")));
            self.braced("else", |this| this.line(&format!("{hit} = false;")));
            return;
        }
        let Some(action) = action else {
            self.line(&format!("{name}.apply();"));
            return;
        };
        let place = self.place(action);
        let ty = self.program.slots[action.0 as usize].ty;
        let actions = super::control::actions(&self.program.tables[table]);
        self.braced(&format!("switch ({name}.apply().action_run)"), |this| {
            for (i, action) in actions.iter().enumerate() {
                let name = this.names.actions[action.0 as usize].clone();
                let number = super::expr::constant(ty, i as u128);
                this.line(&format!("{name}: {{ {place} = {number}; }}"));
            }
        });
    }

    fn checksum(
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
        self.line(&format!("{name}{payload}({condition}, {inputs}, {field}, {});", algorithm_name(algorithm)));
    }

    fn assign(&mut self, to: SlotId, value: &str) {
        let to = self.place(to);
        self.line(&format!("{to} = {value};"));
    }

    /// A slot that is written.
    fn place(&self, slot: SlotId) -> String {
        self.names.slot(self.program, slot)
    }

    fn list(&self, values: &[crate::ir::Expr]) -> String {
        format!("{{ {} }}", values.iter().map(|value| self.expr(value)).collect::<Vec<_>>().join(", "))
    }

    /// The index of a cell: 32 bits.
    fn index(&self, index: &crate::ir::Expr) -> String {
        self.wide(index)
    }

    /// A number as `bit<32>`.
    fn wide(&self, of: &crate::ir::Expr) -> String {
        if of.ty == Ty::Bit(32) {
            return self.expr(of);
        }
        let kind = crate::ir::ExprKind::Cast(Box::new(of.clone()));
        self.expr(&crate::ir::Expr { ty: Ty::Bit(32), kind })
    }
}

/// Whether a statement may leave the body that it stands in.
fn may_leave(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Return => true,
        StmtKind::If { then, otherwise, .. } => then.iter().chain(otherwise).any(may_leave),
        // Its returns are its own.
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

/// What a block and the actions of its tables use.
pub(super) fn uses(program: &crate::ir::Program, block: &Block, found: &mut Uses) {
    let mut tables = Vec::new();
    walk::block(block, &mut |stmt| match &stmt.kind {
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
