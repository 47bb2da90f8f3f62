//! Bytes as a packet capture, pcap or pcapng, and its packets as flows: all are read, no panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the application uses all of it")]
#[path = "../../apps/monitor/src/capture.rs"]
mod capture;
#[allow(dead_code, reason = "the application uses all of it")]
#[path = "../../apps/monitor/src/flow.rs"]
mod flow;

fuzz_target!(|data: &[u8]| {
    let mut packets = 0;
    let each = |packet: capture::Packet<'_>| {
        let _ = flow::Flow::of(&packet);
        packets += 1;
    };
    if let Ok(end) = capture::read(data, each) {
        assert_eq!(packets, end.packets);
    }
});
