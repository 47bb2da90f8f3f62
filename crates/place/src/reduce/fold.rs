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

/// Runs a loop with the function of an operation, which is a constant there.
macro_rules! vectorised {
    ($op:expr, $by:ident => $loop:expr) => {
        match $op {
            ReduceOp::Sum => vectorised!(T::sum, $by, $loop),
            ReduceOp::Min => vectorised!(T::smaller, $by, $loop),
            ReduceOp::Max => vectorised!(T::larger, $by, $loop),
        }
    };
    ($function:expr, $by:ident, $loop:expr) => {{
        let $by = $function;
        pulp::Arch::new().dispatch(|| $loop)
    }};
}

/// Writes the result to both arrays; `one` is the first operand.
pub(super) fn both<T: ReducibleNumber>(op: ReduceOp, one: &mut [T], other: &mut [T]) {
    vectorised!(op, by => for (one, other) in one.iter_mut().zip(other) {
        let result = by(*one, *other);
        (*one, *other) = (result, result);
    });
}

/// Writes the result to `all`, the first operand.
pub(super) fn into<T: ReducibleNumber>(op: ReduceOp, all: &mut [T], next: &[T]) {
    vectorised!(op, by => for (all, next) in all.iter_mut().zip(next) {
        *all = by(*all, *next);
    });
}

/// Writes the result to `out`.
pub(super) fn to<T: ReducibleNumber>(op: ReduceOp, one: &[T], other: &[T], out: &mut [T]) {
    vectorised!(op, by => for ((one, other), out) in one.iter().zip(other).zip(out) {
        *out = by(*one, *other);
    });
}
