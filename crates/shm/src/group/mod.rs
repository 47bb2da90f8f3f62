//! Group of processes of one host, its *ranks*, that work together on values in shared memory.
//!
//! ```text
//! join ── rendezvous by name ──▶ Group ── buffer ──▶ SharedBuffer: registered values
//!                                  │
//!                                  ├─ process_buffer   registered: each part of all rows, on any free rank
//!                                  ├─ process_slice    private: pieces copied in, shares processed, results copied out
//!                                  └─ barrier
//! ```
//!
//! All ranks make every call, in the same order, with the same lengths, types and operations. They compare these before
//! any value is accessed; a difference is an error at all of them, without other effect. A rank that dies, leaves or
//! exceeds the timeout fails the group, for all ranks and permanently: the ranks have to join anew, under another name
//! or after all have dropped the failed group.
//!
//! The operations on values are the caller's (`pathcall-place` reduces them). `rendezvous` brings the ranks together;
//! `shared_memory` is their memory, `steps` their synchronisation, `task` the description of a call that they compare;
//! `buffer` and `stage` move values to the processing.
//!
//! **Ranks trust each other**, unlike the two sides of a [ring](crate::ring): they belong to one user, which is
//! checked, and run the same code. A rank that ends at any instruction, stops or lags only delays or fails the group; a
//! rank that writes to wrong addresses can change the values of others.

mod buffer;
mod error;
mod rendezvous;
mod shared_memory;
mod stage;
mod steps;
mod task;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

pub use buffer::{BufferPart, SharedBuffer};
pub use error::{GroupError, JoinRefusal, RankLossReason};
pub use stage::{OtherRanks, SliceShare};
pub use steps::RANKS_MAX;
pub use task::{GroupTask, NumberType, PlainNumber, ReduceOp};

use rendezvous::{Handout, LivenessSockets};
use shared_memory::{SharedRows, SharedWords};
use steps::Steps;

use crate::memory::MapError;
use crate::peer::MemoryPeer;

/// Longest name of a group, bytes.
pub const NAME_MAX: usize = 90;
/// Default timeout of waiting for a rank.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest timeout: a year.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Time of spinning before a sleep, where each rank can have a processor: somewhat longer than a wake-up takes.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// Number of yields before a sleep, where ranks share processors.
const YIELDS: u32 = 20;
/// Interval at which a sleeping rank checks whether the awaited rank is alive.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(10);

/// Configuration of a rank that joins a group.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the group in its network namespace, unique at a time.
    pub name: String,
    /// Rank of this process, from 0.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Time to wait for another live rank: to join, and later for its part of a task.
    pub timeout: Duration,
}

impl Config {
    /// Creates the configuration of rank `rank` of `ranks`, with the default timeout.
    pub fn new(name: impl Into<String>, rank: usize, ranks: usize) -> Self {
        Self { name: name.into(), rank, ranks, timeout: TIMEOUT }
    }

    /// Sets the timeout.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

/// Membership of one rank in a group.
#[derive(Debug)]
pub struct Group {
    rank: usize,
    ranks: usize,
    timeout: Duration,
    /// Whether each rank can have a processor of its own.
    spins: bool,
    liveness: LivenessSockets,
    peers: Vec<MemoryPeer>,
    stage: SharedRows,
    steps: Steps<SharedWords>,
    /// Counts of steps done, tasks begun, buffers created and buffers processed by this rank: equal at all ranks. They
    /// wrap around.
    step: u32,
    tasks: u32,
    buffers: u32,
    shares: u32,
    /// True during a task, and afterwards if a panic left it.
    busy: bool,
}

impl Group {
    /// Joins the group: meets the other ranks.
    ///
    /// # Errors
    /// When the configuration is invalid, a rank does not join in time, or this process is refused.
    pub fn join(config: &Config) -> Result<Self, GroupError> {
        let &Config { rank, ranks, .. } = config;
        if rank >= ranks || ranks > RANKS_MAX {
            return Err(GroupError::Rank { rank, ranks, most: RANKS_MAX });
        }
        if config.name.is_empty() || config.name.len() > NAME_MAX {
            return Err(GroupError::Name { got: config.name.len(), most: NAME_MAX });
        }
        let config = Config { timeout: config.timeout.min(TIMEOUT_MAX), ..config.clone() };
        let joined = rendezvous::rendezvous(&config, stage::ROW_BYTES)?;
        let mut group = Self {
            rank,
            ranks,
            timeout: config.timeout,
            spins: false,
            liveness: joined.liveness,
            peers: joined.peers,
            stage: joined.stage,
            steps: Steps::new(Arc::new(joined.words), rank),
            step: 0,
            tasks: 0,
            buffers: 0,
            shares: 0,
            busy: false,
        };
        let cpus = rustix::thread::sched_getaffinity(None).map_err(io::Error::from)?;
        group.steps.set_cpus(|cpu| cpus.is_set(cpu));
        group.barrier()?;
        group.spins = group.steps.cpus_suffice(ranks);
        Ok(group)
    }

    /// Rank of this process.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    /// When the requests of ranks differ, or a rank is lost.
    pub fn barrier(&mut self) -> Result<(), GroupError> {
        self.begin(GroupTask::Barrier)?;
        self.end();
        Ok(())
    }

    /// Begins a task when all ranks have, and checks that all have begun the same one.
    fn begin(&mut self, task: GroupTask) -> Result<(), GroupError> {
        if self.busy {
            // After a panic, other ranks may have gone on: the counts of the ranks have diverged.
            self.steps.fail(self.ranks, self.rank, RankLossReason::Panicked);
        }
        if self.steps.failure().is_some() {
            return Err(self.loss_error());
        }
        self.busy = true;
        let begun = self.compare_tasks(task);
        if let Err(GroupError::Differs { .. }) = begun {
            self.end();
        }
        begun
    }

    /// Ends the task.
    fn end(&mut self) {
        self.busy = false;
    }

    /// Does one step, in which all ranks compare their tasks.
    fn compare_tasks(&mut self, task: GroupTask) -> Result<(), GroupError> {
        let number = self.tasks;
        self.tasks = number.wrapping_add(1);
        let own_task = task.words();
        self.steps.set_task(number, own_task);
        self.advance();
        self.wait_all(self.step)?;
        match self.other_ranks().find(|rank| self.steps.task(*rank, number) != own_task) {
            None => Ok(()),
            Some(rank) => {
                let other_task = GroupTask::from_words(self.steps.task(rank, number));
                Err(GroupError::Differs { rank, other_task, own_rank: self.rank, own_task: task })
            }
        }
    }

    /// Waits until all ranks have done the previous task.
    fn ready(&self) -> Result<(), GroupError> {
        if self.steps.failure().is_some() { Err(self.loss_error()) } else { self.wait_all(self.step) }
    }

    /// Publishes one step.
    #[inline]
    fn advance(&mut self) {
        self.step = self.step.wrapping_add(1);
        self.steps.publish(self.step);
    }

    fn other_ranks(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.ranks).filter(move |rank| *rank != own)
    }

    /// Waits until all ranks have done `step` steps.
    #[inline]
    fn wait_all(&self, step: u32) -> Result<(), GroupError> {
        self.other_ranks()
            .try_for_each(|rank| if self.steps.has_reached(rank, step) { Ok(()) } else { self.wait(rank, step) })
    }

    #[cold]
    fn wait(&self, rank: usize, step: u32) -> Result<(), GroupError> {
        if self.poll_soon(|| self.steps.has_reached(rank, step)) {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            self.steps.sleep(rank, step, LIVENESS_INTERVAL);
            if self.steps.has_reached(rank, step) {
                return Ok(());
            }
            if self.steps.failure().is_some() {
                return Err(self.loss_error());
            }
            let how = match () {
                () if self.steps.has_left(rank) => RankLossReason::Left,
                () if self.liveness.is_closed(rank) => RankLossReason::Died,
                () if begun.elapsed() >= self.timeout => RankLossReason::Late,
                () => continue,
            };
            // Its earlier steps count.
            return if self.steps.has_reached(rank, step) { Ok(()) } else { Err(self.fail(rank, how)) };
        }
    }

    /// Polls a condition that is likely to become true soon.
    fn poll_soon(&self, happened: impl Fn() -> bool) -> bool {
        if !self.spins {
            return (0..YIELDS).any(|_| {
                std::thread::yield_now();
                happened()
            });
        }
        let begun = Instant::now();
        loop {
            for _ in 0..64 {
                if happened() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if begun.elapsed() >= SPIN_TIME {
                return false;
            }
        }
    }

    fn fail(&self, rank: usize, how: RankLossReason) -> GroupError {
        let (rank, how) = self.steps.fail(self.ranks, rank, how);
        GroupError::Lost { rank, how }
    }

    /// Error of the failed group.
    fn loss_error(&self) -> GroupError {
        // Called only after the group has failed.
        let (rank, how) = self.steps.failure().unwrap_or((self.rank, RankLossReason::Panicked));
        GroupError::Lost { rank, how }
    }

    /// Creates memory with a row of `bytes` bytes for each rank: rank 0 creates it, and all ranks map it.
    fn create_shared_rows(&mut self, bytes: usize) -> Result<SharedRows, GroupError> {
        let mapped = if self.rank == 0 { self.send_rows(bytes) } else { self.receive_rows(bytes) }?;
        let agreed = self.compare_tasks(GroupTask::Made { mapped: mapped.is_ok() });
        match (agreed, mapped) {
            (Ok(()), Ok(rows)) => Ok(rows),
            // No rank has it: rank 0 could not create it.
            (Ok(()), Err(source)) => Err(self.end_out_of_memory(0, bytes, source)),
            (Err(GroupError::Differs { .. }), Err(source)) => Err(self.end_out_of_memory(self.rank, bytes, source)),
            (Err(GroupError::Differs { rank, .. }), Ok(_)) => Err(self.end_out_of_memory(rank, bytes, out_of_memory())),
            (Err(lost), _) => Err(lost),
        }
    }

    fn send_rows(&mut self, bytes: usize) -> Result<Result<SharedRows, MapError>, GroupError> {
        let made = SharedRows::create(self.ranks, bytes);
        for (k, peer) in self.peers.iter().enumerate() {
            let given = match &made {
                Ok((_, memory)) => rendezvous::send_handout(peer, Handout::Buffer, 0, memory.as_fd()),
                // A placeholder descriptor, which exists even when no more can be opened.
                Err(_) => rendezvous::send_handout(peer, Handout::NoBuffer, 0, peer.as_fd()),
            };
            given.map_err(|_| self.fail(k + 1, RankLossReason::Died))?;
        }
        Ok(made.map(|(rows, _)| rows))
    }

    fn receive_rows(&mut self, bytes: usize) -> Result<Result<SharedRows, MapError>, GroupError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let taken = rendezvous::receive_handout(&self.peers[0], deadline.min(Instant::now() + LIVENESS_INTERVAL));
            let how = match taken {
                Ok((kind, _, memory)) if kind == Handout::Buffer as u32 => {
                    return Ok(SharedRows::from_fd(&memory, self.ranks, bytes));
                }
                Ok(_) => return Ok(Err(out_of_memory())),
                Err(error) => match error.kind() {
                    // The message came without its descriptor: this process can open no more.
                    io::ErrorKind::InvalidData => return Ok(Err(MapError::System(Errno::MFILE.into()))),
                    io::ErrorKind::TimedOut if self.steps.failure().is_some() => return Err(self.loss_error()),
                    io::ErrorKind::TimedOut if Instant::now() < deadline => continue,
                    io::ErrorKind::TimedOut => RankLossReason::Late,
                    _ => RankLossReason::Died,
                },
            };
            return Err(self.fail(0, how));
        }
    }

    /// Ends the task without a buffer; the group can go on.
    fn end_out_of_memory(&mut self, rank: usize, bytes: usize, source: MapError) -> GroupError {
        self.end();
        GroupError::Memory { rank, bytes: bytes.saturating_mul(self.ranks), source }
    }
}

fn out_of_memory() -> MapError {
    MapError::System(io::ErrorKind::OutOfMemory.into())
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.busy && self.steps.failure().is_none() {
            self.steps.fail(self.ranks, self.rank, RankLossReason::Panicked);
        }
        self.steps.leave();
    }
}

#[cfg(test)]
mod tests;
