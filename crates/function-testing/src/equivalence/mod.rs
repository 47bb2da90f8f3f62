//! Equivalence of the shipped functions, split and in one piece: same packets in the same per-flow order, up to the
//! allocated values.
//!
//! ```text
//! seed ───┬─► RunPlan: flows, hostile frames, ─┬─► System: element, servers, controller ─► outputs ─┐
//! capture ┘    changes, faults                 └─► UnsplitFunction ──────────────────────► outputs ─┴─► equal?
//! ```
//!
//! [`play`] takes a constructor of elements, so that one plan can be run with the interpreter, the kernel and emitted
//! P4 ([`ReadBackProgram`]).
//!
//! **Guarantees under failures.** A packet that is on its way to a server that died, or is sent there before the
//! controller knows, is lost. A flow of that server continues in the element until its entry is removed; with its first
//! packet at another server the flow starts over, as if new to the function. Flows of other servers lose nothing. A
//! restarted element loses packets only until the controller has installed the servers; these packets are counted, and
//! order is preserved. Values of mirrored registers that only the restarted element held are lost, so digests of such
//! flows are not compared, but their packets are. After either failure, no flow moves to another server, unless its own
//! is dead or a change of the group was in progress. A value is never allocated twice.
//!
//! **Limits.** Packets that use neither table nor handler may overtake those that do. A fragment without ports is
//! ordered only within its datagram.

mod allocated_values;
mod comparison;
mod corruption;
mod flow_keys;
mod flows;
mod frame;
mod plan;
mod plan_run;
mod random_choices;
mod read_back;
mod routes;
mod unsplit;

use std::fmt;
use std::path::Path;

use pathcall_netfn::handler::{CHandler, Config};
use pathcall_p4::ir::Program;
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::{SplitFunction, SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Sources, compile};

pub use flows::PlannedPacket;
pub use plan::{FunctionKind, PlanStep, RunFaults, RunPlan};
pub use plan_run::{RunStats, play};
pub use read_back::ReadBackProgram;

/// Output of a system.
#[derive(Clone, PartialEq, Eq)]
pub enum OutputItem {
    /// Packet, at a port.
    Packet(u16, Vec<u8>),
    /// Digest to the controller.
    Digest(String, Vec<u128>),
}

impl fmt::Debug for OutputItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet(port, bytes) => {
                write!(f, "{port}: ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Digest(name, values) => write!(f, "{name} {values:x?}"),
        }
    }
}

/// Function with its handler built.
pub struct Function {
    /// Kind of the function.
    pub kind: FunctionKind,
    /// Unsplit program.
    pub program: Program,
    first: CHandler,
}

impl Function {
    /// Loads the function from the directory `functions`; builds of the handler are cached in `cache`.
    ///
    /// # Errors
    /// Errors of the compiler, or missing files.
    pub fn load(kind: FunctionKind, functions: &Path, cache: &Path) -> Result<Self, String> {
        let mut sources = Sources::default();
        let file = functions.join(format!("{}.p4c", kind.name()));
        let program =
            compile(&mut sources, file.as_path()).map_err(|wrong| DiagnosticReport(&wrong, &sources).to_string())?;
        let place = |at| {
            let (line, column) = sources.position(at);
            Some((sources.name(at.file).to_owned(), line, column))
        };
        let first =
            CHandler::start(&program, &place, &Config::default(), cache, 0).map_err(|error| error.to_string())?;
        Ok(Self { kind, program, first })
    }

    /// Another instance of its handler.
    fn handler(&self) -> Result<CHandler, String> {
        self.first.new_instance(&self.program, &Config::default(), 0).map_err(|error| error.to_string())
    }

    /// Splits the function for an element with `entries` entries per table. Sizes and periods are small, so that a
    /// short run exercises everything.
    ///
    /// # Errors
    /// If the function cannot be split.
    pub fn split(&self, entries: u32) -> Result<SplitFunction, String> {
        self.split_for(entries, 15)
    }

    fn split_for(&self, entries: u32, window_log2: u16) -> Result<SplitFunction, String> {
        let sizes = Sizes {
            entries,
            cells_log2: 10,
            period_log2: 14,
            sketch_log2: 6,
            window_log2,
            flows_log2: 10,
            filter_log2: 12,
            buckets_log2: 6,
            repeats_log2: 10,
        };
        split(&self.program, &SplitTarget { function: 1, sizes, phv_bits: None }).map_err(|refused| refused.to_string())
    }
}
