//! Tests of real testbeds: construction, traffic, faults and clean-up. Need root.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pathcall_testbed::{
    Builder, ELEMENTS_MAX, Error, FrameCounts, FrameShare, HOSTS_MAX, LinkFaults, LinkProfile, Testbed, TestbedNode,
    list_testbeds, root_tests,
};

/// Bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS_BYTES: usize = 14 + 20 + 8;
/// Time limit for a datagram, reached only if it is lost.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(180);

/// Socket of a node.
fn socket(node: &TestbedNode) -> UdpSocket {
    let node = node.clone();
    let bound = thread::spawn(move || {
        node.enter().expect("the node's namespace");
        UdpSocket::bind((node.address(), 0)).expect("the node's address")
    });
    let socket = bound.join().expect("a thread");
    socket.set_read_timeout(Some(DATAGRAM_TIMEOUT)).expect("a time");
    socket
}

fn address(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("bound")
}

fn up(builder: Builder) -> Testbed {
    builder.up().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn all_nodes_reach_each_other() {
    if !root_tests("all_nodes_reach_each_other") {
        return;
    }
    for builder in [
        Testbed::builder().hosts(3),
        Testbed::builder().hosts(2).rate("1gbit").expect("a rate").mtu(9000),
        Testbed::builder().hosts(4).elements(2),
    ] {
        let bed = up(builder);
        let sockets: Vec<UdpSocket> = bed.nodes().map(|node| socket(&node)).collect();
        let mut buffer = [0; 64];
        for from in &sockets {
            for to in sockets.iter().filter(|to| address(to) != address(from)) {
                let place = || format!("{bed:?}: {} to {}", address(from), address(to));
                let text = place();
                let payload = &text.as_bytes()[text.len() - 16..];
                from.send_to(payload, address(to)).unwrap_or_else(|error| panic!("{}: {error}", place()));
                let (length, source) = to.recv_from(&mut buffer).unwrap_or_else(|error| panic!("{}: {error}", place()));
                assert_eq!((&buffer[..length], source), (payload, address(from)));
            }
        }
    }
}

#[test]
fn largest_testbed_is_built() {
    if !root_tests("largest_testbed_is_built") {
        return;
    }
    let largest = Testbed::builder().hosts(HOSTS_MAX).elements(ELEMENTS_MAX).rate("1gbit").expect("a rate");
    let bed = up(largest.delay("1ms").expect("a delay"));
    let [first, last] = [1, HOSTS_MAX].map(|k| socket(&bed.host(k).expect("a host")));
    first.send_to(b"far", address(&last)).expect("sent");
    assert_eq!(last.recv(&mut [0; 8]).expect("a datagram"), 3);
}

#[test]
fn rate_holds_in_both_directions() {
    if !root_tests("rate_holds_in_both_directions") {
        return;
    }
    let bed = up(Testbed::builder().hosts(1).rate("100mbit").expect("a rate"));
    let (host, element) = (bed.host(1).expect("a host"), bed.element(1).expect("an element"));
    for (from, to) in [(&host, &element), (&element, &host)] {
        check_rate(&socket(from), &socket(to), 100e6);
    }
}

/// Checks that received frames take the time that the rate demands, except for the first burst. A machine that stands
/// still makes them take longer.
fn check_rate(from: &UdpSocket, to: &UdpSocket, bits_per_s: f64) {
    const PAYLOAD: usize = 1400;
    const FRAMES: usize = 3000;
    /// Burst of the rate in seconds.
    const BURST_S: f64 = 0.001;
    let over = AtomicBool::new(false);
    let target = address(to);
    let began = Instant::now();
    let took = thread::scope(|scope| {
        let _over = OnDrop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // The socket's buffer is bounded: a full queue makes the sender wait or fail.
                let _ = from.send_to(&[0; PAYLOAD], target);
            }
        });
        let mut buffer = [0; 2000];
        (0..FRAMES).for_each(|_| assert_eq!(to.recv(&mut buffer).expect("datagrams come"), PAYLOAD));
        began.elapsed().as_secs_f64()
    });
    let bits = (FRAMES * (PAYLOAD + HEADERS_BYTES) * 8) as f64;
    println!("{:.3} of the rate", bits / took / bits_per_s);
    assert!(
        took >= bits / bits_per_s - BURST_S,
        "{FRAMES} frames in {took} s, too soon for {bits_per_s} bits a second"
    );
}

/// Sets a flag on drop, also when a test fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn fault_counts_match_shares() {
    const FRAMES: u64 = 40_000;
    const BURST: u64 = 1000;
    if !root_tests("fault_counts_match_shares") {
        return;
    }
    let percent = |n: u32| FrameShare::ppm(n * 10_000).expect("a share");
    let faulty = LinkProfile { loss: percent(5), repeat: percent(3), ce: percent(10), ..LinkProfile::default() };
    let bed = up(Testbed::builder().hosts(2).wired().link(2, faulty));
    let [one, two] = [1, 2].map(|k| socket(&bed.host(k).expect("a host")));
    marks(&bed, 1);
    // ECN-capable.
    socket2::SockRef::from(&two).set_tos_v4(2).expect("a mark");
    let link = |k| bed.link(k).expect("a link");
    let (mut sent, mut faults, mut arrived) = (0, LinkFaults::default(), FrameCounts::default());
    while sent < FRAMES {
        for _ in 0..BURST {
            two.send_to(b"frame", address(&one)).expect("sent");
        }
        sent += BURST;
        let began = Instant::now();
        // Frames may be in transit; more of them than links can hold would be lost.
        while faults.lost + faults.passed < sent || arrived.frames < faults.passed + faults.repeated {
            assert!(began.elapsed() < DATAGRAM_TIMEOUT, "{sent} sent, but {faults:?}; {arrived:?} arrived");
            let (there, back) = link(2).faults().expect("counters").expect("a wire");
            assert_eq!(back, LinkFaults::default());
            (faults, arrived) = (there, link(1).traffic().expect("counters").down);
        }
    }
    let LinkFaults { lost, marked, repeated, passed } = faults;
    // Six standard deviations: one failure in 500 million runs.
    let near = |count: u64, of: u64, share: f64| {
        let (mean, deviation) = (of as f64 * share, (of as f64 * share * (1.0 - share)).sqrt());
        assert!((count as f64 - mean).abs() < 6.0 * deviation, "{count} of {of}, {share} was asked for");
    };
    near(lost, FRAMES, 0.05);
    near(marked, passed, 0.10);
    near(repeated, passed, 0.03);
    assert_eq!((lost + passed, arrived.frames), (FRAMES, passed + repeated));
    let (bytes, sent) = ((HEADERS_BYTES + 5) as u64, link(2).traffic().expect("counters").up);
    assert_eq!((sent.frames, sent.bytes, arrived.bytes), (FRAMES, FRAMES * bytes, arrived.frames * bytes));
    // Marked frames may have been repeated.
    assert!((marked..=marked + repeated).contains(&marks(&bed, 1)), "{} seen of {marked}", marks(&bed, 1));
    let (_, other) = link(1).faults().expect("counters").expect("a wire");
    assert_eq!(other, LinkFaults { passed: passed + repeated, ..LinkFaults::default() });
}

/// Marked frames that host `k` has received since the first call.
fn marks(bed: &Testbed, k: usize) -> u64 {
    let host = bed.host(k).expect("a host");
    let nft = |rule: &str| {
        let output = host.command("nft").arg(rule).output().expect("nft");
        String::from_utf8(output.stdout).expect("text")
    };
    let listed = nft("list counters table netdev marks");
    if listed.is_empty() {
        let rules = "table netdev marks {
            counter seen { }
            chain in { type filter hook ingress device \"eth0\" priority 0; ip ecn ce counter name \"seen\"; }
        }";
        assert!(host.command("nft").arg(rules).status().expect("nft").success());
        return 0;
    }
    let mut words = listed.split_whitespace().skip_while(|word| *word != "packets").skip(1);
    words.next().and_then(|count| count.parse().ok()).expect("a counter")
}

#[test]
fn delay_and_reordering_match_profile() {
    const DELAY: Duration = Duration::from_millis(4);
    const ROUNDS: u32 = 20;
    const FRAMES: u8 = 100;
    if !root_tests("delay_and_reordering_match_profile") {
        return;
    }
    let bed = up(Testbed::builder().hosts(2).delay("4ms").expect("a delay"));
    let [one, two] = [1, 2].map(|k| socket(&bed.host(k).expect("a host")));
    // Over two links: in order, and each delayed. The excess delay shows the load of the machine.
    let mut buffer = [0; 8];
    let times = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        (0..FRAMES).for_each(|n| assert_eq!(one.send_to(&[n], address(&two)).expect("sent"), 1));
        let took = (0..FRAMES).map(|n| {
            assert_eq!((two.recv(&mut buffer).expect("a datagram"), buffer[0]), (1, n));
            began.elapsed()
        });
        took.min().expect("frames")
    });
    let soonest = times.min().expect("rounds");
    println!("{soonest:?} by two links of {DELAY:?}");
    assert!(soonest >= 2 * DELAY, "{soonest:?}");
    drop((one, two));
    assert!(matches!(bed.keep(), Err(Error::NeedsOwner { .. })), "a testbed with delays cannot be kept");

    let reorder = LinkProfile {
        delay: "4ms".parse().expect("a delay"),
        reorder: "10%".parse().expect("a share"),
        ..LinkProfile::default()
    };
    let bed = up(Testbed::builder().hosts(1).profile(reorder));
    let (from, to) = (socket(&bed.host(1).expect("a host")), socket(&bed.element(1).expect("an element")));
    let mut overtook = 0;
    for _ in 0..ROUNDS {
        (0..FRAMES).for_each(|n| assert_eq!(from.send_to(&[n], address(&to)).expect("sent"), 1));
        let mut came: Vec<u8> = Vec::new();
        for _ in 0..FRAMES {
            assert_eq!(to.recv(&mut buffer).expect("a datagram"), 1);
            came.push(buffer[0]);
        }
        overtook += came.iter().enumerate().filter(|(at, n)| came[at + 1..].iter().any(|later| later < n)).count();
        came.sort_unstable();
        assert!(came.into_iter().eq(0..FRAMES), "each arrives once");
    }
    // At the end of a round no delayed frame is left to overtake, nor after the machine stood still; the bound is six
    // standard deviations above the expectation.
    assert!((1..=280).contains(&overtook), "{overtook} of {} overtook others", ROUNDS * u32::from(FRAMES));
}

#[test]
fn link_between_elements_is_counted() {
    if !root_tests("link_between_elements_is_counted") {
        return;
    }
    let bed = up(Testbed::builder().hosts(2).elements(2));
    let [one, two] = [1, 2].map(|k| socket(&bed.host(k).expect("a host")));
    for (from, to, times) in [(&one, &two, 3), (&two, &one, 2)] {
        for _ in 0..times {
            from.send_to(b"frame", address(to)).expect("sent");
            assert_eq!(to.recv(&mut [0; 8]).expect("a datagram"), 5);
        }
    }
    let chain = bed.chain().expect("two elements");
    let traffic = chain.traffic().expect("counters");
    let counts = |frames| FrameCounts { frames, bytes: frames * (HEADERS_BYTES + 5) as u64 };
    assert_eq!((traffic.up, traffic.down), (counts(3), counts(2)));
    let (up, down) = chain.faults().expect("counters").expect("a wire");
    assert_eq!((up.passed, down.passed), (3, 2));
}

#[test]
fn batch_crosses_link_as_separate_frames() {
    const SEGMENTS: usize = 10;
    if !root_tests("batch_crosses_link_as_separate_frames") {
        return;
    }
    for builder in [
        Testbed::builder().hosts(1),
        Testbed::builder().hosts(1).wired(),
        Testbed::builder().hosts(1).rate("1gbit").expect("a rate"),
    ] {
        let bed = up(builder);
        let (from, to) = (socket(&bed.host(1).expect("a host")), socket(&bed.element(1).expect("an element")));
        let state = quinn_udp::UdpSocketState::new((&from).into()).expect("batching");
        let contents: Vec<u8> = (0..SEGMENTS as u8).flat_map(|byte| [byte; 100]).collect();
        let transmit = quinn_udp::Transmit {
            destination: address(&to),
            ecn: None,
            contents: &contents,
            segment_size: Some(100),
            src_ip: None,
        };
        state.try_send((&from).into(), &transmit).expect("sent");
        let mut buffer = [0; 2000];
        for byte in 0..SEGMENTS as u8 {
            assert_eq!(to.recv(&mut buffer).expect("a datagram"), 100);
            assert_eq!(buffer[..100], [byte; 100]);
        }
        let sent = bed.link(1).expect("a link").traffic().expect("counters").up;
        assert_eq!((sent.frames, sent.bytes), (10, 10 * (HEADERS_BYTES + 100) as u64), "{bed:?}");
    }
}

#[test]
fn cut_link_recovers_after_mend() {
    if !root_tests("cut_link_recovers_after_mend") {
        return;
    }
    let bed = up(Testbed::builder().hosts(3).wired().link(2, LinkProfile::default()));
    let [one, two] = [1, 2].map(|k| socket(&bed.host(k).expect("a host")));
    let mut buffer = [0; 8];
    let mut pass = |payload: &[u8; 1]| {
        one.send_to(payload, address(&two)).expect("sent");
        two.recv(&mut buffer).expect("a datagram");
        assert_eq!(buffer[..1], *payload);
    };
    pass(b"1");
    let link = bed.link(1).expect("a link");
    link.cut().expect("the link can be cut");
    // This link stays cut.
    bed.link(3).expect("a link").cut().expect("the link can be cut");
    let carrier = bed.host(1).expect("a host").command("cat").arg("/sys/class/net/eth0/carrier").output();
    assert_eq!(carrier.expect("cat").stdout, b"0\n");
    let before = link.traffic().expect("counters").down;
    let on_the_way = || link.faults().expect("counters").expect("a wire").1.passed;
    let earlier = on_the_way();
    two.send_to(b"lost", address(&one)).expect("sent");
    let began = Instant::now();
    while on_the_way() == earlier {
        assert!(began.elapsed() < DATAGRAM_TIMEOUT, "the frame does not reach the wire");
    }
    link.mend().expect("the link can be mended");
    pass(b"2");
    assert_eq!(link.traffic().expect("counters").down, before, "frames crossed the cut link");
    let bare = bed.link(2).expect("a link").cut().expect_err("a bare link");
    assert!(matches!(&bare, Error::Bare { link, .. } if link == "h2"), "{bare}");
}

#[test]
fn testbed_leaves_nothing_behind() {
    if !root_tests("testbed_leaves_nothing_behind") {
        return;
    }
    // With a process that would not end by itself.
    let bed = up(Testbed::builder().hosts(1));
    let name = bed.name().to_owned();
    let mut process = bed.host(1).expect("a host").command("sleep").arg("1000").spawn().expect("a process");
    bed.down().expect("clean-up succeeds");
    assert!(!process.wait().expect("a child").success());
    assert!(!list_testbeds().expect("names").contains_key(&name));

    // When the owner panics.
    let (tell, told) = mpsc::channel();
    let owner = thread::spawn(move || {
        let bed = up(Testbed::builder().hosts(1));
        tell.send(bed.name().to_owned()).expect("a listener");
        std::panic::resume_unwind(Box::new("somebody's mistake"));
    });
    let name = told.recv().expect("a name");
    owner.join().expect_err("the owner panics");
    assert!(!list_testbeds().expect("names").contains_key(&name));
}

#[test]
fn kept_testbed_is_opened_and_taken_down_by_name() {
    if !root_tests("kept_testbed_is_opened_and_taken_down_by_name") {
        return;
    }
    let name = format!("kept{}", std::process::id());
    up(Testbed::builder().name(&name).hosts(2)).keep().expect("a testbed without delays");
    let taken = Testbed::builder().name(&name).up().expect_err("the name is taken");
    assert!(matches!(&taken, Error::AlreadyUp { bed } if *bed == name), "{taken}");
    let found = Testbed::open(&name).expect("the testbed exists");
    let nodes: Vec<String> = found.nodes().map(|node| node.name().to_string()).collect();
    assert_eq!(nodes, ["e1", "h1", "h2"]);
    let error = found.host(3).expect_err("two hosts only").to_string();
    assert_eq!(error, format!("testbed {name} has no node h3 (it has e1 h1 h2)"));
    assert!(found.link(2).expect("a link").faults().expect("no counters").is_none(), "a bare link");
    found.down().expect("clean-up succeeds");
    let gone = Testbed::open(&name).expect_err("the testbed was taken down");
    assert!(matches!(&gone, Error::NotUp { bed } if *bed == name), "{gone}");
}

#[test]
fn testbeds_are_isolated() {
    if !root_tests("testbeds_are_isolated") {
        return;
    }
    let beds = [(); 2].map(|()| up(Testbed::builder().hosts(1)));
    let [first, second] = &beds;
    // Both testbeds have the same addresses: each host reaches its own element.
    let element = socket(&first.element(1).expect("an element"));
    let stranger = socket(&second.host(1).expect("a host"));
    stranger.connect(address(&element)).expect("an address");
    stranger.send(b"lost").expect("sent");
    let refused = stranger.recv(&mut [0; 8]).expect_err("the testbeds are connected");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let sibling = socket(&first.host(1).expect("a host"));
    sibling.send_to(b"found", address(&element)).expect("sent");
    let mut buffer = [0; 8];
    let (length, source) = element.recv_from(&mut buffer).expect("a datagram");
    assert_eq!((&buffer[..length], source.ip()), (&b"found"[..], Ipv4Addr::new(10, 77, 1, 2).into()));
}

#[test]
fn programs_run_on_their_node() {
    if !root_tests("programs_run_on_their_node") {
        return;
    }
    let bed = up(Testbed::builder().hosts(1));
    let mut list = bed.element(1).expect("an element").command("ls");
    let output = list.arg("/sys/class/net").stderr(Stdio::inherit()).output().expect("ls");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "h1\nlo\n");
    let exit = bed.host(1).expect("a host").command("sh").args(["-c", "exit 7"]).status().expect("sh");
    assert_eq!(exit.code(), Some(7));
}
