//! Packet operations: extraction in parsers, emission in the deparser (P4_16 §13.8, §16).

use super::header::fixed_bits;
use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, PipelinePart};
use crate::ast::{self, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Expr, ExprKind as IrExprKind, HeaderId, SourceSpan, StmtKind, Ty};

/// Index of `StackOutOfBounds` in core.p4's list of errors.
pub(super) const STACK_OUT_OF_BOUNDS: u16 = 3;

impl Checker<'_> {
    pub(super) fn check_packet_in(
        &mut self,
        method: &ast::Name,
        types: &[ast::Type],
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        match &*method.text {
            "extract" => self.check_extract(types, args, at).map(|()| Val::Void),
            "lookahead" => {
                let [] = self.expect_arguments(args, "packet.lookahead<bit<8>>()", at)?;
                let Some(ty) = types.first() else {
                    let wrong = Diagnostic::new(at, "missing type of `lookahead`");
                    return self.fail(wrong.hint("write `packet.lookahead<bit<8>>()`"));
                };
                let ty = self.resolve_type(ty)?;
                self.check_lookahead(&ty, &mut 0, at)
            }
            "advance" => {
                let [bits] = self.expect_arguments(args, "packet.advance(bits)", at)?;
                let bits = self.check_bits(&bits.value, 32)?;
                self.emit(StmtKind::Advance(bits), at);
                Ok(Val::Void)
            }
            "length" => {
                let wrong = Diagnostic::new(at, "`packet.length()` is not supported");
                self.fail(wrong.hint("`standard_metadata.packet_length` is the packet's length"))
            }
            other => {
                let wrong = Diagnostic::new(method.at, format!("a packet has no method `{other}`"));
                self.fail(wrong.hint("available: extract, lookahead, advance"))
            }
        }
    }

    /// Checks `packet.extract(header)` and `packet.extract(header, varbit_bits)`.
    fn check_extract(&mut self, types: &[ast::Type], args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        if let [ast::Arg { value: ast::Expr { kind: ExprKind::Any, .. }, .. }] = args {
            let Some(Ok(Type::Header(of))) = types.first().map(|ty| self.resolve_type(ty)) else {
                let wrong = Diagnostic::new(at, "`extract` of `_` without a header type");
                return self.fail(wrong.hint("write `packet.extract<header_t>(_)`"));
            };
            let bits = Expr::constant(Ty::Bit(32), u128::from(fixed_bits(&of)));
            self.emit(StmtKind::Advance(bits), at);
            return Ok(());
        }
        let Some(first) = args.first().filter(|_| args.len() <= 2) else {
            let wrong = format!("expected 1 or 2 arguments, found {}", args.len());
            return self.fail(Diagnostic::new(at, wrong).hint("write `packet.extract(header)`"));
        };
        let place = self.resolve_target(&first.value)?;
        let Place::Header(of, header, _) = &place else {
            let wrong = Diagnostic::new(first.value.at, format!("expected a header, found `{}`", place.ty()));
            return self.fail(match place.ty() {
                Type::Stack(..) => wrong.hint("for the next element of a stack, use `stack.next`"),
                Type::Struct(_) => wrong.hint("extract its headers one by one"),
                _ => wrong.hint("use `lookahead` for a value that is not a header"),
            });
        };
        let varies = of.fields.iter().any(|field| matches!(field.ty, Type::Varbit(_)));
        let varbits = match (args.get(1), varies) {
            (Some(bits), true) => Some(self.check_bits(&bits.value, 32)?),
            (None, false) => None,
            (Some(bits), false) => {
                let wrong = Diagnostic::new(bits.value.at, format!("`{}` has no varbit field", of.name));
                return self.fail(wrong.hint("write `extract(header)`"));
            }
            (None, true) => {
                let wrong = Diagnostic::new(at, format!("missing length of the varbit field of `{}`", of.name));
                return self.fail(wrong.hint("write `extract(header, bits)`"));
            }
        };
        let header = *header;
        self.emit(StmtKind::Extract { header, varbits }, at);
        if let ExprKind::Member(stack, name) = &first.value.kind
            && &*name.text == "next"
            && let Place::Stack(_, items) = self.resolve_target(stack)?
            && let Some(Place::Header(_, first, _)) = items.first()
        {
            *self.fill.entry(*first).or_insert(0) += 1;
        }
        Ok(())
    }

    /// Emits the run-time parser error for an extraction past the stack's end.
    pub(super) fn emit_stack_out_of_bounds<T>(&mut self, at: SourceSpan) -> Checked<T> {
        let condition = Expr::constant(Ty::Bool, 0);
        self.emit(StmtKind::Require { condition, error: STACK_OUT_OF_BOUNDS }, at);
        Err(Reported)
    }

    /// Lookahead of a value at the cursor; `skip` is its bit offset.
    fn check_lookahead(&mut self, ty: &Type, skip: &mut u32, at: SourceSpan) -> Checked<Val> {
        if let Some(scalar) = ty.scalar() {
            let kind = IrExprKind::Lookahead { skip: *skip };
            *skip += u32::from(scalar.width());
            return Ok(Val::Scalar(ty.clone(), Expr { ty: scalar, kind }));
        }
        let types: Vec<Type> = match ty {
            Type::Struct(of) | Type::Header(of) => of.fields.iter().map(|field| field.ty.clone()).collect(),
            Type::Tuple(types) => types.to_vec(),
            _ => Vec::new(),
        };
        if types.is_empty() {
            return self.fail(Diagnostic::new(at, format!("`lookahead` does not support `{ty}`")));
        }
        let mut parts = Vec::new();
        for ty in &types {
            parts.push(self.check_lookahead(ty, skip, at)?);
        }
        Ok(Val::Whole(ty.clone(), parts))
    }

    /// Checks `packet.emit(header)`, also of a header stack or a struct of headers.
    pub(super) fn check_packet_out(&mut self, method: &ast::Name, args: &[ast::Arg], at: SourceSpan) -> Checked<Val> {
        if &*method.text != "emit" {
            let wrong = Diagnostic::new(method.at, format!("an outgoing packet has no method `{}`", method.text));
            return self.fail(wrong.hint("available: emit"));
        }
        let [of] = self.expect_arguments(args, "packet.emit(header)", at)?;
        let value = self.check_expr(&of.value)?;
        if self.within != PipelinePart::Deparser {
            return self.fail(Diagnostic::new(at, "`emit` is allowed in the deparser only"));
        }
        let mut headers: Vec<HeaderId> = Vec::new();
        if let Val::Place(place) = &value {
            place.headers(&mut headers);
        }
        if headers.is_empty() {
            let wrong = Diagnostic::new(of.value.at, format!("expected a header, found {}", value.describe()));
            return self.fail(wrong.hint("only headers can be emitted"));
        }
        self.program.deparser.extend(headers);
        Ok(Val::Void)
    }
}
