//! Argument binding: by reference where aliasing cannot be observed, else copy-in and copy-out (P4_16 §6.8).

use super::mentions::{has_side_effect, mentions};
use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Item};
use crate::ast::{self, Direction, ExprKind};
use crate::diag::Diagnostic;
use crate::ir::{Expr, SlotKind, SourceSpan, StmtKind};

/// Bound parameters, and the (destination, source) pairs of the copies at the call's end.
pub(super) struct Bound<'a> {
    pub items: Vec<(ast::Name, Item<'a>)>,
    pub copies_back: Vec<(Place, Place)>,
}

impl<'a> Checker<'a> {
    /// Binds all arguments. `seen` is the body if it sees names of the caller.
    pub(super) fn bind_arguments(
        &mut self,
        params: &'a [ast::Param],
        args: &[ast::Arg],
        seen: Option<&[ast::Stmt]>,
        at: SourceSpan,
    ) -> Checked<Bound<'a>> {
        let args = self.order_arguments(params, args, at)?;
        let changed = args.iter().any(|arg| has_side_effect(arg));
        // Written arguments are bound first: a parameter that is only read must not alias them.
        let mut written: Vec<Option<Place>> = Vec::new();
        let mut failed = None;
        for (param, arg) in params.iter().zip(&args) {
            let out = matches!(param.direction, Direction::Out | Direction::InOut);
            let place = if out { self.resolve_target(arg).map(Some) } else { Ok(None) };
            written.push(place.unwrap_or_else(|wrong| {
                failed = Some(wrong);
                None
            }));
        }
        if let Some(wrong) = failed {
            return Err(wrong);
        }
        let mut bound = Bound { items: Vec::new(), copies_back: Vec::new() };
        let mut cleared = Vec::new();
        for (n, (param, arg)) in params.iter().zip(&args).enumerate() {
            let ty = match param.direction {
                Direction::None if self.bind_packet(param, arg, &mut bound) => continue,
                _ => self.resolve_type(&param.ty)?,
            };
            let reached = changed || seen.is_some_and(|body| root_name(arg).is_none_or(|root| mentions(body, root)));
            let others = written.iter().enumerate().filter(|(m, _)| *m != n).filter_map(|(_, place)| place.as_ref());
            let others: Vec<Place> = others.cloned().collect();
            let item = match &written[n] {
                Some(place) => self.bind_written(param, &ty, place, reached, &others, arg.at, &mut bound)?,
                None => self.bind_read(param, &ty, arg, reached, &others)?,
            };
            if let (Direction::Out, Item::Var { place, .. }) = (param.direction, &item) {
                cleared.push((place.clone(), arg.at));
            }
            bound.items.push((param.name.clone(), item));
        }
        // `out` parameters are cleared after all arguments have been read.
        cleared.iter().for_each(|(place, at)| self.clear(place, *at));
        Ok(bound)
    }

    /// Orders the arguments as the parameters.
    fn order_arguments<'x>(
        &mut self,
        params: &[ast::Param],
        args: &'x [ast::Arg],
        at: SourceSpan,
    ) -> Checked<Vec<&'x ast::Expr>> {
        if args.len() != params.len() {
            let usage: Vec<&str> = params.iter().map(|param| &*param.name.text).collect();
            let mut wrong = Diagnostic::new(at, format!("expected {} arguments, found {}", params.len(), args.len()));
            if let Some(first) = params.first().filter(|first| first.name.at.file != at.file) {
                wrong = wrong.also(first.name.at, "parameters declared here");
            }
            return self.fail(wrong.hint(format!("parameters: ({})", usage.join(", "))));
        }
        if args.iter().all(|arg| arg.name.is_none()) {
            return Ok(args.iter().map(|arg| &arg.value).collect());
        }
        let mut ordered = Vec::new();
        for param in params {
            let named = |arg: &&ast::Arg| arg.name.as_ref().is_some_and(|name| name.text == param.name.text);
            match args.iter().find(named) {
                Some(arg) => ordered.push(&arg.value),
                None => {
                    return self
                        .fail(Diagnostic::new(at, format!("missing argument for parameter `{}`", param.name.text)));
                }
            }
        }
        Ok(ordered)
    }

    /// Binds a `packet_in` or `packet_out` argument; false for other arguments.
    fn bind_packet(&mut self, param: &'a ast::Param, arg: &ast::Expr, bound: &mut Bound<'a>) -> bool {
        let ExprKind::Name(name) = &arg.kind else { return false };
        let item = self.lookup(name);
        let Some(item @ (Item::PacketIn | Item::PacketOut)) = item else { return false };
        bound.items.push((param.name.clone(), item));
        true
    }

    /// Binds an `out` or `inout` argument.
    #[expect(clippy::too_many_arguments, reason = "one parameter and its argument")]
    fn bind_written(
        &mut self,
        param: &ast::Param,
        ty: &Type,
        place: &Place,
        reached: bool,
        others: &[Place],
        at: SourceSpan,
        bound: &mut Bound<'a>,
    ) -> Checked<Item<'a>> {
        if place.ty() != *ty {
            let wrong = format!("expected `{ty}` for `{}`, found `{}`", param.name.text, place.ty());
            return self.fail(
                Diagnostic::new(at, wrong).hint("an `out` or `inout` argument must have exactly the parameter's type"),
            );
        }
        let slice = matches!(place, Place::Slice { .. });
        let by_place = !slice && !reached && !others.iter().any(|other| other.overlaps(place));
        let local = if by_place { place.clone() } else { self.new_place(&param.name.text, ty, SlotKind::Local, at)? };
        if !by_place {
            bound.copies_back.push((place.clone(), local.clone()));
        }
        if param.direction == Direction::InOut && !by_place {
            self.emit_assign(&local, Val::Place(place.clone()), at)?;
        }
        Ok(Item::Var { place: local, writable: true })
    }

    /// Binds an `in` or directionless argument.
    fn bind_read(
        &mut self,
        param: &ast::Param,
        ty: &Type,
        arg: &ast::Expr,
        reached: bool,
        others: &[Place],
    ) -> Checked<Item<'a>> {
        let value = self.check_expr(arg)?;
        if matches!(ty, Type::PacketIn | Type::PacketOut) {
            return self.fail(Diagnostic::new(arg.at, format!("expected a `{ty}`, found {}", value.describe())));
        }
        let value = self.coerce(value, ty, arg.at)?;
        match &value {
            Val::Place(place @ (Place::Slot(..) | Place::Struct(..) | Place::Header(..) | Place::Stack(..)))
                if !reached && !others.iter().any(|other| other.overlaps(place)) =>
            {
                return Ok(Item::Var { place: place.clone(), writable: false });
            }
            Val::Scalar(..) if value.constant().is_some() => return Ok(Item::Const(value)),
            Val::Num(_) | Val::Text => return Ok(Item::Const(value)),
            _ => {}
        }
        let place = self.new_place(&param.name.text, ty, SlotKind::Local, arg.at)?;
        self.emit_assign(&place, value, arg.at)?;
        Ok(Item::Var { place, writable: false })
    }

    /// Clears an `out` parameter: fields to 0, headers to invalid, so that all executions agree.
    pub(super) fn clear(&mut self, place: &Place, at: SourceSpan) {
        match place {
            Place::Header(_, header, _) => self.emit(StmtKind::SetValid { header: *header, valid: false }, at),
            Place::Struct(_, items) | Place::Stack(_, items) => items.iter().for_each(|item| self.clear(item, at)),
            Place::Slot(_, slot) => {
                let kept = &self.program.slots[slot.0 as usize];
                let (ty, filled) = (kept.ty, matches!(kept.kind, SlotKind::Field { .. } | SlotKind::Standard(_)));
                if filled || self.written.contains(slot) || self.parsing.is_some() || self.in_action {
                    self.emit(StmtKind::Assign { to: *slot, value: Expr::constant(ty, 0) }, at);
                }
            }
            Place::Slice { .. } | Place::Closed(..) => {}
        }
    }

    /// Emits the copies at a call's end.
    pub(super) fn emit_copies_back(&mut self, copies: &[(Place, Place)], at: SourceSpan) -> Checked<()> {
        for (to, from) in copies {
            self.emit_assign(to, Val::Place(from.clone()), at)?;
        }
        Ok(())
    }
}

/// First name of a path expression.
fn root_name(expr: &ast::Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Name(name) => Some(name),
        ExprKind::Member(of, _) | ExprKind::Index(of, _) | ExprKind::Slice(of, ..) => root_name(of),
        _ => None,
    }
}
