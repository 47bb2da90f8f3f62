//! P4_16 emitter (v1model); the text is read back by our own front end and accepted by other compilers.
//!
//! ```text
//! ir::Program ─► names (headers, metadata, actions) ─► types ─► parser ─► controls ─► deparser ─► text
//! ```
//!
//! Headers, fields, tables, actions, registers and states keep their names. Variables become metadata. Statements after
//! a `return` within a body become conditional, since P4's `return` leaves only whole controls and actions.

mod control;
mod expr;
mod names;
mod parser;
mod stmt;

use crate::emit::visit;
use crate::ir::{Expr, Program, SlotKind, SourceSpan, StmtKind, Ty};
use names::Names;
pub use names::identifier;

/// Program that cannot be expressed in P4_16.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{construct} cannot be expressed in P4_16: {why}")]
pub struct NotExpressibleInP4 {
    /// Construct.
    pub construct: String,
    /// Reason, or suggested change.
    pub why: &'static str,
    /// Source position.
    pub at: SourceSpan,
}

/// Emits a program as P4_16.
///
/// # Errors
/// [`NotExpressibleInP4`] names the construct that P4_16 lacks.
pub fn emit(program: &Program) -> Result<String, NotExpressibleInP4> {
    let names = Names::of(program);
    let mut text = P4Writer {
        program,
        names,
        text: String::new(),
        depth: 0,
        flags: Vec::new(),
        left: Vec::new(),
        params: Vec::new(),
        digest_count: 0,
    };
    text.write_file()?;
    Ok(text.text)
}

/// Names of a program's digests: in the P4 text and in the program.
#[must_use]
pub fn digest_names(program: &Program) -> Vec<(String, String)> {
    let mut names = Vec::new();
    visit::statements(program, &mut |statement| {
        if let StmtKind::Digest { name, .. } = &statement.kind {
            names.push((identifier(name), name.clone()));
        }
    });
    names
}

/// Writer of the text.
struct P4Writer<'a> {
    program: &'a Program,
    names: Names,
    text: String,
    depth: usize,
    /// Flag variables of the enclosing bodies, set when a body is left; `None` where `return` suffices.
    flags: Vec<Option<String>>,
    /// All flag variables of the control or action, to be declared.
    left: Vec<String>,
    /// Parameters of the enclosing action, in place of their slots.
    params: Vec<(crate::ir::SlotId, String)>,
    /// Number of digests so far; each has a variable of its own.
    digest_count: u32,
}

impl P4Writer<'_> {
    fn write_line(&mut self, text: &str) {
        if !text.is_empty() {
            (0..self.depth).for_each(|_| self.text.push_str("    "));
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn write_braced<T>(&mut self, head: &str, inside: impl FnOnce(&mut Self) -> T) -> T {
        self.write_line(&if head.is_empty() { "{".to_owned() } else { format!("{head} {{") });
        self.depth += 1;
        let done = inside(self);
        self.depth -= 1;
        self.write_line("}");
        done
    }

    fn write_file(&mut self) -> Result<(), NotExpressibleInP4> {
        if self.program.handler.is_some() {
            let construct = "remote_handler".to_owned();
            return Err(NotExpressibleInP4 { construct, why: "split the function first", at: SourceSpan::default() });
        }
        let name = self.program.name.clone();
        self.write_line("/* SPDX-License-Identifier: Apache-2.0 */");
        self.write_line(&format!("/* Function {name}. Made by pathcall; not to be edited. */"));
        self.write_line("#include <core.p4>");
        self.write_line("#include <v1model.p4>");
        self.write_line("");
        self.write_errors();
        self.write_types();
        self.write_parser()?;
        self.write_controls()?;
        self.write_deparser();
        self.write_line("V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;");
        Ok(())
    }

    /// Declares error names beyond P4's core errors; the program only numbers them.
    fn write_errors(&mut self) {
        let most = names::errors(self.program);
        if most > names::CORE_ERRORS.len() {
            let own: Vec<String> = (names::CORE_ERRORS.len()..most).map(|i| names::error(i as u16)).collect();
            self.write_line(&format!("error {{ {} }}", own.join(", ")));
            self.write_line("");
        }
    }

    fn write_types(&mut self) {
        for (i, header) in self.program.headers.iter().enumerate() {
            let name = self.names.header_types[i].clone();
            // Several instances may share a type.
            if self.names.header_types[..i].contains(&name) {
                continue;
            }
            self.write_braced(&format!("header {name}"), |this| {
                for slot in &header.fields {
                    let (ty, field) = (this.ty(*slot), this.names.field(*slot).to_owned());
                    this.write_line(&format!("{ty} {field};"));
                }
                if let Some(bits) = header.varbit_bits_max {
                    let name = this.names.varbits[i].clone();
                    this.write_line(&format!("varbit<{bits}> {name};"));
                }
            });
            self.write_line("");
        }
        self.write_braced("struct headers", |this| {
            for (ty, name) in this.names.members.clone() {
                this.write_line(&format!("{ty} {name};"));
            }
        });
        self.write_line("");
        self.write_braced("struct metadata", |this| {
            for (i, slot) in this.program.slots.iter().enumerate() {
                if names::is_metadata(slot.kind) {
                    let slot = crate::ir::SlotId(i as u32);
                    let (ty, field) = (this.ty(slot), this.names.field(slot).to_owned());
                    this.write_line(&format!("{ty} {field};"));
                }
            }
        });
        self.write_line("");
        for (name, values) in self.digests() {
            self.write_braced(&format!("struct {name}"), |this| {
                values
                    .iter()
                    .enumerate()
                    .for_each(|(i, value)| this.write_line(&format!("{} value_{i};", type_name(value.ty))));
            });
            self.write_line("");
        }
    }

    /// Each kind of digest, with the values of its first statement.
    fn digests(&self) -> Vec<(String, Vec<Expr>)> {
        let mut found: Vec<(String, Vec<Expr>)> = Vec::new();
        visit::statements(self.program, &mut |stmt| {
            if let StmtKind::Digest { name, values } = &stmt.kind {
                let name = identifier(name);
                if !found.iter().any(|(known, _)| *known == name) {
                    found.push((name, values.clone()));
                }
            }
        });
        found
    }

    /// Type of a slot.
    fn ty(&self, slot: crate::ir::SlotId) -> String {
        let slot = &self.program.slots[slot.0 as usize];
        match slot.kind {
            SlotKind::Standard(crate::ir::StandardField::ParserError) => "error".to_owned(),
            _ => type_name(slot.ty),
        }
    }
}

/// Name of a type; a `float` is carried as its bits.
fn type_name(ty: Ty) -> String {
    match ty {
        Ty::Bool => "bool".to_owned(),
        Ty::Bit(width) => format!("bit<{width}>"),
        Ty::Int(width) => format!("int<{width}>"),
        Ty::Float => "bit<32>".to_owned(),
    }
}
