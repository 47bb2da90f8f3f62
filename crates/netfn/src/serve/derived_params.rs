//! Derived parameters of a request, which are not sent but computed at the server (CLIP §IV-C).

use pathcall_p4::interp::{HandlerContext, HandlerVerdict, Interpreter};
use pathcall_p4::ir::SlotId;
use pathcall_p4::split::SplitFunction;

/// Computation of the derived parameters.
#[derive(Debug)]
pub struct DerivedParams {
    interpreter: Box<Interpreter>,
    /// Index of each derived parameter in the request, with its slot.
    params: Vec<(usize, SlotId)>,
}

impl DerivedParams {
    /// Computation for a split function; `None` if all of its parameters are sent.
    ///
    /// # Panics
    /// If the split is inconsistent: a derived value is not a parameter.
    #[must_use]
    pub fn of(split: &SplitFunction) -> Option<Self> {
        let of = split.on_server.as_ref()?;
        let params = &split.handler.request;
        let param = |slot: SlotId| params.iter().position(|param| *param == slot).expect("a parameter of the request");
        Some(Self {
            interpreter: Box::new(Interpreter::new(&of.program).expect("a part of a program that runs")),
            params: of.slots.iter().map(|slot| (param(*slot), *slot)).collect(),
        })
    }

    /// Computes the derived parameters of a packet and writes them into the request.
    pub fn compute(&mut self, packet: &[u8], request: &mut [u128]) {
        let params = &self.params;
        let mut take = |call: &mut HandlerContext<'_>| {
            params.iter().for_each(|(at, slot)| request[*at] = call.get(*slot));
            // The interpreter was needed for its values only, so the packet is dropped.
            HandlerVerdict::Drop
        };
        self.interpreter.process_with(0, 0, packet, &mut take, &mut |_| {});
    }
}
