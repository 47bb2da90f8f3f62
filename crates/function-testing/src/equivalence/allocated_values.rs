//! Mapping between values that SNAT allocates and their endpoints.
//!
//! ```text
//! packet of the plan, inside addresses only ─► render ─► packet for the function, with the values allocated so far
//! output packet ─► undo_translation ─► packet as if untranslated, with the errors of its checksums
//! ```
//!
//! Two runs that differ only in the allocated values give the same plain packets.

use std::collections::BTreeMap;

use super::frame::{FrameOffsets, ICMP, checksum_errors, correct_checksums, read_u16, read_u32, write_u16, write_u32};

/// Address, port (or identifier of an echo) and protocol.
pub type TransportEndpoint = (u32, u16, u8);

/// True for an inside address of snat.p4c.
pub fn is_inside(address: u32) -> bool {
    address >> 24 == 10
}

/// True for an address of the pool.
pub fn is_pool(address: u32) -> bool {
    address >> 4 == 0xc000_0200 >> 4
}

/// Allocated values by endpoint, and endpoints by value.
#[derive(Debug, Clone, Default)]
pub struct AllocatedValues {
    given: BTreeMap<TransportEndpoint, (u32, u16)>,
    owners: BTreeMap<TransportEndpoint, TransportEndpoint>,
    /// True if several independent runs allocate values.
    pub several: bool,
}

/// Endpoint of a packet of the plan, if a value may be allocated for it.
pub fn source_endpoint(bytes: &[u8]) -> Option<TransportEndpoint> {
    let layers = FrameOffsets::of(bytes)?;
    let (from, _) = layers.ports(bytes)?;
    Some((read_u32(bytes, layers.ip + 12), read_u16(bytes, from), layers.protocol))
}

/// Inside endpoint that a packet needs a mapping for: its destination, or the source of the quoted packet.
pub fn needed_endpoint(bytes: &[u8]) -> Option<TransportEndpoint> {
    let layers = FrameOffsets::of(bytes)?;
    let outward = is_inside(read_u32(bytes, layers.ip + 12));
    if let Some(inner) = layers.inner {
        let from = (read_u32(bytes, inner + 12), read_u16(bytes, inner + 20), bytes[inner + 9]);
        return (!outward && is_inside(from.0)).then_some(from);
    }
    let (_, to) = layers.ports(bytes)?;
    let endpoint = (read_u32(bytes, layers.ip + 16), read_u16(bytes, to), layers.protocol);
    is_inside(endpoint.0).then_some(endpoint)
}

impl AllocatedValues {
    /// Removes the values of endpoints.
    pub fn forget(&mut self, which: impl Fn(&TransportEndpoint) -> bool) {
        self.given.retain(|endpoint, _| !which(endpoint));
        self.owners.retain(|_, endpoint| !which(endpoint));
    }

    /// Packet of the plan with the allocated values; `None` if its destination has none.
    pub fn render(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let Some(wanted) = needed_endpoint(packet) else { return Some(packet.to_vec()) };
        let (address, port) = *self.given.get(&wanted)?;
        let mut bytes = packet.to_vec();
        let layers = FrameOffsets::of(&bytes)?;
        write_u32(&mut bytes, layers.ip + 16, address);
        if let Some(inner) = layers.inner {
            write_u32(&mut bytes, inner + 12, address);
            write_u16(&mut bytes, inner + 20, port);
        } else {
            let (_, to) = layers.ports(&bytes)?;
            write_u16(&mut bytes, to, port);
        }
        correct_checksums(&mut bytes, layers.ip);
        Some(bytes)
    }

    /// Output for `packet` of the plan with the translation undone. An error if the translation differs from an earlier
    /// one.
    pub fn undo_translation(&mut self, left: &[u8], packet: &[u8]) -> Result<Vec<u8>, String> {
        let (Some(layers), Some(own)) = (FrameOffsets::of(left), FrameOffsets::of(packet)) else {
            return Ok(left.to_vec());
        };
        if layers.transport != own.transport || layers.protocol != own.protocol {
            return Ok(left.to_vec());
        }
        let [mut ip, transport, mut inner] = checksum_errors(left, &layers);
        let mut bytes = left.to_vec();
        let address = read_u32(left, layers.ip + 12);
        if is_pool(address) {
            let original = read_u32(packet, own.ip + 12);
            write_u32(&mut bytes, layers.ip + 12, original);
            if let (Some((at, _)), Some(endpoint)) = (own.ports(packet), source_endpoint(packet)) {
                self.record(endpoint, (address, read_u16(left, at)))?;
                write_u16(&mut bytes, at, endpoint.1);
            }
            if let Some(at) = layers.inner.filter(|_| own.inner.is_some()) {
                let about = (read_u32(packet, at + 16), read_u16(packet, at + 22), packet[at + 9]);
                let now = (read_u32(left, at + 16), read_u16(left, at + 22));
                self.record(about, now)?;
                write_u32(&mut bytes, at + 16, about.0);
                write_u16(&mut bytes, at + 22, about.1);
            }
        }
        // 0 and 0xffff are the same sum.
        (ip, inner) = (ip % 0xffff, inner % 0xffff);
        write_u16(&mut bytes, layers.ip + 10, ip as u16);
        if let Some(at) = layers.transport {
            let place = if layers.protocol == ICMP {
                2
            } else if layers.protocol == super::frame::TCP {
                16
            } else {
                6
            };
            write_u16(&mut bytes, at + place, transport as u16);
        }
        if let Some(at) = layers.inner {
            write_u16(&mut bytes, at + 10, inner as u16);
        }
        Ok(bytes)
    }

    fn record(&mut self, endpoint: TransportEndpoint, value: (u32, u16)) -> Result<(), String> {
        let had = *self.given.entry(endpoint).or_insert(value);
        if had != value {
            return Err(format!("{endpoint:x?} had {had:x?}, and has {value:x?} now"));
        }
        let owner = *self.owners.entry((value.0, value.1, endpoint.2)).or_insert(endpoint);
        if owner != endpoint && !self.several {
            return Err(format!("{endpoint:x?} and {owner:x?} both have {value:x?}"));
        }
        Ok(())
    }
}
