//! Dataflow analysis: places written before the handler, and places live after it (CLIP §IV-B, §IV-C).
//!
//! ```text
//! written ◄── part before ── handler ── part after ── egress ── checksums ── deparser ──► live, backwards
//! ```
//!
//! A place is a slot or the validity of a header. Fields of an invalid header are 0.

use crate::ir::{Block, Expr, ExprKind, HeaderId, Program, SlotId, SlotKind, StandardField, Stmt, StmtKind, TableId};

/// Set of places.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlaceSet {
    bits: Vec<u64>,
    slots: usize,
}

impl PlaceSet {
    /// Empty set for a program.
    pub fn none(program: &Program) -> Self {
        let slots = program.slots.len();
        Self { bits: vec![0; (slots + program.headers.len()).div_ceil(64)], slots }
    }

    /// True if the set contains the slot; false for slots added to the program later.
    pub fn has(&self, slot: SlotId) -> bool {
        (slot.0 as usize) < self.slots && self.get(slot.0 as usize)
    }

    pub fn has_valid(&self, header: HeaderId) -> bool {
        self.get(self.slots + header.0 as usize)
    }

    /// Adds a slot; ignored for slots added to the program later, such as those of the element.
    pub fn add(&mut self, slot: SlotId) {
        if (slot.0 as usize) < self.slots {
            self.set(slot.0 as usize, true);
        }
    }

    pub fn remove(&mut self, slot: SlotId) {
        self.set(slot.0 as usize, false);
    }

    pub fn add_valid(&mut self, header: HeaderId) {
        self.set(self.slots + header.0 as usize, true);
    }

    pub fn remove_valid(&mut self, header: HeaderId) {
        self.set(self.slots + header.0 as usize, false);
    }

    pub fn join(&mut self, other: &Self) {
        for (mine, other) in self.bits.iter_mut().zip(&other.bits) {
            *mine |= other;
        }
    }

    /// True if the sets intersect.
    pub fn intersects(&self, other: &Self) -> bool {
        self.bits.iter().zip(&other.bits).any(|(mine, other)| mine & other != 0)
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|bits| *bits == 0)
    }

    /// Intersects the set with `other`.
    pub fn keep(&mut self, other: &Self) {
        for (mine, other) in self.bits.iter_mut().zip(&other.bits) {
            *mine &= other;
        }
    }

    /// Removes the places of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (mine, other) in self.bits.iter_mut().zip(&other.bits) {
            *mine &= !other;
        }
    }

    /// Slots of the set, in order.
    pub fn slots(&self) -> impl Iterator<Item = SlotId> {
        (0..self.slots).filter(|at| self.get(*at)).map(|at| SlotId(at as u32))
    }

    fn get(&self, at: usize) -> bool {
        self.bits[at / 64] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, at: usize, value: bool) {
        let bit = 1 << (at % 64);
        if value { self.bits[at / 64] |= bit } else { self.bits[at / 64] &= !bit }
    }
}

/// Calls `each` for every statement of a block, and of the actions of the tables that it applies.
pub fn visit_statements<'a>(program: &'a Program, block: &'a [Stmt], each: &mut dyn FnMut(&'a Stmt)) {
    for stmt in block {
        each(stmt);
        match &stmt.kind {
            StmtKind::If { then, otherwise, .. } => {
                visit_statements(program, then, each);
                visit_statements(program, otherwise, each);
            }
            StmtKind::Body(block) => visit_statements(program, block, each),
            StmtKind::Apply { table, .. } => {
                for action in actions(program, *table) {
                    visit_statements(program, &action.body, each);
                }
            }
            _ => {}
        }
    }
}

/// Actions that a table may run.
pub fn actions(program: &Program, table: TableId) -> impl Iterator<Item = &crate::ir::Action> {
    let table = &program.tables[table.0 as usize];
    let default = Some(table.default.0).filter(|id| !table.actions.contains(id));
    table.actions.iter().copied().chain(default).map(|id| &program.actions[id.0 as usize])
}

/// Calls `each` for every expression that a statement reads, without those of nested statements.
pub fn visit_exprs<'a>(program: &'a Program, stmt: &'a Stmt, each: &mut dyn FnMut(&'a Expr)) {
    match &stmt.kind {
        StmtKind::Assign { value: expr, .. }
        | StmtKind::If { condition: expr, .. }
        | StmtKind::Read { index: expr, .. }
        | StmtKind::Count { index: expr, .. }
        | StmtKind::Advance(expr)
        | StmtKind::Truncate(expr)
        | StmtKind::Steer { value: expr, .. }
        | StmtKind::Require { condition: expr, .. }
        | StmtKind::Clone { session: expr } => each(expr),
        StmtKind::Write { index: one, value: other, .. } | StmtKind::Update { index: one, operand: other, .. } => {
            each(one);
            each(other);
        }
        StmtKind::Hash { base, inputs, max, .. } => {
            each(base);
            each(max);
            inputs.iter().for_each(each);
        }
        StmtKind::Checksum { condition, inputs, .. } => {
            each(condition);
            inputs.iter().for_each(each);
        }
        StmtKind::Verify { condition, expected, inputs, .. } => {
            each(condition);
            each(expected);
            inputs.iter().for_each(each);
        }
        StmtKind::Extract { varbits, .. } => varbits.iter().for_each(each),
        StmtKind::Digest { values, .. } => values.iter().for_each(each),
        StmtKind::Apply { table, .. } => {
            program.tables[table.0 as usize].keys.iter().for_each(|key| each(&key.expr));
        }
        StmtKind::SetValid { .. }
        | StmtKind::Body(_)
        | StmtKind::Return
        | StmtKind::Exit
        | StmtKind::Recirculate
        | StmtKind::Remote => {}
    }
}

/// Adds the places that an expression reads.
pub fn add_read_places(expr: &Expr, places: &mut PlaceSet) {
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Lookahead { .. } => {}
        ExprKind::Slot(slot) => places.add(*slot),
        ExprKind::Valid(header) => places.add_valid(*header),
        ExprKind::Unary(_, of) | ExprKind::Slice { of, .. } | ExprKind::Cast(of) => add_read_places(of, places),
        ExprKind::Binary(_, left, right) => {
            add_read_places(left, places);
            add_read_places(right, places);
        }
        ExprKind::Mux(condition, then, otherwise) => {
            add_read_places(condition, places);
            add_read_places(then, places);
            add_read_places(otherwise, places);
        }
    }
}

/// Places that a block and its actions may write.
pub fn written_places(program: &Program, block: &[Stmt]) -> PlaceSet {
    let mut places = PlaceSet::none(program);
    visit_statements(program, block, &mut |stmt| match &stmt.kind {
        StmtKind::Assign { to, .. }
        | StmtKind::Read { to, .. }
        | StmtKind::Hash { to, .. }
        | StmtKind::Checksum { to, .. }
        | StmtKind::Update { to: Some(to), .. } => places.add(*to),
        StmtKind::SetValid { header, .. } | StmtKind::Extract { header, .. } => {
            places.add_valid(*header);
            program.headers[header.0 as usize].fields.iter().for_each(|field| places.add(*field));
        }
        StmtKind::Verify { .. } => {
            if let Some(slot) = standard_slot(program, StandardField::ChecksumError) {
                places.add(slot);
            }
        }
        StmtKind::Apply { table, hit, action } => {
            hit.iter().chain(action).for_each(|slot| places.add(*slot));
            for action in actions(program, *table) {
                action.params.iter().for_each(|slot| places.add(*slot));
            }
        }
        _ => {}
    });
    places
}

/// Slot of a field of `standard_metadata`, if the program has it.
pub fn standard_slot(program: &Program, field: StandardField) -> Option<SlotId> {
    let at = program.slots.iter().position(|slot| slot.kind == SlotKind::Standard(field))?;
    Some(SlotId(at as u32))
}

/// Places that are live at the end of the ingress.
pub fn live_after_ingress(program: &Program) -> PlaceSet {
    Liveness::new(program).after_ingress()
}

/// Places that are live at the start of `block`, a part of the ingress. `after` is live behind the block, `exit` at an
/// `exit`; a `return` outside of a nested body ends the ingress, too.
pub fn live_before(program: &Program, block: &[Stmt], after: PlaceSet, exit: &PlaceSet) -> PlaceSet {
    Liveness::new(program).block(block, after, exit, exit)
}

/// Largest number of simultaneously live bits from the ingress on. Header fields count only if `counted` contains their
/// header's validity.
pub fn peak_bits(program: &Program, counted: &PlaceSet) -> u32 {
    let mut walker = Liveness::new(program);
    for (at, slot) in program.slots.iter().enumerate() {
        if matches!(slot.kind, SlotKind::Field { header, .. } if !counted.has_valid(header)) {
            walker.uncounted.add(SlotId(at as u32));
        }
    }
    let after = walker.after_ingress();
    walker.note(&after);
    walker.block(&program.ingress, after.clone(), &after, &after);
    walker.peak
}

/// Backward liveness analysis of statements.
pub struct Liveness<'a> {
    program: &'a Program,
    uncounted: PlaceSet,
    peak: u32,
}

impl<'a> Liveness<'a> {
    pub fn new(program: &'a Program) -> Self {
        Self { program, uncounted: PlaceSet::none(program), peak: 0 }
    }

    /// Live places at the end of the ingress, from the deparser backwards.
    fn after_ingress(&mut self) -> PlaceSet {
        let program = self.program;
        let mut live = PlaceSet::none(program);
        for header in &program.deparser {
            live.add_valid(*header);
            program.headers[header.0 as usize].fields.iter().for_each(|field| live.add(*field));
        }
        live = self.whole(&program.compute, live);
        let spec = standard_slot(program, StandardField::EgressSpec);
        spec.iter().for_each(|slot| live.add(*slot));
        live = self.whole(&program.egress, live);
        for field in [StandardField::EgressPort, StandardField::EgressRid] {
            standard_slot(program, field).iter().for_each(|slot| live.remove(*slot));
        }
        spec.iter().for_each(|slot| live.add(*slot));
        standard_slot(program, StandardField::McastGroup).iter().for_each(|slot| live.add(*slot));
        live
    }

    fn whole(&mut self, block: &[Stmt], after: PlaceSet) -> PlaceSet {
        let exit = after.clone();
        self.block(block, after, &exit, &exit)
    }

    fn block(&mut self, block: &[Stmt], mut live: PlaceSet, at_return: &PlaceSet, at_exit: &PlaceSet) -> PlaceSet {
        for stmt in block.iter().rev() {
            live = self.stmt(stmt, live, at_return, at_exit);
            self.note(&live);
        }
        live
    }

    fn note(&mut self, live: &PlaceSet) {
        let counted = live.slots().filter(|slot| !self.uncounted.has(*slot));
        self.peak = self.peak.max(counted.map(|slot| u32::from(self.program.width(slot))).sum());
    }

    /// Live places before a statement, from those after it.
    pub fn stmt(&mut self, stmt: &Stmt, mut live: PlaceSet, at_return: &PlaceSet, at_exit: &PlaceSet) -> PlaceSet {
        let program = self.program;
        match &stmt.kind {
            StmtKind::Assign { to, .. } | StmtKind::Read { to, .. } | StmtKind::Hash { to, .. } => {
                if !live.has(*to) {
                    return live;
                }
                self.set(*to, &mut live);
            }
            StmtKind::SetValid { header, valid } => {
                let fields = &program.headers[header.0 as usize].fields;
                live.remove_valid(*header);
                if !valid {
                    fields.iter().for_each(|field| live.remove(*field));
                } else if fields.iter().any(|field| live.has(*field)) {
                    // Fields of a valid header keep their values; fields of an invalid one become 0.
                    live.add_valid(*header);
                }
            }
            StmtKind::If { then, otherwise, .. } => {
                let other = self.block(otherwise, live.clone(), at_return, at_exit);
                live = self.block(then, live, at_return, at_exit);
                live.join(&other);
            }
            StmtKind::Body(block) => {
                let behind = live.clone();
                return self.block(block, live, &behind, at_exit);
            }
            StmtKind::Return => return at_return.clone(),
            StmtKind::Exit => return at_exit.clone(),
            StmtKind::Apply { table, hit, action } => {
                hit.iter().chain(action).for_each(|slot| self.set(*slot, &mut live));
                let mut before = PlaceSet::none(program);
                for action in actions(program, *table) {
                    let mut within = self.block(&action.body, live.clone(), &live, at_exit);
                    action.params.iter().for_each(|slot| within.remove(*slot));
                    before.join(&within);
                }
                live = before;
            }
            StmtKind::Update { to, .. } => to.iter().for_each(|slot| self.set(*slot, &mut live)),
            StmtKind::Clone { .. } => live.join(&live_after_ingress(program)),
            // A recirculated packet keeps its ingress port.
            StmtKind::Recirculate => {
                standard_slot(program, StandardField::IngressPort).iter().for_each(|slot| live.add(*slot));
            }
            // The destination is written only if the condition holds.
            StmtKind::Checksum { to, .. } if live.has(*to) => {
                self.set(*to, &mut live);
                live.add(*to);
            }
            _ => {}
        }
        visit_exprs(program, stmt, &mut |expr| add_read_places(expr, &mut live));
        live
    }

    /// Kills a slot. A field stays dependent on the validity of its header, since a write to an invalid header has no
    /// effect.
    fn set(&self, to: SlotId, live: &mut PlaceSet) {
        let SlotKind::Field { header, .. } = self.program.slots[to.0 as usize].kind else { return live.remove(to) };
        if live.has(to) {
            live.add_valid(header);
            live.remove(to);
        }
    }
}

/// Flat list of all statements of a block, for read-only passes.
pub fn flatten<'a>(program: &'a Program, block: &'a Block) -> Vec<&'a Stmt> {
    let mut all = Vec::new();
    visit_statements(program, block, &mut |stmt| all.push(stmt));
    all
}
