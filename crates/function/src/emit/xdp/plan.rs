//! What the emitter finds out about a program before it writes a line: names in C, which fields have to be looked at,
//! which may change, and whether headers leave as they came.

use std::collections::HashSet;

use super::layout::{self, Layout, RegisterLayout, TableLayout};
use super::{Options, Storage};
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
    "crc32_4",
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
    /// Whether the program may make it valid: it may leave without having come.
    pub(super) settable: bool,
    /// Fields to be read from the packet, and to be written to it, with their first bit.
    pub(super) loaded: Vec<(SlotId, u32)>,
    /// Fields that may have changed, with their first bit.
    pub(super) stored: Vec<(SlotId, u32)>,
    /// Whether any part of the program looks at whether it is valid, or its place matters.
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
    /// Whether its parser may come to a state again.
    looping: bool,
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
        let mut plan = Self { program, options, layout, names, headers, looping, fixed, recirculates, truncates, read };
        plan.find_fields();
        plan.fixed = plan.keeps_layout();
        plan
    }

    /// A slot as C reads and writes it.
    pub(super) fn slot(&self, slot: SlotId) -> String {
        self.held(&self.names[slot.0 as usize])
    }

    /// Something of the packet's own time, wherever that is held.
    pub(super) fn held(&self, name: &str) -> String {
        match self.options.storage {
            Storage::Locals => name.to_owned(),
            Storage::Scratch => format!("v->{name}"),
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
        let (mut read, mut written) = (vec![false; program.slots.len()], vec![false; program.slots.len()]);
        walk::expressions(program, &mut |expr| {
            if let ExprKind::Slot(slot) = expr.kind {
                read[slot.0 as usize] = true;
            }
        });
        let mut settable = vec![false; program.headers.len()];
        walk::statements(program, &mut |stmt| {
            let mut writes = |slot: &SlotId| written[slot.0 as usize] = true;
            match &stmt.kind {
                StmtKind::Assign { to, .. }
                | StmtKind::Read { to, .. }
                | StmtKind::Hash { to, .. }
                | StmtKind::Checksum { to, .. } => writes(to),
                StmtKind::Update { to, .. } => to.iter().for_each(writes),
                StmtKind::Apply { hit, action, .. } => hit.iter().chain(action).for_each(writes),
                StmtKind::SetValid { header, valid: true } => settable[header.0 as usize] = true,
                _ => {}
            }
        });
        let params = program.actions.iter().flat_map(|action| &action.params);
        params.for_each(|slot| written[slot.0 as usize] = true);
        for (i, header) in program.headers.iter().enumerate() {
            let mut at = 0;
            let fields: Vec<(SlotId, u32)> = header
                .fields
                .iter()
                .map(|slot| {
                    let first = at;
                    at += u32::from(program.width(*slot));
                    (*slot, first)
                })
                .collect();
            let plan = &mut self.headers[i];
            plan.bytes = at as usize / 8;
            plan.settable = settable[i];
            let stored = |slot: &SlotId| settable[i] || written[slot.0 as usize];
            plan.stored = fields.iter().filter(|(slot, _)| stored(slot)).copied().collect();
            plan.loaded = fields.into_iter().filter(|(slot, _)| stored(slot) || read[slot.0 as usize]).collect();
        }
        walk::statements(program, &mut |stmt| {
            if let StmtKind::Extract { header, .. } = stmt.kind {
                self.headers[header.0 as usize].extracted = true;
            }
        });
        self.read = read;
    }

    /// Whether each way through the parser takes headers in the order in which they leave, and nothing makes them
    /// valid or not.
    fn keeps_layout(&self) -> bool {
        let mut moves = self.looping;
        walk::statements(self.program, &mut |stmt| {
            moves |= matches!(stmt.kind, StmtKind::SetValid { .. } | StmtKind::Advance(_));
        });
        !moves && self.in_order(StateId(0), 0, &mut HashSet::new())
    }

    /// From a state on, where the next header may be at `least` in the deparser's list.
    fn in_order(&self, state: StateId, least: usize, seen: &mut HashSet<(u32, usize)>) -> bool {
        if !seen.insert((state.0, least)) {
            return true;
        }
        let of = &self.program.parser.states[state.0 as usize];
        let (mut least, mut holds) = (least, true);
        walk::block(&of.body, &mut |stmt| {
            let StmtKind::Extract { header, .. } = stmt.kind else { return };
            let deparser = &self.program.deparser;
            match deparser.iter().skip(least).position(|id| *id == header) {
                // Twice in the list: it would leave twice.
                Some(at) if deparser.iter().filter(|id| **id == header).count() == 1 => least += at + 1,
                _ => holds = false,
            }
        });
        let mut next = Vec::new();
        targets(&of.next, &mut next);
        holds && next.into_iter().all(|to| self.in_order(to, least, seen))
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
fn targets(next: &Transition, to: &mut Vec<StateId>) {
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
