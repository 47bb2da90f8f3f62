//! What a program has that the kernel's element can't do.

use crate::emit::walk;
use crate::ir::{Binary, ExprKind, HashAlgorithm, Program, SlotKind, Span, Standard, Stmt, StmtKind};

/// A construct that can't run in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{construct} can't run in the kernel's element: {why}")]
pub struct Unsupported {
    /// What.
    pub construct: String,
    /// Why not, or what helps.
    pub why: &'static str,
    /// Where it stands in the source.
    pub at: Span,
}

/// All constructs of a program that the kernel's element never does, in the order of the program; with any of them, the
/// program runs in user space.
#[must_use]
pub fn unsupported(program: &Program) -> Vec<Unsupported> {
    let mut found = Vec::new();
    walk::statements(program, &mut |stmt| {
        if let Some((construct, why)) = refused(program, stmt) {
            found.push(Unsupported { construct, why, at: stmt.at });
        }
    });
    found
}

fn refused(program: &Program, stmt: &Stmt) -> Option<(String, &'static str)> {
    let copies = "XDP passes one packet on for each that came";
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
                ("an update of a register", "it adds, subtracts, or works bit by bit")
            } else if program.registers[register.0 as usize].ty.width() > 64 {
                return Some((
                    format!("an update of register {name}"),
                    "only cells of up to 64 bits change in one step",
                ));
            } else {
                return None;
            }
        }
        StmtKind::Checksum { algorithm, payload: true, .. } | StmtKind::Verify { algorithm, payload: true, .. }
            if *algorithm != HashAlgorithm::Csum16 =>
        {
            return Some((format!("{algorithm:?} over a payload"), "only csum16 goes over payloads"));
        }
        _ => return None,
    };
    Some((construct.to_owned(), why))
}

/// Whether the statement may give the packet a multicast group.
fn multicasts(program: &Program, stmt: &Stmt) -> bool {
    let to = match &stmt.kind {
        // It is 0 anyway.
        StmtKind::Assign { value, .. } if value.kind == ExprKind::Const(0) => None,
        StmtKind::Assign { to, .. }
        | StmtKind::Read { to, .. }
        | StmtKind::Hash { to, .. }
        | StmtKind::Checksum { to, .. } => Some(*to),
        StmtKind::Update { to, .. } => *to,
        _ => None,
    };
    to.is_some_and(|to| program.slots[to.0 as usize].kind == SlotKind::Standard(Standard::McastGroup))
}
