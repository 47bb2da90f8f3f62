//! Keys of flows and state: packets that leave in order, and packets that share state.

use super::allocated_values::{needed_endpoint, source_endpoint};
use super::frame::{FrameOffsets, TCP, UDP, read_u16, read_u32};
use super::plan::FunctionKind;

/// Port of smooth.p4c's readings.
const READINGS: u16 = 5683;

/// Flow key for ordering: addresses, ports and tag, of ICMP errors and fragments those that they quote or carry.
/// Packets without ports are ordered only among themselves.
pub fn flow(kind: FunctionKind, bytes: &[u8]) -> Vec<u8> {
    let Some(layers) = FrameOffsets::of(bytes) else { return bytes.to_vec() };
    let mut key = vec![layers.protocol];
    key.extend(layers.vlan.to_be_bytes());
    key.extend(&bytes[layers.ip + 12..layers.ip + 20]);
    if let Some(inner) = layers.inner {
        key.extend(&bytes[inner + 12..inner + 24]);
    } else if let Some((from, to)) = layers.ports(bytes) {
        key.extend([bytes[from], bytes[from + 1], bytes[to], bytes[to + 1]]);
        // Only readings go to servers, each to the server of its sensor.
        if let Some(sensor) = sensor(bytes).filter(|_| kind == FunctionKind::Smooth) {
            key.extend(sensor.to_be_bytes());
        }
    } else if layers.offset != 0 {
        key.extend(&bytes[layers.ip + 4..layers.ip + 6]);
    } else {
        return bytes.to_vec();
    }
    key
}

/// Key of the function's state for a packet of the plan; `None` without state.
pub fn state(kind: FunctionKind, bytes: &[u8]) -> Option<Vec<u8>> {
    let layers = FrameOffsets::of(bytes)?;
    let endpoint = |(address, port, protocol): (u32, u16, u8)| {
        let mut key = address.to_be_bytes().to_vec();
        key.extend(port.to_be_bytes());
        key.push(protocol);
        key
    };
    match kind {
        FunctionKind::Fib => None,
        FunctionKind::Snat => match layers.inner {
            // An error from the inside refers to a packet that came in.
            Some(inner) if needed_endpoint(bytes).is_none() => {
                Some(endpoint((read_u32(bytes, inner + 16), read_u16(bytes, inner + 22), bytes[inner + 9])))
            }
            Some(_) => needed_endpoint(bytes).map(endpoint),
            None if super::allocated_values::is_inside(read_u32(bytes, layers.ip + 12)) => {
                source_endpoint(bytes).map(endpoint)
            }
            None => needed_endpoint(bytes).map(endpoint),
        },
        FunctionKind::Trd if layers.protocol == TCP => {
            let at = layers.transport?;
            Some([&bytes[layers.ip + 12..layers.ip + 20], &bytes[at..at + 4]].concat())
        }
        FunctionKind::Trd => None,
        FunctionKind::Knock => Some(bytes[layers.ip + 12..layers.ip + 16].to_vec()),
        FunctionKind::Smooth => sensor(bytes).map(|sensor| sensor.to_be_bytes().to_vec()),
    }
}

/// Flow of a digest of trd.p4c, as a [`state`] key.
pub fn digest_flow(values: &[u128]) -> Vec<u8> {
    let [src, dst, sport, dport, ..] = values else { return Vec::new() };
    let addresses = [src, dst].into_iter().flat_map(|address| (*address as u32).to_be_bytes());
    addresses.chain([sport, dport].into_iter().flat_map(|port| (*port as u16).to_be_bytes())).collect()
}

/// Sensor of a reading.
fn sensor(bytes: &[u8]) -> Option<u32> {
    let layers = FrameOffsets::of(bytes).filter(|layers| layers.protocol == UDP)?;
    let at = layers.transport?;
    (read_u16(bytes, at + 2) == READINGS && bytes.len() >= at + 20).then(|| read_u32(bytes, at + 8))
}
