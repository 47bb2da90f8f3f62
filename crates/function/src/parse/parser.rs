//! Parsers: states and transitions.

use super::{Parsed, Parser};
use crate::ast::{self, State, Stmt, StmtKind, Transition};
use crate::diag::Diagnostic;

impl Parser<'_> {
    /// `parser name(…) { … }`
    pub(super) fn parser(&mut self) -> Parsed<ast::Parser> {
        self.step();
        let name = self.name("a parser's name")?;
        self.is_type(&name);
        let params = self.params()?;
        let constructor = if self.is("(") { self.params()? } else { Vec::new() };
        let mut locals: Vec<Stmt> = Vec::new();
        let items = self.braced(|parser| {
            if parser.is("state") {
                return parser.state().map(Some);
            }
            let annotated = parser.at;
            parser.annotations()?;
            if parser.is("state") {
                return parser.state().map(Some);
            }
            if parser.is("value_set") {
                let wrong = Diagnostic::new(parser.here(), "`value_set` is not in the subset");
                return parser.fail(wrong.hint("list the values in the `select`, or look them up in a table"));
            }
            if !parser.is("const") && !parser.begins_declaration() {
                return parser.unexpected("`state` or a declaration");
            }
            parser.at = annotated;
            let local = parser.statement()?;
            if !matches!(local.kind, StmtKind::Variable(_) | StmtKind::Const(_) | StmtKind::Instance(_)) {
                let wrong = Diagnostic::new(local.at, "a statement outside of the parser's states");
                return parser.fail(wrong);
            }
            locals.push(local);
            Ok(None)
        })?;
        let states = items.into_iter().flatten().collect();
        Ok(ast::Parser { name, params, constructor, locals, states })
    }

    /// `state name { … transition next; }`
    fn state(&mut self) -> Parsed<State> {
        self.step();
        let name = self.name("a state's name")?;
        let mut transition = None;
        let body = self.braced(|parser| {
            if transition.is_some() {
                return parser.unexpected("`}` (a transition ends a state)");
            }
            if parser.eat("transition") {
                transition = Some(parser.transition()?);
                return Ok(None);
            }
            parser.statement().map(Some)
        })?;
        Ok(State { name, body: body.into_iter().flatten().collect(), transition })
    }

    /// `next;` or `select(…) { … }`
    fn transition(&mut self) -> Parsed<Transition> {
        let at = self.here();
        if !self.eat("select") {
            let name = self.name("a state's name or `select`")?;
            self.expect(";")?;
            return Ok(Transition::To(name));
        }
        self.expect("(")?;
        let keys = self.list(")", Self::expr)?;
        let at = self.since(at);
        let cases = self.braced(|parser| {
            let keys = parser.keysets()?;
            parser.expect(":")?;
            let name = parser.name("a state's name")?;
            parser.expect(";")?;
            Ok((keys, name))
        })?;
        Ok(Transition::Select { keys, cases, at })
    }
}
