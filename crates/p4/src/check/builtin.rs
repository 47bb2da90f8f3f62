//! Instances of v1model's registers and counters.

use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Item, PipelinePart};
use crate::ast;
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Counter, CounterId, Expr, Register, RegisterId, SlotId, SourceSpan, StmtKind, Ty};

/// Largest number of cells of an array.
const CELLS_MAX: u32 = 1 << 28;

/// Externs of v1model that the subset lacks, with the suggested replacement.
const REFUSED: [(&str, &str); 7] = [
    ("meter", "store time and bytes in a `register`"),
    ("direct_meter", "store time and bytes in a `register` indexed by action data"),
    ("direct_counter", "use a `counter` indexed by action data"),
    ("action_profile", "give each entry its action"),
    ("action_selector", "use a hash as a table key"),
    ("Checksum16", "use `update_checksum` and `verify_checksum`"),
    ("value_set", "list the values in the `select`, or look them up in a table"),
];

impl<'a> Checker<'a> {
    /// Declares `register<bit<32>>(1024) name;` or `counter(1024, CounterType.packets) name;`.
    pub(super) fn declare_extern(
        &mut self,
        of: &ast::Name,
        types: &[ast::Type],
        instance: &ast::Instance,
    ) -> Checked<Item<'a>> {
        let at = instance.name.at;
        if self.within == PipelinePart::Parser && matches!(&*of.text, "register" | "counter") {
            let wrong = Diagnostic::new(at, format!("a {} cannot be declared in a parser", of.text));
            return self.fail(wrong.hint("declare it in the control that uses it"));
        }
        match &*of.text {
            "register" => {
                let Some(first) = types.first() else {
                    return self
                        .fail(Diagnostic::new(of.at, "missing type of the register").hint("register<bit<32>>(1024)"));
                };
                let [size] = self.expect_arguments(&instance.args, "register<bit<32>>(1024)", at)?;
                let ty = self.resolve_type(first)?;
                let Some(scalar) = ty.scalar() else {
                    let wrong = Diagnostic::new(first.at, format!("a register cannot hold `{ty}`"));
                    return self.fail(wrong.hint("use a register for each field, or join the fields with `++`"));
                };
                let size = self.eval_count(&size.value, "register size", CELLS_MAX)?;
                let mirrored = instance.annotations.iter().any(|annotation| &*annotation.name.text == "mirrored");
                let name = self.unique_name(&instance.name.text);
                self.program.registers.push(Register { name, ty: scalar, size, mirrored });
                Ok(Item::Register(RegisterId(self.program.registers.len() as u32 - 1), ty))
            }
            "counter" => {
                if let Some(wrong) = instance.annotations.iter().find(|annotation| &*annotation.name.text == "mirrored")
                {
                    let wrong = Diagnostic::new(wrong.name.at, "a counter cannot be mirrored");
                    return self
                        .fail(wrong.hint("`@mirrored` applies to tables and registers; use a register as counter"));
                }
                let [size, kind] = self.expect_arguments(&instance.args, "counter(1024, CounterType.packets)", at)?;
                let size = self.eval_count(&size.value, "counter size", CELLS_MAX)?;
                self.check_expr(&kind.value)?;
                let name = self.unique_name(&instance.name.text);
                self.program.counters.push(Counter { name, size });
                Ok(Item::Counter(CounterId(self.program.counters.len() as u32 - 1)))
            }
            name => match REFUSED.iter().find(|(refused, _)| *refused == name) {
                Some((_, hint)) => {
                    let wrong = Diagnostic::new(of.at, format!("`{name}` is not supported"));
                    self.fail(wrong.hint(*hint))
                }
                None => self.report_unknown(of.at, name, "control, parser or extern"),
            },
        }
    }

    /// Checks `r.read(value, index)` and `r.write(index, value)`.
    pub(super) fn check_register_call(
        &mut self,
        register: RegisterId,
        ty: &Type,
        method: &ast::Name,
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        self.require_pipeline("a register", at)?;
        match &*method.text {
            "read" => {
                let [to, index] = self.expect_arguments(args, "r.read(value, index)", at)?;
                let place = self.resolve_target(&to.value)?;
                let index = self.check_cell_index(&index.value)?;
                let of = ty.clone();
                self.emit_into(&place, &of, to.value.at, |to| StmtKind::Read { register, index, to })?;
            }
            "write" => {
                let [index, value] = self.expect_arguments(args, "r.write(index, value)", at)?;
                let mut index = self.check_cell_index(&index.value)?;
                let before = self.block.len();
                let value = self.check_expr_as(&value.value, ty)?;
                self.save_exprs_before(std::slice::from_mut(&mut index), before, at)?;
                self.emit(StmtKind::Write { register, index, value }, at);
            }
            other => {
                let wrong = Diagnostic::new(method.at, format!("a register has no method `{other}`"));
                return self.fail(wrong.hint("available: read, write"));
            }
        }
        Ok(Val::Void)
    }

    /// Checks `c.count(index)`.
    pub(super) fn check_counter_call(
        &mut self,
        counter: CounterId,
        method: &ast::Name,
        args: &[ast::Arg],
        at: SourceSpan,
    ) -> Checked<Val> {
        self.require_pipeline("a counter", at)?;
        if &*method.text != "count" {
            return self.fail(
                Diagnostic::new(method.at, format!("a counter has no method `{}`", method.text))
                    .hint("available: count"),
            );
        }
        let [index] = self.expect_arguments(args, "c.count(index)", at)?;
        let index = self.check_cell_index(&index.value)?;
        self.emit(StmtKind::Count { counter, index }, at);
        Ok(Val::Void)
    }

    /// Type-checks a cell index: a `bit` of any width.
    fn check_cell_index(&mut self, expr: &ast::Expr) -> Checked<Expr> {
        let value = self.check_expr(expr)?;
        if matches!(value, Val::Num(_)) {
            let value = self.coerce(value, &Type::Bit(32), expr.at)?;
            return Ok(self.load_scalar(&value, expr.at)?.1);
        }
        let (ty, index) = self.load_scalar(&value, expr.at)?;
        match ty.base() {
            Type::Bit(_) | Type::Enum(_) => Ok(index),
            _ => self.fail(
                Diagnostic::new(expr.at, format!("an index cannot have type `{ty}`")).hint("an index must be a `bit`"),
            ),
        }
    }

    /// Emits a statement that writes a value of this type to a place: directly if one slot holds it, else through a
    /// temporary.
    pub(super) fn emit_into(
        &mut self,
        place: &Place,
        ty: &Type,
        at: SourceSpan,
        statement: impl FnOnce(SlotId) -> StmtKind,
    ) -> Checked<()> {
        if place.ty().base() != ty.base() {
            let wrong = format!("expected a variable of type `{ty}`, found `{}`", place.ty());
            return self
                .fail(Diagnostic::new(at, wrong).hint("declare a variable of this type, and cast it afterwards"));
        }
        if let Place::Slot(_, slot) = place {
            self.emit(statement(*slot), at);
            return Ok(());
        }
        let scalar = ty.scalar().ok_or(Reported)?;
        let to = self.new_temporary(scalar, at)?;
        self.emit(statement(to), at);
        self.emit_assign(place, Val::Scalar(place.ty(), Expr::slot(scalar, to)), at)
    }

    /// Reports a call outside of verify, ingress, egress and compute.
    pub(super) fn require_pipeline(&mut self, what: &str, at: SourceSpan) -> Checked<()> {
        if matches!(self.within, PipelinePart::Ingress | PipelinePart::Egress) {
            return Ok(());
        }
        let wrong = Diagnostic::new(at, format!("{what} cannot be used here"));
        self.fail(wrong.hint("it can be used in ingress and egress only"))
    }

    /// Type-checks a `bit` of any width; an `int` constant becomes a `bit` of this width.
    pub(super) fn check_bits(&mut self, expr: &ast::Expr, width: u16) -> Checked<Expr> {
        let value = self.check_expr(expr)?;
        let value = match value {
            Val::Num(_) => self.coerce(value, &Type::Bit(width), expr.at)?,
            other => other,
        };
        let (ty, bits) = self.load_scalar(&value, expr.at)?;
        match (ty.base(), bits.ty) {
            (Type::Bit(_), Ty::Bit(_)) => Ok(bits),
            _ => self.fail(Diagnostic::new(expr.at, format!("expected a `bit<{width}>`, found `{ty}`"))),
        }
    }
}
