//! Code for an arriving response: decrements the count of outstanding packets, and takes back the registers of the
//! entry with the last response.

use pathcall_wire::{Mutant, mutant};

use super::constructors::{
    and, bit, bits, cast, choose, eq, join, minus, ne, not, number, op, or, read, truth, update, when, write,
};
use super::{BalanceObjects, Var};
use crate::ir::{Binary, Block, Expr, Stmt};

impl BalanceObjects {
    /// Detection of a repeated response by its number, when a link duplicated the response or its request. Returns the
    /// statements to run first, and the condition.
    #[must_use]
    pub fn detect_repeat(&self) -> (Block, Expr) {
        let vars = &self.vars;
        if mutant::on(Mutant::FunctionRepeatsTaken) {
            return (Vec::new(), truth(false));
        }
        let place = || cast(32, bits(vars.number.get(), self.sizes.repeats_log2 - 1, 0));
        let look = read(self.arrays.last_response, place(), vars.last_response);
        // Number 0 is the array's initial value; no request has it.
        let same = and(eq(vars.last_response.get(), vars.number.get()), ne(vars.number.get(), number(32, 0)));
        (vec![look, write(self.arrays.last_response, place(), vars.number.get())], same)
    }

    /// Code before the part after the call, when guard, period, entry, turn and values hold those of the response. Only
    /// for responses that came from a server and are not repeated.
    #[must_use]
    pub fn arrive(&self) -> Block {
        let vars = &self.vars;
        let mut block: Block = self.read_cell().into();
        block.push(self.decrement_outstanding());
        block.push(vars.now.set(self.current_period()));
        block.push(vars.outstanding.set(self.is_busy(vars.now)));
        let known = ne(vars.entry.get(), number(32, 0));
        block.push(when(known, self.take_back_registers(), Vec::new()));
        block
    }

    /// Decrements the count, if the period is still counted: packets older than two periods are not.
    fn decrement_outstanding(&self) -> Stmt {
        let vars = &self.vars;
        let one = |array, cell: Var| {
            let same = eq(bits(cell.get(), 31, 16), vars.period.get());
            let counted = vars.is_counted.set(and(same, ne(bits(cell.get(), 15, 0), number(16, 0))));
            let less = update(array, cast(32, vars.guard.get()), Binary::Sub, number(32, 1), Some(cell));
            vec![counted, when(vars.is_counted.get(), vec![less], Vec::new())]
        };
        let [even, odd] = self.arrays.outstanding_counts;
        when(bit(vars.period.get(), 0), one(odd, vars.odd), one(even, vars.even))
    }

    /// Stops using an entry that the server invalidated; or takes back its registers, if no packet of the cell is
    /// outstanding. Values of a newer turn are stored before that, because responses can be reordered and the last need
    /// not be the newest.
    fn take_back_registers(&self) -> Block {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let index = || minus(vars.entry.get(), 1);
        let gone = write(arrays.gone, index(), number(1, 1));
        let mut otherwise = Vec::new();
        if !vars.values.is_empty() {
            let turn = |of: Var| bits(of.get(), 15, 2);
            let forced = || eq(vars.force.get(), number(1, 1));
            let last = or(and(vars.is_counted.get(), not(vars.outstanding.get())), forced());
            // A response older than two periods was assumed lost, and the element may have changed the values since.
            let heard = and(bit(vars.turn.get(), 0), or(vars.is_counted.get(), forced()));
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
