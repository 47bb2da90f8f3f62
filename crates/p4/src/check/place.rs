//! Storage of declarations, and assignments to it.

use super::types::{Struct, Type};
use super::value::{Place, Val};
use super::{Checked, Checker, SLOTS_MAX, fold};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{self, Expr, ExprKind, HeaderId, Slot, SlotId, SlotKind, SourceSpan, StmtKind, Ty};
use std::rc::Rc;

/// Reason why a varbit cannot be used in expressions.
const VARBIT: &str = "a varbit field can only be extracted and emitted";

/// One step of an assignment.
enum AssignStep {
    Set(SlotId, Expr),
    Validate(HeaderId),
    Copy { of: Rc<Struct>, to: (HeaderId, Rc<[Place]>), from: (HeaderId, Rc<[Place]>) },
}

impl Checker<'_> {
    /// New slot with a unique name.
    pub(super) fn new_slot(&mut self, name: &str, ty: Ty, kind: SlotKind, at: SourceSpan) -> Checked<SlotId> {
        if self.program.slots.len() >= SLOTS_MAX {
            return self.fail(Diagnostic::new(at, format!("more than {SLOTS_MAX} fields and variables")));
        }
        let name = self.unique_name(name);
        self.program.slots.push(Slot { name, ty, kind });
        Ok(SlotId(self.program.slots.len() as u32 - 1))
    }

    /// New slot for a temporary of the compiler.
    pub(super) fn new_temporary(&mut self, ty: Ty, at: SourceSpan) -> Checked<SlotId> {
        self.new_slot("tmp", ty, SlotKind::Local, at)
    }

    /// New storage for a value of this type; `kind` applies to scalars outside of headers.
    pub(super) fn new_place(&mut self, name: &str, ty: &Type, kind: SlotKind, at: SourceSpan) -> Checked<Place> {
        Ok(match ty {
            Type::Struct(of) => {
                let items = self.new_places(name, of, kind, at)?;
                Place::Struct(ty.clone(), items)
            }
            Type::Tuple(items) => {
                let mut places = Vec::new();
                for (n, item) in items.iter().enumerate() {
                    places.push(self.new_place(&format!("{name}[{n}]"), item, kind, at)?);
                }
                Place::Struct(ty.clone(), places.into())
            }
            Type::Header(of) => self.new_header(name, of, at)?,
            Type::Stack(of, size) => {
                let mut items = Vec::new();
                for n in 0..*size {
                    items.push(self.new_header(&format!("{name}[{n}]"), of, at)?);
                }
                Place::Stack(Rc::clone(of), items.into())
            }
            _ => match ty.scalar() {
                Some(scalar) => Place::Slot(ty.clone(), self.new_slot(name, scalar, kind, at)?),
                None => return self.fail(Diagnostic::new(at, format!("a variable cannot have type `{ty}`"))),
            },
        })
    }

    fn new_places(&mut self, name: &str, of: &Rc<Struct>, kind: SlotKind, at: SourceSpan) -> Checked<Rc<[Place]>> {
        let mut items = Vec::new();
        for field in &of.fields {
            items.push(self.new_place(&format!("{name}.{}", field.name), &field.ty, kind, at)?);
        }
        Ok(items.into())
    }

    /// New header instance.
    fn new_header(&mut self, name: &str, of: &Rc<Struct>, at: SourceSpan) -> Checked<Place> {
        let header = HeaderId(self.program.headers.len() as u32);
        let full = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let type_name = of.name.to_string();
        let new = ir::Header { name: full, type_name, fields: Vec::new(), varbit_bits_max: None };
        self.program.headers.push(new);
        let (mut items, mut slots, mut offset_bits) = (Vec::new(), Vec::new(), 0);
        let mut varbit = None;
        for field in &of.fields {
            if let Type::Varbit(max) = field.ty {
                varbit = Some(max);
                items.push(Place::Closed(field.ty.clone(), VARBIT));
                continue;
            }
            let kind = SlotKind::Field { header, offset_bits };
            let place = self.new_place(&format!("{name}.{}", field.name), &field.ty, kind, at)?;
            if let Place::Slot(_, slot) = place {
                slots.push(slot);
                offset_bits += u32::from(self.program.width(slot));
            }
            items.push(place);
        }
        let new = &mut self.program.headers[header.0 as usize];
        new.fields = slots;
        new.varbit_bits_max = varbit;
        Ok(Place::Header(Rc::clone(of), header, items.into()))
    }

    /// Emits an assignment.
    pub(super) fn emit_assign(&mut self, to: &Place, value: Val, at: SourceSpan) -> Checked<()> {
        let value = self.coerce(value, &to.ty(), at)?;
        let mut moves = Vec::new();
        self.collect_moves(to, &value, at, &mut moves)?;
        let late = find_overwritten(&moves);
        for (step, _) in moves.iter_mut().zip(late).filter(|(_, late)| *late) {
            match step {
                AssignStep::Set(_, expr) => {
                    let kept = self.new_temporary(expr.ty, at)?;
                    let read = Expr::slot(expr.ty, kept);
                    let value = std::mem::replace(expr, read);
                    self.emit(StmtKind::Assign { to: kept, value }, at);
                }
                AssignStep::Copy { of, from, .. } => {
                    let Place::Header(_, kept, items) = self.new_header("tmp", of, at)? else { return Err(Reported) };
                    let to = (kept, items);
                    self.copy_header(&to, from, at)?;
                    *from = to;
                }
                AssignStep::Validate(_) => {}
            }
        }
        for step in moves {
            match step {
                AssignStep::Set(to, value) => self.emit(StmtKind::Assign { to, value }, at),
                AssignStep::Validate(header) => self.emit(StmtKind::SetValid { header, valid: true }, at),
                AssignStep::Copy { to, from, .. } => self.copy_header(&to, &from, at)?,
            }
        }
        Ok(())
    }

    fn collect_moves(&mut self, to: &Place, value: &Val, at: SourceSpan, out: &mut Vec<AssignStep>) -> Checked<()> {
        match to {
            Place::Slot(_, slot) => {
                let (_, expr) = self.load_scalar(value, at)?;
                out.push(AssignStep::Set(*slot, expr));
            }
            Place::Slice { slot, of, high, low } => {
                let (_, expr) = self.load_scalar(value, at)?;
                let whole = Expr::slot(*of, *slot);
                let mut bits = expr;
                if *high + 1 < of.width() {
                    bits = fold::concat(fold::slice(whole.clone(), of.width() - 1, high + 1), bits);
                }
                if *low > 0 {
                    bits = fold::concat(bits, fold::slice(whole, low - 1, 0));
                }
                out.push(AssignStep::Set(*slot, fold::cast(bits, *of)));
            }
            Place::Struct(_, items) => {
                for (n, item) in items.iter().enumerate() {
                    let part = Self::part(value, n).ok_or(Reported)?;
                    self.collect_moves(item, &part, at, out)?;
                }
            }
            Place::Stack(_, items) => {
                for (n, item) in items.iter().enumerate() {
                    let part = Self::part(value, n).ok_or(Reported)?;
                    self.collect_moves(item, &part, at, out)?;
                }
            }
            Place::Header(of, header, items) => match value {
                Val::Place(Place::Header(_, from, theirs)) => {
                    if from != header {
                        let (to, from) = ((*header, Rc::clone(items)), (*from, Rc::clone(theirs)));
                        out.push(AssignStep::Copy { of: Rc::clone(of), to, from });
                    }
                }
                _ => {
                    out.push(AssignStep::Validate(*header));
                    for (n, item) in items.iter().enumerate() {
                        let part = Self::part(value, n).ok_or(Reported)?;
                        self.collect_moves(item, &part, at, out)?;
                    }
                }
            },
            Place::Closed(ty, why) => {
                return self.fail(Diagnostic::new(at, format!("cannot write this `{ty}`")).hint(*why));
            }
        }
        Ok(())
    }

    /// Steps that copy the fields and the validity of a header (P4_16 §8.17).
    fn copy_header(
        &mut self,
        (to, ours): &(HeaderId, Rc<[Place]>),
        (from, theirs): &(HeaderId, Rc<[Place]>),
        at: SourceSpan,
    ) -> Checked<()> {
        let (then, copied) = self.collect_block(|checker| {
            checker.emit(StmtKind::SetValid { header: *to, valid: true }, at);
            for (to, from) in ours.iter().zip(theirs.iter()) {
                if matches!(from, Place::Closed(..)) {
                    let wrong = Diagnostic::new(at, "cannot copy a header with a varbit field");
                    return checker.fail(wrong.hint(VARBIT));
                }
                checker.emit_assign(to, Val::Place(from.clone()), at)?;
            }
            Ok(())
        });
        copied?;
        let condition = Expr { ty: Ty::Bool, kind: ExprKind::Valid(*from) };
        let (otherwise, ()) = self.collect_block(|checker| {
            checker.emit(StmtKind::SetValid { header: *to, valid: false }, at);
        });
        self.emit(StmtKind::If { condition, then, otherwise }, at);
        Ok(())
    }

    /// Saves a value in temporaries, so that later writes do not change it.
    pub(super) fn save_value(&mut self, value: Val, at: SourceSpan) -> Checked<Val> {
        match &value {
            Val::Place(Place::Slot(..) | Place::Slice { .. }) => {}
            Val::Scalar(_, expr) if !matches!(expr.kind, ExprKind::Const(_)) => {}
            Val::Place(Place::Struct(ty, items)) => {
                let items = items.iter().map(|item| self.save_value(Val::Place(item.clone()), at));
                let items = items.collect::<Checked<Vec<_>>>()?;
                return Ok(Val::Whole(ty.clone(), items));
            }
            Val::Place(place @ (Place::Header(..) | Place::Stack(..))) => {
                let to = self.new_place("tmp", &place.ty(), SlotKind::Local, at)?;
                self.emit_assign(&to, value, at)?;
                return Ok(Val::Place(to));
            }
            Val::List(items) => {
                let items = items.iter().map(|item| self.save_value(item.clone(), at));
                return Ok(Val::List(items.collect::<Checked<_>>()?));
            }
            Val::Record(items) => {
                let items = items.iter().map(|(name, item)| Ok((name.clone(), self.save_value(item.clone(), at)?)));
                return Ok(Val::Record(items.collect::<Checked<_>>()?));
            }
            Val::Whole(ty, items) => {
                let items = items.iter().map(|item| self.save_value(item.clone(), at));
                return Ok(Val::Whole(ty.clone(), items.collect::<Checked<_>>()?));
            }
            _ => return Ok(value),
        }
        let (ty, expr) = self.load_scalar(&value, at)?;
        let to = self.new_temporary(expr.ty, at)?;
        self.emit(StmtKind::Assign { to, value: expr }, at);
        Ok(Val::Place(Place::Slot(ty, to)))
    }
}

/// For each step, true if a later step reads what it overwrites. Fields of a header that becomes valid keep their
/// values.
fn find_overwritten(moves: &[AssignStep]) -> Vec<bool> {
    let (mut written, mut validity) = (Vec::new(), Vec::new());
    let late = |step: &AssignStep| match step {
        AssignStep::Set(to, expr) => {
            let late = written.iter().any(|slot| fold::reads(expr, *slot))
                || validity.iter().any(|header| fold::reads_validity(expr, *header));
            written.push(*to);
            late
        }
        AssignStep::Validate(header) => {
            validity.push(*header);
            false
        }
        AssignStep::Copy { to: (to, ours), from: (from, theirs), .. } => {
            let mut read = Vec::new();
            theirs.iter().for_each(|field| field.slots(&mut read));
            let late = validity.contains(from) || read.iter().any(|slot| written.contains(slot));
            validity.push(*to);
            ours.iter().for_each(|field| field.slots(&mut written));
            late
        }
    };
    moves.iter().map(late).collect()
}
