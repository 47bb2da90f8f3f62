//! Extern functions: those of v1model, and CLIP's `steer` and `remote_handler`.

use super::types::Type;
use super::value::Val;
use super::{Checked, Checker, Item, PipelinePart};
use crate::ast::{self, ExprKind};
use crate::diag::Diagnostic;
use crate::ir::{DROP_PORT, Expr, HashAlgorithm, SourceSpan, StandardField, StmtKind, Ty};

/// Functions of v1model that the subset lacks, with the suggested replacement.
const REFUSED: [(&str, &str); 11] = [
    ("random", "hash the packet's fields, or use a register as counter"),
    ("resubmit", "use `recirculate_preserving_field_list`, or write the steps one after another"),
    ("resubmit_preserving_field_list", "use `recirculate_preserving_field_list`"),
    ("clone3", "use `clone(CloneType.I2E, port)`"),
    ("clone_preserving_field_list", "use `clone(CloneType.I2E, port)`, and carry metadata in a header field"),
    ("recirculate", "use `recirculate_preserving_field_list(0)`, and carry metadata in a header field"),
    ("assert", "`verify` in a parser, `if` in a control"),
    ("assume", "remove it"),
    ("log_msg", "remove it; use `digest` to notify the controller"),
    ("execute_meter", "store time and bytes in a `register`"),
    ("static_assert", "write `#if … #error … #endif`"),
];

/// Known functions, for spelling suggestions.
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
    pub(super) fn check_extern_call(
        &mut self,
        name: &str,
        of: SourceSpan,
        types: &[ast::Type],
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        match name {
            "mark_to_drop" => self.emit_mark_to_drop(args, at)?,
            "hash" => self.check_hash(args, at)?,
            "digest" => self.check_digest(types, args, at)?,
            "clone" => self.check_clone(args, at)?,
            "recirculate_preserving_field_list" => {
                self.require_pipeline("recirculation", at)?;
                let [_list] = self.expect_arguments(args, "recirculate_preserving_field_list(0)", at)?;
                self.emit(StmtKind::Recirculate, at);
            }
            "truncate" => {
                self.require_pipeline("`truncate`", at)?;
                let [length] = self.expect_arguments(args, "truncate(length)", at)?;
                let length = self.check_expr_as(&length.value, &Type::Bit(32))?;
                self.emit(StmtKind::Truncate(length), at);
            }
            "verify" => {
                if self.within != PipelinePart::Parser {
                    let wrong = Diagnostic::new(at, "`verify` is allowed in parsers only");
                    return self.fail(wrong.hint("use `if` in a control"));
                }
                let [condition, error] = self.expect_arguments(args, "verify(condition, error.NoMatch)", at)?;
                let condition = self.check_condition(&condition.value)?;
                let error = self.eval_bits(&error.value, &Type::Error)? as u16;
                self.emit(StmtKind::Require { condition, error }, at);
            }
            "verify_checksum" => self.check_checksum(args, true, false, at)?,
            "verify_checksum_with_payload" => self.check_checksum(args, true, true, at)?,
            "update_checksum" => self.check_checksum(args, false, false, at)?,
            "update_checksum_with_payload" => self.check_checksum(args, false, true, at)?,
            "steer" => self.check_steer(args, at)?,
            "remote_handler" => self.check_remote_call(args, at)?,
            _ => {
                if let Some((_, hint)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
                    let wrong = Diagnostic::new(of, format!("`{name}` is not supported"));
                    return self.fail(wrong.hint(*hint));
                }
                if let Some(known) = super::closest_name(name, KNOWN.to_vec()) {
                    let wrong = Diagnostic::new(of, format!("unknown function or action `{name}`"));
                    return self.fail(wrong.hint(format!("did you mean `{known}`?")));
                }
                return self.report_unknown(of, name, "function or action");
            }
        }
        Ok(Val::Void)
    }

    /// `mark_to_drop`: sets v1model's drop port and clears the multicast group.
    fn emit_mark_to_drop(&mut self, args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        self.require_pipeline("`mark_to_drop`", at)?;
        let [standard] = self.expect_arguments(args, "mark_to_drop(standard_metadata)", at)?;
        self.resolve_target(&standard.value)?;
        for (field, value) in [(StandardField::EgressSpec, DROP_PORT), (StandardField::McastGroup, 0)] {
            if let Some(&to) = self.standard.get(&field) {
                let value = Expr::constant(self.program.slots[to.0 as usize].ty, value);
                self.emit(StmtKind::Assign { to, value }, at);
            }
        }
        Ok(())
    }

    /// Checks `hash(result, algorithm, base, { data }, max)`.
    fn check_hash(&mut self, args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        let usage = "hash(result, HashAlgorithm.crc32, base, { data }, max)";
        let [to, algorithm, base, data, max] = self.expect_arguments(args, usage, at)?;
        let place = self.resolve_target(&to.value)?;
        let ty = place.ty();
        let Some(width) = ty.scalar().map(Ty::width).filter(|_| matches!(ty.base(), Type::Bit(_))) else {
            return self
                .fail(Diagnostic::new(to.value.at, format!("the result of a hash must be a `bit`, not `{ty}`")));
        };
        let algorithm = self.resolve_algorithm(&algorithm.value)?;
        let mut read = vec![self.check_bits(&base.value, width)?];
        let before = self.block.len();
        let inputs = self.check_hash_inputs(&data.value)?;
        self.save_exprs_before(&mut read, before, at)?;
        read.extend(inputs);
        let before = self.block.len();
        let max = self.check_bits(&max.value, 64)?;
        self.save_exprs_before(&mut read, before, at)?;
        let base = read.remove(0);
        let inputs = read;
        self.emit_into(&place, &ty, at, |to| StmtKind::Hash { to, algorithm, base, inputs, max })
    }

    /// Checks `update_checksum(condition, { data }, field, algorithm)` and `verify_checksum(…)`.
    fn check_checksum(&mut self, args: &[ast::Arg], verify: bool, payload: bool, at: SourceSpan) -> Checked<()> {
        if self.within != PipelinePart::Checksum {
            let wrong = Diagnostic::new(at, "checksums are allowed in the checksum controls only");
            return self.fail(wrong.hint("V1Switch's second argument verifies checksums, its fifth computes them"));
        }
        let usage = "update_checksum(condition, { data }, field, HashAlgorithm.csum16)";
        let [condition, data, field, algorithm] = self.expect_arguments(args, usage, at)?;
        let mut read = vec![self.check_condition(&condition.value)?];
        let before = self.block.len();
        let inputs = self.check_hash_inputs(&data.value)?;
        self.save_exprs_before(&mut read, before, at)?;
        read.extend(inputs);
        let algorithm = self.resolve_algorithm(&algorithm.value)?;
        if verify {
            let before = self.block.len();
            let value = self.check_expr(&field.value)?;
            let (_, expected) = self.load_scalar(&value, field.value.at)?;
            self.save_exprs_before(&mut read, before, at)?;
            let condition = read.remove(0);
            self.emit(StmtKind::Verify { condition, expected, algorithm, inputs: read, payload }, at);
            return Ok(());
        }
        let place = self.resolve_target(&field.value)?;
        let ty = place.ty();
        let condition = read.remove(0);
        self.emit_into(&place, &ty, at, |to| StmtKind::Checksum { condition, to, algorithm, inputs: read, payload })
    }

    /// Inputs of a hash or checksum: `{ a, b }`, a struct, a tuple or a scalar.
    fn check_hash_inputs(&mut self, data: &ast::Expr) -> Checked<Vec<Expr>> {
        let value = self.check_expr(data)?;
        let mut inputs = Vec::new();
        self.flatten(&value, data.at, &mut inputs)?;
        Ok(inputs)
    }

    fn resolve_algorithm(&mut self, expr: &ast::Expr) -> Checked<HashAlgorithm> {
        let name = match (&expr.kind, self.check_expr(expr)?.ty()) {
            (ExprKind::Member(_, name), Some(Type::Enum(of))) if &*of.name == "HashAlgorithm" => name,
            _ => {
                let wrong = Diagnostic::new(expr.at, "expected a hash algorithm");
                return self.fail(wrong.hint("available: HashAlgorithm.crc32, crc16, csum16, xor16, identity"));
            }
        };
        match &*name.text {
            "crc32" => Ok(HashAlgorithm::Crc32),
            "crc16" => Ok(HashAlgorithm::Crc16),
            "csum16" => Ok(HashAlgorithm::Csum16),
            "xor16" => Ok(HashAlgorithm::Xor16),
            "identity" => Ok(HashAlgorithm::Identity),
            other => {
                let wrong = Diagnostic::new(name.at, format!("algorithm `{other}` is not supported"));
                self.fail(wrong.hint("available: crc32, crc16, csum16, xor16, identity"))
            }
        }
    }

    /// Checks `digest(receiver, data)`; the digest is named after its struct.
    fn check_digest(&mut self, types: &[ast::Type], args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        self.require_pipeline("`digest`", at)?;
        let [receiver, data] = self.expect_arguments(args, "digest(1, data)", at)?;
        self.check_bits(&receiver.value, 32)?;
        let mut value = self.check_expr(&data.value)?;
        if let [ty] = types {
            let ty = self.resolve_type(ty)?;
            value = self.coerce(value, &ty, data.value.at)?;
        }
        let name = match value.ty() {
            Some(Type::Struct(of) | Type::Header(of)) => of.name.to_string(),
            _ => "digest".to_owned(),
        };
        let mut values = Vec::new();
        self.flatten(&value, data.value.at, &mut values)?;
        self.emit(StmtKind::Digest { name, values }, at);
        Ok(())
    }

    /// Checks `clone(CloneType.I2E, port)`.
    fn check_clone(&mut self, args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        let [kind, session] = self.expect_arguments(args, "clone(CloneType.I2E, port)", at)?;
        let ingress = matches!(&kind.value.kind, ExprKind::Member(_, name) if &*name.text == "I2E");
        self.check_expr(&kind.value)?;
        if !ingress || self.within != PipelinePart::Ingress {
            let wrong = Diagnostic::new(at, "only clones from ingress to egress are supported");
            return self.fail(wrong.hint("use `clone(CloneType.I2E, port)` in the ingress"));
        }
        let session = self.check_bits(&session.value, 32)?;
        self.emit(StmtKind::Clone { session }, at);
        Ok(())
    }

    /// Checks `steer(value)`, with a single partition, and `steer(partition, value)`.
    fn check_steer(&mut self, args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        self.require_pipeline("`steer`", at)?;
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
                let wrong = Diagnostic::new(at, "expected a partition and a value");
                return self.fail(wrong.hint(match self.program.partitions.len() {
                    0 => "declare one: partition bit<16> ports = 1024 .. 65535;",
                    _ => "write `steer(partition, value)`",
                }));
            }
        };
        let partition = &self.program.partitions[index];
        let (name, ty) = (partition.name.clone(), partition.ty);
        let value = self.check_expr_as(&value.value, &Type::Bit(ty.width()))?;
        self.emit(StmtKind::Steer { partition: name, value }, at);
        Ok(())
    }
}
