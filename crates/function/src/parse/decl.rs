//! What stands at the top of a file.

use super::{Parsed, Parser};
use crate::ast::{Action, Decl, Direction, Field, Function, Instance, Name, Param, Struct, TypeKind, Variable};
use crate::diag::{Diagnostic, Reported};
use crate::ir::Span;
use crate::lex::Kind;

/// What P4_16 has and the subset has not, and what to do instead.
const REFUSED: [(&str, &str); 5] = [
    ("header_union", "use two headers, of which one is valid"),
    ("package", "a program is a `V1Switch(…) main;`"),
    ("extern", "the externs of core.p4 and v1model.p4 are built in, see docs/function.md"),
    ("match_kind", "tables match `exact` and `lpm`"),
    ("abstract", "write the control itself"),
];

impl Parser<'_> {
    pub(super) fn program(&mut self) -> Vec<Decl> {
        let mut declarations = Vec::new();
        while *self.kind() != Kind::End && !self.sink.full() {
            let before = self.at;
            if self.eat(";") {
                continue;
            }
            match self.declaration() {
                Ok(declaration) => declarations.extend(declaration),
                Err(Reported) => {
                    self.depth = 0;
                    self.recover();
                    if self.is("}") || self.at == before {
                        self.step();
                    }
                }
            }
        }
        declarations
    }

    /// One declaration; none for what says nothing here.
    fn declaration(&mut self) -> Parsed<Option<Decl>> {
        let annotations = self.annotations()?;
        let at = self.here();
        let Kind::Name(word) = self.kind().clone() else { return self.unexpected("a declaration") };
        let next = &self.ahead(1).kind;
        let declaration = match &*word {
            "error" if next.is("{") => {
                self.step();
                self.step();
                Decl::Errors(self.list("}", |parser| parser.name("an error's name"))?)
            }
            "match_kind" if next.is("{") => {
                self.step();
                self.step();
                for kind in self.list("}", |parser| parser.name("a match kind's name"))? {
                    if !matches!(&*kind.text, "exact" | "ternary" | "lpm" | "range" | "optional" | "selector") {
                        let wrong = Diagnostic::new(kind.at, format!("no tables match `{}`", kind.text));
                        self.sink.push(wrong.hint("tables match `exact` and `lpm`"));
                    }
                }
                return Ok(None);
            }
            "const" => Decl::Const(self.constant()?),
            "typedef" | "type" => self.typedef()?,
            "struct" | "header" => self.structure()?,
            "enum" => self.enumeration()?,
            "action" => Decl::Action(self.action()?),
            "parser" => Decl::Parser(self.parser()?),
            "control" => Decl::Control(self.control()?),
            "request" if next.is("{") => {
                self.step();
                Decl::Request { fields: self.fields()?, at }
            }
            "response" if next.is("{") => {
                self.step();
                Decl::Response { fields: self.fields()?, at }
            }
            "state" if next.is("{") => self.state_variables()?,
            "partition" => self.partition()?,
            "void" if next.is("remote_handler") => self.remote_handler()?,
            "remote_handler" => {
                let wrong = Diagnostic::new(at, "`remote_handler` without `void` before it");
                return self.fail(wrong.hint("void remote_handler(in request req, out response res) { C }"));
            }
            word if REFUSED.iter().any(|(refused, _)| *refused == word) => {
                let hint = REFUSED.iter().find(|(refused, _)| *refused == word).map_or("", |(_, hint)| hint);
                let wrong = Diagnostic::new(at, format!("`{word}` is not in the subset")).hint(hint);
                return self.fail(wrong);
            }
            _ => self.function_or_instance(annotations)?,
        };
        Ok(Some(declaration))
    }

    /// `const T name = value;`
    pub(super) fn constant(&mut self) -> Parsed<Variable> {
        self.expect("const")?;
        let ty = self.ty()?;
        let name = self.name("a constant's name")?;
        self.expect("=")?;
        let value = self.expr()?;
        self.expect(";")?;
        Ok(Variable { ty, name, value: Some(value) })
    }

    /// `typedef T name;` or `type T name;`
    fn typedef(&mut self) -> Parsed<Decl> {
        let new = self.is("type");
        self.step();
        let annotations = self.annotations()?;
        drop(annotations);
        let ty = self.ty()?;
        let name = self.name("a type's name")?;
        self.is_type(&name);
        self.expect(";")?;
        Ok(Decl::Typedef { ty, name, new })
    }

    /// `struct name { … }`, `header name { … }`
    fn structure(&mut self) -> Parsed<Decl> {
        let header = self.is("header");
        self.step();
        let name = self.name("a type's name")?;
        self.is_type(&name);
        self.refuse_generic()?;
        Ok(Decl::Struct(Struct { name, header, fields: self.fields()? }))
    }

    /// `<T>` behind the name of something declared here.
    pub(super) fn refuse_generic(&mut self) -> Parsed<()> {
        if !self.is("<") {
            return Ok(());
        }
        let wrong = Diagnostic::new(self.here(), "type parameters of one's own are not in the subset");
        self.fail(wrong.hint("declare it for each type that it is used with"))
    }

    pub(super) fn fields(&mut self) -> Parsed<Vec<Field>> {
        self.braced(|parser| {
            let annotations = parser.annotations()?;
            let ty = parser.ty()?;
            // A word of P4's that C has not: a parameter may have its name.
            let name = if parser.is("error") { parser.member()? } else { parser.name("a field's name")? };
            parser.expect(";")?;
            Ok(Field { annotations, ty, name })
        })
    }

    /// `enum name { a, b }`, `enum bit<8> name { a = 1 }`
    fn enumeration(&mut self) -> Parsed<Decl> {
        self.step();
        let of = if self.is("bit") || self.is("int") || matches!(self.ahead(1).kind, Kind::Name(_)) {
            Some(self.ty()?)
        } else {
            None
        };
        let name = self.name("an enum's name")?;
        self.is_type(&name);
        self.expect("{")?;
        let members = self.list("}", |parser| {
            let name = parser.name("a member's name")?;
            let value = if parser.eat("=") { Some(parser.expr()?) } else { None };
            Ok((name, value))
        })?;
        Ok(Decl::Enum { name, of, members })
    }

    /// `action name(…) { … }`
    pub(super) fn action(&mut self) -> Parsed<Action> {
        self.expect("action")?;
        let name = self.name("an action's name")?;
        let params = self.params()?;
        Ok(Action { name, params, body: self.block()? })
    }

    /// `(in T a, out U b)`
    pub(super) fn params(&mut self) -> Parsed<Vec<Param>> {
        self.refuse_generic()?;
        self.expect("(")?;
        self.list(")", |parser| {
            parser.annotations()?;
            let direction = match parser.kind() {
                kind if kind.is("in") => Direction::In,
                kind if kind.is("out") => Direction::Out,
                kind if kind.is("inout") => Direction::InOut,
                _ => Direction::None,
            };
            if direction != Direction::None {
                parser.step();
            }
            let ty = parser.ty()?;
            let name = parser.name("a parameter's name")?;
            if parser.is("=") {
                let wrong = Diagnostic::new(parser.here(), "defaults of parameters are not in the subset");
                return parser.fail(wrong.hint("give the argument at each call"));
            }
            Ok(Param { direction, ty, name })
        })
    }

    /// `T name(…) { … }`, or `T(…) name;`
    fn function_or_instance(&mut self, annotations: Vec<crate::ast::Annotation>) -> Parsed<Decl> {
        let start = self.here();
        let ty = self.ty()?;
        if self.is("(") {
            return Ok(Decl::Instance(self.instance(annotations, ty)?));
        }
        let name = self.name("a name")?;
        if self.is("=") || self.is(";") {
            let wrong =
                Diagnostic::new(name.at, format!("`{}`: no variables outside of parsers and controls", name.text));
            return self.fail(wrong.hint("a value that stays is a `const`; one that lives on is a `register`"));
        }
        if !self.is("(") && !self.is("<") {
            return self.unexpected_declaration(start, &ty.kind);
        }
        let params = self.params()?;
        Ok(Decl::Function(Function { name, result: ty, params, body: self.block()? }))
    }

    fn unexpected_declaration<T>(&mut self, start: Span, ty: &TypeKind) -> Parsed<T> {
        let said = match ty {
            TypeKind::Named(Name { text, .. }, _) => format!("`{text}`"),
            _ => "this".to_owned(),
        };
        let wrong = Diagnostic::new(start, format!("expected a declaration, found {said}"));
        self.fail(wrong.hint("declarations begin with header, struct, parser, control, action, const, typedef, …"))
    }

    /// `(args) name;` behind the type
    pub(super) fn instance(
        &mut self,
        annotations: Vec<crate::ast::Annotation>,
        ty: crate::ast::Type,
    ) -> Parsed<Instance> {
        self.expect("(")?;
        let args = self.args()?;
        let name = self.name("an instance's name")?;
        if self.is("=") {
            let wrong = Diagnostic::new(self.here(), "instances with bodies of their own are not in the subset");
            return self.fail(wrong);
        }
        self.expect(";")?;
        Ok(Instance { annotations, ty, args, name })
    }
}
