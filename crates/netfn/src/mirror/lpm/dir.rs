//! Longest-prefix match of addresses up to 32 bits: a wide first level and nodes of 256 cells (DIR-24-8 and variants).
//!
//! ```text
//! top (2^24 cells, 2^16, or one a group) ─► node of 256 cells ─► … ─► a cell that is a leaf: the entry's number
//! ```
//!
//! Every cell holds the final match of its addresses ("leaf pushing"), so that a lookup reads one cell per level and
//! compares nothing. There is one writer. Readers in other threads never wait: a node is filled before a cell points to
//! it, and a reader that followed a pointer to a freed node sees that the cell has changed, and starts again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::TableFull;

/// Cells of a node.
const CELLS: usize = 256;
/// Nodes of one allocation, 1 MiB.
const CHUNK: usize = 1024;
type Chunk = [AtomicU32; CHUNK * CELLS];
/// First-level cells that are prefetched before one is read: a processor can wait for about as many at once.
const AHEAD: usize = 16;
/// Bit of a cell that points to a node; below it are 9 bits of the node's reuse count and 22 bits of its number.
const NODE: u32 = 1 << 31;
const NODE_BITS: u32 = 22;
/// Most nodes that cells can address.
pub const NODES_MAX: usize = 1 << NODE_BITS;

/// Data shared with the readers.
#[derive(Debug)]
struct SharedNodes {
    /// Number of address bits that select a cell of `top`.
    top_bits: u8,
    top: Box<[AtomicU32]>,
    /// Entry that matches where no other does, for all of `top` (`top_bits > 0`).
    default: AtomicU32,
    chunks: Box<[OnceLock<Box<Chunk>>]>,
}

/// Prefix table, owned by its one writer.
#[derive(Debug)]
pub struct Dir {
    shared: Arc<SharedNodes>,
    /// For each node, the number of prefixes that end in or beneath it, and its reuse count.
    nodes: Vec<(u32, u16)>,
    free: Vec<u32>,
    nodes_max: usize,
    /// Prefix length of each entry.
    lengths: Vec<u8>,
}

/// Reader for any thread, concurrent with the writer.
#[derive(Debug, Clone)]
pub struct DirReader(Arc<SharedNodes>);

/// Prefix in the table: the highest `len` bits of `address`, in group `group`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirPrefix {
    /// Group; 0 in a table with one group.
    pub group: u32,
    /// Address, left-aligned.
    pub address: u32,
    /// Prefix length, bits.
    pub len: u8,
}

/// Read access to one group for many lookups, while nothing is written.
#[derive(Debug, Clone, Copy)]
pub struct GroupView<'a> {
    shared: &'a SharedNodes,
    /// First-level cells of the group; `shift` selects a cell by the address.
    top: &'a [AtomicU32],
    shift: u32,
    default: u32,
}

impl GroupView<'_> {
    /// Entry with the longest prefix of `address` (left-aligned).
    #[must_use]
    #[inline]
    pub fn lookup(&self, address: u32) -> Option<u32> {
        self.below(self.cell(address), address)
    }

    /// [`Self::lookup`] of many addresses, with the first-level cells of several prefetched together.
    ///
    /// # Panics
    /// If `found` is shorter than `addresses`.
    pub fn lookup_all(&self, addresses: &[u32], found: &mut [Option<u32>]) {
        let found = &mut found[..addresses.len()];
        for (addresses, found) in addresses.chunks(AHEAD).zip(found.chunks_mut(AHEAD)) {
            let mut cells = [0; AHEAD];
            cells.iter_mut().zip(addresses).for_each(|(cell, address)| *cell = self.cell(*address));
            for ((found, cell), address) in found.iter_mut().zip(cells).zip(addresses) {
                *found = self.below(cell, *address);
            }
        }
    }

    #[inline]
    fn cell(&self, address: u32) -> u32 {
        self.top[(u64::from(address) >> self.shift) as usize].load(Ordering::Relaxed)
    }

    #[inline]
    fn below(&self, cell: u32, address: u32) -> Option<u32> {
        let leaf = if cell & NODE == 0 { cell } else { self.shared.descend(cell, address) };
        if leaf == 0 { self.default } else { leaf }.checked_sub(1)
    }
}

impl Dir {
    /// Table with one group, whose first level takes `top_bits` (8, 16, 24) of the address, and at most `nodes_max`
    /// nodes.
    #[must_use]
    pub fn single(top_bits: u8, nodes_max: usize) -> Self {
        assert!(matches!(top_bits, 8 | 16 | 24), "levels are whole bytes");
        Self::new(top_bits, 1 << top_bits, nodes_max)
    }

    /// Table with `groups` small groups.
    #[must_use]
    pub fn groups(groups: usize, nodes_max: usize) -> Self {
        Self::new(0, groups, nodes_max)
    }

    fn new(top_bits: u8, top: usize, nodes_max: usize) -> Self {
        let nodes_max = nodes_max.min(NODES_MAX);
        let shared = SharedNodes {
            top_bits,
            top: zeroed(top),
            default: AtomicU32::new(0),
            chunks: (0..nodes_max.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
        };
        Self { shared: Arc::new(shared), nodes: Vec::new(), free: Vec::new(), nodes_max, lengths: Vec::new() }
    }

    /// Reader for another thread.
    #[must_use]
    pub fn reader(&self) -> DirReader {
        DirReader(Arc::clone(&self.shared))
    }

    /// Entry with the longest prefix of `address` (left-aligned) in `group`, while nothing is written.
    #[must_use]
    #[inline]
    pub fn lookup(&self, group: u32, address: u32) -> Option<u32> {
        let shared = &*self.shared;
        let cell = shared.top[shared.top_index(group, address)].load(Ordering::Relaxed);
        shared.leaf(if cell & NODE == 0 { cell } else { shared.descend(cell, address) })
    }

    /// Read access to one group for many lookups.
    #[must_use]
    pub fn view(&self, group: u32) -> GroupView<'_> {
        let shared = &*self.shared;
        let first = group as usize;
        let top = if shared.top_bits == 0 { &shared.top[first..=first] } else { &shared.top[..] };
        let default = shared.default.load(Ordering::Relaxed);
        GroupView { shared, top, shift: 32 - u32::from(shared.top_bits), default }
    }

    /// Inserts the prefix `at` for entry `id`: its addresses match `id` unless a longer prefix matches them. `is_new`:
    /// the prefix was not in the table.
    pub fn insert(&mut self, at: DirPrefix, id: u32, is_new: bool) -> Result<(), TableFull> {
        if self.lengths.len() <= id as usize {
            self.lengths.resize(id as usize + 1, 0);
        }
        self.lengths[id as usize] = at.len;
        if at.len == 0 && self.shared.top_bits > 0 {
            self.shared.default.store(id + 1, Ordering::Release);
            return Ok(());
        }
        let missing = self.missing_nodes(at);
        if self.free.len() + self.nodes_max.saturating_sub(self.nodes.len()) < missing {
            return Err(TableFull);
        }
        let shared = Arc::clone(&self.shared);
        let (mut cells, mut depth) = (&shared.top[shared.top_range(at, shared.top_bits)], shared.top_bits);
        while at.len > depth {
            let cell = cells[0].load(Ordering::Relaxed);
            let node = if cell & NODE != 0 { cell } else { self.split_leaf(&cells[0], cell) };
            self.nodes[index(node)].0 += u32::from(is_new);
            cells = &shared.node(node)[node_range(at, depth)];
            depth += 8;
        }
        self.set_cells(cells, id);
        Ok(())
    }

    /// Removes the prefix of entry `id`; its addresses match `covering`, the entry with the next shorter prefix.
    pub fn remove(&mut self, at: DirPrefix, id: u32, covering: Option<u32>) {
        let instead = covering.map_or(0, |id| id + 1);
        if at.len == 0 && self.shared.top_bits > 0 {
            self.shared.default.store(0, Ordering::Release);
            return;
        }
        let shared = Arc::clone(&self.shared);
        let (mut cells, mut depth) = (&shared.top[shared.top_range(at, shared.top_bits)], shared.top_bits);
        let mut empty = None;
        while at.len > depth {
            let cell = cells[0].load(Ordering::Relaxed);
            assert!(cell & NODE != 0, "a prefix that was put in has its nodes");
            let count = &mut self.nodes[index(cell)].0;
            *count -= 1;
            if *count == 0 && empty.is_none() {
                empty = Some((&cells[0], cell));
            }
            cells = &shared.node(cell)[node_range(at, depth)];
            depth += 8;
        }
        // A separate default is not pushed into leaves.
        let instead =
            if shared.top_bits > 0 && covering.is_some_and(|id| self.lengths[id as usize] == 0) { 0 } else { instead };
        replace(&shared, cells, id + 1, instead);
        // No prefix ends in the node any more, so all its cells are equal, and the node becomes one leaf.
        if let Some((cell, node)) = empty {
            let leaf = self.prune(&shared, node);
            cell.store(leaf, Ordering::Release);
        }
    }

    /// Removes all prefixes of a group (in tables of [`Self::groups`]).
    pub fn clear(&mut self, group: u32) {
        let shared = Arc::clone(&self.shared);
        let cell = shared.top[group as usize].swap(0, Ordering::AcqRel);
        if cell & NODE != 0 {
            self.prune(&shared, cell);
        }
    }

    /// Number of nodes in use.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Number of nodes that have to be added for `at`.
    fn missing_nodes(&self, at: DirPrefix) -> usize {
        let shared = &*self.shared;
        let mut depth = shared.top_bits;
        let mut cell = shared.top[shared.top_index(at.group, at.address)].load(Ordering::Relaxed);
        while at.len > depth && cell & NODE != 0 {
            cell = shared.node(cell)[byte(at.address, depth)].load(Ordering::Relaxed);
            depth += 8;
        }
        usize::from(at.len.saturating_sub(depth)).div_ceil(8)
    }

    /// Replaces a leaf by a node whose cells all have the leaf's value.
    fn split_leaf(&mut self, cell: &AtomicU32, leaf: u32) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.nodes.push((0, 0));
            (self.nodes.len() - 1) as u32
        });
        let (count, given) = &mut self.nodes[number as usize];
        *count = 0;
        *given = (*given + 1) % (1 << (31 - NODE_BITS));
        let node = NODE | u32::from(*given) << NODE_BITS | number;
        self.shared.chunks[number as usize / CHUNK]
            .get_or_init(|| zeroed(CHUNK * CELLS).try_into().expect("of that size"));
        for cell in self.shared.node(node) {
            // Release: a reader that sees this value also sees that the cell that pointed to the node before has
            // changed.
            cell.store(leaf, Ordering::Release);
        }
        cell.store(node, Ordering::Release);
        node
    }

    /// Sets cells to entry `id`, except those that match a longer prefix.
    fn set_cells(&self, cells: &[AtomicU32], id: u32) {
        let len = self.lengths[id as usize];
        for cell in cells {
            match cell.load(Ordering::Relaxed) {
                node if node & NODE != 0 => self.set_cells(self.shared.node(node), id),
                leaf if leaf == 0 || self.lengths[leaf as usize - 1] <= len => cell.store(id + 1, Ordering::Release),
                _ => {}
            }
        }
    }

    /// Frees a node in which no prefix ends, and the nodes beneath it; returns its leaf.
    fn prune(&mut self, shared: &SharedNodes, node: u32) -> u32 {
        let mut leaf = 0;
        for cell in shared.node(node) {
            leaf = match cell.load(Ordering::Relaxed) {
                beneath if beneath & NODE != 0 => self.prune(shared, beneath),
                leaf => leaf,
            };
        }
        self.free.push(index(node) as u32);
        leaf
    }
}

impl DirReader {
    /// [`Dir::lookup`], concurrent with the writer: the result was correct at some moment during this call.
    #[must_use]
    #[inline]
    pub fn lookup(&self, group: u32, address: u32) -> Option<u32> {
        let shared = &*self.0;
        let top = &shared.top[shared.top_index(group, address)];
        let cell = top.load(Ordering::Acquire);
        shared.leaf(if cell & NODE == 0 { cell } else { shared.descend_shared(top, address) })
    }
}

impl SharedNodes {
    #[inline]
    fn top_index(&self, group: u32, address: u32) -> usize {
        // The first level has one cell per group, or 2^`top_bits` cells for group 0.
        (group as u64 + (u64::from(address) >> (32 - self.top_bits))) as usize
    }

    /// First-level cells that `at` covers; one cell if `at` is longer than that level.
    fn top_range(&self, at: DirPrefix, top_bits: u8) -> std::ops::Range<usize> {
        let first = self.top_index(at.group, at.address);
        first..first + (1 << top_bits.saturating_sub(at.len))
    }

    /// Leaf beneath a node of the second level. Not inlined: most lookups end before.
    #[inline(never)]
    fn descend(&self, mut cell: u32, address: u32) -> u32 {
        let mut depth = self.top_bits;
        while cell & NODE != 0 {
            let (chunk, place) = self.locate_cell(cell, byte(address, depth));
            cell = chunk[place].load(Ordering::Relaxed);
            depth += 8;
        }
        cell
    }

    /// Leaf beneath a node, concurrent with the writer.
    #[inline(never)]
    fn descend_shared(&self, top: &AtomicU32, address: u32) -> u32 {
        'again: loop {
            let mut depth = self.top_bits;
            let mut at = top;
            let mut cell = at.load(Ordering::Acquire);
            while cell & NODE != 0 {
                let next = &self.node(cell)[byte(address, depth)];
                let below = next.load(Ordering::Acquire);
                if at.load(Ordering::Acquire) != cell {
                    continue 'again;
                }
                (at, cell, depth) = (next, below, depth + 8);
            }
            return cell;
        }
    }

    #[inline]
    fn node(&self, cell: u32) -> &[AtomicU32] {
        let (chunk, place) = self.locate_cell(cell, 0);
        &chunk[place..place + CELLS]
    }

    /// Chunk of a node, and index of one of its cells there.
    #[inline]
    fn locate_cell(&self, node: u32, byte: usize) -> (&Chunk, usize) {
        let number = index(node);
        let chunk = self.chunks[number / CHUNK].get().expect("a node that a cell points to is there");
        (chunk, number % CHUNK * CELLS + byte)
    }

    #[inline]
    fn leaf(&self, cell: u32) -> Option<u32> {
        if cell != 0 { Some(cell - 1) } else { self.default.load(Ordering::Relaxed).checked_sub(1) }
    }
}

fn replace(shared: &SharedNodes, cells: &[AtomicU32], from: u32, to: u32) {
    for cell in cells {
        match cell.load(Ordering::Relaxed) {
            node if node & NODE != 0 => replace(shared, shared.node(node), from, to),
            leaf if leaf == from => cell.store(to, Ordering::Release),
            _ => {}
        }
    }
}

/// Cells of a node at this depth that `at` covers; one cell if `at` is longer.
fn node_range(at: DirPrefix, depth: u8) -> std::ops::Range<usize> {
    let first = byte(at.address, depth);
    first..first + (1 << (depth + 8).saturating_sub(at.len))
}

#[inline]
fn byte(address: u32, depth: u8) -> usize {
    (address >> (24 - depth) & 0xff) as usize
}

#[inline]
fn index(cell: u32) -> usize {
    (cell & ((1 << NODE_BITS) - 1)) as usize
}

fn zeroed(cells: usize) -> Box<[AtomicU32]> {
    let mut zeroed = Vec::with_capacity(cells);
    // A first level of 64 MiB has 16,384 small pages, far more than the entries of a TLB.
    pathcall_sandbox::large_pages(&mut zeroed);
    zeroed.extend((0..cells).map(|_| AtomicU32::new(0)));
    zeroed.into_boxed_slice()
}
