//! Statements.

use super::{Parsed, Parser};
use crate::ast::{Case, Stmt, StmtKind, Variable};
use crate::diag::Diagnostic;
use crate::lex::TokenKind;

impl Parser<'_> {
    /// Parses `{ … }`.
    pub(super) fn parse_block(&mut self) -> Parsed<Vec<Stmt>> {
        self.parse_annotations()?;
        self.run_nested(|parser| parser.parse_braced(Self::parse_statement))
    }

    pub(super) fn parse_statement(&mut self) -> Parsed<Stmt> {
        self.run_nested(Self::parse_statement_inner)
    }

    fn parse_statement_inner(&mut self) -> Parsed<Stmt> {
        let annotations = self.parse_annotations()?;
        let at = self.current_span();
        let word = match self.kind() {
            TokenKind::Name(word) => word.clone(),
            _ => "".into(),
        };
        let kind = match &*word {
            "const" => StmtKind::Const(self.parse_const()?),
            "if" => self.parse_if()?,
            "switch" => self.parse_switch()?,
            "exit" => {
                self.advance();
                self.expect(";")?;
                StmtKind::Exit
            }
            "return" => {
                self.advance();
                let value = if self.is(";") { None } else { Some(self.parse_expr()?) };
                self.expect(";")?;
                StmtKind::Return(value)
            }
            "for" if self.peek(1).kind.is("(") => {
                let wrong = Diagnostic::new(at, "`for` is not supported");
                self.sink.push(wrong.hint("unroll the loop, with a macro (#define) or an action for its body"));
                while !self.is(")") && !self.is("{") && *self.kind() != TokenKind::End {
                    self.advance();
                }
                self.eat(")");
                return self.parse_statement();
            }
            "else" => {
                let wrong = Diagnostic::new(at, "`else` without `if`");
                return self.fail(wrong);
            }
            "table" | "action" => {
                let wrong = Diagnostic::new(
                    at,
                    format!(
                        "declaration of a{} within statements",
                        match &*word {
                            "table" => " table",
                            _ => "n action",
                        }
                    ),
                );
                return self.fail(wrong.hint("declare it in the control, before `apply`"));
            }
            _ if self.is("{") => StmtKind::Block(self.parse_block()?),
            _ if self.eat(";") => StmtKind::Empty,
            _ if self.begins_declaration() => self.parse_variable(annotations)?,
            _ => self.parse_assignment_or_call()?,
        };
        Ok(Stmt { kind, at: self.span_since(at) })
    }

    /// Parses `T name = value;` or `T(args) name;`.
    fn parse_variable(&mut self, annotations: Vec<crate::ast::Annotation>) -> Parsed<StmtKind> {
        let ty = self.parse_type()?;
        if self.is("(") {
            return Ok(StmtKind::Instance(self.parse_instance(annotations, ty)?));
        }
        let name = self.parse_name("a variable name")?;
        let value = if self.eat("=") { Some(self.parse_expr()?) } else { None };
        self.expect(";")?;
        Ok(StmtKind::Variable(Variable { ty, name, value }))
    }

    fn parse_assignment_or_call(&mut self) -> Parsed<StmtKind> {
        let start = self.current_span();
        if !matches!(self.kind(), TokenKind::Name(_) | TokenKind::Punct(".")) {
            return self.report_unexpected("a statement");
        }
        let left = self.parse_operand()?;
        if self.eat("=") {
            let value = self.parse_expr()?;
            self.expect(";")?;
            return Ok(StmtKind::Assign(left, value));
        }
        if matches!(left.kind, crate::ast::ExprKind::Call { .. }) {
            self.expect(";")?;
            return Ok(StmtKind::Call(left));
        }
        let compound = ["+", "-", "*", "&", "|", "^", "/", "%", "|+|", "|-|"];
        if compound.iter().any(|operator| self.is(operator)) && self.peek(1).kind.is("=") && self.peek(1).joined {
            let wrong = Diagnostic::new(self.current_span(), format!("`{}=` is not supported", self.operator_text()));
            return self.fail(wrong.hint(format!("write `x = x {} …`", self.operator_text())));
        }
        if matches!(self.kind(), TokenKind::Punct(_) | TokenKind::End) {
            return self.report_unexpected("`=` or `(`");
        }
        let wrong = Diagnostic::new(self.span_since(start), "expected a statement");
        self.fail(wrong.hint("a statement assigns (`a = b;`), calls (`f(a);`), or begins with if, switch, return, …"))
    }

    fn operator_text(&self) -> String {
        self.kind().to_string().trim_matches('`').to_owned()
    }

    /// Parses `if (c) s else s`.
    fn parse_if(&mut self) -> Parsed<StmtKind> {
        self.advance();
        self.expect("(")?;
        let condition = self.parse_expr()?;
        self.expect(")")?;
        let then = Box::new(self.parse_statement()?);
        let otherwise = if self.eat("else") { Some(Box::new(self.parse_statement()?)) } else { None };
        Ok(StmtKind::If(condition, then, otherwise))
    }

    /// Parses `switch (e) { a: { … } b: default: { … } }`.
    fn parse_switch(&mut self) -> Parsed<StmtKind> {
        self.advance();
        self.expect("(")?;
        let of = self.parse_expr()?;
        self.expect(")")?;
        let cases = self.parse_braced(|parser| {
            let at = parser.current_span();
            let label = if parser.eat("default") || parser.eat("_") { None } else { Some(parser.parse_expr()?) };
            parser.expect(":")?;
            let body = if parser.is("{") { Some(parser.parse_block()?) } else { None };
            Ok(Case { label, body, at: parser.span_since(at) })
        })?;
        Ok(StmtKind::Switch(of, cases))
    }
}
