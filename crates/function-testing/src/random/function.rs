//! Random programs with a handler.

use super::Choices;
use super::expr::{cast, ty};
use super::program::{BLOCK_DEPTH, ProgramGenerator, ProgramLimits, StatementPosition, stmt};
use pathcall_p4::ir::{Block, Expr, HandlerDecl, Program, SlotId, SlotKind, StmtKind, Ty};

/// Random function that can be split.
#[must_use]
pub fn function(choices: &mut Choices<'_>) -> Program {
    let mut made = ProgramGenerator::new(ProgramLimits { copies: false, generated: false });
    made.split = true;
    made.slots(choices);
    let mut params = |made: &mut ProgramGenerator, kind, name: &str, most| -> Vec<SlotId> {
        let count = 1 + choices.below(most);
        let slots = (0..count).map(|i| made.slot(format!("{name}.p{i}"), ty(choices), kind)).collect::<Vec<_>>();
        made.writable.extend(&slots);
        slots
    };
    let request = params(&mut made, SlotKind::Request, "req", 4);
    let response = params(&mut made, SlotKind::Response, "res", 3);
    let flow = request[..choices.below(2)].to_vec();
    let flight = made.slot("flight".to_owned(), Ty::Bool, SlotKind::Local);
    made.storage(choices);
    let before = made.plain(choices, BLOCK_DEPTH);
    made.program.ingress.extend(before);
    let value = if choices.one_of(2) { Expr::constant(Ty::Bool, 1) } else { made.any(choices, Ty::Bool) };
    made.program.ingress.push(stmt(StmtKind::Assign { to: flight, value }));
    let mut then = made.block(choices, 1, StatementPosition::Ingress, 2);
    then.push(stmt(StmtKind::Remote));
    then.extend(made.block(choices, 1, StatementPosition::Ingress, 2));
    let otherwise = made.block(choices, 1, StatementPosition::Ingress, 2);
    let condition = Expr::slot(Ty::Bool, flight);
    made.program.ingress.push(stmt(StmtKind::If { condition, then, otherwise }));
    let behind = made.looks(choices);
    made.program.ingress.extend(behind);
    let behind = made.block(choices, BLOCK_DEPTH, StatementPosition::Ingress, 4);
    made.program.ingress.extend(behind);
    made.leave(choices);
    let (defines, state, body) = Default::default();
    made.program.handler = Some(HandlerDecl { request, response, flow, flight, defines, state, body });
    made.program
}

impl ProgramGenerator {
    /// Random statements that mostly compute values from values, some conditional, some after a `return`.
    fn plain(&mut self, choices: &mut Choices<'_>, depth: usize) -> Block {
        let mut block = Block::new();
        for _ in 0..2 + choices.below(6) {
            match choices.below(10) {
                0..=4 => block.extend(self.assign(choices)),
                5 | 6 if depth > 0 => {
                    let (then, otherwise) = (self.plain(choices, depth - 1), self.plain(choices, depth - 1));
                    block.push(stmt(StmtKind::If { condition: self.any(choices, Ty::Bool), then, otherwise }));
                }
                7 if depth > 0 => {
                    let mut body = self.plain(choices, depth - 1);
                    let then = vec![stmt(StmtKind::Return)];
                    let leave = StmtKind::If { condition: self.any(choices, Ty::Bool), then, otherwise: Block::new() };
                    body.insert(choices.below(body.len() + 1), stmt(leave));
                    block.push(stmt(StmtKind::Body(body)));
                }
                _ => block.extend(self.block(choices, depth, StatementPosition::Ingress, 1)),
            }
        }
        block
    }

    /// Fields that expose the values of variables.
    fn looks(&mut self, choices: &mut Choices<'_>) -> Block {
        let of_header = |slot: &SlotId| matches!(self.program.slots[slot.0 as usize].kind, SlotKind::Field { .. });
        let (fields, values): (Vec<SlotId>, Vec<SlotId>) = self.writable.iter().partition(|slot| of_header(slot));
        let look = |_| {
            let (to, from) = (choices.pick(&fields), choices.pick(&values));
            let [to_ty, from_ty] = [to, from].map(|slot| self.program.slots[slot.0 as usize].ty);
            stmt(StmtKind::Assign { to, value: cast(Expr::slot(from_ty, from), to_ty) })
        };
        (0..3).map(look).collect()
    }
}
