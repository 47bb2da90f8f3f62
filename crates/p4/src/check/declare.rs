//! Top-level declarations.

use super::types::{Enum, Struct, Type};
use super::{Checked, Checker, Item};
use crate::ast::{self, Decl};
use crate::diag::Diagnostic;
use crate::ir::{Partition, SourceSpan, Ty};
use std::rc::Rc;

/// Widest partition: handlers hold its values in a C integer.
const PARTITION_BITS_MAX: u16 = 64;
/// Longest header, bits.
const HEADER_BITS_MAX: u32 = 1 << 16;

impl<'a> Checker<'a> {
    /// Checks all declarations; the program is the instance `V1Switch(…) main`.
    pub(super) fn check_declarations(&mut self, declarations: &'a [Decl]) {
        for (name, ty) in [("packet_in", Type::PacketIn), ("packet_out", Type::PacketOut)] {
            let name = ast::Name { text: name.into(), at: SourceSpan::default() };
            self.bind(&name, Item::Type(ty));
        }
        let complete = self.check_handler_complete(declarations);
        let mut main = None;
        for declaration in declarations {
            if let Decl::Instance(instance) = declaration
                && let ast::TypeKind::Named(of, _) = &instance.ty.kind
                && &*of.text == "V1Switch"
            {
                if main.replace(instance).is_some() {
                    self.report(Diagnostic::new(instance.name.at, "duplicate `V1Switch`"));
                }
                continue;
            }
            self.check_declaration(declaration);
        }
        if !complete {
            // Uses of a faulty declaration would repeat its diagnostic.
            return;
        }
        match main {
            Some(main) => drop(self.check_package(main)),
            None if self.sink.is_empty() => {
                let end = self.sources.text(0).len() as u32;
                let at = SourceSpan { file: 0, start: end, end };
                let wrong = Diagnostic::new(at, "missing package instance `V1Switch(…) main`");
                self.report(wrong.hint(
                    "V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;",
                ));
            }
            None => {}
        }
        self.check_unused_declarations(declarations);
    }

    /// True if handler, request and response are all declared, or none of them.
    fn check_handler_complete(&mut self, declarations: &[Decl]) -> bool {
        let (mut request, mut response, mut handler) = (None, None, None);
        for declaration in declarations {
            match declaration {
                Decl::Request { at, .. } => request = request.or(Some(*at)),
                Decl::Response { at, .. } => response = response.or(Some(*at)),
                Decl::Handler { at, .. } => handler = handler.or(Some(*at)),
                _ => {}
            }
        }
        let lacking = match (request, response, handler) {
            (None, _, Some(at)) => (at, "`remote_handler` without a `request`", "request { bit<32> addr; }"),
            (_, None, Some(at)) => (at, "`remote_handler` without a `response`", "response { bit<8> verdict; }"),
            (Some(at), _, None) | (None, Some(at), None) => (
                at,
                "`request` or `response` without a `remote_handler`",
                "void remote_handler(in request req, out response res) { C }",
            ),
            _ => return true,
        };
        let (at, what, hint) = lacking;
        self.report(Diagnostic::new(at, what).hint(format!("declare one: {hint}")));
        false
    }

    fn check_declaration(&mut self, declaration: &'a Decl) {
        match declaration {
            Decl::Errors(names) => {
                for name in names {
                    if self.errors.contains(&name.text) {
                        self.report(Diagnostic::new(name.at, format!("duplicate error `{}`", name.text)));
                    } else {
                        self.errors.push(Rc::clone(&name.text));
                    }
                }
            }
            Decl::Const(constant) => drop(self.declare_constant(constant)),
            Decl::Typedef { ty, name, new } => {
                let item = self.resolve_type(ty).map(|ty| match new {
                    true => Type::New(Rc::new((Rc::clone(&name.text), ty))),
                    false => ty,
                });
                self.bind(name, item.map_or(Item::Invalid, Item::Type));
            }
            Decl::Struct(of) => {
                let item = self.declare_struct(of);
                self.bind(&of.name, item.map_or(Item::Invalid, Item::Type));
            }
            Decl::Enum { name, of, members } => {
                let item = self.declare_enum(name, of.as_ref(), members);
                self.bind(name, item.map_or(Item::Invalid, Item::Type));
            }
            Decl::Action(action) => {
                let item = self.make_action_item(action);
                self.bind(&action.name, item);
            }
            Decl::Function(function) => self.bind(&function.name, Item::Function(function)),
            Decl::Parser(parser) => self.bind(&parser.name, Item::Parser(parser)),
            Decl::Control(control) => self.bind(&control.name, Item::Control(control)),
            Decl::Instance(instance) => {
                let item = self.declare_instance(instance);
                self.bind(&instance.name, item.unwrap_or(Item::Invalid));
            }
            Decl::Request { fields, at } => self.declare_parameters("request", fields, *at),
            Decl::Response { fields, at } => self.declare_parameters("response", fields, *at),
            Decl::State { c, at } => self.handler.set_state(*c, *at, self.sink),
            Decl::Handler { params, c, at } => self.handler.set_body(params, *c, *at, self.sink),
            Decl::Partition { ty, name, first, last } => {
                let item = self.declare_partition(ty, name, first, last);
                self.bind(name, item.unwrap_or(Item::Invalid));
            }
        }
    }

    fn declare_struct(&mut self, of: &ast::Struct) -> Checked<Type> {
        let fields = self.resolve_fields(&of.fields, of.header)?;
        let new = Rc::new(Struct { name: Rc::clone(&of.name.text), fields });
        if !of.header {
            return Ok(Type::Struct(new));
        }
        let bits = new.fields.iter().filter_map(|field| field.ty.scalar()).map(|ty| u32::from(ty.width()));
        let bits = bits.fold(0, u32::saturating_add);
        if bits % 8 != 0 || bits > HEADER_BITS_MAX {
            let wrong = format!("header `{}` has {bits} bits, not a multiple of 8", of.name.text);
            let wrong = match bits % 8 {
                0 => Diagnostic::new(
                    of.name.at,
                    format!("header `{}` has {bits} bits (at most {HEADER_BITS_MAX})", of.name.text),
                ),
                over => Diagnostic::new(of.name.at, wrong).hint(format!("add a field of {} bits", 8 - over)),
            };
            return self.fail(wrong);
        }
        Ok(Type::Header(new))
    }

    fn declare_enum(
        &mut self,
        name: &ast::Name,
        of: Option<&ast::Type>,
        members: &[(ast::Name, Option<ast::Expr>)],
    ) -> Checked<Type> {
        let of = of.map(|ty| self.resolve_type(ty).map(|known| (known, ty.at))).transpose()?;
        if let Some((ty, at)) = &of
            && !matches!(ty, Type::Bit(_) | Type::Int(_))
        {
            return self.fail(
                Diagnostic::new(*at, format!("an enum cannot have type `{ty}`"))
                    .hint("its type must be `bit` or `int`"),
            );
        }
        let mut known: Vec<(Rc<str>, u128)> = Vec::new();
        for (n, (member, value)) in members.iter().enumerate() {
            if known.iter().any(|(first, _)| *first == member.text) {
                self.report(Diagnostic::new(member.at, format!("duplicate member `{}`", member.text)));
                continue;
            }
            let value = match (value, &of) {
                (Some(value), Some((ty, _))) => self.eval_bits(value, ty),
                (None, None) => Ok(n as u128),
                (Some(value), None) => {
                    let wrong = Diagnostic::new(value.at, "member value in an enum without a type");
                    self.fail(wrong.hint(format!("write `enum bit<8> {} {{ … }}`", name.text)))
                }
                (None, Some(_)) => {
                    let wrong = Diagnostic::new(member.at, format!("missing value of `{}`", member.text));
                    self.fail(wrong.hint(format!("write `{} = …`", member.text)))
                }
            };
            known.push((Rc::clone(&member.text), value.unwrap_or(0)));
        }
        let of = of.map(|(ty, _)| ty);
        Ok(Type::Enum(Rc::new(Enum { name: Rc::clone(&name.text), of, members: known })))
    }

    /// Declares `request { … }` or `response { … }`.
    fn declare_parameters(&mut self, name: &str, fields: &[ast::Field], at: SourceSpan) {
        let known = self.resolve_fields(fields, false);
        let name = ast::Name { text: name.into(), at };
        let Ok(known) = known else {
            self.bind(&name, Item::Invalid);
            return;
        };
        for field in &known {
            if field.ty.scalar().is_none() {
                let wrong = Diagnostic::new(field.at, format!("a parameter cannot have type `{}`", field.ty));
                self.report(wrong.hint("parameters have type bit, int, bool, float or enum"));
            }
        }
        let of = Rc::new(Struct { name: Rc::clone(&name.text), fields: known });
        self.bind(&name, Item::Type(Type::Struct(of)));
    }

    /// Declares `partition bit<16> ports = 1024 .. 65535;`.
    fn declare_partition(
        &mut self,
        ty: &ast::Type,
        name: &ast::Name,
        first: &ast::Expr,
        last: &ast::Expr,
    ) -> Checked<Item<'a>> {
        let of = self.resolve_type(ty)?;
        let Type::Bit(width) = of.base() else {
            return self.fail(
                Diagnostic::new(ty.at, format!("a partition cannot have type `{of}`")).hint("its type must be `bit`"),
            );
        };
        if *width > PARTITION_BITS_MAX {
            let wrong = format!("a partition cannot have type `{of}`");
            return self.fail(
                Diagnostic::new(ty.at, wrong).hint(format!("its type must have at most {PARTITION_BITS_MAX} bits")),
            );
        }
        let (low, high) = (self.eval_bits(first, &of)?, self.eval_bits(last, &of)?);
        if low > high {
            let at = SourceSpan { end: last.at.end.max(first.at.start), ..first.at };
            return self.fail(Diagnostic::new(at, format!("empty partition {low} .. {high}")));
        }
        // A handler's count of partition values has 64 bits.
        if high - low == u128::from(u64::MAX) {
            let wrong = Diagnostic::new(ty.at, format!("a partition cannot contain all values of `{of}`"));
            return self.fail(wrong.hint("the number of values must fit in 64 bits: leave one out"));
        }
        let new = Partition { name: name.text.to_string(), ty: Ty::Bit(*width), first: low, last: high };
        self.program.partitions.push(new);
        Ok(Item::Partition(self.program.partitions.len() - 1))
    }

    /// Checks declarations that nothing uses.
    fn check_unused_declarations(&mut self, declarations: &'a [Decl]) {
        for declaration in declarations {
            match declaration {
                // Constructor parameters have no value here.
                Decl::Control(control)
                    if control.constructor.is_empty() && !self.used.contains(&std::ptr::from_ref(control).cast()) =>
                {
                    self.check_unused(&control.params, |checker| checker.check_control(control));
                }
                Decl::Parser(parser)
                    if parser.constructor.is_empty() && !self.used.contains(&std::ptr::from_ref(parser).cast()) =>
                {
                    self.check_without_emitting(super::PipelinePart::Parser, |checker| {
                        let items =
                            parser.params.iter().map(|param| (param.name.clone(), checker.declare_parameter(param)));
                        let items = items.collect();
                        checker.lower_parser(parser, items);
                    });
                }
                Decl::Action(action) => self.check_action(action),
                Decl::Function(function) if !self.used.contains(&std::ptr::from_ref(function).cast()) => {
                    let Ok(ty) = self.resolve_type(&function.result) else { continue };
                    self.check_returns(function, &ty);
                    self.check_unused(&function.params, |checker| {
                        let result = match ty {
                            Type::Void => None,
                            ty => checker.new_place("result", &ty, crate::ir::SlotKind::Local, function.name.at).ok(),
                        };
                        checker.results.push(result);
                        checker.check_statements(&function.body);
                        checker.results.pop();
                    });
                }
                _ => {}
            }
        }
    }
}
