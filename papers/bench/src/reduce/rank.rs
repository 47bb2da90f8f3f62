//! Rank of a reduction: a process that sums arrays with others, and prints the bytes, the seconds and a hash of each
//! result.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pathcall_place::reduce::{AllReduce, Config, Group, ReduceOp};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Work of a rank, encoded in its arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RankJob {
    pub(crate) group: String,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// True if the values are in shared memory; otherwise in the rank's own.
    pub(crate) registered: bool,
    /// Bytes of an array, and number of sums.
    pub(crate) sizes: Vec<(usize, usize)>,
}

impl RankJob {
    /// Encodes the job as an argument.
    pub(crate) fn to_args(&self) -> String {
        let Self { group, rank, ranks, registered, .. } = self;
        let sizes: String = self.sizes.iter().map(|(bytes, calls)| format!(",{bytes},{calls}")).collect();
        format!("{group},{rank},{ranks},{}{sizes}", u8::from(*registered))
    }

    /// Decodes an argument.
    pub(crate) fn from_args(args: &str) -> Result<Self> {
        let (group, rest) = args.split_once(',').context("expected a group name and a job")?;
        let numbers = rest.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let [rank, ranks, registered, sizes @ ..] = &numbers[..] else {
            anyhow::bail!("expected rank, ranks, registered and sizes")
        };
        let sizes = sizes.chunks_exact(2).map(|size| (size[0], size[1])).collect();
        Ok(Self { group: group.to_owned(), rank: *rank, ranks: *ranks, registered: *registered != 0, sizes })
    }

    /// Runs the job.
    pub(crate) fn run(&self) -> Result<()> {
        self.pin()?;
        let mut group = Group::join(&Config::new(&self.group, self.rank, self.ranks))?;
        // Printed at the end: the ranks' outputs are read one after the other, so a full pipe would block a rank.
        let mut said = String::new();
        for (bytes, calls) in &self.sizes {
            self.sum(&mut group, *bytes, *calls, &mut said)?;
        }
        group.barrier()?;
        print!("{said}");
        Ok(())
    }

    /// Pins the rank to its own processor if there are enough, like the peer.
    fn pin(&self) -> Result<()> {
        let may = sched_getaffinity(None)?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| may.is_set(*cpu)).collect();
        if cpus.len() < self.ranks {
            return Ok(());
        }
        let mut own = CpuSet::new();
        own.set(cpus[self.rank]);
        Ok(sched_setaffinity(None, &own)?)
    }

    fn sum(&self, group: &mut Group, bytes: usize, calls: usize, said: &mut String) -> Result<()> {
        let len = bytes / size_of::<f32>();
        let mut buffer = group.buffer::<f32>(if self.registered { len } else { 0 })?;
        let mut own = vec![0.0_f32; if self.registered { 0 } else { len }];
        // The first call is not measured, like the peer's.
        for call in 0..=calls {
            let values = if self.registered { &mut *buffer } else { &mut own[..] };
            values.iter_mut().enumerate().for_each(|(i, v)| *v = value(self.rank, i, call));
            group.barrier()?;
            let began = Instant::now();
            match self.registered {
                true => group.all_reduce(&mut buffer, ReduceOp::Sum)?,
                false => group.all_reduce_slice(&mut own, ReduceOp::Sum)?,
            }
            let took = began.elapsed();
            let results = if self.registered { &*buffer } else { &own[..] };
            let right = |i| (1..self.ranks).fold(value(0, i, call), |sum, rank| sum + value(rank, i, call));
            let wrong = results.iter().enumerate().find(|(i, v)| v.to_bits() != right(*i).to_bits());
            ensure!(wrong.is_none(), "rank {}, {bytes} bytes, call {call}: wrong at {wrong:?}", self.rank);
            if call > 0 {
                writeln!(said, "{bytes} {:.9} {:016x}", took.as_secs_f64(), hash(results))?;
            }
        }
        Ok(())
    }
}

/// Input value `i` of a rank in a call; the peers' programs use the same.
fn value(rank: usize, i: usize, call: usize) -> f32 {
    ((i * 7 + rank * 131 + call) % 2003) as f32 * 0.37
}

/// Hash of the bits in order (FNV-1a by words).
fn hash(values: &[f32]) -> u64 {
    let step = |hash: u64, value: &f32| (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01b3);
    values.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
