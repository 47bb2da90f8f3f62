//! Operator of `Stream.modify` and forward target of `CntFwd`.

use crate::Error;

/// Operator of `Stream.modify` on 32-bit values (NetRPC Table 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum OpType {
    /// No change.
    #[default]
    Nop = 0,
    /// `max(value, para)`.
    Max = 1,
    /// `min(value, para)`.
    Min = 2,
    /// `value + para`, saturating.
    Add = 3,
    /// `para`.
    Assign = 4,
    /// `value << para`; 0 from 32 on.
    ShiftL = 5,
    /// `value >> para`, arithmetic; the sign from 32 on.
    ShiftR = 6,
    /// `value & para`.
    Band = 7,
    /// `value | para`.
    Bor = 8,
    /// `!value`.
    Bnot = 9,
    /// `value ^ para`.
    Bxor = 10,
}

impl OpType {
    /// Operator with this number.
    ///
    /// # Errors
    /// [`Error::Value`] if the number is unknown.
    pub const fn parse(value: u8) -> Result<Self, Error> {
        Ok(match value {
            0 => Self::Nop,
            1 => Self::Max,
            2 => Self::Min,
            3 => Self::Add,
            4 => Self::Assign,
            5 => Self::ShiftL,
            6 => Self::ShiftR,
            7 => Self::Band,
            8 => Self::Bor,
            9 => Self::Bnot,
            10 => Self::Bxor,
            _ => return Err(Error::Value { field: "op", value: value as u64 }),
        })
    }

    /// Result of `op(value, para)`. Element and server share this definition.
    #[inline]
    #[must_use]
    pub const fn apply(self, value: i32, para: i32) -> i32 {
        match self {
            Self::Nop => value,
            Self::Max => {
                if value > para {
                    value
                } else {
                    para
                }
            }
            Self::Min => {
                if value < para {
                    value
                } else {
                    para
                }
            }
            Self::Add => value.saturating_add(para),
            Self::Assign => para,
            Self::ShiftL => {
                if para as u32 >= 32 {
                    0
                } else {
                    value << para
                }
            }
            Self::ShiftR => value >> if para as u32 >= 32 { 31 } else { para },
            Self::Band => value & para,
            Self::Bor => value | para,
            Self::Bnot => !value,
            Self::Bxor => value ^ para,
        }
    }
}

/// Target to which `CntFwd` forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum ForwardTarget {
    /// Back to the caller.
    #[default]
    Src = 0,
    /// To every caller of the application.
    All = 1,
    /// To the server.
    Server = 2,
}

impl ForwardTarget {
    /// Target with this number.
    ///
    /// # Errors
    /// [`Error::Value`] if the number is unknown.
    pub const fn parse(value: u8) -> Result<Self, Error> {
        Ok(match value {
            0 => Self::Src,
            1 => Self::All,
            2 => Self::Server,
            _ => return Err(Error::Value { field: "to", value: value as u64 }),
        })
    }
}
