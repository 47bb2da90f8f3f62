//! All-reduce compared with a plain loop over ranks: threads as ranks, in any number, with all types, operations and
//! sizes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pathcall_place::reduce::{AllReduce, Config, Group, ReduceOp, ReducibleNumber};
use proptest::prelude::*;

/// Boundary sizes: zero, less than a cache line, a part, a piece and more; most are odd.
const SIZES: [usize; 12] = [0, 1, 2, 15, 33, 1000, 16_384, 16_387, 32_768, 65_551, 131_072, 200_003];

/// Timeout, longer than pauses of the machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Value type with arbitrary bits.
trait Dice: ReducibleNumber {
    fn dice(bits: u64) -> Self;
    /// Whether this is the plain loop's result: the same bits, or an equivalent value.
    fn is(self, other: Self) -> bool;
    fn bits(self) -> u64;
}

macro_rules! dice {
    ($($number:ty: $dice:expr, $bits:expr;)*) => {$(
        impl Dice for $number {
            fn dice(bits: u64) -> Self {
                $dice(bits)
            }
            // The payload of a NaN, and which of two zeros is smaller, are not specified.
            #[allow(clippy::eq_op, reason = "what is not equal to itself is not a number")]
            fn is(self, other: Self) -> bool {
                self.bits() == other.bits()
                    || (self != self && other != other)
                    || self == other && self == Self::default()
            }
            fn bits(self) -> u64 {
                $bits(self)
            }
        }
    )*};
}
dice! {
    f32: |bits| f32::from_bits(bits as u32), |value: f32| u64::from(value.to_bits());
    f64: f64::from_bits, f64::to_bits;
    i32: |bits| bits as i32, |value| value as u32 as u64;
    i64: |bits| bits as i64, |value| value as u64;
}

/// Value of a rank at index `i`: of many magnitudes, so that the order of a sum matters; also NaN.
fn value<T: Dice>(seed: u64, rank: usize, i: usize) -> T {
    let mut bits = seed ^ (rank as u64) << 40 ^ i as u64;
    for _ in 0..2 {
        bits = (bits ^ bits >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    T::dice(bits ^ bits >> 29)
}

/// Result of a plain loop.
fn right<T: Dice>(seed: u64, ranks: usize, i: usize, op: ReduceOp) -> T {
    (1..ranks).fold(value(seed, 0, i), |all: T, rank| all.by(op, value(seed, rank, i)))
}

fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("reduce-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs `work` on each rank of a group; returns the results.
fn each<R: Send>(ranks: usize, work: impl Fn(Group) -> R + Sync) -> Vec<R> {
    let name = name();
    let config = |rank| Config::new(&name, rank, ranks).timeout(PATIENCE);
    let run = |rank| work(Group::join(&config(rank)).expect("all answers arrive"));
    let run = &run;
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// Reduces a registered buffer and private values; returns the bits of the results.
fn reduce<T: Dice>(group: &mut Group, len: usize, op: ReduceOp, seed: u64) -> [Vec<u64>; 2] {
    let (rank, ranks) = (group.rank(), group.ranks());
    let mut buffer = group.buffer::<T>(len).expect("memory");
    let mut values: Vec<T> = (0..len).map(|i| value(seed, rank, i)).collect();
    buffer.copy_from_slice(&values);
    group.all_reduce(&mut buffer, op).expect("all values present");
    group.all_reduce_slice(&mut values, op).expect("all values present");
    for (i, (one, other)) in buffer.iter().zip(&values).enumerate() {
        let right = right::<T>(seed, ranks, i, op);
        assert!(one.is(right) && other.is(right), "{op} of {ranks} at {i} of {len}: {one:?}, {other:?}, not {right:?}");
    }
    [buffer.iter().map(|value| value.bits()).collect(), values.iter().map(|value| value.bits()).collect()]
}

/// Expects results that are equal bit by bit at all ranks.
fn agree<T: Dice>(ranks: usize, lens: &[usize], op: ReduceOp, seed: u64) {
    let results =
        each(ranks, |mut group| lens.iter().map(|len| reduce::<T>(&mut group, *len, op, seed)).collect::<Vec<_>>());
    assert!(results.iter().all(|result| *result == results[0]));
}

fn of(kind: usize, ranks: usize, lens: &[usize], op: ReduceOp, seed: u64) {
    match kind {
        0 => agree::<f32>(ranks, lens, op, seed),
        1 => agree::<f64>(ranks, lens, op, seed),
        2 => agree::<i32>(ranks, lens, op, seed),
        _ => agree::<i64>(ranks, lens, op, seed),
    }
}

#[test]
fn reduction_is_right_at_boundary_sizes() {
    for ranks in 1..=5 {
        of(0, ranks, &SIZES, ReduceOp::Sum, ranks as u64);
    }
    of(1, 2, &SIZES, ReduceOp::Sum, 7);
    of(3, 3, &SIZES, ReduceOp::Max, 8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn reduction_equals_plain_loop_over_ranks(
        kind in 0..4_usize,
        ranks in 1..=6_usize,
        lens in prop::collection::vec(prop_oneof![0..200_usize, 0..60_000_usize], 1..5),
        op in prop::sample::select(ReduceOp::ALL.to_vec()),
        seed in any::<u64>(),
    ) {
        of(kind, ranks, &lens, op, seed);
    }
}

/// The order of ranks matters: another one would give other sums.
#[test]
fn sums_are_in_order_of_ranks() {
    let parts = [1.0e8_f32, 1.0, -1.0e8, 1.0];
    assert_ne!((parts[0] + parts[1]) + (parts[2] + parts[3]), ((parts[0] + parts[1]) + parts[2]) + parts[3]);
    each(4, |mut group| {
        let mut values = vec![parts[group.rank()]; 50_000];
        let mut buffer = group.buffer::<f32>(values.len()).expect("memory");
        buffer.copy_from_slice(&values);
        group.all_reduce_slice(&mut values, ReduceOp::Sum).expect("all values present");
        group.all_reduce(&mut buffer, ReduceOp::Sum).expect("all values present");
        assert!(values.iter().chain(&*buffer).all(|value| *value == 1.0));
    });
}

/// Many groups in one process, each with sequential calls of all kinds, for `PATHCALL_HAMMER` seconds.
#[test]
fn many_groups_reduce_concurrently() {
    let seconds = std::env::var("PATHCALL_HAMMER").ok().map_or(1, |value| value.parse().expect("seconds"));
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for (seed, ranks) in [2, 3, 2, 4].into_iter().enumerate() {
            scope.spawn(move || {
                let calls = each(ranks, |mut group| hammer(&mut group, seed as u64, end));
                assert!(calls.iter().all(|count| *count == calls[0] && *count > 0), "{calls:?}");
            });
        }
    });
}

fn hammer(group: &mut Group, seed: u64, end: Instant) -> usize {
    let (rank, ranks) = (group.rank(), group.ranks());
    let mut buffers: Vec<_> = (0..3).map(|k| group.buffer::<i32>(40_000 * k + 9).expect("memory")).collect();
    let mut slice = vec![0_i64; 70_000];
    for call in 0.. {
        let dice: i64 = value(seed, 0, call);
        let (turn, len) = (seed ^ call as u64, (dice as usize % 70_000) >> ((dice as usize >> 20) % 12));
        let op = ReduceOp::ALL[call % 3];
        match dice as usize >> 40 & 3 {
            0 => {
                let values = &mut slice[..len];
                values.iter_mut().enumerate().for_each(|(i, v)| *v = value(turn, rank, i));
                group.all_reduce_slice(values, op).expect("all values present");
                assert!(values.iter().enumerate().all(|(i, v)| *v == right::<i64>(turn, ranks, i, op)), "call {call}");
            }
            1 => group.barrier().expect("all values present"),
            _ => {
                let buffer = &mut buffers[call % 3];
                buffer.iter_mut().enumerate().for_each(|(i, v)| *v = value(turn, rank, i));
                group.all_reduce(buffer, op).expect("all values present");
                assert!(buffer.iter().enumerate().all(|(i, v)| *v == right::<i32>(turn, ranks, i, op)), "call {call}");
            }
        }
        // Only rank 0 reads the clock; the others get its decision.
        let mut over = [i32::from(rank == 0 && Instant::now() >= end)];
        group.all_reduce_slice(&mut over, ReduceOp::Max).expect("all values present");
        if over != [0] {
            return call + 1;
        }
    }
    unreachable!("calls without end");
}
