//! Tests that the program fits a pipeline: on each path, a register array is accessed at most once, arrays are accessed
//! in one order, and a table is applied at most once.
//!
//! An access is a read, a write, or a read followed by a write of the same cell without another array in between.

use std::collections::{BTreeMap, BTreeSet};

use pathcall_p4::ir::{Block, Expr, Program, RegisterId, Stmt, StmtKind, TableId};
use pathcall_program::layout::ARRAYS as ARRAYS_OF_THE_REFERENCE;

/// Accesses that may have happened on the paths to a statement.
#[derive(Debug, Clone, Default)]
struct Used {
    /// Arrays that may have been accessed: the cell, and whether it may have been written.
    visits: BTreeMap<RegisterId, (Expr, bool)>,
    /// Arrays that may have been accessed last.
    last: BTreeSet<RegisterId>,
    tables: BTreeSet<TableId>,
}

impl Used {
    /// Union of two paths.
    fn or(mut self, other: Self) -> Self {
        for (register, (cell, written)) in other.visits {
            self.visits.entry(register).or_insert((cell, false)).1 |= written;
        }
        self.last.extend(other.last);
        self.tables.extend(other.tables);
        self
    }
}

struct Walk<'a> {
    program: &'a Program,
    /// Arrays in the order of their first access in the text.
    order: Vec<RegisterId>,
    wrong: BTreeSet<String>,
}

impl Walk<'_> {
    fn block(&mut self, block: &Block, used: Used) -> Used {
        block.iter().fold(used, |used, stmt| self.stmt(stmt, used))
    }

    fn stmt(&mut self, stmt: &Stmt, mut used: Used) -> Used {
        match &stmt.kind {
            StmtKind::Read { register, index, .. } => self.touch(&mut used, *register, index, false),
            StmtKind::Write { register, index, .. } | StmtKind::Update { register, index, .. } => {
                self.touch(&mut used, *register, index, true);
            }
            StmtKind::If { then, otherwise, .. } => {
                let then = self.block(then, used.clone());
                return then.or(self.block(otherwise, used));
            }
            StmtKind::Body(block) => return self.block(block, used),
            StmtKind::Apply { table, .. } => {
                let of = &self.program.tables[table.0 as usize];
                if !used.tables.insert(*table) {
                    self.wrong.insert(format!("table {} is applied twice", of.name));
                }
                let bodies: Vec<_> =
                    of.actions.iter().map(|action| &self.program.actions[action.0 as usize].body).collect();
                let ways = bodies.into_iter().map(|body| self.block(body, used.clone())).reduce(Used::or);
                return ways.unwrap_or(used);
            }
            _ => {}
        }
        used
    }

    fn touch(&mut self, used: &mut Used, register: RegisterId, index: &Expr, writes: bool) {
        let name = &self.program.registers[register.0 as usize].name;
        if !self.order.contains(&register) {
            self.order.push(register);
        }
        let place = |register: &RegisterId| self.order.iter().position(|other| other == register);
        if used.visits.keys().any(|other| place(other) > place(&register)) {
            self.wrong.insert(format!("{name} is accessed after a later array"));
        }
        match used.visits.get_mut(&register) {
            Some((cell, written)) => {
                if used.last != BTreeSet::from([register]) {
                    self.wrong.insert(format!("{name} is accessed twice"));
                } else if *written || !writes {
                    self.wrong.insert(format!("{name} is accessed by more than a read and a write"));
                } else if cell != index {
                    self.wrong.insert(format!("{name} is accessed in two cells"));
                }
                *written |= writes;
            }
            None => drop(used.visits.insert(register, (index.clone(), writes))),
        }
        used.last = BTreeSet::from([register]);
    }
}

/// Violations of a pipeline's constraints.
fn contradictions(program: &Program) -> BTreeSet<String> {
    let mut walk = Walk { program, order: Vec::new(), wrong: BTreeSet::new() };
    let used = walk.block(&program.ingress, Used::default());
    walk.block(&program.egress, used);
    assert_eq!(walk.order.len(), program.registers.len(), "an unused array");
    walk.wrong
}

#[test]
fn frame_accesses_each_array_once() {
    for defined in [&[][..], &["PC_FLIP_BIT"], &["PC_SLOT_BY_CRC"], &["PC_PROFILE_MAP"], &["PC_PROFILE_CLONE"]] {
        let program = super::compiled(&super::folder(), defined).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(contradictions(&program), BTreeSet::new(), "{defined:?}");
    }
}

/// Arrays of the reference's layout, with their names in the text.
const ARRAYS: [(&str, &str); 14] = [
    ("generations", "generation."),
    ("places", "repeat_filter."),
    ("rounds", "round."),
    ("counts", "count."),
    ("ballots", "ballot."),
    ("locks", "lock."),
    ("grants", "grant."),
    ("lanes", "map."),
    ("overflows", "overflow."),
    ("numbers", "number."),
    ("loads", "load.loads"),
    ("shadows", "load.shadows"),
    ("requests", "requests."),
    ("filters", "filter."),
];

/// Copies in the text of fields of the layout, bits: the open generation, and the tag of a round. With its copy, an
/// array does not depend on another.
const COPIES: [(&str, u64); 2] = [("generations", 32), ("rounds", 32)];

/// Stages of *map* and of calls; no frame runs both.
const GROUPS: [&str; 2] = ["SwitchIngress.map_stages.", "SwitchIngress.call_stages."];

#[test]
fn arrays_match_reference_in_order() {
    let program = super::compiled(&super::folder(), &["PC_FLIP_BIT"]).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut walk = Walk { program: &program, order: Vec::new(), wrong: BTreeSet::new() };
    walk.block(&program.ingress, Used::default());
    let register = |id: &RegisterId| &program.registers[id.0 as usize];
    let (mut stages, mut found) = (GROUPS.map(|group| (group, 0)), 0);
    for (name, at) in ARRAYS {
        let array = ARRAYS_OF_THE_REFERENCE.iter().find(|array| array.name == name).expect("an array");
        let of = |id: &&RegisterId| GROUPS.iter().any(|group| register(id).name.starts_with(&format!("{group}{at}")));
        let here: Vec<_> = walk.order.iter().filter(of).map(register).collect();
        let bits: u64 = here.iter().map(|register| u64::from(register.ty.width())).sum();
        let lanes = if name == "lanes" { array.parallel() as u64 } else { 1 };
        let copies: u64 = COPIES.iter().filter(|(of, _)| *of == name).map(|(_, bits)| bits).sum();
        assert_eq!(bits, array.bits() * lanes + copies, "{name}: bits of a register");
        found += here.len();
    }
    assert_eq!(found, program.registers.len(), "arrays missing in the reference");
    for id in &walk.order {
        let path = &register(id).name;
        let (group, last) = stages.iter_mut().find(|(group, _)| path.starts_with(*group)).expect("a group of stages");
        let (name, _) = ARRAYS.iter().find(|(_, at)| path[group.len()..].starts_with(at)).expect("an array");
        let stage = ARRAYS_OF_THE_REFERENCE.iter().find(|array| array.name == *name).expect("an array").stage;
        assert!(stage >= *last, "{path} follows an array of a later stage");
        *last = stage;
    }
}

#[test]
fn pipeline_violations_are_found() {
    for (file, from, to, expected) in [
        (
            "count.p4",
            "counts.write(md.row, count);",
            "counts.write(md.row, count);\ncounts.read(count, md.row);",
            "count.counts is accessed by more",
        ),
        ("load.p4", "shadows.read(second, ", "loads.read(second, ", "load.loads is accessed by more"),
        (
            "repeat_filter.p4",
            "generations.read(md.applied_in, md.place);",
            "generations.read(md.applied_in, md.place); seqs.read(last, md.place);",
            "repeat_filter.seqs is accessed",
        ),
    ] {
        let folder = super::planted_mistakes::patched(file, from, to);
        let program = super::compiled(folder.path(), &[]).unwrap_or_else(|wrong| panic!("{wrong}"));
        let found = contradictions(&program);
        assert!(found.iter().any(|wrong| wrong.contains(expected)), "{expected}: {found:?}");
    }
}
