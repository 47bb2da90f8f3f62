//! Tests of handlers that divide by zero, access foreign memory or never end: the packet is lost, the report names the
//! line, the handler restarts, and nothing else is affected.

use super::{folder, packets, printed, write};

/// Function whose handler fails for packets to these ports, and counts other packets by source address.
const FUNCTION: &str = "\
#include <inet.p4>
request { @flow bit<32> src; bit<16> port; }
response { bit<32> count; }
state {
    static volatile uint32_t zero, small[4], calls[256];
    static uint32_t deep(uint32_t n) { volatile char frame[200]; frame[n % 200] = 1; return n ? deep(n - 1) + frame[n % 200] : 0; }
}
void remote_handler(in request req, out response res) {
    if (req->port == 1)
        small[0] = 7 / zero;
    if (req->port == 2)
        small[(zero + 1) << 28] = 1;
    if (req->port == 3)
        for (;;)
            small[zero & 3]++;
    if (req->port == 4)
        *(volatile uint32_t *)(uintptr_t)zero = 1;
    if (req->port == 5)
        small[0] = deep(100000000);
    if (req->port == 6)
        drop(SENT_TO_SIX);
    res->count = ++calls[req->src & 255];
}
struct metadata { }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) {
    apply { flight = hdr.udp.isValid(); req.src = hdr.ipv4.srcAddr; req.port = hdr.udp.dstPort; }
}
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) {
    apply { sm.egress_spec = 1; hdr.ipv4.dstAddr = res.count; }
}
#include <pipeline.p4>
";

/// Packet from a host to a port.
fn packet(host: u8, port: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([10, 0, 0, host, 10, 0, 0, 0, 0, 53]);
    packet.extend(port.to_be_bytes());
    packet.extend([0, 8, 0, 0]);
    packet
}

/// Host and count of each packet that left.
fn counts(out: &std::path::Path) -> Vec<(u8, u32)> {
    let count = |bytes: &[u8]| (bytes[29], u32::from_be_bytes(bytes[30..34].try_into().expect("4 bytes")));
    packets(out).iter().map(|(_, _, bytes)| count(bytes)).collect()
}

#[test]
fn handler_fault_loses_packet_and_reports_line() {
    if !super::compilers() {
        return;
    }
    let folder = folder("faults");
    std::fs::write(folder.join("f.p4c"), FUNCTION).expect("written");
    for (port, reason, lines) in [
        (1, "division by zero", 10..=10),
        (2, "out of bounds", 12..=12),
        // Any line of its function: compilers share instructions of a loop, and the time limit may hit any of them.
        (3, "time limit", 8..=22),
        (4, "out of bounds", 17..=17),
    ] {
        // Host 7 before and after the fault of host 8, far enough apart for the handler's pause to be over.
        let sent = [(7, 80), (7, 80), (8, port), (7, 80), (9, 80), (7, 80)];
        let sent: Vec<_> = (1..).zip(sent).map(|(at, (host, port))| (at, 0, packet(host, port))).collect();
        write(&folder.join("in.pcap"), &sent);
        let printed = printed(&folder, &["run", "f.p4c", "--pcap", "in.pcap", "--out", "out.pcap"]);
        // The handler restarts after the fault: state in its memory is lost.
        assert_eq!(
            counts(&folder.join("out.pcap")),
            [(7, 1), (7, 2), (7, 1), (9, 1), (7, 2)],
            "port {port}: {printed}"
        );
        assert!(printed.contains("server 1 6 requests, 0 ended by the handler, 1 lost in traps\n"), "{printed}");
        assert!(printed.contains(&format!("trapped  1: {reason}, at server 1\n")), "{printed}");
        let place = |line| format!("handler trapped at f.p4c:{line} in remote_handler: {reason}; restarted");
        assert!(lines.clone().any(|line| printed.contains(&place(line))), "at {lines:?}: {printed}");
    }
}

#[test]
fn handler_fault_does_not_affect_other_servers() {
    if !super::compilers() {
        return;
    }
    let folder = folder("apart");
    std::fs::write(folder.join("f.p4c"), FUNCTION).expect("written");
    // Twenty hosts on four servers. Host 8 sends a packet that never ends, one that overflows the stack, and packets
    // that the handler drops.
    let mut sent = Vec::new();
    for round in 0..10 {
        sent.extend((20..40).map(|host| (round * 2, u32::from(host), packet(host, 80))));
        sent.push((round * 2, 500_000, packet(8, [3, 5, 6][round as usize % 3])));
    }
    write(&folder.join("in.pcap"), &sent);
    let printed = printed(&folder, &["run", "f.p4c", "--pcap", "in.pcap", "--out", "out.pcap", "--servers", "4"]);
    let counts = counts(&folder.join("out.pcap"));
    assert_eq!(counts.len(), 200, "{printed}");
    // Hosts on the server of host 8 were counted from 1 again, the others continued.
    let went_on = (20..40).filter(|host| counts.iter().rfind(|(other, _)| other == host) == Some(&(*host, 10)));
    assert!(went_on.count() >= 10, "{counts:?}");
    assert!(printed.contains("handler  3: SENT_TO_SIX\n") && printed.contains("time limit"), "{printed}");
    let traps: u32 = printed
        .lines()
        .filter_map(|line| line.strip_suffix(" lost in traps")?.rsplit(' ').next()?.parse::<u32>().ok())
        .sum();
    assert_eq!(traps, 7, "{printed}");
}
