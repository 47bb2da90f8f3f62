//! Names in the P4 text: those of the program where they are valid and unused identifiers.

use crate::parse::KEYWORDS;
use std::collections::HashSet;

use crate::emit::visit;
use crate::ir::{ExprKind, HeaderId, Program, SlotId, SlotKind, StandardField, StmtKind, Transition};

/// Contextual keywords of P4_16 (§6.4.2), and names that the text itself defines.
const DEFINED: &[&str] = &[
    "actions",
    "apply",
    "entries",
    "key",
    "list",
    "size",
    "state",
    "this",
    "type",
    "value_set",
    "verify",
    "void",
    "accept",
    "reject",
    "start",
    "main",
    "hdr",
    "meta",
    "standard_metadata",
    "headers",
    "metadata",
    "packet",
    "request",
    "response",
    "partition",
    "float",
    "hash",
    "digest",
    "clone",
    "truncate",
    "steer",
    "register",
    "counter",
    "mark_to_drop",
    "V1Switch",
    "priority",
    "exact",
    "lpm",
];

/// Reserved names.
fn words() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().chain(DEFINED).copied()
}

/// Errors of P4's core library, by number.
pub(super) const CORE_ERRORS: [&str; 7] = [
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
];

/// Names of all objects of a program.
#[derive(Debug)]
pub(super) struct Names {
    /// Field names, by slot.
    fields: Vec<String>,
    /// Header expressions, by header.
    pub(super) headers: Vec<String>,
    /// Header types, by header.
    pub(super) header_types: Vec<String>,
    /// Varbit fields, by header.
    pub(super) varbits: Vec<String>,
    /// Types and names of the members of `struct headers`.
    pub(super) members: Vec<(String, String)>,
    pub(super) actions: Vec<String>,
    pub(super) tables: Vec<String>,
    pub(super) registers: Vec<String>,
    pub(super) counters: Vec<String>,
    pub(super) states: Vec<String>,
    /// Names in use at the top level or in a control.
    taken: HashSet<String>,
}

impl Names {
    pub(super) fn of(program: &Program) -> Self {
        let mut taken: HashSet<String> = words().map(str::to_owned).collect();
        let (header_types, headers, members) = headers(program, &mut taken);
        let mut each = |name: &str| unique(&identifier(name), &mut taken);
        let actions = program.actions.iter().map(|action| each(&action.name)).collect();
        let tables = program.tables.iter().map(|table| each(&table.name)).collect();
        let registers = program.registers.iter().map(|register| each(&register.name)).collect();
        let counters = program.counters.iter().map(|counter| each(&counter.name)).collect();
        let state = |(i, state): (usize, &crate::ir::ParserState)| match i {
            0 => "start".to_owned(),
            _ => each(&state.name),
        };
        let states = program.parser.states.iter().enumerate().map(state).collect();
        let mut metadata: HashSet<String> = words().map(str::to_owned).collect();
        let fields = program.slots.iter().map(|slot| match slot.kind {
            SlotKind::Field { header, .. } => {
                let header = &program.headers[header.0 as usize].name;
                identifier(slot.name.strip_prefix(header.as_str()).unwrap_or(&slot.name).trim_start_matches('.'))
            }
            SlotKind::Standard(which) => standard(which).to_owned(),
            // The prefix of the metadata parameter is dropped.
            SlotKind::Metadata => {
                let own = slot.name.split_once('.').map_or(slot.name.as_str(), |(_, own)| own);
                unique(&identifier(own), &mut metadata)
            }
            _ => unique(&identifier(&slot.name), &mut metadata),
        });
        let fields: Vec<String> =
            fields.map(|name| if words().any(|word| word == name) { format!("{name}_") } else { name }).collect();
        let varbit = |header: &crate::ir::Header| {
            let own: HashSet<&String> = header.fields.iter().map(|slot| &fields[slot.0 as usize]).collect();
            let mut name = "options".to_owned();
            while own.contains(&name) {
                name.push('_');
            }
            name
        };
        let varbits = program.headers.iter().map(varbit).collect();
        Self { varbits, fields, headers, header_types, members, actions, tables, registers, counters, states, taken }
    }

    /// Name of a header's or the metadata's field.
    pub(super) fn field(&self, slot: SlotId) -> &str {
        &self.fields[slot.0 as usize]
    }

    /// New unique name.
    pub(super) fn fresh(&mut self, name: &str) -> String {
        unique(name, &mut self.taken)
    }

    /// Expression of a slot.
    pub(super) fn slot(&self, program: &Program, slot: SlotId) -> String {
        let field = self.field(slot);
        match program.slots[slot.0 as usize].kind {
            SlotKind::Field { header: HeaderId(header), .. } => format!("{}.{field}", self.headers[header as usize]),
            SlotKind::Standard(_) => format!("standard_metadata.{field}"),
            _ => format!("meta.{field}"),
        }
    }
}

/// Types and names of headers, and the members of `struct headers`; instances `vlan[0]`, `vlan[1]` form one stack.
fn headers(program: &Program, taken: &mut HashSet<String>) -> (Vec<String>, Vec<String>, Vec<(String, String)>) {
    let mut types: Vec<(String, String)> = Vec::new();
    let (mut of, mut names, mut members) = (Vec::new(), Vec::new(), Vec::<(String, String, u32)>::new());
    for header in &program.headers {
        let known = types.iter().find(|(name, _)| *name == header.type_name).map(|(_, ty)| ty.clone());
        let ty = known.unwrap_or_else(|| {
            let ty = unique(&identifier(&header.type_name), taken);
            types.push((header.type_name.clone(), ty.clone()));
            ty
        });
        let own = header.name.split_once('.').map_or(header.name.as_str(), |(_, own)| own);
        let indexed = own.strip_suffix(']').and_then(|own| own.rsplit_once('['));
        let (own, index) = match indexed.and_then(|(own, index)| Some((own, index.parse::<u32>().ok()?))) {
            Some((own, index)) => (word(own), Some(index)),
            None => (word(own), None),
        };
        match index {
            Some(index) => names.push(format!("hdr.{own}[{index}]")),
            None => names.push(format!("hdr.{own}")),
        }
        match members.iter_mut().find(|(_, name, _)| *name == own) {
            Some((.., size)) => *size = (*size).max(index.unwrap_or(0) + 1),
            None => members.push((ty.clone(), own, index.map_or(0, |index| index + 1))),
        }
        of.push(ty);
    }
    let member = |(ty, name, size): (String, String, u32)| match size {
        0 => (ty, name),
        _ => (format!("{ty}[{size}]"), name),
    };
    (of, names, members.into_iter().map(member).collect())
}

/// Field name in `standard_metadata_t`.
fn standard(which: StandardField) -> &'static str {
    match which {
        StandardField::IngressPort => "ingress_port",
        StandardField::EgressSpec => "egress_spec",
        StandardField::EgressPort => "egress_port",
        StandardField::PacketLength => "packet_length",
        StandardField::IngressTimestamp => "ingress_global_timestamp",
        StandardField::McastGroup => "mcast_grp",
        StandardField::EgressRid => "egress_rid",
        StandardField::InstanceType => "instance_type",
        StandardField::ChecksumError => "checksum_error",
        StandardField::ParserError => "parser_error",
    }
}

/// True if slots of this kind are fields of `struct metadata`.
pub(super) fn is_metadata(kind: SlotKind) -> bool {
    !matches!(kind, SlotKind::Field { .. } | SlotKind::Standard(_))
}

/// Name of an error.
pub(super) fn error(number: u16) -> String {
    CORE_ERRORS.get(usize::from(number)).map_or_else(|| format!("Error{number}"), |name| (*name).to_owned())
}

/// Number of errors that the program uses.
pub(super) fn errors(program: &Program) -> usize {
    let mut most = 0;
    visit::statements(program, &mut |stmt| {
        if let StmtKind::Require { error, .. } = stmt.kind {
            most = most.max(usize::from(error) + 1);
        }
    });
    visit::expressions(program, &mut |expr| {
        if let ExprKind::Binary(_, left, right) = &expr.kind
            && let (ExprKind::Slot(slot), ExprKind::Const(error)) = (&left.kind, &right.kind)
            && program.slots[slot.0 as usize].kind == SlotKind::Standard(StandardField::ParserError)
        {
            most = most.max(*error as usize + 1);
        }
    });
    fn of(next: &Transition) -> usize {
        match next {
            Transition::Reject(error) => usize::from(*error) + 1,
            Transition::Select { cases, .. } => cases.iter().map(|(_, next)| of(next)).max().unwrap_or(0),
            _ => 0,
        }
    }
    program.parser.states.iter().map(|state| of(&state.next)).max().unwrap_or(0).max(most)
}

/// Name with only the characters of P4 identifiers: `pre.nat_out` becomes `pre_nat_out`.
#[must_use]
pub fn identifier(name: &str) -> String {
    let mut identifier: String = name
        .chars()
        .filter(|c| *c != ']')
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
        .collect();
    if identifier.is_empty() || identifier.starts_with(|c: char| c.is_ascii_digit()) {
        identifier.insert(0, '_');
    }
    identifier
}

/// Identifier that is not a reserved name.
fn word(name: &str) -> String {
    let name = identifier(name);
    if words().any(|word| word == name) { format!("{name}_") } else { name }
}

fn unique(name: &str, taken: &mut HashSet<String>) -> String {
    let mut unique = name.to_owned();
    let mut count = 1;
    while !taken.insert(unique.clone()) {
        count += 1;
        unique = format!("{name}_{count}");
    }
    unique
}
