//! A [`Plan`] in the words of `ip`, `tc`, `nft` and `ethtool`: text out, nothing run.
//!
//! First [`links`], for `ip -batch`: namespaces and veth pairs between them. Then in each namespace a
//! shell's script: [`host`], [`element`], [`wire`].

use std::fmt::Write;

use crate::plan::{Cable, DOWN, Detour, End, NodeName, Plan, UP};
use crate::profile::{Profile, Rate, Share};
use crate::xdp::SECTION;

/// The table of a wire's rules, of the family `netdev`.
pub(crate) const TABLE: &str = "wire";
/// Names of counters end like this.
pub(crate) const LOST: &str = "lost";
pub(crate) const MARKED: &str = "marked";
pub(crate) const REPEATED: &str = "repeated";
pub(crate) const PASSED: &str = "passed";

/// Bytes of an Ethernet header, which rates and queues count.
pub(crate) const ETHERNET_BYTES: u32 = 14;
/// Full frames that wait for a rate, unless the profile says otherwise.
const QUEUE_FRAMES: u32 = 256;
/// Frames that wait where there is no rate.
const QUEUE_FRAMES_UNSHAPED: u32 = 4096;
/// Frames that wait for the thread that delays them.
const DETOUR_FRAMES: u32 = 4096;
/// The rate's bucket holds what it lets through in this time, so that a timer may be so late.
const BURST_MS: u64 = 1;
/// It holds no fewer full frames than this.
const BURST_FRAMES: u32 = 4;

/// All namespaces but the first, and all links.
pub(crate) fn links(plan: &Plan) -> String {
    let mut lines = String::new();
    let namespace = |node: NodeName| node.namespace(&plan.bed);
    for node in plan.nodes().skip(1) {
        put(&mut lines, format_args!("netns add {}", namespace(node)));
    }
    for cable in plan.cables() {
        let end = |end: &End| {
            format!("name {} netns {} mtu {} address {}", end.interface, namespace(end.node), plan.mtu, end.mac)
        };
        let inner = |name: &str| format!("name {name} netns {} mtu {}", namespace(NodeName::Wire), plan.mtu);
        let mut pair =
            |one: String, other: String| put(&mut lines, format_args!("link add {one} type veth peer {other}"));
        match &cable.middle {
            Some((near, far)) => {
                pair(end(&cable.near), inner(near));
                pair(end(&cable.far), inner(far));
            }
            None => pair(end(&cable.near), end(&cable.far)),
        }
    }
    lines
}

/// In host `k`'s namespace; `pass` is the path of the XDP program that lets all pass.
pub(crate) fn host(plan: &Plan, k: usize, pass: &str) -> String {
    let mut script = quiet();
    for cable in plan.cables().filter(|cable| cable.near.node == NodeName::Host(k)) {
        script.push_str(&up(&cable.near, &cable.far));
        if cable.middle.is_none() {
            script.push_str(&passing(&cable.near.interface, pass));
        } else {
            script.push_str(&wait(&cable.near.interface));
        }
        put(&mut script, format_args!("ip route add default via {} dev {}", cable.far.address, cable.near.interface));
    }
    script
}

/// In an element's namespace.
pub(crate) fn element(plan: &Plan, n: usize) -> String {
    let own = NodeName::Element(n);
    let mut script = quiet();
    script.push_str("echo 1 > /proc/sys/net/ipv4/ip_forward\n");
    if let Some(address) = own.address() {
        put(&mut script, format_args!("ip addr add {address}/32 dev lo"));
    }
    for cable in plan.cables() {
        if cable.far.node == own {
            script.push_str(&up(&cable.far, &cable.near));
            if cable.middle.is_some() {
                script.push_str(&wait(&cable.far.interface));
            }
        } else if cable.near.node == own {
            script.push_str(&up(&cable.near, &cable.far));
            script.push_str(&wait(&cable.near.interface));
        }
    }
    // Everybody at the other element is reached through it.
    for chain in plan.cables().filter(|cable| matches!(cable.near.node, NodeName::Element(_))) {
        let (here, there) = if n == 1 { (chain.near, chain.far) } else { (chain.far, chain.near) };
        let hosts = (1..=plan.links.len()).filter(|k| plan.home(*k) == there.node).map(NodeName::Host);
        for address in hosts.chain([there.node]).filter_map(NodeName::address) {
            put(&mut script, format_args!("ip route add {address} via {} dev {}", there.address, here.interface));
        }
    }
    script
}

/// In the middle of the links.
pub(crate) fn wire(plan: &Plan, pass: &str) -> String {
    let mut script = quiet();
    let (mut counters, mut chains) = (String::new(), String::new());
    for cable in plan.cables() {
        let Some((near, far)) = &cable.middle else { continue };
        for (interface, end) in [(near, &cable.near), (far, &cable.far)] {
            single_frames(&mut script, interface);
            if matches!(end.node, NodeName::Element(_)) {
                script.push_str(&passing(interface, pass));
            }
            match cable.profile.rate {
                Some(rate) => script.push_str(&limit(interface, rate, &cable.profile, plan.mtu)),
                None => script.push_str(&wait(interface)),
            }
        }
        for (direction, from, to) in [(UP, near, far), (DOWN, far, near)] {
            if let Some(detour) = cable.detour(direction) {
                detoured(&mut script, &detour, plan.mtu);
            }
            rules(&mut counters, &mut chains, &cable, direction, from, to);
        }
    }
    put(&mut script, format_args!("nft -f - <<'END'\ntable netdev {TABLE} {{\n{counters}{chains}}}\nEND"));
    script
}

/// The counter of what befell frames of a link in a direction.
pub(crate) fn counter(cable: &str, direction: &str, what: &str) -> String {
    format!("{cable}_{direction}_{what}")
}

/// What comes in at `from` goes out at `to`, but for faults.
fn rules(counters: &mut String, chains: &mut String, cable: &Cable, direction: &str, from: &str, to: &str) {
    let profile = &cable.profile;
    for what in [LOST, MARKED, REPEATED, PASSED] {
        put(counters, format_args!("  counter {} {{ }}", counter(&cable.name, direction, what)));
    }
    put(chains, format_args!("  chain {}_{direction} {{", cable.name));
    put(chains, format_args!("    type filter hook ingress device \"{from}\" priority 0;"));
    let mut rule = |share: Share, only: &str, what: &str, verdict: &str| {
        if share.is_some() {
            let chance = format!("numgen random mod {} < {}", Share::ALL.millionths(), share.millionths());
            let count = counter(&cable.name, direction, what);
            put(chains, format_args!("    {only}{chance} counter name \"{count}\" {verdict}"));
        }
    };
    rule(profile.loss, "", LOST, "drop");
    rule(profile.ce, "ip ecn { ect0, ect1 } ", MARKED, "ip ecn set ce");
    let detour = cable.detour(direction);
    let next = detour.as_ref().map_or(to, |detour| &detour.inlet);
    rule(profile.repeat, "", REPEATED, &format!("dup to \"{next}\""));
    let count = counter(&cable.name, direction, PASSED);
    put(chains, format_args!("    counter name \"{count}\" fwd to \"{next}\"\n  }}"));
    if let Some(Detour { inlet, .. }) = detour {
        put(chains, format_args!("  chain {}_{direction}_late {{", cable.name));
        put(chains, format_args!("    type filter hook ingress device \"{inlet}\" priority 0; fwd to \"{to}\";\n  }}"));
    }
}

/// A veth pair to send frames away by, and a device at its end to read them from.
fn detoured(script: &mut String, detour: &Detour, mtu: u32) {
    let Detour { inlet, outlet, tap } = detour;
    put(script, format_args!("ip link add name {inlet} mtu {mtu} type veth peer name {outlet} mtu {mtu}"));
    put(
        script,
        format_args!("ip link add link {outlet} name {tap} txqueuelen {DETOUR_FRAMES} type macvtap mode passthru"),
    );
    for interface in [inlet, outlet] {
        single_frames(script, interface);
        script.push_str(&wait(interface));
    }
    put(script, format_args!("ip link set dev {tap} up"));
}

/// Frames wait where the other end is slower, so that none but those meant to get lost (from Linux 6.16 on).
fn wait(interface: &str) -> String {
    format!("tc qdisc add dev {interface} root pfifo limit {QUEUE_FRAMES_UNSHAPED}\n")
}

/// Frames leave at the rate, through a queue of bounded length.
fn limit(interface: &str, rate: Rate, profile: &Profile, mtu: u32) -> String {
    let frame = mtu + ETHERNET_BYTES;
    let queue = profile.queue_bytes.unwrap_or(frame.saturating_mul(QUEUE_FRAMES)).max(frame);
    let burst = (rate.bits() / 8 * BURST_MS / 1000).max(u64::from(frame * BURST_FRAMES));
    format!("tc qdisc add dev {interface} root tbf rate {}bit burst {burst} limit {queue}\n", rate.bits())
}

/// An end of a link, ready; its peer is known for good, since a program may eat what asks for it.
fn up(end: &End, peer: &End) -> String {
    let mut script = String::new();
    let interface = &end.interface;
    whole_frames(&mut script, interface);
    put(&mut script, format_args!("ethtool -K {interface} gro on"));
    put(&mut script, format_args!("ip addr add {}/30 dev {interface}", end.address));
    put(&mut script, format_args!("ip link set dev {interface} up"));
    put(&mut script, format_args!("ip neigh add {} lladdr {} dev {interface} nud permanent", peer.address, peer.mac));
    script
}

/// An interface of the wire. It polls, as every end does, but its frames stay single: rules, rate and counts
/// are for frames.
fn single_frames(script: &mut String, interface: &str) {
    whole_frames(script, interface);
    put(script, format_args!("ip link set dev {interface} gro_max_size 1"));
    put(script, format_args!("ethtool -K {interface} gro on"));
    put(script, format_args!("ip link set dev {interface} up"));
}

/// Complete checksums and no batches: what a program at the other end sends on must be good as it is.
fn whole_frames(script: &mut String, interface: &str) {
    put(script, format_args!("ethtool -K {interface} tx off"));
}

/// The program that lets everything pass, where an element's frames arrive.
fn passing(interface: &str, pass: &str) -> String {
    format!("ip link set dev {interface} xdpdrv obj {pass} sec {SECTION}\n")
}

/// What every script begins with. No IPv6: its housekeeping would be counted among the frames.
fn quiet() -> String {
    let mut script = String::new();
    for which in ["all", "default"] {
        // There is none of it where the kernel was booted without IPv6.
        let file = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        put(&mut script, format_args!("if [ -e {file} ]; then echo 1 > {file}; fi"));
    }
    script.push_str("ip link set dev lo up\n");
    script
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(text, "{line}");
}
