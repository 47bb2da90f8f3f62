//! Builder for compiler-generated parts of a program. Generated names begin with `pc.`; spans are the default.

use crate::ir::{
    Action, ActionId, Block, Counter, CounterId, Expr, ExprKind, Header, HeaderId, MatchKind, Program, Register,
    RegisterId, Slot, SlotId, SlotKind, SourceSpan, StandardField, Stmt, StmtKind, Table, TableEntry, TableId,
    TableKey, Ty, Unary,
};

/// Program under construction.
#[derive(Debug)]
pub struct Build {
    /// Program so far.
    pub program: Program,
}

impl Build {
    /// New local variable.
    pub fn local(&mut self, name: &str, ty: Ty) -> SlotId {
        self.slot(name, ty, SlotKind::Local)
    }

    /// New slot.
    pub fn slot(&mut self, name: &str, ty: Ty, kind: SlotKind) -> SlotId {
        self.program.slots.push(Slot { name: name.to_owned(), ty, kind });
        SlotId(self.program.slots.len() as u32 - 1)
    }

    /// Slot of a field of `standard_metadata`, added if absent.
    pub fn standard(&mut self, field: StandardField) -> SlotId {
        let kind = SlotKind::Standard(field);
        if let Some(at) = self.program.slots.iter().position(|slot| slot.kind == kind) {
            return SlotId(at as u32);
        }
        let (name, width) = match field {
            StandardField::IngressPort => ("ingress_port", 9),
            StandardField::EgressSpec => ("egress_spec", 9),
            StandardField::EgressPort => ("egress_port", 9),
            StandardField::PacketLength => ("packet_length", 32),
            StandardField::IngressTimestamp => ("ingress_global_timestamp", 48),
            StandardField::McastGroup => ("mcast_grp", 16),
            StandardField::EgressRid => ("egress_rid", 16),
            StandardField::InstanceType => ("instance_type", 32),
            StandardField::ChecksumError => ("checksum_error", 1),
            StandardField::ParserError => ("parser_error", 16),
        };
        self.slot(&format!("pc.sm.{name}"), Ty::Bit(width), kind)
    }

    /// New header with these fields, together whole bytes.
    pub fn header(&mut self, name: &str, fields: &[(String, Ty)]) -> (HeaderId, Vec<SlotId>) {
        let id = HeaderId(self.program.headers.len() as u32);
        let mut offset_bits = 0;
        let mut slots = Vec::new();
        for (field, ty) in fields {
            slots.push(self.slot(&format!("{name}.{field}"), *ty, SlotKind::Field { header: id, offset_bits }));
            offset_bits += u32::from(ty.width());
        }
        debug_assert_eq!(offset_bits % 8, 0, "{name} is whole bytes");
        self.program.headers.push(Header {
            name: name.to_owned(),
            type_name: format!("{}_t", name.replace('.', "_")),
            fields: slots.clone(),
            varbit_bits_max: None,
        });
        (id, slots)
    }

    /// New action with parameters of these names and types.
    pub fn action(&mut self, name: &str, params: &[(&str, Ty)], body: impl FnOnce(&[SlotId]) -> Block) -> ActionId {
        let params: Vec<_> = params.iter().map(|(param, ty)| self.local(&format!("{name}.{param}"), *ty)).collect();
        let body = body(&params);
        self.program.actions.push(Action { name: name.to_owned(), params, body });
        ActionId(self.program.actions.len() as u32 - 1)
    }

    /// New table of `size` entries.
    pub fn table(
        &mut self,
        name: &str,
        keys: &[(&str, Expr, MatchKind)],
        actions: &[ActionId],
        default: (ActionId, Vec<u128>),
        size: u32,
    ) -> TableId {
        let key = |(name, expr, kind): &(&str, Expr, MatchKind)| TableKey {
            expr: expr.clone(),
            kind: *kind,
            name: (*name).to_owned(),
        };
        self.program.tables.push(Table {
            name: name.to_owned(),
            keys: keys.iter().map(key).collect(),
            actions: actions.to_vec(),
            default,
            entries: Vec::<TableEntry>::new(),
            size,
            mirrored: false,
            idle_timeout_ms: None,
            at: SourceSpan::default(),
        });
        TableId(self.program.tables.len() as u32 - 1)
    }

    /// New register array.
    pub fn register(&mut self, name: &str, ty: Ty, size: u32) -> RegisterId {
        self.program.registers.push(Register { name: name.to_owned(), ty, size, mirrored: false });
        RegisterId(self.program.registers.len() as u32 - 1)
    }

    /// New counter array.
    pub fn counter(&mut self, name: &str, size: u32) -> CounterId {
        self.program.counters.push(Counter { name: name.to_owned(), size });
        CounterId(self.program.counters.len() as u32 - 1)
    }

    /// Value of a slot.
    pub fn value(&self, slot: SlotId) -> Expr {
        Expr::slot(self.program.slots[slot.0 as usize].ty, slot)
    }

    /// Expression `slot == number`.
    pub fn is(&self, slot: SlotId, number: u128) -> Expr {
        let ty = self.program.slots[slot.0 as usize].ty;
        Expr::binary(Ty::Bool, crate::ir::Binary::Eq, self.value(slot), Expr::constant(ty, number))
    }

    /// Statement `slot = number`.
    pub fn put(&self, slot: SlotId, number: u128) -> Stmt {
        assign(slot, Expr::constant(self.program.slots[slot.0 as usize].ty, number))
    }

    /// Statement `to = from`, truncated or zero-extended if the widths differ.
    pub fn copy(&self, to: SlotId, from: SlotId) -> Stmt {
        assign(to, cast(self.program.slots[to.0 as usize].ty, self.value(from)))
    }
}

/// Statement with the default span.
#[must_use]
pub fn stmt(kind: StmtKind) -> Stmt {
    Stmt { kind, at: SourceSpan::default() }
}

/// Statement `to = value`.
#[must_use]
pub fn assign(to: SlotId, value: Expr) -> Stmt {
    stmt(StmtKind::Assign { to, value })
}

/// Statement `if (condition) then`.
#[must_use]
pub fn when(condition: Expr, then: Block) -> Stmt {
    either(condition, then, Vec::new())
}

/// Statement `if (condition) then else otherwise`.
#[must_use]
pub fn either(condition: Expr, then: Block, otherwise: Block) -> Stmt {
    stmt(StmtKind::If { condition, then, otherwise })
}

/// Expression `!of`.
#[must_use]
pub fn not(of: Expr) -> Expr {
    Expr { ty: Ty::Bool, kind: ExprKind::Unary(Unary::Not, Box::new(of)) }
}

/// Expression `left && right`.
#[must_use]
pub fn and(left: Expr, right: Expr) -> Expr {
    Expr::binary(Ty::Bool, crate::ir::Binary::LogicalAnd, left, right)
}

/// Expression `header.isValid()`.
#[must_use]
pub fn valid(header: HeaderId) -> Expr {
    Expr { ty: Ty::Bool, kind: ExprKind::Valid(header) }
}

/// Statement `header.setValid()` or `header.setInvalid()`.
#[must_use]
pub fn set_valid(header: HeaderId, valid: bool) -> Stmt {
    stmt(StmtKind::SetValid { header, valid })
}

/// Expression `(ty)of`; `of` itself if the type is the same.
#[must_use]
pub fn cast(ty: Ty, of: Expr) -> Expr {
    if of.ty == ty {
        return of;
    }
    // The bits are copied: a cast between the slots of one value must not extend the sign.
    let bits = Expr { ty: Ty::Bit(of.ty.width()), kind: ExprKind::Cast(Box::new(of.clone())) };
    let of = if of.ty.signed() { bits } else { of };
    Expr { ty, kind: ExprKind::Cast(Box::new(of)) }
}
