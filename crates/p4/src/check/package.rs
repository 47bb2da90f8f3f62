//! Package instance `V1Switch(parser, verify, ingress, egress, compute, deparser) main` (v1model.p4).

use super::types::{Struct, Type};
use super::value::Place;
use super::{Checked, Checker, Instance, Instantiated, Item, PipelinePart};
use crate::ast::{self, Direction, ExprKind};
use crate::diag::{Diagnostic, Reported};
use crate::ir::{Block, SlotKind, SourceSpan, StandardField};
use std::rc::Rc;

/// Reason why a field of `standard_metadata` is not available.
const NO_MEANING: &str = "an element has no queues or priorities, see docs/function.md";

/// Supported fields of `standard_metadata`.
const STANDARD: [(&str, StandardField); 10] = [
    ("ingress_port", StandardField::IngressPort),
    ("egress_spec", StandardField::EgressSpec),
    ("egress_port", StandardField::EgressPort),
    ("packet_length", StandardField::PacketLength),
    ("ingress_global_timestamp", StandardField::IngressTimestamp),
    ("mcast_grp", StandardField::McastGroup),
    ("egress_rid", StandardField::EgressRid),
    ("instance_type", StandardField::InstanceType),
    ("checksum_error", StandardField::ChecksumError),
    ("parser_error", StandardField::ParserError),
];

/// Parameters of each of the six parts: `h`eaders, `m`etadata, `s`tandard metadata, packet `i`n, packet `o`ut.
const PARTS: [(&str, &str, PipelinePart); 6] = [
    ("a parser", "ihms", PipelinePart::Parser),
    ("a control that verifies checksums", "hm", PipelinePart::Checksum),
    ("the ingress", "hms", PipelinePart::Ingress),
    ("the egress", "hms", PipelinePart::Egress),
    ("a control that computes checksums", "hm", PipelinePart::Checksum),
    ("a deparser", "oh", PipelinePart::Deparser),
];

/// Storage shared by the parts.
struct SharedStorage {
    headers: Place,
    metadata: Place,
    standard: Place,
}

impl<'a> Checker<'a> {
    pub(super) fn check_package(&mut self, main: &'a ast::Instance) -> Checked<()> {
        if main.args.len() != PARTS.len() {
            let wrong = format!("expected {} arguments of V1Switch, found {}", PARTS.len(), main.args.len());
            let hint = "arguments: parser, verify, ingress, egress, compute, deparser";
            return self.fail(Diagnostic::new(main.name.at, wrong).hint(hint));
        }
        if &*main.name.text != "main" {
            self.report(Diagnostic::new(main.name.at, "the V1Switch instance must be named `main`"));
        }
        let mut parts = Vec::new();
        for (arg, (what, ..)) in main.args.iter().zip(PARTS) {
            parts.push(self.resolve_package_part(&arg.value, what));
        }
        let Ok(first) = &parts[0] else { return Err(Reported) };
        let Instantiated::Parser(parser) = first.of else {
            return self.fail(Diagnostic::new(main.args[0].value.at, "expected a parser, found a control"));
        };
        let shared = self.bind_shared_storage(parser, main.args[0].value.at)?;
        let mut failed = None;
        for (n, part) in parts.into_iter().enumerate() {
            let at = main.args[n].value.at;
            if let Err(reported) = part.and_then(|part| self.check_part(n, &part, &shared, at)) {
                failed = Some(reported);
            }
        }
        self.path.clear();
        self.within = PipelinePart::Ingress;
        failed.map_or(Ok(()), Err)?;
        self.finish_handler()
    }

    /// Instance of one part: `MyParser()`.
    fn resolve_package_part(&mut self, expr: &ast::Expr, what: &str) -> Checked<Rc<Instance<'a>>> {
        let (name, args): (_, &[ast::Arg]) = match &expr.kind {
            ExprKind::Call { of, args, .. } => (&**of, args),
            _ => (expr, &[]),
        };
        let ExprKind::Name(text) = &name.kind else {
            return self.fail(Diagnostic::new(expr.at, format!("expected {what}")));
        };
        match self.lookup(text) {
            Some(Item::Instance(instance)) => Ok(instance),
            Some(Item::Invalid) => Err(Reported),
            Some(Item::Control(_) | Item::Parser(_)) => {
                let of = ast::Name { text: Rc::clone(text), at: name.at };
                let kind = ast::TypeKind::Named(of.clone(), Vec::new());
                let ty = ast::Type { kind, at: name.at };
                let made = ast::Instance { annotations: Vec::new(), ty, args: args.to_vec(), name: of };
                match self.declare_instance(&made)? {
                    Item::Instance(instance) => Ok(instance),
                    _ => Err(Reported),
                }
            }
            Some(_) => self.fail(Diagnostic::new(name.at, format!("expected {what}, found `{text}`"))),
            None => self.report_unknown(name.at, text, "control or parser"),
        }
    }

    /// Storage of headers, metadata and standard metadata, as the parser declares them.
    fn bind_shared_storage(&mut self, parser: &ast::Parser, at: SourceSpan) -> Checked<SharedStorage> {
        let [_, headers, metadata, standard] = parser.params.as_slice() else {
            return self.report_part_parameters(0, &parser.name, at);
        };
        let mut types = Vec::new();
        for param in [headers, metadata, standard] {
            types.push(self.resolve_type(&param.ty)?);
        }
        let [of_headers, of_metadata, Type::Struct(of_standard)] = types.as_slice() else {
            return self.report_part_parameters(0, &parser.name, at);
        };
        if &*of_standard.name != "standard_metadata_t" {
            return self.report_part_parameters(0, &parser.name, at);
        }
        let kind = SlotKind::Metadata;
        let headers = self.new_place(&headers.name.text, of_headers, kind, headers.name.at)?;
        let metadata = self.new_place(&metadata.name.text, of_metadata, kind, metadata.name.at)?;
        let standard = self.bind_standard_metadata(of_standard, at)?;
        Ok(SharedStorage { headers, metadata, standard })
    }

    fn bind_standard_metadata(&mut self, of: &Rc<Struct>, at: SourceSpan) -> Checked<Place> {
        let mut items = Vec::new();
        for field in &of.fields {
            let known = STANDARD.iter().find(|(name, _)| *name == &*field.name);
            items.push(match (known, field.ty.scalar()) {
                (Some((name, standard)), Some(ty)) => {
                    let kind = SlotKind::Standard(*standard);
                    let slot = self.new_slot(&format!("standard_metadata.{name}"), ty, kind, at)?;
                    self.standard.insert(*standard, slot);
                    Place::Slot(field.ty.clone(), slot)
                }
                _ => Place::Closed(field.ty.clone(), NO_MEANING),
            });
        }
        Ok(Place::Struct(Type::Struct(Rc::clone(of)), items.into()))
    }

    /// Reports a part with wrong parameters.
    fn report_part_parameters<T>(&mut self, part: usize, name: &ast::Name, at: SourceSpan) -> Checked<T> {
        let params = PARTS[part].1.chars().map(|kind| match (kind, part) {
            ('i', _) => "packet_in packet",
            ('o', _) => "packet_out packet",
            ('h', 0) => "out H headers",
            ('h', 5) => "in H headers",
            ('h', _) => "inout H headers",
            ('m', _) => "inout M metadata",
            _ => "inout standard_metadata_t standard_metadata",
        });
        let params: Vec<&str> = params.collect();
        let wrong = format!("`{}` cannot be {}: its parameters differ", name.text, PARTS[part].0);
        let hint = format!("expected parameters: ({})", params.join(", "));
        self.fail(Diagnostic::new(at, wrong).also(name.at, "declared here").hint(hint))
    }

    /// Checks and lowers one part.
    fn check_part(
        &mut self,
        part: usize,
        instance: &Instance<'a>,
        shared: &SharedStorage,
        at: SourceSpan,
    ) -> Checked<()> {
        let (_, shape, within) = PARTS[part];
        let (params, name): (&'a [ast::Param], _) = match instance.of {
            Instantiated::Control(control) if part != 0 => (&control.params, &control.name),
            Instantiated::Parser(parser) if part == 0 => (&parser.params, &parser.name),
            Instantiated::Control(control) => return self.report_part_parameters(part, &control.name, at),
            Instantiated::Parser(parser) => return self.report_part_parameters(part, &parser.name, at),
        };
        if params.len() != shape.len() {
            return self.report_part_parameters(part, name, at);
        }
        let mut items = Vec::new();
        for (param, kind) in params.iter().zip(shape.chars()) {
            let ty = self.resolve_type(&param.ty)?;
            let (expected, writes) = match kind {
                'i' => (Type::PacketIn, None),
                'o' => (Type::PacketOut, None),
                'h' => (shared.headers.ty(), Some((&shared.headers, part != 5))),
                'm' => (shared.metadata.ty(), Some((&shared.metadata, true))),
                _ => (shared.standard.ty(), Some((&shared.standard, true))),
            };
            let directed = matches!(param.direction, Direction::Out | Direction::InOut);
            if ty != expected || writes.is_some_and(|(_, writes)| writes != directed) {
                return self.report_part_parameters(part, name, at);
            }
            let item = match (kind, writes) {
                ('i', _) => Item::PacketIn,
                ('o', _) => Item::PacketOut,
                (_, Some((place, writable))) => Item::Var { place: place.clone(), writable },
                _ => Item::Invalid,
            };
            items.push((param.name.clone(), item));
        }
        let named = if part == 2 && self.handler.is_some() { String::new() } else { instance.name.to_string() };
        self.path = named;
        self.within = within;
        match instance.of {
            Instantiated::Parser(parser) => self.lower_parser(parser, items),
            Instantiated::Control(control) => {
                let block = self.lower_control(control, instance, items);
                match part {
                    1 => self.program.verify = block,
                    2 => self.program.ingress = block,
                    3 => self.program.egress = block,
                    4 => self.program.compute = block,
                    _ if !block.is_empty() => {
                        let wrong = Diagnostic::new(at, "a deparser can only `emit`");
                        return self.fail(wrong.hint("do it in the egress, or in the control that computes checksums"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn lower_control(
        &mut self,
        control: &'a ast::Control,
        instance: &Instance<'a>,
        items: Vec<(ast::Name, Item<'a>)>,
    ) -> Block {
        let (block, ()) = self.collect_block(|checker| {
            checker.with_outer_scopes(1, |checker| {
                checker.bind_all(items);
                checker.bind_constants(&control.constructor, &instance.constants);
                checker.check_control(control);
            });
        });
        block
    }
}
