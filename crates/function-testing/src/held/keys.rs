//! What belongs together: packets that leave in order, and packets that one state is for.

use super::frame::{Layers, TCP, UDP, half, word};
use super::names::{source, wanted};
use super::plan::Kind;

/// The port that smooth.p4c takes readings at.
const READINGS: u16 = 5683;

/// The flow that a packet leaves in order with: its addresses, ports and tag; errors and fragments by what they say of
/// those. What has no ports is in order with none but its like.
pub fn flow(kind: Kind, bytes: &[u8]) -> Vec<u8> {
    let Some(layers) = Layers::of(bytes) else { return bytes.to_vec() };
    let mut key = vec![layers.protocol];
    key.extend(layers.vlan.to_be_bytes());
    key.extend(&bytes[layers.ip + 12..layers.ip + 20]);
    if let Some(inner) = layers.inner {
        key.extend(&bytes[inner + 12..inner + 24]);
    } else if let Some((from, to)) = layers.ports(bytes) {
        key.extend([bytes[from], bytes[from + 1], bytes[to], bytes[to + 1]]);
        // Only readings go to servers, each to that of its sensor.
        if let Some(sensor) = sensor(bytes).filter(|_| kind == Kind::Smooth) {
            key.extend(sensor.to_be_bytes());
        }
    } else if layers.offset != 0 {
        key.extend(&bytes[layers.ip + 4..layers.ip + 6]);
    } else {
        return bytes.to_vec();
    }
    key
}

/// What a function's state is kept for; none where it keeps none. `bytes`: a packet of the plan.
pub fn state(kind: Kind, bytes: &[u8]) -> Option<Vec<u8>> {
    let layers = Layers::of(bytes)?;
    let endpoint = |(address, port, protocol): (u32, u16, u8)| {
        let mut key = address.to_be_bytes().to_vec();
        key.extend(port.to_be_bytes());
        key.push(protocol);
        key
    };
    match kind {
        Kind::Fib => None,
        Kind::Snat => match layers.inner {
            // An error of the one inside is about what came to it.
            Some(inner) if wanted(bytes).is_none() => {
                Some(endpoint((word(bytes, inner + 16), half(bytes, inner + 22), bytes[inner + 9])))
            }
            Some(_) => wanted(bytes).map(endpoint),
            None if super::names::is_inside(word(bytes, layers.ip + 12)) => source(bytes).map(endpoint),
            None => wanted(bytes).map(endpoint),
        },
        Kind::Trd if layers.protocol == TCP => {
            let at = layers.behind?;
            Some([&bytes[layers.ip + 12..layers.ip + 20], &bytes[at..at + 4]].concat())
        }
        Kind::Trd => None,
        Kind::Knock => Some(bytes[layers.ip + 12..layers.ip + 16].to_vec()),
        Kind::Smooth => sensor(bytes).map(|sensor| sensor.to_be_bytes().to_vec()),
    }
}

/// The flow that a digest of trd.p4c tells of, as [`state`] has it.
pub fn told(values: &[u128]) -> Vec<u8> {
    let [src, dst, sport, dport, ..] = values else { return Vec::new() };
    let addresses = [src, dst].into_iter().flat_map(|address| (*address as u32).to_be_bytes());
    addresses.chain([sport, dport].into_iter().flat_map(|port| (*port as u16).to_be_bytes())).collect()
}

/// The sensor of a reading.
fn sensor(bytes: &[u8]) -> Option<u32> {
    let layers = Layers::of(bytes).filter(|layers| layers.protocol == UDP)?;
    let at = layers.behind?;
    (half(bytes, at + 2) == READINGS && bytes.len() >= at + 20).then(|| word(bytes, at + 8))
}
