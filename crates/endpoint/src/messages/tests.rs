use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

mod held_acks;
mod hostile;
mod tokens;
mod waiting_time;

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn ms(time: u64) -> Instant {
    Instant(time * 1_000_000)
}

/// Nodes and the frames in flight between them.
struct Net {
    now: Instant,
    nodes: BTreeMap<u16, Messages>,
    in_flight: Vec<(u16, u16, Vec<u8>)>,
    starts: u64,
    /// Whether the network marks the frames that it delivers.
    ce: bool,
}

impl Net {
    fn new(ports: impl IntoIterator<Item = u16>, adapt: impl Fn(&mut Config)) -> Self {
        let mut net = Self { now: ms(0), nodes: BTreeMap::new(), in_flight: Vec::new(), starts: 0, ce: false };
        for port in ports {
            net.start(port, &adapt);
        }
        net
    }

    /// Starts or restarts a node.
    fn start(&mut self, port: u16, adapt: impl Fn(&mut Config)) {
        self.starts += 1;
        let mut config = Config::new(self.starts << 16 | u64::from(port), [self.starts, u64::from(port)]);
        adapt(&mut config);
        self.nodes.insert(port, Messages::new(config));
    }

    fn send(&mut self, from: u16, to: u16, message: &[u8]) {
        let (head, payload) = message.split_at(message.len().min(20));
        let node = self.nodes.get_mut(&from).expect("a node");
        node.send(self.now, at(to), head, &Bytes::copy_from_slice(payload));
    }

    /// Lets all nodes send what is due.
    fn poll(&mut self) {
        for (from, node) in &mut self.nodes {
            node.poll(self.now, &mut |to, frame| self.in_flight.push((*from, to.port(), frame.to_vec())));
        }
    }

    /// Delivers one frame.
    fn deliver(&mut self, index: usize) {
        let (from, to, frame) = self.in_flight.remove(index);
        let Some(node) = self.nodes.get_mut(&to) else { return };
        node.handle(self.now, at(from), &frame, self.ce, &mut |back, frame| {
            self.in_flight.push((to, back.port(), frame.to_vec()));
        });
    }

    /// Delivers all frames in order until none is in flight.
    fn deliver_all(&mut self) {
        self.poll();
        while !self.in_flight.is_empty() {
            self.deliver(0);
            self.poll();
        }
    }

    /// Delivers a number of frames in order.
    fn deliver_frames(&mut self, frames: usize) {
        self.poll();
        for _ in 0..frames.min(self.in_flight.len()) {
            self.deliver(0);
            self.poll();
        }
    }

    /// Advances time to the next deadline; false when there is none.
    fn wait(&mut self) -> bool {
        let next = self.nodes.values().filter_map(Messages::deadline).min();
        self.now = next.map_or(self.now, |next| self.now.max(next));
        next.is_some()
    }

    fn events(&mut self, port: u16) -> Vec<Event> {
        let node = self.nodes.get_mut(&port).expect("a node");
        std::iter::from_fn(|| node.next_event()).filter(|event| !matches!(event, Event::Progress { .. })).collect()
    }

    fn arrived(&mut self, port: u16) -> Vec<Bytes> {
        let arrived = |event| match event {
            Event::Arrived { message, .. } => message,
            other => panic!("{other:?}"),
        };
        self.events(port).into_iter().map(arrived).collect()
    }
}

/// Message whose bytes differ from those of other messages.
fn message(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| number ^ (i / 7) as u8).collect()
}

#[test]
fn messages_of_any_length_arrive_whole() {
    let mut net = Net::new([1, 2], |_| {});
    let sizes = [1, 19, 20, 21, 1343, 1344, 1345, 2688, 100_000, 3_000_000];
    for (number, len) in sizes.into_iter().enumerate() {
        net.send(1, 2, &message(number as u8, len));
    }
    net.deliver_all();
    let arrived: BTreeSet<Bytes> = net.arrived(2).into_iter().collect();
    let sent = sizes.into_iter().enumerate().map(|(number, len)| Bytes::from(message(number as u8, len)));
    assert_eq!(arrived, sent.collect());
    assert!(net.nodes[&1].is_idle());
    assert_eq!(net.nodes[&1].stats(), Stats { sent: sizes.len() as u64, ..Stats::default() });
}

#[test]
fn short_message_overtakes_long_one() {
    let mut net = Net::new([1, 2], |_| {});
    net.send(1, 2, &message(1, 4_000_000));
    net.deliver_all();
    net.arrived(2);
    net.send(1, 2, &message(2, 4_000_000));
    net.poll();
    net.send(1, 2, &message(3, 4_000));
    net.send(1, 2, &message(4, 40));
    net.deliver_all();
    let lengths: Vec<usize> = net.arrived(2).iter().map(Bytes::len).collect();
    assert_eq!(lengths, [40, 4_000, 4_000_000]);
}

#[test]
fn progress_event_contains_message_head() {
    let mut net = Net::new([1, 2], |_| {});
    let long = message(1, 400_000);
    net.send(1, 2, &long);
    net.poll();
    let mut progress_events = 0;
    while !net.nodes[&1].is_idle() {
        while !net.in_flight.is_empty() {
            net.deliver(0);
        }
        net.now = Instant(net.now.0 + 20_000_000);
        net.poll();
        let node = net.nodes.get_mut(&2).expect("a node");
        for event in std::iter::from_fn(|| node.next_event()) {
            if let Event::Progress { peer, arriving } = event {
                assert_eq!((peer, arriving.as_deref()), (at(1), Some(&long[..HEAD_MAX])));
                progress_events += 1;
            }
        }
    }
    assert!(progress_events > 0);
}

#[test]
fn long_message_progresses_among_short_ones() {
    let mut net = Net::new([1, 2], |_| {});
    net.send(1, 2, &message(1, 50 * 1344));
    let mut short = 0;
    // There is always a short message.
    while net.nodes[&2].stats().arrived == short {
        net.send(1, 2, &message(2, 100));
        short += 1;
        assert!(short < 1_000, "the long message starves");
        net.deliver_all();
    }
}

#[test]
fn undeliverable_messages_are_returned_and_state_is_freed() {
    let mut net = Net::new([1], |_| {});
    net.send(1, 9, &message(1, 5_000));
    net.send(1, 9, &message(2, 50));
    loop {
        net.poll();
        net.in_flight.clear();
        if net.nodes[&1].sessions() == 0 {
            break;
        }
        assert!(net.wait(), "no deadline is set");
    }
    assert!(net.now >= ms(5_000) && net.now < ms(6_000), "{:?}", net.now);
    let undelivered = |number| Event::Undelivered { to: at(9), head: message(number, 50)[..20].to_vec().into() };
    assert_eq!(net.events(1), [undelivered(1), undelivered(2)]);
}

#[test]
fn restarted_receiver_ignores_earlier_parts() {
    let mut net = Net::new([1, 2], |_| {});
    net.send(1, 2, &message(1, 50));
    net.deliver_all();
    assert_eq!(net.arrived(2).len(), 1);
    // The receiver's next life gets a late repeat; the acknowledgement of another message is lost.
    net.send(1, 2, &message(2, 50));
    net.poll();
    let repeat = net.in_flight.clone();
    while !net.in_flight.is_empty() {
        net.deliver(0);
    }
    assert_eq!(net.arrived(2).len(), 1);
    net.start(2, |_| {});
    net.in_flight = repeat;
    net.deliver_all();
    net.send(1, 2, &message(3, 50));
    net.deliver_all();
    while net.wait() && !net.nodes[&1].is_idle() {
        net.deliver_all();
    }
    assert_eq!(net.arrived(2), [Bytes::from(message(3, 50))]);
    assert_eq!(net.nodes[&1].stats().lost, 1);
}

#[test]
fn idle_sessions_end_and_restart_on_send() {
    let mut net = Net::new([1, 2], |_| {});
    net.send(1, 2, &message(1, 50));
    net.deliver_all();
    while net.wait() && net.nodes.values().any(|node| node.sessions() > 0) {
        net.deliver_all();
    }
    assert!(net.nodes.values().all(|node| node.deadline().is_none()), "no deadline is left");
    assert!(net.now >= ms(60_000) && net.now < ms(61_000), "{:?}", net.now);
    net.send(1, 2, &message(2, 50));
    net.deliver_all();
    assert_eq!(net.arrived(2).len(), 2);
}

#[test]
fn exhausted_session_is_replaced() {
    let mut net = Net::new([1, 2], |config| config.session_parts = 10);
    for number in 0..40 {
        net.send(1, 2, &message(number, 3_000));
    }
    net.deliver_all();
    assert_eq!(net.arrived(2).len(), 40);
    assert_eq!(net.nodes[&1].stats().lost, 0);
}

#[test]
fn refused_parts_arrive_later_within_memory_limit() {
    let mut net = Net::new([1, 2, 3, 4], |config| config.memory = 200_000);
    for sender in [2, 3, 4] {
        net.send(sender, 1, &message(sender as u8, 1_000_000));
    }
    let mut most = 0;
    while !net.nodes.values().all(Messages::is_idle) {
        net.poll();
        while !net.in_flight.is_empty() {
            net.deliver(0);
            most = most.max(net.nodes[&1].receiver.bytes());
        }
        net.poll();
        if net.in_flight.is_empty() && !net.wait() {
            break;
        }
    }
    assert_eq!(net.arrived(1).len(), 3);
    assert!(net.nodes[&1].stats().refused > 0);
    assert!((1_000_000..1_200_001).contains(&most), "{most}");
}

#[test]
fn stalled_sender_loses_its_memory_privilege() {
    let mut net = Net::new([1, 2, 3], |config| config.memory = 10_000);
    net.send(2, 1, &message(2, 500_000));
    for _ in 0..20 {
        net.poll();
        while !net.in_flight.is_empty() {
            net.deliver(0);
        }
    }
    net.nodes.remove(&2);
    net.send(3, 1, &message(3, 100_000));
    // The timeout of its own session would end the sender first.
    net.nodes.get_mut(&3).expect("a node").config.timing.give_up = Duration::from_secs(60);
    net.deliver_all();
    while net.arrived(1).is_empty() {
        assert!(net.wait() && net.now < ms(20_000), "no deadline is set");
        net.deliver_all();
        if net.nodes[&3].is_idle() {
            net.send(3, 1, &message(3, 100_000));
        }
    }
}

/// Sizes of a sender's first two bursts of parts, with or without congestion marks on the first.
fn bursts(ce: bool) -> [usize; 2] {
    let mut net = Net::new([1, 2], |_| {});
    net.ce = ce;
    net.send(1, 2, &message(1, 1_000_000));
    net.poll();
    while net.nodes[&2].sessions() == 0 || net.in_flight.iter().any(|(from, ..)| *from == 2) {
        net.deliver(0);
    }
    net.poll();
    let first = net.in_flight.len();
    (0..first).for_each(|_| net.deliver(0));
    net.poll();
    while net.in_flight.first().is_some_and(|(from, ..)| *from == 2) {
        net.deliver(0);
    }
    net.poll();
    [first, net.in_flight.len()]
}

#[test]
fn congestion_marks_shrink_sender_window() {
    assert_eq!(bursts(false), [64, 128]);
    assert_eq!(bursts(true), [64, 32]);
}

#[test]
fn hellos_take_bounded_memory() {
    let mut node = Messages::new(Config::new(1, [1, 1]));
    for session in 1..10_000 {
        let hello = GreetingRepr::new(MessageKind::Hello, 5, session, 0);
        node.handle(ms(0), at(session as u16), &hello.bytes(), false, &mut |_, _| {});
    }
    assert!(node.sessions() <= 256, "{}", node.sessions());
}

#[test]
fn send_queue_is_bounded() {
    let mut net = Net::new([1], |config| config.queue = 10_000);
    net.send(1, 2, &message(1, 9_000));
    net.send(1, 2, &message(2, 9_000));
    assert_eq!(net.events(1).len(), 1);
    net.send(1, 2, &message(3, 1_000));
    assert_eq!(net.events(1).len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Under loss, repeats, delay and restarts, no message arrives twice or damaged; without restarts, all messages
    /// arrive.
    #[test]
    fn each_message_arrives_once_and_whole(
        seed in any::<u64>(), loss in 0u64..30, repeats in 0u64..20, restarts in prop::bool::ANY,
        sizes in prop::collection::vec(1usize..20_000, 1..30),
    ) {
        let mut random = seed | 1;
        let mut roll = move |of: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % of
        };
        let patient = |config: &mut Config| config.timing.give_up = Duration::from_secs(1_000_000);
        let mut net = Net::new([1, 2, 3], patient);
        let mut arrived = BTreeSet::new();
        let mut late: Vec<(u16, u16, Vec<u8>)> = Vec::new();
        let (mut next, mut steps, mut lives) = (0, 0u64, 0);
        loop {
            steps += 1;
            prop_assert!(steps < 400_000, "stuck");
            if next < sizes.len() && roll(8) == 0 {
                let (from, to) = [(1, 2), (2, 1), (3, 2), (1, 3)][next % 4];
                let mut bytes = message(next as u8, sizes[next]);
                bytes[0] = next as u8;
                net.send(from, to, &bytes);
                next += 1;
            }
            net.poll();
            if restarts && lives < 3 && roll(300) == 0 {
                lives += 1;
                net.start(1 + roll(3) as u16, patient);
            }
            if net.in_flight.is_empty() {
                let idle = net.nodes.values().all(Messages::is_idle);
                if next == sizes.len() && idle { break; }
                if !net.wait() && next == sizes.len() { break; }
            } else {
                net.now = net.now + Duration::from_micros(20);
                let index = roll(net.in_flight.len().min(6) as u64) as usize;
                if roll(100) < repeats { late.push(net.in_flight[index].clone()); }
                if roll(100) < loss { net.in_flight.swap_remove(index); } else { net.deliver(index); }
            }
            if roll(50) == 0 && !late.is_empty() {
                let index = roll(late.len() as u64) as usize;
                net.in_flight.push(late.swap_remove(index));
            }
            for port in 1..=3 {
                for bytes in net.arrived(port) {
                    let number = usize::from(bytes[0]);
                    let mut sent = message(number as u8, sizes[number]);
                    sent[0] = number as u8;
                    prop_assert_eq!(&bytes[..], &sent[..]);
                    prop_assert!(arrived.insert(number), "message {} came twice", number);
                }
            }
        }
        if !restarts {
            prop_assert_eq!(arrived.len(), sizes.len());
        }
    }
}
