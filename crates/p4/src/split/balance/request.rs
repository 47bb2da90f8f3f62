//! Code for a packet that departs to a server: increments the count of outstanding packets, hands over the registers of
//! its entry, and selects the server.

use pathcall_wire::{Mutant, mutant};

use super::constructors::{
    and, bit, bits, cast, choose, eq, join, minus, ne, not, number, read, stmt, truth, update, when, write,
};
use super::{BalanceObjects, hash};
use crate::ir::{Binary, Block, DROP_PORT, Expr, Stmt, StmtKind};

impl BalanceObjects {
    /// Code to run when the part before the call has sent the packet to the handler. `flow` identifies the flow to
    /// servers; if it is empty, the first mirrored key does, or `parameters`, those of the request, if no mirrored
    /// table was applied.
    ///
    /// Afterwards the egress port is the server's and `vars.server_mac` its address; without a server the packet is
    /// dropped.
    #[must_use]
    pub fn depart(&self, flow: &[Expr], parameters: &[Expr]) -> Block {
        let vars = &self.vars;
        let mut unkeyed = vec![hash(vars.flow, if flow.is_empty() { parameters.to_vec() } else { flow.to_vec() })];
        unkeyed.extend(self.check_guard());
        let mut block = vec![when(not(vars.is_hashed.get()), unkeyed, Vec::new())];
        if !mutant::on(Mutant::HeldUncounted) {
            block.push(self.increment_outstanding());
        }
        block.push(update(self.arrays.numbers, number(32, 0), Binary::Add, number(32, 1), Some(vars.number)));
        block.extend(self.hand_over_registers());
        block.push(match flow {
            [] => vars.server_hash.set(vars.flow.get()),
            flow => hash(vars.server_hash, flow.to_vec()),
        });
        block.extend(self.select_server());
        block
    }

    /// Increments the cell's count of packets at servers.
    fn increment_outstanding(&self) -> Stmt {
        let vars = &self.vars;
        let one = |array, cell: super::Var| {
            let index = || cast(32, vars.guard.get());
            let counts = eq(bits(cell.get(), 31, 16), vars.period.get());
            let more = update(array, index(), Binary::Add, number(32, 1), None);
            // A count from two periods ago belongs to lost packets.
            let anew = write(array, index(), join(vars.period.get(), number(16, 1)));
            vec![when(counts, vec![more], vec![anew])]
        };
        let [even, odd] = self.arrays.outstanding_counts;
        when(bit(vars.period.get(), 0), one(odd, vars.odd), one(even, vars.even))
    }

    /// Hands over the registers of the entry with the packet, and stops using them; later packets repeat the values.
    /// `turn` holds the entry's state, as `lookup` read it.
    fn hand_over_registers(&self) -> Block {
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
        // Turn 0: the element never had the values.
        let known = and(vars.handed.get(), ne(turn(), number(14, 0)));
        vec![when(known, carry, nothing())]
    }

    /// Selects the server: the owner of a partition value, or the server of the flow's bucket in its group (§V-B).
    fn select_server(&self) -> Block {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let apply = |table| stmt(StmtKind::Apply { table, hit: Some(vars.found.slot), action: None });
        let mut block = vec![read(arrays.groups, number(32, 0), vars.groups)];
        let newest = || bits(vars.groups.get(), 7, 0);
        let bucket = bits(vars.server_hash.get(), self.sizes.buckets_log2 - 1, 0);
        let mut by_flow = vec![vars.version.set(newest())];
        by_flow.extend(self.flow_version());
        by_flow.extend([vars.bucket.set(cast(16, bucket)), apply(self.group)]);
        if !mutant::on(Mutant::HeldUnremembered) {
            by_flow.push(self.record_flow());
        }
        if self.partitions.is_empty() {
            block.extend(by_flow);
        } else {
            // A steered packet is not recorded in the filters: version 0 for servers.
            block.extend([vars.found.set(truth(false)), vars.version.set(number(8, 0))]);
            block.push(when(vars.steered.get(), vec![apply(self.owner)], Vec::new()));
            block.push(when(not(vars.found.get()), by_flow, Vec::new()));
        }
        let width = vars.spec.ty.width();
        block.push(when(not(vars.found.get()), vec![vars.spec.set(number(width, DROP_PORT))], Vec::new()));
        block
    }

    /// Group version of a flow, from the two filters: a flow that began in the previous version stays in that version.
    fn flow_version(&self) -> Block {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let old = || bits(vars.groups.get(), 15, 8);
        let look = |filter: usize| -> Block {
            (0..2).map(|way| read(arrays.filters[filter][way], self.filter_index(way), vars.ways[way])).collect()
        };
        let there = |way: usize| eq(vars.ways[way].get(), old());
        vec![
            when(bit(vars.groups.get(), 0), look(0), look(1)),
            vars.in_previous_group.set(and(ne(old(), number(8, 0)), and(there(0), there(1)))),
            vars.version.set(choose(vars.in_previous_group.get(), old(), vars.version.get())),
        ]
    }

    /// Adds flows of the newest version to its filter, and those of the previous version whose server is the same in
    /// both. Other flows are not added, since the filter would then assign them to the newest version.
    fn record_flow(&self) -> Stmt {
        let (vars, arrays) = (&self.vars, &self.arrays);
        let newest = || bits(vars.groups.get(), 7, 0);
        let note = |filter: usize| -> Block {
            (0..2).map(|way| write(arrays.filters[filter][way], self.filter_index(way), newest())).collect()
        };
        let moves = and(vars.in_previous_group.get(), eq(vars.joins_newest.get(), number(1, 0)));
        let stays = vec![when(bit(vars.groups.get(), 0), note(1), note(0)), vars.version.set(newest())];
        when(moves, Vec::new(), stays)
    }

    /// Index of a flow in one way of a filter.
    fn filter_index(&self, way: usize) -> Expr {
        let from = 16 * way as u16;
        cast(32, bits(self.vars.server_hash.get(), from + self.sizes.filter_log2 - 1, from))
    }
}
