//! Split of a function into an element's program, a header layout and a server's handler (CLIP §IV).
//!
//! ```text
//! ir::Program ─► call_site ─► liveness (carried values) ─► layout (header) ─► element (program)
//!    with a handler             ▲ postpone (§IV-C)                               │ balance (§V)
//!                               └───── fit ◄── vector (size for the target) ◄────┴► report (places, sizes)
//! ```
//!
//! Entry point: [`split`]. Its output is plain IR, except for the handler's C, which servers receive unchanged.

pub mod balance;
pub mod build;
mod call_site;
mod carried;
mod element;
mod fit;
mod headers;
pub mod layout;
mod liveness;
mod postpone;
pub mod report;
pub mod vector;

use crate::ir::{ActionId, CounterId, HandlerDecl, Program, RegisterId, SlotId, SourceSpan, TableId};
use balance::{BalanceObjects, Sizes};
use layout::HeaderLayout;
use report::SplitReport;

/// Target of a split.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SplitTarget {
    /// Number of the function in its headers.
    pub function: u16,
    /// Sizes of the generated parts, and the element's number of entries for a mirrored table.
    pub sizes: Sizes,
    /// Capacity of the target's header vector in bits, as [`vector`] counts; `None` for no limit. Values are postponed
    /// only if necessary to fit.
    pub phv_bits: Option<u32>,
}

/// Split function.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitFunction {
    /// Element's program.
    pub element: Program,
    /// Header between element and servers.
    pub layout: HeaderLayout,
    /// Handler of the servers.
    pub handler: HandlerDecl,
    /// Program that servers run before the handler on each request.
    pub on_server: Option<ServerPrologue>,
    /// Generated objects of the element's program that a controller fills.
    pub generated: GeneratedObjects,
    /// Report of the split.
    pub report: SplitReport,
}

/// Request parameters that are not sent, because a server computes them from the packet (§IV-C).
#[derive(Debug, Clone, PartialEq)]
pub struct ServerPrologue {
    /// Program that parses the packet, computes the parameters and calls the handler.
    pub program: Program,
    /// Computed parameters.
    pub slots: Vec<SlotId>,
}

/// Generated objects of the element's program that a controller fills.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedObjects {
    /// Ports of the servers: one entry with [`Self::from_server`] for each.
    pub servers: TableId,
    /// Action of [`Self::servers`].
    pub from_server: ActionId,
    /// `[0]`: address of the element, the source of requests.
    pub address: RegisterId,
    /// Counters, by [`ElementEvent`].
    pub events: CounterId,
    /// Objects of placement and scaling.
    pub balance: BalanceObjects,
    /// Keys of mirrored tables that hold values of partitions.
    pub steered: Vec<SteeredKey>,
}

/// Key of a mirrored table that packets are steered by: its entries hold values of the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteeredKey {
    /// Index of the partition in the program.
    pub partition: usize,
    /// Table.
    pub table: TableId,
    /// Index of the key.
    pub key: usize,
}

/// Event that an element counts, by its number in [`GeneratedObjects::events`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementEvent {
    /// Packet sent to a server.
    Request,
    /// Response received.
    Response,
    /// Packet dropped by the handler.
    Ended,
    /// Packet for a server, but no server is available.
    NoServer,
    /// Request or response that is not from a server, or not of this function.
    Stray,
    /// Repeated response, duplicated by a link.
    Repeat,
}

impl ElementEvent {
    /// All events.
    pub const ALL: [Self; 6] = [Self::Request, Self::Response, Self::Ended, Self::NoServer, Self::Stray, Self::Repeat];
}

/// Reason why a function cannot be split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// No call of a handler; the function runs in an element unsplit.
    #[error("the pipeline never calls remote_handler")]
    NoCall,
    /// More than one call.
    #[error("remote_handler is called more than once: a packet can go to a server only once")]
    TwoCalls {
        /// Position of the call.
        at: SourceSpan,
    },
    /// Call at a place where a packet cannot leave the element.
    #[error("remote_handler can only be called in the pipeline's apply, or in one branch there")]
    CallPlace {
        /// Position of the call.
        at: SourceSpan,
    },
    /// Statement before the call that cannot be undone for a packet that goes to a server.
    #[error("the part before the handler {what} the packet: move this to the part after the handler")]
    Before {
        /// Name of the statement.
        what: &'static str,
        /// Position of the statement.
        at: SourceSpan,
    },
    /// Loss of a field of variable length.
    #[error("the part before the handler changes the validity of header {header}: its varbit field would be lost")]
    Varbit {
        /// Name of the header.
        header: String,
    },
    /// Extracted header that is not emitted; a request could not hold the packet as received.
    #[error("header {header} is extracted but never emitted: a request would lack it")]
    NotEmitted {
        /// Name of the header.
        header: String,
        /// Position of the extraction.
        at: SourceSpan,
    },
    /// Extraction in another order than the deparser's.
    #[error("the parser extracts header {header} after one that the deparser emits later")]
    Order {
        /// Name of the header.
        header: String,
        /// Position of the extraction.
        at: SourceSpan,
    },
    /// Bytes that the parser skips.
    #[error("packet.advance skips bits that a request needs: extract them into a header")]
    Skipped {
        /// Position of the statement.
        at: SourceSpan,
    },
    /// Emitted header that the parser writes; the write would be applied again when the parser runs on the returned
    /// packet.
    #[error("the parser writes to header {header}, and runs again on returned packets: write in the pipeline instead")]
    ParserWrites {
        /// Name of the header.
        header: String,
        /// Position of the write.
        at: SourceSpan,
    },
    /// Arrival metadata that the parser reads, and that differs when the packet returns.
    #[error("the part before the handler writes {field}, which the parser reads again: write it after the handler")]
    ParserReads {
        /// Name of the field.
        field: String,
        /// Position of the read.
        at: SourceSpan,
    },
    /// Header vector that is too small for the element, with all candidates postponed.
    #[error(
        "the element needs {} B of header vector{}, and the target has {} B: extract fewer headers (largest: \
         {largest}), or use fewer variables",
        needed.div_ceil(8), fit::describe_saving(*whole, *postponed), bits / 8
    )]
    Phv {
        /// Required bits with postponed values.
        needed: u32,
        /// Required bits without postponed values.
        whole: u32,
        /// Available bits.
        bits: u32,
        /// Number of postponed values.
        postponed: usize,
        /// Text that lists the largest headers.
        largest: String,
    },
}

impl SplitError {
    /// Source position.
    #[must_use]
    pub fn at(&self) -> Option<SourceSpan> {
        match self {
            Self::TwoCalls { at }
            | Self::CallPlace { at }
            | Self::Before { at, .. }
            | Self::NotEmitted { at, .. }
            | Self::Order { at, .. }
            | Self::Skipped { at }
            | Self::ParserWrites { at, .. }
            | Self::ParserReads { at, .. } => Some(*at),
            Self::NoCall | Self::Varbit { .. } | Self::Phv { .. } => None,
        }
    }
}

/// Possible difference from the unsplit function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitWarning {
    /// Register that both parts use; packets can overtake each other between the parts.
    #[error("register {register} is used before and after the handler: other packets may be processed in between")]
    RegisterAcross {
        /// Name of the register.
        register: String,
    },
}

/// Checks that a program without a handler fits a target; no value of it can be postponed.
///
/// # Errors
/// [`SplitError::Phv`] if it does not fit.
pub fn fits(program: &Program, target: &SplitTarget) -> Result<(), SplitError> {
    fit::check_fit(program, vector::bits(program, None), target)
}

/// Splits a function.
///
/// # Errors
/// If the function has no handler, or cannot be split.
pub fn split(program: &Program, target: &SplitTarget) -> Result<SplitFunction, SplitError> {
    let handler = program.handler.clone().ok_or(SplitError::NoCall)?;
    let parts = call_site::split_ingress(program)?;
    call_site::check_splittable(program, &parts)?;
    let warnings = call_site::find_warnings(program, &parts);
    let fitted = fit::fit_to_target(program, &parts, target)?;
    Ok(fitted.finish(handler, warnings))
}

/// Splits a function with all candidates postponed, regardless of the target's header vector, for the smallest
/// requests.
///
/// # Errors
/// As [`split`], without [`SplitError::Phv`].
pub fn split_postponing_all(program: &Program, target: &SplitTarget) -> Result<SplitFunction, SplitError> {
    let handler = program.handler.clone().ok_or(SplitError::NoCall)?;
    let parts = call_site::split_ingress(program)?;
    call_site::check_splittable(program, &parts)?;
    let warnings = call_site::find_warnings(program, &parts);
    Ok(fit::postpone_all(program, &parts, target).finish(handler, warnings))
}
