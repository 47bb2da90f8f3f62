//! Arguments to parameters: by their place where nobody can tell, else copied in and back (P4_16 §6.8).

use super::mentions::{changes, mentions};
use super::types::Type;
use super::value::{Place, Val};
use super::{Checked, Checker, Item};
use crate::ast::{self, Direction, ExprKind};
use crate::diag::Diagnostic;
use crate::ir::{Expr, SlotKind, Span, StmtKind};

/// What parameters are bound to, and what is copied back afterwards: to the first from the second.
pub(super) struct Bound<'a> {
    pub items: Vec<(ast::Name, Item<'a>)>,
    pub copies_back: Vec<(Place, Place)>,
}

impl<'a> Checker<'a> {
    /// Binds them all. `seen`: the body, if it sees names of the caller's.
    pub(super) fn arguments_to(
        &mut self,
        params: &'a [ast::Param],
        args: &[ast::Arg],
        seen: Option<&[ast::Stmt]>,
        at: Span,
    ) -> Checked<Bound<'a>> {
        let args = self.ordered(params, args, at)?;
        let changed = args.iter().any(|arg| changes(arg));
        // Places that are written come first: what is only read may not lie in them.
        let mut written: Vec<Option<Place>> = Vec::new();
        let mut failed = None;
        for (param, arg) in params.iter().zip(&args) {
            let out = matches!(param.direction, Direction::Out | Direction::InOut);
            let place = if out { self.target(arg).map(Some) } else { Ok(None) };
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
                Direction::None if self.packet(param, arg, &mut bound) => continue,
                _ => self.ty(&param.ty)?,
            };
            let reached = changed || seen.is_some_and(|body| root(arg).is_none_or(|root| mentions(body, root)));
            let others = written.iter().enumerate().filter(|(m, _)| *m != n).filter_map(|(_, place)| place.as_ref());
            let others: Vec<Place> = others.cloned().collect();
            let item = match &written[n] {
                Some(place) => self.written_to(param, &ty, place, reached, &others, arg.at, &mut bound)?,
                None => self.read_from(param, &ty, arg, reached, &others)?,
            };
            if let (Direction::Out, Item::Var { place, .. }) = (param.direction, &item) {
                cleared.push((place.clone(), arg.at));
            }
            bound.items.push((param.name.clone(), item));
        }
        // Not before all that is read has been.
        cleared.iter().for_each(|(place, at)| self.cleared(place, *at));
        Ok(bound)
    }

    /// Arguments in the order of the parameters.
    fn ordered<'x>(&mut self, params: &[ast::Param], args: &'x [ast::Arg], at: Span) -> Checked<Vec<&'x ast::Expr>> {
        if args.len() != params.len() {
            let usage: Vec<&str> = params.iter().map(|param| &*param.name.text).collect();
            let mut wrong = Diagnostic::new(at, format!("expected {} arguments, found {}", params.len(), args.len()));
            if let Some(first) = params.first().filter(|first| first.name.at.file != at.file) {
                wrong = wrong.also(first.name.at, "its parameters are declared here");
            }
            return self.fail(wrong.hint(format!("its parameters are ({})", usage.join(", "))));
        }
        if args.iter().all(|arg| arg.name.is_none()) {
            return Ok(args.iter().map(|arg| &arg.value).collect());
        }
        let mut ordered = Vec::new();
        for param in params {
            let named = |arg: &&ast::Arg| arg.name.as_ref().is_some_and(|name| name.text == param.name.text);
            match args.iter().find(named) {
                Some(arg) => ordered.push(&arg.value),
                None => return self.fail(Diagnostic::new(at, format!("no argument `{}`", param.name.text))),
            }
        }
        Ok(ordered)
    }

    /// Whether the argument is a packet, that is bound as it is.
    fn packet(&mut self, param: &'a ast::Param, arg: &ast::Expr, bound: &mut Bound<'a>) -> bool {
        let ExprKind::Name(name) = &arg.kind else { return false };
        let item = self.lookup(name);
        let Some(item @ (Item::PacketIn | Item::PacketOut)) = item else { return false };
        bound.items.push((param.name.clone(), item));
        true
    }

    /// `out`, `inout`
    #[expect(clippy::too_many_arguments, reason = "one parameter with all that is known of it")]
    fn written_to(
        &mut self,
        param: &ast::Param,
        ty: &Type,
        place: &Place,
        reached: bool,
        others: &[Place],
        at: Span,
        bound: &mut Bound<'a>,
    ) -> Checked<Item<'a>> {
        if place.ty() != *ty {
            let wrong = format!("expected `{ty}` for `{}`, found `{}`", param.name.text, place.ty());
            return self.fail(Diagnostic::new(at, wrong).hint("what is written to has the parameter's type exactly"));
        }
        let slice = matches!(place, Place::Slice { .. });
        let by_place = !slice && !reached && !others.iter().any(|other| other.overlaps(place));
        let local = if by_place { place.clone() } else { self.place(&param.name.text, ty, SlotKind::Local, at)? };
        if !by_place {
            bound.copies_back.push((place.clone(), local.clone()));
        }
        if param.direction == Direction::InOut && !by_place {
            self.assign(&local, Val::Place(place.clone()), at)?;
        }
        Ok(Item::Var { place: local, writable: true })
    }

    /// `in`, or without a direction
    fn read_from(
        &mut self,
        param: &ast::Param,
        ty: &Type,
        arg: &ast::Expr,
        reached: bool,
        others: &[Place],
    ) -> Checked<Item<'a>> {
        let value = self.expr(arg)?;
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
        let place = self.place(&param.name.text, ty, SlotKind::Local, arg.at)?;
        self.assign(&place, value, arg.at)?;
        Ok(Item::Var { place, writable: false })
    }

    /// What is `out` begins as 0, headers as not valid: the same in every execution.
    pub(super) fn cleared(&mut self, place: &Place, at: Span) {
        match place {
            Place::Header(_, header, _) => self.emit(StmtKind::SetValid { header: *header, valid: false }, at),
            Place::Struct(_, items) | Place::Stack(_, items) => items.iter().for_each(|item| self.cleared(item, at)),
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

    /// What calls copy back at their end.
    pub(super) fn copy_back(&mut self, copies: &[(Place, Place)], at: Span) -> Checked<()> {
        for (to, from) in copies {
            self.assign(to, Val::Place(from.clone()), at)?;
        }
        Ok(())
    }
}

/// The name that a place begins with.
fn root(expr: &ast::Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Name(name) => Some(name),
        ExprKind::Member(of, _) | ExprKind::Index(of, _) | ExprKind::Slice(of, ..) => root(of),
        _ => None,
    }
}
