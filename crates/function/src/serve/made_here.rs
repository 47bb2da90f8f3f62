//! Parameters of a request that do not travel: the server works them out (CLIP §IV-C).

use crate::interp::{Call, Interpreter, Verdict};
use crate::ir::SlotId;
use crate::split::Split;

/// Works out parameters that a request does not bring.
#[derive(Debug)]
pub struct MadeHere {
    interpreter: Box<Interpreter>,
    /// Which parameter of the request each is.
    params: Vec<(usize, SlotId)>,
}

impl MadeHere {
    /// Of a function; none if all of its parameters travel.
    ///
    /// # Panics
    /// If the split is not whole: what it works out is no parameter.
    #[must_use]
    pub fn of(split: &Split) -> Option<Self> {
        let of = split.on_server.as_ref()?;
        let params = &split.handler.request;
        let param = |slot: SlotId| params.iter().position(|param| *param == slot).expect("a parameter of the request");
        Some(Self {
            interpreter: Box::new(Interpreter::new(&of.program).expect("a part of a program that runs")),
            params: of.slots.iter().map(|slot| (param(*slot), *slot)).collect(),
        })
    }

    /// From the packet, into the request.
    pub fn make(&mut self, packet: &[u8], request: &mut [u128]) {
        let params = &self.params;
        let mut take = |call: &mut Call<'_>| {
            params.iter().for_each(|(at, slot)| request[*at] = call.get(*slot));
            // It has served its purpose: nothing leaves.
            Verdict::Drop
        };
        self.interpreter.process_with(0, 0, packet, &mut take, &mut |_| {});
    }
}
