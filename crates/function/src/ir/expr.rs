//! Expressions: pure, of known type, without loops.

use super::{HeaderId, SlotId};

/// The type of a value. All arithmetic is modulo 2^width (P4_16 §8.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ty {
    /// `bool`.
    Bool,
    /// `bit<N>`, `1 <= N <= 128`.
    Bit(u16),
    /// `int<N>`, two's complement in the lowest N bits.
    Int(u16),
    /// `float`: 32 bits of IEEE 754, that an element only carries (CLIP §IV-C).
    Float,
}

impl Ty {
    /// Its width in bits.
    #[must_use]
    pub fn width(self) -> u16 {
        match self {
            Self::Bool => 1,
            Self::Bit(width) | Self::Int(width) => width,
            Self::Float => 32,
        }
    }

    /// Whether comparison, shift to the right and widening look at a sign.
    #[must_use]
    pub fn signed(self) -> bool {
        matches!(self, Self::Int(_))
    }
}

/// An expression with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Its type.
    pub ty: Ty,
    /// What it is.
    pub kind: ExprKind,
}

/// What an expression is.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A number; only the lowest `ty.width()` bits are set.
    Const(u128),
    /// The value of a slot. A field of a header that is not valid reads as 0.
    Slot(SlotId),
    /// Whether a header is valid.
    Valid(HeaderId),
    /// `packet.lookahead`: bits of the packet behind the parser's cursor, without moving it; in parsers only.
    Lookahead {
        /// Bits between the cursor and the first of them.
        skip: u32,
    },
    /// One operand.
    Unary(Unary, Box<Expr>),
    /// Two operands. Both have one type, but for `Shl`, `Shr`, `Concat`.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// Bits `high..=low`, 0 the lowest.
    Slice {
        /// Of this.
        of: Box<Expr>,
        /// The highest bit.
        high: u16,
        /// The lowest bit.
        low: u16,
    },
    /// Widened (by sign, if the operand is signed) or cut to `ty`.
    Cast(Box<Expr>),
    /// `condition ? then : otherwise`.
    Mux(Box<Expr>, Box<Expr>, Box<Expr>),
}

/// Operators of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `!`
    Not,
    /// `~`
    Complement,
    /// `-`
    Negate,
}

/// Operators of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `+`
    Add,
    /// `|+|`
    AddSaturating,
    /// `-`
    Sub,
    /// `|-|`
    SubSaturating,
    /// `*`
    Mul,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `<<`: bits beyond the width are gone.
    Shl,
    /// `>>`
    Shr,
    /// `++`: the left operand becomes the higher bits.
    Concat,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `&&`: the right one has no effects, so both may be worked out.
    LogicalAnd,
    /// `||`
    LogicalOr,
}

impl Binary {
    /// As it is written in P4_16.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::AddSaturating => "|+|",
            Self::Sub => "-",
            Self::SubSaturating => "|-|",
            Self::Mul => "*",
            Self::And => "&",
            Self::Or => "|",
            Self::Xor => "^",
            Self::Shl => "<<",
            Self::Shr => ">>",
            Self::Concat => "++",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::LogicalAnd => "&&",
            Self::LogicalOr => "||",
        }
    }
}

impl Expr {
    /// A number of this type.
    #[must_use]
    pub fn constant(ty: Ty, value: u128) -> Self {
        let mask = if ty.width() >= 128 { u128::MAX } else { (1 << ty.width()) - 1 };
        Self { ty, kind: ExprKind::Const(value & mask) }
    }

    /// The value of a slot of this type.
    #[must_use]
    pub fn slot(ty: Ty, slot: SlotId) -> Self {
        Self { ty, kind: ExprKind::Slot(slot) }
    }

    /// `left op right`.
    #[must_use]
    pub fn binary(ty: Ty, op: Binary, left: Self, right: Self) -> Self {
        Self { ty, kind: ExprKind::Binary(op, Box::new(left), Box::new(right)) }
    }
}
