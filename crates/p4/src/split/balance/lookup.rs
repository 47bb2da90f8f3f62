//! Code that replaces the apply of a mirrored table: counts the flow, and accepts a hit only if no packet of the cell
//! is at a server.

use pathcall_wire::{Mutant, mutant};

use super::constructors::{
    and, bit, bits, cast, choose, eq, join, minus, ne, not, number, or, plus, read, stmt, truth, update, when, write,
};
use super::{BalanceObjects, ElementTable, HEAVY, Var, hash};
use crate::ir::{ActionId, Binary, Block, Expr, Program, SlotId, Stmt, StmtKind, TableId};

impl BalanceObjects {
    /// Replacement of `Apply { table, hit, action }`; `None` if the table is not mirrored.
    #[must_use]
    pub fn lookup(
        &self,
        program: &Program,
        table: TableId,
        hit: Option<SlotId>,
        action: Option<SlotId>,
    ) -> Option<Block> {
        let mirrored = self.tables.iter().find(|mirrored| mirrored.table == table)?;
        let keys: Vec<Expr> = program.tables[table.0 as usize].keys.iter().map(|key| key.expr.clone()).collect();
        let vars = &self.vars;
        // The first mirrored table that a packet meets determines its flow.
        let mut first = vec![vars.is_hashed.set(truth(true)), hash(vars.flow, keys.clone())];
        first.extend(self.check_guard());
        first.extend(self.count_flow());
        let mut block = vec![when(not(vars.is_hashed.get()), first, Vec::new())];
        block.push(stmt(StmtKind::Apply { table, hit: Some(vars.hit.slot), action: None }));
        block.push(vars.usable.set(truth(false)));
        block.push(when(vars.hit.get(), self.accept_hit(mirrored), Vec::new()));
        // The digest's values are saved first: actions may change the slots of the keys. Flows that the element handles
        // are not reported.
        let values = [number(16, table.0.into()), vars.flow.get()].into_iter().chain(keys).collect();
        let digest = stmt(StmtKind::Digest { name: HEAVY.to_owned(), values });
        block.push(when(and(vars.report.get(), not(vars.usable.get())), vec![digest], Vec::new()));
        block.push(self.run_action(program, mirrored, action));
        block.extend(hit.map(|hit| stmt(StmtKind::Assign { to: hit, value: vars.usable.get() })));
        Some(block)
    }

    /// Determines whether a packet of this cell is at a server.
    pub(super) fn check_guard(&self) -> Block {
        let vars = &self.vars;
        // Hash bits that the sketch's first row does not use.
        let cell = bits(vars.flow.get(), 15 + self.sizes.cells_log2, 16);
        let mut block = vec![vars.guard.set(cast(16, cell)), vars.period.set(self.current_period())];
        block.extend(self.read_cell());
        block.push(vars.outstanding.set(self.is_busy(vars.period)));
        block
    }

    /// Current period of the guard.
    pub(super) fn current_period(&self) -> Expr {
        let low = self.sizes.period_log2.min(32);
        bits(self.vars.timestamp.get(), low + 15, low)
    }

    pub(super) fn read_cell(&self) -> [Stmt; 2] {
        let (vars, [even, odd]) = (&self.vars, self.arrays.outstanding_counts);
        let cell = || cast(32, vars.guard.get());
        [read(even, cell(), vars.even), read(odd, cell(), vars.odd)]
    }

    /// True if the count of the current or previous period is not 0.
    pub(super) fn is_busy(&self, now: Var) -> Expr {
        let busy = |cell: Var| {
            let stamp = || bits(cell.get(), 31, 16);
            let fresh = or(eq(stamp(), now.get()), eq(stamp(), minus(now.get(), 1)));
            and(ne(bits(cell.get(), 15, 0), number(16, 0)), fresh)
        };
        or(busy(self.vars.even), busy(self.vars.odd))
    }

    /// Counts the flow: a sketch of two rows with a window number in each cell, the record of the window's flows, and
    /// the totals (§V-A).
    fn count_flow(&self) -> Block {
        let (vars, arrays, sizes) = (&self.vars, &self.arrays, &self.sizes);
        let low = sizes.window_log2.min(32);
        let mut block = vec![vars.window.set(bits(vars.timestamp.get(), low + 15, low))];
        let window = |high| bits(vars.window.get(), high, 0);
        for (row, var) in vars.rows.into_iter().enumerate() {
            let from = 16 * row as u16;
            let column = bits(vars.flow.get(), from + sizes.sketch_log2 - 1, from);
            // Even and odd windows have separate columns, which stay unchanged until the controller has read them.
            let cell = || cast(32, join(window(0), column.clone()));
            let same = eq(bits(var.get(), 31, 24), window(7));
            let full = eq(bits(var.get(), 23, 0), number(24, 0xff_ffff));
            let more = choose(full, var.get(), plus(var.get(), 1));
            block.push(read(arrays.rows[row], cell(), var));
            block.push(var.set(choose(same, more, join(window(7), number(24, 1)))));
            block.push(write(arrays.rows[row], cell(), var.get()));
        }
        let [one, other] = vars.rows.map(|row| cast(32, bits(row.get(), 23, 0)));
        let smaller = super::constructors::op(Binary::Lt, one.clone(), other.clone());
        let least = choose(smaller, one, other);
        let enough = super::constructors::op(Binary::Ge, least, vars.threshold.get());
        block.push(read(arrays.threshold, number(32, 0), vars.threshold));
        // Record cell: window number (15 bits) and a flag for a reported flow. Odd windows use other bits of the hash,
        // so that two flows that collide in one window do not collide in the next.
        let place = |from: u16| cast(32, bits(vars.flow.get(), from + sizes.flows_log2 - 1, from));
        let place = || choose(bit(vars.window.get(), 0), place(16), place(0));
        let fresh = || ne(bits(vars.flow_record.get(), 15, 1), window(14));
        block.push(read(arrays.flow_record, place(), vars.flow_record));
        let reported = and(not(fresh()), bit(vars.flow_record.get(), 0));
        let asked = and(ne(vars.threshold.get(), number(32, 0)), enough);
        block.push(vars.report.set(and(asked, not(reported.clone()))));
        let add = |cell| update(arrays.totals, number(32, cell), Binary::Add, number(32, 1), None);
        block.push(add(0));
        let first = when(fresh(), vec![add(1)], Vec::new());
        block.push(first);
        let mark = choose(or(vars.report.get(), reported), number(1, 1), number(1, 0));
        block.push(write(arrays.flow_record, place(), join(window(14), mark)));
        block
    }

    /// Decides whether a hit is used.
    fn accept_hit(&self, mirrored: &ElementTable) -> Block {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let entry = || mirrored.number.get();
        let forced = eq(mirrored.mode.get(), number(2, 2));
        let away = if mutant::on(Mutant::FunctionOvertakes) { truth(false) } else { vars.outstanding.get() };
        let active = and(eq(mirrored.mode.get(), number(2, 1)), not(away));
        let mut usable = and(or(forced, active), eq(vars.gone.get(), number(1, 0)));
        let mut block = vec![read(arrays.gone, entry(), vars.gone)];
        let mut first = vec![vars.entry.set(plus(entry(), 1)), vars.handed.set(truth(mirrored.handed))];
        if mirrored.handed {
            block.push(read(arrays.state, entry(), vars.state));
            usable = and(usable, bit(vars.state.get(), 0));
            first.push(vars.turn.set(vars.state.get()));
        }
        block.push(vars.usable.set(usable));
        block.push(when(eq(vars.entry.get(), number(32, 0)), first, Vec::new()));
        block.push(when(
            vars.usable.get(),
            vec![update(arrays.used, entry(), Binary::Add, number(32, 1), None)],
            Vec::new(),
        ));
        block
    }

    /// Body of the action found, or of the default action.
    fn run_action(&self, program: &Program, mirrored: &ElementTable, action: Option<SlotId>) -> Stmt {
        let body = |id: ActionId, at: u32| {
            let set_action = action.map(|slot| stmt(StmtKind::Assign { to: slot, value: number(32, at.into()) }));
            let body = stmt(StmtKind::Body(program.actions[id.0 as usize].body.clone()));
            set_action.into_iter().chain([body]).collect::<Block>()
        };
        let mut found = Vec::new();
        for (at, acting) in mirrored.actions.iter().enumerate().rev() {
            let then = body(acting.of_server, at as u32);
            let more = std::mem::take(&mut found);
            // The last action needs no condition.
            found = if at + 1 == mirrored.actions.len() {
                then
            } else {
                vec![when(eq(mirrored.tag.get(), number(8, at as u128)), then, more)]
            };
        }
        let (id, args, at) = &mirrored.default;
        let params = program.actions[id.0 as usize].params.iter().zip(args);
        let mut missed: Block = params
            .map(|(to, value)| {
                let value = Expr::constant(program.slots[to.0 as usize].ty, *value);
                stmt(StmtKind::Assign { to: *to, value })
            })
            .collect();
        missed.extend(body(*id, *at));
        when(self.vars.usable.get(), found, missed)
    }
}
