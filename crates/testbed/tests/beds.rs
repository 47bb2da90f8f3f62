//! Real beds: they come up, carry frames as they should, and leave nothing behind. Needs root.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pathcall_testbed::{
    Builder, Counts, ELEMENTS_MAX, Error, Faults, HOSTS_MAX, Node, Profile, Share, Testbed, beds, root_tests,
};

/// Ethernet, IPv4 and UDP.
const HEADERS_BYTES: usize = 14 + 20 + 8;
/// Longest wait for one datagram: reached only when it does not come.
const PATIENCE: Duration = Duration::from_secs(180);

/// A socket of a node's.
fn socket(node: &Node) -> UdpSocket {
    let node = node.clone();
    let bound = thread::spawn(move || {
        node.enter().expect("its namespace");
        UdpSocket::bind((node.address(), 0)).expect("its address")
    });
    let socket = bound.join().expect("a thread");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket
}

fn address(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("bound")
}

fn up(builder: Builder) -> Testbed {
    builder.up().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn everybody_reaches_everybody() {
    if !root_tests("everybody_reaches_everybody") {
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
fn the_largest_bed_comes_up() {
    if !root_tests("the_largest_bed_comes_up") {
        return;
    }
    let largest = Testbed::builder().hosts(HOSTS_MAX).elements(ELEMENTS_MAX).rate("1gbit").expect("a rate");
    let bed = up(largest.delay("1ms").expect("a delay"));
    let [first, last] = [1, HOSTS_MAX].map(|k| socket(&bed.host(k).expect("a host")));
    first.send_to(b"far", address(&last)).expect("sent");
    assert_eq!(last.recv(&mut [0; 8]).expect("a datagram"), 3);
}

#[test]
fn a_rate_holds_in_both_directions() {
    if !root_tests("a_rate_holds_in_both_directions") {
        return;
    }
    let bed = up(Testbed::builder().hosts(1).rate("100mbit").expect("a rate"));
    let (host, element) = (bed.host(1).expect("a host"), bed.element(1).expect("an element"));
    for (from, to) in [(&host, &element), (&element, &host)] {
        rate_is_kept(&socket(from), &socket(to), 100e6);
    }
}

/// Frames that arrive while the sender sends all it can take the time that the rate asks for, but for the first, which
/// need not wait. A machine that stands still lets them take longer.
fn rate_is_kept(from: &UdpSocket, to: &UdpSocket, bits_per_s: f64) {
    const PAYLOAD: usize = 1400;
    const FRAMES: usize = 3000;
    /// What the rate lets through at once.
    const BURST_S: f64 = 0.001;
    let over = AtomicBool::new(false);
    let target = address(to);
    let began = Instant::now();
    let took = thread::scope(|scope| {
        let _over = OnDrop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // The socket's buffer is bounded: a full queue makes it wait or refuse.
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

/// Sets a flag, also when a test fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn faults_are_as_many_as_asked_for() {
    const FRAMES: u64 = 40_000;
    const BURST: u64 = 1000;
    if !root_tests("faults_are_as_many_as_asked_for") {
        return;
    }
    let percent = |n: u32| Share::ppm(n * 10_000).expect("a share");
    let faulty = Profile { loss: percent(5), repeat: percent(3), ce: percent(10), ..Profile::default() };
    let bed = up(Testbed::builder().hosts(2).wired().link(2, faulty));
    let [one, two] = [1, 2].map(|k| socket(&bed.host(k).expect("a host")));
    marks(&bed, 1);
    // ECN-capable.
    socket2::SockRef::from(&two).set_tos_v4(2).expect("a mark");
    let link = |k| bed.link(k).expect("a link");
    let (mut sent, mut faults, mut arrived) = (0, Faults::default(), Counts::default());
    while sent < FRAMES {
        for _ in 0..BURST {
            two.send_to(b"frame", address(&one)).expect("sent");
        }
        sent += BURST;
        let began = Instant::now();
        // They may still be on their way; more of them than links can hold would get lost.
        while faults.lost + faults.passed < sent || arrived.frames < faults.passed + faults.repeated {
            assert!(began.elapsed() < PATIENCE, "{sent} sent, but {faults:?}; {arrived:?} arrived");
            let (there, back) = link(2).faults().expect("counters").expect("a wire");
            assert_eq!(back, Faults::default());
            (faults, arrived) = (there, link(1).traffic().expect("counters").down);
        }
    }
    let Faults { lost, marked, repeated, passed } = faults;
    // Six standard deviations: once in 500 million runs.
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
    // Marked ones may have been sent on twice.
    assert!((marked..=marked + repeated).contains(&marks(&bed, 1)), "{} seen of {marked}", marks(&bed, 1));
    let (_, other) = link(1).faults().expect("counters").expect("a wire");
    assert_eq!(other, Faults { passed: passed + repeated, ..Faults::default() });
}

/// Frames with a mark that host `k` has got since this was first called.
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
fn frames_are_late_and_overtake_each_other_as_asked_for() {
    const DELAY: Duration = Duration::from_millis(4);
    const ROUNDS: u32 = 20;
    const FRAMES: u8 = 100;
    if !root_tests("frames_are_late_and_overtake_each_other_as_asked_for") {
        return;
    }
    let bed = up(Testbed::builder().hosts(2).delay("4ms").expect("a delay"));
    let [one, two] = [1, 2].map(|k| socket(&bed.host(k).expect("a host")));
    // By two links: all in their order, and each late; by how much more shows how busy the machine is.
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
    assert!(matches!(bed.keep(), Err(Error::NeedsOwner { .. })), "it would not delay frames any more");

    let reorder = Profile {
        delay: "4ms".parse().expect("a delay"),
        reorder: "10%".parse().expect("a share"),
        ..Profile::default()
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
    // Those at the end of a round have nobody behind them that is late, nor has anybody when the machine stands still in
    // between; six standard deviations above what is expected.
    assert!((1..=280).contains(&overtook), "{overtook} of {} overtook others", ROUNDS * u32::from(FRAMES));
}

#[test]
fn the_link_between_elements_is_counted() {
    if !root_tests("the_link_between_elements_is_counted") {
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
    let counts = |frames| Counts { frames, bytes: frames * (HEADERS_BYTES + 5) as u64 };
    assert_eq!((traffic.up, traffic.down), (counts(3), counts(2)));
    let (up, down) = chain.faults().expect("counters").expect("a wire");
    assert_eq!((up.passed, down.passed), (3, 2));
}

#[test]
fn batches_cross_links_as_single_frames() {
    const SEGMENTS: usize = 10;
    if !root_tests("batches_cross_links_as_single_frames") {
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
fn a_link_that_was_cut_works_again() {
    if !root_tests("a_link_that_was_cut_works_again") {
        return;
    }
    let bed = up(Testbed::builder().hosts(3).wired().link(2, Profile::default()));
    let [one, two] = [1, 2].map(|k| socket(&bed.host(k).expect("a host")));
    let mut buffer = [0; 8];
    let mut pass = |payload: &[u8; 1]| {
        one.send_to(payload, address(&two)).expect("sent");
        two.recv(&mut buffer).expect("a datagram");
        assert_eq!(buffer[..1], *payload);
    };
    pass(b"1");
    let link = bed.link(1).expect("a link");
    link.cut().expect("it can be cut");
    // This one stays so.
    bed.link(3).expect("a link").cut().expect("it can be cut");
    let carrier = bed.host(1).expect("a host").command("cat").arg("/sys/class/net/eth0/carrier").output();
    assert_eq!(carrier.expect("cat").stdout, b"0\n");
    let before = link.traffic().expect("counters").down;
    let on_the_way = || link.faults().expect("counters").expect("a wire").1.passed;
    let earlier = on_the_way();
    two.send_to(b"lost", address(&one)).expect("sent");
    let began = Instant::now();
    while on_the_way() == earlier {
        assert!(began.elapsed() < PATIENCE, "the frame does not come to the wire");
    }
    link.mend().expect("it can be mended");
    pass(b"2");
    assert_eq!(link.traffic().expect("counters").down, before, "nothing crossed");
    let bare = bed.link(2).expect("a link").cut().expect_err("it is bare");
    assert!(matches!(&bare, Error::Bare { link, .. } if link == "h2"), "{bare}");
}

#[test]
fn nothing_stays_behind() {
    if !root_tests("nothing_stays_behind") {
        return;
    }
    // With a process in it that would not go by itself.
    let bed = up(Testbed::builder().hosts(1));
    let name = bed.name().to_owned();
    let mut process = bed.host(1).expect("a host").command("sleep").arg("1000").spawn().expect("a process");
    bed.down().expect("it goes");
    assert!(!process.wait().expect("a child").success());
    assert!(!beds().expect("names").contains_key(&name));

    // When the owner panics.
    let (tell, told) = mpsc::channel();
    let owner = thread::spawn(move || {
        let bed = up(Testbed::builder().hosts(1));
        tell.send(bed.name().to_owned()).expect("a listener");
        std::panic::resume_unwind(Box::new("somebody's mistake"));
    });
    let name = told.recv().expect("a name");
    owner.join().expect_err("it panics");
    assert!(!beds().expect("names").contains_key(&name));
}

#[test]
fn a_bed_that_is_kept_is_found_and_taken_down_by_name() {
    if !root_tests("a_bed_that_is_kept_is_found_and_taken_down_by_name") {
        return;
    }
    let name = format!("kept{}", std::process::id());
    up(Testbed::builder().name(&name).hosts(2)).keep().expect("it needs no process");
    let taken = Testbed::builder().name(&name).up().expect_err("the name is taken");
    assert!(matches!(&taken, Error::AlreadyUp { bed } if *bed == name), "{taken}");
    let found = Testbed::open(&name).expect("it is still there");
    let nodes: Vec<String> = found.nodes().map(|node| node.name().to_string()).collect();
    assert_eq!(nodes, ["e1", "h1", "h2"]);
    let error = found.host(3).expect_err("there are two").to_string();
    assert_eq!(error, format!("testbed {name} has no h3: it has e1 h1 h2"));
    assert!(found.link(2).expect("a link").faults().expect("no counters").is_none(), "it is bare");
    found.down().expect("it goes");
    let gone = Testbed::open(&name).expect_err("it is gone");
    assert!(matches!(&gone, Error::NotUp { bed } if *bed == name), "{gone}");
}

#[test]
fn beds_do_not_meet() {
    if !root_tests("beds_do_not_meet") {
        return;
    }
    let beds = [(); 2].map(|()| up(Testbed::builder().hosts(1)));
    let [first, second] = &beds;
    // The same addresses: each reaches its own element.
    let element = socket(&first.element(1).expect("an element"));
    let stranger = socket(&second.host(1).expect("a host"));
    stranger.connect(address(&element)).expect("an address");
    stranger.send(b"lost").expect("sent");
    let refused = stranger.recv(&mut [0; 8]).expect_err("nobody is there");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let sibling = socket(&first.host(1).expect("a host"));
    sibling.send_to(b"found", address(&element)).expect("sent");
    let mut buffer = [0; 8];
    let (length, source) = element.recv_from(&mut buffer).expect("a datagram");
    assert_eq!((&buffer[..length], source.ip()), (&b"found"[..], Ipv4Addr::new(10, 77, 1, 2).into()));
}

#[test]
fn programs_run_where_they_are_told() {
    if !root_tests("programs_run_where_they_are_told") {
        return;
    }
    let bed = up(Testbed::builder().hosts(1));
    let mut list = bed.element(1).expect("an element").command("ls");
    let output = list.arg("/sys/class/net").stderr(Stdio::inherit()).output().expect("ls");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "h1\nlo\n");
    let exit = bed.host(1).expect("a host").command("sh").args(["-c", "exit 7"]).status().expect("sh");
    assert_eq!(exit.code(), Some(7));
}
