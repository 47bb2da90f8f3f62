//! Which values a program needs where: written before the handler, read behind it (CLIP §IV-B, §IV-C).
//!
//! ```text
//! written ◄── part before ── handler ── part behind ── egress ── checksums ── deparser ──► live, backwards
//! ```
//!
//! A place is a slot, or the validity of a header. Fields of a header that is not valid are 0.

use crate::ir::{Block, Expr, ExprKind, HeaderId, Program, SlotId, SlotKind, Standard, Stmt, StmtKind, TableId};

/// A set of places.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Places {
    bits: Vec<u64>,
    slots: usize,
}

impl Places {
    /// None of a program's.
    pub fn none(program: &Program) -> Self {
        let slots = program.slots.len();
        Self { bits: vec![0; (slots + program.headers.len()).div_ceil(64)], slots }
    }

    /// Whether it has the slot; never one that the program did not have then.
    pub fn has(&self, slot: SlotId) -> bool {
        (slot.0 as usize) < self.slots && self.get(slot.0 as usize)
    }

    pub fn has_valid(&self, header: HeaderId) -> bool {
        self.get(self.slots + header.0 as usize)
    }

    /// Adds a slot, if the program had it then: the element's part has more of them.
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

    /// Whether the two have a place in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.bits.iter().zip(&other.bits).any(|(mine, other)| mine & other != 0)
    }

    /// Whether there is none in it.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|bits| *bits == 0)
    }

    /// Takes out what the other has not.
    pub fn keep(&mut self, other: &Self) {
        for (mine, other) in self.bits.iter_mut().zip(&other.bits) {
            *mine &= other;
        }
    }

    /// Takes out what the other has.
    pub fn subtract(&mut self, other: &Self) {
        for (mine, other) in self.bits.iter_mut().zip(&other.bits) {
            *mine &= !other;
        }
    }

    /// The slots in it, in order.
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

/// Calls `each` with every statement of a block, and of the actions of tables that it applies.
pub fn walk<'a>(program: &'a Program, block: &'a [Stmt], each: &mut dyn FnMut(&'a Stmt)) {
    for stmt in block {
        each(stmt);
        match &stmt.kind {
            StmtKind::If { then, otherwise, .. } => {
                walk(program, then, each);
                walk(program, otherwise, each);
            }
            StmtKind::Body(block) => walk(program, block, each),
            StmtKind::Apply { table, .. } => {
                for action in actions(program, *table) {
                    walk(program, &action.body, each);
                }
            }
            _ => {}
        }
    }
}

/// The actions that a table may run.
pub fn actions(program: &Program, table: TableId) -> impl Iterator<Item = &crate::ir::Action> {
    let table = &program.tables[table.0 as usize];
    let default = Some(table.default.0).filter(|id| !table.actions.contains(id));
    table.actions.iter().copied().chain(default).map(|id| &program.actions[id.0 as usize])
}

/// Calls `each` with every expression that a statement itself reads, not those of statements within it.
pub fn exprs<'a>(program: &'a Program, stmt: &'a Stmt, each: &mut dyn FnMut(&'a Expr)) {
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
pub fn read(expr: &Expr, places: &mut Places) {
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Lookahead { .. } => {}
        ExprKind::Slot(slot) => places.add(*slot),
        ExprKind::Valid(header) => places.add_valid(*header),
        ExprKind::Unary(_, of) | ExprKind::Slice { of, .. } | ExprKind::Cast(of) => read(of, places),
        ExprKind::Binary(_, left, right) => {
            read(left, places);
            read(right, places);
        }
        ExprKind::Mux(condition, then, otherwise) => {
            read(condition, places);
            read(then, places);
            read(otherwise, places);
        }
    }
}

/// The places that a block may write, and its actions.
pub fn written(program: &Program, block: &[Stmt]) -> Places {
    let mut places = Places::none(program);
    walk(program, block, &mut |stmt| match &stmt.kind {
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
            if let Some(slot) = standard(program, Standard::ChecksumError) {
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

/// The slot of a field of `standard_metadata`, if the program has it.
pub fn standard(program: &Program, field: Standard) -> Option<SlotId> {
    let at = program.slots.iter().position(|slot| slot.kind == SlotKind::Standard(field))?;
    Some(SlotId(at as u32))
}

/// Places that are read behind the ingress.
pub fn live_after_ingress(program: &Program) -> Places {
    Live::new(program).after_ingress()
}

/// Places that are read from the start of `block`, a piece of the ingress, on, if those in `after` are read behind it and
/// `exit` at an `exit`. A `return` that stands in no body of its own ends the ingress as well.
pub fn live_before(program: &Program, block: &[Stmt], after: Places, exit: &Places) -> Places {
    Live::new(program).block(block, after, exit, exit)
}

/// The most bits of slots that are needed at once anywhere from the ingress on, fields of headers only where `counted` has
/// the header's validity.
pub fn peak_bits(program: &Program, counted: &Places) -> u32 {
    let mut walker = Live::new(program);
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

/// Goes backwards through statements, from what is needed behind them to what is needed before.
pub struct Live<'a> {
    program: &'a Program,
    uncounted: Places,
    peak: u32,
}

impl<'a> Live<'a> {
    pub fn new(program: &'a Program) -> Self {
        Self { program, uncounted: Places::none(program), peak: 0 }
    }

    /// From the deparser back to the end of the ingress.
    fn after_ingress(&mut self) -> Places {
        let program = self.program;
        let mut live = Places::none(program);
        for header in &program.deparser {
            live.add_valid(*header);
            program.headers[header.0 as usize].fields.iter().for_each(|field| live.add(*field));
        }
        live = self.whole(&program.compute, live);
        let spec = standard(program, Standard::EgressSpec);
        spec.iter().for_each(|slot| live.add(*slot));
        live = self.whole(&program.egress, live);
        for field in [Standard::EgressPort, Standard::EgressRid] {
            standard(program, field).iter().for_each(|slot| live.remove(*slot));
        }
        spec.iter().for_each(|slot| live.add(*slot));
        standard(program, Standard::McastGroup).iter().for_each(|slot| live.add(*slot));
        live
    }

    fn whole(&mut self, block: &[Stmt], after: Places) -> Places {
        let exit = after.clone();
        self.block(block, after, &exit, &exit)
    }

    fn block(&mut self, block: &[Stmt], mut live: Places, at_return: &Places, at_exit: &Places) -> Places {
        for stmt in block.iter().rev() {
            live = self.stmt(stmt, live, at_return, at_exit);
            self.note(&live);
        }
        live
    }

    fn note(&mut self, live: &Places) {
        let counted = live.slots().filter(|slot| !self.uncounted.has(*slot));
        self.peak = self.peak.max(counted.map(|slot| u32::from(self.program.width(slot))).sum());
    }

    /// What is needed before a statement.
    pub fn stmt(&mut self, stmt: &Stmt, mut live: Places, at_return: &Places, at_exit: &Places) -> Places {
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
                    // What a valid one's fields are they stay; another's become 0.
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
                let mut before = Places::none(program);
                for action in actions(program, *table) {
                    let mut within = self.block(&action.body, live.clone(), &live, at_exit);
                    action.params.iter().for_each(|slot| within.remove(*slot));
                    before.join(&within);
                }
                live = before;
            }
            StmtKind::Update { to, .. } => to.iter().for_each(|slot| self.set(*slot, &mut live)),
            StmtKind::Clone { .. } => live.join(&live_after_ingress(program)),
            // It comes in where it came in.
            StmtKind::Recirculate => {
                standard(program, Standard::IngressPort).iter().for_each(|slot| live.add(*slot));
            }
            // Written only if the condition holds.
            StmtKind::Checksum { to, .. } if live.has(*to) => {
                self.set(*to, &mut live);
                live.add(*to);
            }
            _ => {}
        }
        exprs(program, stmt, &mut |expr| read(expr, &mut live));
        live
    }

    /// What was in a slot is needed no more; whether its header is valid decides on whether it is set.
    fn set(&self, to: SlotId, live: &mut Places) {
        let SlotKind::Field { header, .. } = self.program.slots[to.0 as usize].kind else { return live.remove(to) };
        if live.has(to) {
            live.add_valid(header);
            live.remove(to);
        }
    }
}

/// All statements of a block in one list, for those who only look.
pub fn flat<'a>(program: &'a Program, block: &'a Block) -> Vec<&'a Stmt> {
    let mut all = Vec::new();
    walk(program, block, &mut |stmt| all.push(stmt));
    all
}
