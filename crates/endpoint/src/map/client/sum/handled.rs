//! Sums whose results the server's handler decides, at a worker.

use pathcall_wire::{ForwardTarget, Mutant, mutant};

use super::SumCalls;

impl SumCalls {
    /// Number of the first chunk of the next call.
    pub(in crate::map::client) fn next_chunk(&self) -> u64 {
        self.next_call
    }

    /// Whether the handler decides the result of a chunk in flight, maybe only when it has all chunks of the call.
    pub(in crate::map::client) fn is_for_handler(&self, chunk: u64) -> bool {
        self.calls[self.call_index(chunk)].to == ForwardTarget::Server && !mutant::on(Mutant::HeldFillsWindow)
    }
}
