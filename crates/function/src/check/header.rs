//! What headers and header stacks can do (P4_16 §8.17, §8.18).

use super::types::{Struct, Type};
use super::value::{Place, Val};
use super::{Checked, Checker, Num};
use crate::ast;
use crate::diag::Diagnostic;
use crate::ir::{Expr, ExprKind, HeaderId, Span, StmtKind, Ty};
use std::rc::Rc;

/// Bits of the fields of fixed width.
pub(super) fn fixed_bits(of: &Struct) -> u32 {
    of.fields.iter().filter_map(|field| field.ty.scalar()).map(|ty| u32::from(ty.width())).sum()
}

impl Checker<'_> {
    pub(super) fn method_of_header(
        &mut self,
        of: &Rc<Struct>,
        header: HeaderId,
        method: &ast::Name,
        args: &[ast::Arg],
        at: Span,
    ) -> Checked<Val> {
        let usage = format!("{}()", method.text);
        let valid = match &*method.text {
            "isValid" => {
                let [] = self.arguments(args, &usage, at)?;
                return Ok(Val::Scalar(Type::Bool, Expr { ty: Ty::Bool, kind: ExprKind::Valid(header) }));
            }
            "minSizeInBits" => return Ok(Val::Num(Num::from(u128::from(fixed_bits(of))))),
            "minSizeInBytes" => return Ok(Val::Num(Num::from(u128::from(fixed_bits(of) / 8)))),
            "setValid" => true,
            "setInvalid" => false,
            other => {
                let wrong = Diagnostic::new(method.at, format!("a header has no `{other}`"));
                return self.fail(wrong.hint("there are isValid, setValid, setInvalid"));
            }
        };
        let [] = self.arguments(args, &usage, at)?;
        self.emit(StmtKind::SetValid { header, valid }, at);
        Ok(Val::Void)
    }

    /// `push_front(n)`, `pop_front(n)`
    pub(super) fn method_of_stack(
        &mut self,
        items: &[Place],
        method: &ast::Name,
        args: &[ast::Arg],
        at: Span,
    ) -> Checked<Val> {
        let push = match &*method.text {
            "push_front" => true,
            "pop_front" => false,
            other => {
                let wrong = Diagnostic::new(method.at, format!("a stack has no `{other}`"));
                return self.fail(wrong.hint("there are push_front, pop_front"));
            }
        };
        let [by] = self.arguments(args, &format!("{}(count)", method.text), at)?;
        let by = self.count(&by.value, "a count", items.len() as u32)? as usize;
        let kept = items.len() - by;
        for n in 0..kept {
            let (to, from) = if push { (items.len() - 1 - n, kept - 1 - n) } else { (n, n + by) };
            self.assign(&items[to], Val::Place(items[from].clone()), at)?;
        }
        let emptied = if push { 0..by } else { kept..items.len() };
        for item in &items[emptied] {
            if let Place::Header(_, header, _) = item {
                self.emit(StmtKind::SetValid { header: *header, valid: false }, at);
            }
        }
        Ok(Val::Void)
    }
}
