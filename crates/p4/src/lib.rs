//! Compiler of network functions: one source file, split between an element and servers (CLIP).
//!
//! ```text
//! f.p4c ─► lex, parse ─► check ─► ir ─► split ─┬─► element's ir ─► interpreter │ XDP C │ P4_16 text
//!                                              └─► handler's C and header, for the servers (pathcall-netfn)
//! ```
//!
//! A function is a P4_16 program (v1model) with a handler in C. The handler does on a server what the element cannot
//! do, and the packet comes back (§IV-A). One IR stands in the middle: everything that runs in an element is an
//! [`ir::Program`], the code that the compiler adds (control flow, headers, placement, forwarding) included. Each
//! execution gets that code from one place.
//!
//! Modules, in the order of the picture: [`source`] (files and includes), `lex`, `ast`, `parse`, `check` (names and
//! types, lowering to the IR), [`ir`], with diagnostics in [`diag`]. [`split`] makes the element's program and the
//! server's handler. [`emit`] writes the element's program as text, [`interp`] runs it; [`exec`] is the interface of
//! all executions.

#![warn(missing_docs)]

mod ast;
mod check;
pub mod diag;
pub mod emit;
pub mod exec;
pub mod interp;
pub mod ir;
mod lex;
mod parse;
pub mod source;
pub mod split;

pub use diag::{Diagnostic, DiagnosticReport};
pub use source::{Input, Sources};

use diag::Sink;
use std::path::Path;

/// Compiles a program from a file or a text. All sources that are read are added to `sources`, which renders the
/// diagnostics.
///
/// # Errors
/// All mistakes in the program, at most [`diag::DIAGNOSTICS_MAX`], in the order of the text.
pub fn compile(sources: &mut Sources, input: impl Into<Input>) -> Result<ir::Program, Vec<Diagnostic>> {
    let input = input.into();
    let name = match &input {
        Input::File(path) => path.clone(),
        Input::Text { name, .. } => name.into(),
    };
    let name = Path::new(&name).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let mut sink = Sink::default();
    let read = source::read(sources, input, &mut sink);
    let declarations = parse::program(&read.tokens, &mut sink);
    let program = match sink.is_empty() {
        true => check::program(&declarations, &name, &read.defines, sources, &mut sink),
        // Names of unread sources would be reported as unknown.
        false => None,
    };
    program.ok_or_else(|| sink.into_vec())
}

/// Parses a program without checking names and types.
///
/// # Errors
/// Syntax errors of the program.
pub fn parse(sources: &mut Sources, input: impl Into<Input>) -> Result<(), Vec<Diagnostic>> {
    let mut sink = Sink::default();
    let read = source::read(sources, input.into(), &mut sink);
    parse::program(&read.tokens, &mut sink);
    if sink.is_empty() { Ok(()) } else { Err(sink.into_vec()) }
}
