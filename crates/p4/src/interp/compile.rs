//! Compiler from the IR to [`Bytecode`].

use std::collections::HashMap;

use super::code::{Bytecode, HeaderSlots, Instruction, Range, ValueId};
use crate::ir::{ActionId, Binary, Block, Expr, ExprKind, Program, SlotId, SlotKind, Stmt, StmtKind, TableId, Ty};

/// Largest nesting depth of tables whose actions apply tables.
const DEPTH_MAX: usize = 8;

/// Error of the interpreter's compiler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Tables and actions nest too deep, or in a cycle.
    #[error("action {action} applies tables more than {DEPTH_MAX} levels deep")]
    Depth {
        /// Name of the action.
        action: String,
    },
    /// An entry or default action of the program does not fit its table.
    #[error(transparent)]
    Entry(#[from] crate::exec::TableError),
}

/// Compiles a program.
pub fn compile(program: &Program) -> Result<Bytecode, CompileError> {
    let mut compiler = Compiler::new(program);
    let depth = compiler.nesting_depth()?;
    compiler.allocate_keys();
    for action in &program.actions {
        compiler.code.actions.push(compiler.position());
        compiler.compile_block(&action.body);
        compiler.patch_returns();
        compiler.emit(Instruction::Back);
    }
    compiler.code.parser = compiler.compile_parser();
    compiler.code.verify = compiler.compile_whole(&program.verify);
    compiler.code.ingress = compiler.compile_whole(&program.ingress);
    compiler.code.egress = compiler.compile_whole(&program.egress);
    compiler.code.compute = compiler.compile_whole(&program.compute);
    compiler.code.depth = depth;
    Ok(compiler.code)
}

pub(super) struct Compiler<'a> {
    pub(super) program: &'a Program,
    pub(super) code: Bytecode,
    constants: HashMap<u128, ValueId>,
    /// Values for intermediate results, reused by each statement.
    temporaries: Vec<ValueId>,
    pub(super) used: usize,
    /// Jumps of pending `Return`s of each enclosing body, to be patched.
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
            let (valid, varbits) = ((slots + at) as ValueId, (slots + program.headers.len() + at) as ValueId);
            HeaderSlots { fields, bits, varbits_max: header.varbit_bits_max.unwrap_or(0), valid, varbits }
        };
        let code = Bytecode {
            ops: Vec::new(),
            values: vec![0; cleared],
            cleared,
            length_max: length_max as ValueId,
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
        // Outermost body: a top-level `return` leaves the block.
        let returns = vec![Vec::new()];
        Self { program, code, constants: HashMap::new(), temporaries: Vec::new(), used: 0, returns }
    }

    /// Nesting depth of tables; an error if it is unbounded.
    fn nesting_depth(&self) -> Result<usize, CompileError> {
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

    /// Allocates the key values of all tables, which `Apply` fills.
    fn allocate_keys(&mut self) {
        for table in &self.program.tables {
            let places = table.keys.iter().map(|_| {
                self.code.values.push(0);
                self.code.values.len() as ValueId - 1
            });
            let places = places.collect();
            self.code.keys.push(places);
        }
    }

    fn compile_whole(&mut self, block: &Block) -> u32 {
        let start = self.position();
        self.compile_block(block);
        self.patch_returns();
        self.emit(Instruction::End);
        start
    }

    pub(super) fn compile_block(&mut self, block: &Block) {
        for stmt in block {
            self.used = 0;
            self.compile_stmt(stmt);
        }
    }

    fn compile_stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Assign { to, value } => {
                let from = self.compile_expr(value);
                self.emit_store(*to, from);
            }
            StmtKind::SetValid { header, valid } => self.emit(Instruction::SetValid { header: *header, valid: *valid }),
            StmtKind::If { condition, then, otherwise } => self.compile_branch(condition, then, otherwise),
            StmtKind::Apply { table, hit, action } => self.compile_apply(*table, *hit, *action),
            StmtKind::Body(block) => {
                self.returns.push(Vec::new());
                self.compile_block(block);
                let leaving = self.returns.pop().expect("pushed above");
                self.patch_jumps(&leaving);
            }
            StmtKind::Return => {
                let at = self.code.ops.len();
                self.returns.last_mut().expect("one encloses everything").push(at);
                self.emit(Instruction::Jump { to: 0 });
            }
            StmtKind::Exit => self.emit(Instruction::End),
            StmtKind::Read { register, index, to } => {
                let index = self.compile_expr(index);
                let place = self.new_temporary();
                self.emit(Instruction::Read { register: register.0, index, to: place });
                self.emit_store(*to, place);
            }
            StmtKind::Write { register, index, value } => {
                let (index, value) = (self.compile_expr(index), self.compile_expr(value));
                self.emit(Instruction::Write { register: register.0, index, value });
            }
            StmtKind::Update { register, index, op, operand, to } => {
                let (index, operand, place) =
                    (self.compile_expr(index), self.compile_expr(operand), self.new_temporary());
                self.emit(Instruction::Update { register: register.0, index, op: *op, operand, to: place });
                if let Some(to) = to {
                    self.emit_store(*to, place);
                }
            }
            StmtKind::Count { counter, index } => {
                let index = self.compile_expr(index);
                self.emit(Instruction::Count { counter: counter.0, index });
            }
            StmtKind::Hash { to, algorithm, base, inputs, max } => {
                let inputs = self.compile_operands(inputs);
                let (base, max) = (self.compile_expr(base), self.compile_expr(max));
                let (hash, place) = (self.new_temporary(), self.new_temporary());
                self.emit(Instruction::Hash { to: hash, algorithm: *algorithm, inputs });
                self.emit(Instruction::HashRange { to: place, hash, base, max, width: self.program.width(*to) });
                self.emit_store(*to, place);
            }
            StmtKind::Checksum { condition, to, algorithm, inputs, payload } => {
                let unless = self.jump_unless(condition);
                let (inputs, place) = (self.compile_operands(inputs), self.new_temporary());
                let width = self.program.width(*to);
                self.emit(Instruction::Checksum { to: place, algorithm: *algorithm, inputs, payload: *payload });
                self.emit(Instruction::Slice { to: place, of: place, low: 0, width });
                self.emit_store(*to, place);
                self.patch_jumps(&[unless]);
            }
            StmtKind::Verify { condition, expected, algorithm, inputs, payload } => {
                let Some(wrong) = super::standard(self.program, crate::ir::StandardField::ChecksumError) else {
                    return;
                };
                let unless = self.jump_unless(condition);
                let expected = self.compile_expr(expected);
                let (inputs, place) = (self.compile_operands(inputs), self.new_temporary());
                self.emit(Instruction::Checksum { to: place, algorithm: *algorithm, inputs, payload: *payload });
                let differs = self.new_temporary();
                self.emit(binary(Binary::Ne, differs, place, expected));
                let done = self.code.ops.len();
                self.emit(Instruction::JumpUnless { condition: differs, to: 0 });
                let one = self.new_constant(1);
                self.emit_store(wrong, one);
                self.patch_jumps(&[unless, done]);
            }
            StmtKind::Extract { header, varbits } => {
                let varbits = varbits.as_ref().map(|bits| self.compile_expr(bits));
                self.emit(Instruction::Extract { header: *header, varbits });
            }
            StmtKind::Advance(bits) => {
                let bits = self.compile_expr(bits);
                self.emit(Instruction::Advance { bits });
            }
            StmtKind::Require { condition, error } => {
                let condition = self.compile_expr(condition);
                self.emit(Instruction::Require { condition, error: *error });
            }
            StmtKind::Digest { name, values } => {
                let values = self.compile_operands(values);
                self.code.names.push(name.clone());
                self.emit(Instruction::Digest { name: self.code.names.len() as u32 - 1, values });
            }
            StmtKind::Clone { session } => {
                let session = self.compile_expr(session);
                self.emit(Instruction::Clone { session });
            }
            StmtKind::Recirculate => self.emit(Instruction::Recirculate),
            StmtKind::Truncate(bytes) => {
                let bytes = self.compile_expr(bytes);
                self.emit(Instruction::Truncate { bytes });
            }
            // The interpreter has a single server.
            StmtKind::Steer { .. } => {}
            StmtKind::Remote => self.emit(Instruction::Remote),
        }
    }

    fn compile_branch(&mut self, condition: &Expr, then: &Block, otherwise: &Block) {
        let unless = self.jump_unless(condition);
        self.compile_block(then);
        if otherwise.is_empty() {
            return self.patch_jumps(&[unless]);
        }
        let done = self.code.ops.len();
        self.emit(Instruction::Jump { to: 0 });
        self.patch_jumps(&[unless]);
        self.compile_block(otherwise);
        self.patch_jumps(&[done]);
    }

    fn compile_apply(&mut self, table: TableId, hit: Option<SlotId>, action: Option<SlotId>) {
        let keys = &self.program.tables[table.0 as usize].keys;
        for (at, key) in keys.iter().enumerate() {
            let from = self.compile_expr(&key.expr);
            self.emit(Instruction::Copy { to: self.code.keys_of(table, at), from });
        }
        self.emit(Instruction::Apply { table: table.0, hit, action });
    }

    /// Emits a jump that is taken if the condition is false, to be patched.
    fn jump_unless(&mut self, condition: &Expr) -> usize {
        let condition = self.compile_expr(condition);
        self.emit(Instruction::JumpUnless { condition, to: 0 });
        self.code.ops.len() - 1
    }

    /// Emits an expression; returns the value that holds its result.
    pub(super) fn compile_expr(&mut self, expr: &Expr) -> ValueId {
        let width = expr.ty.width();
        match &expr.kind {
            ExprKind::Const(value) => self.new_constant(*value),
            ExprKind::Slot(slot) => slot.0,
            ExprKind::Valid(header) => self.code.headers[header.0 as usize].valid,
            ExprKind::Lookahead { skip } => self.emit_result(|to| Instruction::Lookahead { to, skip: *skip, width }),
            ExprKind::Unary(op, of) => {
                let of = self.compile_expr(of);
                self.emit_result(|to| Instruction::Unary { op: *op, to, of, width })
            }
            ExprKind::Binary(op, left, right) => {
                let (left, right) = ((self.compile_expr(left), left.ty), (self.compile_expr(right), right.ty));
                let operands = if *op == Binary::Concat { right.1 } else { left.1 };
                let (width, signed) = (operands.width(), operands.signed());
                self.emit_result(|to| Instruction::Binary { op: *op, to, left: left.0, right: right.0, width, signed })
            }
            ExprKind::Slice { of, high, low } => {
                let of = self.compile_expr(of);
                self.emit_result(|to| Instruction::Slice { to, of, low: *low, width: high - low + 1 })
            }
            ExprKind::Cast(of) => {
                let (from, signed) = (of.ty.width(), of.ty.signed());
                let of = self.compile_expr(of);
                self.emit_result(|to| Instruction::Cast { to, of, from, width, signed })
            }
            ExprKind::Mux(condition, then, otherwise) => {
                let (condition, then, otherwise) =
                    (self.compile_expr(condition), self.compile_expr(then), self.compile_expr(otherwise));
                self.emit_result(|to| Instruction::Mux { to, condition, then, otherwise })
            }
        }
    }

    fn compile_operands(&mut self, exprs: &[Expr]) -> Range {
        let operands: Vec<_> = exprs.iter().map(|expr| (self.compile_expr(expr), expr.ty.width())).collect();
        let start = self.code.operands.len() as u32;
        self.code.operands.extend(operands);
        Range { start, end: self.code.operands.len() as u32 }
    }

    fn emit_store(&mut self, slot: SlotId, from: ValueId) {
        let to = slot.0;
        match self.program.slots[to as usize].kind {
            SlotKind::Field { header, .. } => {
                self.emit(Instruction::CopyIf { to, from, valid: self.code.headers[header.0 as usize].valid });
            }
            _ => self.emit(Instruction::Copy { to, from }),
        }
    }

    fn emit_result(&mut self, op: impl FnOnce(ValueId) -> Instruction) -> ValueId {
        let to = self.new_temporary();
        self.emit(op(to));
        to
    }

    pub(super) fn new_temporary(&mut self) -> ValueId {
        if self.used == self.temporaries.len() {
            self.code.values.push(0);
            self.temporaries.push(self.code.values.len() as ValueId - 1);
        }
        self.used += 1;
        self.temporaries[self.used - 1]
    }

    pub(super) fn new_constant(&mut self, value: u128) -> ValueId {
        let values = &mut self.code.values;
        *self.constants.entry(value).or_insert_with(|| {
            values.push(value);
            values.len() as ValueId - 1
        })
    }

    pub(super) fn emit(&mut self, op: Instruction) {
        self.code.ops.push(op);
    }

    pub(super) fn position(&self) -> u32 {
        self.code.ops.len() as u32
    }

    /// Patches the `return`s of the outermost body to the current position.
    pub(super) fn patch_returns(&mut self) {
        let leaving = std::mem::take(self.returns.last_mut().expect("one encloses everything"));
        self.patch_jumps(&leaving);
    }

    pub(super) fn patch_jumps(&mut self, jumps: &[usize]) {
        let here = self.position();
        for at in jumps {
            match &mut self.code.ops[*at] {
                Instruction::Jump { to } | Instruction::JumpUnless { to, .. } => *to = here,
                other => unreachable!("{other:?} is no jump"),
            }
        }
    }
}

impl Bytecode {
    fn keys_of(&self, table: TableId, at: usize) -> ValueId {
        self.keys[table.0 as usize][at]
    }
}

fn binary(op: Binary, to: ValueId, left: ValueId, right: ValueId) -> Instruction {
    Instruction::Binary { op, to, left, right, width: Ty::Bit(128).width(), signed: false }
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
