//! A response has come: one packet less is away, and the server's values of the entry's registers come back with the last.

use pathcall_wire::{Mutant, mutant};

use super::make::{
    and, bit, bits, cast, choose, eq, join, minus, ne, not, number, op, or, read, truth, update, when, write,
};
use super::{Balance, Var};
use crate::ir::{Binary, Block, Expr, Stmt};

impl Balance {
    /// Whether the response came before, by its number: such a one ends, as a link has repeated it or the request. The
    /// statements come before that question.
    #[must_use]
    pub fn repeated(&self) -> (Block, Expr) {
        let vars = &self.vars;
        if mutant::on(Mutant::FunctionRepeatsTaken) {
            return (Vec::new(), truth(false));
        }
        let place = || cast(32, bits(vars.number.get(), self.sizes.repeats_log2 - 1, 0));
        let look = read(self.arrays.came, place(), vars.came);
        // No request has the number 0, which is in the array at first.
        let same = and(eq(vars.came.get(), vars.number.get()), ne(vars.number.get(), number(32, 0)));
        (vec![look, write(self.arrays.came, place(), vars.number.get())], same)
    }

    /// In front of the part behind, when guard, period, entry, turn and values are what the response says. Only of
    /// responses that came from a server, and that no other has repeated.
    #[must_use]
    pub fn arrive(&self) -> Block {
        let vars = &self.vars;
        let mut block: Block = self.read_cell().into();
        block.push(self.less());
        block.push(vars.now.set(self.period()));
        block.push(vars.away.set(self.busy(vars.now)));
        let known = ne(vars.entry.get(), number(32, 0));
        block.push(when(known, self.take_back(), Vec::new()));
        block
    }

    /// One less is away, if it is counted: what comes after two periods is not any more.
    fn less(&self) -> Stmt {
        let vars = &self.vars;
        let one = |array, cell: Var| {
            let same = eq(bits(cell.get(), 31, 16), vars.period.get());
            let counted = vars.counted.set(and(same, ne(bits(cell.get(), 15, 0), number(16, 0))));
            let less = update(array, cast(32, vars.guard.get()), Binary::Sub, number(32, 1), Some(cell));
            vec![counted, when(vars.counted.get(), vec![less], Vec::new())]
        };
        let [even, odd] = self.arrays.flying;
        when(bit(vars.period.get(), 0), one(odd, vars.odd), one(even, vars.even))
    }

    /// The element stops using an entry that is no longer so; or has its registers again, if none of the cell's packets
    /// is still under way. Values of a newer turn are kept before that: of responses that overtook each other the last need
    /// not be the newest.
    fn take_back(&self) -> Block {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let index = || minus(vars.entry.get(), 1);
        let gone = write(arrays.gone, index(), number(1, 1));
        let mut otherwise = Vec::new();
        if !vars.values.is_empty() {
            let turn = |of: Var| bits(of.get(), 15, 2);
            let forced = || eq(vars.force.get(), number(1, 1));
            let last = or(and(vars.counted.get(), not(vars.away.get())), forced());
            // What comes after two periods was given up for lost: the element may have gone on without it.
            let heard = and(bit(vars.turn.get(), 0), or(vars.counted.get(), forced()));
            let ahead = op(Binary::Sub, turn(vars.turn), turn(vars.state));
            let ahead = and(ne(ahead.clone(), number(14, 0)), not(bit(ahead, 13)));
            let newer = or(ahead, eq(turn(vars.state), number(14, 0)));
            let newer = if mutant::on(Mutant::FunctionLastNewest) { last.clone() } else { newer };
            let home = || choose(vars.last.get(), number(2, 1), number(2, 0));
            let mut keep: Block =
                vars.values.iter().map(|(register, value)| write(*register, index(), value.get())).collect();
            keep.push(write(arrays.state, index(), join(turn(vars.turn), home())));
            let back = write(arrays.state, index(), join(turn(vars.state), number(2, 1)));
            otherwise = vec![
                read(arrays.force, index(), vars.force),
                read(arrays.state, index(), vars.state),
                vars.last.set(last),
                when(heard, vec![when(newer, keep, vec![when(vars.last.get(), vec![back], Vec::new())])], Vec::new()),
            ];
        }
        vec![when(bit(vars.turn.get(), 1), vec![gone], otherwise)]
    }
}
