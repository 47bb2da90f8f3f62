//! What ranks do together, in words that they compare.

use std::fmt;

use super::steps::TASK_WORDS;

/// How values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Their sum, in the order of ranks; integers wrap around.
    Sum = 0,
    /// The least. What is not a number counts only where there is nothing else.
    Min = 1,
    /// The greatest; likewise.
    Max = 2,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sum, Self::Min, Self::Max];
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
        })
    }
}

/// Types of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Type {
    F32 = 0,
    F64 = 1,
    I32 = 2,
    I64 = 3,
}

impl fmt::Display for Type {
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

/// Numbers that are valid whatever their bits, and so may lie in memory that other processes write.
pub trait Plain: sealed::Sealed + Copy + Default + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// Which.
    const TYPE: Type;
}

macro_rules! plain {
    ($($number:ty => $name:ident),*) => {$(
        impl sealed::Sealed for $number {}
        impl Plain for $number {
            const TYPE: Type = Type::$name;
        }
    )*};
}
plain!(f32 => F32, f64 => F64, i32 => I32, i64 => I64);

/// What a rank asks for; all ask for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// To wait for each other.
    Barrier,
    /// A buffer.
    Make {
        /// Of its values.
        kind: Type,
        /// Values of a rank.
        values: u64,
    },
    /// To say whether the buffer is mapped.
    Made {
        /// Whether it is, here.
        mapped: bool,
    },
    /// To reduce a buffer.
    Buffer {
        /// How.
        op: Op,
        /// Of its values.
        kind: Type,
        /// Values of a rank.
        values: u64,
        /// Which, in the order in which they were made.
        number: u32,
    },
    /// To reduce private values.
    Slice {
        /// How.
        op: Op,
        /// Of the values.
        kind: Type,
        /// Values of a rank.
        values: u64,
    },
    /// Words that no right rank writes.
    Unknown,
}

impl Task {
    pub(super) fn words(self) -> [u32; TASK_WORDS] {
        let (what, op, kind, values, number) = match self {
            Self::Unknown => (0, 0, 0, 0, 0),
            Self::Barrier => (1, 0, 0, 0, 0),
            Self::Make { kind, values } => (2, 0, kind as u32, values, 0),
            Self::Made { mapped } => (3, u32::from(mapped), 0, 0, 0),
            Self::Buffer { op, kind, values, number } => (4, op as u32, kind as u32, values, number),
            Self::Slice { op, kind, values } => (5, op as u32, kind as u32, values, 0),
        };
        [what << 16 | op << 8 | kind, number, (values >> 32) as u32, values as u32]
    }

    pub(super) fn from_words([first, number, high, low]: [u32; TASK_WORDS]) -> Self {
        let op = Op::ALL.get((first >> 8 & 0xff) as usize).copied();
        let kind = [Type::F32, Type::F64, Type::I32, Type::I64].get((first & 0xff) as usize).copied();
        let values = u64::from(high) << 32 | u64::from(low);
        match (first >> 16, op, kind) {
            (1, ..) => Self::Barrier,
            (2, _, Some(kind)) => Self::Make { kind, values },
            (3, ..) => Self::Made { mapped: first >> 8 & 0xff != 0 },
            (4, Some(op), Some(kind)) => Self::Buffer { op, kind, values, number },
            (5, Some(op), Some(kind)) => Self::Slice { op, kind, values },
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("nothing that is known"),
            Self::Barrier => f.write_str("a barrier"),
            Self::Make { kind, values } => write!(f, "a buffer of {values} {kind}"),
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

    fn tasks() -> impl Strategy<Value = Task> {
        let op = prop::sample::select(Op::ALL.to_vec());
        let kind = prop::sample::select(vec![Type::F32, Type::F64, Type::I32, Type::I64]);
        (0..6, op, kind, any::<u64>(), any::<u32>()).prop_map(|(what, op, kind, values, number)| match what {
            0 => Task::Unknown,
            1 => Task::Barrier,
            2 => Task::Make { kind, values },
            3 => Task::Made { mapped: number % 2 == 0 },
            4 => Task::Buffer { op, kind, values, number },
            _ => Task::Slice { op, kind, values },
        })
    }

    proptest! {
        #[test]
        fn words_say_the_whole_task(task in tasks(), other in tasks()) {
            prop_assert_eq!(Task::from_words(task.words()), task);
            prop_assert_eq!(task.words() == other.words(), task == other);
        }

        #[test]
        fn any_words_are_taken(words in any::<[u32; TASK_WORDS]>()) {
            let _ = Task::from_words(words).to_string();
        }
    }
}
