//! Where parties are: each on a host of a testbed of its own, or, where there can be no testbed, on the loopback.
//!
//! ```text
//! host 1: caller ══╗
//! host 2: server ══╬══ element: what is in the middle
//! host 3: server ══╝
//! ```

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;

use anyhow::{Context, Result, anyhow};
use pathcall_testbed::{Node, Testbed};

use crate::harness::Bench;
use crate::net::FREE;

/// Where parties are.
pub(crate) enum Ground {
    /// Links are bare: what a party finds no time for is lost, as on a loopback.
    Testbed(Testbed),
    Loopback,
}

/// Who somebody is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Who {
    Caller,
    Middle,
    /// Counted from 0.
    Server(usize),
}

impl Ground {
    /// For so many servers; without a testbed, a line says why.
    pub(crate) fn of(bench: &Bench, servers: usize) -> Self {
        match Testbed::builder().hosts(1 + servers).up() {
            Ok(bed) => Self::Testbed(bed),
            Err(error) => {
                bench.says(&format!("on the loopback: {error}"));
                Self::Loopback
            }
        }
    }

    /// A socket of somebody, on a free port.
    pub(super) fn socket(&self, who: Who) -> Result<UdpSocket> {
        let Self::Testbed(bed) = self else { return Ok(UdpSocket::bind(FREE)?) };
        let node = match who {
            Who::Caller => bed.host(1)?,
            Who::Middle => bed.element(1)?,
            Who::Server(nth) => bed.host(2 + nth)?,
        };
        on(&node)
    }
}

/// A socket stays where it was made: the thread that makes it goes there, and ends.
fn on(node: &Node) -> Result<UdpSocket> {
    let made = thread::scope(|scope| {
        let make = || {
            node.enter()?;
            anyhow::Ok(UdpSocket::bind(SocketAddr::new(IpAddr::V4(node.address()), 0))?)
        };
        scope.spawn(make).join()
    });
    made.map_err(|_| anyhow!("a thread panicked"))?.with_context(|| format!("no socket on {}", node.name()))
}
