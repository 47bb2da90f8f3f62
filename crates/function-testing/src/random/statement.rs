//! Random statements.

use super::Choices;
use super::expr::{cast, ty};
use super::program::{PORTS, ProgramGenerator, StatementPosition, stmt};
use pathcall_p4::ir::{
    Binary, Block, CounterId, Expr, HashAlgorithm, HeaderId, RegisterId, SlotId, SlotKind, StandardField, Stmt,
    StmtKind, TableId, Ty,
};

impl ProgramGenerator {
    pub(super) fn block(
        &mut self,
        choices: &mut Choices<'_>,
        depth: usize,
        place: StatementPosition,
        most: usize,
    ) -> Block {
        let mut block = Vec::new();
        for _ in 0..choices.below(most + 1) {
            block.extend(self.statement(choices, depth, place));
        }
        block
    }

    fn statement(&mut self, choices: &mut Choices<'_>, depth: usize, place: StatementPosition) -> Option<Stmt> {
        let kind = match choices.below(20) {
            0..=4 => return self.assign(choices),
            5 | 6 if depth > 0 => StmtKind::If {
                condition: self.any(choices, Ty::Bool),
                then: self.block(choices, depth - 1, place, 3),
                otherwise: self.block(choices, depth - 1, place, 2),
            },
            7 => {
                // The Ethernet header stays valid.
                let header = HeaderId(1 + choices.below(self.program.headers.len() - 1) as u32);
                if self.split && self.program.headers[header.0 as usize].varbit_bits_max.is_some() {
                    return None;
                }
                StmtKind::SetValid { header, valid: choices.one_of(2) }
            }
            8..=10 if place == StatementPosition::Ingress && !self.program.tables.is_empty() => {
                let table = TableId(choices.below(self.program.tables.len()) as u32);
                let hit = choices.one_of(3).then(|| self.result(Ty::Bool));
                let both = hit.is_none() || self.limits.generated;
                let action = (both && choices.one_of(2)).then(|| self.result(Ty::Bit(32)));
                StmtKind::Apply { table, hit, action }
            }
            11 if depth > 0 && place == StatementPosition::Ingress => {
                StmtKind::Body(self.block(choices, depth - 1, place, 4))
            }
            12 if choices.one_of(2) => StmtKind::Return,
            13 if choices.one_of(4) => StmtKind::Exit,
            14 if !self.program.registers.is_empty() => return Some(self.register(choices)),
            15 if !self.program.counters.is_empty() => StmtKind::Count {
                counter: CounterId(choices.below(self.program.counters.len()) as u32),
                index: self.index(choices),
            },
            16 => self.hash(choices)?,
            17 if place != StatementPosition::Action => {
                let values: Vec<Expr> = (0..1 + choices.below(3)).map(|_| self.some(choices)).collect();
                // Digests of one name have values of the same types.
                let widths: Vec<String> = values.iter().map(|value| value.ty.width().to_string()).collect();
                StmtKind::Digest { name: format!("digest_{}_t", widths.join("_")), values }
            }
            18 => {
                let to = self.standard(StandardField::EgressSpec);
                let port = choices.pick(&[0, 1, 2, 3, 511]);
                StmtKind::Assign { to, value: Expr::constant(Ty::Bit(9), port) }
            }
            19 => return self.leaving(choices, place),
            _ => return self.assign(choices),
        };
        Some(stmt(kind))
    }

    /// Random statement that affects the packet's departure.
    fn leaving(&mut self, choices: &mut Choices<'_>, place: StatementPosition) -> Option<Stmt> {
        let small = |value: u128, width| Expr::constant(Ty::Bit(width), value);
        let least = if self.split && place != StatementPosition::Egress { 2 } else { 0 };
        Some(stmt(match choices.below(4).max(least) {
            0 => StmtKind::Truncate(small(choices.pick(&[0, 14, 15, 20, 60]), 32)),
            1 if place != StatementPosition::Egress => {
                // Usually only once per packet.
                let first = Expr::slot(Ty::Bit(32), self.standard(StandardField::InstanceType));
                let condition = Expr::binary(Ty::Bool, Binary::Eq, first, small(0, 32));
                let again = stmt(StmtKind::Recirculate);
                if choices.one_of(3) {
                    return Some(again);
                }
                StmtKind::If { condition, then: vec![again], otherwise: Vec::new() }
            }
            2 if self.limits.copies && place == StatementPosition::Ingress => {
                StmtKind::Clone { session: small(choices.below(PORTS) as u128, 32) }
            }
            3 if self.limits.copies && place == StatementPosition::Ingress => {
                let to = self.standard(StandardField::McastGroup);
                StmtKind::Assign { to, value: small(choices.below(3) as u128, 16) }
            }
            _ => return None,
        }))
    }

    pub(super) fn assign(&mut self, choices: &mut Choices<'_>) -> Option<Stmt> {
        if self.writable.is_empty() {
            return None;
        }
        let to = choices.pick(&self.writable);
        let ty = self.program.slots[to.0 as usize].ty;
        let value = match self.results.pop() {
            Some(result) => cast(Expr::slot(self.program.slots[result.0 as usize].ty, result), ty),
            None => self.any(choices, ty),
        };
        Some(stmt(StmtKind::Assign { to, value }))
    }

    fn index(&self, choices: &mut Choices<'_>) -> Expr {
        let few = Expr::constant(Ty::Bit(32), 7);
        let any = self.any(choices, Ty::Bit(32));
        if choices.one_of(6) { any } else { Expr::binary(Ty::Bit(32), Binary::And, any, few) }
    }

    fn register(&mut self, choices: &mut Choices<'_>) -> Stmt {
        let register = RegisterId(choices.below(self.program.registers.len()) as u32);
        let ty = self.program.registers[register.0 as usize].ty;
        let index = self.index(choices);
        let kind = match choices.below(3) {
            0 => {
                let known: Vec<SlotId> =
                    self.writable.iter().copied().filter(|slot| self.program.slots[slot.0 as usize].ty == ty).collect();
                let into_known = self.split && !known.is_empty() && choices.one_of(2);
                let to = if into_known { choices.pick(&known) } else { self.result(ty) };
                StmtKind::Read { register, index, to }
            }
            1 if self.limits.generated && ty.width() <= 64 => {
                let to = (!choices.one_of(4)).then(|| self.result(ty));
                let op = choices.pick(&[Binary::Add, Binary::Add, Binary::Sub, Binary::And, Binary::Or, Binary::Xor]);
                StmtKind::Update { register, index, op, operand: self.any(choices, ty), to }
            }
            _ => StmtKind::Write { register, index, value: self.any(choices, ty) },
        };
        stmt(kind)
    }

    /// New variable.
    fn result(&mut self, ty: Ty) -> SlotId {
        let slot = self.slot(format!("ingress.result{}", self.program.slots.len()), ty, SlotKind::Local);
        self.writable.push(slot);
        self.results.push(slot);
        slot
    }

    fn hash(&self, choices: &mut Choices<'_>) -> Option<StmtKind> {
        let bits = |slot: &&SlotId| matches!(self.program.slots[slot.0 as usize].ty, Ty::Bit(_));
        let slots: Vec<SlotId> = self.writable.iter().filter(bits).copied().collect();
        let to = if slots.is_empty() { return None } else { choices.pick(&slots) };
        let ty = self.program.slots[to.0 as usize].ty;
        Some(StmtKind::Hash {
            to,
            algorithm: algorithm(choices),
            base: self.any(choices, ty),
            inputs: self.inputs(choices),
            max: self.any(choices, ty),
        })
    }

    fn inputs(&self, choices: &mut Choices<'_>) -> Vec<Expr> {
        (0..1 + choices.below(4))
            .map(|_| {
                let ty = match ty(choices) {
                    Ty::Bool | Ty::Int(_) => Ty::Bit(16),
                    other => other,
                };
                self.any(choices, ty)
            })
            .collect()
    }

    pub(super) fn checksum(&self, choices: &mut Choices<'_>, fields: &[SlotId], verify: bool) -> Option<Stmt> {
        let to = if fields.is_empty() { return None } else { choices.pick(fields) };
        let (condition, inputs) = (self.any(choices, Ty::Bool), self.inputs(choices));
        let payload = choices.one_of(2);
        let algorithm = if payload { HashAlgorithm::Csum16 } else { algorithm(choices) };
        let expected = Expr::slot(Ty::Bit(16), to);
        Some(stmt(match verify {
            true => StmtKind::Verify { condition, expected, algorithm, inputs, payload },
            false => StmtKind::Checksum { condition, to, algorithm, inputs, payload },
        }))
    }

    pub(super) fn fields_of_16_bits(&self) -> Vec<SlotId> {
        let of = |slot: &&SlotId| {
            let slot = &self.program.slots[slot.0 as usize];
            slot.ty == Ty::Bit(16) && matches!(slot.kind, SlotKind::Field { .. })
        };
        self.writable.iter().filter(of).copied().collect()
    }
}

fn algorithm(choices: &mut Choices<'_>) -> HashAlgorithm {
    choices.pick(&[
        HashAlgorithm::Csum16,
        HashAlgorithm::Crc32,
        HashAlgorithm::Crc16,
        HashAlgorithm::Xor16,
        HashAlgorithm::Identity,
    ])
}
