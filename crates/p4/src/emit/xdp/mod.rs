//! XDP emitter: a program as one C function that the kernel runs on each packet.
//!
//! ```text
//! ir::Program ─► plan (names, fields in use, fixed headers) ─► parser ─► statements ─► deparser ─► C
//!                  └─► layout: contents of the maps, for the loader              └─► origins of the lines
//! ```
//!
//! States of the parser become labels, slots variables, and tables maps. Fields are read and written in place in the
//! packet (`header`); headers are rewritten only if their offsets change. Constructs that XDP lacks are refused by
//! name ([`unsupported`]), and the whole program then runs in user space. Single packets cannot be handed over to user
//! space: tables and registers exist only once, and packets would be reordered.
//!
//! Compiler command: `clang -O2 -g -target bpf -mcpu=v3`.

mod bits;
mod deparser;
mod expr;
mod hash;
mod header;
mod layout;
mod maps;
mod memory;
mod order;
mod parser;
mod plan;
mod stmt;
mod table;
mod unsupported;
mod values;

pub use layout::{DigestLayout, FieldPlace, MapKeyLayout, MapLayouts, RegisterMapLayout, TableMapLayout};
pub(crate) use order::idle;
pub use unsupported::{Unsupported, unsupported};

use std::fmt::Write;

use crate::ir::{Program, SourceSpan, StandardField, StmtKind};
use plan::Plan;

/// Storage of a packet's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// Variables, in registers and on the stack of 512 bytes.
    #[default]
    Locals,
    /// Header offsets and fields of headers that the program may add in a per-processor map, all other values in
    /// variables.
    Headers,
    /// All values in the map: for programs with more values than the stack holds, or more paths than the verifier
    /// explores.
    Scratch,
}

impl Storage {
    /// Initial choice for a program: variables if they are likely to fit, and if the verifier can explore each path
    /// separately. The verifier tracks the values of variables, but not those of maps. In doubtful cases only a load
    /// into the kernel shows whether [`Storage::Headers`] suffices.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        /// Number of 8-byte words, of 64, that leaves room for keys.
        const WORDS: usize = 40;
        const BRANCHES: usize = 8;
        let words = program.slots.len() + 3 * program.headers.len();
        let mut branches = 0;
        crate::emit::visit::statements(program, &mut |stmt| {
            let branch = matches!(
                stmt.kind,
                StmtKind::If { .. } | StmtKind::Apply { .. } | StmtKind::SetValid { .. } | StmtKind::Verify { .. }
            );
            branches += usize::from(branch);
        });
        // The verifier accepts a loop if no tracked value changes in it.
        if plan::loops(program) {
            return Self::Scratch;
        }
        if words <= WORDS && branches <= BRANCHES { Self::Locals } else { Self::Headers }
    }

    /// Next choice if the compiler or the verifier refuses the program.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        (self != Self::Scratch).then_some(Self::Scratch)
    }
}

/// Options of the emitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EmitOptions {
    /// Storage of a packet's values.
    pub storage: Storage,
}

/// Program in C.
#[derive(Debug, Clone)]
pub struct Emitted {
    /// C source.
    pub text: String,
    /// Layout of the maps.
    pub layout: MapLayouts,
    /// Source constructs of the lines, by their first line.
    pub origins: Vec<Origin>,
}

/// Source construct of a part of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// First line, from 1.
    pub line: u32,
    /// Construct: `table pre.nat_out`, `state parse_ipv4`.
    pub what: String,
    /// Source position.
    pub at: SourceSpan,
}

impl Emitted {
    /// Source construct of a line.
    #[must_use]
    pub fn origin(&self, line: u32) -> Option<&Origin> {
        let after = self.origins.partition_point(|origin| origin.line <= line);
        self.origins[..after].last()
    }
}

/// Emits a program in C.
///
/// # Errors
/// The first construct that [`unsupported`] lists.
pub fn emit(program: &Program, options: EmitOptions) -> Result<Emitted, Unsupported> {
    if let Some(first) = unsupported(program).into_iter().next() {
        return Err(first);
    }
    let plan = Plan::of(program, options);
    let mut emitter = Emitter {
        plan,
        text: String::new(),
        lines: 0,
        depth: 0,
        state: 0,
        parsing: false,
        shared: Vec::new(),
        labels: 0,
        returns: Vec::new(),
        exit: "ingress_done",
        actions: Vec::new(),
        origins: Vec::new(),
    };
    emitter.emit_file()?;
    Ok(Emitted { text: emitter.text, layout: emitter.plan.layout, origins: emitter.origins })
}

/// Writer of the C text.
struct Emitter<'a> {
    plan: Plan<'a>,
    text: String,
    lines: u32,
    depth: usize,
    /// Current parser state.
    state: u32,
    /// True within a parser state.
    parsing: bool,
    /// Cells with a single lookup for two statements.
    shared: Vec<memory::SharedCell>,
    /// Number of labels so far.
    labels: u32,
    /// Targets of `return` in the enclosing bodies: label, and whether it is used.
    returns: Vec<(u32, bool)>,
    /// Target of `exit`.
    exit: &'static str,
    /// Numbers of the enclosing actions.
    actions: Vec<u32>,
    origins: Vec<Origin>,
}

impl Emitter<'_> {
    /// Adds an indented line.
    fn write_line(&mut self, text: &str) {
        if !text.is_empty() {
            // Labels are indented less.
            let depth =
                if text.ends_with(':') || text.ends_with(":;") { self.depth.saturating_sub(1) } else { self.depth };
            (0..depth).for_each(|_| self.text.push('\t'));
        }
        self.text.push_str(text);
        self.text.push('\n');
        self.lines += 1;
    }

    fn write_lines(&mut self, lines: &[String]) {
        lines.iter().for_each(|line| self.write_line(line));
    }

    /// Emits `head {` … `}`.
    fn write_braced<T>(&mut self, head: &str, inside: impl FnOnce(&mut Self) -> T) -> T {
        self.write_line(&if head.is_empty() { "{".to_owned() } else { format!("{head} {{") });
        self.depth += 1;
        let done = inside(self);
        self.depth -= 1;
        self.write_line("}");
        done
    }

    /// Begins the text of a source construct.
    fn begin_construct(&mut self, what: impl Into<String>, at: SourceSpan) {
        self.origins.push(Origin { line: self.lines + 1, what: what.into(), at });
    }

    fn emit_file(&mut self) -> Result<(), Unsupported> {
        let name = self.plan.program.name.clone();
        self.write_line("// SPDX-License-Identifier: Apache-2.0");
        self.write_line(&format!("/* Function {name}, for XDP. Made by pathcall; not to be edited. */"));
        if self.plan.options.storage == Storage::Scratch {
            self.write_line("#define KEEP_NO_PLACE");
        }
        for line in include_str!("prelude.h").lines() {
            self.write_line(line);
        }
        if self.plan.has_parser_cycle() {
            include_str!("loops.h").lines().for_each(|line| self.write_line(line));
        }
        self.write_line("");
        self.emit_hash_tables();
        self.emit_maps();
        self.write_line("SEC(\"xdp\")");
        self.write_line("int function(struct xdp_md *xdp)");
        self.write_braced("", Self::emit_function)?;
        self.write_line("");
        self.write_line("char LICENSE[] SEC(\"license\") = \"Dual BSD/GPL\";");
        Ok(())
    }

    fn emit_function(&mut self) -> Result<(), Unsupported> {
        self.begin_construct("the program's beginning", SourceSpan::default());
        self.emit_variables();
        self.emit_initial_values();
        self.emit_parser()?;
        let program = self.plan.program;
        self.exit = "verified";
        self.begin_construct("verify", SourceSpan::default());
        self.emit_block(&program.verify)?;
        self.write_line("verified:;");
        self.exit = "ingress_done";
        self.begin_construct("ingress", SourceSpan::default());
        self.emit_block(&program.ingress)?;
        self.write_line("ingress_done:;");
        self.emit_enter_egress();
        self.exit = "egress_done";
        self.begin_construct("egress", SourceSpan::default());
        self.emit_block(&program.egress)?;
        self.write_line("egress_done:;");
        self.emit_drop();
        self.exit = "computed";
        self.begin_construct("compute", SourceSpan::default());
        self.emit_block(&program.compute)?;
        self.write_line("computed:;");
        self.emit_deparser();
        Ok(())
    }

    /// Emits the initial values of a packet.
    fn emit_initial_values(&mut self) {
        self.write_line("if (came == NO_PORT)");
        self.write_line("\treturn lose(NO_WAY_IN);");
        let standard = [
            (StandardField::IngressPort, "came & 0x1ff"),
            (StandardField::PacketLength, "length"),
            (StandardField::IngressTimestamp, "now_us() & 0xffffffffffffULL"),
            (StandardField::InstanceType, "turn ? 4 : 0"),
        ];
        for (which, value) in standard {
            // `instance_type` is constant unless the program recirculates.
            if which == StandardField::InstanceType && !self.plan.recirculates {
                continue;
            }
            if let Some(slot) = self.plan.standard(which).filter(|slot| self.plan.is_read(*slot)) {
                let slot = self.plan.slot(slot);
                self.write_line(&format!("{slot} = {value};"));
            }
        }
    }

    /// Emits the transition from ingress to egress.
    fn emit_enter_egress(&mut self) {
        self.emit_drop();
        let spec = self.plan.standard(StandardField::EgressSpec).map(|slot| self.plan.slot(slot));
        if let Some(port) = self.plan.standard(StandardField::EgressPort) {
            let line = format!("{} = {};", self.plan.slot(port), spec.as_deref().unwrap_or("0"));
            self.write_line(&line);
        }
        let out = format!("{} = {};", self.plan.packet_variable("out"), spec.as_deref().unwrap_or("0"));
        self.write_line(&out);
    }

    /// Emits the drop of a marked packet.
    fn emit_drop(&mut self) {
        if let Some(spec) = self.plan.standard(StandardField::EgressSpec) {
            let line = format!("if ({} == {})", self.plan.slot(spec), crate::ir::DROP_PORT);
            self.write_line(&line);
            self.write_line("\treturn lose(DROPPED);");
        }
    }

    /// New label number.
    fn new_label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    /// Emits a parser error under a condition.
    fn emit_parser_error(&mut self, condition: &str, error: u16) {
        let mut line = String::new();
        let _ = write!(line, "if ({condition}) {{");
        self.write_line(&line);
        self.write_line(&format!("\terror = {error};"));
        self.write_line("\tgoto parsed;");
        self.write_line("}");
    }
}
