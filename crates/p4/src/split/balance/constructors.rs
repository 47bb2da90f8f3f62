//! Shorthand constructors of statements and expressions.

use crate::ir::{
    Action, ActionId, Binary, Block, Expr, ExprKind, MatchKind, Program, Register, RegisterId, Slot, SlotId, SlotKind,
    StandardField, Stmt, StmtKind, Table, TableId, TableKey, Ty, Unary,
};

/// Slot with its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Var {
    /// Slot.
    pub slot: SlotId,
    /// Type.
    pub ty: Ty,
}

impl Var {
    /// Expression that reads the slot.
    pub(super) fn get(self) -> Expr {
        Expr::slot(self.ty, self.slot)
    }

    /// Statement that assigns the slot.
    pub(super) fn set(self, value: Expr) -> Stmt {
        stmt(StmtKind::Assign { to: self.slot, value })
    }
}

pub(super) fn stmt(kind: StmtKind) -> Stmt {
    Stmt { kind, at: Default::default() }
}

pub(super) fn number(width: u16, value: u128) -> Expr {
    Expr::constant(Ty::Bit(width), value)
}

pub(super) fn truth(value: bool) -> Expr {
    Expr::constant(Ty::Bool, value.into())
}

pub(super) fn op(op: Binary, left: Expr, right: Expr) -> Expr {
    use Binary as B;
    let ty = match op {
        B::Eq | B::Ne | B::Lt | B::Le | B::Gt | B::Ge | B::LogicalAnd | B::LogicalOr => Ty::Bool,
        B::Concat => Ty::Bit(left.ty.width() + right.ty.width()),
        _ => left.ty,
    };
    Expr::binary(ty, op, left, right)
}

pub(super) fn eq(left: Expr, right: Expr) -> Expr {
    op(Binary::Eq, left, right)
}

pub(super) fn ne(left: Expr, right: Expr) -> Expr {
    op(Binary::Ne, left, right)
}

pub(super) fn and(left: Expr, right: Expr) -> Expr {
    op(Binary::LogicalAnd, left, right)
}

pub(super) fn or(left: Expr, right: Expr) -> Expr {
    op(Binary::LogicalOr, left, right)
}

pub(super) fn not(of: Expr) -> Expr {
    Expr { ty: Ty::Bool, kind: ExprKind::Unary(Unary::Not, Box::new(of)) }
}

/// Concatenation, with `left` in the high bits.
pub(super) fn join(left: Expr, right: Expr) -> Expr {
    op(Binary::Concat, left, right)
}

pub(super) fn plus(left: Expr, right: u128) -> Expr {
    let width = left.ty.width();
    op(Binary::Add, left, number(width, right))
}

pub(super) fn minus(left: Expr, right: u128) -> Expr {
    let width = left.ty.width();
    op(Binary::Sub, left, number(width, right))
}

/// Bits `high..=low`.
pub(super) fn bits(of: Expr, high: u16, low: u16) -> Expr {
    Expr { ty: Ty::Bit(high - low + 1), kind: ExprKind::Slice { of: Box::new(of), high, low } }
}

/// Single bit as a `bool`.
pub(super) fn bit(of: Expr, at: u16) -> Expr {
    eq(bits(of, at, at), number(1, 1))
}

/// Zero extension or truncation.
pub(super) fn cast(width: u16, of: Expr) -> Expr {
    if of.ty == Ty::Bit(width) { of } else { Expr { ty: Ty::Bit(width), kind: ExprKind::Cast(Box::new(of)) } }
}

pub(super) fn choose(condition: Expr, then: Expr, otherwise: Expr) -> Expr {
    Expr { ty: then.ty, kind: ExprKind::Mux(Box::new(condition), Box::new(then), Box::new(otherwise)) }
}

pub(super) fn when(condition: Expr, then: Block, otherwise: Block) -> Stmt {
    stmt(StmtKind::If { condition, then, otherwise })
}

pub(super) fn read(register: RegisterId, index: Expr, to: Var) -> Stmt {
    stmt(StmtKind::Read { register, index, to: to.slot })
}

pub(super) fn write(register: RegisterId, index: Expr, value: Expr) -> Stmt {
    stmt(StmtKind::Write { register, index, value })
}

pub(super) fn update(register: RegisterId, index: Expr, op: Binary, operand: Expr, to: Option<Var>) -> Stmt {
    stmt(StmtKind::Update { register, index, op, operand, to: to.map(|to| to.slot) })
}

pub(super) fn var(program: &mut Program, name: &str, ty: Ty) -> Var {
    program.slots.push(Slot { name: format!("pc.{name}"), ty, kind: SlotKind::Metadata });
    Var { slot: SlotId(program.slots.len() as u32 - 1), ty }
}

/// Slot of a field of `standard_metadata`, added if absent.
pub(super) fn standard(program: &mut Program, field: StandardField, name: &str, width: u16) -> Var {
    let found = program.slots.iter().position(|slot| slot.kind == SlotKind::Standard(field));
    let index = found.unwrap_or_else(|| {
        let slot = Slot { name: format!("pc.sm.{name}"), ty: Ty::Bit(width), kind: SlotKind::Standard(field) };
        program.slots.push(slot);
        program.slots.len() - 1
    });
    Var { slot: SlotId(index as u32), ty: program.slots[index].ty }
}

pub(super) fn register(program: &mut Program, name: &str, width: u16, size: u32) -> RegisterId {
    program.registers.push(Register { name: format!("pc.{name}"), ty: Ty::Bit(width), size, mirrored: false });
    RegisterId(program.registers.len() as u32 - 1)
}

pub(super) fn action(program: &mut Program, name: &str, params: Vec<SlotId>, body: Block) -> ActionId {
    program.actions.push(Action { name: format!("pc.{name}"), params, body });
    ActionId(program.actions.len() as u32 - 1)
}

/// Table of exact keys with one action, and no effect on a miss.
pub(super) fn table(
    program: &mut Program,
    name: &str,
    keys: &[Var],
    (hit, miss): (ActionId, ActionId),
    size: u32,
) -> TableId {
    let key = |var: &Var| {
        let name = program.slots[var.slot.0 as usize].name.clone();
        TableKey { expr: var.get(), kind: MatchKind::Exact, name }
    };
    let keys = keys.iter().map(key).collect();
    program.tables.push(Table {
        name: format!("pc.{name}"),
        keys,
        actions: vec![hit, miss],
        default: (miss, Vec::new()),
        entries: Vec::new(),
        size,
        mirrored: false,
        idle_timeout_ms: None,
        at: Default::default(),
    });
    TableId(program.tables.len() as u32 - 1)
}
