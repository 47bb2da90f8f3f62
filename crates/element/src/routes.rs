//! Forwarding table of the overlay: UDP address of each endpoint.

use std::net::SocketAddr;

use pathcall_program::tables::ById;

/// Map from endpoint id to UDP address. Looked up once per frame; changed only by commands.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    addresses: ById<SocketAddr>,
}

impl Routes {
    /// Address of an endpoint, if known.
    #[inline]
    pub(crate) fn get(&self, endpoint: u32) -> Option<SocketAddr> {
        self.addresses.get(&endpoint).copied()
    }

    /// Endpoints at one of these addresses.
    pub(crate) fn at(&self, addresses: &[SocketAddr]) -> impl Iterator<Item = u32> {
        self.addresses.iter().filter(|(_, address)| addresses.contains(address)).map(|(endpoint, _)| *endpoint)
    }

    /// Sets the address of an endpoint.
    pub(crate) fn set(&mut self, endpoint: u32, addr: SocketAddr) {
        self.addresses.insert(endpoint, addr);
    }

    /// Removes an endpoint.
    pub(crate) fn remove(&mut self, endpoint: u32) {
        self.addresses.remove(&endpoint);
    }

    /// Removes the endpoints for which `keep` returns false.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.addresses.retain(|&endpoint, _| keep(endpoint));
    }

    /// Number of endpoints with an address.
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_found_until_removed() {
        let mut routes = Routes::default();
        let addr = |i: u32| SocketAddr::from(([10, 0, 0, 1], i as u16));
        for i in (0..5000).chain([u32::MAX]) {
            routes.set(i, addr(i));
        }
        routes.set(7, addr(8));
        routes.remove(9);
        assert_eq!(routes.get(7), Some(addr(8)));
        assert_eq!(routes.get(9), None);
        assert_eq!(routes.get(4999), Some(addr(4999)));
        assert_eq!(routes.get(u32::MAX), Some(addr(u32::MAX)));
        assert_eq!(routes.get(5000), None);
        let mut at: Vec<u32> = routes.at(&[addr(4), addr(8), addr(9)]).collect();
        at.sort_unstable();
        assert_eq!(at, [4, 7, 8]);
        routes.retain(|endpoint| endpoint < 3);
        assert_eq!((routes.len(), routes.get(2), routes.get(3)), (3, Some(addr(2)), None));
    }
}
