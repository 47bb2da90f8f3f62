//! CLIP's additions: state and handler in C, and partitions (§IV-A, §V-B).

use super::{Parsed, Parser};
use crate::ast::Decl;
use crate::diag::Diagnostic;
use crate::ir::Span;
use crate::lex::Kind;

impl Parser<'_> {
    /// `state { C }`
    pub(super) fn state_variables(&mut self) -> Parsed<Decl> {
        let at = self.step().at;
        Ok(Decl::State { c: self.c()?, at })
    }

    /// `void remote_handler(in request req, out response res) { C }`
    pub(super) fn remote_handler(&mut self) -> Parsed<Decl> {
        self.step();
        let at = self.step().at;
        let params = self.params()?;
        Ok(Decl::Handler { params, c: self.c()?, at })
    }

    /// `{ C }`
    fn c(&mut self) -> Parsed<Span> {
        let open = self.expect("{")?;
        if *self.kind() != Kind::C {
            return self.unexpected("C");
        }
        let c = self.step().at;
        if !self.eat("}") {
            let wrong = Diagnostic::new(open, "the C that begins here does not end");
            return self.fail(wrong.hint("a `}` is missing; or a comment, a `\"` or a `'` in it is not closed"));
        }
        Ok(c)
    }

    /// `partition bit<16> ports = 1024 .. 65535;`
    pub(super) fn partition(&mut self) -> Parsed<Decl> {
        self.step();
        let ty = self.ty()?;
        let name = self.name("a partition's name")?;
        if self.is(";") {
            let wrong = Diagnostic::new(name.at, format!("partition `{}` has no values", name.text));
            return self.fail(wrong.hint("say the lowest and the highest: partition bit<16> ports = 1024 .. 65535;"));
        }
        self.expect("=")?;
        let first = self.expr()?;
        self.expect("..")?;
        let last = self.expr()?;
        self.expect(";")?;
        Ok(Decl::Partition { ty, name, first, last })
    }
}
