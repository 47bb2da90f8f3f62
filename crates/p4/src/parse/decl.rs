//! Top-level declarations.

use super::{Parsed, Parser};
use crate::ast::{Action, Decl, Direction, Field, Function, Instance, Name, Param, Struct, TypeKind, Variable};
use crate::diag::{Diagnostic, Reported};
use crate::ir::SourceSpan;
use crate::lex::TokenKind;

/// Declarations of P4_16 that the subset lacks, with the suggested replacement.
const REFUSED: [(&str, &str); 5] = [
    ("header_union", "use two headers, and make one valid"),
    ("package", "define an instance `V1Switch(…) main;`"),
    ("extern", "the externs of core.p4 and v1model.p4 are built in, see docs/function.md"),
    ("match_kind", "supported match kinds: `exact` and `lpm`"),
    ("abstract", "write the control itself"),
];

impl Parser<'_> {
    pub(super) fn parse_program(&mut self) -> Vec<Decl> {
        let mut declarations = Vec::new();
        while *self.kind() != TokenKind::End && !self.sink.full() {
            let before = self.at;
            if self.eat(";") {
                continue;
            }
            match self.parse_declaration() {
                Ok(declaration) => declarations.extend(declaration),
                Err(Reported) => {
                    self.depth = 0;
                    self.recover();
                    if self.is("}") || self.at == before {
                        self.advance();
                    }
                }
            }
        }
        declarations
    }

    /// Parses one declaration; `None` for declarations without an effect.
    fn parse_declaration(&mut self) -> Parsed<Option<Decl>> {
        let annotations = self.parse_annotations()?;
        let at = self.current_span();
        let TokenKind::Name(word) = self.kind().clone() else { return self.report_unexpected("a declaration") };
        let next = &self.peek(1).kind;
        let declaration = match &*word {
            "error" if next.is("{") => {
                self.advance();
                self.advance();
                Decl::Errors(self.parse_list("}", |parser| parser.parse_name("an error name"))?)
            }
            "match_kind" if next.is("{") => {
                self.advance();
                self.advance();
                for kind in self.parse_list("}", |parser| parser.parse_name("a match kind name"))? {
                    if !matches!(&*kind.text, "exact" | "ternary" | "lpm" | "range" | "optional" | "selector") {
                        let wrong = Diagnostic::new(kind.at, format!("unknown match kind `{}`", kind.text));
                        self.sink.push(wrong.hint("supported match kinds: `exact` and `lpm`"));
                    }
                }
                return Ok(None);
            }
            "const" => Decl::Const(self.parse_const()?),
            "typedef" | "type" => self.parse_typedef()?,
            "struct" | "header" => self.parse_struct()?,
            "enum" => self.parse_enum()?,
            "action" => Decl::Action(self.parse_action()?),
            "parser" => Decl::Parser(self.parse_parser()?),
            "control" => Decl::Control(self.parse_control()?),
            "request" if next.is("{") => {
                self.advance();
                Decl::Request { fields: self.parse_fields()?, at }
            }
            "response" if next.is("{") => {
                self.advance();
                Decl::Response { fields: self.parse_fields()?, at }
            }
            "state" if next.is("{") => self.parse_state_variables()?,
            "partition" => self.parse_partition()?,
            "void" if next.is("remote_handler") => self.parse_remote_handler()?,
            "remote_handler" => {
                let wrong = Diagnostic::new(at, "missing `void` before `remote_handler`");
                return self.fail(wrong.hint("void remote_handler(in request req, out response res) { C }"));
            }
            word if REFUSED.iter().any(|(refused, _)| *refused == word) => {
                let hint = REFUSED.iter().find(|(refused, _)| *refused == word).map_or("", |(_, hint)| hint);
                let wrong = Diagnostic::new(at, format!("`{word}` is not supported")).hint(hint);
                return self.fail(wrong);
            }
            _ => self.parse_function_or_instance(annotations)?,
        };
        Ok(Some(declaration))
    }

    /// Parses `const T name = value;`.
    pub(super) fn parse_const(&mut self) -> Parsed<Variable> {
        self.expect("const")?;
        let ty = self.parse_type()?;
        let name = self.parse_name("a constant name")?;
        self.expect("=")?;
        let value = self.parse_expr()?;
        self.expect(";")?;
        Ok(Variable { ty, name, value: Some(value) })
    }

    /// Parses `typedef T name;` or `type T name;`.
    fn parse_typedef(&mut self) -> Parsed<Decl> {
        let new = self.is("type");
        self.advance();
        let annotations = self.parse_annotations()?;
        drop(annotations);
        let ty = self.parse_type()?;
        let name = self.parse_name("a type name")?;
        self.add_type(&name);
        self.expect(";")?;
        Ok(Decl::Typedef { ty, name, new })
    }

    /// Parses `struct name { … }` or `header name { … }`.
    fn parse_struct(&mut self) -> Parsed<Decl> {
        let header = self.is("header");
        self.advance();
        let name = self.parse_name("a type name")?;
        self.add_type(&name);
        self.refuse_generic()?;
        Ok(Decl::Struct(Struct { name, header, fields: self.parse_fields()? }))
    }

    /// Reports type parameters `<T>` after a declared name.
    pub(super) fn refuse_generic(&mut self) -> Parsed<()> {
        if !self.is("<") {
            return Ok(());
        }
        let wrong = Diagnostic::new(self.current_span(), "type parameters are not supported");
        self.fail(wrong.hint("declare one for each type"))
    }

    pub(super) fn parse_fields(&mut self) -> Parsed<Vec<Field>> {
        self.parse_braced(|parser| {
            let annotations = parser.parse_annotations()?;
            let ty = parser.parse_type()?;
            // `error` is a keyword of P4 only, so a parameter for C may have this name.
            let name =
                if parser.is("error") { parser.parse_member_name()? } else { parser.parse_name("a field name")? };
            parser.expect(";")?;
            Ok(Field { annotations, ty, name })
        })
    }

    /// Parses `enum name { a, b }` or `enum bit<8> name { a = 1 }`.
    fn parse_enum(&mut self) -> Parsed<Decl> {
        self.advance();
        let of = if self.is("bit") || self.is("int") || matches!(self.peek(1).kind, TokenKind::Name(_)) {
            Some(self.parse_type()?)
        } else {
            None
        };
        let name = self.parse_name("an enum name")?;
        self.add_type(&name);
        self.expect("{")?;
        let members = self.parse_list("}", |parser| {
            let name = parser.parse_name("a member name")?;
            let value = if parser.eat("=") { Some(parser.parse_expr()?) } else { None };
            Ok((name, value))
        })?;
        Ok(Decl::Enum { name, of, members })
    }

    /// Parses `action name(…) { … }`.
    pub(super) fn parse_action(&mut self) -> Parsed<Action> {
        self.expect("action")?;
        let name = self.parse_name("an action name")?;
        let params = self.parse_params()?;
        Ok(Action { name, params, body: self.parse_block()? })
    }

    /// Parses `(in T a, out U b)`.
    pub(super) fn parse_params(&mut self) -> Parsed<Vec<Param>> {
        self.refuse_generic()?;
        self.expect("(")?;
        self.parse_list(")", |parser| {
            parser.parse_annotations()?;
            let direction = match parser.kind() {
                kind if kind.is("in") => Direction::In,
                kind if kind.is("out") => Direction::Out,
                kind if kind.is("inout") => Direction::InOut,
                _ => Direction::None,
            };
            if direction != Direction::None {
                parser.advance();
            }
            let ty = parser.parse_type()?;
            let name = parser.parse_name("a parameter name")?;
            if parser.is("=") {
                let wrong = Diagnostic::new(parser.current_span(), "default values of parameters are not supported");
                return parser.fail(wrong.hint("pass the argument in each call"));
            }
            Ok(Param { direction, ty, name })
        })
    }

    /// Parses `T name(…) { … }` or `T(…) name;`.
    fn parse_function_or_instance(&mut self, annotations: Vec<crate::ast::Annotation>) -> Parsed<Decl> {
        let start = self.current_span();
        let ty = self.parse_type()?;
        if self.is("(") {
            return Ok(Decl::Instance(self.parse_instance(annotations, ty)?));
        }
        let name = self.parse_name("a name")?;
        if self.is("=") || self.is(";") {
            let wrong = Diagnostic::new(name.at, format!("variable `{}` outside of parsers and controls", name.text));
            return self.fail(wrong.hint("use a `const` for a constant, a `register` for persistent state"));
        }
        if !self.is("(") && !self.is("<") {
            return self.report_unexpected_declaration(start, &ty.kind);
        }
        let params = self.parse_params()?;
        Ok(Decl::Function(Function { name, result: ty, params, body: self.parse_block()? }))
    }

    fn report_unexpected_declaration<T>(&mut self, start: SourceSpan, ty: &TypeKind) -> Parsed<T> {
        let found = match ty {
            TypeKind::Named(Name { text, .. }, _) => format!("`{text}`"),
            _ => "this".to_owned(),
        };
        let wrong = Diagnostic::new(start, format!("expected a declaration, found {found}"));
        self.fail(wrong.hint("declarations begin with header, struct, parser, control, action, const, typedef, …"))
    }

    /// Parses `(args) name;` after the type.
    pub(super) fn parse_instance(
        &mut self,
        annotations: Vec<crate::ast::Annotation>,
        ty: crate::ast::Type,
    ) -> Parsed<Instance> {
        self.expect("(")?;
        let args = self.parse_args()?;
        let name = self.parse_name("an instance name")?;
        if self.is("=") {
            let wrong = Diagnostic::new(self.current_span(), "instances with a body are not supported");
            return self.fail(wrong);
        }
        self.expect(";")?;
        Ok(Instance { annotations, ty, args, name })
    }
}
