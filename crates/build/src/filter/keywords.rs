//! Operators and references of NetFilters.

use pathcall_proto::manifest::OpType;

use crate::diagnostic::one_of;

/// Operators of NetRPC Table 8.
pub(super) const OPS: [(&str, OpType); 11] = [
    ("nop", OpType::Nop),
    ("MAX", OpType::Max),
    ("MIN", OpType::Min),
    ("ADD", OpType::Add),
    ("ASSIGN", OpType::Assign),
    ("SHIFTL", OpType::ShiftL),
    ("SHIFTR", OpType::ShiftR),
    ("BAND", OpType::Band),
    ("BOR", OpType::Bor),
    ("BNOT", OpType::Bnot),
    ("BXOR", OpType::Bxor),
];

/// Name of an operator in the paper.
pub(super) fn op_name(op: OpType) -> &'static str {
    OPS.iter().find(|(_, known)| *known == op).map_or("nop", |(name, _)| name)
}

/// Names of all operators, for diagnostics.
pub(super) fn ops() -> String {
    one_of(OPS.iter().map(|(name, _)| *name))
}

/// True if the operator has an operand.
pub(super) fn takes_para(op: OpType) -> bool {
    !matches!(op, OpType::Nop | OpType::Bnot)
}

/// True for `Message.field`: names separated by dots.
pub(super) fn is_reference(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    text.contains('.') && text.split('.').all(is_name)
}

/// True for digits with an optional sign, of any length.
pub(super) fn is_integer(text: &str) -> bool {
    text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
}
