//! What the emitter finds out about a program before it writes a line: names in C, which fields have to be looked at,
//! which may change, and whether headers leave as they came.

use std::collections::HashSet;

use super::layout::{self, Layout, RegisterLayout, TableLayout};
use super::{Options, Storage, order};
use crate::emit::walk;
use crate::ir::{ExprKind, HeaderId, Program, SlotId, SlotKind, Standard, StateId, StmtKind, Transition};

/// Words that no slot may be called by: C's, and those of the emitted program itself.
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

/// What is known of a header.
#[derive(Debug, Clone, Default)]
pub(super) struct HeaderPlan {
    /// Its name in C.
    pub(super) name: String,
    /// Of its fields of fixed width.
    pub(super) bytes: usize,
    /// Of its `varbit` field, at most.
    pub(super) varbytes_max: usize,
    /// Whether the program may make it valid: it may leave without having come. Then its fields are held apart from the
    /// packet; those of others are read and written where they lie in it.
    pub(super) settable: bool,
    /// Fields that are held apart, with their first bit: all, if it is settable, or none.
    pub(super) apart: Vec<(SlotId, u32)>,
    /// Whether the parser may take it from the packet.
    pub(super) extracted: bool,
}

/// A program and what is known of it.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) program: &'a Program,
    pub(super) options: Options,
    pub(super) layout: Layout,
    /// Names of slots in C.
    names: Vec<String>,
    pub(super) headers: Vec<HeaderPlan>,
    /// The first bit, within its header, of each slot that is a field.
    pub(super) firsts: Vec<u32>,
    /// Whether its parser may come to a state again.
    looping: bool,
    /// Statements of the parser, by state and header, that make a header invalid which can't be valid there.
    pub(super) idle: HashSet<(u32, HeaderId)>,
    /// Whether headers stand as they leave when the parser is done, whatever the packet is.
    pub(super) ordered: bool,
    /// Whether what leaves is what came, with other values at the same places, whatever the packet is.
    pub(super) fixed: bool,
    /// Whether packets may come in once more.
    pub(super) recirculates: bool,
    /// Whether packets may be cut.
    pub(super) truncates: bool,
    /// Slots that anything reads.
    read: Vec<bool>,
}

impl<'a> Plan<'a> {
    pub(super) fn of(program: &'a Program, options: Options) -> Self {
        let mut taken: HashSet<String> = TAKEN.iter().map(|word| (*word).to_owned()).collect();
        let names = program.slots.iter().map(|slot| identifier(&slot.name, &mut taken)).collect();
        let layout = Layout {
            tables: program
                .tables
                .iter()
                .map(|table| TableLayout::of(program, table, identifier(&format!("table_{}", table.name), &mut taken)))
                .collect(),
            registers: program
                .registers
                .iter()
                .map(|one| RegisterLayout::of(identifier(&format!("register_{}", one.name), &mut taken), one.ty))
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
        walk::statements(program, &mut |stmt| {
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

    /// A slot as C reads and writes it; no field of a header that lies in the packet.
    pub(super) fn slot(&self, slot: SlotId) -> String {
        let name = &self.names[slot.0 as usize];
        if self.header_of(slot).is_some() { self.of_header(name) } else { self.held(name) }
    }

    /// Something of the packet's own time, wherever that is held.
    pub(super) fn held(&self, name: &str) -> String {
        match self.options.storage {
            Storage::Locals | Storage::Headers => name.to_owned(),
            Storage::Scratch => format!("v->{name}"),
        }
    }

    /// The same for what is known of a header.
    pub(super) fn of_header(&self, name: &str) -> String {
        match self.options.storage {
            Storage::Locals => name.to_owned(),
            Storage::Headers | Storage::Scratch => format!("v->{name}"),
        }
    }

    /// Where a header begins in the packet; `NOWHERE`: it is not valid, `FRESH`: it did not come with the packet.
    pub(super) fn off(&self, header: HeaderId) -> String {
        self.of_header(&format!("off_{}", self.headers[header.0 as usize].name))
    }

    /// 0, of which the verifier does not know that it is: what begins with it is unknown on all ways, and those that meet
    /// again go on as one.
    pub(super) fn nought(&self) -> &'static str {
        match self.options.storage {
            Storage::Locals => "0",
            Storage::Headers | Storage::Scratch => "v->nought",
        }
    }

    /// The name of a slot in C, wherever it is held.
    pub(super) fn name(&self, slot: SlotId) -> &str {
        &self.names[slot.0 as usize]
    }

    /// Whether anything reads the slot.
    pub(super) fn is_read(&self, slot: SlotId) -> bool {
        self.read[slot.0 as usize]
    }

    /// Whether its parser may come to a state again.
    pub(super) fn loops(&self) -> bool {
        self.looping
    }

    /// The slot of a standard field, if the program has it.
    pub(super) fn standard(&self, which: Standard) -> Option<SlotId> {
        let at = self.program.slots.iter().position(|slot| slot.kind == SlotKind::Standard(which))?;
        Some(SlotId(at as u32))
    }

    /// The header that a slot is a field of.
    pub(super) fn header_of(&self, slot: SlotId) -> Option<HeaderId> {
        match self.program.slots[slot.0 as usize].kind {
            SlotKind::Field { header, .. } => Some(header),
            _ => None,
        }
    }

    fn find_fields(&mut self) {
        let program = self.program;
        let mut read = vec![false; program.slots.len()];
        walk::expressions(program, &mut |expr| {
            if let ExprKind::Slot(slot) = expr.kind {
                read[slot.0 as usize] = true;
            }
        });
        self.read = read;
        walk::statements(program, &mut |stmt| match &stmt.kind {
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

    /// Whether anything behind the parser makes headers valid or not.
    fn sets_validity(&self) -> bool {
        let mut sets = false;
        let program = self.program;
        let blocks = [&program.verify, &program.ingress, &program.egress, &program.compute];
        let bodies = program.actions.iter().map(|action| &action.body);
        for block in blocks.into_iter().chain(bodies) {
            walk::block(block, &mut |stmt| sets |= matches!(stmt.kind, StmtKind::SetValid { .. }));
        }
        sets
    }
}

/// Whether a program's parser may come to a state again.
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

/// The states that a transition may go to.
pub(super) fn targets(next: &Transition, to: &mut Vec<StateId>) {
    match next {
        Transition::To(state) => to.push(*state),
        Transition::Select { cases, .. } => cases.iter().for_each(|(_, next)| targets(next, to)),
        Transition::Accept | Transition::Reject(_) => {}
    }
}

/// A name as C takes it, unlike all before: `hdr.vlan[1].vid` becomes `hdr_vlan_1_vid`.
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
