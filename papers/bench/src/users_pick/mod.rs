//! `users-pick`: locks, counts and ballots between hosts of a testbed, compared with what a user would take instead:
//! Redis, and etcd.
//!
//! ```text
//! host 1: Pathcall's server, or the store ══╗
//! hosts 2 to 4: callers ════════════════════╩══ element, if the case has one
//! ```
//!
//! Callers, calls and results are the same on each side ([`work`]). Redis keeps nothing on disk, as Pathcall's server.
//! etcd has each write on disk before its answer, which Pathcall has not; so it runs once more with its disk in memory.

mod etcd;
mod ours;
mod process;
mod redis;
mod work;

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pathcall_testbed::Testbed;

use self::etcd::EtcdCaller;
use self::ours::{Processed, check_place, processed};
use self::process::{StoreKind, StoreProcess};
use self::redis::RedisCaller;
use self::work::{Ballots, CALLERS, CONCURRENT, Locks, ProcessorTime};
use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::Stopwatch;
use crate::netrpc_async::{CountClient, batch};
use crate::testbed::callers::Callers;
use crate::testbed::{ElementTestbed, Hop, has_xdp, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "users-pick",
    about: "locks, counts and ballots beside Redis and etcd, between hosts of a testbed",
    kind: Kind::Measured,
    run,
};

/// Size of a turn: so long that the processor time of the store, which the kernel counts in steps of 10 ms, is known.
#[derive(Clone, Copy)]
struct Size {
    /// Locks of a caller.
    locks: usize,
    /// Rounds of ballots.
    rounds: usize,
}

const OF_REDIS: Size = Size { locks: 8000, rounds: 40 };
const OF_ETCD: Size = Size { locks: 1000, rounds: 2 };
const QUICK: Size = Size { locks: 16, rounds: 1 };
/// Batches of a caller in a turn, and the pairs of one.
const BATCHES: usize = 200;
const BATCHES_QUICK: usize = 2;
const PAIRS: usize = 1000;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User, Hop::NoElement];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    for kind in [StoreKind::Redis, StoreKind::Etcd, StoreKind::EtcdInMemory] {
        if let Some(why) = kind.missing() {
            bench.print_note(&format!("no rows beside {}: {why}", kind.name()));
            continue;
        }
        let bare = stage(Hop::NoElement)?;
        let store = kind.start(&bare)?;
        let server = store.address;
        if kind == StoreKind::Redis {
            let callers = Callers::of_process(&bare, CALLERS, move || RedisCaller::connect(server))?;
            agreements(bench, &hops, kind, &store, &callers)?;
            counts(bench, &hops, kind, &store, callers)?;
        } else {
            // What the disk costs shows beside the same case of ours: one is enough.
            let hops = if kind == StoreKind::Etcd { &hops[..] } else { &[Hop::NoElement] };
            let callers = Callers::of_process(&bare, CALLERS, move || EtcdCaller::connect(server))?;
            agreements(bench, hops, kind, &store, &callers)?;
        }
    }
    Ok(())
}

fn stage(hop: Hop) -> Result<ElementTestbed> {
    ElementTestbed::start(Testbed::builder().hosts(1 + CALLERS), hop)
}

/// Processor time of parties of this process alone.
const NO_PROCESS: ProcessorTime<'_> = &|| Ok(Duration::ZERO);

/// Rows of locks and ballots, with each element.
fn agreements<P: Locks + Ballots>(
    bench: &mut Bench,
    hops: &[Hop],
    kind: StoreKind,
    store: &StoreProcess,
    peer: &Callers<P>,
) -> Result<()> {
    let size = if kind == StoreKind::Redis { OF_REDIS } else { OF_ETCD };
    let Size { locks, rounds } = bench.size(size, QUICK);
    let outside = || store.cpu();
    for hop in hops {
        let stage = stage(*hop)?;
        let ours = ours::small(&stage)?;
        let by_element = bench.size(Some(*hop != Hop::NoElement), None);
        let metrics = |one: &str, many: &str, unit, each| {
            let metric = |case: String, unit, better| Metric::new(case, kind.name(), unit, better);
            [
                metric(format!("{one}, {}, p50", hop.name()), "us", Better::Lower),
                metric(format!("{one}, {}, p99", hop.name()), "us", Better::Lower),
                metric(format!("{many}, {}", hop.name()), unit, Better::Higher),
                metric(format!("{many}, {}, CPU of all", hop.name()), each, Better::Lower),
            ]
        };
        let many = format!("{} locks at a time", CALLERS * CONCURRENT);
        let of_locks = metrics("a free lock", &many, "locks/s", "us/lock");
        let turn = || placed(&ours, by_element, || work::locks(&ours, NO_PROCESS, locks));
        bench.compare(of_locks, turn, || work::locks(peer, &outside, locks))?;
        let many = format!("{CONCURRENT} ballots at a time");
        let of_ballots = metrics("a vote until the decision", &many, "ballots/s", "us/ballot");
        let turn = || placed(&ours, by_element, || work::ballots(&ours, NO_PROCESS, rounds));
        bench.compare(of_ballots, turn, || work::ballots(peer, &outside, rounds))?;
    }
    Ok(())
}

/// Rows of counts, with each element.
fn counts<P: CountClient + Clone>(
    bench: &mut Bench,
    hops: &[Hop],
    kind: StoreKind,
    store: &StoreProcess,
    peer: Callers<P>,
) -> Result<()> {
    let batches = bench.size(BATCHES, BATCHES_QUICK);
    let mut peer = Counting { callers: peer, turns: 0 };
    for hop in hops {
        let stage = stage(*hop)?;
        let mut ours = Counting { callers: ours::words(&stage)?, turns: 0 };
        let case = format!("{CALLERS} callers count, {PAIRS} words a call, {}", hop.name());
        let metrics = [
            Metric::new(case.clone(), kind.name(), "counts/s", Better::Higher),
            Metric::new(format!("{case}, CPU of all"), kind.name(), "ns/count", Better::Lower),
        ];
        let by_element = bench.size(Some(*hop != Hop::NoElement), None);
        let turn = || {
            let before = processed(&ours.callers);
            let results = ours.turn(NO_PROCESS, batches)?;
            by_element.map_or(Ok(()), |by_element| check_place(before, processed(&ours.callers), by_element))?;
            Ok(results)
        };
        bench.compare(metrics, turn, || peer.turn(&|| store.cpu(), batches))?;
    }
    Ok(())
}

/// Runs a turn, and checks that its values were processed where its case says; not in quick runs, which may be over
/// before the element has memory, or run beside others.
fn placed<S: Processed + Clone + Send + 'static, T>(
    callers: &Callers<S>,
    by_element: Option<bool>,
    turn: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let before = processed(callers);
    let results = turn()?;
    by_element.map_or(Ok(()), |by_element| check_place(before, processed(callers), by_element))?;
    Ok(results)
}

/// Callers that count words.
struct Counting<S> {
    callers: Callers<S>,
    /// Number of turns, which determines the expected counts.
    turns: usize,
}

impl<S: CountClient + Clone> Counting<S> {
    /// Counts per second, and the processor time of all parties for one, in nanoseconds. All counts are then read and
    /// checked, outside of the times.
    fn turn(&mut self, cpu: ProcessorTime<'_>, batches: usize) -> Result<[f64; 2]> {
        let (watch, before) = (Stopwatch::start(), cpu()?);
        self.callers.each(move |mut caller| async move {
            for number in 0..batches {
                caller.count(batch(number)).await?;
            }
            Ok(())
        })?;
        let ((took, own), outside) = (watch.read(), cpu()?.saturating_sub(before));
        let done = (CALLERS * batches * PAIRS) as f64;
        self.turns += 1;
        let mut expected: HashMap<String, i64> = HashMap::new();
        for (word, count) in (0..batches).flat_map(batch) {
            *expected.entry(word).or_default() += count * (CALLERS * self.turns) as i64;
        }
        let found = self.callers.collect(|number, mut caller| async move {
            if number > 0 { Ok(None) } else { caller.all().await.map(Some) }
        })?;
        let found = found.into_iter().flatten().next().context("no callers")?;
        ensure!(found == expected, "wrong counts of {} words, expected {}", found.len(), expected.len());
        Ok([done / took.as_secs_f64(), (own + outside).as_nanos() as f64 / done])
    }
}
