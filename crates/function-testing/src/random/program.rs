//! Random programs.

use super::Choices;
use super::expr::{ExprScope, ty};
use pathcall_p4::ir::{
    Action, ActionId, Binary, Counter, Expr, ExprKind, Header, HeaderId, Keyset, Match, MatchKind, Parser, ParserState,
    Program, Register, Slot, SlotId, SlotKind, SourceSpan, StandardField, StateId, Stmt, StmtKind, Table, TableEntry,
    TableKey, Transition, Ty,
};

/// Optional constructs of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramLimits {
    /// Copies of packets: clones and multicasts.
    pub copies: bool,
    /// Constructs that only the compiler generates: atomic register updates, and a table's hit and action together.
    pub generated: bool,
}

/// Nesting bounds of expressions and statements.
const EXPR_DEPTH: usize = 3;
pub(super) const BLOCK_DEPTH: usize = 2;
/// Number of egress ports, besides the drop port.
pub(super) const PORTS: usize = 4;

/// Random program.
#[must_use]
pub fn program(choices: &mut Choices<'_>, limits: ProgramLimits) -> Program {
    let mut made = ProgramGenerator::new(limits);
    made.slots(choices);
    made.storage(choices);
    let ingress = made.block(choices, BLOCK_DEPTH, StatementPosition::Ingress, 8);
    made.program.ingress.extend(ingress);
    made.leave(choices);
    made.program
}

fn empty() -> Program {
    Program {
        name: "random".to_owned(),
        slots: Vec::new(),
        headers: Vec::new(),
        parser: Parser::default(),
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
    }
}

pub(super) fn stmt(kind: StmtKind) -> Stmt {
    Stmt { kind, at: SourceSpan::default() }
}

/// Position of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementPosition {
    Action,
    Ingress,
    Egress,
}

pub(super) struct ProgramGenerator {
    pub(super) program: Program,
    pub(super) limits: ProgramLimits,
    /// True for a function to be split, whose requests hold packets as received.
    pub(super) split: bool,
    /// True while a checksum control is generated.
    of_checksums: bool,
    /// Slots that statements may write.
    pub(super) writable: Vec<SlotId>,
    /// Results that no statement has read yet.
    pub(super) results: Vec<SlotId>,
}

impl ProgramGenerator {
    pub(super) fn new(limits: ProgramLimits) -> Self {
        let (program, writable, results) = (empty(), Vec::new(), Vec::new());
        Self { program, limits, split: false, of_checksums: false, writable, results }
    }

    /// Generates everything before the ingress.
    pub(super) fn storage(&mut self, choices: &mut Choices<'_>) {
        self.headers(choices);
        self.memory(choices);
        self.parser(choices);
        self.tables(choices);
        let fields = self.fields_of_16_bits();
        self.of_checksums = true;
        for _ in 0..choices.below(3) {
            let verify = self.checksum(choices, &fields, true);
            self.program.verify.extend(verify);
        }
        self.of_checksums = false;
        // A packet leaves by a port of its own, unless the program changes it.
        let port = self.standard(StandardField::EgressSpec);
        let out = Expr::constant(Ty::Bit(9), choices.below(PORTS) as u128);
        self.program.ingress = vec![stmt(StmtKind::Assign { to: port, value: out })];
    }

    /// Generates everything after the ingress.
    pub(super) fn leave(&mut self, choices: &mut Choices<'_>) {
        self.program.egress = self.block(choices, 1, StatementPosition::Egress, 3);
        let fields = self.fields_of_16_bits();
        self.of_checksums = true;
        for _ in 0..choices.below(3) {
            let compute = self.checksum(choices, &fields, false);
            self.program.compute.extend(compute);
        }
    }

    pub(super) fn slot(&mut self, name: String, ty: Ty, kind: SlotKind) -> SlotId {
        self.program.slots.push(Slot { name, ty, kind });
        SlotId(self.program.slots.len() as u32 - 1)
    }

    pub(super) fn standard(&self, which: StandardField) -> SlotId {
        let found = self.program.slots.iter().position(|slot| slot.kind == SlotKind::Standard(which));
        SlotId(found.expect("all are made first") as u32)
    }

    pub(super) fn slots(&mut self, choices: &mut Choices<'_>) {
        let standard = [
            (StandardField::IngressPort, "ingress_port", 9),
            (StandardField::EgressSpec, "egress_spec", 9),
            (StandardField::EgressPort, "egress_port", 9),
            (StandardField::PacketLength, "packet_length", 32),
            (StandardField::IngressTimestamp, "ingress_global_timestamp", 48),
            (StandardField::InstanceType, "instance_type", 32),
            (StandardField::ChecksumError, "checksum_error", 1),
            (StandardField::McastGroup, "mcast_grp", 16),
        ];
        for (which, name, width) in standard {
            self.slot(format!("standard_metadata.{name}"), Ty::Bit(width), SlotKind::Standard(which));
        }
        for i in 0..2 + choices.below(6) {
            let ty = ty(choices);
            let slot = self.slot(format!("meta.m{i}"), ty, SlotKind::Metadata);
            self.writable.push(slot);
        }
        for i in 0..choices.below(4) {
            let ty = ty(choices);
            let slot = self.slot(format!("ingress.l{i}"), ty, SlotKind::Local);
            self.writable.push(slot);
        }
    }

    /// Ethernet header, always extracted and emitted, and further headers.
    fn headers(&mut self, choices: &mut Choices<'_>) {
        self.header("ethernet", &[Ty::Bit(48), Ty::Bit(48), Ty::Bit(16)], None);
        for i in 0..1 + choices.below(4) {
            let (mut fields, mut bits) = (Vec::new(), 0);
            for _ in 0..1 + choices.below(6) {
                let ty = match ty(choices) {
                    Ty::Bool => Ty::Bit(8),
                    other => other,
                };
                bits += ty.width();
                fields.push(ty);
            }
            if bits % 8 != 0 {
                fields.push(Ty::Bit(8 - bits % 8));
            }
            let varbits = choices.one_of(4).then(|| 8 * (1 + choices.below(40) as u32));
            self.header(&format!("h{i}"), &fields, varbits);
        }
        let count = self.program.headers.len() as u32;
        self.program.deparser = (0..count).map(HeaderId).collect();
        if count > 2 && choices.one_of(4) && !self.split {
            self.program.deparser.swap(1, 2);
        }
    }

    fn header(&mut self, name: &str, fields: &[Ty], varbit_bits_max: Option<u32>) {
        let header = HeaderId(self.program.headers.len() as u32);
        let mut offset_bits = 0;
        let fields = fields.iter().enumerate().map(|(i, ty)| {
            let kind = SlotKind::Field { header, offset_bits };
            offset_bits += u32::from(ty.width());
            let slot = self.slot(format!("hdr.{name}.f{i}"), *ty, kind);
            self.writable.push(slot);
            slot
        });
        let fields = fields.collect();
        let (name, type_name) = (format!("hdr.{name}"), format!("{name}_t"));
        self.program.headers.push(Header { name, type_name, fields, varbit_bits_max });
    }

    fn memory(&mut self, choices: &mut Choices<'_>) {
        for i in 0..choices.below(3) {
            let ty = match ty(choices) {
                Ty::Bool => Ty::Bit(1),
                other => other,
            };
            let size = 1 + choices.below(8) as u32;
            self.program.registers.push(Register { name: format!("ingress.r{i}"), ty, size, mirrored: false });
        }
        for i in 0..choices.below(2) {
            let size = 1 + choices.below(8) as u32;
            self.program.counters.push(Counter { name: format!("ingress.c{i}"), size });
        }
    }

    /// Consecutive states: each extracts a header and goes to a later state, or ends.
    fn parser(&mut self, choices: &mut Choices<'_>) {
        let count = self.program.headers.len();
        let states = (0..count)
            .map(|i| {
                let mut body = Vec::new();
                if i > 0 && choices.one_of(6) {
                    let error = 1 + choices.below(6) as u16;
                    body.push(stmt(StmtKind::Require { condition: self.any(choices, Ty::Bool), error }));
                }
                if i > 0 && choices.one_of(6) && !self.split {
                    body.push(stmt(StmtKind::Advance(self.octets(choices))));
                }
                let header = HeaderId(i as u32);
                let varbits = self.program.headers[i].varbit_bits_max.map(|_| self.octets(choices));
                body.push(stmt(StmtKind::Extract { header, varbits }));
                if choices.one_of(4) {
                    let written = self.assign(choices);
                    // The parser runs twice on packets that return from a server.
                    body.extend(written.filter(|stmt| !(self.split && self.writes_header(stmt))));
                }
                let name = if i == 0 { "start".to_owned() } else { format!("parse_{i}") };
                ParserState { name, body, next: self.transition(choices, i, count) }
            })
            .collect();
        self.program.parser = Parser { states };
    }

    fn writes_header(&self, stmt: &Stmt) -> bool {
        let StmtKind::Assign { to, .. } = stmt.kind else { return false };
        matches!(self.program.slots[to.0 as usize].kind, SlotKind::Field { .. })
    }

    /// Number of bits, in whole bytes: 0 to 56.
    fn octets(&self, choices: &mut Choices<'_>) -> Expr {
        let ty = Ty::Bit(32);
        let few = Expr::binary(ty, Binary::And, self.any(choices, ty), Expr::constant(ty, 7));
        Expr::binary(ty, Binary::Shl, few, Expr::constant(Ty::Bit(8), 3))
    }

    fn transition(&self, choices: &mut Choices<'_>, i: usize, count: usize) -> Transition {
        let later = |choices: &mut Choices<'_>| match choices.below(count - i + 1) {
            at if i + at + 1 < count => Transition::To(StateId((i + at + 1) as u32)),
            at if i + at + 1 == count => Transition::Accept,
            _ => Transition::Reject(0),
        };
        if choices.one_of(4) {
            return match later(choices) {
                // `reject` has no error number.
                Transition::Reject(_) => Transition::Accept,
                other => other,
            };
        }
        let keys: Vec<Expr> = (0..1 + choices.below(2))
            .map(|_| match choices.below(4) {
                0 => {
                    let skip = 8 * choices.below(3) as u32;
                    Expr { ty: Ty::Bit(choices.pick(&[8, 4, 16, 3])), kind: ExprKind::Lookahead { skip } }
                }
                1 => Expr {
                    ty: Ty::Bit(8),
                    kind: ExprKind::Slice { of: Box::new(self.any(choices, Ty::Bit(16))), high: 7, low: 0 },
                },
                _ => self.some(choices),
            })
            .collect();
        let mut cases = Vec::new();
        for _ in 0..choices.below(4) {
            let values = keys.iter().map(|key| self.value(choices, key.ty)).collect();
            cases.push((values, later(choices)));
        }
        if !choices.one_of(3) {
            cases.push((vec![Keyset::Any; keys.len()], later(choices)));
        }
        let no_error = |next: Transition| if matches!(next, Transition::Reject(_)) { Transition::Accept } else { next };
        let cases = cases.into_iter().map(|(values, next)| (values, no_error(next))).collect();
        Transition::Select { keys, cases }
    }

    fn value(&self, choices: &mut Choices<'_>, ty: Ty) -> Keyset {
        let width = ty.width();
        let all = Expr::constant(ty, u128::MAX);
        let ExprKind::Const(all) = all.kind else { return Keyset::Any };
        match choices.below(6) {
            0 => Keyset::Any,
            1 if !ty.signed() => Keyset::Mask(choices.number(width), choices.number(width)),
            2 if !ty.signed() => {
                let (a, b) = (choices.number(width), choices.number(width));
                Keyset::Range(a.min(b), a.max(b))
            }
            _ => Keyset::Mask(choices.number(width), all),
        }
    }

    fn tables(&mut self, choices: &mut Choices<'_>) {
        for t in 0..choices.below(3) {
            let mut actions = Vec::new();
            for a in 0..1 + choices.below(3) {
                let params: Vec<SlotId> = (0..choices.below(3))
                    .map(|p| {
                        let ty = match ty(choices) {
                            Ty::Bool => Ty::Bit(9),
                            other => other,
                        };
                        self.slot(format!("ingress.t{t}_a{a}.p{p}"), ty, SlotKind::Local)
                    })
                    .collect();
                let body = self.block(choices, 1, StatementPosition::Action, 3);
                self.program.actions.push(Action { name: format!("ingress.t{t}_a{a}"), params, body });
                actions.push(ActionId(self.program.actions.len() as u32 - 1));
            }
            let keys: Vec<TableKey> = (0..choices.below(4))
                .map(|k| {
                    let ty = match choices.below(3) {
                        0 => Ty::Bit(8),
                        _ => match ty(choices) {
                            Ty::Bool | Ty::Int(_) => Ty::Bit(16),
                            other => other,
                        },
                    };
                    // Few values, so that entries are hit.
                    let few = Expr::constant(ty, 3);
                    let expr = match choices.one_of(2) {
                        true => self.any(choices, ty),
                        false => Expr::binary(ty, Binary::And, self.any(choices, ty), few),
                    };
                    TableKey { expr, kind: MatchKind::Exact, name: format!("k{k}") }
                })
                .collect();
            let mut table = Table {
                name: format!("ingress.t{t}"),
                keys,
                default: (actions[0], Vec::new()),
                actions,
                entries: Vec::new(),
                size: 1 + choices.below(16) as u32,
                mirrored: false,
                idle_timeout_ms: None,
                at: SourceSpan::default(),
            };
            if choices.one_of(2) && !table.keys.is_empty() {
                let lpm = choices.below(table.keys.len());
                table.keys[lpm].kind = MatchKind::Lpm;
            }
            table.default = self.call(choices, &table);
            if !table.keys.is_empty() && choices.one_of(3) {
                let entry = self.entry(choices, &table);
                table.entries.push(entry);
            }
            self.program.tables.push(table);
        }
    }

    fn call(&self, choices: &mut Choices<'_>, table: &Table) -> (ActionId, Vec<u128>) {
        super::step::call(&self.program, choices, table)
    }

    fn entry(&self, choices: &mut Choices<'_>, table: &Table) -> TableEntry {
        super::step::entry(&self.program, choices, table)
    }

    /// Random expression of a random bit type.
    pub(super) fn some(&self, choices: &mut Choices<'_>) -> Expr {
        let ty = match ty(choices) {
            Ty::Bool | Ty::Int(_) => Ty::Bit(8),
            other => other,
        };
        self.any(choices, ty)
    }

    pub(super) fn any(&self, choices: &mut Choices<'_>, ty: Ty) -> Expr {
        // Checksum controls cannot read standard metadata.
        let readable = |slot: &Slot| !(self.of_checksums && matches!(slot.kind, SlotKind::Standard(_)));
        let params: Vec<SlotId> = self.program.actions.iter().flat_map(|action| action.params.clone()).collect();
        let slots: Vec<(SlotId, Ty)> = self
            .program
            .slots
            .iter()
            .enumerate()
            .map(|(i, slot)| (SlotId(i as u32), slot))
            .filter(|(id, slot)| readable(slot) && !params.contains(id))
            .map(|(id, slot)| (id, slot.ty))
            .collect();
        let headers: Vec<HeaderId> = (0..self.program.headers.len() as u32).map(HeaderId).collect();
        ExprScope { slots: &slots, headers: &headers }.expr(choices, ty, EXPR_DEPTH)
    }
}

/// Match of an exact key.
#[must_use]
pub(super) fn exact(value: u128, width: u16) -> Match {
    Match { value, prefix_bits: width }
}
