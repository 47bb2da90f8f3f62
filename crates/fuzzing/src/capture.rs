//! Bytes as a packet capture, pcap or pcapng, and its packets as flows: all are read, no panic.

use monitor::{capture, flow};

/// Takes one input.
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
