//! A tree to a program: names, types, constants; calls put in place of their names; all of it in one walk, for what a
//! body means depends on what it is given.
//!
//! ```text
//! declarations ─► scopes ─► package: parser ─► controls ─► statements ─► expressions ─► ir
//! ```
//!
//! Values are [`value::Val`]s, storage is [`value::Place`]s; statements are written into [`Checker::block`]. What is
//! wrong is told to the sink, and work goes on with the next statement.

mod access;
mod action;
mod bind;
mod builtin;
mod call;
mod constant;
mod control;
mod convert;
mod declare;
mod expr;
mod external;
mod fold;
mod handler;
mod header;
mod inline;
mod mentions;
mod num;
mod ops;
mod package;
mod packet;
mod parser;
mod place;
mod select;
mod stmt;
mod switch;
mod table;
mod types;
mod value;

pub(crate) use num::Num;

use crate::ast::{self, Decl};
use crate::diag::{Diagnostic, Reported, Sink};
use crate::ir::{self, Program, Span, Stmt, StmtKind};
use crate::source::Sources;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use types::Type;
use value::{Place, Val};

pub(crate) type Checked<T> = Result<T, Reported>;

/// How deep calls, blocks and expressions go together, once calls are in place.
const DEPTH_MAX: usize = 160;
/// Statements of a whole program, once calls are in place.
const STATEMENTS_MAX: usize = 1 << 16;
/// Slots of a whole program.
const SLOTS_MAX: usize = 1 << 15;

/// The program that these declarations are, unless something is wrong; then the sink knows.
pub(crate) fn program(
    declarations: &[Decl],
    name: &str,
    defines: &str,
    sources: &Sources,
    sink: &mut Sink,
) -> Option<Program> {
    let mut checker = Checker::new(name, sources, sink);
    checker.declare(declarations);
    if let Some(handler) = &mut checker.program.handler {
        handler.defines.insert_str(0, defines);
    }
    checker.sink.is_empty().then_some(checker.program)
}

/// What a name stands for.
#[derive(Clone)]
enum Item<'a> {
    Type(Type),
    Const(Val),
    Var {
        place: Place,
        writable: bool,
    },
    PacketIn,
    PacketOut,
    Action(Rc<ActionItem<'a>>),
    Table(Rc<table::TableItem>),
    Function(&'a ast::Function),
    Control(&'a ast::Control),
    Parser(&'a ast::Parser),
    Instance(Rc<Instance<'a>>),
    Register(ir::RegisterId, Type),
    Counter(ir::CounterId),
    /// By its index.
    Partition(usize),
    /// Its declaration is wrong, which has been told.
    Wrong,
}

/// An action where it was declared.
struct ActionItem<'a> {
    action: &'a ast::Action,
    /// Scopes that it sees.
    scopes: usize,
    /// What its name begins with.
    path: String,
}

/// A control or parser, instantiated.
struct Instance<'a> {
    of: Instantiated<'a>,
    name: Rc<str>,
    /// Constructor's parameters.
    constants: Vec<(Rc<str>, Val)>,
}

#[derive(Clone, Copy)]
enum Instantiated<'a> {
    Control(&'a ast::Control),
    Parser(&'a ast::Parser),
}

type Scope<'a> = HashMap<Rc<str>, (Item<'a>, Span)>;

/// Where statements stand: what may be called there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Parser,
    /// Ingress, or a control that is checked alone.
    Ingress,
    Egress,
    /// Verify and compute.
    Checksum,
    Deparser,
}

struct Checker<'a> {
    sink: &'a mut Sink,
    sources: &'a Sources,
    program: Program,
    /// The top of the file, then what is innermost last.
    scopes: Vec<Scope<'a>>,
    /// Statements being written.
    block: ir::Block,
    /// Names of slots, tables, … that are taken, and the number behind the last one that begins so.
    names: HashMap<String, u32>,
    /// What names of storage begin with.
    path: String,
    within: Within,
    /// Whether an action's body is being written: no tables there.
    in_action: bool,
    depth: usize,
    statements: usize,
    /// Result of each function being inlined; none in actions, controls, states.
    results: Vec<Option<Place>>,
    /// What calls being inlined copy back at their end, also at an `exit`.
    copies_back: Vec<Vec<(Place, Place)>>,
    /// Slots that something was written to so far.
    written: HashSet<ir::SlotId>,
    /// Those of actions' bodies that tables have, by action and path.
    actions: HashMap<(*const ast::Action, String), ir::ActionId>,
    /// All errors, in order.
    errors: Vec<Rc<str>>,
    /// Controls, parsers, actions, functions that were used, and so checked.
    used: HashSet<*const ()>,
    /// How far each header stack is filled: parsers only.
    fill: BTreeMap<ir::HeaderId, u32>,
    standard: HashMap<ir::Standard, ir::SlotId>,
    parsing: Option<parser::Parsing<'a>>,
    handler: handler::Handler<'a>,
}

impl<'a> Checker<'a> {
    fn new(name: &str, sources: &'a Sources, sink: &'a mut Sink) -> Self {
        let program = Program {
            name: name.to_owned(),
            slots: Vec::new(),
            headers: Vec::new(),
            parser: ir::Parser::default(),
            verify: Vec::new(),
            ingress: Vec::new(),
            egress: Vec::new(),
            compute: Vec::new(),
            deparser: Vec::new(),
            tables: Vec::new(),
            actions: Vec::new(),
            registers: Vec::new(),
            counters: Vec::new(),
            partitions: Vec::new(),
            handler: None,
        };
        Self {
            sink,
            sources,
            program,
            scopes: vec![Scope::new()],
            block: Vec::new(),
            names: HashMap::new(),
            path: String::new(),
            within: Within::Ingress,
            in_action: false,
            depth: 0,
            statements: 0,
            results: Vec::new(),
            copies_back: Vec::new(),
            written: HashSet::new(),
            actions: HashMap::new(),
            errors: Vec::new(),
            used: HashSet::new(),
            fill: BTreeMap::new(),
            standard: HashMap::new(),
            parsing: None,
            handler: handler::Handler::default(),
        }
    }

    fn tell(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
    }

    fn fail<T>(&mut self, diagnostic: Diagnostic) -> Checked<T> {
        self.tell(diagnostic);
        Err(Reported)
    }

    /// What a name stands for here: the innermost.
    fn lookup(&self, name: &str) -> Option<Item<'a>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).map(|(item, _)| item.clone())
    }

    /// Gives a name a meaning in the innermost scope.
    fn bind(&mut self, name: &ast::Name, item: Item<'a>) {
        let Some(scope) = self.scopes.last_mut() else { return };
        if let Some((_, first)) = scope.insert(Rc::clone(&name.text), (item, name.at)) {
            let wrong = Diagnostic::new(name.at, format!("a second `{}`", name.text));
            self.tell(wrong.also(first, "the first is here"));
        }
    }

    /// Complains of a name that stands for nothing.
    fn unknown<T>(&mut self, at: Span, name: &str, what: &str) -> Checked<T> {
        let wrong = Diagnostic::new(at, format!("no {what} `{name}`"));
        // A type that is lacking is lacking wherever it is used.
        if what == "type" && self.sink.has(&wrong.message) {
            return Err(Reported);
        }
        let known: Vec<&str> = self.scopes.iter().flat_map(|scope| scope.keys()).map(|name| &**name).collect();
        let wrong = match (name, closest(name, known)) {
            ("NoAction" | "packet_in" | "packet_out", _) => wrong.hint("write #include <core.p4>"),
            ("standard_metadata_t" | "HashAlgorithm" | "CounterType" | "CloneType", _) => {
                wrong.hint("write #include <v1model.p4>")
            }
            ("metadata", _) if what == "type" => wrong.hint("declare one, empty if there is none: struct metadata { }"),
            ("pre_processing", _) => wrong.hint(
                "what is before the handler: control pre_processing(inout inet_t hdr, inout metadata md, \
                 inout standard_metadata_t sm, out bool flight, out request req, out response res) { … }",
            ),
            ("post_processing", _) => wrong.hint(
                "what is behind the handler: control post_processing(inout inet_t hdr, inout metadata md, \
                 inout standard_metadata_t sm, in response res) { … }",
            ),
            (_, Some(known)) => wrong.hint(format!("there is `{known}`")),
            _ => match of_c(name).filter(|_| what == "type") {
                Some(hint) => wrong.hint(hint),
                None => wrong,
            },
        };
        self.fail(wrong)
    }

    /// Writes a statement.
    fn emit(&mut self, kind: StmtKind, at: Span) {
        self.statements += 1;
        if self.statements == STATEMENTS_MAX {
            let wrong = format!("more than {STATEMENTS_MAX} statements, once calls are in place");
            self.tell(Diagnostic::new(at, wrong));
        }
        if let StmtKind::Assign { to, .. } | StmtKind::Read { to, .. } | StmtKind::Hash { to, .. } = &kind {
            self.written.insert(*to);
        }
        if self.statements < STATEMENTS_MAX {
            self.block.push(Stmt { kind, at });
        }
    }

    /// What this writes, apart.
    fn apart<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> (ir::Block, T) {
        let outer = std::mem::take(&mut self.block);
        let result = write(self);
        (std::mem::replace(&mut self.block, outer), result)
    }

    /// Keeps the nesting bounded.
    fn nested<T>(&mut self, at: Span, work: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<T> {
        if self.depth >= DEPTH_MAX {
            let wrong = format!("nested more than {DEPTH_MAX} deep, once calls are in place");
            return self.fail(Diagnostic::new(at, wrong).hint("does something call itself?"));
        }
        if self.statements >= STATEMENTS_MAX || self.sink.full() {
            return Err(Reported);
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    /// With a scope of its own.
    fn scoped<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(Scope::new());
        let result = work(self);
        self.scopes.pop();
        result
    }

    /// In the outermost scopes only, as many as said, and a new one.
    fn elsewhere<T>(&mut self, scopes: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        let hidden = self.scopes.split_off(scopes);
        let result = self.scoped(work);
        self.scopes.truncate(scopes);
        self.scopes.extend(hidden);
        result
    }

    /// Works without leaving anything in the program: what nobody uses is checked so.
    fn checked_only(&mut self, within: Within, work: impl FnOnce(&mut Self)) {
        let program = self.program.clone();
        let (names, written, before) = (self.names.clone(), self.written.clone(), self.within);
        self.within = within;
        self.apart(work);
        self.within = before;
        self.program = program;
        self.names = names;
        self.written = written;
        self.actions.retain(|_, id| (id.0 as usize) < self.program.actions.len());
    }

    /// A name that is not taken: with a number behind it, if need be.
    fn unique(&mut self, name: &str) -> String {
        let full = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let mut unique = full.clone();
        while self.names.contains_key(&unique) {
            let number = self.names.entry(full.clone()).or_insert(0);
            *number += 1;
            unique = format!("{full}_{number}");
        }
        self.names.insert(unique.clone(), 0);
        unique
    }
}

/// What to write instead of a type that is C's.
fn of_c(name: &str) -> Option<String> {
    let bits = |prefix: &str| name.strip_prefix(prefix)?.strip_suffix("_t")?.parse::<u16>().ok();
    match name {
        "double" => Some("floats have 32 bits: `float`".to_owned()),
        "char" => Some("write `bit<8>`".to_owned()),
        "short" => Some("write `int<16>`".to_owned()),
        "long" => Some("write `int<64>`".to_owned()),
        "unsigned" => Some("write `bit<32>`".to_owned()),
        _ => match (bits("uint"), bits("int")) {
            (Some(bits), _) => Some(format!("write `bit<{bits}>`")),
            (None, Some(bits)) => Some(format!("write `int<{bits}>`")),
            _ => None,
        },
    }
}

/// The known name that was probably meant.
pub(crate) fn closest<'n>(name: &str, known: Vec<&'n str>) -> Option<&'n str> {
    // Of short names, all others are near.
    let bound = name.len().div_ceil(4) - usize::from(name.len() < 3);
    let near = known.into_iter().filter(|known| known.len().abs_diff(name.len()) <= bound);
    near.map(|known| (distance(name, known), known)).filter(|(far, _)| *far <= bound).min().map(|(_, known)| known)
}

/// Letters to change, add or leave out.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 40 || b.len() > 40 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
