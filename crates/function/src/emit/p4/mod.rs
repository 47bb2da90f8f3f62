//! P4_16 text (v1model) from a program: what our own front end reads back as the same, and other compilers take.
//!
//! ```text
//! ir::Program ─► names (headers, metadata, actions) ─► types ─► parser ─► controls ─► deparser ─► text
//! ```
//!
//! Headers, fields, tables, actions, registers and states keep their names. Variables become metadata; a body that is
//! left in its middle (`return`) goes on under a condition, since P4 leaves only whole controls and actions.

mod control;
mod expr;
mod names;
mod parser;
mod stmt;

use crate::emit::walk;
use crate::ir::{Expr, Program, SlotKind, Span, StmtKind, Ty};
use names::Names;
pub use names::identifier;

/// A program that P4_16 has no words for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("P4_16 has no words for {construct}: {why}")]
pub struct Unsayable {
    /// What.
    pub construct: String,
    /// Why not, or what helps.
    pub why: &'static str,
    /// Where it stands in the source.
    pub at: Span,
}

/// Writes a program as P4_16.
///
/// # Errors
/// [`Unsayable`] names what the language does not have.
pub fn emit(program: &Program) -> Result<String, Unsayable> {
    let names = Names::of(program);
    let mut text = Text {
        program,
        names,
        text: String::new(),
        depth: 0,
        flags: Vec::new(),
        left: Vec::new(),
        params: Vec::new(),
        told: 0,
    };
    text.file()?;
    Ok(text.text)
}

/// Names of a program's digests: as the text has them, and as they are.
#[must_use]
pub fn digest_names(program: &Program) -> Vec<(String, String)> {
    let mut names = Vec::new();
    walk::statements(program, &mut |statement| {
        if let StmtKind::Digest { name, .. } = &statement.kind {
            names.push((identifier(name), name.clone()));
        }
    });
    names
}

/// Writes the text, line by line.
struct Text<'a> {
    program: &'a Program,
    names: Names,
    text: String,
    depth: usize,
    /// Variables that say whether a body was left, of the bodies around; `None`: `return` will do.
    flags: Vec<Option<String>>,
    /// All such variables of a control or action, to be declared.
    left: Vec<String>,
    /// Parameters of the action around, which stand for their slots.
    params: Vec<(crate::ir::SlotId, String)>,
    /// Digests so far: each has a variable of its own.
    told: u32,
}

impl Text<'_> {
    fn line(&mut self, text: &str) {
        if !text.is_empty() {
            (0..self.depth).for_each(|_| self.text.push_str("    "));
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn braced<T>(&mut self, head: &str, inside: impl FnOnce(&mut Self) -> T) -> T {
        self.line(&if head.is_empty() { "{".to_owned() } else { format!("{head} {{") });
        self.depth += 1;
        let done = inside(self);
        self.depth -= 1;
        self.line("}");
        done
    }

    fn file(&mut self) -> Result<(), Unsayable> {
        if self.program.handler.is_some() {
            let construct = "remote_handler".to_owned();
            return Err(Unsayable { construct, why: "split the function first", at: Span::default() });
        }
        let name = self.program.name.clone();
        self.line("/* SPDX-License-Identifier: Apache-2.0 */");
        self.line(&format!("/* Function {name}. Made by pathcall; not to be edited. */"));
        self.line("#include <core.p4>");
        self.line("#include <v1model.p4>");
        self.line("");
        self.errors();
        self.types();
        self.parser()?;
        self.controls()?;
        self.deparser();
        self.line("V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;");
        Ok(())
    }

    /// Errors that P4's core does not have: they are only numbered.
    fn errors(&mut self) {
        let most = names::errors(self.program);
        if most > names::CORE_ERRORS.len() {
            let own: Vec<String> = (names::CORE_ERRORS.len()..most).map(|i| names::error(i as u16)).collect();
            self.line(&format!("error {{ {} }}", own.join(", ")));
            self.line("");
        }
    }

    fn types(&mut self) {
        for (i, header) in self.program.headers.iter().enumerate() {
            let name = self.names.header_types[i].clone();
            // Several instances of one type.
            if self.names.header_types[..i].contains(&name) {
                continue;
            }
            self.braced(&format!("header {name}"), |this| {
                for slot in &header.fields {
                    let (ty, field) = (this.ty(*slot), this.names.field(*slot).to_owned());
                    this.line(&format!("{ty} {field};"));
                }
                if let Some(bits) = header.varbit_bits_max {
                    let name = this.names.varbits[i].clone();
                    this.line(&format!("varbit<{bits}> {name};"));
                }
            });
            self.line("");
        }
        self.braced("struct headers", |this| {
            for (ty, name) in this.names.members.clone() {
                this.line(&format!("{ty} {name};"));
            }
        });
        self.line("");
        self.braced("struct metadata", |this| {
            for (i, slot) in this.program.slots.iter().enumerate() {
                if names::is_metadata(slot.kind) {
                    let slot = crate::ir::SlotId(i as u32);
                    let (ty, field) = (this.ty(slot), this.names.field(slot).to_owned());
                    this.line(&format!("{ty} {field};"));
                }
            }
        });
        self.line("");
        for (name, values) in self.digests() {
            self.braced(&format!("struct {name}"), |this| {
                values
                    .iter()
                    .enumerate()
                    .for_each(|(i, value)| this.line(&format!("{} value_{i};", type_name(value.ty))));
            });
            self.line("");
        }
    }

    /// Each kind of digest once, with values as its first statement has them.
    fn digests(&self) -> Vec<(String, Vec<Expr>)> {
        let mut found: Vec<(String, Vec<Expr>)> = Vec::new();
        walk::statements(self.program, &mut |stmt| {
            if let StmtKind::Digest { name, values } = &stmt.kind {
                let name = identifier(name);
                if !found.iter().any(|(known, _)| *known == name) {
                    found.push((name, values.clone()));
                }
            }
        });
        found
    }

    /// The type of a slot.
    fn ty(&self, slot: crate::ir::SlotId) -> String {
        let slot = &self.program.slots[slot.0 as usize];
        match slot.kind {
            SlotKind::Standard(crate::ir::Standard::ParserError) => "error".to_owned(),
            _ => type_name(slot.ty),
        }
    }
}

/// A type; a `float` is carried as its bits.
fn type_name(ty: Ty) -> String {
    match ty {
        Ty::Bool => "bool".to_owned(),
        Ty::Bit(width) => format!("bit<{width}>"),
        Ty::Int(width) => format!("int<{width}>"),
        Ty::Float => "bit<32>".to_owned(),
    }
}
