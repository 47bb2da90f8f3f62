//! The handler: its C, what goes to it and comes from it, and where it is called (CLIP §IV-A).

use super::types::Type;
use super::value::Place;
use super::{Checked, Checker, Item, Within, constant};
use crate::ast::{self, Direction, TypeKind};
use crate::diag::{Diagnostic, Sink};
use crate::ir::{self, Block, Expr, ExprKind, SlotId, SlotKind, Source, Span, Stmt, StmtKind, Ty};

/// What is known of it.
#[derive(Default)]
pub(super) struct Handler<'a> {
    state: Option<Span>,
    body: Option<(&'a [ast::Param], Span, Span)>,
    call: Option<Call>,
}

struct Call {
    at: Span,
    request: Vec<SlotId>,
    response: Vec<SlotId>,
    flow: Vec<SlotId>,
}

impl<'a> Handler<'a> {
    pub fn state(&mut self, c: Span, at: Span, sink: &mut Sink) {
        if self.state.replace(c).is_some() {
            sink.push(Diagnostic::new(at, "a second `state`").hint("all variables stand in one"));
        }
    }

    pub fn body(&mut self, params: &'a [ast::Param], c: Span, at: Span, sink: &mut Sink) {
        if self.body.replace((params, c, at)).is_some() {
            sink.push(Diagnostic::new(at, "a second `remote_handler`").hint("a function has one"));
        }
    }

    /// Whether there is one: names in the pipeline then begin with its parts.
    pub fn is_some(&self) -> bool {
        self.body.is_some()
    }
}

impl Checker<'_> {
    /// `remote_handler(req, res);`
    pub(super) fn remote(&mut self, args: &[ast::Arg], at: Span) -> Checked<()> {
        let Some((params, _, declared)) = self.handler.body else {
            let wrong = Diagnostic::new(at, "no `remote_handler` is declared");
            return self.fail(wrong.hint("void remote_handler(in request req, out response res) { C }"));
        };
        let right = match params {
            [req, res] => {
                let named = |param: &ast::Param, of: &str| matches!(&param.ty.kind, TypeKind::Named(name, _) if &*name.text == of);
                named(req, "request")
                    && named(res, "response")
                    && req.direction == Direction::In
                    && res.direction == Direction::Out
            }
            _ => false,
        };
        if !right {
            let wrong = Diagnostic::new(declared, "a handler with other parameters");
            return self.fail(wrong.hint("void remote_handler(in request req, out response res) { C }"));
        }
        if self.within != Within::Ingress || self.in_action {
            return self.fail(Diagnostic::new(at, "`remote_handler` outside of the ingress"));
        }
        let [req, res] = self.arguments(args, "remote_handler(req, res)", at)?;
        let (request, response) =
            (self.parameters_at(&req.value, "request")?, self.parameters_at(&res.value, "response")?);
        if let Some(first) = &self.handler.call {
            let wrong = Diagnostic::new(at, "a second call of `remote_handler`").also(first.at, "the first is here");
            return self.fail(wrong.hint("a packet goes to the handler once"));
        }
        let mut call = Call { at, request: Vec::new(), response: Vec::new(), flow: Vec::new() };
        request.slots(&mut call.request);
        response.slots(&mut call.response);
        if call.request.iter().any(|slot| call.response.contains(slot)) {
            return self.fail(Diagnostic::new(at, "request and response are one variable"));
        }
        if let Place::Struct(Type::Struct(of), items) = &request {
            for (_, item) in of.fields.iter().zip(items.iter()).filter(|(field, _)| field.flow) {
                item.slots(&mut call.flow);
            }
        }
        for slot in &call.request {
            self.program.slots[slot.0 as usize].kind = SlotKind::Request;
        }
        for slot in &call.response {
            self.program.slots[slot.0 as usize].kind = SlotKind::Response;
        }
        self.handler.call = Some(call);
        self.emit(StmtKind::Remote, at);
        Ok(())
    }

    fn parameters_at(&mut self, expr: &ast::Expr, name: &str) -> Checked<Place> {
        let place = self.target(expr)?;
        match place.ty() {
            Type::Struct(of) if &*of.name == name => Ok(place),
            ty => {
                let wrong = Diagnostic::new(expr.at, format!("expected a variable of type `{name}`, found `{ty}`"));
                self.fail(wrong.hint(format!("declare it in the pipeline's control: `{name} {};`", &name[..3])))
            }
        }
    }

    /// When the ingress is written: puts the call where the split expects it, and the handler into the program.
    pub(super) fn handle(&mut self) -> Checked<()> {
        let Some((_, body, declared)) = self.handler.body else {
            if let Some(state) = self.handler.state {
                let wrong = Diagnostic::new(Span { end: state.start, ..state }, "`state` without a `remote_handler`");
                return self.fail(wrong.hint("in P4, state is in registers"));
            }
            return Ok(());
        };
        let Some(call) = self.handler.call.take() else {
            let wrong = Diagnostic::new(declared, "`remote_handler` is never called");
            return self.fail(wrong.hint("in the pipeline: `if (flight) { remote_handler(req, res); }`"));
        };
        let mut ingress = std::mem::take(&mut self.program.ingress);
        let Some(place) = ingress.iter().position(calls) else {
            let wrong = Diagnostic::new(call.at, "`remote_handler` is called within another statement");
            return self
                .fail(wrong.hint("call it at the top of the pipeline: `if (flight) { remote_handler(req, res); }`"));
        };
        let flight = self.flight(&mut ingress, place, call.at)?;
        self.program.ingress = ingress;
        let source = |checker: &Self, at: Span| Source { text: checker.sources.slice(at).to_owned(), at };
        self.program.handler = Some(ir::Handler {
            request: call.request,
            response: call.response,
            flow: call.flow,
            flight,
            defines: self.constants_in_c(),
            state: self.handler.state.map_or_else(Source::default, |at| source(self, at)),
            body: source(self, body),
        });
        Ok(())
    }

    /// Constants at the top of the file, as C has them.
    fn constants_in_c(&self) -> String {
        let known = self.scopes[0].iter().filter_map(|(name, (item, at))| match item {
            Item::Const(value) => Some((*at, format!("#define {name} {}\n", constant::in_c(value)?))),
            _ => None,
        });
        let mut known: Vec<(Span, String)> = known.collect();
        known.sort();
        known.into_iter().map(|(_, line)| line).collect()
    }

    /// The slot that decides; one of the compiler's, if the condition is not just a variable.
    fn flight(&mut self, ingress: &mut Block, place: usize, at: Span) -> Checked<SlotId> {
        if let StmtKind::If { condition: Expr { kind: ExprKind::Slot(slot), .. }, .. } = &ingress[place].kind {
            return Ok(*slot);
        }
        let flight = self.slot("flight", Ty::Bool, SlotKind::Local, at)?;
        let decides = Expr::slot(Ty::Bool, flight);
        let value = match &mut ingress[place].kind {
            StmtKind::If { condition, .. } => std::mem::replace(condition, decides),
            remote => {
                let then = vec![Stmt { kind: std::mem::replace(remote, StmtKind::Return), at }];
                *remote = StmtKind::If { condition: decides, then, otherwise: Vec::new() };
                Expr::constant(Ty::Bool, 1)
            }
        };
        ingress.insert(place, Stmt { kind: StmtKind::Assign { to: flight, value }, at });
        Ok(flight)
    }
}

/// `remote_handler(…);` or `if (…) { remote_handler(…); }`
fn calls(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Remote => true,
        StmtKind::If { then, otherwise, .. } => {
            otherwise.is_empty() && matches!(then.as_slice(), [Stmt { kind: StmtKind::Remote, .. }])
        }
        _ => false,
    }
}
