//! Programs with a handler.

use super::Choices;
use super::expr::ty;
use super::program::{BLOCK_DEPTH, Limits, Made, Place, stmt};
use crate::ir::{Expr, Handler, Program, SlotId, SlotKind, StmtKind, Ty};

/// A function with a handler by these choices, without what a split refuses.
#[must_use]
pub fn function(choices: &mut Choices<'_>) -> Program {
    let mut made = Made::new(Limits { copies: false, generated: false });
    made.split = true;
    made.slots(choices);
    let mut params = |made: &mut Made, kind, name: &str, most| -> Vec<SlotId> {
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
    let before = made.block(choices, BLOCK_DEPTH, Place::Ingress, 8);
    made.program.ingress.extend(before);
    let value = if choices.one_of(2) { Expr::constant(Ty::Bool, 1) } else { made.any(choices, Ty::Bool) };
    made.program.ingress.push(stmt(StmtKind::Assign { to: flight, value }));
    let mut then = made.block(choices, 1, Place::Ingress, 2);
    then.push(stmt(StmtKind::Remote));
    then.extend(made.block(choices, 1, Place::Ingress, 2));
    let otherwise = made.block(choices, 1, Place::Ingress, 2);
    let condition = Expr::slot(Ty::Bool, flight);
    made.program.ingress.push(stmt(StmtKind::If { condition, then, otherwise }));
    let behind = made.block(choices, BLOCK_DEPTH, Place::Ingress, 8);
    made.program.ingress.extend(behind);
    made.leave(choices);
    let (defines, state, body) = Default::default();
    made.program.handler = Some(Handler { request, response, flow, flight, defines, state, body });
    made.program
}
