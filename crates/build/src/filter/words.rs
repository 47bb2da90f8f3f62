//! The words that a filter is made of.

use pathcall_proto::manifest::Op;

use crate::diagnostic::one_of;

/// The fields of a filter.
pub(super) const FIELDS: [&str; 8] = ["AppName", "Precision", "get", "addTo", "clear", "modify", "CntFwd", "ack"];
/// The fields of `CntFwd`.
pub(super) const CNT_FWD_FIELDS: [&str; 3] = ["to", "threshold", "key"];
/// The fields of `modify`.
pub(super) const MODIFY_FIELDS: [&str; 2] = ["op", "para"];

/// The operators of NetRPC Table 8.
pub(super) const OPS: [(&str, Op); 11] = [
    ("nop", Op::Nop),
    ("MAX", Op::Max),
    ("MIN", Op::Min),
    ("ADD", Op::Add),
    ("ASSIGN", Op::Assign),
    ("SHIFTL", Op::ShiftL),
    ("SHIFTR", Op::ShiftR),
    ("BAND", Op::Band),
    ("BOR", Op::Bor),
    ("BNOT", Op::Bnot),
    ("BXOR", Op::Bxor),
];

/// An operator as the paper writes it.
pub(super) fn op_name(op: Op) -> &'static str {
    OPS.iter().find(|(_, known)| *known == op).map_or("nop", |(name, _)| name)
}

/// All operators, for complaints.
pub(super) fn ops() -> String {
    one_of(OPS.iter().map(|(name, _)| *name))
}

/// Whether an operator has an operand.
pub(super) fn takes_para(op: Op) -> bool {
    !matches!(op, Op::Nop | Op::Bnot)
}

/// `Message.field` with nothing but names and dots.
pub(super) fn is_reference(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    text.contains('.') && text.split('.').all(is_name)
}

/// Digits with at most a sign, however many.
pub(super) fn is_integer(text: &str) -> bool {
    text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
}
