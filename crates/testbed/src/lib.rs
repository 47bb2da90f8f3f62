//! Several hosts on one machine: network namespaces, joined by links of a given rate and quality.
//!
//! ```text
//!   host 1 ══ wire ══╗                         ╔══ wire ══ host 2      each box a network namespace,
//!   host 3 ══ wire ══╬══ element 1 ══ wire ══ element 2 ══╬══ wire ══ host 4      each ══ a veth pair
//!   host 5 ══ wire ══╝                         ╚══ wire ══ host 6      (one element unless asked for two)
//! ```
//!
//! Benches and tests call [`Testbed::builder`], run programs on a [`Node`] of it, and count what its
//! links carried; `pathcall testbed` does the same for a person. In the order in which a bed comes up:
//! [`Builder`] is told what to build, of links that are like their [`Profile`] says; `plan` gives
//! everything a name and an address; `script` says it in the words of `ip`, `tc`, `nft` and `ethtool`;
//! `tool` runs these; `relay` holds frames back where links have a delay; `guard` sees to it that nothing
//! stays behind; [`Testbed`] is what is up then.
//!
//! A link with no properties is one veth pair, *bare*. Any other passes a third namespace in its middle,
//! the *wire*, which takes frames in at each end, spoils the share it is told to, and sends them out of
//! the other end at the link's rate. The ends are then left alone: whatever an XDP program there reflects
//! or redirects past all queues is shaped and counted like everything else, and before any program sees
//! a frame.
//!
//! Batches never cross a link: senders may hand over 64 datagrams at once, but what arrives at a wire
//! or at an XDP program are single frames with complete checksums.
//!
//! Needed: Linux, root, and the programs of iproute2, nftables and ethtool. No `netem`.

#![warn(missing_docs)]

mod bed;
mod builder;
mod error;
mod gate;
mod guard;
mod link;
mod plan;
mod profile;
mod relay;
mod script;
mod tool;
mod xdp;

pub use bed::{Node, Testbed, beds};
pub use builder::Builder;
pub use error::Error;
pub use gate::{ROOT_TESTS, alone, root_tests};
pub use link::{Counts, Faults, Link, Traffic};
pub use plan::{ELEMENTS_MAX, HOSTS_MAX, MTU_DEFAULT, NodeName};
pub use profile::{Delay, Profile, Rate, Share, WordError};
