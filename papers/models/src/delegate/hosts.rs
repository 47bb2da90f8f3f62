//! Addresses of the models' hosts, and messages that leave a host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use pathcall_endpoint::delegate::Outbox;

/// Messages that leave a host, in their order.
#[derive(Debug, Default)]
pub(super) struct Out(pub(super) Vec<(SocketAddr, Bytes)>);

impl Outbox for Out {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.0.push((to, [head, payload].concat().into()));
    }
}

/// The address of a host.
pub(super) fn address(index: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)), 7000)
}

/// The host at an address.
pub(super) fn host_at(address: SocketAddr) -> Option<usize> {
    match address.ip() {
        IpAddr::V4(ip) => usize::from(ip.octets()[3]).checked_sub(1),
        IpAddr::V6(_) => None,
    }
}
