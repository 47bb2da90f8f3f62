//! Statements in C.

use super::bits::computed;
use super::{Emitter, Unsupported};
use crate::ir::{Block, Expr, Stmt, StmtKind};

/// `PacketTooShort` of P4_16's core errors.
pub(super) const TOO_SHORT: u16 = 1;

impl Emitter<'_> {
    pub(super) fn block(&mut self, block: &Block) -> Result<(), Unsupported> {
        for (at, stmt) in block.iter().enumerate() {
            self.share(block, at);
            self.stmt(stmt)?;
        }
        Ok(())
    }

    pub(super) fn stmt(&mut self, stmt: &Stmt) -> Result<(), Unsupported> {
        match &stmt.kind {
            StmtKind::Assign { to, value } => {
                self.look_ahead(&[value]);
                let value = self.plan.value(value);
                self.assign(*to, &value);
            }
            StmtKind::SetValid { header, valid: true } => self.set_valid(*header),
            StmtKind::SetValid { header, valid: false } => self.set_invalid(*header),
            StmtKind::If { condition, then, otherwise } => {
                self.look_ahead(&[condition]);
                let head = format!("if ({})", self.plan.value(condition));
                self.braced(&head, |this| this.block(then))?;
                if !otherwise.is_empty() {
                    self.braced("else", |this| this.block(otherwise))?;
                }
            }
            StmtKind::Apply { table, hit, action } => self.apply(*table, *hit, *action, stmt)?,
            StmtKind::Body(block) => self.body(block)?,
            StmtKind::Return => match self.returns.last_mut() {
                Some((label, used)) => {
                    *used = true;
                    let line = format!("goto body_{label};");
                    self.line(&line);
                }
                None => self.line(&format!("goto {};", self.exit)),
            },
            StmtKind::Exit => self.line(&format!("goto {};", self.exit)),
            StmtKind::Read { register, index, to } => self.read(*register, index, *to, stmt),
            StmtKind::Write { register, index, value } => self.write(*register, index, value, stmt),
            StmtKind::Update { register, index, op, operand, to } => {
                self.update(*register, index, *op, operand, *to, stmt)?;
            }
            StmtKind::Count { counter, index } => self.count(*counter, index),
            StmtKind::Hash { to, algorithm, base, inputs, max } => {
                self.hash(*to, *algorithm, base, inputs, max);
            }
            StmtKind::Checksum { condition, to, algorithm, inputs, payload } => {
                let head = format!("if ({})", self.plan.value(condition));
                self.braced(&head, |this| {
                    this.digest_of(*algorithm, inputs, *payload, stmt)?;
                    let value = super::bits::masked("hash", this.plan.program.width(*to));
                    this.assign(*to, &value);
                    Ok(())
                })?;
            }
            StmtKind::Verify { condition, expected, algorithm, inputs, payload } => {
                let head = format!("if ({})", self.plan.value(condition));
                self.braced(&head, |this| {
                    this.digest_of(*algorithm, inputs, *payload, stmt)?;
                    let line = format!("if (hash != {})", this.plan.value(expected));
                    let wrong = this.plan.standard(crate::ir::Standard::ChecksumError);
                    if let Some(wrong) = wrong {
                        this.line(&line);
                        let slot = this.plan.slot(wrong);
                        this.line(&format!("\t{slot} = 1;"));
                    }
                    Ok(())
                })?;
            }
            StmtKind::Extract { header, varbits } => self.extract(*header, varbits.as_ref()),
            StmtKind::Advance(by) => self.advance(by),
            StmtKind::Require { condition, error } => {
                self.look_ahead(&[condition]);
                let condition = format!("!({})", self.plan.value(condition));
                self.fail(&condition, *error);
            }
            StmtKind::Digest { name, values } => self.digest(name, values),
            StmtKind::Truncate(to) => {
                let line = format!("{} = {};", self.plan.held("keep"), self.plan.value(to));
                self.line(&line);
            }
            StmtKind::Recirculate => {
                let line = format!("{} = 1;", self.plan.held("again"));
                self.line(&line);
            }
            // Refused before.
            StmtKind::Clone { .. } | StmtKind::Remote | StmtKind::Steer { .. } => {}
        }
        Ok(())
    }

    /// A body of its own: `return` leaves it.
    pub(super) fn body(&mut self, block: &Block) -> Result<(), Unsupported> {
        let label = self.label();
        self.returns.push((label, false));
        self.block(block)?;
        if let Some((label, true)) = self.returns.pop() {
            self.line(&format!("body_{label}:;"));
        }
        Ok(())
    }

    /// A variable of this statement, that holds the value.
    pub(super) fn variable(&mut self, name: &str, value: &Expr) {
        let line = format!("{} {name} = {};", computed(value.ty.width()), self.plan.value(value));
        self.line(&line);
    }
}
