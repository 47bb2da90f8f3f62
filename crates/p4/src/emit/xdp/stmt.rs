//! Statements in C.

use super::bits::computed;
use super::{Emitter, Unsupported};
use crate::ir::{Block, Expr, Stmt, StmtKind};

/// `PacketTooShort` of P4_16's core errors.
pub(super) const TOO_SHORT: u16 = 1;

impl Emitter<'_> {
    pub(super) fn emit_block(&mut self, block: &Block) -> Result<(), Unsupported> {
        for (at, stmt) in block.iter().enumerate() {
            self.share_cell(block, at);
            self.emit_stmt(stmt)?;
        }
        Ok(())
    }

    pub(super) fn emit_stmt(&mut self, stmt: &Stmt) -> Result<(), Unsupported> {
        match &stmt.kind {
            StmtKind::Assign { to, value } => {
                self.emit_bounds_check(&[value]);
                let value = self.plan.value(value);
                self.emit_assign(*to, &value);
            }
            StmtKind::SetValid { header, valid: true } => self.emit_set_valid(*header),
            StmtKind::SetValid { header, valid: false } => self.emit_set_invalid(*header),
            StmtKind::If { condition, then, otherwise } => {
                self.emit_bounds_check(&[condition]);
                let head = format!("if ({})", self.plan.value(condition));
                self.write_braced(&head, |this| this.emit_block(then))?;
                if !otherwise.is_empty() {
                    self.write_braced("else", |this| this.emit_block(otherwise))?;
                }
            }
            StmtKind::Apply { table, hit, action } => self.emit_apply(*table, *hit, *action, stmt)?,
            StmtKind::Body(block) => self.emit_body(block)?,
            StmtKind::Return => match self.returns.last_mut() {
                Some((label, used)) => {
                    *used = true;
                    let line = format!("goto body_{label};");
                    self.write_line(&line);
                }
                None => self.write_line(&format!("goto {};", self.exit)),
            },
            StmtKind::Exit => self.write_line(&format!("goto {};", self.exit)),
            StmtKind::Read { register, index, to } => self.emit_read(*register, index, *to, stmt),
            StmtKind::Write { register, index, value } => self.emit_write(*register, index, value, stmt),
            StmtKind::Update { register, index, op, operand, to } => {
                self.emit_update(*register, index, *op, operand, *to, stmt)?;
            }
            StmtKind::Count { counter, index } => self.emit_count(*counter, index),
            StmtKind::Hash { to, algorithm, base, inputs, max } => {
                self.emit_hash(*to, *algorithm, base, inputs, max);
            }
            StmtKind::Checksum { condition, to, algorithm, inputs, payload } => {
                let head = format!("if ({})", self.plan.value(condition));
                self.write_braced(&head, |this| {
                    this.emit_checksum(*algorithm, inputs, *payload, stmt)?;
                    let value = super::bits::masked("hash", this.plan.program.width(*to));
                    this.emit_assign(*to, &value);
                    Ok(())
                })?;
            }
            StmtKind::Verify { condition, expected, algorithm, inputs, payload } => {
                let head = format!("if ({})", self.plan.value(condition));
                self.write_braced(&head, |this| {
                    this.emit_checksum(*algorithm, inputs, *payload, stmt)?;
                    let line = format!("if (hash != {})", this.plan.value(expected));
                    let wrong = this.plan.standard(crate::ir::StandardField::ChecksumError);
                    if let Some(wrong) = wrong {
                        this.write_line(&line);
                        let slot = this.plan.slot(wrong);
                        this.write_line(&format!("\t{slot} = 1;"));
                    }
                    Ok(())
                })?;
            }
            StmtKind::Extract { header, varbits } => self.emit_extract(*header, varbits.as_ref()),
            StmtKind::Advance(by) => self.emit_advance(by),
            StmtKind::Require { condition, error } => {
                self.emit_bounds_check(&[condition]);
                let condition = format!("!({})", self.plan.value(condition));
                self.emit_parser_error(&condition, *error);
            }
            StmtKind::Digest { name, values } => self.emit_digest(name, values),
            StmtKind::Truncate(to) => {
                let line = format!("{} = {};", self.plan.packet_variable("keep"), self.plan.value(to));
                self.write_line(&line);
            }
            StmtKind::Recirculate => {
                let line = format!("{} = 1;", self.plan.packet_variable("again"));
                self.write_line(&line);
            }
            // Refused by [`super::unsupported`].
            StmtKind::Clone { .. } | StmtKind::Remote | StmtKind::Steer { .. } => {}
        }
        Ok(())
    }

    /// Emits a body; `return` leaves it.
    pub(super) fn emit_body(&mut self, block: &Block) -> Result<(), Unsupported> {
        let label = self.new_label();
        self.returns.push((label, false));
        self.emit_block(block)?;
        if let Some((label, true)) = self.returns.pop() {
            self.write_line(&format!("body_{label}:;"));
        }
        Ok(())
    }

    /// Emits a local variable with the value of an expression.
    pub(super) fn emit_variable(&mut self, name: &str, value: &Expr) {
        let line = format!("{} {name} = {};", computed(value.ty.width()), self.plan.value(value));
        self.write_line(&line);
    }
}
