//! Types: `bit<8>`, `header_t[3]`, `register<bit<32>>`.

use super::{KEYWORDS, Parsed, Parser};
use crate::ast::{Name, Type, TypeKind};
use crate::diag::Diagnostic;
use crate::lex::Kind;

impl Parser<'_> {
    pub(super) fn ty(&mut self) -> Parsed<Type> {
        self.nested(Self::ty_within)
    }

    fn ty_within(&mut self) -> Parsed<Type> {
        let start = self.here();
        let word = match self.kind() {
            Kind::Name(word) => word.clone(),
            _ => return self.unexpected("a type"),
        };
        let mut kind = match &*word {
            "bool" => self.simple(TypeKind::Bool),
            "error" => self.simple(TypeKind::Error),
            "string" => self.simple(TypeKind::String),
            "void" => self.simple(TypeKind::Void),
            "float" => self.simple(TypeKind::Float),
            "_" => self.simple(TypeKind::Any),
            "bit" => {
                self.step();
                TypeKind::Bit(self.width()?)
            }
            "int" => {
                self.step();
                TypeKind::Int(self.width()?)
            }
            "varbit" => {
                self.step();
                match self.width()? {
                    Some(width) => TypeKind::Varbit(width),
                    None => return self.unexpected("`<`"),
                }
            }
            "tuple" => {
                self.step();
                if !self.is("<") {
                    return self.unexpected("`<`");
                }
                TypeKind::Tuple(self.type_arguments()?)
            }
            "header_union" | "match_kind" => {
                let wrong = Diagnostic::new(start, format!("`{word}` is not in the subset"));
                return self.fail(wrong);
            }
            word if KEYWORDS.contains(&word) => return self.unexpected("a type"),
            _ => {
                let name = Name { text: word.clone(), at: start };
                self.step();
                self.eat(".");
                let arguments = if self.is("<") { self.type_arguments()? } else { Vec::new() };
                TypeKind::Named(name, arguments)
            }
        };
        while self.eat("[") {
            let size = self.expr()?;
            self.expect("]")?;
            kind = TypeKind::Stack(Box::new(Type { kind, at: self.since(start) }), Box::new(size));
            if self.is("[") {
                return self.unexpected("a name (a stack has one dimension)");
            }
        }
        Ok(Type { kind, at: self.since(start) })
    }

    fn simple(&mut self, kind: TypeKind) -> TypeKind {
        self.step();
        kind
    }

    /// `<8>`, `<(A + 1)>`, or nothing.
    fn width(&mut self) -> Parsed<Option<Box<crate::ast::Expr>>> {
        if !self.eat("<") {
            return Ok(None);
        }
        // A number, a name, or brackets (the grammar has no others): `>` ends it.
        let width = self.operand()?;
        self.expect(">")?;
        Ok(Some(Box::new(width)))
    }

    /// `<bit<8>, T>`; `<` is next.
    pub(super) fn type_arguments(&mut self) -> Parsed<Vec<Type>> {
        self.expect("<")?;
        self.list(">", Self::ty)
    }

    /// Whether type arguments come here, and not a comparison.
    pub(super) fn begins_type_arguments(&self) -> bool {
        if !self.is("<") {
            return false;
        }
        match &self.ahead(1).kind {
            Kind::Name(word) => match &**word {
                "bit" | "int" | "bool" | "varbit" | "tuple" | "error" | "_" | "void" | "string" => true,
                word => self.types.contains(word),
            },
            _ => false,
        }
    }

    /// Whether a declaration of a variable or an instance begins here: `T name`, `T<…> name`, `T[3] name`, `T(…) name`
    /// (not looked into).
    pub(super) fn begins_declaration(&self) -> bool {
        let Kind::Name(word) = self.kind() else { return false };
        match &**word {
            "bit" | "int" | "bool" | "varbit" | "tuple" | "string" => return true,
            "error" => return !self.ahead(1).kind.is("."),
            word if KEYWORDS.contains(&word) => return false,
            _ => {}
        }
        match &self.ahead(1).kind {
            Kind::Name(_) => true,
            // `a[1].b = …` and `a[1] b;`
            Kind::Punct("[") => {
                let end = (2..64).find(|by| self.ahead(*by).kind.is("]"));
                end.is_some_and(|end| matches!(self.ahead(end + 1).kind, Kind::Name(_)))
            }
            Kind::Punct("<") => self.types.contains(word) && self.ahead(2).kind != Kind::End,
            Kind::Punct("(") => {
                let mut open = 0_usize;
                for by in 1..4096 {
                    match &self.ahead(by).kind {
                        Kind::Punct("(") => open += 1,
                        Kind::Punct(")") => open -= 1,
                        Kind::Punct(";" | "{" | "}") | Kind::End => return false,
                        _ => {}
                    }
                    if open == 0 {
                        return matches!(self.ahead(by + 1).kind, Kind::Name(_));
                    }
                }
                false
            }
            _ => false,
        }
    }
}
