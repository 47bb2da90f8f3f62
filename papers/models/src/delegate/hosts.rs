//! Addresses of the modelled hosts, and their outgoing messages.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use pathcall_endpoint::delegate::MessageOutbox;

/// Outgoing messages in order.
#[derive(Debug, Default)]
pub(super) struct Out(pub(super) Vec<(SocketAddr, Bytes)>);

impl MessageOutbox for Out {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.0.push((to, [head, payload].concat().into()));
    }
}

/// Address of a host.
pub(super) fn address(index: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)), 7000)
}

/// Index of the host with this address.
pub(super) fn host_at(address: SocketAddr) -> Option<usize> {
    match address.ip() {
        IpAddr::V4(ip) => usize::from(ip.octets()[3]).checked_sub(1),
        IpAddr::V6(_) => None,
    }
}
