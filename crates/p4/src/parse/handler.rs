//! CLIP's extensions: `state` and `remote_handler` in C, and partitions (§IV-A, §V-B).

use super::{Parsed, Parser};
use crate::ast::Decl;
use crate::diag::Diagnostic;
use crate::ir::SourceSpan;
use crate::lex::TokenKind;

impl Parser<'_> {
    /// Parses `state { C }`.
    pub(super) fn parse_state_variables(&mut self) -> Parsed<Decl> {
        let at = self.advance().at;
        Ok(Decl::State { c: self.parse_c()?, at })
    }

    /// Parses `void remote_handler(in request req, out response res) { C }`.
    pub(super) fn parse_remote_handler(&mut self) -> Parsed<Decl> {
        self.advance();
        let at = self.advance().at;
        let params = self.parse_params()?;
        Ok(Decl::Handler { params, c: self.parse_c()?, at })
    }

    /// Parses `{ C }`.
    fn parse_c(&mut self) -> Parsed<SourceSpan> {
        let open = self.expect("{")?;
        if *self.kind() != TokenKind::C {
            return self.report_unexpected("C");
        }
        let c = self.advance().at;
        if !self.eat("}") {
            let wrong = Diagnostic::new(open, "unterminated C block");
            return self.fail(wrong.hint("a `}` is missing, or a comment, a `\"` or a `'` is not closed"));
        }
        Ok(c)
    }

    /// Parses `partition bit<16> ports = 1024 .. 65535;`.
    pub(super) fn parse_partition(&mut self) -> Parsed<Decl> {
        self.advance();
        let ty = self.parse_type()?;
        let name = self.parse_name("a partition name")?;
        if self.is(";") {
            let wrong = Diagnostic::new(name.at, format!("missing range of partition `{}`", name.text));
            return self
                .fail(wrong.hint("give the lowest and the highest value: partition bit<16> ports = 1024 .. 65535;"));
        }
        self.expect("=")?;
        let first = self.parse_expr()?;
        self.expect("..")?;
        let last = self.parse_expr()?;
        self.expect(";")?;
        Ok(Decl::Partition { ty, name, first, last })
    }
}
