//! Workload of read messages with their expected answers.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use apps_load::Random;
use apps_offload::{AppWorkload, Memo, MessageSpec, Task};
use bytes::Bytes;
use pathcall_place::Application;
use pathcall_place::device::TaskCode;

use crate::disk::{BLOCK, BLOCKS_MAX, Disk, DiskShape, READ, answer_len, read};

/// Request types, with the number of blocks per read.
const KINDS: [(&str, u32); 2] = [("READ4K", 1), ("READ64K", BLOCKS_MAX)];

/// Parameters of the reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reads {
    /// Size of the disk.
    pub shape: DiskShape,
    /// Share of the messages with reads of 64 KiB; the others have reads of 4 KiB.
    pub large: f64,
    /// Number of messages, each with as many reads as fit.
    pub messages: usize,
    /// Number of times that the messages are sent.
    pub rounds: usize,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Disk with prepared messages.
#[derive(Debug)]
pub struct BlockLoad {
    disk: Arc<Disk>,
    prepared: Vec<PreparedMessage>,
    sample: Bytes,
    /// Bytes of the longest answer.
    answer_max: usize,
    rounds: usize,
    /// Cached answers of an emulated accelerator, for each task.
    memos: [Arc<Memo>; 2],
}

#[derive(Debug)]
struct PreparedMessage {
    /// Index in [`KINDS`].
    kind: usize,
    /// Volume and first block of each read.
    reads: Vec<(u32, u32)>,
    payload: Bytes,
}

impl BlockLoad {
    /// Creates messages with as many reads as fit into a trip.
    ///
    /// # Errors
    /// Returns an error if the application file lacks a request type, or has no room for a read.
    pub fn new(application: &Application, reads: Reads) -> Result<Self> {
        let mut random = Random::new(reads.seed);
        let disk = Arc::new(Disk::new(reads.shape, random.bits()));
        let counts = KINDS.map(|(kind, _)| count(application, kind));
        let [small, large] = counts;
        let counts = [small?, large?];
        let mut message = |kind: usize| {
            let (blocks, shape) = (KINDS[kind].1, reads.shape);
            // Some reads exceed the end of the volume, and are not admitted.
            let (volumes, ends) = (u64::from(shape.volumes), u64::from(shape.blocks));
            let mut draw = |_| (random.below(volumes) as u32, random.below(ends) as u32);
            let reads: Vec<_> = (0..counts[kind]).map(&mut draw).collect();
            let payload = reads.iter().flat_map(|(volume, lba)| read(*volume, blocks, *lba)).collect::<Vec<u8>>();
            PreparedMessage { kind, reads, payload: payload.into() }
        };
        let sample = message(0).payload;
        let mut kinds = Random::new(reads.seed ^ 1);
        let prepared = (0..reads.messages).map(|_| message(usize::from(kinds.happens(reads.large)))).collect();
        let longest = KINDS.iter().zip(counts).map(|((_, blocks), count)| answer_len(count, *blocks));
        let answer_max = longest.max().unwrap_or(0);
        Ok(Self { disk, prepared, sample, answer_max, rounds: reads.rounds, memos: Default::default() })
    }

    /// Sample message after admission by the requester.
    fn admitted_sample(&self) -> Bytes {
        let TaskCode::Host(qos, _) = self.disk.qos() else { return self.sample.clone() };
        let mut out = vec![0; self.sample.len()];
        let done = qos(&self.sample, &mut out);
        debug_assert!(done.is_ok(), "{done:?}");
        out.into()
    }
}

/// Number of reads per message of this type.
fn count(application: &Application, kind: &str) -> Result<usize> {
    let file = &application.file;
    let request = application.requests.iter().find(|request| request.name == kind);
    let request = request.with_context(|| format!("{file} has no request `{kind}`"))?;
    let bytes = request.dataflows[0].trips[0].there.iter().map(|link| link.bytes).max().unwrap_or(0);
    let count = bytes as usize / READ;
    ensure!(count > 0, "{file}: first trip of {kind} has no room for a read of {READ} bytes");
    Ok(count)
}

impl AppWorkload for BlockLoad {
    fn name(&self) -> &'static str {
        "blocks"
    }

    fn tasks(&self) -> Vec<Task> {
        let task = |name, (cpu, memo): (TaskCode, &Arc<Memo>), kernel, answer_max, sample| {
            let acc = vec![memo.wrap(&cpu), TaskCode::OpenCl(Clone::clone(&kernel)), TaskCode::Cuda(kernel)];
            Task { name, cpu, acc, answer_max, sample }
        };
        let [qos, block_address] = self.disk.kernels();
        let [of_qos, of_address] = &self.memos;
        vec![
            task("qos", (self.disk.qos(), of_qos), qos, 0, self.sample.clone()),
            task(
                "block-address",
                (self.disk.block_address(), of_address),
                block_address,
                self.answer_max,
                self.admitted_sample(),
            ),
        ]
    }

    fn messages(&self) -> usize {
        self.prepared.len() * self.rounds
    }

    fn ask(&self, at: usize) -> MessageSpec {
        let PreparedMessage { kind, reads, payload } = &self.prepared[at % self.prepared.len()];
        let (address, operations) = (u64::from(reads[0].0), reads.len() as u64);
        MessageSpec { kind: KINDS[*kind].0, address, message: 0, payload: payload.clone(), operations }
    }

    fn check(&mut self, at: usize, answer: &[u8]) -> Result<(), String> {
        let PreparedMessage { kind, reads, .. } = &self.prepared[at % self.prepared.len()];
        let blocks = KINDS[*kind].1;
        let expected = answer_len(reads.len(), blocks);
        if answer.len() != expected {
            return Err(format!("an answer of {} bytes, expected {expected}", answer.len()));
        }
        let (data, refused) = answer.split_at(expected - reads.len());
        for ((got, refused), (volume, lba)) in data.chunks_exact(blocks as usize * BLOCK).zip(refused).zip(reads) {
            let painted = (*lba..lba + blocks).map(|lba| self.disk.painted(*volume, lba));
            // Either all blocks, or none.
            let right = match painted.clone().collect::<Option<Vec<_>>>() {
                Some(painted) => *refused == 0 && got.chunks_exact(BLOCK).eq(painted),
                None => *refused == 1 && got.iter().all(|byte| *byte == 0),
            };
            if !right {
                return Err(format!("{blocks} blocks from {lba} of volume {volume}: wrong data (refused: {refused})"));
            }
        }
        Ok(())
    }
}
