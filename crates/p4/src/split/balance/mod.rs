//! Generated code for placement and scaling around a function, in plain IR (CLIP §V).
//!
//! ```text
//! original ─► part before the call, with each mirrored table's apply replaced by `lookup`:
//!               count the flow ─► report it once per window ─► packet of it at a server? ─► use the hit, or miss
//!             flight: `depart`: increment outstanding ─► hand over registers ─► select the server
//! response ─► `arrive`: decrement outstanding ─► take the registers back with the last one ─► part after the call
//! ```
//!
//! **Order.** Packets of a flow map to a *cell* (65,536 of them, by the hash of the table's key). A hit is used only
//! while no packet of the cell is at a server, so no packet can overtake an earlier one that went to a server. A cell
//! counts requests minus responses per period of departure. A packet that is not back after two periods is assumed
//! lost, so the count recovers from losses under continuous traffic. Two arrays are used in alternation.
//!
//! **Registers.** The cell of a mirrored register moves with the entry that names it: the copies of element and server
//! are never in use at the same time. The values have a version, the *turn*. The server counts the packets that it
//! handled, and each response carries its values and that count. The element takes the values over with the last
//! outstanding response. The next packet that departs carries them, with their turn, and all later packets repeat them.
//! The server accepts the values if the turn is still its own. Therefore neither loss nor reordering can lose a value,
//! or overwrite a newer value with an older one. In the element, cells are indexed by the number of the entry rather
//! than by the server's index, since two servers may use the same index.
//!
//! **Repeats.** Each request has a unique number, which its response repeats. The element records the last 16,384
//! response numbers, by their low bits, and a server the request numbers (`RequestRepeatFilter` of `pathcall-netfn`), so
//! that a duplicated frame is handled once and leaves once. Links may also reorder packets: the element stores the
//! values of the newest turn, whichever response comes last.
//!
//! **Servers.** A flow goes to the server of its bucket in the newest group. A flow that began while the previous group
//! was the newest stays with that group. Two Bloom filters record the flows; each cell holds a version, so the filters
//! need no clearing.
//!
//! **Pipelines.** Tables and arrays are accessed in this order, and each array once per packet. There is one exception:
//! `depart` writes the cell and the entry state that `lookup` reads, because the user's code in between decides whether
//! the packet departs. On a target with one access per array, a departing packet makes a second pass in between.
//! Counters of a cell are `Update`s, since processors share them and a lost addition would allow reordering. Elsewhere
//! a read and a write suffice: sketch, marks and filters may miss one of two packets that arrive on two processors at
//! the same time.

mod constructors;
mod lookup;
mod mirror;
mod request;
mod response;
mod sizes;

use crate::ir::{ActionId, Block, Expr, MatchKind, Program, RegisterId, SlotId, StandardField, StmtKind, TableId, Ty};
pub use constructors::Var;
pub use mirror::index_args;
use mirror::mirror;
pub use sizes::Sizes;

use constructors::{action, number, register, standard, stmt, table, var};

/// Digest that reports a flow: table, hash, keys.
pub const HEAVY: &str = "pc.heavy";
/// Number for entries without one: those declared in the program.
pub const NUMBERLESS: u32 = u32::MAX;

/// Most blocks of a partition: the capacity of the table of their owners.
pub const BLOCKS_MAX: u32 = 64;

/// Number of low bits of a value to ignore so that the values `first..=last` have at most [`BLOCKS_MAX`] blocks.
#[must_use]
pub fn block_shift(first: u128, last: u128) -> u16 {
    (0..128).find(|shift| (last >> shift) - (first >> shift) < u128::from(BLOCKS_MAX)).unwrap_or(127)
}

/// Slots of the generated code.
#[derive(Debug, Clone, PartialEq)]
pub struct BalanceSlots {
    /// Hash of the first mirrored key, the flow's identity in the element.
    flow: Var,
    is_hashed: Var,
    /// Cell of the order guard; carried in the header's fixed part and returned.
    pub guard: Var,
    /// Period in which the request departed; travels.
    pub period: Var,
    /// Number of the request; travels.
    pub number: Var,
    last_response: Var,
    /// Number of the packet's entry plus 1, or 0 for none; travels. The server sets it if the element had no entry.
    pub entry: Var,
    /// Entry state; travels. Bits 15..2: turn of the values. Bit 1, in responses: the element's entry is out of date.
    /// Bit 0: values are present.
    pub turn: Var,
    /// Version of the flow's server group; travels.
    pub version: Var,
    /// Value of the entry's cell of each mirrored register; travel.
    pub values: Vec<(RegisterId, Var)>,
    even: Var,
    odd: Var,
    outstanding: Var,
    is_counted: Var,
    last: Var,
    now: Var,
    window: Var,
    rows: [Var; 2],
    flow_record: Var,
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
    in_previous_group: Var,
    joins_newest: Var,
    groups: Var,
    server_hash: Var,
    /// Bucket of the flow in its group, by which a server recognises older flows; travels.
    pub bucket: Var,
    ways: [Var; 2],
    /// Address of the server, for the Ethernet header of the request.
    pub server_mac: Var,
    timestamp: Var,
    spec: Var,
}

/// Register arrays of the generated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceArrays {
    outstanding_counts: [RegisterId; 2],
    /// Rows of the sketch: columns of the even windows, then of the odd ones. A cell holds the window's low 8 bits and
    /// a count of 24 bits.
    pub rows: [RegisterId; 2],
    flow_record: RegisterId,
    /// `[0]`: total of counted packets; `[1]`: total of flows that were recorded first in their window.
    pub totals: RegisterId,
    /// `[0]`: number of packets in a window from which a flow is reported; 0 for never.
    pub threshold: RegisterId,
    /// Turn of the values in the element, by entry number, as in `turn`; bit 0: the element owns the values.
    pub state: RegisterId,
    /// 1 if the server has changed the entry since it was leased, by entry number.
    pub gone: RegisterId,
    /// 1 if the register values are to be taken although packets are at a server, by entry number.
    pub force: RegisterId,
    /// Total of packets that used the entry, by entry number.
    pub used: RegisterId,
    /// `[0]`: number of the last request.
    pub numbers: RegisterId,
    /// Last response number, by its low bits.
    last_response: RegisterId,
    /// `[0]`: version of the previous group if flows still use it, else 0 (8 bits); then version of the newest group (8
    /// bits).
    pub groups: RegisterId,
    filters: [[RegisterId; 2]; 2],
}

/// Mirrored table in the element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementTable {
    /// Table, with the same number as in the function.
    pub table: TableId,
    /// Capacity of the element, entries.
    pub capacity: u32,
    /// First entry number.
    pub first_number: u32,
    /// Number of entry numbers: twice the capacity.
    pub numbers: u32,
    /// True if entries name cells of mirrored registers.
    pub handed: bool,
    /// Actions of entries.
    pub actions: Vec<MirroredAction>,
    number: Var,
    mode: Var,
    tag: Var,
    /// Default action with its arguments, and its index in the table's list.
    default: (ActionId, Vec<u128>, u32),
}

/// Action of a mirrored table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirroredAction {
    /// Action in a server's entries.
    pub of_server: ActionId,
    /// Action in the element's entries, with two more arguments: number and mode of the entry.
    pub of_element: ActionId,
    /// Index of the argument that names the cell of mirrored registers; in the element its value is the entry's number.
    pub index_arg: Option<usize>,
}

/// Partition in the element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeredPartition {
    /// Name.
    pub name: String,
    /// First and last value.
    pub values: (u128, u128),
    /// Number of low bits that do not affect the block.
    pub shift: u16,
}

/// Generated code and objects of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct BalanceObjects {
    /// Sizes.
    pub sizes: Sizes,
    /// Slots.
    pub vars: BalanceSlots,
    /// Register arrays.
    pub arrays: BalanceArrays,
    /// Mirrored tables of the function.
    pub tables: Vec<ElementTable>,
    /// Partitions of the function.
    pub partitions: Vec<SteeredPartition>,
    /// Table from (version, bucket) to server.
    pub group: TableId,
    /// Table from (partition, block) to server.
    pub owner: TableId,
    /// Action of both tables: port, address, and whether a flow of the previous group joins the newest one.
    pub to_server: ActionId,
}

impl BalanceObjects {
    /// Declares the objects, and adds number and mode to the entries of mirrored tables. Sizes are limited to the
    /// available bits of the hashes.
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
        // In the element, a mirrored array has one cell per entry number.
        mirrored.iter().for_each(|register| program.registers[register.0 as usize].size = first_number.max(1));
        let vars = BalanceSlots::new(program, &mirrored);
        let arrays = BalanceArrays::new(program, &sizes, first_number.max(1));
        let partition = |partition: &crate::ir::Partition| SteeredPartition {
            name: partition.name.clone(),
            values: (partition.first, partition.last),
            shift: block_shift(partition.first, partition.last),
        };
        let partitions: Vec<SteeredPartition> = program.partitions.iter().map(partition).collect();
        let port = var(program, "to.port", vars.spec.ty);
        let mac = var(program, "to.mac", Ty::Bit(48));
        let stays = var(program, "to.stays", Ty::Bit(1));
        let body = vec![vars.spec.set(port.get()), vars.server_mac.set(mac.get()), vars.joins_newest.set(stays.get())];
        let to_server = action(program, "to_server", vec![port.slot, mac.slot, stays.slot], body);
        let nowhere = action(program, "nowhere", Vec::new(), Vec::new());
        let acts = (to_server, nowhere);
        // Three versions: a new one is installed before an old one is removed.
        let group = table(program, "group", &[vars.version, vars.bucket], acts, 3 << sizes.buckets_log2);
        let blocks = BLOCKS_MAX * partitions.len().max(1) as u32;
        let owner = table(program, "owner", &[vars.partition, vars.block], acts, blocks);
        Self { sizes, vars, arrays, tables, partitions, group, owner, to_server }
    }

    /// Slots that travel in a request besides the fixed part of the header, and return in the response with the
    /// server's changes: period, number, entry, turn, version, bucket, register values.
    #[must_use]
    pub fn travelling(&self) -> Vec<SlotId> {
        let vars = &self.vars;
        let fixed = [vars.period, vars.number, vars.entry, vars.turn, vars.version, vars.bucket].map(|var| var.slot);
        fixed.into_iter().chain(vars.values.iter().map(|(_, var)| var.slot)).collect()
    }

    /// Replacement of `steer(partition, value)`: selects the owner of the value as the packet's server. No effect for
    /// an unknown partition.
    #[must_use]
    pub fn steer(&self, partition: &str, value: &Expr) -> Block {
        let Some(index) = self.partitions.iter().position(|steered| steered.name == partition) else {
            return Vec::new();
        };
        let (vars, shift) = (&self.vars, self.partitions[index].shift);
        let width = value.ty.width();
        let block = if shift < width { constructors::bits(value.clone(), width - 1, shift) } else { number(16, 0) };
        vec![
            vars.steered.set(constructors::truth(true)),
            vars.partition.set(number(8, index as u128)),
            vars.block.set(constructors::cast(16, block)),
        ]
    }
}

impl BalanceSlots {
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
            last_response: bits("came_now", 32),
            entry: bits("entry", 32),
            turn: bits("turn", 16),
            version: bits("version", 8),
            even: bits("even", 32),
            odd: bits("odd", 32),
            now: bits("now", 16),
            window: bits("window", 16),
            rows: [bits("row0", 32), bits("row1", 32)],
            flow_record: bits("met", 16),
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
            is_hashed: var(program, "keyed", Ty::Bool),
            outstanding: var(program, "away", Ty::Bool),
            is_counted: var(program, "counted", Ty::Bool),
            last: var(program, "last", Ty::Bool),
            report: var(program, "report", Ty::Bool),
            hit: var(program, "hit", Ty::Bool),
            usable: var(program, "usable", Ty::Bool),
            handed: var(program, "handed", Ty::Bool),
            steered: var(program, "steered", Ty::Bool),
            found: var(program, "found", Ty::Bool),
            in_previous_group: var(program, "known", Ty::Bool),
            joins_newest: var(program, "stays", Ty::Bit(1)),
            timestamp: standard(program, StandardField::IngressTimestamp, "ingress_global_timestamp", 48),
            spec: standard(program, StandardField::EgressSpec, "egress_spec", 9),
        }
    }
}

impl BalanceArrays {
    fn new(program: &mut Program, sizes: &Sizes, numbers: u32) -> Self {
        let mut array = |name: &str, width, size| register(program, name, width, size);
        let (cells, columns) = (1 << sizes.cells_log2, 2 << sizes.sketch_log2);
        let filter = 1 << sizes.filter_log2;
        Self {
            outstanding_counts: [array("flying0", 32, cells), array("flying1", 32, cells)],
            rows: [array("sketch0", 32, columns), array("sketch1", 32, columns)],
            flow_record: array("met", 16, 1 << sizes.flows_log2),
            totals: array("totals", 32, 2),
            threshold: array("threshold", 32, 1),
            state: array("state", 16, numbers),
            gone: array("gone", 1, numbers),
            force: array("force", 1, numbers),
            used: array("used", 32, numbers),
            numbers: array("numbers", 32, 1),
            last_response: array("came", 32, 1 << sizes.repeats_log2),
            groups: array("groups", 16, 1),
            filters: [
                [array("filter0a", 8, filter), array("filter0b", 8, filter)],
                [array("filter1a", 8, filter), array("filter1b", 8, filter)],
            ],
        }
    }
}

/// Widths and match kinds of a table's keys.
#[must_use]
pub fn key_shape(program: &Program, table: TableId) -> Vec<(u16, MatchKind)> {
    program.tables[table.0 as usize].keys.iter().map(|key| (key.expr.ty.width(), key.kind)).collect()
}

/// Statement `to = crc32(inputs)`, all 32 bits.
fn hash(to: Var, inputs: Vec<Expr>) -> crate::ir::Stmt {
    let algorithm = crate::ir::HashAlgorithm::Crc32;
    stmt(StmtKind::Hash { to: to.slot, algorithm, base: number(32, 0), inputs, max: number(64, 1 << 32) })
}
