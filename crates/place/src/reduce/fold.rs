//! Two arrays become one, value by value.
//!
//! Plain loops that the compiler turns into vector instructions, for the best set of them that the processor has.
//! A value depends on its two operands only, never on how many were done side by side.

use pathcall_shm::group::{Op, Plain};

/// Numbers that can be reduced.
pub trait Number: Plain {
    /// Integers wrap around.
    #[must_use]
    fn sum(self, other: Self) -> Self;
    /// The lesser; where one is not a number, the other.
    #[must_use]
    fn least(self, other: Self) -> Self;
    /// The greater; where one is not a number, the other.
    #[must_use]
    fn greatest(self, other: Self) -> Self;

    /// By an operation.
    #[must_use]
    fn by(self, op: Op, other: Self) -> Self {
        match op {
            Op::Sum => self.sum(other),
            Op::Min => self.least(other),
            Op::Max => self.greatest(other),
        }
    }
}

macro_rules! numbers {
    ($($number:ty: $sum:expr),*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                $sum(self, other)
            }
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )*};
}
numbers!(f32: std::ops::Add::add, f64: std::ops::Add::add, i32: i32::wrapping_add, i64: i64::wrapping_add);

/// Both become the result, `one` being the first operand.
pub(super) fn both<T: Number>(op: Op, one: &mut [T], other: &mut [T]) {
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
        Op::Sum => by(one, other, T::sum),
        Op::Min => by(one, other, T::least),
        Op::Max => by(one, other, T::greatest),
    }
}

/// `all`, the first operand, becomes the result.
pub(super) fn into<T: Number>(op: Op, all: &mut [T], next: &[T]) {
    #[inline(always)]
    fn by<T: Copy>(all: &mut [T], next: &[T], f: impl Fn(T, T) -> T) {
        pulp::Arch::new().dispatch(|| {
            for (all, next) in all.iter_mut().zip(next) {
                *all = f(*all, *next);
            }
        });
    }
    match op {
        Op::Sum => by(all, next, T::sum),
        Op::Min => by(all, next, T::least),
        Op::Max => by(all, next, T::greatest),
    }
}

/// `out` becomes the result.
pub(super) fn to<T: Number>(op: Op, one: &[T], other: &[T], out: &mut [T]) {
    #[inline(always)]
    fn by<T: Copy>(one: &[T], other: &[T], out: &mut [T], f: impl Fn(T, T) -> T) {
        pulp::Arch::new().dispatch(|| {
            for ((one, other), out) in one.iter().zip(other).zip(out) {
                *out = f(*one, *other);
            }
        });
    }
    match op {
        Op::Sum => by(one, other, out, T::sum),
        Op::Min => by(one, other, out, T::least),
        Op::Max => by(one, other, out, T::greatest),
    }
}
