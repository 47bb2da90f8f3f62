//! From the IR to [`Code`].

use std::collections::HashMap;

use super::code::{Code, Layout, Op, Range, V};
use crate::ir::{ActionId, Binary, Block, Expr, ExprKind, Program, SlotId, SlotKind, Stmt, StmtKind, TableId, Ty};

/// How deep actions may apply tables whose actions apply tables.
const DEPTH_MAX: usize = 8;

/// Why a program can't be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Tables and actions nest too deep, or round in a circle.
    #[error("action {action} applies tables more than {DEPTH_MAX} deep")]
    Depth {
        /// The action's name.
        action: String,
    },
    /// An entry that the program declares, or a default action, does not fit its table.
    #[error(transparent)]
    Entry(#[from] crate::exec::TableError),
}

/// Compiles a program.
pub fn compile(program: &Program) -> Result<Code, CompileError> {
    let mut compiler = Compiler::new(program);
    let depth = compiler.depth()?;
    compiler.keys();
    for action in &program.actions {
        compiler.code.actions.push(compiler.here());
        compiler.block(&action.body);
        compiler.leave();
        compiler.emit(Op::Back);
    }
    compiler.code.parser = compiler.parser();
    compiler.code.verify = compiler.whole(&program.verify);
    compiler.code.ingress = compiler.whole(&program.ingress);
    compiler.code.egress = compiler.whole(&program.egress);
    compiler.code.compute = compiler.whole(&program.compute);
    compiler.code.depth = depth;
    Ok(compiler.code)
}

pub(super) struct Compiler<'a> {
    pub(super) program: &'a Program,
    pub(super) code: Code,
    constants: HashMap<u128, V>,
    /// Places of intermediate results, used anew by each statement.
    temporaries: Vec<V>,
    pub(super) used: usize,
    /// `Return`s of the bodies around, to be pointed behind them.
    returns: Vec<Vec<usize>>,
}

impl<'a> Compiler<'a> {
    fn new(program: &'a Program) -> Self {
        let slots = program.slots.len();
        let length_max = slots + 2 * program.headers.len();
        let cleared = length_max + 1;
        let layout = |(at, header): (usize, &crate::ir::Header)| {
            let mut bits = 0;
            let fields = header.fields.iter().map(|slot| {
                let width = program.width(*slot);
                bits += u32::from(width);
                (slot.0, bits - u32::from(width), width)
            });
            let fields = fields.collect();
            let (valid, varbits) = ((slots + at) as V, (slots + program.headers.len() + at) as V);
            Layout { fields, bits, varbits_max: header.varbit_bits_max.unwrap_or(0), valid, varbits }
        };
        let code = Code {
            ops: Vec::new(),
            values: vec![0; cleared],
            cleared,
            length_max: length_max as V,
            operands: Vec::new(),
            names: Vec::new(),
            headers: program.headers.iter().enumerate().map(layout).collect(),
            actions: Vec::new(),
            params: program.actions.iter().map(|a| a.params.iter().map(|slot| slot.0).collect()).collect(),
            keys: Vec::new(),
            parser: 0,
            verify: 0,
            ingress: 0,
            egress: 0,
            compute: 0,
            deparser: program.deparser.clone(),
            depth: 0,
        };
        // What encloses everything: a `return` at the top leaves the block.
        let returns = vec![Vec::new()];
        Self { program, code, constants: HashMap::new(), temporaries: Vec::new(), used: 0, returns }
    }

    /// How deep tables nest; an error if without end.
    fn depth(&self) -> Result<usize, CompileError> {
        let mut deepest = 0;
        for (at, action) in self.program.actions.iter().enumerate() {
            let mut reached = vec![ActionId(at as u32)];
            let mut depth = 0;
            while !reached.is_empty() {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(CompileError::Depth { action: action.name.clone() });
                }
                let mut next: Vec<ActionId> = Vec::new();
                for action in &reached {
                    for table in applied(&self.program.actions[action.0 as usize].body) {
                        let table = &self.program.tables[table.0 as usize];
                        next.extend(&table.actions);
                        next.push(table.default.0);
                    }
                }
                next.sort_unstable();
                next.dedup();
                reached = next;
            }
            deepest = deepest.max(depth);
        }
        Ok(deepest)
    }

    /// Gives each key its place for good: it is filled where the table is applied.
    fn keys(&mut self) {
        for table in &self.program.tables {
            let places = table.keys.iter().map(|_| {
                self.code.values.push(0);
                self.code.values.len() as V - 1
            });
            let places = places.collect();
            self.code.keys.push(places);
        }
    }

    fn whole(&mut self, block: &Block) -> u32 {
        let start = self.here();
        self.block(block);
        self.leave();
        self.emit(Op::End);
        start
    }

    pub(super) fn block(&mut self, block: &Block) {
        for stmt in block {
            self.used = 0;
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Assign { to, value } => {
                let from = self.expr(value);
                self.store(*to, from);
            }
            StmtKind::SetValid { header, valid } => self.emit(Op::SetValid { header: *header, valid: *valid }),
            StmtKind::If { condition, then, otherwise } => self.branch(condition, then, otherwise),
            StmtKind::Apply { table, hit, action } => self.apply(*table, *hit, *action),
            StmtKind::Body(block) => {
                self.returns.push(Vec::new());
                self.block(block);
                let leaving = self.returns.pop().expect("pushed above");
                self.point_here(&leaving);
            }
            StmtKind::Return => {
                let at = self.code.ops.len();
                self.returns.last_mut().expect("one encloses everything").push(at);
                self.emit(Op::Jump { to: 0 });
            }
            StmtKind::Exit => self.emit(Op::End),
            StmtKind::Read { register, index, to } => {
                let index = self.expr(index);
                let place = self.temporary();
                self.emit(Op::Read { register: register.0, index, to: place });
                self.store(*to, place);
            }
            StmtKind::Write { register, index, value } => {
                let (index, value) = (self.expr(index), self.expr(value));
                self.emit(Op::Write { register: register.0, index, value });
            }
            StmtKind::Update { register, index, op, operand, to } => {
                let (index, operand, place) = (self.expr(index), self.expr(operand), self.temporary());
                self.emit(Op::Update { register: register.0, index, op: *op, operand, to: place });
                if let Some(to) = to {
                    self.store(*to, place);
                }
            }
            StmtKind::Count { counter, index } => {
                let index = self.expr(index);
                self.emit(Op::Count { counter: counter.0, index });
            }
            StmtKind::Hash { to, algorithm, base, inputs, max } => {
                let inputs = self.operands(inputs);
                let (base, max) = (self.expr(base), self.expr(max));
                let (hash, place) = (self.temporary(), self.temporary());
                self.emit(Op::Hash { to: hash, algorithm: *algorithm, inputs });
                self.emit(Op::HashRange { to: place, hash, base, max, width: self.program.width(*to) });
                self.store(*to, place);
            }
            StmtKind::Checksum { condition, to, algorithm, inputs, payload } => {
                let unless = self.unless(condition);
                let (inputs, place) = (self.operands(inputs), self.temporary());
                let width = self.program.width(*to);
                self.emit(Op::Checksum { to: place, algorithm: *algorithm, inputs, payload: *payload });
                self.emit(Op::Slice { to: place, of: place, low: 0, width });
                self.store(*to, place);
                self.point_here(&[unless]);
            }
            StmtKind::Verify { condition, expected, algorithm, inputs, payload } => {
                let Some(wrong) = super::standard(self.program, crate::ir::Standard::ChecksumError) else { return };
                let unless = self.unless(condition);
                let expected = self.expr(expected);
                let (inputs, place) = (self.operands(inputs), self.temporary());
                self.emit(Op::Checksum { to: place, algorithm: *algorithm, inputs, payload: *payload });
                let differs = self.temporary();
                self.emit(binary(Binary::Ne, differs, place, expected));
                let done = self.code.ops.len();
                self.emit(Op::JumpUnless { condition: differs, to: 0 });
                let one = self.constant(1);
                self.store(wrong, one);
                self.point_here(&[unless, done]);
            }
            StmtKind::Extract { header, varbits } => {
                let varbits = varbits.as_ref().map(|bits| self.expr(bits));
                self.emit(Op::Extract { header: *header, varbits });
            }
            StmtKind::Advance(bits) => {
                let bits = self.expr(bits);
                self.emit(Op::Advance { bits });
            }
            StmtKind::Require { condition, error } => {
                let condition = self.expr(condition);
                self.emit(Op::Require { condition, error: *error });
            }
            StmtKind::Digest { name, values } => {
                let values = self.operands(values);
                self.code.names.push(name.clone());
                self.emit(Op::Digest { name: self.code.names.len() as u32 - 1, values });
            }
            StmtKind::Clone { session } => {
                let session = self.expr(session);
                self.emit(Op::Clone { session });
            }
            StmtKind::Recirculate => self.emit(Op::Recirculate),
            StmtKind::Truncate(bytes) => {
                let bytes = self.expr(bytes);
                self.emit(Op::Truncate { bytes });
            }
            // On one machine there is one server.
            StmtKind::Steer { .. } => {}
            StmtKind::Remote => self.emit(Op::Remote),
        }
    }

    fn branch(&mut self, condition: &Expr, then: &Block, otherwise: &Block) {
        let unless = self.unless(condition);
        self.block(then);
        if otherwise.is_empty() {
            return self.point_here(&[unless]);
        }
        let done = self.code.ops.len();
        self.emit(Op::Jump { to: 0 });
        self.point_here(&[unless]);
        self.block(otherwise);
        self.point_here(&[done]);
    }

    fn apply(&mut self, table: TableId, hit: Option<SlotId>, action: Option<SlotId>) {
        let keys = &self.program.tables[table.0 as usize].keys;
        for (at, key) in keys.iter().enumerate() {
            let from = self.expr(&key.expr);
            self.emit(Op::Copy { to: self.code.keys_of(table, at), from });
        }
        self.emit(Op::Apply { table: table.0, hit, action });
    }

    /// A jump, to be pointed, that is taken if the condition does not hold.
    fn unless(&mut self, condition: &Expr) -> usize {
        let condition = self.expr(condition);
        self.emit(Op::JumpUnless { condition, to: 0 });
        self.code.ops.len() - 1
    }

    /// Where the value of an expression is to be found.
    pub(super) fn expr(&mut self, expr: &Expr) -> V {
        let width = expr.ty.width();
        match &expr.kind {
            ExprKind::Const(value) => self.constant(*value),
            ExprKind::Slot(slot) => slot.0,
            ExprKind::Valid(header) => self.code.headers[header.0 as usize].valid,
            ExprKind::Lookahead { skip } => self.result(|to| Op::Lookahead { to, skip: *skip, width }),
            ExprKind::Unary(op, of) => {
                let of = self.expr(of);
                self.result(|to| Op::Unary { op: *op, to, of, width })
            }
            ExprKind::Binary(op, left, right) => {
                let (left, right) = ((self.expr(left), left.ty), (self.expr(right), right.ty));
                let operands = if *op == Binary::Concat { right.1 } else { left.1 };
                let (width, signed) = (operands.width(), operands.signed());
                self.result(|to| Op::Binary { op: *op, to, left: left.0, right: right.0, width, signed })
            }
            ExprKind::Slice { of, high, low } => {
                let of = self.expr(of);
                self.result(|to| Op::Slice { to, of, low: *low, width: high - low + 1 })
            }
            ExprKind::Cast(of) => {
                let (from, signed) = (of.ty.width(), of.ty.signed());
                let of = self.expr(of);
                self.result(|to| Op::Cast { to, of, from, width, signed })
            }
            ExprKind::Mux(condition, then, otherwise) => {
                let (condition, then, otherwise) = (self.expr(condition), self.expr(then), self.expr(otherwise));
                self.result(|to| Op::Mux { to, condition, then, otherwise })
            }
        }
    }

    fn operands(&mut self, exprs: &[Expr]) -> Range {
        let operands: Vec<_> = exprs.iter().map(|expr| (self.expr(expr), expr.ty.width())).collect();
        let start = self.code.operands.len() as u32;
        self.code.operands.extend(operands);
        Range { start, end: self.code.operands.len() as u32 }
    }

    fn store(&mut self, slot: SlotId, from: V) {
        let to = slot.0;
        match self.program.slots[to as usize].kind {
            SlotKind::Field { header, .. } => {
                self.emit(Op::CopyIf { to, from, valid: self.code.headers[header.0 as usize].valid });
            }
            _ => self.emit(Op::Copy { to, from }),
        }
    }

    fn result(&mut self, op: impl FnOnce(V) -> Op) -> V {
        let to = self.temporary();
        self.emit(op(to));
        to
    }

    pub(super) fn temporary(&mut self) -> V {
        if self.used == self.temporaries.len() {
            self.code.values.push(0);
            self.temporaries.push(self.code.values.len() as V - 1);
        }
        self.used += 1;
        self.temporaries[self.used - 1]
    }

    pub(super) fn constant(&mut self, value: u128) -> V {
        let values = &mut self.code.values;
        *self.constants.entry(value).or_insert_with(|| {
            values.push(value);
            values.len() as V - 1
        })
    }

    pub(super) fn emit(&mut self, op: Op) {
        self.code.ops.push(op);
    }

    pub(super) fn here(&self) -> u32 {
        self.code.ops.len() as u32
    }

    /// Points the `return`s of the outermost body here.
    pub(super) fn leave(&mut self) {
        let leaving = std::mem::take(self.returns.last_mut().expect("one encloses everything"));
        self.point_here(&leaving);
    }

    pub(super) fn point_here(&mut self, jumps: &[usize]) {
        let here = self.here();
        for at in jumps {
            match &mut self.code.ops[*at] {
                Op::Jump { to } | Op::JumpUnless { to, .. } => *to = here,
                other => unreachable!("{other:?} is no jump"),
            }
        }
    }
}

impl Code {
    fn keys_of(&self, table: TableId, at: usize) -> V {
        self.keys[table.0 as usize][at]
    }
}

fn binary(op: Binary, to: V, left: V, right: V) -> Op {
    Op::Binary { op, to, left, right, width: Ty::Bit(128).width(), signed: false }
}

/// Tables that a block applies.
fn applied(block: &Block) -> Vec<TableId> {
    let mut tables = Vec::new();
    for stmt in block {
        match &stmt.kind {
            StmtKind::Apply { table, .. } => tables.push(*table),
            StmtKind::If { then, otherwise, .. } => {
                tables.extend(applied(then));
                tables.extend(applied(otherwise));
            }
            StmtKind::Body(block) => tables.extend(applied(block)),
            _ => {}
        }
    }
    tables
}
