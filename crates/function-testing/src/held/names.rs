//! Values that SNAT allocates, by the names of those that have them: what a run gave to whom.
//!
//! ```text
//! a packet of the plan, all addresses as inside ─► render ─► as it reaches the function, by what it gave so far
//! a packet that left ─► plain ─► as if nothing had been translated, checksums as what they are off by
//! ```
//!
//! Two runs that differ in what they allocate alone give the same plain packets.

use std::collections::BTreeMap;

use super::frame::{ICMP, Layers, half, put_half, put_word, residues, sum_up, word};

/// An address, a port (or an echo's identifier), a protocol.
pub type Endpoint = (u32, u16, u8);

/// Whether an address is inside, as snat.p4c has it.
pub fn is_inside(address: u32) -> bool {
    address >> 24 == 10
}

/// Whether it is one of the pool.
pub fn is_pool(address: u32) -> bool {
    address >> 4 == 0xc000_0200 >> 4
}

/// Who has which value.
#[derive(Debug, Clone, Default)]
pub struct Names {
    given: BTreeMap<Endpoint, (u32, u16)>,
    owners: BTreeMap<Endpoint, Endpoint>,
    /// They are of several runs, which know nothing of one another's values.
    pub several: bool,
}

/// The endpoint that a packet of the plan comes from, if a value may be allocated for it.
pub fn source(bytes: &[u8]) -> Option<Endpoint> {
    let layers = Layers::of(bytes)?;
    let (from, _) = layers.ports(bytes)?;
    Some((word(bytes, layers.ip + 12), half(bytes, from), layers.protocol))
}

/// The endpoint inside whose mapping a packet needs to find its way: where it goes to, or what went wrong there.
pub fn wanted(bytes: &[u8]) -> Option<Endpoint> {
    let layers = Layers::of(bytes)?;
    let outward = is_inside(word(bytes, layers.ip + 12));
    if let Some(inner) = layers.inner {
        let from = (word(bytes, inner + 12), half(bytes, inner + 20), bytes[inner + 9]);
        return (!outward && is_inside(from.0)).then_some(from);
    }
    let (_, to) = layers.ports(bytes)?;
    let endpoint = (word(bytes, layers.ip + 16), half(bytes, to), layers.protocol);
    is_inside(endpoint.0).then_some(endpoint)
}

impl Names {
    /// Forgets what these endpoints have.
    pub fn forget(&mut self, which: impl Fn(&Endpoint) -> bool) {
        self.given.retain(|endpoint, _| !which(endpoint));
        self.owners.retain(|_, endpoint| !which(endpoint));
    }

    /// A packet of the plan as it comes to the function; none if its way is not known.
    pub fn render(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let Some(wanted) = wanted(packet) else { return Some(packet.to_vec()) };
        let (address, port) = *self.given.get(&wanted)?;
        let mut bytes = packet.to_vec();
        let layers = Layers::of(&bytes)?;
        put_word(&mut bytes, layers.ip + 16, address);
        if let Some(inner) = layers.inner {
            put_word(&mut bytes, inner + 12, address);
            put_half(&mut bytes, inner + 20, port);
        } else {
            let (_, to) = layers.ports(&bytes)?;
            put_half(&mut bytes, to, port);
        }
        sum_up(&mut bytes, layers.ip);
        Some(bytes)
    }

    /// A packet that left, made of `packet` of the plan, as if nothing had been translated. Says so if it was translated to
    /// something else than before.
    pub fn plain(&mut self, left: &[u8], packet: &[u8]) -> Result<Vec<u8>, String> {
        let (Some(layers), Some(own)) = (Layers::of(left), Layers::of(packet)) else { return Ok(left.to_vec()) };
        if layers.behind != own.behind || layers.protocol != own.protocol {
            return Ok(left.to_vec());
        }
        let [mut ip, behind, mut inner] = residues(left, &layers);
        let mut bytes = left.to_vec();
        let address = word(left, layers.ip + 12);
        if is_pool(address) {
            let original = word(packet, own.ip + 12);
            put_word(&mut bytes, layers.ip + 12, original);
            if let (Some((at, _)), Some(endpoint)) = (own.ports(packet), source(packet)) {
                self.took(endpoint, (address, half(left, at)))?;
                put_half(&mut bytes, at, endpoint.1);
            }
            if let Some(at) = layers.inner.filter(|_| own.inner.is_some()) {
                let about = (word(packet, at + 16), half(packet, at + 22), packet[at + 9]);
                let now = (word(left, at + 16), half(left, at + 22));
                self.took(about, now)?;
                put_word(&mut bytes, at + 16, about.0);
                put_half(&mut bytes, at + 22, about.1);
            }
        }
        // 0 and 0xffff are one sum.
        (ip, inner) = (ip % 0xffff, inner % 0xffff);
        put_half(&mut bytes, layers.ip + 10, ip as u16);
        if let Some(at) = layers.behind {
            let place = if layers.protocol == ICMP {
                2
            } else if layers.protocol == super::frame::TCP {
                16
            } else {
                6
            };
            put_half(&mut bytes, at + place, behind as u16);
        }
        if let Some(at) = layers.inner {
            put_half(&mut bytes, at + 10, inner as u16);
        }
        Ok(bytes)
    }

    fn took(&mut self, endpoint: Endpoint, value: (u32, u16)) -> Result<(), String> {
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
