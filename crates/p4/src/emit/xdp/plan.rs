//! Analysis of a program before emission: C names, fields in use, fields that may change, and whether headers keep
//! their offsets.

use std::collections::HashSet;

use super::layout::{self, MapLayouts, RegisterMapLayout, TableMapLayout};
use super::{EmitOptions, Storage, order};
use crate::emit::visit;
use crate::ir::{ExprKind, HeaderId, Program, SlotId, SlotKind, StandardField, StateId, StmtKind, Transition};

/// C keywords, and names of the emitted program.
const TAKEN: &[&str] = &[
    "asm", "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "typedef", "typeof", "union", "unsigned", "void", "volatile", "while",
    "data", "end", "at", "cur", "error", "xdp", "config", "tested", "ports", "ways", "lost", "digests", "scratch",
    "program", "slots", "length", "same", "rounds", "v", "s", "e", "key", "cell", "out", "again", "keep", "passes",
    "zero", "only", "place", "to", "field", "hash", "base", "max", "index", "told", "longer", "came", "first",
    "pipeline", "function", "crc32", "crc16", "after", "operand", "sum", "crc", "way", "LICENSE", "far_ways", "WAYS",
    "crc32_8", "sums", "f", "turn", "dirty", "moved", "nought", "none",
];

/// Properties of a header.
#[derive(Debug, Clone, Default)]
pub(super) struct HeaderPlan {
    /// Name in C.
    pub(super) name: String,
    /// Size of the fixed-width fields.
    pub(super) bytes: usize,
    /// Largest size of the `varbit` field.
    pub(super) varbytes_max: usize,
    /// True if the program may make the header valid, without an extraction. Its fields are then held in variables;
    /// those of other headers are accessed in place in the packet.
    pub(super) settable: bool,
    /// Fields held in variables, with their bit offset: all of a settable header, else none.
    pub(super) apart: Vec<(SlotId, u32)>,
    /// True if the parser may extract the header.
    pub(super) extracted: bool,
}

/// Program with its properties.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) program: &'a Program,
    pub(super) options: EmitOptions,
    pub(super) layout: MapLayouts,
    /// C names of slots.
    names: Vec<String>,
    pub(super) headers: Vec<HeaderPlan>,
    /// Bit offset within its header of each slot that is a field.
    pub(super) firsts: Vec<u32>,
    /// True if the parser has a cycle.
    looping: bool,
    /// (state, header) pairs where the parser invalidates a header that cannot be valid.
    pub(super) idle: HashSet<(u32, HeaderId)>,
    /// True if headers are contiguous and in the deparser's order after the parser, for every packet.
    pub(super) ordered: bool,
    /// True if the outgoing packet has the headers of the incoming one at the same offsets, for every packet.
    pub(super) fixed: bool,
    /// True if the program recirculates packets.
    pub(super) recirculates: bool,
    /// True if the program truncates packets.
    pub(super) truncates: bool,
    /// Slots that are read.
    read: Vec<bool>,
}

impl<'a> Plan<'a> {
    pub(super) fn of(program: &'a Program, options: EmitOptions) -> Self {
        let mut taken: HashSet<String> = TAKEN.iter().map(|word| (*word).to_owned()).collect();
        let names = program.slots.iter().map(|slot| identifier(&slot.name, &mut taken)).collect();
        let layout = MapLayouts {
            tables: program
                .tables
                .iter()
                .map(|table| {
                    TableMapLayout::of(program, table, identifier(&format!("table_{}", table.name), &mut taken))
                })
                .collect(),
            registers: program
                .registers
                .iter()
                .map(|one| RegisterMapLayout::of(identifier(&format!("register_{}", one.name), &mut taken), one.ty))
                .collect(),
            counters: program
                .counters
                .iter()
                .map(|one| identifier(&format!("counter_{}", one.name), &mut taken))
                .collect(),
            digests: layout::digests(program),
        };
        let headers = program
            .headers
            .iter()
            .map(|header| HeaderPlan {
                name: identifier(&format!("at_{}", header.name), &mut taken)[3..].to_owned(),
                varbytes_max: header.varbit_bits_max.map_or(0, |bits| bits as usize / 8),
                ..HeaderPlan::default()
            })
            .collect();
        let (looping, fixed, read) = (loops(program), false, Vec::new());
        let (mut recirculates, mut truncates) = (false, false);
        visit::statements(program, &mut |stmt| {
            recirculates |= matches!(stmt.kind, StmtKind::Recirculate);
            truncates |= matches!(stmt.kind, StmtKind::Truncate(_));
        });
        let (idle, firsts) = (order::idle(program), vec![0; program.slots.len()]);
        let ordered = !looping && order::keeps(program, &idle);
        let mut plan = Self {
            program,
            options,
            layout,
            names,
            headers,
            firsts,
            looping,
            idle,
            ordered,
            fixed,
            recirculates,
            truncates,
            read,
        };
        plan.find_fields();
        plan.fixed = ordered && !plan.sets_validity();
        plan
    }

    /// C expression of a slot, for reads and writes; not for fields that stay in the packet.
    pub(super) fn slot(&self, slot: SlotId) -> String {
        let name = &self.names[slot.0 as usize];
        if self.header_of(slot).is_some() { self.header_variable(name) } else { self.packet_variable(name) }
    }

    /// C expression of a per-packet variable.
    pub(super) fn packet_variable(&self, name: &str) -> String {
        match self.options.storage {
            Storage::Locals | Storage::Headers => name.to_owned(),
            Storage::Scratch => format!("v->{name}"),
        }
    }

    /// C expression of a per-packet variable of a header.
    pub(super) fn header_variable(&self, name: &str) -> String {
        match self.options.storage {
            Storage::Locals => name.to_owned(),
            Storage::Headers | Storage::Scratch => format!("v->{name}"),
        }
    }

    /// Offset of a header in the packet; `NOWHERE` if invalid, `FRESH` if not from the packet.
    pub(super) fn header_offset(&self, header: HeaderId) -> String {
        self.header_variable(&format!("off_{}", self.headers[header.0 as usize].name))
    }

    /// Zero that is opaque to the verifier: values derived from it are unknown on all paths, so that paths can be
    /// merged.
    pub(super) fn opaque_zero(&self) -> &'static str {
        match self.options.storage {
            Storage::Locals => "0",
            Storage::Headers | Storage::Scratch => "v->nought",
        }
    }

    /// C name of a slot, without its storage.
    pub(super) fn name(&self, slot: SlotId) -> &str {
        &self.names[slot.0 as usize]
    }

    /// True if the slot is read.
    pub(super) fn is_read(&self, slot: SlotId) -> bool {
        self.read[slot.0 as usize]
    }

    /// True if the parser has a cycle.
    pub(super) fn has_parser_cycle(&self) -> bool {
        self.looping
    }

    /// Slot of a standard field, if the program has it.
    pub(super) fn standard(&self, which: StandardField) -> Option<SlotId> {
        let at = self.program.slots.iter().position(|slot| slot.kind == SlotKind::Standard(which))?;
        Some(SlotId(at as u32))
    }

    /// Header of a slot that is a field.
    pub(super) fn header_of(&self, slot: SlotId) -> Option<HeaderId> {
        match self.program.slots[slot.0 as usize].kind {
            SlotKind::Field { header, .. } => Some(header),
            _ => None,
        }
    }

    fn find_fields(&mut self) {
        let program = self.program;
        let mut read = vec![false; program.slots.len()];
        visit::expressions(program, &mut |expr| {
            if let ExprKind::Slot(slot) = expr.kind {
                read[slot.0 as usize] = true;
            }
        });
        self.read = read;
        visit::statements(program, &mut |stmt| match &stmt.kind {
            StmtKind::SetValid { header, valid: true } => self.headers[header.0 as usize].settable = true,
            StmtKind::Extract { header, .. } => self.headers[header.0 as usize].extracted = true,
            _ => {}
        });
        for (header, plan) in program.headers.iter().zip(&mut self.headers) {
            let mut at = 0;
            for slot in &header.fields {
                self.firsts[slot.0 as usize] = at;
                at += u32::from(program.width(*slot));
            }
            plan.bytes = at as usize / 8;
            if plan.settable {
                plan.apart = header.fields.iter().map(|slot| (*slot, self.firsts[slot.0 as usize])).collect();
            }
        }
    }

    /// True if anything after the parser changes the validity of a header.
    fn sets_validity(&self) -> bool {
        let mut sets = false;
        let program = self.program;
        let blocks = [&program.verify, &program.ingress, &program.egress, &program.compute];
        let bodies = program.actions.iter().map(|action| &action.body);
        for block in blocks.into_iter().chain(bodies) {
            visit::block(block, &mut |stmt| sets |= matches!(stmt.kind, StmtKind::SetValid { .. }));
        }
        sets
    }
}

/// True if the program's parser has a cycle.
pub(super) fn loops(program: &Program) -> bool {
    fn from(program: &Program, state: StateId, visits: &mut [Visit]) -> bool {
        let at = state.0 as usize;
        visits[at] = Visit::Now;
        let mut next = Vec::new();
        targets(&program.parser.states[at].next, &mut next);
        let again = next.into_iter().any(|to| match visits[to.0 as usize] {
            Visit::Never => from(program, to, visits),
            Visit::Now => true,
            Visit::Before => false,
        });
        visits[at] = Visit::Before;
        again
    }
    let mut visits = vec![Visit::Never; program.parser.states.len()];
    !visits.is_empty() && from(program, StateId(0), &mut visits)
}

#[derive(Clone, Copy)]
enum Visit {
    Never,
    Now,
    Before,
}

/// Collects the target states of a transition.
pub(super) fn targets(next: &Transition, to: &mut Vec<StateId>) {
    match next {
        Transition::To(state) => to.push(*state),
        Transition::Select { cases, .. } => cases.iter().for_each(|(_, next)| targets(next, to)),
        Transition::Accept | Transition::Reject(_) => {}
    }
}

/// Unique C identifier: `hdr.vlan[1].vid` becomes `hdr_vlan_1_vid`.
pub(super) fn identifier(name: &str, taken: &mut HashSet<String>) -> String {
    let mut clean = String::new();
    for c in name.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => clean.push(c),
            ']' => {}
            _ => clean.push('_'),
        }
    }
    if clean.is_empty() || clean.starts_with(|c: char| c.is_ascii_digit()) {
        clean.insert(0, '_');
    }
    let mut unique = clean.clone();
    let mut count = 1;
    while !taken.insert(unique.clone()) {
        count += 1;
        unique = format!("{clean}_{count}");
    }
    unique
}
