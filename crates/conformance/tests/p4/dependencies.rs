//! Tests of the estimate's arrays against the compiled text: names, widths, cells, and which decide about which.
//!
//! A value depends on the arrays and tables that were read for it, and on those of each condition around its assignment.

use std::collections::{BTreeMap, BTreeSet};

use pathcall_conformance::generate::CLONES;
use pathcall_p4::ir::{Block, Expr, ExprKind, Program, RegisterId, SlotId, Stmt, StmtKind, TableId};
use pathcall_program::pipeline::{LANES, PIPELINE_ARRAYS, PipelineArray, PipelineProfile};

use super::MEMORY;

/// Arrays and tables, by their paths in [`PIPELINE_ARRAYS`].
type Sources = BTreeSet<&'static str>;

/// Values at a point of the program, each with what it depends on; absent ones depend on nothing.
type Values = BTreeMap<SlotId, Sources>;

struct Analysis<'a> {
    program: &'a Program,
    profile: PipelineProfile,
    /// What decides about each array and table.
    decides: BTreeMap<&'static str, Sources>,
}

/// Array of the estimate with this path in the program.
fn array_at(path: &str) -> Option<&'static PipelineArray> {
    let is_lane = path.contains(".map.lane_");
    PIPELINE_ARRAYS.iter().find(|array| match array.path == LANES {
        true => is_lane,
        false => !is_lane && path.ends_with(&format!(".{}", array.path)),
    })
}

impl Analysis<'_> {
    fn register(&self, id: RegisterId) -> &'static PipelineArray {
        let name = &self.program.registers[id.0 as usize].name;
        array_at(name).unwrap_or_else(|| panic!("{name} is missing in the estimate"))
    }

    fn table(&self, id: TableId) -> Option<&'static PipelineArray> {
        array_at(&self.program.tables[id.0 as usize].name)
    }

    fn block(&mut self, block: &Block, values: &mut Values, around: &Sources) {
        block.iter().for_each(|stmt| self.stmt(stmt, values, around));
    }

    fn stmt(&mut self, stmt: &Stmt, values: &mut Values, around: &Sources) {
        match &stmt.kind {
            StmtKind::Assign { to, value } => {
                let sources = around | &of(value, values);
                values.insert(*to, sources);
            }
            StmtKind::Hash { to, base, inputs, max, .. } => {
                let inputs = inputs.iter().chain([base, max]).map(|input| of(input, values));
                let sources = inputs.fold(around.clone(), |all, input| &all | &input);
                values.insert(*to, sources);
            }
            StmtKind::Read { register, index, to } => {
                let sources = around | &of(index, values);
                values.insert(*to, self.visit(*register, sources));
            }
            StmtKind::Write { register, index, value } => {
                let sources = &(around | &of(index, values)) | &of(value, values);
                self.visit(*register, sources);
            }
            StmtKind::If { condition, then, otherwise } => {
                let inside = around | &of(condition, values);
                let mut other = values.clone();
                self.block(then, values, &inside);
                self.block(otherwise, &mut other, &inside);
                merge(values, other);
            }
            StmtKind::Body(block) => self.block(block, values, around),
            StmtKind::Apply { table, hit, action } => {
                let of_table = &self.program.tables[table.0 as usize];
                let keys = of_table.keys.iter().map(|key| of(&key.expr, values));
                let mut inside = keys.fold(around.clone(), |all, key| &all | &key);
                if let Some(array) = self.table(*table) {
                    self.decides.entry(array.path).or_default().extend(&inside);
                    inside.insert(array.path);
                }
                let before = values.clone();
                for action in &of_table.actions {
                    let mut after = before.clone();
                    self.block(&self.program.actions[action.0 as usize].body.clone(), &mut after, &inside);
                    merge(values, after);
                }
                for slot in hit.iter().chain(action) {
                    values.insert(*slot, inside.clone());
                }
            }
            _ => {}
        }
    }

    /// Notes an access to an array; returns what its value depends on.
    fn visit(&mut self, register: RegisterId, mut sources: Sources) -> Sources {
        let array = self.register(register);
        assert!(array.is_of(self.profile), "{} is not in profile {}", array.path, self.profile.name());
        sources.remove(array.path);
        self.decides.entry(array.path).or_default().extend(&sources);
        sources.insert(array.path);
        sources
    }
}

fn merge(values: &mut Values, others: Values) {
    for (slot, sources) in others {
        values.entry(slot).or_default().extend(sources);
    }
}

/// What an expression depends on.
fn of(expr: &Expr, values: &Values) -> Sources {
    match &expr.kind {
        ExprKind::Slot(slot) => values.get(slot).cloned().unwrap_or_default(),
        ExprKind::Unary(_, of_one) | ExprKind::Cast(of_one) | ExprKind::Slice { of: of_one, .. } => of(of_one, values),
        ExprKind::Binary(_, left, right) => &of(left, values) | &of(right, values),
        ExprKind::Mux(condition, then, otherwise) => {
            &(&of(condition, values) | &of(then, values)) | &of(otherwise, values)
        }
        ExprKind::Const(_) | ExprKind::Valid(_) | ExprKind::Lookahead { .. } => Sources::new(),
    }
}

fn analyse(program: &Program, profile: PipelineProfile) -> BTreeMap<&'static str, Sources> {
    let mut analysis = Analysis { program, profile, decides: BTreeMap::new() };
    let mut values = Values::new();
    analysis.block(&program.ingress, &mut values, &Sources::new());
    analysis.decides
}

/// Arrays that decide about an array by the estimate, directly or by others.
fn declared(path: &str) -> Sources {
    let array = PIPELINE_ARRAYS.iter().find(|array| array.path == path).expect("an array");
    let further = array.after.iter().map(|before| declared(before));
    further.fold(array.after.iter().copied().collect(), |all, before| &all | &before)
}

#[test]
fn estimate_has_arrays_and_dependencies_of_text() {
    for profile in PipelineProfile::ALL {
        let program = super::profiles::program(profile, &[]);
        let found = analyse(&program, profile);
        let arrays = PIPELINE_ARRAYS.iter().filter(|array| array.is_of(profile));
        assert_eq!(found.keys().copied().collect::<Sources>(), arrays.map(|array| array.path).collect());
        for (path, decides) in &found {
            let declared = declared(path);
            let missing: Vec<_> = decides.difference(&declared).collect();
            assert!(missing.is_empty(), "{}: {path} also depends on {missing:?}", profile.name());
        }
    }
}

#[test]
fn estimate_has_sizes_of_text() {
    for profile in PipelineProfile::ALL {
        let program = super::profiles::program(profile, &[]);
        for register in &program.registers {
            let array = array_at(&register.name).unwrap_or_else(|| panic!("{}", register.name));
            assert_eq!(u32::from(register.ty.width()), array.bits, "{}", register.name);
            let cells = array.cells(&MEMORY, &CLONES, profile.passes());
            assert_eq!(u64::from(register.size), cells, "{}: {}", profile.name(), register.name);
        }
        let arrays = PIPELINE_ARRAYS.iter().filter(|array| array.is_of(profile));
        let count: usize = arrays.map(|array| array.count(profile.lane_arrays())).sum();
        assert_eq!(program.registers.len(), count, "{}", profile.name());
    }
}

#[test]
fn dependency_missing_in_estimate_is_found() {
    // The lanes wait for the counter; ballots wait for the lanes.
    for (file, from, to, path, before) in [
        ("lane.p4", "touches = md.work", "touches = !md.reached && md.work", LANES, "count.counts"),
        (
            "lock.p4",
            "fresh = md.repeat_status",
            "fresh = md.opens == md.opens && md.repeat_status",
            "lock.locks",
            "round.numbers",
        ),
    ] {
        let folder = super::planted_mistakes::patched(file, from, to);
        let program = super::compiled(folder.path(), &[]).unwrap_or_else(|wrong| panic!("{wrong}"));
        let found = analyse(&program, PipelineProfile::Whole);
        assert!(found[path].contains(before) && !declared(path).contains(before), "{path}: {:?}", found[path]);
    }
}
