//! Work of the figure, the same on every side: locks taken and released, ballots decided. Callers of a side implement
//! [`Locks`] and [`Ballots`]; a turn runs them on all hosts.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::net::{Stopwatch, percentiles};
use crate::testbed::callers::Callers;

/// Hosts with callers, which are the voters of a ballot.
pub(super) const CALLERS: usize = 3;
/// Votes that decide a ballot: the threshold of `votes.nf`.
pub(super) const MAJORITY: usize = 2;
/// Concurrent calls of each caller where the rate counts.
pub(super) const CONCURRENT: usize = 8;
/// Share of the calls of one caller alone that each of many makes.
const SHARE: usize = 4;
/// Ballots of a round; the element has 1,024 rows for them.
const BALLOTS: usize = 240;

/// Locks of one caller.
pub(super) trait Locks: Clone + Send + 'static {
    /// Proof of a grant, which its release has to show.
    type Grant: Send;

    /// Takes a free lock.
    fn take(&self, lock: &str) -> impl Future<Output = Result<Self::Grant>> + Send;
    /// Releases exactly this grant of a lock.
    fn release(&self, lock: &str, grant: Self::Grant) -> impl Future<Output = Result<()>> + Send;
}

/// Ballots of one caller.
pub(super) trait Ballots: Clone + Send + 'static {
    /// Votes, and waits until the ballot is decided.
    fn cast(&self, ballot: Ballot) -> impl Future<Output = Result<()>> + Send;
    /// Deletes decided ballots.
    fn forget(&self, ballots: Vec<Ballot>) -> impl Future<Output = Result<()>> + Send;
}

/// Ballot that all callers vote in once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ballot {
    /// Number of the round: the ballots of a round are deleted together.
    pub(super) round: u64,
    /// Number of the ballot in its round.
    pub(super) number: usize,
}

impl Ballot {
    /// Name that no ballot of another round has: a decision that arrives late is of no later ballot.
    pub(super) fn unique_name(self) -> String {
        format!("ballot-{}-{}", self.round, self.number)
    }

    /// Ballots of the next round.
    fn next_round() -> Vec<Self> {
        static ROUNDS: AtomicU64 = AtomicU64::new(0);
        let round = ROUNDS.fetch_add(1, Ordering::Relaxed);
        (0..BALLOTS).map(|number| Self { round, number }).collect()
    }
}

/// Processor time so far of processes besides this one.
pub(super) type ProcessorTime<'a> = &'a dyn Fn() -> Result<Duration>;

/// Takes and releases free locks: median and 99th percentile of a grant to one caller alone, in microseconds; then the
/// locks taken and released in a second by all callers, several at a time each, and the processor time of all parties
/// for one of them, in microseconds.
pub(super) fn locks<S: Locks>(callers: &Callers<S>, cpu: ProcessorTime<'_>, calls: usize) -> Result<[f64; 4]> {
    let alone = callers.collect(move |number, caller| async move {
        if number > 0 { Ok(Vec::new()) } else { take_in_turn(caller, "lock".to_owned(), calls).await }
    })?;
    let [p50, p99] = percentiles(without_first_tenth(alone.concat()))?;
    let (watch, before) = (Stopwatch::start(), cpu()?);
    callers.collect(move |number, caller| async move {
        let mut running = JoinSet::new();
        for one in 0..CONCURRENT {
            running.spawn(take_in_turn(caller.clone(), format!("lock-{number}-{one}"), calls / SHARE));
        }
        running.join_all().await.into_iter().try_for_each(|took| took.map(drop))
    })?;
    let ((took, own), outside) = (watch.read(), cpu()?.saturating_sub(before));
    let [rate, cpu] = rate(took, own + outside, CALLERS * CONCURRENT * (calls / SHARE));
    Ok([p50, p99, rate, cpu])
}

/// Times of grants of one lock.
async fn take_in_turn<S: Locks>(caller: S, lock: String, calls: usize) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        let grant = caller.take(&lock).await?;
        took.push(began.elapsed());
        caller.release(&lock, grant).await?;
    }
    Ok(took)
}

/// Votes of all callers in the same ballots: median and 99th percentile from a vote to the decision with one ballot at
/// a time, in microseconds; then the ballots of some rounds decided in a second, several at a time, and the processor
/// time of all parties for one of them, in microseconds. Decided ballots are deleted, outside of the times.
pub(super) fn ballots<S: Ballots>(callers: &Callers<S>, cpu: ProcessorTime<'_>, rounds: usize) -> Result<[f64; 4]> {
    let ballots = Ballot::next_round();
    let cast = ballots.clone();
    let took = callers.collect(move |_, caller| vote_in_turn(caller, cast.clone()))?;
    let [p50, p99] = percentiles(took.into_iter().flat_map(without_first_tenth).collect())?;
    forget(callers, ballots)?;
    let (mut took, mut used) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        let ballots = Ballot::next_round();
        let cast = ballots.clone();
        let (watch, before) = (Stopwatch::start(), cpu()?);
        callers.collect(move |_, caller| {
            let cast = cast.clone();
            async move {
                let mut running = JoinSet::new();
                for first in 0..CONCURRENT {
                    let own = cast.iter().copied().skip(first).step_by(CONCURRENT).collect();
                    running.spawn(vote_in_turn(caller.clone(), own));
                }
                running.join_all().await.into_iter().try_for_each(|took| took.map(drop))
            }
        })?;
        let (round, own) = watch.read();
        took += round;
        used += own + cpu()?.saturating_sub(before);
        forget(callers, ballots)?;
    }
    let [rate, cpu] = rate(took, used, rounds * BALLOTS);
    Ok([p50, p99, rate, cpu])
}

/// Votes in ballots, one after the other; returns the times from vote to decision.
async fn vote_in_turn<S: Ballots>(caller: S, ballots: Vec<Ballot>) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(ballots.len());
    for ballot in ballots {
        let began = Instant::now();
        caller.cast(ballot).await?;
        took.push(began.elapsed());
    }
    Ok(took)
}

/// Deletes ballots, by the first caller.
fn forget<S: Ballots>(callers: &Callers<S>, ballots: Vec<Ballot>) -> Result<()> {
    let deleted = callers.collect(move |number, caller| {
        let ballots = ballots.clone();
        async move { if number > 0 { Ok(()) } else { caller.forget(ballots).await } }
    });
    deleted.map(drop)
}

/// Operations in a second, and the processor time of one in microseconds.
fn rate(took: Duration, used: Duration, operations: usize) -> [f64; 2] {
    let operations = operations as f64;
    [operations / took.as_secs_f64(), used.as_secs_f64() * 1e6 / operations]
}

fn without_first_tenth(mut took: Vec<Duration>) -> Vec<Duration> {
    took.split_off(took.len() / 10)
}

/// Votes of one caller that wait for their decision, which arrives by another way than the answer to the vote.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenVotes(Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>);

/// Vote that waits; dropping it ends the wait.
#[derive(Debug)]
pub(super) struct OpenVote(oneshot::Receiver<()>);

impl OpenVotes {
    /// Begins to wait, before the vote is sent.
    pub(super) fn open(&self, ballot: &str) -> OpenVote {
        let (decided, decision) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(ballot.to_owned(), decided);
        OpenVote(decision)
    }

    /// Ends the wait for a decided ballot, if there is one.
    pub(super) fn decide(&self, ballot: &str) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(ballot);
        // The vote may have learnt the decision by its answer.
        let _ = waiting.map(|decided| decided.send(()));
    }
}

impl OpenVote {
    /// Waits for the decision, unless as many votes as were counted decide.
    pub(super) async fn decided(self, votes: usize) -> Result<()> {
        if votes < MAJORITY { self.0.await.context("the connection of decisions has ended") } else { Ok(()) }
    }
}
