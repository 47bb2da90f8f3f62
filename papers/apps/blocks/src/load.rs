//! Reads, a message of them at a time, and what they must answer.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use apps_load::Random;
use apps_offload::{Ask, Memo, Task, Workload};
use bytes::Bytes;
use pathcall_place::Application;
use pathcall_place::device::Code;

use crate::disk::{BLOCK, BLOCKS_MAX, Disk, READ, Shape, answer_len, read};

/// Types of requests, and blocks of their reads.
const KINDS: [(&str, u32); 2] = [("READ4K", 1), ("READ64K", BLOCKS_MAX)];

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reads {
    /// How large the disk is, and what is on it.
    pub shape: Shape,
    /// Share of the messages whose reads are of 64 KiB; of the others they are of 4 KiB.
    pub large: f64,
    /// Messages, each full.
    pub messages: usize,
    /// Times that they are sent.
    pub rounds: usize,
    /// All that is drawn is drawn from this.
    pub seed: u64,
}

/// A disk and its messages.
#[derive(Debug)]
pub struct Load {
    disk: Arc<Disk>,
    made: Vec<Made>,
    sample: Bytes,
    /// Bytes of the longest answer.
    answer_max: usize,
    rounds: usize,
    /// What an emulated accelerator has answered, task by task.
    memos: [Arc<Memo>; 2],
}

#[derive(Debug)]
struct Made {
    /// Which of [`KINDS`].
    kind: usize,
    /// Of each read: volume and first block.
    reads: Vec<(u32, u32)>,
    payload: Bytes,
}

impl Load {
    /// As many reads in a message as its trip has bytes for.
    ///
    /// # Errors
    /// The application's file lacks a type of request, or it has no room for a read.
    pub fn new(application: &Application, reads: Reads) -> Result<Self> {
        let mut random = Random::new(reads.seed);
        let disk = Arc::new(Disk::new(reads.shape, random.bits()));
        let counts = KINDS.map(|(kind, _)| count(application, kind));
        let [small, large] = counts;
        let counts = [small?, large?];
        let mut message = |kind: usize| {
            let (blocks, shape) = (KINDS[kind].1, reads.shape);
            // Some go beyond the end, and are not let through.
            let (volumes, ends) = (u64::from(shape.volumes), u64::from(shape.blocks));
            let mut draw = |_| (random.below(volumes) as u32, random.below(ends) as u32);
            let reads: Vec<_> = (0..counts[kind]).map(&mut draw).collect();
            let payload = reads.iter().flat_map(|(volume, lba)| read(*volume, blocks, *lba)).collect::<Vec<u8>>();
            Made { kind, reads, payload: payload.into() }
        };
        let sample = message(0).payload;
        let mut kinds = Random::new(reads.seed ^ 1);
        let made = (0..reads.messages).map(|_| message(usize::from(kinds.happens(reads.large)))).collect();
        let longest = KINDS.iter().zip(counts).map(|((_, blocks), count)| answer_len(count, *blocks));
        let answer_max = longest.max().unwrap_or(0);
        Ok(Self { disk, made, sample, answer_max, rounds: reads.rounds, memos: Default::default() })
    }

    /// The sample, as the requester lets it through.
    fn let_through(&self) -> Bytes {
        let Code::Host(qos, _) = self.disk.qos() else { return self.sample.clone() };
        let mut out = vec![0; self.sample.len()];
        let done = qos(&self.sample, &mut out);
        debug_assert!(done.is_ok(), "{done:?}");
        out.into()
    }
}

/// Reads in a message of that type.
fn count(application: &Application, kind: &str) -> Result<usize> {
    let file = &application.file;
    let request = application.requests.iter().find(|request| request.name == kind);
    let request = request.with_context(|| format!("{file} has no request `{kind}`"))?;
    let bytes = request.dataflows[0].trips[0].there.iter().map(|link| link.bytes).max().unwrap_or(0);
    let count = bytes as usize / READ;
    ensure!(count > 0, "{file}: {kind} has no room for a read of {READ} bytes on its first trip");
    Ok(count)
}

impl Workload for Load {
    fn name(&self) -> &'static str {
        "blocks"
    }

    fn tasks(&self) -> Vec<Task> {
        let task = |name, (cpu, memo): (Code, &Arc<Memo>), kernel, answer_max, sample| {
            let acc = vec![memo.of(&cpu), Code::OpenCl(Clone::clone(&kernel)), Code::Cuda(kernel)];
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
                self.let_through(),
            ),
        ]
    }

    fn messages(&self) -> usize {
        self.made.len() * self.rounds
    }

    fn ask(&self, at: usize) -> Ask {
        let Made { kind, reads, payload } = &self.made[at % self.made.len()];
        let (address, operations) = (u64::from(reads[0].0), reads.len() as u64);
        Ask { kind: KINDS[*kind].0, address, message: 0, payload: payload.clone(), operations }
    }

    fn check(&mut self, at: usize, answer: &[u8]) -> Result<(), String> {
        let Made { kind, reads, .. } = &self.made[at % self.made.len()];
        let blocks = KINDS[*kind].1;
        let expected = answer_len(reads.len(), blocks);
        if answer.len() != expected {
            return Err(format!("an answer of {} bytes, expected {expected}", answer.len()));
        }
        let (data, refused) = answer.split_at(expected - reads.len());
        for ((got, refused), (volume, lba)) in data.chunks_exact(blocks as usize * BLOCK).zip(refused).zip(reads) {
            let painted = (*lba..lba + blocks).map(|lba| self.disk.painted(*volume, lba));
            // All of it, or nothing.
            let right = match painted.clone().collect::<Option<Vec<_>>>() {
                Some(painted) => *refused == 0 && got.chunks_exact(BLOCK).eq(painted),
                None => *refused == 1 && got.iter().all(|byte| *byte == 0),
            };
            if !right {
                return Err(format!("{blocks} blocks from {lba} of volume {volume}: other data (refused: {refused})"));
            }
        }
        Ok(())
    }
}
