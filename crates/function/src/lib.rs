//! Network functions, written once in one file and split between an element and servers (CLIP).
//!
//! ```text
//! f.p4c ─► lex, parse ─► check ─► ir ─► split ─┬─► element's ir ─► interpreter │ XDP C │ P4_16 text
//!                                              └─► server: handler's C ─► sandbox, mirrored tables
//! ```
//!
//! A function is P4_16 (v1model) and a handler in C. What the element can't do, the handler does on a server, and the
//! packet comes back (§IV-A). One IR stands in the middle: everything that runs in an element is an [`ir::Program`],
//! also what the compiler adds (control flow, headers, placement, forwarding), so that each execution gets it
//! from one place.
//!
//! In the order of the picture: [`source`] (files and what they include), `lex`, `ast` and `parse`, `check` (names and
//! types, to the IR), [`ir`]; [`diag`] says what is wrong. [`split`] makes two parts of it. The element's is text by
//! [`emit`], or run by [`interp`]; [`exec`] is what all executions offer, and [`installer`] what a controller tells them.
//! The server's is the [`handler`] with its tables ([`mirror`]), which [`serve`] works on requests with. [`place`]
//! chooses the flows that the element works on, [`scale`] the server for the others; [`run`] is all of it in one process,
//! [`live`] what the parts say to each other where they are apart.

#![warn(missing_docs)]

mod ast;
mod check;
pub mod diag;
pub mod emit;
pub mod exec;
pub mod handler;
pub mod installer;
pub mod interp;
pub mod ir;
mod lex;
pub mod live;
pub mod mirror;
mod parse;
pub mod place;
pub mod run;
pub mod scale;
pub mod serve;
pub mod source;
pub mod split;

pub use diag::{Diagnostic, Report};
pub use source::{Input, Sources};

use diag::Sink;
use std::path::Path;

/// Compiles a program: the file that is named, or a text. `sources` takes in all that is read, and is what
/// diagnostics are shown with.
///
/// # Errors
/// All that is wrong with it, at most [`diag::DIAGNOSTICS_MAX`], in the order of the text.
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
        // What could not be read is not there: names would be missed that are written.
        false => None,
    };
    program.ok_or_else(|| sink.into_vec())
}

/// Reads a program without looking at names and types.
///
/// # Errors
/// What can't be read.
pub fn parse(sources: &mut Sources, input: impl Into<Input>) -> Result<(), Vec<Diagnostic>> {
    let mut sink = Sink::default();
    let read = source::read(sources, input.into(), &mut sink);
    parse::program(&read.tokens, &mut sink);
    if sink.is_empty() { Ok(()) } else { Err(sink.into_vec()) }
}
