//! Fuzz target of packet captures (pcap, pcapng) and their flows. Reading a capture delivers all packets, without
//! panic.

use monitor::{capture, flow};

/// Tests one input.
pub fn run(data: &[u8]) {
    let mut packets = 0;
    let each = |packet: capture::Packet<'_>| {
        let _ = flow::Flow::of(&packet);
        packets += 1;
    };
    if let Ok(end) = capture::read(data, each) {
        assert_eq!(packets, end.packets);
    }
}
