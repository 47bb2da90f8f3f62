//! Scripts of a [`TestbedPlan`] for `ip`, `tc`, `nft` and `ethtool`. Only text is generated here.
//!
//! The first script is [`links`], for `ip -batch`: namespaces and the veth pairs between them. Then each namespace runs
//! a shell script, [`host`], [`element`] or [`wire`], and finally [`await_interfaces`].

use std::fmt::Write;

use crate::plan::{Cable, CableEnd, DOWN, Detour, NodeName, TestbedPlan, UP};
use crate::profile::{FrameShare, LinkProfile, LinkRate};
use crate::xdp::SECTION;

/// Table of a wire's rules, of the family `netdev`.
pub(crate) const TABLE: &str = "wire";
/// Suffixes of counter names.
pub(crate) const LOST: &str = "lost";
pub(crate) const MARKED: &str = "marked";
pub(crate) const REPEATED: &str = "repeated";
pub(crate) const PASSED: &str = "passed";

/// Index of the first interface of a testbed.
const FIRST_INDEX: u32 = 1000;
/// Bytes of an Ethernet header, which rates and queues count.
pub(crate) const ETHERNET_BYTES: u32 = 14;
/// Default queue length in full frames, on links with a rate.
const QUEUE_FRAMES: u32 = 256;
/// Queue length in frames on links without a rate.
const QUEUE_FRAMES_UNSHAPED: u32 = 4096;
/// Burst of the token bucket in milliseconds of the rate, which tolerates late timers.
const BURST_MS: u64 = 1;
/// Least burst of the token bucket, in full frames.
const BURST_FRAMES: u32 = 4;

/// Percentage of the rate at which the computed queue for marks drains.
const MARK_RATE_PERCENT: u64 = 95;
/// Tokens of a full frame; a shorter frame takes one token for each 32nd part of that length.
const MARK_TOKENS: u32 = 32;
/// Match of frames that can be marked.
const BEARS_MARK: &str = "ip ecn { ect0, ect1 } ";

/// All interfaces but `lo`, for [`await_interfaces`].
pub(crate) const ALL: &str = "[!l]*";

/// Last script of each namespace: waits, for a minute at most, until interfaces have detected that their other ends are
/// up. The kernel does this asynchronously, and drops frames sent before.
pub(crate) fn await_interfaces(interfaces: &str) -> String {
    format!(
        r#"
for interface in /sys/class/net/{interfaces}; do
  tries=0
  while read -r state < "$interface/operstate" && [ "$state" != up ] && [ $tries -lt 6000 ]; do
    tries=$((tries + 1))
    sleep 0.01
  done
  [ "$state" = up ]
done
# The state is told a moment before the queue is there; whoever sets something waits for that.
ip link set dev lo up
"#
    )
}

/// Script that creates all namespaces but the first, and all links.
pub(crate) fn links(plan: &TestbedPlan) -> String {
    let mut lines = String::new();
    let namespace = |node: NodeName| node.namespace(&plan.bed);
    for node in plan.nodes().skip(1) {
        put(&mut lines, format_args!("netns add {}", namespace(node)));
    }
    // Each interface gets a unique index: the kernel is slow to detect that an interface is up whose peer has the same
    // index, as first interfaces of namespaces have.
    let mut index = FIRST_INDEX..;
    let mut numbered = |name: &str, node: NodeName| {
        let index = index.next().unwrap_or_default();
        format!("name {name} index {index} netns {} mtu {}", namespace(node), plan.mtu)
    };
    for cable in plan.cables() {
        let mut end = |end: &CableEnd| format!("{} address {}", numbered(&end.interface, end.node), end.mac);
        let (near, far) = (end(&cable.near), end(&cable.far));
        let mut pair = |one: &str, other: &str| put(&mut lines, format_args!("link add {one} type veth peer {other}"));
        match &cable.middle {
            Some((to_near, to_far)) => {
                pair(&near, &numbered(to_near, NodeName::Wire));
                pair(&far, &numbered(to_far, NodeName::Wire));
            }
            None => pair(&near, &far),
        }
    }
    lines
}

/// Script of host `k`'s namespace; `pass` is the path of the XDP program that passes all frames, where one can be loaded.
pub(crate) fn host(plan: &TestbedPlan, k: usize, pass: Option<&str>) -> String {
    let mut script = script_header();
    for cable in plan.cables().filter(|cable| cable.near.node == NodeName::Host(k)) {
        script.push_str(&up(&cable.near, &cable.far));
        match pass {
            Some(pass) if cable.middle.is_none() => script.push_str(&attach_pass_program(&cable.near.interface, pass)),
            _ => script.push_str(&wait(&cable.near.interface)),
        }
        put(&mut script, format_args!("ip route add default via {} dev {}", cable.far.address, cable.near.interface));
    }
    script
}

/// Script of an element's namespace.
pub(crate) fn element(plan: &TestbedPlan, n: usize) -> String {
    let own = NodeName::Element(n);
    let mut script = script_header();
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
    // Nodes at the other element are reached through it.
    for chain in plan.cables().filter(|cable| matches!(cable.near.node, NodeName::Element(_))) {
        let (here, there) = if n == 1 { (chain.near, chain.far) } else { (chain.far, chain.near) };
        let hosts = (1..=plan.links.len()).filter(|k| plan.home(*k) == there.node).map(NodeName::Host);
        for address in hosts.chain([there.node]).filter_map(NodeName::address) {
            put(&mut script, format_args!("ip route add {address} via {} dev {}", there.address, here.interface));
        }
    }
    script
}

/// Script of the wires' namespace.
pub(crate) fn wire(plan: &TestbedPlan, pass: Option<&str>) -> String {
    let mut script = script_header();
    let (mut counters, mut chains) = (String::new(), String::new());
    for cable in plan.cables() {
        let Some((near, far)) = &cable.middle else { continue };
        for (interface, end) in [(near, &cable.near), (far, &cable.far)] {
            single_frames(&mut script, interface);
            if let (Some(pass), NodeName::Element(_)) = (pass, end.node) {
                script.push_str(&attach_pass_program(interface, pass));
            }
            match cable.profile.rate {
                Some(rate) => script.push_str(&limit(interface, rate, &cable.profile, plan.mtu)),
                None => script.push_str(&wait(interface)),
            }
        }
        for (direction, from, to) in [(UP, near, far), (DOWN, far, near)] {
            if let Some(detour) = cable.detour(direction) {
                detour_script(&mut script, &detour, plan.mtu);
            }
            rules((&mut counters, &mut chains), &cable, plan.mtu, (direction, from, to));
        }
    }
    put(&mut script, format_args!("nft -f - <<'END'\ntable netdev {TABLE} {{\n{counters}{chains}}}\nEND"));
    script
}

/// Name of the counter of a link's event in one direction.
pub(crate) fn counter(cable: &str, direction: &str, what: &str) -> String {
    format!("{cable}_{direction}_{what}")
}

/// Rules that forward frames from `from` to `to` and apply the faults.
fn rules(
    (counters, chains): (&mut String, &mut String),
    cable: &Cable,
    mtu: u32,
    (direction, from, to): (&str, &str, &str),
) {
    let profile = &cable.profile;
    for what in [LOST, MARKED, REPEATED, PASSED] {
        put(counters, format_args!("  counter {} {{ }}", counter(&cable.name, direction, what)));
    }
    put(chains, format_args!("  chain {}_{direction} {{", cable.name));
    put(chains, format_args!("    type filter hook ingress device \"{from}\" priority 0;"));
    let rule = |chains: &mut String, share: FrameShare, only: &str, what: &str, verdict: &str| {
        if share.is_some() {
            let chance = format!("numgen random mod {} < {}", FrameShare::ALL.millionths(), share.millionths());
            let count = counter(&cable.name, direction, what);
            put(chains, format_args!("    {only}{chance} counter name \"{count}\" {verdict}"));
        }
    };
    rule(chains, profile.loss, "", LOST, "drop");
    rule(chains, profile.ce, BEARS_MARK, MARKED, "ip ecn set ce");
    if let (Some(rate), Some(bytes)) = (profile.rate, profile.mark_bytes) {
        let (count, over) = (counter(&cable.name, direction, MARKED), format!("{}_{direction}_over", cable.name));
        marks(counters, chains, (rate, bytes, mtu), &over, &count);
    }
    let detour = cable.detour(direction);
    let next = detour.as_ref().map_or(to, |detour| &detour.inlet);
    rule(chains, profile.repeat, "", REPEATED, &format!("dup to \"{next}\""));
    let count = counter(&cable.name, direction, PASSED);
    put(chains, format_args!("    counter name \"{count}\" fwd to \"{next}\"\n  }}"));
    if let Some(Detour { inlet, .. }) = detour {
        put(chains, format_args!("  chain {}_{direction}_late {{", cable.name));
        put(chains, format_args!("    type filter hook ingress device \"{inlet}\" priority 0; fwd to \"{to}\";\n  }}"));
    }
}

/// Rules that mark frames without a token. A byte limit would first pass one second of the rate; a packet limit has
/// exactly its burst, and each matching rule takes one packet's token.
fn marks(limits: &mut String, chains: &mut String, (rate, bytes, mtu): (LinkRate, u32, u32), over: &str, count: &str) {
    let frame = mtu + ETHERNET_BYTES;
    let token = frame.div_ceil(MARK_TOKENS);
    let (tokens, burst) = (rate.bits() / 8 * MARK_RATE_PERCENT / 100 / u64::from(token), (bytes / token).max(1));
    put(limits, format_args!("  limit {over} {{ rate over {}/second burst {burst} packets }}", tokens.max(1)));
    // Nearest number of tokens to a frame's length; rules count the length without the Ethernet header.
    for above in (0..MARK_TOKENS).map(|n| (n * token + token / 2).saturating_sub(ETHERNET_BYTES)) {
        let takes = format!("meta length > {above} limit name \"{over}\"");
        put(chains, format_args!("    {takes} {BEARS_MARK}counter name \"{count}\" ip ecn set ce"));
    }
}

/// Script that creates the veth pair of a detour.
fn detour_script(script: &mut String, detour: &Detour, mtu: u32) {
    let Detour { inlet, outlet } = detour;
    put(script, format_args!("ip link add name {inlet} mtu {mtu} type veth peer name {outlet} mtu {mtu}"));
    for interface in [inlet, outlet] {
        single_frames(script, interface);
        script.push_str(&wait(interface));
    }
}

/// Buffers frames for a slower receiver, so that only intended losses occur (from Linux 6.16 on).
fn wait(interface: &str) -> String {
    format!("tc qdisc add dev {interface} root pfifo limit {QUEUE_FRAMES_UNSHAPED}\n")
}

/// Shapes frames to the rate, through a queue of bounded length.
fn limit(interface: &str, rate: LinkRate, profile: &LinkProfile, mtu: u32) -> String {
    let frame = mtu + ETHERNET_BYTES;
    let queue = profile.queue_bytes.unwrap_or(frame.saturating_mul(QUEUE_FRAMES)).max(frame);
    let burst = (rate.bits() / 8 * BURST_MS / 1000).max(u64::from(frame * BURST_FRAMES));
    format!("tc qdisc add dev {interface} root tbf rate {}bit burst {burst} limit {queue}\n", rate.bits())
}

/// Configures an end of a link; its peer is a permanent neighbour, since a program may drop ARP requests.
fn up(end: &CableEnd, peer: &CableEnd) -> String {
    let mut script = String::new();
    let interface = &end.interface;
    whole_frames(&mut script, interface);
    put(&mut script, format_args!("ethtool -K {interface} gro on"));
    put(&mut script, format_args!("ip addr add {}/30 dev {interface}", end.address));
    put(&mut script, format_args!("ip link set dev {interface} up"));
    put(&mut script, format_args!("ip neigh add {} lladdr {} dev {interface} nud permanent", peer.address, peer.mac));
    script
}

/// Configures an interface of the wire. It polls, like every end, but does not merge frames: rules, rate and counters
/// are per frame.
fn single_frames(script: &mut String, interface: &str) {
    whole_frames(script, interface);
    put(script, format_args!("ip link set dev {interface} gro_max_size 1"));
    put(script, format_args!("ethtool -K {interface} gro on"));
    put(script, format_args!("ip link set dev {interface} up"));
}

/// Disables checksum offload and batches: frames that a program at the other end forwards must be valid.
fn whole_frames(script: &mut String, interface: &str) {
    put(script, format_args!("ethtool -K {interface} tx off"));
}

/// Attaches the pass program, where an element's frames arrive.
fn attach_pass_program(interface: &str, pass: &str) -> String {
    format!("ip link set dev {interface} xdpdrv obj {pass} sec {SECTION}\n")
}

/// Beginning of every script. IPv6 is disabled, because its housekeeping frames would be counted.
fn script_header() -> String {
    let mut script = String::new();
    for which in ["all", "default"] {
        // The file is missing on kernels booted without IPv6.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MTU_DEFAULT;

    fn plan(profile: LinkProfile) -> TestbedPlan {
        TestbedPlan { bed: "b".to_owned(), links: vec![profile], elements: 1, chain: profile, mtu: MTU_DEFAULT }
    }

    #[test]
    fn bare_link_has_one_pair_and_wire_two() {
        assert_eq!(
            links(&plan(LinkProfile::default())),
            "netns add pc-b-h1\n\
             link add name eth0 index 1000 netns pc-b-h1 mtu 1500 address 02:50:43:00:01:02 \
             type veth peer name h1 index 1001 netns pc-b-e1 mtu 1500 address 02:50:43:00:01:01\n"
        );
        let wired = links(&plan(LinkProfile { wired: true, ..LinkProfile::default() }));
        let ends: Vec<&str> = wired.lines().filter_map(|line| line.split(" peer name ").nth(1)).collect();
        let wire = "netns pc-b-w mtu 1500";
        assert_eq!(ends, [format!("h1-host index 1002 {wire}"), format!("h1-element index 1003 {wire}")]);
    }

    #[test]
    fn wire_applies_faults_before_delay_and_rate() {
        let word = |word: &str| word.parse().unwrap();
        let profile = LinkProfile {
            rate: Some("8mbit".parse().unwrap()),
            loss: word("1%"),
            repeat: word("0.5%"),
            ce: word("2%"),
            delay: "1ms".parse().unwrap(),
            ..LinkProfile::default()
        };
        let script = wire(&plan(profile), Some("/pass"));
        let up = "  chain h1_up {\n    \
            type filter hook ingress device \"h1-host\" priority 0;\n    \
            numgen random mod 1000000 < 10000 counter name \"h1_up_lost\" drop\n    \
            ip ecn { ect0, ect1 } numgen random mod 1000000 < 20000 counter name \"h1_up_marked\" ip ecn set ce\n    \
            numgen random mod 1000000 < 5000 counter name \"h1_up_repeated\" dup to \"h1-up-in\"\n    \
            counter name \"h1_up_passed\" fwd to \"h1-up-in\"\n  }\n  \
            chain h1_up_late {\n    \
            type filter hook ingress device \"h1-up-in\" priority 0; fwd to \"h1-element\";\n  }\n";
        assert!(script.contains(up), "{script}");
        // A full frame has 1514 bytes; the rate passes 1000 bytes per millisecond.
        let shaped = ["host", "element"]
            .map(|end| format!("tc qdisc add dev h1-{end} root tbf rate 8000000bit burst 6056 limit 387584\n"));
        assert!(shaped.iter().all(|line| script.contains(line)), "{script}");
        assert!(script.contains("ip link set dev h1-element xdpdrv obj /pass sec xdp.frags\n"), "{script}");
        assert!(!script.contains("dev h1-host xdpdrv"), "pass program on the host's side: {script}");
    }

    #[test]
    fn full_frame_takes_32_mark_tokens() {
        let profile =
            LinkProfile { rate: Some("8mbit".parse().unwrap()), mark_bytes: Some(48_000), ..LinkProfile::default() };
        let script = wire(&plan(profile), Some("/pass"));
        // 48 bytes each.
        assert!(script.contains("  limit h1_up_over { rate over 19791/second burst 1000 packets }\n"), "{script}");
        let takes = |above: u32| format!("    meta length > {above} limit name \"h1_up_over\" ip ecn {{ ect0, ect1 }}");
        assert!(script.contains(&takes(10)) && script.contains(&takes(1498)) && !script.contains(&takes(1546)));
        assert_eq!(script.matches("limit name \"h1_up_over\"").count(), 32);
    }
}
