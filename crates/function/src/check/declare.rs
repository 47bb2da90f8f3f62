//! What is declared at the top of a file.

use super::types::{Enum, Struct, Type};
use super::{Checked, Checker, Item};
use crate::ast::{self, Decl};
use crate::diag::Diagnostic;
use crate::ir::{Partition, Span, Ty};
use std::rc::Rc;

/// Values of a partition are numbers of C in a handler.
const PARTITION_BITS_MAX: u16 = 64;
/// The longest header, bits.
const HEADER_BITS_MAX: u32 = 1 << 16;

impl<'a> Checker<'a> {
    /// Everything; the program is what `V1Switch(…) main` says.
    pub(super) fn declare(&mut self, declarations: &'a [Decl]) {
        for (name, ty) in [("packet_in", Type::PacketIn), ("packet_out", Type::PacketOut)] {
            let name = ast::Name { text: name.into(), at: Span::default() };
            self.bind(&name, Item::Type(ty));
        }
        let complete = self.complete(declarations);
        let mut main = None;
        for declaration in declarations {
            if let Decl::Instance(instance) = declaration
                && let ast::TypeKind::Named(of, _) = &instance.ty.kind
                && &*of.text == "V1Switch"
            {
                if main.replace(instance).is_some() {
                    self.tell(Diagnostic::new(instance.name.at, "a second `V1Switch`"));
                }
                continue;
            }
            self.declaration(declaration);
        }
        if !complete {
            // Whatever uses them would be told again.
            return;
        }
        match main {
            Some(main) => drop(self.package(main)),
            None if self.sink.is_empty() => {
                let end = self.sources.text(0).len() as u32;
                let at = Span { file: 0, start: end, end };
                let wrong = Diagnostic::new(at, "no `V1Switch(…) main`: nothing says what is run");
                self.tell(wrong.hint(
                    "V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;",
                ));
            }
            None => {}
        }
        self.unused(declarations);
    }

    /// Whether a handler, its request and its response are there, or none of them.
    fn complete(&mut self, declarations: &[Decl]) -> bool {
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
            (None, _, Some(at)) => {
                (at, "`remote_handler` without a `request`", "request { bit<32> addr; }, what goes to it")
            }
            (_, None, Some(at)) => {
                (at, "`remote_handler` without a `response`", "response { bit<8> verdict; }, what it gives")
            }
            (Some(at), _, None) | (None, Some(at), None) => (
                at,
                "parameters without a `remote_handler`",
                "void remote_handler(in request req, out response res) { C }",
            ),
            _ => return true,
        };
        let (at, what, hint) = lacking;
        self.tell(Diagnostic::new(at, what).hint(format!("declare one: {hint}")));
        false
    }

    fn declaration(&mut self, declaration: &'a Decl) {
        match declaration {
            Decl::Errors(names) => {
                for name in names {
                    if self.errors.contains(&name.text) {
                        self.tell(Diagnostic::new(name.at, format!("a second error `{}`", name.text)));
                    } else {
                        self.errors.push(Rc::clone(&name.text));
                    }
                }
            }
            Decl::Const(constant) => drop(self.constant(constant)),
            Decl::Typedef { ty, name, new } => {
                let item = self.ty(ty).map(|ty| match new {
                    true => Type::New(Rc::new((Rc::clone(&name.text), ty))),
                    false => ty,
                });
                self.bind(name, item.map_or(Item::Wrong, Item::Type));
            }
            Decl::Struct(of) => {
                let item = self.structure(of);
                self.bind(&of.name, item.map_or(Item::Wrong, Item::Type));
            }
            Decl::Enum { name, of, members } => {
                let item = self.enumeration(name, of.as_ref(), members);
                self.bind(name, item.map_or(Item::Wrong, Item::Type));
            }
            Decl::Action(action) => {
                let item = self.action_item(action);
                self.bind(&action.name, item);
            }
            Decl::Function(function) => self.bind(&function.name, Item::Function(function)),
            Decl::Parser(parser) => self.bind(&parser.name, Item::Parser(parser)),
            Decl::Control(control) => self.bind(&control.name, Item::Control(control)),
            Decl::Instance(instance) => {
                let item = self.instance(instance);
                self.bind(&instance.name, item.unwrap_or(Item::Wrong));
            }
            Decl::Request { fields, at } => self.parameters("request", fields, *at),
            Decl::Response { fields, at } => self.parameters("response", fields, *at),
            Decl::State { c, at } => self.handler.state(*c, *at, self.sink),
            Decl::Handler { params, c, at } => self.handler.body(params, *c, *at, self.sink),
            Decl::Partition { ty, name, first, last } => {
                let item = self.partition(ty, name, first, last);
                self.bind(name, item.unwrap_or(Item::Wrong));
            }
        }
    }

    fn structure(&mut self, of: &ast::Struct) -> Checked<Type> {
        let fields = self.fields(&of.fields, of.header)?;
        let new = Rc::new(Struct { name: Rc::clone(&of.name.text), fields });
        if !of.header {
            return Ok(Type::Struct(new));
        }
        let bits = new.fields.iter().filter_map(|field| field.ty.scalar()).map(|ty| u32::from(ty.width()));
        let bits = bits.fold(0, u32::saturating_add);
        if bits % 8 != 0 || bits > HEADER_BITS_MAX {
            let wrong = format!("header `{}` has {bits} bits, which are no whole bytes", of.name.text);
            let wrong = match bits % 8 {
                0 => Diagnostic::new(
                    of.name.at,
                    format!("header `{}` has {bits} bits, at most {HEADER_BITS_MAX}", of.name.text),
                ),
                over => Diagnostic::new(of.name.at, wrong).hint(format!("add a field of {} bits", 8 - over)),
            };
            return self.fail(wrong);
        }
        Ok(Type::Header(new))
    }

    fn enumeration(
        &mut self,
        name: &ast::Name,
        of: Option<&ast::Type>,
        members: &[(ast::Name, Option<ast::Expr>)],
    ) -> Checked<Type> {
        let of = of.map(|ty| self.ty(ty).map(|known| (known, ty.at))).transpose()?;
        if let Some((ty, at)) = &of
            && !matches!(ty, Type::Bit(_) | Type::Int(_))
        {
            return self.fail(Diagnostic::new(*at, format!("an enum of `{ty}`")).hint("it is of a `bit` or an `int`"));
        }
        let mut known: Vec<(Rc<str>, u128)> = Vec::new();
        for (n, (member, value)) in members.iter().enumerate() {
            if known.iter().any(|(first, _)| *first == member.text) {
                self.tell(Diagnostic::new(member.at, format!("a second member `{}`", member.text)));
                continue;
            }
            let value = match (value, &of) {
                (Some(value), Some((ty, _))) => self.known(value, ty),
                (None, None) => Ok(n as u128),
                (Some(value), None) => {
                    let wrong = Diagnostic::new(value.at, "a value in an enum without a type");
                    self.fail(wrong.hint(format!("write `enum bit<8> {} {{ … }}`", name.text)))
                }
                (None, Some(_)) => {
                    let wrong = Diagnostic::new(member.at, format!("no value for `{}`", member.text));
                    self.fail(wrong.hint(format!("write `{} = …`", member.text)))
                }
            };
            known.push((Rc::clone(&member.text), value.unwrap_or(0)));
        }
        let of = of.map(|(ty, _)| ty);
        Ok(Type::Enum(Rc::new(Enum { name: Rc::clone(&name.text), of, members: known })))
    }

    /// `request { … }`, `response { … }`
    fn parameters(&mut self, name: &str, fields: &[ast::Field], at: Span) {
        let known = self.fields(fields, false);
        let name = ast::Name { text: name.into(), at };
        let Ok(known) = known else {
            self.bind(&name, Item::Wrong);
            return;
        };
        for field in &known {
            if field.ty.scalar().is_none() {
                let wrong = Diagnostic::new(field.at, format!("a parameter of type `{}`", field.ty));
                self.tell(wrong.hint("parameters are bit, int, bool, float and enum values"));
            }
        }
        let of = Rc::new(Struct { name: Rc::clone(&name.text), fields: known });
        self.bind(&name, Item::Type(Type::Struct(of)));
    }

    /// `partition bit<16> ports = 1024 .. 65535;`
    fn partition(
        &mut self,
        ty: &ast::Type,
        name: &ast::Name,
        first: &ast::Expr,
        last: &ast::Expr,
    ) -> Checked<Item<'a>> {
        let of = self.ty(ty)?;
        let Type::Bit(width) = of.base() else {
            return self.fail(Diagnostic::new(ty.at, format!("a partition of `{of}`")).hint("it is of a `bit`"));
        };
        if *width > PARTITION_BITS_MAX {
            let wrong = format!("a partition of `{of}`");
            return self.fail(
                Diagnostic::new(ty.at, wrong).hint(format!("its values have at most {PARTITION_BITS_MAX} bits")),
            );
        }
        let (low, high) = (self.known(first, &of)?, self.known(last, &of)?);
        if low > high {
            let at = Span { end: last.at.end.max(first.at.start), ..first.at };
            return self.fail(Diagnostic::new(at, format!("an empty partition: {low} .. {high}")));
        }
        // A handler counts those that are its own in 64 bits.
        if high - low == u128::from(u64::MAX) {
            let wrong = Diagnostic::new(ty.at, format!("a partition of all values of `{of}`"));
            return self.fail(wrong.hint("a handler counts them in 64 bits: leave one out"));
        }
        let new = Partition { name: name.text.to_string(), ty: Ty::Bit(*width), first: low, last: high };
        self.program.partitions.push(new);
        Ok(Item::Partition(self.program.partitions.len() - 1))
    }

    /// What is declared and not used is looked at all the same.
    fn unused(&mut self, declarations: &'a [Decl]) {
        for declaration in declarations {
            match declaration {
                // Constructor's parameters have no value here.
                Decl::Control(control)
                    if control.constructor.is_empty() && !self.used.contains(&std::ptr::from_ref(control).cast()) =>
                {
                    self.check_unused(&control.params, |checker| checker.control_body(control));
                }
                Decl::Parser(parser)
                    if parser.constructor.is_empty() && !self.used.contains(&std::ptr::from_ref(parser).cast()) =>
                {
                    self.checked_only(super::Within::Parser, |checker| {
                        let items = parser.params.iter().map(|param| (param.name.clone(), checker.parameter(param)));
                        let items = items.collect();
                        checker.parse(parser, items);
                    });
                }
                Decl::Action(action) => self.check_action(action),
                Decl::Function(function) if !self.used.contains(&std::ptr::from_ref(function).cast()) => {
                    let Ok(ty) = self.ty(&function.result) else { continue };
                    self.check_returns(function, &ty);
                    self.check_unused(&function.params, |checker| {
                        let result = match ty {
                            Type::Void => None,
                            ty => checker.place("result", &ty, crate::ir::SlotKind::Local, function.name.at).ok(),
                        };
                        checker.results.push(result);
                        checker.statements(&function.body);
                        checker.results.pop();
                    });
                }
                _ => {}
            }
        }
    }
}
