//! Testbeds: several hosts on one machine, as network namespaces joined by links of a given rate and quality.
//!
//! ```text
//!   host 1 ══ wire ══╗                         ╔══ wire ══ host 2      each box a network namespace,
//!   host 3 ══ wire ══╬══ element 1 ══ wire ══ element 2 ══╬══ wire ══ host 4      each ══ a veth pair
//!   host 5 ══ wire ══╝                         ╚══ wire ══ host 6      (one element unless asked for two)
//! ```
//!
//! Benchmarks and tests call [`Testbed::builder`], run programs on a [`TestbedNode`], and read the counters of links;
//! `pathcall testbed` is the command for people. Modules in the order of construction: [`Builder`] takes the
//! parameters, with a [`LinkProfile`] for each link; `plan` assigns names and addresses; `script` writes the commands
//! of `ip`, `tc`, `nft` and `ethtool`; `tool` runs them; `relay` delays frames where links have a delay; `guard`
//! deletes everything in the end; [`Testbed`] is the running testbed.
//!
//! A *bare* link, without properties, is one veth pair. Any other link passes a third namespace in its middle, the
//! *wire*. The wire receives frames at each end, applies the faults, and sends the frames out of the other end at the
//! link's rate. The ends are not configured: so frames that an XDP program there reflects or redirects past all queues
//! are shaped and counted like all others, before any program sees them.
//!
//! Batches never cross a link: senders may send 64 datagrams at once, but a wire or an XDP program receives single
//! frames with complete checksums.
//!
//! Requirements: Linux, root, and the programs of iproute2, nftables and ethtool. `netem` is not used. An ordinary user is
//! root in a [user namespace](enter_user_namespace), without XDP.

#![warn(missing_docs)]

mod builder;
mod error;
mod guard;
mod link;
mod packet_socket;
mod plan;
mod preconditions;
mod profile;
mod relay;
mod script;
mod testbed;
mod tool;
mod user_namespace;
mod xdp;

pub use builder::Builder;
pub use error::Error;
pub use link::{FrameCounts, LinkFaults, TestbedLink, Traffic};
pub use plan::{ELEMENTS_MAX, HOSTS_MAX, MTU_DEFAULT, NodeName};
pub use preconditions::{ROOT_TESTS, alone, root_tests};
pub use profile::{FrameShare, LinkDelay, LinkProfile, LinkRate, LinkValueError};
pub use testbed::{Testbed, TestbedNode, list_testbeds};
pub use tool::check;
pub use user_namespace::enter_user_namespace;
