//! Parser declarations: states and transitions.

use super::{Parsed, Parser};
use crate::ast::{self, State, Stmt, StmtKind, Transition};
use crate::diag::Diagnostic;

impl Parser<'_> {
    /// Parses `parser name(…) { … }`.
    pub(super) fn parse_parser(&mut self) -> Parsed<ast::Parser> {
        self.advance();
        let name = self.parse_name("a parser name")?;
        self.add_type(&name);
        let params = self.parse_params()?;
        let constructor = if self.is("(") { self.parse_params()? } else { Vec::new() };
        let mut locals: Vec<Stmt> = Vec::new();
        let items = self.parse_braced(|parser| {
            if parser.is("state") {
                return parser.parse_state().map(Some);
            }
            let annotated = parser.at;
            parser.parse_annotations()?;
            if parser.is("state") {
                return parser.parse_state().map(Some);
            }
            if parser.is("value_set") {
                let wrong = Diagnostic::new(parser.current_span(), "`value_set` is not supported");
                return parser.fail(wrong.hint("list the values in the `select`, or look them up in a table"));
            }
            if !parser.is("const") && !parser.begins_declaration() {
                return parser.report_unexpected("`state` or a declaration");
            }
            parser.at = annotated;
            let local = parser.parse_statement()?;
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

    /// Parses `state name { … transition next; }`.
    fn parse_state(&mut self) -> Parsed<State> {
        self.advance();
        let name = self.parse_name("a state name")?;
        let mut transition = None;
        let body = self.parse_braced(|parser| {
            if transition.is_some() {
                return parser.report_unexpected("`}` (a transition ends a state)");
            }
            if parser.eat("transition") {
                transition = Some(parser.parse_transition()?);
                return Ok(None);
            }
            parser.parse_statement().map(Some)
        })?;
        Ok(State { name, body: body.into_iter().flatten().collect(), transition })
    }

    /// Parses `next;` or `select(…) { … }`.
    fn parse_transition(&mut self) -> Parsed<Transition> {
        let at = self.current_span();
        if !self.eat("select") {
            let name = self.parse_name("a state name or `select`")?;
            self.expect(";")?;
            return Ok(Transition::To(name));
        }
        self.expect("(")?;
        let keys = self.parse_list(")", Self::parse_expr)?;
        let at = self.span_since(at);
        let cases = self.parse_braced(|parser| {
            let keys = parser.parse_keysets()?;
            parser.expect(":")?;
            let name = parser.parse_name("a state name")?;
            parser.expect(";")?;
            Ok((keys, name))
        })?;
        Ok(Transition::Select { keys, cases, at })
    }
}
