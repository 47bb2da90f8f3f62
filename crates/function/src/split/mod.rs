//! A function becomes an element's program, a header between, and a server's handler (CLIP §IV).
//!
//! ```text
//! ir::Program ─► find ─► flow (what has to travel) ─► layout (the header) ─► element (the program)
//!    with a handler        ▲ postpone (§IV-C)                                  │ balance (§V, around it)
//!                          └───── fit ◄── vector (does it fit the target?) ◄───┴► report (what runs where, sizes)
//! ```
//!
//! [`split`] is the way in. What it makes is plain IR again, but for the handler's C, which goes to servers as it is.

pub mod balance;
pub mod build;
mod carried;
mod element;
mod find;
mod fit;
mod flow;
mod headers;
pub mod layout;
mod postpone;
pub mod report;
pub mod vector;

use crate::ir::{ActionId, CounterId, Handler, Program, RegisterId, SlotId, Span, TableId};
use balance::{Balance, Sizes};
use layout::Layout;
use report::Report;

/// What a function is split for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// The number of the function, in its headers.
    pub function: u16,
    /// How large the parts around it are; also how many entries of a mirrored table the element holds.
    pub sizes: Sizes,
    /// Bits of values that the element's pipeline can hold at once (its header vector, as [`vector`] counts it); none: any
    /// number. Values are postponed only if it takes that to fit.
    pub phv_bits: Option<u32>,
}

/// A function in its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// What the element runs.
    pub element: Program,
    /// The header between element and servers.
    pub layout: Layout,
    /// What servers run.
    pub handler: Handler,
    /// What they work out before it, for each request.
    pub on_server: Option<OnServer>,
    /// What the compiler added to the element's program that others have to fill.
    pub generated: Generated,
    /// What runs where, and why.
    pub report: Report,
}

/// Parameters of the request that are not sent: a server works them out from the packet (§IV-C).
#[derive(Debug, Clone, PartialEq)]
pub struct OnServer {
    /// Parses the packet, makes the parameters, calls.
    pub program: Program,
    /// The parameters that it has when it calls.
    pub slots: Vec<SlotId>,
}

/// Generated parts of the element's program that a controller fills.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// Ports that servers are at: an entry with [`Self::from_server`] for each.
    pub servers: TableId,
    /// The action of [`Self::servers`].
    pub from_server: ActionId,
    /// `[0]`: the element's own address, the source of requests.
    pub address: RegisterId,
    /// Counts [`Event`]s.
    pub events: CounterId,
    /// Placement and scaling.
    pub balance: Balance,
    /// Which keys of mirrored tables are values of partitions.
    pub steered: Vec<SteeredKey>,
}

/// A key of a mirrored table that packets are steered by: its entries hold values of the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteeredKey {
    /// The partition, as the program counts them.
    pub partition: usize,
    /// The table.
    pub table: TableId,
    /// Which of its keys.
    pub key: usize,
}

/// What an element's program counts, by its number in [`Generated::events`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A packet went to a server.
    Request,
    /// A response came.
    Response,
    /// The handler ended the packet.
    Ended,
    /// A packet for a server, and there is none.
    NoServer,
    /// A request or response that is not from a server, or not of this function.
    Stray,
    /// A response that came before: a link repeated it.
    Repeat,
}

impl Event {
    /// All there are.
    pub const ALL: [Self; 6] = [Self::Request, Self::Response, Self::Ended, Self::NoServer, Self::Stray, Self::Repeat];
}

/// Why a function can't be split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It calls no handler: it runs in an element as it is.
    #[error("the pipeline never calls remote_handler")]
    NoCall,
    /// It calls it twice.
    #[error("remote_handler is called a second time: a packet goes to a server once")]
    TwoCalls {
        /// There.
        at: Span,
    },
    /// It calls it where a packet can't leave.
    #[error("remote_handler can only be called in the pipeline's apply, or in one branch there")]
    CallPlace {
        /// There.
        at: Span,
    },
    /// The part before does what can't be undone for a packet that goes to a server.
    #[error("the part before the handler {what} the packet: do it in the part behind")]
    Before {
        /// What it does.
        what: &'static str,
        /// There.
        at: Span,
    },
    /// A field of variable length would be lost.
    #[error("the part before the handler turns header {header} on or off, whose varbit field would be lost")]
    Varbit {
        /// The header.
        header: String,
    },
    /// A request could not hold the packet as it came.
    #[error("header {header} is taken by the parser and never emitted: a request would lack it")]
    NotEmitted {
        /// The header.
        header: String,
        /// Where it is taken.
        at: Span,
    },
    /// As [`Self::NotEmitted`].
    #[error("the parser takes header {header} behind one that the deparser emits later")]
    Order {
        /// The header.
        header: String,
        /// Where it is taken.
        at: Span,
    },
    /// As [`Self::NotEmitted`].
    #[error("packet.advance loses bits that a request has to hold: extract them into a header")]
    Skipped {
        /// There.
        at: Span,
    },
    /// As [`Self::NotEmitted`]: what the parser has changed would be in the request, and change once more behind it.
    #[error("the parser writes to header {header}: it runs again when a packet is back, so write in the pipeline")]
    ParserWrites {
        /// The header.
        header: String,
        /// There.
        at: Span,
    },
    /// The parser would see that instead, when the packet is back.
    #[error("the part before the handler writes {field}, which the parser reads: it runs again, so write it behind")]
    ParserReads {
        /// Of how the packet came.
        field: String,
        /// There.
        at: Span,
    },
    /// The element can't hold all values at once, whatever is postponed.
    #[error(
        "the element holds {} B of values at once{}, and the target's header vector {} B: have the parser take fewer \
         headers (the largest: {largest}), or keep less in variables",
        needed.div_ceil(8), fit::before(*whole, *postponed), bits / 8
    )]
    Phv {
        /// Bits that are needed, with all postponed that can be.
        needed: u32,
        /// Bits that are needed without.
        whole: u32,
        /// Bits there are.
        bits: u32,
        /// Values that were postponed.
        postponed: usize,
        /// The largest headers.
        largest: String,
    },
}

impl Refused {
    /// Where in the source.
    #[must_use]
    pub fn at(&self) -> Option<Span> {
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

/// What may differ from the function in one piece.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// Packets overtake each other between the two parts.
    #[error("register {register} is used before and behind the handler: other packets come between while one is away")]
    RegisterAcross {
        /// The register.
        register: String,
    },
}

/// Whether a program without a handler fits a target: nothing of it can be postponed.
///
/// # Errors
/// [`Refused::Phv`] if not.
pub fn fits(program: &Program, target: &Target) -> Result<(), Refused> {
    fit::fits(program, vector::bits(program, None), target)
}

/// Splits a function.
///
/// # Errors
/// If it has no handler, or does what can't be split.
pub fn split(program: &Program, target: &Target) -> Result<Split, Refused> {
    let handler = program.handler.clone().ok_or(Refused::NoCall)?;
    let parts = find::parts(program)?;
    find::check(program, &parts)?;
    let warnings = find::warnings(program, &parts);
    let fitted = fit::fit(program, &parts, target)?;
    Ok(fitted.finish(handler, warnings))
}

/// Splits a function with every value postponed that can be, however much the target's header vector holds: as [`split`],
/// and with the least in requests.
///
/// # Errors
/// As [`split`], but that it fits.
pub fn split_postponing_all(program: &Program, target: &Target) -> Result<Split, Refused> {
    let handler = program.handler.clone().ok_or(Refused::NoCall)?;
    let parts = find::parts(program)?;
    find::check(program, &parts)?;
    let warnings = find::warnings(program, &parts);
    Ok(fit::postpone_all(program, &parts, target).finish(handler, warnings))
}
