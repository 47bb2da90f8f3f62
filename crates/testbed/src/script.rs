//! A [`Plan`] in the words of `ip`, `tc`, `nft` and `ethtool`: text out, nothing run.
//!
//! First [`links`], for `ip -batch`: namespaces and veth pairs between them. Then in each namespace a
//! shell's script: [`host`], [`element`], [`wire`]; and in each once more, [`settle`].

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

/// Number of the first interface of a bed.
const FIRST_INDEX: u32 = 1000;
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

/// Of the rate, in percent, at which the queue that frames are marked by is reckoned to shrink.
const MARK_RATE_PERCENT: u64 = 95;
/// A full frame takes so many tokens of those that the rate gives; shorter ones, a token for each such part.
const MARK_TOKENS: u32 = 32;
/// Frames that can be marked.
const BEARS_MARK: &str = "ip ecn { ect0, ect1 } ";

/// All interfaces but `lo`, for [`settle`].
pub(crate) const ALL: &str = "[!l]*";

/// In each namespace at last: waits, for a minute at most, until interfaces have noticed that their other
/// ends are up. The kernel attends to that when it gets to it, and drops what is sent before.
pub(crate) fn settle(interfaces: &str) -> String {
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

/// All namespaces but the first, and all links.
pub(crate) fn links(plan: &Plan) -> String {
    let mut lines = String::new();
    let namespace = |node: NodeName| node.namespace(&plan.bed);
    for node in plan.nodes().skip(1) {
        put(&mut lines, format_args!("netns add {}", namespace(node)));
    }
    // The kernel is slow to notice that an interface is up whose other end has the same number, as first
    // interfaces of namespaces have: each gets a number of its own.
    let mut index = FIRST_INDEX..;
    let mut numbered = |name: &str, node: NodeName| {
        let index = index.next().unwrap_or_default();
        format!("name {name} index {index} netns {} mtu {}", namespace(node), plan.mtu)
    };
    for cable in plan.cables() {
        let mut end = |end: &End| format!("{} address {}", numbered(&end.interface, end.node), end.mac);
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
            rules((&mut counters, &mut chains), &cable, plan.mtu, (direction, from, to));
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
    let rule = |chains: &mut String, share: Share, only: &str, what: &str, verdict: &str| {
        if share.is_some() {
            let chance = format!("numgen random mod {} < {}", Share::ALL.millionths(), share.millionths());
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

/// Frames are marked that find no token. A limit of bytes would let pass what the rate gives in a second first;
/// one of packets has just the burst that it is given, and each rule that names it takes a packet's token.
fn marks(limits: &mut String, chains: &mut String, (rate, bytes, mtu): (Rate, u32, u32), over: &str, count: &str) {
    let frame = mtu + ETHERNET_BYTES;
    let token = frame.div_ceil(MARK_TOKENS);
    let (tokens, burst) = (rate.bits() / 8 * MARK_RATE_PERCENT / 100 / u64::from(token), (bytes / token).max(1));
    put(limits, format_args!("  limit {over} {{ rate over {}/second burst {burst} packets }}", tokens.max(1)));
    // The nearest number of tokens to a frame's length; rules count it without the Ethernet header.
    for above in (0..MARK_TOKENS).map(|n| (n * token + token / 2).saturating_sub(ETHERNET_BYTES)) {
        let takes = format!("meta length > {above} limit name \"{over}\"");
        put(chains, format_args!("    {takes} {BEARS_MARK}counter name \"{count}\" ip ecn set ce"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MTU_DEFAULT;

    fn plan(profile: Profile) -> Plan {
        Plan { bed: "b".to_owned(), links: vec![profile], elements: 1, chain: profile, mtu: MTU_DEFAULT }
    }

    #[test]
    fn a_bare_link_is_one_pair_and_a_wire_makes_it_two() {
        assert_eq!(
            links(&plan(Profile::default())),
            "netns add pc-b-h1\n\
             link add name eth0 index 1000 netns pc-b-h1 mtu 1500 address 02:50:43:00:01:02 \
             type veth peer name h1 index 1001 netns pc-b-e1 mtu 1500 address 02:50:43:00:01:01\n"
        );
        let wired = links(&plan(Profile { wired: true, ..Profile::default() }));
        let ends: Vec<&str> = wired.lines().filter_map(|line| line.split(" peer name ").nth(1)).collect();
        let wire = "netns pc-b-w mtu 1500";
        assert_eq!(ends, [format!("h1-host index 1002 {wire}"), format!("h1-element index 1003 {wire}")]);
    }

    #[test]
    fn a_wire_loses_marks_and_repeats_before_it_delays_and_shapes() {
        let word = |word: &str| word.parse().unwrap();
        let profile = Profile {
            rate: Some("8mbit".parse().unwrap()),
            loss: word("1%"),
            repeat: word("0.5%"),
            ce: word("2%"),
            delay: "1ms".parse().unwrap(),
            ..Profile::default()
        };
        let script = wire(&plan(profile), "/pass");
        let up = "  chain h1_up {\n    \
            type filter hook ingress device \"h1-host\" priority 0;\n    \
            numgen random mod 1000000 < 10000 counter name \"h1_up_lost\" drop\n    \
            ip ecn { ect0, ect1 } numgen random mod 1000000 < 20000 counter name \"h1_up_marked\" ip ecn set ce\n    \
            numgen random mod 1000000 < 5000 counter name \"h1_up_repeated\" dup to \"h1-up-in\"\n    \
            counter name \"h1_up_passed\" fwd to \"h1-up-in\"\n  }\n  \
            chain h1_up_late {\n    \
            type filter hook ingress device \"h1-up-in\" priority 0; fwd to \"h1-element\";\n  }\n";
        assert!(script.contains(up), "{script}");
        // A full frame is 1514 bytes; the rate lets 1000 through in a millisecond.
        let shaped = ["host", "element"]
            .map(|end| format!("tc qdisc add dev h1-{end} root tbf rate 8000000bit burst 6056 limit 387584\n"));
        assert!(shaped.iter().all(|line| script.contains(line)), "{script}");
        assert!(script.contains("ip link set dev h1-element xdpdrv obj /pass sec xdp.frags\n"), "{script}");
        assert!(!script.contains("dev h1-host xdpdrv"), "no element is there: {script}");
    }

    #[test]
    fn a_full_frame_takes_32_tokens_of_95_percent_of_the_rate() {
        let profile = Profile { rate: Some("8mbit".parse().unwrap()), mark_bytes: Some(48_000), ..Profile::default() };
        let script = wire(&plan(profile), "/pass");
        // 48 bytes each.
        assert!(script.contains("  limit h1_up_over { rate over 19791/second burst 1000 packets }\n"), "{script}");
        let takes = |above: u32| format!("    meta length > {above} limit name \"h1_up_over\" ip ecn {{ ect0, ect1 }}");
        assert!(script.contains(&takes(10)) && script.contains(&takes(1498)) && !script.contains(&takes(1546)));
        assert_eq!(script.matches("limit name \"h1_up_over\"").count(), 32);
    }
}
