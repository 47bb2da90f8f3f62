//! A response has come: one packet less is away, and the server's values of the entry's registers come back with the last.

use super::make::{and, bit, bits, cast, eq, join, minus, ne, not, number, or, read, update, when, write};
use super::{Balance, Var};
use crate::ir::{Binary, Block, Stmt};

impl Balance {
    /// In front of the part behind, when guard, period, entry, turn and values are what the response says. Only of
    /// responses that came from a server.
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
    /// is still under way.
    fn take_back(&self) -> Block {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let index = || minus(vars.entry.get(), 1);
        let gone = write(arrays.gone, index(), number(1, 1));
        let mut otherwise = Vec::new();
        if !vars.values.is_empty() {
            let last = and(vars.counted.get(), not(vars.away.get()));
            let forced = eq(vars.force.get(), number(1, 1));
            let take = and(bit(vars.turn.get(), 0), or(last, forced));
            let state = join(bits(vars.turn.get(), 15, 2), number(2, 1));
            let mut home: Block =
                vars.values.iter().map(|(register, value)| write(*register, index(), value.get())).collect();
            home.push(write(arrays.state, index(), state));
            otherwise = vec![read(arrays.force, index(), vars.force), when(take, home, Vec::new())];
        }
        vec![when(bit(vars.turn.get(), 1), vec![gone], otherwise)]
    }
}
