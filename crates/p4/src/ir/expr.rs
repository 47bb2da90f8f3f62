//! Expressions: free of side effects, typed, without loops.

use super::{HeaderId, SlotId};

/// Type of a value. All arithmetic is modulo 2^width (P4_16 §8.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ty {
    /// `bool`.
    Bool,
    /// `bit<N>`, `1 <= N <= 128`.
    Bit(u16),
    /// `int<N>`, two's complement in the lowest N bits.
    Int(u16),
    /// `float`: 32 bits of IEEE 754, which an element carries but does not compute with (CLIP §IV-C).
    Float,
}

impl Ty {
    /// Width in bits.
    #[must_use]
    pub fn width(self) -> u16 {
        match self {
            Self::Bool => 1,
            Self::Bit(width) | Self::Int(width) => width,
            Self::Float => 32,
        }
    }

    /// True if comparison, right shift and widening respect a sign.
    #[must_use]
    pub fn signed(self) -> bool {
        matches!(self, Self::Int(_))
    }
}

/// Expression with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Type.
    pub ty: Ty,
    /// Operation.
    pub kind: ExprKind,
}

/// Operation of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// Constant; only the lowest `ty.width()` bits may be set.
    Const(u128),
    /// Value of a slot. A field of an invalid header reads as 0.
    Slot(SlotId),
    /// Validity of a header.
    Valid(HeaderId),
    /// `packet.lookahead`: bits of the packet after the parser's cursor, without a move of the cursor; in parsers only.
    Lookahead {
        /// Offset from the cursor, bits.
        skip: u32,
    },
    /// Unary operation.
    Unary(Unary, Box<Expr>),
    /// Binary operation. Both operands have one type, except for `Shl`, `Shr` and `Concat`.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// Bits `high..=low`, numbered from 0, the lowest.
    Slice {
        /// Operand.
        of: Box<Expr>,
        /// Highest bit.
        high: u16,
        /// Lowest bit.
        low: u16,
    },
    /// Conversion to `ty`: truncation, or extension by the operand's sign if it is signed.
    Cast(Box<Expr>),
    /// `condition ? then : otherwise`.
    Mux(Box<Expr>, Box<Expr>, Box<Expr>),
}

/// Unary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `!`
    Not,
    /// `~`
    Complement,
    /// `-`
    Negate,
}

/// Binary operators.
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
    /// `<<`: bits beyond the width are lost.
    Shl,
    /// `>>`
    Shr,
    /// `++`: the left operand becomes the high bits.
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
    /// `&&`: the right operand has no side effects, so both may be evaluated.
    LogicalAnd,
    /// `||`
    LogicalOr,
}

impl Binary {
    /// P4_16 symbol of the operator.
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
    /// Constant of this type.
    #[must_use]
    pub fn constant(ty: Ty, value: u128) -> Self {
        let mask = if ty.width() >= 128 { u128::MAX } else { (1 << ty.width()) - 1 };
        Self { ty, kind: ExprKind::Const(value & mask) }
    }

    /// Value of a slot of this type.
    #[must_use]
    pub fn slot(ty: Ty, slot: SlotId) -> Self {
        Self { ty, kind: ExprKind::Slot(slot) }
    }

    /// Expression `left op right`.
    #[must_use]
    pub fn binary(ty: Ty, op: Binary, left: Self, right: Self) -> Self {
        Self { ty, kind: ExprKind::Binary(op, Box::new(left), Box::new(right)) }
    }
}
