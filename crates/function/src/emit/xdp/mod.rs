//! C for the kernel: a program as one function that XDP runs on each packet.
//!
//! ```text
//! ir::Program ─► plan (names, fields that matter, whether headers move) ─► parser ─► statements ─► deparser ─► C
//!                  └─► layout: what the maps hold, for the loader                              └─► which line is what
//! ```
//!
//! States of the parser are labels, slots are variables, tables are maps. Fields are read and written where they lie in the
//! packet (`header`); only if headers' places change are they all written anew. What XDP can't do
//! is refused by its name ([`unsupported`]): then the whole program runs in user space. Handing over single packets would
//! not be right: its tables and registers are in one place, and packets would overtake each other.
//!
//! For `clang -O2 -g -target bpf -mcpu=v3`.

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

pub use layout::{DigestLayout, KeyLayout, Layout, Place, RegisterLayout, TableLayout};
pub(crate) use order::idle;
pub use unsupported::{Unsupported, unsupported};

use std::fmt::Write;

use crate::ir::{Program, Span, Standard, StmtKind};
use plan::Plan;

/// Where a packet's values are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// In variables: the compiler puts them in registers and on a stack of 512 bytes.
    #[default]
    Locals,
    /// Where headers begin, and the fields of those that the program may add, in a map, one of each processor; all else in
    /// variables.
    Headers,
    /// All in the map: for programs with more values than the stack takes, or more ways than the verifier goes.
    Scratch,
}

impl Storage {
    /// What suits a program: variables, if they are so few that they are likely to fit, and so few ways lead through it
    /// that the verifier can go each by itself. It sees what a variable holds, not what a map does. Where that is in
    /// doubt, only the kernel knows whether [`Storage::Headers`] will do.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        /// Of 64, with room for keys.
        const WORDS: usize = 40;
        const BRANCHES: usize = 8;
        let words = program.slots.len() + 3 * program.headers.len();
        let mut branches = 0;
        crate::emit::walk::statements(program, &mut |stmt| {
            let branch = matches!(
                stmt.kind,
                StmtKind::If { .. } | StmtKind::Apply { .. } | StmtKind::SetValid { .. } | StmtKind::Verify { .. }
            );
            branches += usize::from(branch);
        });
        // Of a loop the verifier sees an end if nothing changes in it that it follows.
        if plan::loops(program) {
            return Self::Scratch;
        }
        if words <= WORDS && branches <= BRANCHES { Self::Locals } else { Self::Headers }
    }

    /// What to try next if compiler or verifier refuse it.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        (self != Self::Scratch).then_some(Self::Scratch)
    }
}

/// How a program is emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Where values are held.
    pub storage: Storage,
}

/// A program in C.
#[derive(Debug, Clone)]
pub struct Emitted {
    /// The file.
    pub text: String,
    /// What its maps hold.
    pub layout: Layout,
    /// What its lines are, by their first one.
    pub origins: Vec<Origin>,
}

/// What a part of the text was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its first line, counted from 1.
    pub line: u32,
    /// The construct: `table pre.nat_out`, `state parse_ipv4`.
    pub what: String,
    /// Where it stands in the source.
    pub at: Span,
}

impl Emitted {
    /// What a line of the text was made from.
    #[must_use]
    pub fn origin(&self, line: u32) -> Option<&Origin> {
        let after = self.origins.partition_point(|origin| origin.line <= line);
        self.origins[..after].last()
    }
}

/// Writes a program in C.
///
/// # Errors
/// The first of what [`unsupported`] lists.
pub fn emit(program: &Program, options: Options) -> Result<Emitted, Unsupported> {
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
    emitter.file()?;
    Ok(Emitted { text: emitter.text, layout: emitter.plan.layout, origins: emitter.origins })
}

/// Writes the file, line by line.
struct Emitter<'a> {
    plan: Plan<'a>,
    text: String,
    lines: u32,
    depth: usize,
    /// The parser's state that is being written.
    state: u32,
    /// Whether it is one.
    parsing: bool,
    /// Cells that are looked up once for two statements.
    shared: Vec<memory::Shared>,
    /// Labels so far: they are numbered.
    labels: u32,
    /// Where `return` goes, of the bodies around: label, and whether anything goes there.
    returns: Vec<(u32, bool)>,
    /// Where `exit` goes.
    exit: &'static str,
    /// Actions around, by number.
    actions: Vec<u32>,
    origins: Vec<Origin>,
}

impl Emitter<'_> {
    /// Adds a line, indented.
    fn line(&mut self, text: &str) {
        if !text.is_empty() {
            // A label stands further out.
            let depth =
                if text.ends_with(':') || text.ends_with(":;") { self.depth.saturating_sub(1) } else { self.depth };
            (0..depth).for_each(|_| self.text.push('\t'));
        }
        self.text.push_str(text);
        self.text.push('\n');
        self.lines += 1;
    }

    fn all(&mut self, lines: &[String]) {
        lines.iter().for_each(|line| self.line(line));
    }

    /// `head {` … `}`.
    fn braced<T>(&mut self, head: &str, inside: impl FnOnce(&mut Self) -> T) -> T {
        self.line(&if head.is_empty() { "{".to_owned() } else { format!("{head} {{") });
        self.depth += 1;
        let done = inside(self);
        self.depth -= 1;
        self.line("}");
        done
    }

    /// What follows is made from this.
    fn construct(&mut self, what: impl Into<String>, at: Span) {
        self.origins.push(Origin { line: self.lines + 1, what: what.into(), at });
    }

    fn file(&mut self) -> Result<(), Unsupported> {
        let name = self.plan.program.name.clone();
        self.line("// SPDX-License-Identifier: Apache-2.0");
        self.line(&format!("/* Function {name}, for XDP. Made by pathcall; not to be edited. */"));
        if self.plan.options.storage == Storage::Scratch {
            self.line("#define KEEP_NO_PLACE");
        }
        for line in include_str!("prelude.h").lines() {
            self.line(line);
        }
        if self.plan.loops() {
            include_str!("loops.h").lines().for_each(|line| self.line(line));
        }
        self.line("");
        self.hash_tables();
        self.maps();
        self.line("SEC(\"xdp\")");
        self.line("int function(struct xdp_md *xdp)");
        self.braced("", Self::function)?;
        self.line("");
        self.line("char LICENSE[] SEC(\"license\") = \"Dual BSD/GPL\";");
        Ok(())
    }

    fn function(&mut self) -> Result<(), Unsupported> {
        self.construct("the program's beginning", Span::default());
        self.variables();
        self.begin();
        self.parser()?;
        let program = self.plan.program;
        self.exit = "verified";
        self.construct("verify", Span::default());
        self.block(&program.verify)?;
        self.line("verified:;");
        self.exit = "ingress_done";
        self.construct("ingress", Span::default());
        self.block(&program.ingress)?;
        self.line("ingress_done:;");
        self.enter_egress();
        self.exit = "egress_done";
        self.construct("egress", Span::default());
        self.block(&program.egress)?;
        self.line("egress_done:;");
        self.dropped();
        self.exit = "computed";
        self.construct("compute", Span::default());
        self.block(&program.compute)?;
        self.line("computed:;");
        self.deparser();
        Ok(())
    }

    /// What is known of the packet before it is looked at.
    fn begin(&mut self) {
        self.line("if (came == NO_PORT)");
        self.line("\treturn lose(NO_WAY_IN);");
        let standard = [
            (Standard::IngressPort, "came & 0x1ff"),
            (Standard::PacketLength, "length"),
            (Standard::IngressTimestamp, "now_us() & 0xffffffffffffULL"),
            (Standard::InstanceType, "turn ? 4 : 0"),
        ];
        for (which, value) in standard {
            // Nothing else makes a packet anything but itself here.
            if which == Standard::InstanceType && !self.plan.recirculates {
                continue;
            }
            if let Some(slot) = self.plan.standard(which).filter(|slot| self.plan.is_read(*slot)) {
                let slot = self.plan.slot(slot);
                self.line(&format!("{slot} = {value};"));
            }
        }
    }

    /// Between the ingress and the egress.
    fn enter_egress(&mut self) {
        self.dropped();
        let spec = self.plan.standard(Standard::EgressSpec).map(|slot| self.plan.slot(slot));
        if let Some(port) = self.plan.standard(Standard::EgressPort) {
            let line = format!("{} = {};", self.plan.slot(port), spec.as_deref().unwrap_or("0"));
            self.line(&line);
        }
        let out = format!("{} = {};", self.plan.held("out"), spec.as_deref().unwrap_or("0"));
        self.line(&out);
    }

    /// Ends a packet that the program has marked.
    fn dropped(&mut self) {
        if let Some(spec) = self.plan.standard(Standard::EgressSpec) {
            let line = format!("if ({} == {})", self.plan.slot(spec), crate::ir::DROP_PORT);
            self.line(&line);
            self.line("\treturn lose(DROPPED);");
        }
    }

    /// A number for a label.
    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    /// The statement for an error in a parser: it is over.
    fn fail(&mut self, condition: &str, error: u16) {
        let mut line = String::new();
        let _ = write!(line, "if ({condition}) {{");
        self.line(&line);
        self.line(&format!("\terror = {error};"));
        self.line("\tgoto parsed;");
        self.line("}");
    }
}
