//! Element-wise reduction of two arrays.
//!
//! Plain loops that the compiler vectorises for the best instruction set of the processor. A value depends only on
//! its two operands, not on the vector width.

use pathcall_shm::group::{PlainNumber, ReduceOp};

/// Number types that can be reduced.
pub trait ReducibleNumber: PlainNumber {
    /// Sum; integers wrap around.
    #[must_use]
    fn sum(self, other: Self) -> Self;
    /// Minimum; NaN is ignored.
    #[must_use]
    fn smaller(self, other: Self) -> Self;
    /// Maximum; NaN is ignored.
    #[must_use]
    fn larger(self, other: Self) -> Self;

    /// Applies an operation.
    #[must_use]
    fn by(self, op: ReduceOp, other: Self) -> Self {
        match op {
            ReduceOp::Sum => self.sum(other),
            ReduceOp::Min => self.smaller(other),
            ReduceOp::Max => self.larger(other),
        }
    }
}

macro_rules! numbers {
    ($($number:ty: $sum:expr),*) => {$(
        impl ReducibleNumber for $number {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                $sum(self, other)
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )*};
}
numbers!(f32: std::ops::Add::add, f64: std::ops::Add::add, i32: i32::wrapping_add, i64: i64::wrapping_add);

/// Writes the result to both arrays; `one` is the first operand.
pub(super) fn both<T: ReducibleNumber>(op: ReduceOp, one: &mut [T], other: &mut [T]) {
    #[inline(always)]
    fn by<T: Copy>(one: &mut [T], other: &mut [T], f: impl Fn(T, T) -> T) {
        pulp::Arch::new().dispatch(|| {
            for (one, other) in one.iter_mut().zip(other) {
                let result = f(*one, *other);
                (*one, *other) = (result, result);
            }
        });
    }
    match op {
        ReduceOp::Sum => by(one, other, T::sum),
        ReduceOp::Min => by(one, other, T::smaller),
        ReduceOp::Max => by(one, other, T::larger),
    }
}

/// Writes the result to `all`, the first operand.
pub(super) fn into<T: ReducibleNumber>(op: ReduceOp, all: &mut [T], next: &[T]) {
    #[inline(always)]
    fn by<T: Copy>(all: &mut [T], next: &[T], f: impl Fn(T, T) -> T) {
        pulp::Arch::new().dispatch(|| {
            for (all, next) in all.iter_mut().zip(next) {
                *all = f(*all, *next);
            }
        });
    }
    match op {
        ReduceOp::Sum => by(all, next, T::sum),
        ReduceOp::Min => by(all, next, T::smaller),
        ReduceOp::Max => by(all, next, T::larger),
    }
}

/// Writes the result to `out`.
pub(super) fn to<T: ReducibleNumber>(op: ReduceOp, one: &[T], other: &[T], out: &mut [T]) {
    #[inline(always)]
    fn by<T: Copy>(one: &[T], other: &[T], out: &mut [T], f: impl Fn(T, T) -> T) {
        pulp::Arch::new().dispatch(|| {
            for ((one, other), out) in one.iter().zip(other).zip(out) {
                *out = f(*one, *other);
            }
        });
    }
    match op {
        ReduceOp::Sum => by(one, other, out, T::sum),
        ReduceOp::Min => by(one, other, out, T::smaller),
        ReduceOp::Max => by(one, other, out, T::larger),
    }
}
