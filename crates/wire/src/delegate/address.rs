//! Socket addresses in messages: 6 bytes for IPv4 or 18 for IPv6, chosen by a flag; always 18 bytes in a list.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of an IPv4 address with its port.
pub const V4: usize = 6;
/// Length of an IPv6 address with its port, and of each address in a list.
pub const V6: usize = 18;

/// Length of an address, from its flag.
pub(super) const fn len(v6: bool) -> usize {
    if v6 { V6 } else { V4 }
}

/// Writes an address at the start of `out`. Returns its length and whether it is IPv6.
pub(super) fn put(address: SocketAddr, out: &mut [u8]) -> (usize, bool) {
    let len = match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            out[..4].copy_from_slice(&ip.octets());
            V4
        }
        IpAddr::V6(ip) => {
            out[..16].copy_from_slice(&ip.octets());
            V6
        }
    };
    out[len - 2..len].copy_from_slice(&address.port().to_be_bytes());
    (len, len == V6)
}

/// Address at the start of `bytes`, with the length that the flag gives.
pub(super) fn get(bytes: &[u8], v6: bool) -> SocketAddr {
    let (ip, port) = bytes[..len(v6)].split_at(len(v6) - 2);
    let ip = match <[u8; 16]>::try_from(ip) {
        Ok(ip) => IpAddr::V6(Ipv6Addr::from(ip)).to_canonical(),
        Err(_) => IpAddr::V4(Ipv4Addr::from(*ip.first_chunk::<4>().expect("four bytes"))),
    };
    SocketAddr::new(ip, u16::from_be_bytes(*port.first_chunk().expect("two bytes")))
}

/// Writes an entry of an address list at the start of `out`.
pub(super) fn put_listed(address: SocketAddr, out: &mut [u8]) {
    out[..16].copy_from_slice(&mapped(address.ip()).octets());
    out[16..V6].copy_from_slice(&address.port().to_be_bytes());
}

/// IPv6 address of any address.
pub(super) fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Iterator over a list of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PongAddresses<'a>(pub(super) &'a [u8]);

impl Iterator for PongAddresses<'_> {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        let (first, rest) = self.0.split_at_checked(V6)?;
        self.0 = rest;
        Some(get(first, true))
    }
}
