//! Descriptions of the tasks of a group, encoded in words that the ranks compare.

use std::fmt;

use super::steps::TASK_WORDS;

/// Operation that reduces values to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum, in the order of ranks; integers wrap around.
    Sum = 0,
    /// Minimum. NaN is the result only if all values are NaN.
    Min = 1,
    /// Maximum; NaN as for the minimum.
    Max = 2,
}

impl ReduceOp {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Sum, Self::Min, Self::Max];
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
        })
    }
}

/// Type of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the variants are named after types")]
pub enum NumberType {
    F32 = 0,
    F64 = 1,
    I32 = 2,
    I64 = 3,
}

impl fmt::Display for NumberType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::I64 => "i64",
        })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Number type of which any bits are valid, so that other processes may write its values.
pub trait PlainNumber: sealed::Sealed + Copy + Default + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// Runtime description of the type.
    const TYPE: NumberType;
}

macro_rules! plain {
    ($($number:ty => $name:ident),*) => {$(
        impl sealed::Sealed for $number {}
        impl PlainNumber for $number {
            const TYPE: NumberType = NumberType::$name;
        }
    )*};
}
plain!(f32 => F32, f64 => F64, i32 => I32, i64 => I64);

/// Task that a rank requests; all ranks request the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupTask {
    /// A barrier.
    Barrier,
    /// Creation of a buffer.
    CreateBuffer {
        /// Type of its values.
        kind: NumberType,
        /// Values of each rank.
        values: u64,
    },
    /// Result of creating a buffer.
    Made {
        /// Whether this rank has mapped it.
        mapped: bool,
    },
    /// Reduction of a buffer.
    Buffer {
        /// Operation.
        op: ReduceOp,
        /// Type of its values.
        kind: NumberType,
        /// Values of each rank.
        values: u64,
        /// Number of the buffer, in the order of creation.
        number: u32,
    },
    /// Reduction of private values.
    Slice {
        /// Operation.
        op: ReduceOp,
        /// Type of the values.
        kind: NumberType,
        /// Values of each rank.
        values: u64,
    },
    /// Words that no correct rank writes.
    Unknown,
}

impl GroupTask {
    pub(super) fn words(self) -> [u32; TASK_WORDS] {
        let (code, op, kind, values, number) = match self {
            Self::Unknown => (0, 0, 0, 0, 0),
            Self::Barrier => (1, 0, 0, 0, 0),
            Self::CreateBuffer { kind, values } => (2, 0, kind as u32, values, 0),
            Self::Made { mapped } => (3, u32::from(mapped), 0, 0, 0),
            Self::Buffer { op, kind, values, number } => (4, op as u32, kind as u32, values, number),
            Self::Slice { op, kind, values } => (5, op as u32, kind as u32, values, 0),
        };
        [code << 16 | op << 8 | kind, number, (values >> 32) as u32, values as u32]
    }

    pub(super) fn from_words([first, number, high, low]: [u32; TASK_WORDS]) -> Self {
        let op = ReduceOp::ALL.get((first >> 8 & 0xff) as usize).copied();
        let kind =
            [NumberType::F32, NumberType::F64, NumberType::I32, NumberType::I64].get((first & 0xff) as usize).copied();
        let values = u64::from(high) << 32 | u64::from(low);
        match (first >> 16, op, kind) {
            (1, ..) => Self::Barrier,
            (2, _, Some(kind)) => Self::CreateBuffer { kind, values },
            (3, ..) => Self::Made { mapped: first >> 8 & 0xff != 0 },
            (4, Some(op), Some(kind)) => Self::Buffer { op, kind, values, number },
            (5, Some(op), Some(kind)) => Self::Slice { op, kind, values },
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for GroupTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("an unknown task"),
            Self::Barrier => f.write_str("a barrier"),
            Self::CreateBuffer { kind, values } => write!(f, "a buffer of {values} {kind}"),
            Self::Made { mapped } => {
                f.write_str(if *mapped { "a buffer that it has" } else { "a buffer that it lacks" })
            }
            Self::Buffer { op, kind, values, number } => write!(f, "the {op} of {values} {kind} of buffer {number}"),
            Self::Slice { op, kind, values } => write!(f, "the {op} of {values} {kind} of its own"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tasks() -> impl Strategy<Value = GroupTask> {
        let op = prop::sample::select(ReduceOp::ALL.to_vec());
        let kind = prop::sample::select(vec![NumberType::F32, NumberType::F64, NumberType::I32, NumberType::I64]);
        (0..6, op, kind, any::<u64>(), any::<u32>()).prop_map(|(code, op, kind, values, number)| match code {
            0 => GroupTask::Unknown,
            1 => GroupTask::Barrier,
            2 => GroupTask::CreateBuffer { kind, values },
            3 => GroupTask::Made { mapped: number % 2 == 0 },
            4 => GroupTask::Buffer { op, kind, values, number },
            _ => GroupTask::Slice { op, kind, values },
        })
    }

    proptest! {
        #[test]
        fn task_encoding_round_trips(task in tasks(), other in tasks()) {
            prop_assert_eq!(GroupTask::from_words(task.words()), task);
            prop_assert_eq!(task.words() == other.words(), task == other);
        }

        #[test]
        fn any_words_decode_to_a_task(words in any::<[u32; TASK_WORDS]>()) {
            let _ = GroupTask::from_words(words).to_string();
        }
    }
}
