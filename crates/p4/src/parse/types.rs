//! Type expressions: `bit<8>`, `header_t[3]`, `register<bit<32>>`.

use super::{KEYWORDS, Parsed, Parser};
use crate::ast::{Name, Type, TypeKind};
use crate::diag::Diagnostic;
use crate::lex::TokenKind;

impl Parser<'_> {
    pub(super) fn parse_type(&mut self) -> Parsed<Type> {
        self.run_nested(Self::parse_type_inner)
    }

    fn parse_type_inner(&mut self) -> Parsed<Type> {
        let start = self.current_span();
        let word = match self.kind() {
            TokenKind::Name(word) => word.clone(),
            _ => return self.report_unexpected("a type"),
        };
        let mut kind = match &*word {
            "bool" => self.simple(TypeKind::Bool),
            "error" => self.simple(TypeKind::Error),
            "string" => self.simple(TypeKind::String),
            "void" => self.simple(TypeKind::Void),
            "float" => self.simple(TypeKind::Float),
            "_" => self.simple(TypeKind::Any),
            "bit" => {
                self.advance();
                TypeKind::Bit(self.parse_width()?)
            }
            "int" => {
                self.advance();
                TypeKind::Int(self.parse_width()?)
            }
            "varbit" => {
                self.advance();
                match self.parse_width()? {
                    Some(width) => TypeKind::Varbit(width),
                    None => return self.report_unexpected("`<`"),
                }
            }
            "tuple" => {
                self.advance();
                if !self.is("<") {
                    return self.report_unexpected("`<`");
                }
                TypeKind::Tuple(self.parse_type_arguments()?)
            }
            "header_union" | "match_kind" => {
                let wrong = Diagnostic::new(start, format!("`{word}` is not supported"));
                return self.fail(wrong);
            }
            word if KEYWORDS.contains(&word) => return self.report_unexpected("a type"),
            _ => {
                let name = Name { text: word.clone(), at: start };
                self.advance();
                self.eat(".");
                let arguments = if self.is("<") { self.parse_type_arguments()? } else { Vec::new() };
                TypeKind::Named(name, arguments)
            }
        };
        while self.eat("[") {
            let size = self.parse_expr()?;
            self.expect("]")?;
            kind = TypeKind::Stack(Box::new(Type { kind, at: self.span_since(start) }), Box::new(size));
            if self.is("[") {
                return self.report_unexpected("a name (a stack has one dimension)");
            }
        }
        Ok(Type { kind, at: self.span_since(start) })
    }

    fn simple(&mut self, kind: TypeKind) -> TypeKind {
        self.advance();
        kind
    }

    /// Parses an optional width: `<8>` or `<(A + 1)>`.
    fn parse_width(&mut self) -> Parsed<Option<Box<crate::ast::Expr>>> {
        if !self.eat("<") {
            return Ok(None);
        }
        // Only an operand is allowed here, so `>` ends the width.
        let width = self.parse_operand()?;
        self.expect(">")?;
        Ok(Some(Box::new(width)))
    }

    /// Parses type arguments `<bit<8>, T>`; the current token is `<`.
    pub(super) fn parse_type_arguments(&mut self) -> Parsed<Vec<Type>> {
        self.expect("<")?;
        self.parse_list(">", Self::parse_type)
    }

    /// True if type arguments follow, rather than a comparison.
    pub(super) fn begins_type_arguments(&self) -> bool {
        if !self.is("<") {
            return false;
        }
        match &self.peek(1).kind {
            TokenKind::Name(word) => match &**word {
                "bit" | "int" | "bool" | "varbit" | "tuple" | "error" | "_" | "void" | "string" => true,
                word => self.types.contains(word),
            },
            _ => false,
        }
    }

    /// True if a declaration of a variable or instance follows: `T name`, `T<…> name`, `T[3] name` or `T(…) name` (the
    /// brackets' content is skipped).
    pub(super) fn begins_declaration(&self) -> bool {
        let TokenKind::Name(word) = self.kind() else { return false };
        match &**word {
            "bit" | "int" | "bool" | "varbit" | "tuple" | "string" => return true,
            "error" => return !self.peek(1).kind.is("."),
            word if KEYWORDS.contains(&word) => return false,
            _ => {}
        }
        match &self.peek(1).kind {
            TokenKind::Name(_) => true,
            // Distinguishes `a[1] b;` from `a[1].b = …`.
            TokenKind::Punct("[") => {
                let end = (2..64).find(|by| self.peek(*by).kind.is("]"));
                end.is_some_and(|end| matches!(self.peek(end + 1).kind, TokenKind::Name(_)))
            }
            TokenKind::Punct("<") => self.types.contains(word) && self.peek(2).kind != TokenKind::End,
            TokenKind::Punct("(") => {
                let mut open = 0_usize;
                for by in 1..4096 {
                    match &self.peek(by).kind {
                        TokenKind::Punct("(") => open += 1,
                        TokenKind::Punct(")") => open -= 1,
                        TokenKind::Punct(";" | "{" | "}") | TokenKind::End => return false,
                        _ => {}
                    }
                    if open == 0 {
                        return matches!(self.peek(by + 1).kind, TokenKind::Name(_));
                    }
                }
                false
            }
            _ => false,
        }
    }
}
