//! Constructs that the kernel's element does not support.

use crate::emit::visit;
use crate::ir::{Binary, ExprKind, HashAlgorithm, Program, SlotKind, SourceSpan, StandardField, Stmt, StmtKind};

/// Construct that cannot run in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{construct} is not supported by the XDP element: {why}")]
pub struct Unsupported {
    /// Construct.
    pub construct: String,
    /// Reason, or suggested change.
    pub why: &'static str,
    /// Source position.
    pub at: SourceSpan,
}

/// All constructs of a program that the kernel's element does not support, in program order. A program with any of them
/// runs in user space.
#[must_use]
pub fn unsupported(program: &Program) -> Vec<Unsupported> {
    let mut found = Vec::new();
    visit::statements(program, &mut |stmt| {
        if let Some((construct, why)) = refused(program, stmt) {
            found.push(Unsupported { construct, why, at: stmt.at });
        }
    });
    found
}

fn refused(program: &Program, stmt: &Stmt) -> Option<(String, &'static str)> {
    let copies = "XDP cannot copy packets";
    if multicasts(program, stmt) {
        return Some(("standard_metadata.mcast_grp".to_owned(), copies));
    }
    let (construct, why) = match &stmt.kind {
        StmtKind::Remote => ("remote_handler", "split the function first"),
        StmtKind::Clone { .. } => ("clone", copies),
        StmtKind::Steer { .. } => ("steer", "split the function first"),
        StmtKind::Update { op, register, .. } => {
            let name = &program.registers[register.0 as usize].name;
            if !matches!(op, Binary::Add | Binary::Sub | Binary::And | Binary::Or | Binary::Xor) {
                ("an update of a register", "use Add, Sub, And, Or or Xor")
            } else if program.registers[register.0 as usize].ty.width() > 64 {
                return Some((
                    format!("an update of register {name}"),
                    "only cells of up to 64 bits can be updated atomically",
                ));
            } else {
                return None;
            }
        }
        StmtKind::Checksum { algorithm, payload: true, .. } | StmtKind::Verify { algorithm, payload: true, .. }
            if *algorithm != HashAlgorithm::Csum16 =>
        {
            return Some((format!("{algorithm:?} over a payload"), "only csum16 can cover a payload"));
        }
        _ => return None,
    };
    Some((construct.to_owned(), why))
}

/// True if the statement may set the packet's multicast group.
fn multicasts(program: &Program, stmt: &Stmt) -> bool {
    let to = match &stmt.kind {
        // 0 is the initial value.
        StmtKind::Assign { value, .. } if value.kind == ExprKind::Const(0) => None,
        StmtKind::Assign { to, .. }
        | StmtKind::Read { to, .. }
        | StmtKind::Hash { to, .. }
        | StmtKind::Checksum { to, .. } => Some(*to),
        StmtKind::Update { to, .. } => *to,
        _ => None,
    };
    to.is_some_and(|to| program.slots[to.0 as usize].kind == SlotKind::Standard(StandardField::McastGroup))
}
