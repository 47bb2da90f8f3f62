//! Environment of the figures on a testbed: hosts on links, a controller and an element between them, and parties on
//! the hosts ([`party`]).
//!
//! ```text
//! party on host 1 ══ link ══╗
//! party on host 2 ══ link ══╬══ controller and element, on element 1
//! party on host 3 ══ link ══╝
//! ```
//!
//! Parties are threads of this process, each in the namespace of its host. A testbed has one element: frames of other
//! parties would also pass an XDP program on its interfaces.

pub(crate) mod agreement;
mod bare_sockets;
pub(crate) mod callers;
pub(crate) mod child;
pub(crate) mod endpoint_app;
pub(crate) mod gloo;
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
use pathcall_testbed::{Builder, LinkRate, Testbed};

pub(crate) use party::{Party, RunningJob, WaitMode};

use crate::harness::Bench;

/// Processor of pinned callers.
pub(crate) const CALLER_CPU: usize = 0;
/// Processor of pinned servers and elements.
pub(crate) const ANSWER_CPU: usize = 1;

/// Element on the path of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hop {
    /// Element in the kernel: an XDP program at the end of each host's link.
    Xdp,
    /// Element in user space, which blocks after a short idle time.
    User,
    /// Element in user space on its own processor, which never blocks.
    Polling,
    /// No element: the host only forwards.
    NoElement,
}

impl Hop {
    /// Name in figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Xdp => "XDP element",
            Self::User => "user-space element",
            Self::Polling => "user-space element, busy polling",
            Self::NoElement => "no element",
        }
    }
}

/// Testbed with its element.
pub(crate) struct ElementTestbed {
    middle: Option<Middle>,
    /// Party of controller and element; declared after them, because their drop would wait for an ended thread.
    _party: Party,
    pub(crate) testbed: Testbed,
}

struct Middle {
    controller: pathcall_control::Handle,
    element: pathcall_element::Handle,
}

/// True if testbeds are available; otherwise prints the reason.
pub(crate) fn testbed_available(bench: &Bench) -> bool {
    match Testbed::builder().hosts(1).up() {
        Ok(_) => true,
        Err(error) => {
            bench.print_note(&format!("not made: {error}"));
            false
        }
    }
}

/// Rate of a link in Mbit/s.
pub(crate) fn mbits(rate: &str) -> Result<f64> {
    Ok(rate.parse::<LinkRate>()?.bits() as f64 / 1e6)
}

/// True if the element in the kernel is available; otherwise prints the reason.
pub(crate) fn has_xdp(bench: &Bench) -> bool {
    if !cfg!(feature = "xdp") {
        bench.print_note("no rows of the XDP element: the bench was built without the feature `xdp`");
    }
    cfg!(feature = "xdp")
}

impl ElementTestbed {
    /// Builds the testbed, and starts controller and element on it, connected to each other.
    pub(crate) fn start(testbed: Builder, hop: Hop) -> Result<Self> {
        let testbed = testbed.up()?;
        let node = testbed.element(1)?;
        let party = Party::at(&node, WaitMode::Blocking, None)?;
        let middle = match hop {
            Hop::NoElement => None,
            _ => {
                let free = SocketAddr::new(IpAddr::V4(node.address()), 0);
                // The interfaces of the element have the names of the hosts.
                let hosts = testbed.nodes().filter(|node| node.name().is_host()).map(|node| node.name().to_string());
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
        Ok(Self { middle, _party: party, testbed })
    }

    /// Starts a thread on host `k`, counted from 1.
    pub(crate) fn host(&self, k: usize, waiting: WaitMode, cpu: Option<usize>) -> Result<Party> {
        Party::at(&self.testbed.host(k)?, waiting, cpu)
    }

    /// Address of host `k` with a free port.
    pub(crate) fn free_at(&self, k: usize) -> Result<SocketAddr> {
        Ok(SocketAddr::new(IpAddr::V4(self.testbed.host(k)?.address()), 0))
    }

    /// Bytes carried by the links of all hosts so far, in both directions.
    pub(crate) fn carried(&self) -> Result<u64> {
        let hosts = 1..=self.testbed.nodes().filter(|node| node.name().is_host()).count();
        let carried = |k| Ok::<_, anyhow::Error>(self.testbed.link(k)?.traffic()?);
        hosts.map(|k| carried(k).map(|link| link.up.bytes + link.down.bytes)).sum()
    }

    /// URL of the controller, if there is an element.
    pub(crate) fn controller(&self) -> Option<String> {
        self.middle.as_ref().map(|middle| middle.controller.url())
    }

    /// Element, if there is one.
    pub(crate) fn element(&self) -> Option<&pathcall_element::Handle> {
        self.middle.as_ref().map(|middle| &middle.element)
    }
}

impl Middle {
    async fn start(free: SocketAddr, config: pathcall_element::Config) -> Result<Self> {
        let interfaces = config.xdp.len();
        let listener = pathcall_control::bind(free).await?;
        // The testbed is an isolated network.
        let security = pathcall_control::Security::default().insecure(true);
        let settings = pathcall_control::Config::default().security(security.clone());
        let controller = pathcall_control::serve(listener, settings).await?;
        let config = config.controller(Some(controller.url())).security(security);
        let element = pathcall_element::run(config).await?;
        let native = element.attached().iter().filter(|attached| attached.native).count();
        ensure!(native == interfaces, "the XDP program is on {native} of {interfaces} interfaces, natively");
        let mut registration = element.registration();
        let known = registration.wait_for(|registration| matches!(registration, Registration::Known { .. }));
        known.await.context("the element did not connect to its controller")?;
        Ok(Self { controller, element })
    }
}
