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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::{Target, split};
    use crate::{Input, Report, Sources, compile};

    #[test]
    fn all_that_the_kernel_cannot_do_is_listed_with_its_place() {
        let text = "#include <inet.p4>\nstruct metadata { }\n\
            request { @flow bit<8> a; } response { bit<8> b; } void remote_handler(in request req, out response res) { }\n\
            control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, \
            out request req, out response res) { apply { } }\n\
            control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) {\n\
            register<bit<16>>(1) groups;\n\
            apply {\nsm.mcast_grp = 3;\nclone(CloneType.I2E, 2);\nsm.mcast_grp = 0;\ngroups.read(sm.mcast_grp, 0);\n\
            hash(sm.mcast_grp, HashAlgorithm.crc16, 16w0, { hdr.ipv4.ttl }, 16w4);\n} }\n\
            #include <pipeline.p4>\n";
        let mut sources = Sources::default();
        let program = compile(&mut sources, Input::Text { name: "f.p4c".into(), text: text.into() })
            .unwrap_or_else(|wrong| panic!("{}", Report(&wrong, &sources)));
        let told = |program: &Program| -> Vec<(String, usize)> {
            let all = unsupported(program).into_iter();
            all.map(|one| (one.construct, sources.position(one.at).0)).collect()
        };
        let names = |told: Vec<(String, usize)>| told.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let group = "standard_metadata.mcast_grp";
        assert_eq!(names(told(&program)), ["remote_handler", group, "clone", group, group]);
        let element = split(&program, &Target::default()).expect("can be split").element;
        let lines = text.lines().position(|line| line.starts_with("sm.mcast_grp = 3")).expect("a line") + 1;
        let expected = [(group, 0), ("clone", 1), (group, 3), (group, 4)];
        assert_eq!(told(&element), expected.map(|(name, line)| (name.to_owned(), lines + line)));
        assert!(super::super::emit(&element, super::super::Options::default()).is_err());
    }
}
