//! A group of processes of one host, its *ranks*, that work together on values in memory which all have mapped.
//!
//! ```text
//! join ── meet by name ──▶ Group ── buffer ──▶ Buffer: registered values
//!                            │
//!                            ├─ share(buffer, work)    registered: each part of all rows, by whoever is free
//!                            ├─ pass(values, work)     private: pieces go in, shares are worked on, results come out
//!                            └─ barrier
//! ```
//!
//! Every call is one that all ranks make, in the same order, with the same lengths, types and operations: they compare
//! these before anybody touches a value, and a difference is an error at all of them that costs nothing else. A rank
//! that dies, leaves or does not come in time fails the group, for all and for good: it is to be joined anew, under a
//! name of its own or when all have dropped the old one.
//!
//! What is done to values is the caller's business (`pathcall-place` reduces them). In the order of a group's life:
//! `meet` brings the ranks together; `area` is their memory, `steps` how they wait for each other, `task` what
//! they agree on; `buffer` and `stage` bring values to where they are worked on.
//!
//! **Ranks trust each other**, other than the two sides of a [ring](crate::ring): they belong to one user, which is
//! checked, and run the same code. One that ends at any instruction, stops or lags harms nobody but by its absence; one
//! that writes where it should not can make the values of others anything.

mod area;
mod buffer;
mod error;
mod meet;
mod stage;
mod steps;
mod task;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

pub use buffer::{Buffer, Part};
pub use error::{GroupError, How, Refusal};
pub use stage::{Others, Share};
pub use steps::RANKS_MAX;
pub use task::{Op, Plain, Task, Type};

use area::{Rows, Words};
use meet::{Gift, Lives};
use steps::Steps;

use crate::memory::MapError;
use crate::peer::Peer;

/// Bytes of a group's name, at most.
pub const NAME_MAX: usize = 90;
/// How long ranks wait for one, unless told otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Nobody waits longer than a year.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long to look for a rank's step before sleeping, where each rank can have a processor: somewhat more than a
/// sleeper takes to wake.
const LOOK: Duration = Duration::from_micros(50);
/// How often to give the processor away before sleeping, where ranks share them.
const YIELDS: u32 = 20;
/// How often a sleeper looks whether the one that it waits for is alive.
const TICK: Duration = Duration::from_millis(10);

/// Which group a process joins, and as what.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the ranks meet by, in their network namespace: no two groups at a time have the same.
    pub name: String,
    /// Which rank this is, from 0 on.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// How long one waits for another that is alive: to meet, and later for its part of a task.
    pub timeout: Duration,
}

impl Config {
    /// Rank `rank` of `ranks`, with the usual time-out.
    pub fn new(name: impl Into<String>, rank: usize, ranks: usize) -> Self {
        Self { name: name.into(), rank, ranks, timeout: TIMEOUT }
    }

    /// With this time-out.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

/// One rank's end of a group.
#[derive(Debug)]
pub struct Group {
    rank: usize,
    ranks: usize,
    timeout: Duration,
    /// Whether each rank can have a processor of its own.
    spins: bool,
    lives: Lives,
    peers: Vec<Peer>,
    stage: Rows,
    steps: Steps<Words>,
    /// Steps that this rank has done, tasks that it has begun, buffers that it has made and worked on: the same
    /// numbers at all ranks. They count around.
    step: u32,
    tasks: u32,
    buffers: u32,
    shares: u32,
    /// In the middle of a task: true afterwards, if that was left by a panic.
    busy: bool,
}

impl Group {
    /// Meets the other ranks.
    ///
    /// # Errors
    /// When there can be no such group, a rank does not come in time, or is refused.
    pub fn join(config: &Config) -> Result<Self, GroupError> {
        let &Config { rank, ranks, .. } = config;
        if rank >= ranks || ranks > RANKS_MAX {
            return Err(GroupError::Rank { rank, ranks, most: RANKS_MAX });
        }
        if config.name.is_empty() || config.name.len() > NAME_MAX {
            return Err(GroupError::Name { got: config.name.len(), most: NAME_MAX });
        }
        let config = Config { timeout: config.timeout.min(TIMEOUT_MAX), ..config.clone() };
        let met = meet::meet(&config, stage::ROW_BYTES)?;
        let mut group = Self {
            rank,
            ranks,
            timeout: config.timeout,
            spins: false,
            lives: met.lives,
            peers: met.peers,
            stage: met.stage,
            steps: Steps::new(Arc::new(met.words), rank),
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

    /// Which rank this is.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// When ranks differ, or one is lost.
    pub fn barrier(&mut self) -> Result<(), GroupError> {
        self.begin(Task::Barrier)?;
        self.end();
        Ok(())
    }

    /// Begins a task when all ranks have come to it, and finds that all have come to the same.
    fn begin(&mut self, task: Task) -> Result<(), GroupError> {
        if self.busy {
            // Others may or may not have gone on: what they and this one think of whose turn it is has parted.
            self.steps.fail(self.ranks, self.rank, How::Panicked);
        }
        if self.steps.failure().is_some() {
            return Err(self.lost());
        }
        self.busy = true;
        let begun = self.agree(task);
        if let Err(GroupError::Differs { .. }) = begun {
            self.end();
        }
        begun
    }

    /// Ends it.
    fn end(&mut self) {
        self.busy = false;
    }

    /// One step, by which all know what the others do.
    fn agree(&mut self, task: Task) -> Result<(), GroupError> {
        let number = self.tasks;
        self.tasks = number.wrapping_add(1);
        let ours = task.words();
        self.steps.set_task(number, ours);
        self.advance();
        self.wait_all(self.step)?;
        match self.others().find(|rank| self.steps.task(*rank, number) != ours) {
            None => Ok(()),
            Some(rank) => {
                let theirs = Task::from_words(self.steps.task(rank, number));
                Err(GroupError::Differs { rank, theirs, own_rank: self.rank, ours: task })
            }
        }
    }

    /// Waits until all ranks are done with what was before.
    fn ready(&self) -> Result<(), GroupError> {
        if self.steps.failure().is_some() { Err(self.lost()) } else { self.wait_all(self.step) }
    }

    /// One step done.
    #[inline]
    fn advance(&mut self) {
        self.step = self.step.wrapping_add(1);
        self.steps.publish(self.step);
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.ranks).filter(move |rank| *rank != own)
    }

    /// Waits until all have done so many steps.
    #[inline]
    fn wait_all(&self, step: u32) -> Result<(), GroupError> {
        self.others().try_for_each(|rank| if self.steps.reached(rank, step) { Ok(()) } else { self.wait(rank, step) })
    }

    #[cold]
    fn wait(&self, rank: usize, step: u32) -> Result<(), GroupError> {
        if self.look(|| self.steps.reached(rank, step)) {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            self.steps.sleep(rank, step, TICK);
            if self.steps.reached(rank, step) {
                return Ok(());
            }
            if self.steps.failure().is_some() {
                return Err(self.lost());
            }
            let how = match () {
                () if self.steps.has_left(rank) => How::Left,
                () if self.lives.is_over(rank) => How::Died,
                () if begun.elapsed() >= self.timeout => How::Late,
                () => continue,
            };
            // What it did before counts.
            return if self.steps.reached(rank, step) { Ok(()) } else { Err(self.fail(rank, how)) };
        }
    }

    /// Looks for something that is about to happen.
    fn look(&self, happened: impl Fn() -> bool) -> bool {
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
            if begun.elapsed() >= LOOK {
                return false;
            }
        }
    }

    fn fail(&self, rank: usize, how: How) -> GroupError {
        let (rank, how) = self.steps.fail(self.ranks, rank, how);
        GroupError::Lost { rank, how }
    }

    /// The failure that is there.
    fn lost(&self) -> GroupError {
        // A group has always failed when this is asked.
        let (rank, how) = self.steps.failure().unwrap_or((self.rank, How::Panicked));
        GroupError::Lost { rank, how }
    }

    /// Memory with a row of so many bytes for each rank, made by rank 0 and mapped by all.
    fn spread(&mut self, bytes: usize) -> Result<Rows, GroupError> {
        let mapped = if self.rank == 0 { self.give(bytes) } else { self.take(bytes) }?;
        let agreed = self.agree(Task::Made { mapped: mapped.is_ok() });
        match (agreed, mapped) {
            (Ok(()), Ok(rows)) => Ok(rows),
            // Nobody has it: rank 0 could not make it.
            (Ok(()), Err(source)) => Err(self.unmade(0, bytes, source)),
            (Err(GroupError::Differs { .. }), Err(source)) => Err(self.unmade(self.rank, bytes, source)),
            (Err(GroupError::Differs { rank, .. }), Ok(_)) => Err(self.unmade(rank, bytes, short())),
            (Err(lost), _) => Err(lost),
        }
    }

    fn give(&mut self, bytes: usize) -> Result<Result<Rows, MapError>, GroupError> {
        let made = Rows::make(self.ranks, bytes);
        for (k, peer) in self.peers.iter().enumerate() {
            let given = match &made {
                Ok((_, memory)) => meet::give(peer, Gift::Buffer, 0, memory.as_fd()),
                // A descriptor that means nothing, and that is there when no more can be had.
                Err(_) => meet::give(peer, Gift::NoBuffer, 0, peer.as_fd()),
            };
            given.map_err(|_| self.fail(k + 1, How::Died))?;
        }
        Ok(made.map(|(rows, _)| rows))
    }

    fn take(&mut self, bytes: usize) -> Result<Result<Rows, MapError>, GroupError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let taken = meet::take(&self.peers[0], deadline.min(Instant::now() + TICK));
            let how = match taken {
                Ok((gift, _, memory)) if gift == Gift::Buffer as u32 => {
                    return Ok(Rows::take(&memory, self.ranks, bytes));
                }
                Ok(_) => return Ok(Err(short())),
                Err(error) => match error.kind() {
                    // It came without its descriptor: this process can have no more.
                    io::ErrorKind::InvalidData => return Ok(Err(MapError::System(Errno::MFILE.into()))),
                    io::ErrorKind::TimedOut if self.steps.failure().is_some() => return Err(self.lost()),
                    io::ErrorKind::TimedOut if Instant::now() < deadline => continue,
                    io::ErrorKind::TimedOut => How::Late,
                    _ => How::Died,
                },
            };
            return Err(self.fail(0, how));
        }
    }

    /// There is no buffer; the group goes on.
    fn unmade(&mut self, rank: usize, bytes: usize, source: MapError) -> GroupError {
        self.end();
        GroupError::Memory { rank, bytes: bytes.saturating_mul(self.ranks), source }
    }
}

fn short() -> MapError {
    MapError::System(io::ErrorKind::OutOfMemory.into())
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.busy && self.steps.failure().is_none() {
            self.steps.fail(self.ranks, self.rank, How::Panicked);
        }
        self.steps.leave();
    }
}

#[cfg(test)]
mod tests;
