//! A packet goes to a server: one more is away, the values of its entry's registers go with it, and where it goes.

use pathcall_wire::{Mutant, mutant};

use super::make::{
    and, bit, bits, cast, choose, eq, join, minus, ne, not, number, read, stmt, truth, update, when, write,
};
use super::{Balance, hash};
use crate::ir::{Binary, Block, DROP_PORT, Expr, Stmt, StmtKind};

impl Balance {
    /// When the part before has said that the packet goes to the handler. `flow`: what names its flow to servers; empty:
    /// the first mirrored key, or `parameters`, those of the request, where no mirrored table was asked.
    ///
    /// Afterwards the port is the server's and `vars.server_mac` its address; without a server the packet is dropped.
    #[must_use]
    pub fn depart(&self, flow: &[Expr], parameters: &[Expr]) -> Block {
        let vars = &self.vars;
        let mut unkeyed = vec![hash(vars.flow, if flow.is_empty() { parameters.to_vec() } else { flow.to_vec() })];
        unkeyed.extend(self.guard());
        let mut block = vec![when(not(vars.keyed.get()), unkeyed, Vec::new())];
        if !mutant::on(Mutant::HeldUncounted) {
            block.push(self.add());
        }
        block.push(update(self.arrays.numbers, number(32, 0), Binary::Add, number(32, 1), Some(vars.number)));
        block.extend(self.hand_over());
        block.push(match flow {
            [] => vars.server_hash.set(vars.flow.get()),
            flow => hash(vars.server_hash, flow.to_vec()),
        });
        block.extend(self.server());
        block
    }

    /// One more packet of the cell is at a server.
    fn add(&self) -> Stmt {
        let vars = &self.vars;
        let one = |array, cell: super::Var| {
            let index = || cast(32, vars.guard.get());
            let counts = eq(bits(cell.get(), 31, 16), vars.period.get());
            let more = update(array, index(), Binary::Add, number(32, 1), None);
            // What is left of two periods ago was lost.
            let anew = write(array, index(), join(vars.period.get(), number(16, 1)));
            vec![when(counts, vec![more], vec![anew])]
        };
        let [even, odd] = self.arrays.flying;
        when(bit(vars.period.get(), 0), one(odd, vars.odd), one(even, vars.even))
    }

    /// The element's registers of the entry go with the packet, and are not used any more; packets behind it say the same
    /// again. In `turn` is the entry's state, as `lookup` saw it.
    fn hand_over(&self) -> Block {
        let vars = &self.vars;
        let nothing = || vec![vars.turn.set(number(16, 0))];
        if vars.values.is_empty() {
            return nothing();
        }
        let index = || minus(vars.entry.get(), 1);
        let turn = || bits(vars.turn.get(), 15, 2);
        let away = write(self.arrays.state, index(), join(turn(), number(2, 0)));
        let mut carry: Block = vec![when(bit(vars.turn.get(), 0), vec![away], Vec::new())];
        carry.extend(vars.values.iter().map(|(register, value)| read(*register, index(), *value)));
        carry.push(vars.turn.set(join(turn(), number(2, 1))));
        // Turn 0: the element never had them.
        let known = and(vars.handed.get(), ne(turn(), number(14, 0)));
        vec![when(known, carry, nothing())]
    }

    /// Which server: the owner of a value, or that of the flow's bucket in its group (§V-B).
    fn server(&self) -> Block {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let apply = |table| stmt(StmtKind::Apply { table, hit: Some(vars.found.slot), action: None });
        let mut block = vec![read(arrays.groups, number(32, 0), vars.groups)];
        let newest = || bits(vars.groups.get(), 7, 0);
        let bucket = bits(vars.server_hash.get(), self.sizes.buckets_log2 - 1, 0);
        let mut by_flow = vec![vars.version.set(newest())];
        by_flow.extend(self.remembered());
        by_flow.extend([vars.bucket.set(cast(16, bucket)), apply(self.group)]);
        if !mutant::on(Mutant::HeldUnremembered) {
            by_flow.push(self.note());
        }
        if self.partitions.is_empty() {
            block.extend(by_flow);
        } else {
            // Who is steered is not remembered: of no version, for servers.
            block.extend([vars.found.set(truth(false)), vars.version.set(number(8, 0))]);
            block.push(when(vars.steered.get(), vec![apply(self.owner)], Vec::new()));
            block.push(when(not(vars.found.get()), by_flow, Vec::new()));
        }
        let width = vars.spec.ty.width();
        block.push(when(not(vars.found.get()), vec![vars.spec.set(number(width, DROP_PORT))], Vec::new()));
        block
    }

    /// The two filters take turns: a flow that came with the version before is of that one.
    fn remembered(&self) -> Block {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let old = || bits(vars.groups.get(), 15, 8);
        let look = |filter: usize| -> Block {
            (0..2).map(|way| read(arrays.filters[filter][way], self.place(way), vars.ways[way])).collect()
        };
        let there = |way: usize| eq(vars.ways[way].get(), old());
        vec![
            when(bit(vars.groups.get(), 0), look(0), look(1)),
            vars.known.set(and(ne(old(), number(8, 0)), and(there(0), there(1)))),
            vars.version.set(choose(vars.known.get(), old(), vars.version.get())),
        ]
    }

    /// All flows of the newest version are put into its filter, also those of the one before whose server is the same in
    /// both. Others are not: else they would seem to be of the newest group when it is the older one.
    fn note(&self) -> Stmt {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let newest = || bits(vars.groups.get(), 7, 0);
        let note = |filter: usize| -> Block {
            (0..2).map(|way| write(arrays.filters[filter][way], self.place(way), newest())).collect()
        };
        let moves = and(vars.known.get(), eq(vars.stays.get(), number(1, 0)));
        let stays = vec![when(bit(vars.groups.get(), 0), note(1), note(0)), vars.version.set(newest())];
        when(moves, Vec::new(), stays)
    }

    /// A flow's place in one way of a filter.
    fn place(&self, way: usize) -> Expr {
        let from = 16 * way as u16;
        cast(32, bits(self.vars.server_hash.get(), from + self.sizes.filter_log2 - 1, from))
    }
}
