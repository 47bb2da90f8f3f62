//! Disk with volumes: lookup tables shared by processor and accelerators, and the tasks that read them.
//!
//! ```text
//! volumes: [count, -, -, -], [first layer, layers, blocks, class] …
//! layers, newest first: [first extent, extents] …
//! extents, ordered by block: [block of the volume, blocks, block of the disk] …
//! ```

use std::sync::Arc;

use apps_load::Random;
use bytes::Bytes;
use pathcall_place::device::{AnswerLength, AppError, Kernel, KernelTable, TaskCode, WorkItemCount};

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Maximum number of blocks per read.
pub const BLOCKS_MAX: u32 = 16;
/// Bytes of a read request: volume, blocks, first block; then the results of *qos*: class, and admission.
pub const READ: usize = 64;
/// Words of a volume in the table.
const VOLUME: usize = 4;
/// Class of a suspended volume, which nobody may read.
const SUSPENDED: u32 = 0;

/// Size of the disk and of its volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskShape {
    /// Number of volumes; every sixteenth is suspended.
    pub volumes: u32,
    /// Blocks per volume.
    pub blocks: u32,
    /// Layers per volume: a base layer with all blocks, and snapshots with some.
    pub layers: u32,
    /// Extents per snapshot.
    pub extents: u32,
    /// Blocks of the disk, which volumes share.
    pub disk: u32,
}

impl Default for DiskShape {
    fn default() -> Self {
        Self { volumes: 32, blocks: 1 << 14, layers: 32, extents: 256, disk: 1 << 12 }
    }
}

/// Disk.
#[derive(Debug)]
pub struct Disk {
    volumes: Vec<u32>,
    layers: Vec<[u32; 2]>,
    extents: Vec<[u32; 3]>,
    data: Vec<u8>,
    /// Expected disk block of each block of each volume, from painting the layers; for checks.
    painted: Vec<Vec<u32>>,
}

impl Disk {
    /// Creates a disk from a seed.
    ///
    /// # Panics
    /// Panics if a field of `shape` is zero, or if a volume has fewer blocks than a snapshot has extents.
    #[must_use]
    pub fn new(shape: DiskShape, seed: u64) -> Self {
        let DiskShape { volumes, blocks, layers, extents, disk } = shape;
        assert!(volumes > 0 && layers > 0 && disk > 2 * BLOCKS_MAX && blocks >= extents.max(BLOCKS_MAX), "{shape:?}");
        let mut random = Random::new(seed);
        let data = (0..disk as usize * BLOCK / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
        let head = vec![volumes, 0, 0, 0];
        let mut new = Self { volumes: head, layers: vec![], extents: vec![], data, painted: vec![] };
        for number in 0..volumes {
            let class = if number % 16 == 15 { SUSPENDED } else { 1 + number % 3 };
            new.volumes.extend([new.layers.len() as u32, layers, blocks, class]);
            let mut painted = vec![0; blocks as usize];
            let mut oldest_first: Vec<Vec<[u32; 3]>> = vec![extents_of(&mut random, shape, 0, 1)];
            let gap = blocks / extents.max(1);
            oldest_first.extend((1..layers).map(|_| extents_of(&mut random, shape, gap, 2)));
            for [from, count, at] in oldest_first.iter().flatten() {
                (0..*count).for_each(|i| painted[(from + i) as usize] = at + i);
            }
            for extents in oldest_first.iter().rev() {
                new.layers.push([new.extents.len() as u32, extents.len() as u32]);
                new.extents.extend(extents);
            }
            new.painted.push(painted);
        }
        new
    }

    /// Number of volumes.
    #[must_use]
    pub fn volumes(&self) -> u32 {
        self.volumes[0]
    }

    /// Expected content of a block of a volume; none if the read is not admitted.
    #[must_use]
    pub fn painted(&self, volume: u32, lba: u32) -> Option<&[u8]> {
        let class = *self.volumes.get((1 + volume as usize) * VOLUME + 3)?;
        let at = *self.painted.get(volume as usize)?.get(lba as usize)?;
        (class != SUSPENDED).then(|| self.block(at))
    }

    fn block(&self, at: u32) -> &[u8] {
        &self.data[at as usize * BLOCK..][..BLOCK]
    }

    /// Address of a block on the disk, from the newest layer that has the block.
    fn address(&self, volume: u32, lba: u32) -> Option<u32> {
        let &[first, count, ..] = self.volumes.get((1 + volume as usize) * VOLUME..)? else { return None };
        let layers = self.layers.get(first as usize..)?.get(..count as usize)?;
        layers.iter().find_map(|[first, count]| {
            let extents = &self.extents[*first as usize..][..*count as usize];
            let after = extents.partition_point(|[from, ..]| *from <= lba);
            let [from, blocks, at] = extents[after.checked_sub(1)?];
            (lba - from < blocks).then(|| at + (lba - from))
        })
    }

    /// Task `qos`, for the processor and for devices that run host functions.
    #[must_use]
    pub fn qos(self: &Arc<Self>) -> TaskCode {
        let disk = Arc::clone(self);
        let qos = move |input: &[u8], output: &mut [u8]| {
            for (read, out) in reads(input)?.zip(output.chunks_exact_mut(READ)) {
                out.copy_from_slice(read);
                let [volume, blocks, lba] = [0, 1, 2].map(|at| word(read, at));
                let row = (volume < disk.volumes()).then(|| &disk.volumes[(1 + volume as usize) * VOLUME..]);
                let (size, class) = row.map_or((0, SUSPENDED), |row| (row[2], row[3]));
                let fits = (1..=BLOCKS_MAX).contains(&blocks) && lba < size && blocks <= size - lba;
                let let_through = class != SUSPENDED && fits;
                out[12..16].copy_from_slice(&class.to_le_bytes());
                out[16..20].copy_from_slice(&u32::from(let_through).to_le_bytes());
            }
            Ok(input.len())
        };
        TaskCode::Host(Arc::new(qos), AnswerLength::AsInput)
    }

    /// Task `block-address`, for the same devices as `qos`: data of all reads, which have as many blocks as the first
    /// read, and one byte per read: 0 if the read is admitted.
    #[must_use]
    pub fn block_address(self: &Arc<Self>) -> TaskCode {
        let disk = Arc::clone(self);
        TaskCode::host(move |input, output| {
            let reads = reads(input)?;
            let (count, blocks) = (reads.len(), if input.is_empty() { 0 } else { word(input, 1).min(BLOCKS_MAX) });
            let length = answer_len(count, blocks);
            let output =
                output.get_mut(..length).ok_or_else(|| AppError(format!("output too short for {length} bytes")))?;
            let (data, refused) = output.split_at_mut(count * blocks as usize * BLOCK);
            let mut places = data.chunks_exact_mut(BLOCK);
            for (read, refused) in reads.zip(refused) {
                let [volume, asked, lba] = [0, 1, 2].map(|at| word(read, at));
                let let_through = word(read, 4) != 0 && asked == blocks;
                *refused = u8::from(!let_through);
                for (i, place) in (0..blocks).zip(&mut places) {
                    match let_through.then(|| disk.address(volume, lba + i)).flatten() {
                        Some(at) => place.copy_from_slice(disk.block(at)),
                        None => place.fill(0),
                    }
                }
            }
            Ok(length)
        })
    }

    /// Both tasks as kernels.
    #[must_use]
    pub fn kernels(&self) -> [Kernel; 2] {
        let table = |words: &mut dyn Iterator<Item = u32>| -> Bytes {
            words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into()
        };
        let kernel = |entry: &str, items, length, tables: Vec<Bytes>| Kernel {
            source: include_str!("blocks.cl").to_owned(),
            entry: entry.to_owned(),
            options: String::new(),
            items: WorkItemCount::PerInput(items),
            group: 16,
            length,
            tables: tables.into_iter().map(KernelTable::from).collect(),
        };
        let volumes = table(&mut self.volumes.iter().copied());
        let (layers, extents) =
            (&mut self.layers.iter().flatten().copied(), &mut self.extents.iter().flatten().copied());
        let tables = vec![volumes.clone(), table(layers), table(extents), Bytes::from(self.data.clone())];
        let each = READ / BLOCKS_MAX as usize;
        [
            kernel("qos", READ, AnswerLength::AsInput, vec![volumes]),
            kernel("block_address", each, AnswerLength::Any, tables),
        ]
    }
}

/// Extents of a layer, in order: one per `gap` blocks, or all blocks if `gap` is 0.
fn extents_of(random: &mut Random, shape: DiskShape, gap: u32, least: u32) -> Vec<[u32; 3]> {
    let (mut extents, mut from) = (Vec::new(), 0);
    while from < shape.blocks {
        let most = if gap == 0 { BLOCKS_MAX } else { (gap / 8).max(least) };
        let count = (1 + random.below(u64::from(most)) as u32).min(shape.blocks - from);
        extents.push([from, count, random.below(u64::from(shape.disk - count)) as u32]);
        from += if gap == 0 { count } else { count + random.below(u64::from(2 * gap)) as u32 };
    }
    extents
}

/// Bytes of the answer to `reads` reads of `blocks` blocks.
#[must_use]
pub const fn answer_len(reads: usize, blocks: u32) -> usize {
    reads * blocks as usize * BLOCK + reads
}

/// Encodes a read request.
#[must_use]
pub fn read(volume: u32, blocks: u32, lba: u32) -> [u8; READ] {
    let mut read = [0; READ];
    let words = [volume, blocks, lba].map(u32::to_le_bytes);
    read[..12].copy_from_slice(words.as_flattened());
    read
}

fn reads(input: &[u8]) -> Result<std::slice::ChunksExact<'_, u8>, AppError> {
    let reads = input.chunks_exact(READ);
    if reads.remainder().is_empty() {
        return Ok(reads);
    }
    Err(AppError(format!("{} bytes are not a multiple of the {READ} bytes of a read", input.len())))
}

fn word(read: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(read[at * 4..][..4].try_into().expect("four bytes"))
}
