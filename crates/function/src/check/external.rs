//! v1model's functions, and ours: `steer`, `remote_handler`.

use super::types::Type;
use super::value::Val;
use super::{Checked, Checker, Item, Within};
use crate::ast::{self, ExprKind};
use crate::diag::Diagnostic;
use crate::ir::{DROP_PORT, Expr, HashAlgorithm, Span, Standard, StmtKind, Ty};

/// What v1model has and the subset has not, and what to do instead.
const REFUSED: [(&str, &str); 11] = [
    ("random", "hash fields that differ, or count in a register"),
    ("resubmit", "use `recirculate_preserving_field_list`, or write the steps one after another"),
    ("resubmit_preserving_field_list", "use `recirculate_preserving_field_list`"),
    ("clone3", "use `clone(CloneType.I2E, port)`"),
    ("clone_preserving_field_list", "use `clone(CloneType.I2E, port)`; a header field takes along what metadata held"),
    ("recirculate", "use `recirculate_preserving_field_list(0)`; a header field takes along what metadata held"),
    ("assert", "`verify` in a parser, `if` in a control"),
    ("assume", "leave it out"),
    ("log_msg", "leave it out; `digest` tells a controller"),
    ("execute_meter", "keep time and bytes in a `register`"),
    ("static_assert", "write `#if … #error … #endif`"),
];

/// Functions that are known, for a name that is nearly one.
const KNOWN: [&str; 12] = [
    "mark_to_drop",
    "hash",
    "digest",
    "clone",
    "recirculate_preserving_field_list",
    "truncate",
    "verify",
    "verify_checksum",
    "update_checksum",
    "verify_checksum_with_payload",
    "update_checksum_with_payload",
    "steer",
];

impl<'a> Checker<'a> {
    pub(super) fn external(
        &mut self,
        name: &str,
        of: Span,
        types: &[ast::Type],
        args: &[ast::Arg],
        at: Span,
    ) -> Checked<Val> {
        match name {
            "mark_to_drop" => self.mark_to_drop(args, at)?,
            "hash" => self.hash(args, at)?,
            "digest" => self.digest(types, args, at)?,
            "clone" => self.clone_packet(args, at)?,
            "recirculate_preserving_field_list" => {
                self.in_pipeline("recirculation", at)?;
                let [_list] = self.arguments(args, "recirculate_preserving_field_list(0)", at)?;
                self.emit(StmtKind::Recirculate, at);
            }
            "truncate" => {
                self.in_pipeline("`truncate`", at)?;
                let [length] = self.arguments(args, "truncate(length)", at)?;
                let length = self.expr_as(&length.value, &Type::Bit(32))?;
                self.emit(StmtKind::Truncate(length), at);
            }
            "verify" => {
                if self.within != Within::Parser {
                    let wrong = Diagnostic::new(at, "`verify` outside of a parser");
                    return self.fail(wrong.hint("write `if` in a control"));
                }
                let [condition, error] = self.arguments(args, "verify(condition, error.NoMatch)", at)?;
                let condition = self.condition(&condition.value)?;
                let error = self.known(&error.value, &Type::Error)? as u16;
                self.emit(StmtKind::Require { condition, error }, at);
            }
            "verify_checksum" => self.checksum(args, true, false, at)?,
            "verify_checksum_with_payload" => self.checksum(args, true, true, at)?,
            "update_checksum" => self.checksum(args, false, false, at)?,
            "update_checksum_with_payload" => self.checksum(args, false, true, at)?,
            "steer" => self.steer(args, at)?,
            "remote_handler" => self.remote(args, at)?,
            _ => {
                if let Some((_, hint)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
                    let wrong = Diagnostic::new(of, format!("`{name}` is not in the subset"));
                    return self.fail(wrong.hint(*hint));
                }
                if let Some(known) = super::closest(name, KNOWN.to_vec()) {
                    let wrong = Diagnostic::new(of, format!("no function or action `{name}`"));
                    return self.fail(wrong.hint(format!("there is `{known}`")));
                }
                return self.unknown(of, name, "function or action");
            }
        }
        Ok(Val::Void)
    }

    /// v1model: the port that means drop, and no multicast.
    fn mark_to_drop(&mut self, args: &[ast::Arg], at: Span) -> Checked<()> {
        self.in_pipeline("`mark_to_drop`", at)?;
        let [standard] = self.arguments(args, "mark_to_drop(standard_metadata)", at)?;
        self.target(&standard.value)?;
        for (field, value) in [(Standard::EgressSpec, DROP_PORT), (Standard::McastGroup, 0)] {
            if let Some(&to) = self.standard.get(&field) {
                let value = Expr::constant(self.program.slots[to.0 as usize].ty, value);
                self.emit(StmtKind::Assign { to, value }, at);
            }
        }
        Ok(())
    }

    /// `hash(result, algorithm, base, { data }, max)`
    fn hash(&mut self, args: &[ast::Arg], at: Span) -> Checked<()> {
        let usage = "hash(result, HashAlgorithm.crc32, base, { data }, max)";
        let [to, algorithm, base, data, max] = self.arguments(args, usage, at)?;
        let place = self.target(&to.value)?;
        let ty = place.ty();
        let Some(width) = ty.scalar().map(Ty::width).filter(|_| matches!(ty.base(), Type::Bit(_))) else {
            return self.fail(Diagnostic::new(to.value.at, format!("a hash is a `bit`, not a `{ty}`")));
        };
        let algorithm = self.algorithm(&algorithm.value)?;
        let mut read = vec![self.bits(&base.value, width)?];
        let before = self.block.len();
        let inputs = self.inputs(&data.value)?;
        self.read_before(&mut read, before, at)?;
        read.extend(inputs);
        let before = self.block.len();
        let max = self.bits(&max.value, 64)?;
        self.read_before(&mut read, before, at)?;
        let base = read.remove(0);
        let inputs = read;
        self.into(&place, &ty, at, |to| StmtKind::Hash { to, algorithm, base, inputs, max })
    }

    /// `update_checksum(condition, { data }, field, algorithm)`, `verify_checksum(…)`
    fn checksum(&mut self, args: &[ast::Arg], verify: bool, payload: bool, at: Span) -> Checked<()> {
        if self.within != Within::Checksum {
            let wrong = Diagnostic::new(at, "a checksum outside of the controls for checksums");
            return self.fail(wrong.hint("V1Switch's second control verifies, its fifth computes them"));
        }
        let usage = "update_checksum(condition, { data }, field, HashAlgorithm.csum16)";
        let [condition, data, field, algorithm] = self.arguments(args, usage, at)?;
        let mut read = vec![self.condition(&condition.value)?];
        let before = self.block.len();
        let inputs = self.inputs(&data.value)?;
        self.read_before(&mut read, before, at)?;
        read.extend(inputs);
        let algorithm = self.algorithm(&algorithm.value)?;
        if verify {
            let before = self.block.len();
            let value = self.expr(&field.value)?;
            let (_, expected) = self.scalar(&value, field.value.at)?;
            self.read_before(&mut read, before, at)?;
            let condition = read.remove(0);
            self.emit(StmtKind::Verify { condition, expected, algorithm, inputs: read, payload }, at);
            return Ok(());
        }
        let place = self.target(&field.value)?;
        let ty = place.ty();
        let condition = read.remove(0);
        self.into(&place, &ty, at, |to| StmtKind::Checksum { condition, to, algorithm, inputs: read, payload })
    }

    /// `{ a, b }`, a struct, a tuple, or one value.
    fn inputs(&mut self, data: &ast::Expr) -> Checked<Vec<Expr>> {
        let value = self.expr(data)?;
        let mut inputs = Vec::new();
        self.flat(&value, data.at, &mut inputs)?;
        Ok(inputs)
    }

    fn algorithm(&mut self, expr: &ast::Expr) -> Checked<HashAlgorithm> {
        let name = match (&expr.kind, self.expr(expr)?.ty()) {
            (ExprKind::Member(_, name), Some(Type::Enum(of))) if &*of.name == "HashAlgorithm" => name,
            _ => {
                let wrong = Diagnostic::new(expr.at, "expected an algorithm");
                return self.fail(wrong.hint("there are HashAlgorithm.crc32, crc16, csum16, xor16, identity"));
            }
        };
        match &*name.text {
            "crc32" => Ok(HashAlgorithm::Crc32),
            "crc16" => Ok(HashAlgorithm::Crc16),
            "csum16" => Ok(HashAlgorithm::Csum16),
            "xor16" => Ok(HashAlgorithm::Xor16),
            "identity" => Ok(HashAlgorithm::Identity),
            other => {
                let wrong = Diagnostic::new(name.at, format!("algorithm `{other}` is not in the subset"));
                self.fail(wrong.hint("there are crc32, crc16, csum16, xor16, identity"))
            }
        }
    }

    /// `digest(receiver, data)`: of the kind that its struct is named.
    fn digest(&mut self, types: &[ast::Type], args: &[ast::Arg], at: Span) -> Checked<()> {
        self.in_pipeline("`digest`", at)?;
        let [receiver, data] = self.arguments(args, "digest(1, data)", at)?;
        self.bits(&receiver.value, 32)?;
        let mut value = self.expr(&data.value)?;
        if let [ty] = types {
            let ty = self.ty(ty)?;
            value = self.coerce(value, &ty, data.value.at)?;
        }
        let name = match value.ty() {
            Some(Type::Struct(of) | Type::Header(of)) => of.name.to_string(),
            _ => "digest".to_owned(),
        };
        let mut values = Vec::new();
        self.flat(&value, data.value.at, &mut values)?;
        self.emit(StmtKind::Digest { name, values }, at);
        Ok(())
    }

    /// `clone(CloneType.I2E, port)`
    fn clone_packet(&mut self, args: &[ast::Arg], at: Span) -> Checked<()> {
        let [kind, session] = self.arguments(args, "clone(CloneType.I2E, port)", at)?;
        let ingress = matches!(&kind.value.kind, ExprKind::Member(_, name) if &*name.text == "I2E");
        self.expr(&kind.value)?;
        if !ingress || self.within != Within::Ingress {
            let wrong = Diagnostic::new(at, "a clone that is not from ingress to egress");
            return self.fail(wrong.hint("write `clone(CloneType.I2E, port)` in the ingress"));
        }
        let session = self.bits(&session.value, 32)?;
        self.emit(StmtKind::Clone { session }, at);
        Ok(())
    }

    /// `steer(value)` of the only partition, or `steer(partition, value)`.
    fn steer(&mut self, args: &[ast::Arg], at: Span) -> Checked<()> {
        self.in_pipeline("`steer`", at)?;
        let named = match args {
            [first, _] => match &first.value.kind {
                ExprKind::Name(name) => self.lookup(name),
                _ => None,
            },
            _ => None,
        };
        let (index, value) = match (named, args) {
            (Some(Item::Partition(index)), [_, value]) => (index, value),
            (None, [value]) if self.program.partitions.len() == 1 => (0, value),
            _ => {
                let wrong = Diagnostic::new(at, "expected a partition and a value of it");
                return self.fail(wrong.hint(match self.program.partitions.len() {
                    0 => "declare one: partition bit<16> ports = 1024 .. 65535;",
                    _ => "write `steer(partition, value)`",
                }));
            }
        };
        let partition = &self.program.partitions[index];
        let (name, ty) = (partition.name.clone(), partition.ty);
        let value = self.expr_as(&value.value, &Type::Bit(ty.width()))?;
        self.emit(StmtKind::Steer { partition: name, value }, at);
        Ok(())
    }
}
