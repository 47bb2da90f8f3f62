//! Handler: its C source, its request and response, and its call in the ingress (CLIP §IV-A).

use super::types::Type;
use super::value::Place;
use super::{Checked, Checker, Item, PipelinePart, constant};
use crate::ast::{self, Direction, TypeKind};
use crate::diag::{Diagnostic, Sink};
use crate::ir::{self, Block, CSource, Expr, ExprKind, SlotId, SlotKind, SourceSpan, Stmt, StmtKind, Ty};

/// Parts of the handler that have been declared.
#[derive(Default)]
pub(super) struct Handler<'a> {
    state: Option<SourceSpan>,
    body: Option<(&'a [ast::Param], SourceSpan, SourceSpan)>,
    call: Option<Call>,
}

struct Call {
    at: SourceSpan,
    request: Vec<SlotId>,
    response: Vec<SlotId>,
    flow: Vec<SlotId>,
}

impl<'a> Handler<'a> {
    pub fn set_state(&mut self, c: SourceSpan, at: SourceSpan, sink: &mut Sink) {
        if self.state.replace(c).is_some() {
            sink.push(Diagnostic::new(at, "duplicate `state`").hint("declare all variables in one block"));
        }
    }

    pub fn set_body(&mut self, params: &'a [ast::Param], c: SourceSpan, at: SourceSpan, sink: &mut Sink) {
        if self.body.replace((params, c, at)).is_some() {
            sink.push(Diagnostic::new(at, "duplicate `remote_handler`").hint("a function has one handler"));
        }
    }

    /// True if a handler exists; names in the pipeline then carry the names of its parts.
    pub fn is_some(&self) -> bool {
        self.body.is_some()
    }
}

impl Checker<'_> {
    /// Checks `remote_handler(req, res);`.
    pub(super) fn check_remote_call(&mut self, args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        let Some((params, _, declared)) = self.handler.body else {
            let wrong = Diagnostic::new(at, "`remote_handler` is not declared");
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
            let wrong = Diagnostic::new(declared, "invalid parameters of `remote_handler`");
            return self.fail(wrong.hint("void remote_handler(in request req, out response res) { C }"));
        }
        if self.within != PipelinePart::Ingress || self.in_action {
            return self.fail(Diagnostic::new(at, "`remote_handler` is allowed in the ingress only"));
        }
        let [req, res] = self.expect_arguments(args, "remote_handler(req, res)", at)?;
        let (request, response) =
            (self.resolve_parameters(&req.value, "request")?, self.resolve_parameters(&res.value, "response")?);
        if let Some(first) = &self.handler.call {
            let wrong =
                Diagnostic::new(at, "`remote_handler` is called more than once").also(first.at, "first one is here");
            return self.fail(wrong.hint("a packet can go to the handler only once"));
        }
        let mut call = Call { at, request: Vec::new(), response: Vec::new(), flow: Vec::new() };
        request.slots(&mut call.request);
        response.slots(&mut call.response);
        if call.request.iter().any(|slot| call.response.contains(slot)) {
            return self.fail(Diagnostic::new(at, "request and response must be different variables"));
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

    fn resolve_parameters(&mut self, expr: &ast::Expr, name: &str) -> Checked<Place> {
        let place = self.resolve_target(expr)?;
        match place.ty() {
            Type::Struct(of) if &*of.name == name => Ok(place),
            ty => {
                let wrong = Diagnostic::new(expr.at, format!("expected a variable of type `{name}`, found `{ty}`"));
                self.fail(wrong.hint(format!("declare it in the pipeline's control: `{name} {};`", &name[..3])))
            }
        }
    }

    /// Moves the call to the place that the split expects, and adds the handler to the program; called after the
    /// ingress.
    pub(super) fn finish_handler(&mut self) -> Checked<()> {
        let Some((_, body, declared)) = self.handler.body else {
            if let Some(state) = self.handler.state {
                let wrong =
                    Diagnostic::new(SourceSpan { end: state.start, ..state }, "`state` without a `remote_handler`");
                return self.fail(wrong.hint("in P4, state is stored in registers"));
            }
            return Ok(());
        };
        let Some(call) = self.handler.call.take() else {
            let wrong = Diagnostic::new(declared, "`remote_handler` is never called");
            return self.fail(wrong.hint("in the pipeline: `if (flight) { remote_handler(req, res); }`"));
        };
        let mut ingress = std::mem::take(&mut self.program.ingress);
        let Some(place) = ingress.iter().position(is_remote_call) else {
            let wrong = Diagnostic::new(call.at, "`remote_handler` is called within another statement");
            return self.fail(
                wrong.hint("call it at the top level of the pipeline: `if (flight) { remote_handler(req, res); }`"),
            );
        };
        let flight = self.flight_slot(&mut ingress, place, call.at)?;
        self.program.ingress = ingress;
        let source = |checker: &Self, at: SourceSpan| CSource { text: checker.sources.slice(at).to_owned(), at };
        self.program.handler = Some(ir::HandlerDecl {
            request: call.request,
            response: call.response,
            flow: call.flow,
            flight,
            defines: self.c_constants(),
            state: self.handler.state.map_or_else(CSource::default, |at| source(self, at)),
            body: source(self, body),
        });
        Ok(())
    }

    /// Top-level constants as C definitions.
    fn c_constants(&self) -> String {
        let known = self.scopes[0].iter().filter_map(|(name, (item, at))| match item {
            Item::Const(value) => Some((*at, format!("#define {name} {}\n", constant::in_c(value)?))),
            _ => None,
        });
        let mut known: Vec<(SourceSpan, String)> = known.collect();
        known.sort();
        known.into_iter().map(|(_, line)| line).collect()
    }

    /// Slot of the call's condition; a temporary if the condition is not a plain variable.
    fn flight_slot(&mut self, ingress: &mut Block, place: usize, at: SourceSpan) -> Checked<SlotId> {
        if let StmtKind::If { condition: Expr { kind: ExprKind::Slot(slot), .. }, .. } = &ingress[place].kind {
            return Ok(*slot);
        }
        let flight = self.new_slot("flight", Ty::Bool, SlotKind::Local, at)?;
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

/// True for `remote_handler(…);` and `if (…) { remote_handler(…); }`.
fn is_remote_call(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Remote => true,
        StmtKind::If { then, otherwise, .. } => {
            otherwise.is_empty() && matches!(then.as_slice(), [Stmt { kind: StmtKind::Remote, .. }])
        }
        _ => false,
    }
}
