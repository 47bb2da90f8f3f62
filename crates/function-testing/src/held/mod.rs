//! The functions that come with Pathcall, split, held to themselves in one piece: packet for packet, in the order of flows, up
//! to the values that they allocate.
//!
//! ```text
//! seed ─► Plan: flows, hostile frames, changes, faults ─┬─► System: element, servers, controller ─► what left, plain ─┐
//! capture ──┘                                           └─► Whole: the function in one piece ─────► what left, plain ─┴─► the same?
//! ```
//!
//! [`play`] is told how to make an element of a program, so one plan holds the interpreter, the kernel and emitted P4
//! ([`Reread`]) to the same.
//!
//! **What holds when something fails.** A packet that was on its way to a server that died, or is sent there before the
//! controller knows, is lost. A flow of that server goes on in the element as before until its entry is taken out; with its
//! first packet at another server it begins anew, as if it were the first that the function sees of it. Flows of other
//! servers lose nothing. An element that begins anew loses packets only until the controller has told it
//! who serves, which it counts, and no order; values of mirrored registers that only
//! it had are lost, so for such flows what the function tells of them is not compared, but what it sends is. After either,
//! no flow goes to another server than before unless its own is dead, or a change of the group was under way. Values are
//! never given to two at once.
//!
//! **What is not promised.** Packets that ask neither table nor handler may overtake those that do. A fragment without ports
//! is in order with its datagram alone.

mod dice;
mod flows;
mod frame;
mod hostile;
mod judge;
mod keys;
mod names;
mod plan;
mod play;
mod reread;
mod routes;
mod whole;

use std::fmt;
use std::path::Path;

use pathcall_function::handler::{Config, Handler};
use pathcall_function::ir::Program;
use pathcall_function::split::balance::Sizes;
use pathcall_function::split::{Split, Target, split};
use pathcall_function::{Report, Sources, compile};

pub use flows::Sent;
pub use plan::{Faults, Kind, Plan, Step};
pub use play::{Played, play};
pub use reread::Reread;

/// What left.
#[derive(Clone, PartialEq, Eq)]
pub enum Item {
    /// A packet, at a port.
    Packet(u16, Vec<u8>),
    /// A word to the controller.
    Digest(String, Vec<u128>),
}

impl fmt::Debug for Item {
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

/// A function, with its handler built.
pub struct Function {
    /// Which.
    pub kind: Kind,
    /// In one piece.
    pub program: Program,
    first: Handler,
}

impl Function {
    /// Reads the function from `functions`, a folder; its handler's build is kept in `cache`.
    ///
    /// # Errors
    /// What is wrong with it, or lacks.
    pub fn load(kind: Kind, functions: &Path, cache: &Path) -> Result<Self, String> {
        let mut sources = Sources::default();
        let file = functions.join(format!("{}.p4c", kind.name()));
        let program = compile(&mut sources, file.as_path()).map_err(|wrong| Report(&wrong, &sources).to_string())?;
        let place = |at| {
            let (line, column) = sources.position(at);
            Some((sources.name(at.file).to_owned(), line, column))
        };
        let first =
            Handler::start(&program, &place, &Config::default(), cache, 0).map_err(|error| error.to_string())?;
        Ok(Self { kind, program, first })
    }

    /// One more instance of its handler.
    fn handler(&self) -> Result<Handler, String> {
        self.first.another(&self.program, &Config::default(), 0).map_err(|error| error.to_string())
    }

    /// Its parts, for an element with room for so many entries of each table. Everything is small and quick, so that a short
    /// run sees all of it.
    ///
    /// # Errors
    /// If it can't be split.
    pub fn split(&self, entries: u32) -> Result<Split, String> {
        self.split_for(entries, 15)
    }

    fn split_for(&self, entries: u32, window_log2: u16) -> Result<Split, String> {
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
        split(&self.program, &Target { function: 1, sizes, phv_bits: None }).map_err(|refused| refused.to_string())
    }
}
