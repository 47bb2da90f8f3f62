//! What can be done with the packet: taken apart in parsers, put together in the deparser (P4_16 §13.8, §16).

use super::header::fixed_bits;
use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Within};
use crate::ast::{self, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Expr, ExprKind as Read, HeaderId, Span, StmtKind, Ty};

/// `StackOutOfBounds` in core.p4's list of errors.
pub(super) const STACK_OUT_OF_BOUNDS: u16 = 3;

impl Checker<'_> {
    pub(super) fn packet_in(
        &mut self,
        method: &ast::Name,
        types: &[ast::Type],
        args: &[ast::Arg],
        at: Span,
    ) -> Checked<Val> {
        match &*method.text {
            "extract" => self.extract(types, args, at).map(|()| Val::Void),
            "lookahead" => {
                let [] = self.arguments(args, "packet.lookahead<bit<8>>()", at)?;
                let Some(ty) = types.first() else {
                    let wrong = Diagnostic::new(at, "`lookahead` without a type");
                    return self.fail(wrong.hint("write `packet.lookahead<bit<8>>()`"));
                };
                let ty = self.ty(ty)?;
                self.lookahead(&ty, &mut 0, at)
            }
            "advance" => {
                let [bits] = self.arguments(args, "packet.advance(bits)", at)?;
                let bits = self.bits(&bits.value, 32)?;
                self.emit(StmtKind::Advance(bits), at);
                Ok(Val::Void)
            }
            "length" => {
                let wrong = Diagnostic::new(at, "`packet.length()` is not in the subset");
                self.fail(wrong.hint("`standard_metadata.packet_length` is the packet's length"))
            }
            other => {
                let wrong = Diagnostic::new(method.at, format!("a packet has no `{other}`"));
                self.fail(wrong.hint("there are extract, lookahead, advance"))
            }
        }
    }

    /// `packet.extract(header)`, `packet.extract(header, bits of its varbit)`
    fn extract(&mut self, types: &[ast::Type], args: &[ast::Arg], at: Span) -> Checked<()> {
        if let [ast::Arg { value: ast::Expr { kind: ExprKind::Any, .. }, .. }] = args {
            let Some(Ok(Type::Header(of))) = types.first().map(|ty| self.ty(ty)) else {
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
        let place = self.target(&first.value)?;
        let Place::Header(of, header, _) = &place else {
            let wrong = Diagnostic::new(first.value.at, format!("expected a header, found `{}`", place.ty()));
            return self.fail(match place.ty() {
                Type::Stack(..) => wrong.hint("the next one of a stack is `stack.next`"),
                Type::Struct(_) => wrong.hint("extract its headers one by one"),
                _ => wrong.hint("a value that is no header is read by `lookahead`"),
            });
        };
        let varies = of.fields.iter().any(|field| matches!(field.ty, Type::Varbit(_)));
        let varbits = match (args.get(1), varies) {
            (Some(bits), true) => Some(self.bits(&bits.value, 32)?),
            (None, false) => None,
            (Some(bits), false) => {
                let wrong = Diagnostic::new(bits.value.at, format!("`{}` has no varbit", of.name));
                return self.fail(wrong.hint("write `extract(header)`"));
            }
            (None, true) => {
                let wrong = Diagnostic::new(at, format!("`{}` has a varbit, whose length is not said", of.name));
                return self.fail(wrong.hint("write `extract(header, bits)`"));
            }
        };
        let header = *header;
        self.emit(StmtKind::Extract { header, varbits }, at);
        if let ExprKind::Member(stack, name) = &first.value.kind
            && &*name.text == "next"
            && let Place::Stack(_, items) = self.target(stack)?
            && let Some(Place::Header(_, first, _)) = items.first()
        {
            *self.fill.entry(*first).or_insert(0) += 1;
        }
        Ok(())
    }

    /// A header past its stack's end: at run time, an error of the parser.
    pub(super) fn past_the_end<T>(&mut self, at: Span) -> Checked<T> {
        let condition = Expr::constant(Ty::Bool, 0);
        self.emit(StmtKind::Require { condition, error: STACK_OUT_OF_BOUNDS }, at);
        Err(Reported)
    }

    /// A value behind the cursor; `skip`: bits before it.
    fn lookahead(&mut self, ty: &Type, skip: &mut u32, at: Span) -> Checked<Val> {
        if let Some(scalar) = ty.scalar() {
            let kind = Read::Lookahead { skip: *skip };
            *skip += u32::from(scalar.width());
            return Ok(Val::Scalar(ty.clone(), Expr { ty: scalar, kind }));
        }
        let types: Vec<Type> = match ty {
            Type::Struct(of) | Type::Header(of) => of.fields.iter().map(|field| field.ty.clone()).collect(),
            Type::Tuple(types) => types.to_vec(),
            _ => Vec::new(),
        };
        if types.is_empty() {
            return self.fail(Diagnostic::new(at, format!("no `lookahead` of a `{ty}`")));
        }
        let mut parts = Vec::new();
        for ty in &types {
            parts.push(self.lookahead(ty, skip, at)?);
        }
        Ok(Val::Whole(ty.clone(), parts))
    }

    /// `packet.emit(header)`, of a stack or of all in a struct too.
    pub(super) fn packet_out(&mut self, method: &ast::Name, args: &[ast::Arg], at: Span) -> Checked<Val> {
        if &*method.text != "emit" {
            let wrong = Diagnostic::new(method.at, format!("a packet that leaves has no `{}`", method.text));
            return self.fail(wrong.hint("there is emit"));
        }
        let [of] = self.arguments(args, "packet.emit(header)", at)?;
        let value = self.expr(&of.value)?;
        if self.within != Within::Deparser {
            return self.fail(Diagnostic::new(at, "`emit` outside of the deparser"));
        }
        let mut headers: Vec<HeaderId> = Vec::new();
        if let Val::Place(place) = &value {
            place.headers(&mut headers);
        }
        if headers.is_empty() {
            let wrong = Diagnostic::new(of.value.at, format!("expected a header, found {}", value.describe()));
            return self.fail(wrong.hint("only headers are emitted"));
        }
        self.program.deparser.extend(headers);
        Ok(Val::Void)
    }
}
