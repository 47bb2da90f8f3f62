//! Instances of v1model's externs: registers and counters.

use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Item, Within};
use crate::ast;
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Counter, CounterId, Expr, Register, RegisterId, SlotId, Span, StmtKind, Ty};

/// Cells of an array.
const CELLS_MAX: u32 = 1 << 28;

/// What v1model has and the subset has not, and what to do instead.
const REFUSED: [(&str, &str); 7] = [
    ("meter", "keep time and bytes in a `register`"),
    ("direct_meter", "keep time and bytes in a `register`, with an index that entries give"),
    ("direct_counter", "use a `counter`, with an index that entries give"),
    ("action_profile", "give each entry its action"),
    ("action_selector", "choose by a hash in a table's key"),
    ("Checksum16", "use `update_checksum` and `verify_checksum`"),
    ("value_set", "list the values in the `select`, or look them up in a table"),
];

impl<'a> Checker<'a> {
    /// `register<bit<32>>(1024) name;`, `counter(1024, CounterType.packets) name;`
    pub(super) fn external_instance(
        &mut self,
        of: &ast::Name,
        types: &[ast::Type],
        instance: &ast::Instance,
    ) -> Checked<Item<'a>> {
        let at = instance.name.at;
        if self.within == Within::Parser && matches!(&*of.text, "register" | "counter") {
            let wrong = Diagnostic::new(at, format!("a {} in a parser", of.text));
            return self.fail(wrong.hint("declare it in the control that uses it"));
        }
        match &*of.text {
            "register" => {
                let Some(first) = types.first() else {
                    return self
                        .fail(Diagnostic::new(of.at, "a register without a type").hint("register<bit<32>>(1024)"));
                };
                let [size] = self.arguments(&instance.args, "register<bit<32>>(1024)", at)?;
                let ty = self.ty(first)?;
                let Some(scalar) = ty.scalar() else {
                    let wrong = Diagnostic::new(first.at, format!("a register of `{ty}`"));
                    return self
                        .fail(wrong.hint("a register for each of its fields, or one of their bits joined by `++`"));
                };
                let size = self.count(&size.value, "the size of a register", CELLS_MAX)?;
                let mirrored = instance.annotations.iter().any(|annotation| &*annotation.name.text == "mirrored");
                let name = self.unique(&instance.name.text);
                self.program.registers.push(Register { name, ty: scalar, size, mirrored });
                Ok(Item::Register(RegisterId(self.program.registers.len() as u32 - 1), ty))
            }
            "counter" => {
                if let Some(wrong) = instance.annotations.iter().find(|annotation| &*annotation.name.text == "mirrored")
                {
                    let wrong = Diagnostic::new(wrong.name.at, "a counter that is mirrored");
                    return self
                        .fail(wrong.hint("`@mirrored` stands before tables and registers; count in a register"));
                }
                let [size, kind] = self.arguments(&instance.args, "counter(1024, CounterType.packets)", at)?;
                let size = self.count(&size.value, "the size of a counter", CELLS_MAX)?;
                self.expr(&kind.value)?;
                let name = self.unique(&instance.name.text);
                self.program.counters.push(Counter { name, size });
                Ok(Item::Counter(CounterId(self.program.counters.len() as u32 - 1)))
            }
            name => match REFUSED.iter().find(|(refused, _)| *refused == name) {
                Some((_, hint)) => {
                    let wrong = Diagnostic::new(of.at, format!("`{name}` is not in the subset"));
                    self.fail(wrong.hint(*hint))
                }
                None => self.unknown(of.at, name, "control, parser or extern"),
            },
        }
    }

    /// `r.read(value, index)`, `r.write(index, value)`
    pub(super) fn register(
        &mut self,
        register: RegisterId,
        ty: &Type,
        method: &ast::Name,
        args: &[ast::Arg],
        at: Span,
    ) -> Checked<Val> {
        self.in_pipeline("a register", at)?;
        match &*method.text {
            "read" => {
                let [to, index] = self.arguments(args, "r.read(value, index)", at)?;
                let place = self.target(&to.value)?;
                let index = self.index_of(&index.value)?;
                let of = ty.clone();
                self.into(&place, &of, to.value.at, |to| StmtKind::Read { register, index, to })?;
            }
            "write" => {
                let [index, value] = self.arguments(args, "r.write(index, value)", at)?;
                let mut index = self.index_of(&index.value)?;
                let before = self.block.len();
                let value = self.expr_as(&value.value, ty)?;
                self.read_before(std::slice::from_mut(&mut index), before, at)?;
                self.emit(StmtKind::Write { register, index, value }, at);
            }
            other => {
                let wrong = Diagnostic::new(method.at, format!("a register has no `{other}`"));
                return self.fail(wrong.hint("there are read, write"));
            }
        }
        Ok(Val::Void)
    }

    /// `c.count(index)`
    pub(super) fn counter(
        &mut self,
        counter: CounterId,
        method: &ast::Name,
        args: &[ast::Arg],
        at: Span,
    ) -> Checked<Val> {
        self.in_pipeline("a counter", at)?;
        if &*method.text != "count" {
            return self.fail(
                Diagnostic::new(method.at, format!("a counter has no `{}`", method.text)).hint("there is count"),
            );
        }
        let [index] = self.arguments(args, "c.count(index)", at)?;
        let index = self.index_of(&index.value)?;
        self.emit(StmtKind::Count { counter, index }, at);
        Ok(Val::Void)
    }

    /// What a cell is named by: a `bit` of any width.
    fn index_of(&mut self, expr: &ast::Expr) -> Checked<Expr> {
        let value = self.expr(expr)?;
        if matches!(value, Val::Num(_)) {
            let value = self.coerce(value, &Type::Bit(32), expr.at)?;
            return Ok(self.scalar(&value, expr.at)?.1);
        }
        let (ty, index) = self.scalar(&value, expr.at)?;
        match ty.base() {
            Type::Bit(_) | Type::Enum(_) => Ok(index),
            _ => self.fail(Diagnostic::new(expr.at, format!("an index of type `{ty}`")).hint("an index is a `bit`")),
        }
    }

    /// Writes what a statement gives, of this type, to a place: directly if one slot holds it.
    pub(super) fn into(
        &mut self,
        place: &Place,
        ty: &Type,
        at: Span,
        statement: impl FnOnce(SlotId) -> StmtKind,
    ) -> Checked<()> {
        if place.ty().base() != ty.base() {
            let wrong = format!("expected a place for `{ty}`, found `{}`", place.ty());
            return self
                .fail(Diagnostic::new(at, wrong).hint("declare a variable of this type, and cast it afterwards"));
        }
        if let Place::Slot(_, slot) = place {
            self.emit(statement(*slot), at);
            return Ok(());
        }
        let scalar = ty.scalar().ok_or(Reported)?;
        let to = self.temporary(scalar, at)?;
        self.emit(statement(to), at);
        self.assign(place, Val::Scalar(place.ty(), Expr::slot(scalar, to)), at)
    }

    /// Only where packets have been parsed, and their headers not yet put together.
    pub(super) fn in_pipeline(&mut self, what: &str, at: Span) -> Checked<()> {
        if matches!(self.within, Within::Ingress | Within::Egress) {
            return Ok(());
        }
        let wrong = Diagnostic::new(at, format!("{what} is used here"));
        self.fail(wrong.hint("it is used in ingress and egress"))
    }

    /// A `bit` of any width; a number becomes one of this width.
    pub(super) fn bits(&mut self, expr: &ast::Expr, width: u16) -> Checked<Expr> {
        let value = self.expr(expr)?;
        let value = match value {
            Val::Num(_) => self.coerce(value, &Type::Bit(width), expr.at)?,
            other => other,
        };
        let (ty, bits) = self.scalar(&value, expr.at)?;
        match (ty.base(), bits.ty) {
            (Type::Bit(_), Ty::Bit(_)) => Ok(bits),
            _ => self.fail(Diagnostic::new(expr.at, format!("expected a `bit<{width}>`, found `{ty}`"))),
        }
    }
}
