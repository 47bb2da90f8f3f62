//! What figures on a testbed stand on: hosts on links, a controller and an element between them, and
//! parties on hosts of their own ([`party`]).
//!
//! ```text
//! party on host 1 ══ link ══╗
//! party on host 2 ══ link ══╬══ controller and element, on element 1
//! party on host 3 ══ link ══╝
//! ```
//!
//! Parties are threads of this process, each in the namespace of its host. A bed has one element: an XDP
//! program on its interfaces would also be passed by what other parties send through it.

pub(crate) mod agreement;
mod bare;
pub(crate) mod by_hand;
pub(crate) mod callers;
pub(crate) mod gloo;
pub(crate) mod killed;
pub(crate) mod latency;
pub(crate) mod mpi;
pub(crate) mod pair;
mod party;
pub(crate) mod tcp;
pub(crate) mod ucx;
pub(crate) mod workers;

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use pathcall_element::Registration;
use pathcall_testbed::{Builder, Rate, Testbed};

pub(crate) use party::{Begun, Party, Waiting};

use crate::harness::Bench;

/// Processor of whoever calls, where parties are pinned.
pub(crate) const CALLER_CPU: usize = 0;
/// Processor of whoever answers.
pub(crate) const ANSWER_CPU: usize = 1;

/// What works on frames on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hop {
    /// The element in the kernel: an XDP program at the end of each host's link.
    Xdp,
    /// The element in user space, which sleeps when it finds nothing for a while.
    User,
    /// The element in user space on a processor of its own, which never sleeps.
    Polling,
    /// No element: its host only forwards.
    Nothing,
}

impl Hop {
    /// What a figure calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Xdp => "XDP element",
            Self::User => "user-space element",
            Self::Polling => "user-space element, busy polling",
            Self::Nothing => "no element",
        }
    }
}

/// A bed with its element.
pub(crate) struct Stage {
    middle: Option<Middle>,
    /// Where controller and element run; after what runs there, or its end would wait for a dead thread.
    _party: Party,
    pub(crate) bed: Testbed,
}

struct Middle {
    controller: pathcall_control::Handle,
    element: pathcall_element::Handle,
}

/// Why figures on a testbed are not made, said in a line; nothing is said if they are.
pub(crate) fn stands(bench: &Bench) -> bool {
    match Testbed::builder().hosts(1).up() {
        Ok(_) => true,
        Err(error) => {
            bench.says(&format!("not made: {error}"));
            false
        }
    }
}

/// A link's rate in Mbit/s.
pub(crate) fn mbits(rate: &str) -> Result<f64> {
    Ok(rate.parse::<Rate>()?.bits() as f64 / 1e6)
}

/// Whether the element in the kernel can be had; if not, that is said in a line.
pub(crate) fn has_xdp(bench: &Bench) -> bool {
    if !cfg!(feature = "xdp") {
        bench.says("no rows of the XDP element: the bench was built without the feature `xdp`");
    }
    cfg!(feature = "xdp")
}

impl Stage {
    /// Builds the bed and starts controller and element on it, so that they know each other.
    pub(crate) fn start(bed: Builder, hop: Hop) -> Result<Self> {
        let bed = bed.up()?;
        let node = bed.element(1)?;
        let party = Party::at(&node, Waiting::Blocking, None)?;
        let middle = match hop {
            Hop::Nothing => None,
            _ => {
                let free = SocketAddr::new(IpAddr::V4(node.address()), 0);
                // The interfaces of the element are called as the hosts are.
                let hosts = bed.nodes().filter(|node| node.name().is_host()).map(|node| node.name().to_string());
                let xdp = if hop == Hop::Xdp { hosts.collect() } else { Vec::new() };
                let polls = hop == Hop::Polling;
                let config = pathcall_element::Config::default()
                    .data(free)
                    .control(free)
                    .busy_poll(polls)
                    .cpu(polls.then_some(ANSWER_CPU))
                    .xdp(xdp);
                Some(party.run(move || Middle::start(free, config))?)
            }
        };
        Ok(Self { middle, _party: party, bed })
    }

    /// A thread on host `k`, counted from 1.
    pub(crate) fn host(&self, k: usize, waiting: Waiting, cpu: Option<usize>) -> Result<Party> {
        Party::at(&self.bed.host(k)?, waiting, cpu)
    }

    /// The address of host `k`, with a port that is free there.
    pub(crate) fn free_at(&self, k: usize) -> Result<SocketAddr> {
        Ok(SocketAddr::new(IpAddr::V4(self.bed.host(k)?.address()), 0))
    }

    /// Bytes that the links of all hosts have carried so far, in either direction.
    pub(crate) fn carried(&self) -> Result<u64> {
        let hosts = 1..=self.bed.nodes().filter(|node| node.name().is_host()).count();
        let carried = |k| Ok::<_, anyhow::Error>(self.bed.link(k)?.traffic()?);
        hosts.map(|k| carried(k).map(|link| link.up.bytes + link.down.bytes)).sum()
    }

    /// Where the controller is, if there is an element.
    pub(crate) fn controller(&self) -> Option<String> {
        self.middle.as_ref().map(|middle| middle.controller.url())
    }

    /// The element, if there is one.
    pub(crate) fn element(&self) -> Option<&pathcall_element::Handle> {
        self.middle.as_ref().map(|middle| &middle.element)
    }
}

impl Middle {
    async fn start(free: SocketAddr, config: pathcall_element::Config) -> Result<Self> {
        let interfaces = config.xdp.len();
        let listener = pathcall_control::bind(free).await?;
        // The bed is a network of its own.
        let security = pathcall_control::Security::default().insecure(true);
        let settings = pathcall_control::Config::default().security(security.clone());
        let controller = pathcall_control::serve(listener, settings).await?;
        let config = config.controller(Some(controller.url())).security(security);
        let element = pathcall_element::run(config).await?;
        let native = element.attached().iter().filter(|attached| attached.native).count();
        ensure!(native == interfaces, "the XDP program is on {native} of {interfaces} interfaces, natively");
        let mut registration = element.registration();
        let known = registration.wait_for(|registration| matches!(registration, Registration::Known { .. }));
        known.await.context("the element did not get to its controller")?;
        Ok(Self { controller, element })
    }
}
