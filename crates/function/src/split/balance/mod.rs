//! What the split puts around a function for placement and scaling, in plain IR (CLIP §V).
//!
//! ```text
//! original ─► pre, each mirrored table's apply replaced by `lookup`:
//!               count the flow ─► report it, once a window ─► is a packet of it at a server? ─► hit, or as if missed
//!             flight: `depart`: one more is at a server ─► values of registers go with it ─► which server
//! response ─► `arrive`: one less ─► the server's values come back, when it was the last ─► post
//! ```
//!
//! **Order.** A hit counts only while no packet of its *cell* (65,536 of them, by the hash of the table's key) is at a
//! server: who follows a packet to a server can't overtake it. A cell counts requests less responses, in the
//! period in which they left; what is not back after two periods was lost, so a loss heals by itself, also while packets
//! go on coming. Two arrays take turns.
//!
//! **Registers.** A mirrored register's cell goes with the entry that names it: element's and server's copy are never both
//! in use. With the values goes a *turn*: the server counts the packets that it worked on, and each response carries its
//! values and that count. The element takes them, as its own, with the last response under way; the next packet that
//! departs carries them away again with the turn that they are of, and all that follow repeat it. The server takes
//! what comes if the turn is still its own. So neither a loss nor who came first can lose a value, or write an older one
//! over a newer. In the element the cells are those of the entries' numbers, whatever index servers gave: two servers may
//! give the same.
//!
//! **Repeats.** Each request has a number of its own, which its response repeats. The element remembers the last 16,384
//! that came back, by their low bits, and a server those that it worked on ([`crate::serve::Repeats`]): what a link repeats
//! is worked on once and leaves once. Links may let packets overtake each other, too: values come back with the newest turn
//! that was seen, whichever response is the last.
//!
//! **Servers.** A flow goes to the server of its bucket in the newest group; if its flow came while the group before was the
//! newest, in that one (two Bloom filters with the version in each place, so nothing needs to be cleared between).
//!
//! **On a pipeline.** Tables and arrays are touched in this one order, each array once for a packet; but what `lookup`
//! reads of a cell and of an entry's state, `depart` writes: whether a packet flies is known only behind the part that the
//! user wrote. Where an array can be touched once, a packet that departs goes through once more between. Counters of a cell
//! are `Update`s because processors share them: a lost addition would let a packet overtake. Elsewhere a read and a write
//! do: sketch, marks and filters may miss one of two packets that come at one time on two processors.

mod arrive;
mod depart;
mod lookup;
mod make;
mod mirror;
mod sizes;

use crate::ir::{ActionId, Block, Expr, MatchKind, Program, RegisterId, SlotId, Standard, StmtKind, TableId, Ty};
pub use make::Var;
pub(crate) use mirror::index_args;
use mirror::mirror;
pub use sizes::Sizes;

use make::{action, number, register, standard, stmt, table, var};

/// The digest that reports a flow: table, hash, keys.
pub const HEAVY: &str = "pc.heavy";
/// The number of an entry that has none: the program's own.
pub const NUMBERLESS: u32 = u32::MAX;

/// Slots that the generated parts share among them.
#[derive(Debug, Clone, PartialEq)]
pub struct Vars {
    /// Hash of the first mirrored key: the flow, in the element.
    flow: Var,
    keyed: Var,
    /// The flow's cell of the guard; goes in the header's fixed part and comes back.
    pub guard: Var,
    /// In which period a request left; travels.
    pub period: Var,
    /// Which of the element's requests it is; travels.
    pub number: Var,
    came: Var,
    /// Number of the packet's entry, plus 1; 0: none. Travels; the server says it where the element did not know.
    pub entry: Var,
    /// Bits 15..2: the turn that the values are of; bit 1, in responses: what the element has of the entry is no longer so;
    /// bit 0: values are there. Travels.
    pub turn: Var,
    /// The version of the server group that the flow goes to; travels.
    pub version: Var,
    /// Of each mirrored register: the value of the entry's cell. Travel.
    pub values: Vec<(RegisterId, Var)>,
    even: Var,
    odd: Var,
    away: Var,
    counted: Var,
    last: Var,
    now: Var,
    window: Var,
    rows: [Var; 2],
    met: Var,
    report: Var,
    threshold: Var,
    hit: Var,
    usable: Var,
    state: Var,
    gone: Var,
    handed: Var,
    force: Var,
    steered: Var,
    partition: Var,
    block: Var,
    found: Var,
    known: Var,
    stays: Var,
    groups: Var,
    server_hash: Var,
    /// The flow's bucket in its group: a server knows by it which of its flows are old. Travels.
    pub bucket: Var,
    ways: [Var; 2],
    /// The server's address, for the Ethernet header of the request.
    pub server_mac: Var,
    timestamp: Var,
    spec: Var,
}

/// Register arrays that the generated parts have, as a controller needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrays {
    flying: [RegisterId; 2],
    /// Rows of the sketch: the even windows' columns, then the odd ones'. A cell: the window's low 8 bits, a count of 24.
    pub rows: [RegisterId; 2],
    met: RegisterId,
    /// `[0]`: packets that were counted, ever; `[1]`: places of the record that were marked first in their window, ever.
    pub totals: RegisterId,
    /// `[0]`: packets in a window from which on a flow is reported; 0: never.
    pub threshold: RegisterId,
    /// Of each entry, by its number, as `turn`: of its values in the element, and bit 0: they are the element's now.
    pub state: RegisterId,
    /// Of each entry: 1 if the server has changed it since it was leased.
    pub gone: RegisterId,
    /// Of each entry: 1 if its registers' values shall be taken although packets are at a server.
    pub force: RegisterId,
    /// Of each entry: packets that it was used for, ever.
    pub used: RegisterId,
    /// `[0]`: the number of the last request.
    pub numbers: RegisterId,
    /// By a response's number: the last that came.
    came: RegisterId,
    /// `[0]`: the group before, if flows still need it, else 0 (8 bits), then the newest (8 bits).
    pub groups: RegisterId,
    filters: [[RegisterId; 2]; 2],
}

/// A mirrored table in the element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// Which; the same number as in the function.
    pub table: TableId,
    /// Entries that the element has room for.
    pub capacity: u32,
    /// Where its entries' numbers begin.
    pub first_number: u32,
    /// Numbers: twice the capacity.
    pub numbers: u32,
    /// Whether entries name cells of mirrored registers.
    pub handed: bool,
    /// For each action that entries may have.
    pub actions: Vec<Acting>,
    number: Var,
    mode: Var,
    tag: Var,
    /// The action on a miss, with its arguments, and its place in the table's list.
    default: (ActionId, Vec<u128>, u32),
}

/// An action of a mirrored table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acting {
    /// As entries of servers name it.
    pub of_server: ActionId,
    /// As entries of the element do: with two arguments more, the entry's number and its mode.
    pub of_element: ActionId,
    /// Which argument is the index of mirrored registers' cells: in the element, the entry's number.
    pub index_arg: Option<usize>,
}

/// A partition in the element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steered {
    /// Its name.
    pub name: String,
    /// Its first and last value.
    pub values: (u128, u128),
    /// Low bits that make no difference to the block.
    pub shift: u16,
}

/// The generated parts of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Balance {
    /// How large they are.
    pub sizes: Sizes,
    /// Their slots.
    pub vars: Vars,
    /// Their arrays.
    pub arrays: Arrays,
    /// The function's mirrored tables.
    pub tables: Vec<Mirrored>,
    /// Its partitions.
    pub partitions: Vec<Steered>,
    /// (version, bucket) → server.
    pub group: TableId,
    /// (partition, block) → server.
    pub owner: TableId,
    /// The action of both: port, address, whether a flow of the group before becomes one of the newest.
    pub to_server: ActionId,
}

impl Balance {
    /// Declares what the parts need, and has the mirrored tables' entries carry number and mode. Each size is cut to what
    /// the hashes have bits for.
    #[must_use]
    pub fn new(program: &mut Program, sizes: &Sizes) -> Self {
        let mut sizes = sizes.clone();
        let logs = [&mut sizes.cells_log2, &mut sizes.sketch_log2, &mut sizes.flows_log2, &mut sizes.filter_log2];
        let others = [&mut sizes.buckets_log2, &mut sizes.repeats_log2];
        logs.into_iter().chain(others).for_each(|log| *log = (*log).clamp(1, 16));
        let mirrored: Vec<RegisterId> = (0..program.registers.len())
            .filter(|at| program.registers[*at].mirrored)
            .map(|at| RegisterId(at as u32))
            .collect();
        let mut first_number = 0;
        let mut tables = Vec::new();
        for at in 0..program.tables.len() {
            if program.tables[at].mirrored {
                let made = mirror(program, TableId(at as u32), &sizes, first_number, &mirrored);
                first_number += made.numbers;
                tables.push(made);
            }
        }
        // In the element a mirrored array has a cell for each number of an entry.
        mirrored.iter().for_each(|register| program.registers[register.0 as usize].size = first_number.max(1));
        let vars = Vars::new(program, &mirrored);
        let arrays = Arrays::new(program, &sizes, first_number.max(1));
        let partition = |partition: &crate::ir::Partition| Steered {
            name: partition.name.clone(),
            values: (partition.first, partition.last),
            shift: crate::scale::block_shift(partition.first, partition.last),
        };
        let partitions: Vec<Steered> = program.partitions.iter().map(partition).collect();
        let port = var(program, "to.port", vars.spec.ty);
        let mac = var(program, "to.mac", Ty::Bit(48));
        let stays = var(program, "to.stays", Ty::Bit(1));
        let body = vec![vars.spec.set(port.get()), vars.server_mac.set(mac.get()), vars.stays.set(stays.get())];
        let to_server = action(program, "to_server", vec![port.slot, mac.slot, stays.slot], body);
        let nowhere = action(program, "nowhere", Vec::new(), Vec::new());
        let acts = (to_server, nowhere);
        // Three versions: one comes before another goes.
        let group = table(program, "group", &[vars.version, vars.bucket], acts, 3 << sizes.buckets_log2);
        let blocks = crate::scale::BLOCKS_MAX * partitions.len().max(1) as u32;
        let owner = table(program, "owner", &[vars.partition, vars.block], acts, blocks);
        Self { sizes, vars, arrays, tables, partitions, group, owner, to_server }
    }

    /// What has to be in a request beside the fixed part of its header, and comes back with the response, changed by the
    /// server where it is to be: period, number, entry, turn, version, bucket, values of registers.
    #[must_use]
    pub fn travelling(&self) -> Vec<SlotId> {
        let vars = &self.vars;
        let fixed = [vars.period, vars.number, vars.entry, vars.turn, vars.version, vars.bucket].map(|var| var.slot);
        fixed.into_iter().chain(vars.values.iter().map(|(_, var)| var.slot)).collect()
    }

    /// In place of `steer(partition, value)`: this packet's server is the owner of the value. An unknown name steers
    /// nowhere.
    #[must_use]
    pub fn steer(&self, partition: &str, value: &Expr) -> Block {
        let Some(index) = self.partitions.iter().position(|steered| steered.name == partition) else {
            return Vec::new();
        };
        let (vars, shift) = (&self.vars, self.partitions[index].shift);
        let width = value.ty.width();
        let block = if shift < width { make::bits(value.clone(), width - 1, shift) } else { number(16, 0) };
        vec![
            vars.steered.set(make::truth(true)),
            vars.partition.set(number(8, index as u128)),
            vars.block.set(make::cast(16, block)),
        ]
    }
}

impl Vars {
    fn new(program: &mut Program, mirrored: &[RegisterId]) -> Self {
        let values = (mirrored.iter().enumerate()).map(|(at, register)| {
            let ty = program.registers[register.0 as usize].ty;
            (*register, var(program, &format!("value{at}"), ty))
        });
        let values = values.collect();
        let mut bits = |name: &str, width| var(program, name, Ty::Bit(width));
        Self {
            values,
            flow: bits("flow", 32),
            guard: bits("guard", 16),
            period: bits("period", 16),
            number: bits("number", 32),
            came: bits("came_now", 32),
            entry: bits("entry", 32),
            turn: bits("turn", 16),
            version: bits("version", 8),
            even: bits("even", 32),
            odd: bits("odd", 32),
            now: bits("now", 16),
            window: bits("window", 16),
            rows: [bits("row0", 32), bits("row1", 32)],
            met: bits("met", 16),
            threshold: bits("threshold_now", 32),
            state: bits("state_now", 16),
            gone: bits("gone_now", 1),
            force: bits("force_now", 1),
            partition: bits("partition", 8),
            block: bits("block", 16),
            groups: bits("groups_now", 16),
            server_hash: bits("server_hash", 32),
            bucket: bits("bucket", 16),
            ways: [bits("way0", 8), bits("way1", 8)],
            server_mac: bits("server_mac", 48),
            keyed: var(program, "keyed", Ty::Bool),
            away: var(program, "away", Ty::Bool),
            counted: var(program, "counted", Ty::Bool),
            last: var(program, "last", Ty::Bool),
            report: var(program, "report", Ty::Bool),
            hit: var(program, "hit", Ty::Bool),
            usable: var(program, "usable", Ty::Bool),
            handed: var(program, "handed", Ty::Bool),
            steered: var(program, "steered", Ty::Bool),
            found: var(program, "found", Ty::Bool),
            known: var(program, "known", Ty::Bool),
            stays: var(program, "stays", Ty::Bit(1)),
            timestamp: standard(program, Standard::IngressTimestamp, "ingress_global_timestamp", 48),
            spec: standard(program, Standard::EgressSpec, "egress_spec", 9),
        }
    }
}

impl Arrays {
    fn new(program: &mut Program, sizes: &Sizes, numbers: u32) -> Self {
        let mut array = |name: &str, width, size| register(program, name, width, size);
        let (cells, columns) = (1 << sizes.cells_log2, 2 << sizes.sketch_log2);
        let filter = 1 << sizes.filter_log2;
        Self {
            flying: [array("flying0", 32, cells), array("flying1", 32, cells)],
            rows: [array("sketch0", 32, columns), array("sketch1", 32, columns)],
            met: array("met", 16, 1 << sizes.flows_log2),
            totals: array("totals", 32, 2),
            threshold: array("threshold", 32, 1),
            state: array("state", 16, numbers),
            gone: array("gone", 1, numbers),
            force: array("force", 1, numbers),
            used: array("used", 32, numbers),
            numbers: array("numbers", 32, 1),
            came: array("came", 32, 1 << sizes.repeats_log2),
            groups: array("groups", 16, 1),
            filters: [
                [array("filter0a", 8, filter), array("filter0b", 8, filter)],
                [array("filter1a", 8, filter), array("filter1b", 8, filter)],
            ],
        }
    }
}

/// Widths and kinds of a table's keys.
#[must_use]
pub fn key_shape(program: &Program, table: TableId) -> Vec<(u16, MatchKind)> {
    program.tables[table.0 as usize].keys.iter().map(|key| (key.expr.ty.width(), key.kind)).collect()
}

/// `to = crc32(inputs)`, all 32 bits of it.
fn hash(to: Var, inputs: Vec<Expr>) -> crate::ir::Stmt {
    let algorithm = crate::ir::HashAlgorithm::Crc32;
    stmt(StmtKind::Hash { to: to.slot, algorithm, base: number(32, 0), inputs, max: number(64, 1 << 32) })
}
