//! Statements.

use super::{Parsed, Parser};
use crate::ast::{Case, Stmt, StmtKind, Variable};
use crate::diag::Diagnostic;
use crate::lex::Kind;

impl Parser<'_> {
    /// `{ … }`
    pub(super) fn block(&mut self) -> Parsed<Vec<Stmt>> {
        self.annotations()?;
        self.nested(|parser| parser.braced(Self::statement))
    }

    pub(super) fn statement(&mut self) -> Parsed<Stmt> {
        self.nested(Self::statement_within)
    }

    fn statement_within(&mut self) -> Parsed<Stmt> {
        let annotations = self.annotations()?;
        let at = self.here();
        let word = match self.kind() {
            Kind::Name(word) => word.clone(),
            _ => "".into(),
        };
        let kind = match &*word {
            "const" => StmtKind::Const(self.constant()?),
            "if" => self.conditional()?,
            "switch" => self.switch()?,
            "exit" => {
                self.step();
                self.expect(";")?;
                StmtKind::Exit
            }
            "return" => {
                self.step();
                let value = if self.is(";") { None } else { Some(self.expr()?) };
                self.expect(";")?;
                StmtKind::Return(value)
            }
            "for" if self.ahead(1).kind.is("(") => {
                let wrong = Diagnostic::new(at, "`for` is not in the subset");
                self.sink.push(wrong.hint("write each step, with a macro (#define) or an action for what repeats"));
                while !self.is(")") && !self.is("{") && *self.kind() != Kind::End {
                    self.step();
                }
                self.eat(")");
                return self.statement();
            }
            "else" => {
                let wrong = Diagnostic::new(at, "`else` without its `if`");
                return self.fail(wrong);
            }
            "table" | "action" => {
                let wrong = Diagnostic::new(
                    at,
                    format!(
                        "a declaration of a{} within statements",
                        match &*word {
                            "table" => " table",
                            _ => "n action",
                        }
                    ),
                );
                return self.fail(wrong.hint("declare it in the control, before `apply`"));
            }
            _ if self.is("{") => StmtKind::Block(self.block()?),
            _ if self.eat(";") => StmtKind::Empty,
            _ if self.begins_declaration() => self.variable(annotations)?,
            _ => self.assignment_or_call()?,
        };
        Ok(Stmt { kind, at: self.since(at) })
    }

    /// `T name = value;`, `T(args) name;`
    fn variable(&mut self, annotations: Vec<crate::ast::Annotation>) -> Parsed<StmtKind> {
        let ty = self.ty()?;
        if self.is("(") {
            return Ok(StmtKind::Instance(self.instance(annotations, ty)?));
        }
        let name = self.name("a variable's name")?;
        let value = if self.eat("=") { Some(self.expr()?) } else { None };
        self.expect(";")?;
        Ok(StmtKind::Variable(Variable { ty, name, value }))
    }

    fn assignment_or_call(&mut self) -> Parsed<StmtKind> {
        let start = self.here();
        if !matches!(self.kind(), Kind::Name(_) | Kind::Punct(".")) {
            return self.unexpected("a statement");
        }
        let left = self.operand()?;
        if self.eat("=") {
            let value = self.expr()?;
            self.expect(";")?;
            return Ok(StmtKind::Assign(left, value));
        }
        if matches!(left.kind, crate::ast::ExprKind::Call { .. }) {
            self.expect(";")?;
            return Ok(StmtKind::Call(left));
        }
        let compound = ["+", "-", "*", "&", "|", "^", "/", "%", "|+|", "|-|"];
        if compound.iter().any(|operator| self.is(operator)) && self.ahead(1).kind.is("=") && self.ahead(1).joined {
            let wrong = Diagnostic::new(self.here(), format!("`{}=` is not in the subset", self.operator_text()));
            return self.fail(wrong.hint(format!("write `x = x {} …`", self.operator_text())));
        }
        if matches!(self.kind(), Kind::Punct(_) | Kind::End) {
            return self.unexpected("`=` or `(`");
        }
        let wrong = Diagnostic::new(self.since(start), "expected a statement");
        self.fail(wrong.hint("a statement assigns (`a = b;`), calls (`f(a);`), or begins with if, switch, return, …"))
    }

    fn operator_text(&self) -> String {
        self.kind().to_string().trim_matches('`').to_owned()
    }

    /// `if (c) s else s`
    fn conditional(&mut self) -> Parsed<StmtKind> {
        self.step();
        self.expect("(")?;
        let condition = self.expr()?;
        self.expect(")")?;
        let then = Box::new(self.statement()?);
        let otherwise = if self.eat("else") { Some(Box::new(self.statement()?)) } else { None };
        Ok(StmtKind::If(condition, then, otherwise))
    }

    /// `switch (e) { a: { … } b: default: { … } }`
    fn switch(&mut self) -> Parsed<StmtKind> {
        self.step();
        self.expect("(")?;
        let of = self.expr()?;
        self.expect(")")?;
        let cases = self.braced(|parser| {
            let at = parser.here();
            let label = if parser.eat("default") || parser.eat("_") { None } else { Some(parser.expr()?) };
            parser.expect(":")?;
            let body = if parser.is("{") { Some(parser.block()?) } else { None };
            Ok(Case { label, body, at: parser.since(at) })
        })?;
        Ok(StmtKind::Switch(of, cases))
    }
}
