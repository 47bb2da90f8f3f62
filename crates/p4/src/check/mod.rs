//! Type checker and lowering: resolves names, types and constants, inlines calls, and emits the IR. One walk does all
//! of it, because the meaning of a body depends on its arguments.
//!
//! ```text
//! declarations ─► scopes ─► package: parser ─► controls ─► statements ─► expressions ─► ir
//! ```
//!
//! Values are [`value::Val`]s, storage is [`value::Place`]s, statements are emitted into [`Checker::block`]. A mistake
//! is added to the sink, and the check continues with the next statement.

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
use crate::ir::{self, Program, SourceSpan, Stmt, StmtKind};
use crate::source::Sources;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use types::Type;
use value::{Place, Val};

pub(crate) type Checked<T> = Result<T, Reported>;

/// Largest nesting depth of calls, blocks and expressions after inlining.
const DEPTH_MAX: usize = 160;
/// Largest number of statements of a program after inlining.
const STATEMENTS_MAX: usize = 1 << 16;
/// Largest number of slots of a program.
const SLOTS_MAX: usize = 1 << 15;

/// Checks declarations and lowers them to a program; `None` if the sink has diagnostics.
pub(crate) fn program(
    declarations: &[Decl],
    name: &str,
    defines: &str,
    sources: &Sources,
    sink: &mut Sink,
) -> Option<Program> {
    let mut checker = Checker::new(name, sources, sink);
    checker.check_declarations(declarations);
    if let Some(handler) = &mut checker.program.handler {
        handler.defines.insert_str(0, defines);
    }
    checker.sink.is_empty().then_some(checker.program)
}

/// Meaning of a name.
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
    /// Partition, by its index.
    Partition(usize),
    /// Faulty declaration, already reported.
    Invalid,
}

/// Action with the environment of its declaration.
struct ActionItem<'a> {
    action: &'a ast::Action,
    /// Number of outer scopes visible to the body.
    scopes: usize,
    /// Prefix of the action's name.
    path: String,
}

/// Instance of a control or parser.
struct Instance<'a> {
    of: Instantiated<'a>,
    name: Rc<str>,
    /// Values of the constructor's parameters.
    constants: Vec<(Rc<str>, Val)>,
}

#[derive(Clone, Copy)]
enum Instantiated<'a> {
    Control(&'a ast::Control),
    Parser(&'a ast::Parser),
}

type Scope<'a> = HashMap<Rc<str>, (Item<'a>, SourceSpan)>;

/// Part of the pipeline that is checked; it determines the calls that are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipelinePart {
    Parser,
    /// Ingress, or a control that is checked outside of the pipeline.
    Ingress,
    Egress,
    /// Checksum verification and computation.
    Checksum,
    Deparser,
}

struct Checker<'a> {
    sink: &'a mut Sink,
    sources: &'a Sources,
    program: Program,
    /// Scopes: the top level first, the innermost last.
    scopes: Vec<Scope<'a>>,
    /// Statements of the block that is being emitted.
    block: ir::Block,
    /// Names that are in use, each with its last numeric suffix.
    names: HashMap<String, u32>,
    /// Prefix of names of storage.
    path: String,
    within: PipelinePart,
    /// True while an action's body is checked: no table may be applied there.
    in_action: bool,
    depth: usize,
    statements: usize,
    /// Result of each function that is being inlined; `None` for actions, controls and states.
    results: Vec<Option<Place>>,
    /// Copies at the end of each call that is being inlined; an `exit` performs them as well.
    copies_back: Vec<Vec<(Place, Place)>>,
    /// Slots that have been written so far.
    written: HashSet<ir::SlotId>,
    /// Actions of tables, by declaration and path.
    actions: HashMap<(*const ast::Action, String), ir::ActionId>,
    /// All error constants, in order.
    errors: Vec<Rc<str>>,
    /// Declarations that were used, and are thus checked.
    used: HashSet<*const ()>,
    /// Number of filled elements of each header stack; in parsers only.
    fill: BTreeMap<ir::HeaderId, u32>,
    standard: HashMap<ir::StandardField, ir::SlotId>,
    parsing: Option<parser::ParserLowering<'a>>,
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
            within: PipelinePart::Ingress,
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

    fn report(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
    }

    fn fail<T>(&mut self, diagnostic: Diagnostic) -> Checked<T> {
        self.report(diagnostic);
        Err(Reported)
    }

    /// Innermost meaning of a name.
    fn lookup(&self, name: &str) -> Option<Item<'a>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).map(|(item, _)| item.clone())
    }

    /// Binds a name in the innermost scope.
    fn bind(&mut self, name: &ast::Name, item: Item<'a>) {
        let Some(scope) = self.scopes.last_mut() else { return };
        if let Some((_, first)) = scope.insert(Rc::clone(&name.text), (item, name.at)) {
            let wrong = Diagnostic::new(name.at, format!("duplicate definition of `{}`", name.text));
            self.report(wrong.also(first, "first one is here"));
        }
    }

    /// Reports an unknown name.
    fn report_unknown<T>(&mut self, at: SourceSpan, name: &str, what: &str) -> Checked<T> {
        let wrong = Diagnostic::new(at, format!("unknown {what} `{name}`"));
        // An unknown type is reported once.
        if what == "type" && self.sink.has(&wrong.message) {
            return Err(Reported);
        }
        let known: Vec<&str> = self.scopes.iter().flat_map(|scope| scope.keys()).map(|name| &**name).collect();
        let wrong = match (name, closest_name(name, known)) {
            ("NoAction" | "packet_in" | "packet_out", _) => wrong.hint("write #include <core.p4>"),
            ("standard_metadata_t" | "HashAlgorithm" | "CounterType" | "CloneType", _) => {
                wrong.hint("write #include <v1model.p4>")
            }
            ("metadata", _) if what == "type" => wrong.hint("declare one, empty if there is none: struct metadata { }"),
            ("pre_processing", _) => wrong.hint(
                "the part before the handler: control pre_processing(inout inet_t hdr, inout metadata md, \
                 inout standard_metadata_t sm, out bool flight, out request req, out response res) { … }",
            ),
            ("post_processing", _) => wrong.hint(
                "the part after the handler: control post_processing(inout inet_t hdr, inout metadata md, \
                 inout standard_metadata_t sm, in response res) { … }",
            ),
            (_, Some(known)) => wrong.hint(format!("did you mean `{known}`?")),
            _ => match p4_type_hint(name).filter(|_| what == "type") {
                Some(hint) => wrong.hint(hint),
                None => wrong,
            },
        };
        self.fail(wrong)
    }

    /// Emits a statement.
    fn emit(&mut self, kind: StmtKind, at: SourceSpan) {
        self.statements += 1;
        if self.statements == STATEMENTS_MAX {
            let wrong = format!("more than {STATEMENTS_MAX} statements after inlining");
            self.report(Diagnostic::new(at, wrong));
        }
        if let StmtKind::Assign { to, .. } | StmtKind::Read { to, .. } | StmtKind::Hash { to, .. } = &kind {
            self.written.insert(*to);
        }
        if self.statements < STATEMENTS_MAX {
            self.block.push(Stmt { kind, at });
        }
    }

    /// Collects the emitted statements in a block of their own.
    fn collect_block<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> (ir::Block, T) {
        let outer = std::mem::take(&mut self.block);
        let result = write(self);
        (std::mem::replace(&mut self.block, outer), result)
    }

    /// Runs `work` one nesting level deeper, within the bound.
    fn run_nested<T>(&mut self, at: SourceSpan, work: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<T> {
        if self.depth >= DEPTH_MAX {
            let wrong = format!("nested more than {DEPTH_MAX} levels deep after inlining");
            return self.fail(Diagnostic::new(at, wrong).hint("is there a recursive call?"));
        }
        if self.statements >= STATEMENTS_MAX || self.sink.full() {
            return Err(Reported);
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    /// Runs `work` in a new scope.
    fn with_scope<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(Scope::new());
        let result = work(self);
        self.scopes.pop();
        result
    }

    /// Runs `work` in a new scope above the given number of outer scopes.
    fn with_outer_scopes<T>(&mut self, scopes: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        let hidden = self.scopes.split_off(scopes);
        let result = self.with_scope(work);
        self.scopes.truncate(scopes);
        self.scopes.extend(hidden);
        result
    }

    /// Runs `work` without a change of the program, to check unused declarations.
    fn check_without_emitting(&mut self, within: PipelinePart, work: impl FnOnce(&mut Self)) {
        let program = self.program.clone();
        let (names, written, before) = (self.names.clone(), self.written.clone(), self.within);
        self.within = within;
        self.collect_block(work);
        self.within = before;
        self.program = program;
        self.names = names;
        self.written = written;
        self.actions.retain(|_, id| (id.0 as usize) < self.program.actions.len());
    }

    /// Unused name: the given one, with a numeric suffix if necessary.
    fn unique_name(&mut self, name: &str) -> String {
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

/// Suggested P4 type for a C type.
fn p4_type_hint(name: &str) -> Option<String> {
    let bits = |prefix: &str| name.strip_prefix(prefix)?.strip_suffix("_t")?.parse::<u16>().ok();
    match name {
        "double" => Some("use `float`, which has 32 bits".to_owned()),
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

/// Known name with the smallest edit distance, if it is likely to be meant.
pub(crate) fn closest_name<'n>(name: &str, known: Vec<&'n str>) -> Option<&'n str> {
    // Short names are close to every other short name.
    let bound = name.len().div_ceil(4) - usize::from(name.len() < 3);
    let near = known.into_iter().filter(|known| known.len().abs_diff(name.len()) <= bound);
    near.map(|known| (edit_distance(name, known), known)).filter(|(far, _)| *far <= bound).min().map(|(_, known)| known)
}

/// Levenshtein distance.
fn edit_distance(a: &str, b: &str) -> usize {
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
