//! Hosts of the parties: one per party on a testbed, or the loopback if testbeds are not available.
//!
//! ```text
//! host 1: caller ══╗
//! host 2: server ══╬══ element: switch program or coordinator
//! host 3: server ══╝
//! ```

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;

use anyhow::{Context, Result, anyhow};
use pathcall_testbed::{Testbed, TestbedNode};

use crate::harness::Bench;
use crate::net::FREE;

/// Hosts of the parties.
pub(crate) enum RackHosts {
    /// Links are bare: frames that a party does not receive in time are lost, as on a loopback.
    Testbed(Testbed),
    Loopback,
}

/// Role of a party.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Caller,
    Middle,
    /// Index of the server.
    Server(usize),
}

impl RackHosts {
    /// Hosts for `servers` servers; prints the reason if testbeds are not available.
    pub(crate) fn of(bench: &Bench, servers: usize) -> Self {
        match Testbed::builder().hosts(1 + servers).up() {
            Ok(testbed) => Self::Testbed(testbed),
            Err(error) => {
                bench.print_note(&format!("uses the loopback: {error}"));
                Self::Loopback
            }
        }
    }

    /// Socket of a party, on a free port.
    pub(super) fn socket(&self, role: Role) -> Result<UdpSocket> {
        let Self::Testbed(testbed) = self else { return Ok(UdpSocket::bind(FREE)?) };
        let node = match role {
            Role::Caller => testbed.host(1)?,
            Role::Middle => testbed.element(1)?,
            Role::Server(nth) => testbed.host(2 + nth)?,
        };
        socket_on(&node)
    }
}

/// A socket stays in its network namespace: a short-lived thread enters the namespace and creates it.
fn socket_on(node: &TestbedNode) -> Result<UdpSocket> {
    let made = thread::scope(|scope| {
        let make = || {
            node.enter()?;
            anyhow::Ok(UdpSocket::bind(SocketAddr::new(IpAddr::V4(node.address()), 0))?)
        };
        scope.spawn(make).join()
    });
    made.map_err(|_| anyhow!("a thread panicked"))?.with_context(|| format!("no socket on {}", node.name()))
}
