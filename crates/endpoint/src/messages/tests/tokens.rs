//! Tests of nodes with a key: unauthenticated and replayed frames have no effect.

use pathcall_wire::W_MAX;
use pathcall_wire::messages::Part;

use super::*;

const KEY: TokenKey = TokenKey::new([1, 2]);

fn keyed(config: &mut Config) {
    config.key = Some(KEY);
}

/// Observable state of a node, without the count of unauthenticated frames.
fn node_state(node: &Messages) -> (Stats, usize, usize, Option<Instant>) {
    (Stats { unauthenticated: 0, ..node.stats() }, node.sessions(), node.receiver.bytes(), node.deadline())
}

/// Network in which node 2 takes part in sessions, and frames of every kind to node 2.
fn all_kinds() -> (Net, Vec<(u16, Vec<u8>)>) {
    let mut net = Net::new([1, 2, 3], keyed);
    let mut kinds: BTreeMap<u8, (u16, Vec<u8>)> = BTreeMap::new();
    // Both nodes send; node 3 knows no session and answers a part with "gone".
    net.send(1, 2, &message(1, 5_000));
    net.send(2, 1, &message(2, 5_000));
    for _ in 0..6 {
        net.poll();
        for (from, to, frame) in std::mem::take(&mut net.in_flight) {
            if to == 2 {
                kinds.insert(frame[3], (from, frame.clone()));
            }
            if to == 1 && frame[3] & 0x7f == MessageKind::Part as u8 {
                // Another node signs a "gone" for this session.
                net.in_flight.push((2, 3, frame.clone()));
                net.deliver(net.in_flight.len() - 1);
                let (_, _, gone) = net.in_flight.pop().expect("a gone frame");
                kinds.insert(gone[3], (1, gone));
            }
            net.in_flight.push((from, to, frame));
            net.deliver(net.in_flight.len() - 1);
        }
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    net.events(2);
    (net, kinds.into_values().collect())
}

#[test]
fn messages_of_any_length_arrive_whole_with_tokens() {
    let mut net = Net::new([1, 2], keyed);
    let sizes = [1, 20, 1335, 1336, 1337, 1344, 2672, 2673, 100_000];
    for (number, len) in sizes.into_iter().enumerate() {
        net.send(1, 2, &message(number as u8, len));
    }
    net.poll();
    while !net.in_flight.is_empty() {
        assert!(net.in_flight.iter().all(|(.., frame)| token::admits(Some(&KEY), frame) && frame.len() <= 1372));
        net.deliver(0);
        net.poll();
    }
    let arrived: BTreeSet<Bytes> = net.arrived(2).into_iter().collect();
    let sent = sizes.into_iter().enumerate().map(|(number, len)| Bytes::from(message(number as u8, len)));
    assert_eq!(arrived, sent.collect());
    assert!(net.nodes.values().all(|node| node.stats().unauthenticated == 0));
}

#[test]
fn frame_without_valid_token_has_no_effect() {
    let (mut net, frames) = all_kinds();
    let now = net.now;
    let node = net.nodes.get_mut(&2).expect("a node");
    let (before, mut refused) = (node_state(node), 0);
    let mut assert_refused = |node: &mut Messages, from: u16, frame: &[u8]| {
        node.handle(now, at(from), frame, true, &mut |_, answer| panic!("{answer:?}"));
        refused += 1;
        assert_eq!((node_state(node), node.stats().unauthenticated), (before, refused), "{frame:?}");
    };
    for (from, frame) in frames {
        let signed = frame.len() - TOKEN_LEN;
        for bit in 0..8 * frame.len() {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_refused(node, from, &changed);
        }
        for len in [0, 3, 4, 11, signed, frame.len() - 1] {
            assert_refused(node, from, &frame[..len]);
        }
        // The frame of a node without a key, and of a node with another key.
        let mut plain = frame[..signed].to_vec();
        plain[3] &= !pathcall_wire::messages::TOKEN;
        assert_refused(node, from, &plain);
        let mut other = [plain, vec![0; TOKEN_LEN]].concat();
        let other = token::append_token(Some(&TokenKey::new([1, 3])), &mut other, signed).to_vec();
        assert_refused(node, from, &other);
    }
}

#[test]
fn node_without_key_drops_signed_frames() {
    let mut net = Net::new([1, 2], |_| {});
    net.start(1, keyed);
    net.send(1, 2, &message(1, 50));
    net.poll();
    net.deliver(0);
    assert_eq!((net.in_flight.len(), net.nodes[&2].sessions(), net.nodes[&2].stats().unauthenticated), (0, 0, 1));
}

#[test]
fn late_key_restores_communication() {
    let mut net = Net::new([1, 2], |_| {});
    net.send(1, 2, &message(1, 50));
    net.deliver_all();
    assert_eq!(net.arrived(2).len(), 1);
    // The receiver gets the key first; meanwhile neither node accepts the other's frames.
    net.nodes.get_mut(&2).expect("a node").set_key(net.now, Some(KEY));
    net.send(1, 2, &message(2, 5_000));
    net.deliver_all();
    assert!(net.nodes[&2].stats().unauthenticated > 0 && net.events(2).is_empty());
    net.nodes.get_mut(&1).expect("a node").set_key(net.now, Some(KEY));
    net.send(1, 2, &message(3, 5_000));
    net.deliver_all();
    assert_eq!(net.arrived(2), [Bytes::from(message(3, 5_000))]);
    assert_eq!(net.nodes[&1].stats().lost, 1, "the length of its parts has changed");
}

#[test]
fn key_change_keeps_messages_in_flight() {
    let mut net = Net::new([1, 2], keyed);
    let long = message(1, 1_000_000);
    net.send(1, 2, &long);
    net.deliver_frames(40);
    for port in [2, 1] {
        net.nodes.get_mut(&port).expect("a node").set_key(net.now, Some(TokenKey::new([3, 4])));
        net.deliver_frames(40);
    }
    while !net.nodes[&1].is_idle() {
        net.deliver_all();
        assert!(net.wait(), "no deadline is set");
    }
    assert_eq!(net.arrived(2), [Bytes::from(long)]);
    assert!(net.nodes[&2].stats().unauthenticated > 0);
}

#[test]
fn recorded_frames_have_no_second_effect() {
    let mut net = Net::new([1, 2], keyed);
    net.send(1, 2, &message(1, 5_000));
    let mut recorded = Vec::new();
    net.poll();
    while !net.in_flight.is_empty() {
        recorded.push(net.in_flight[0].clone());
        net.deliver(0);
        net.poll();
    }
    assert_eq!(net.arrived(2).len(), 1);
    let again = |net: &mut Net| {
        for frame in &recorded {
            net.in_flight.push(frame.clone());
            net.deliver_all();
        }
        (net.events(1), net.events(2))
    };
    assert_eq!(again(&mut net), (vec![], vec![]), "during the session");
    while net.wait() && net.nodes.values().any(|node| node.sessions() > 0) {
        net.deliver_all();
    }
    assert_eq!(again(&mut net), (vec![], vec![]), "after the session");
    net.start(2, keyed);
    assert_eq!(again(&mut net), (vec![], vec![]), "after a restart of the receiver");
    // The replayed frames do not block new messages.
    net.send(1, 2, &message(2, 5_000));
    net.deliver_all();
    assert_eq!(net.arrived(2), [Bytes::from(message(2, 5_000))]);
}

/// Starts a message of several windows from node 1, and delivers another node's "gone" of its session.
fn start_message_with_forged_gone(net: &mut Net) -> Vec<u8> {
    let long = message(1, 3 * W_MAX as usize * PART);
    net.send(1, 2, &long);
    net.poll();
    while net.nodes[&2].stats().arrived == 0 && net.in_flight.iter().all(|(.., frame)| frame.len() < Part::LEN + 100) {
        net.deliver(0);
        net.poll();
    }
    let part = net.in_flight.iter().find(|(.., frame)| frame.len() > Part::LEN + 100).expect("a part").clone();
    net.in_flight.push((1, 3, part.2));
    net.deliver(net.in_flight.len() - 1);
    let (from, to, gone) = net.in_flight.pop().expect("a gone frame");
    assert_eq!((from, to), (3, 1));
    net.in_flight.push((2, 1, gone));
    net.deliver(net.in_flight.len() - 1);
    long
}

#[test]
fn session_survives_forged_gone() {
    let mut net = Net::new([1, 2, 3], keyed);
    let long = start_message_with_forged_gone(&mut net);
    while !net.nodes[&1].is_idle() {
        net.deliver_all();
        if !net.nodes[&1].is_idle() {
            assert!(net.wait(), "no deadline is set");
        }
    }
    assert_eq!(net.arrived(2), [Bytes::from(long)]);
    assert_eq!(net.nodes[&1].stats().lost, 0);
}

#[test]
fn session_without_receiver_moves_unsent_messages() {
    let mut net = Net::new([1, 2, 3], keyed);
    start_message_with_forged_gone(&mut net);
    net.start(2, keyed);
    net.send(1, 2, &message(2, 50));
    let began = net.now;
    while net.nodes[&2].stats().arrived == 0 {
        net.deliver_all();
        assert!(net.nodes[&2].stats().arrived > 0 || net.wait(), "no deadline is set");
    }
    assert_eq!(net.arrived(2), [Bytes::from(message(2, 50))]);
    assert_eq!(net.nodes[&1].stats().lost, 1);
    assert!(net.now.since(began) < Duration::from_secs(1), "long before its timeout");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A stranger without the key records, replays, changes and forges frames on a lossy network: no message arrives
    /// twice or damaged, none comes from the stranger, and none is lost without being counted.
    #[test]
    fn stranger_without_key_delivers_nothing(
        seed in any::<u64>(),
        loss in 0u64..20,
        sizes in prop::collection::vec(1usize..20_000, 1..20),
    ) {
        let mut random = seed | 1;
        let mut roll = move |of: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % of
        };
        let mut net = Net::new([1, 2, 3], |config| {
            keyed(config);
            config.timing.give_up = Duration::from_secs(1_000_000);
        });
        let (mut recorded, mut met, mut next, mut steps) = (Vec::new(), BTreeSet::new(), 0, 0u64);
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
            if net.in_flight.is_empty() {
                let idle = net.nodes.values().all(Messages::is_idle);
                if next == sizes.len() && idle { break; }
                if !net.wait() && next == sizes.len() { break; }
            } else {
                net.now = net.now + Duration::from_micros(20);
                let index = roll(net.in_flight.len().min(6) as u64) as usize;
                let frame = net.in_flight[index].2.clone();
                if roll(4) == 0 { recorded.push(frame); }
                if roll(100) < loss { net.in_flight.swap_remove(index); } else { net.deliver(index); }
            }
            if roll(20) == 0 && !recorded.is_empty() {
                let mut frame = recorded[roll(recorded.len() as u64) as usize].clone();
                match roll(3) {
                    // An unchanged replay.
                    0 => {}
                    1 => {
                        let bit = roll(8 * frame.len() as u64) as usize;
                        frame[bit / 8] ^= 1 << (bit % 8);
                    }
                    _ => {
                        let len = frame.len() - TOKEN_LEN;
                        frame = token::append_token(Some(&TokenKey::new([9, roll(1 << 30)])), &mut frame, len).to_vec();
                    }
                }
                // The source may be an address without a node; answers to it are dropped.
                net.in_flight.push((1 + roll(5) as u16, 1 + roll(3) as u16, frame));
            }
            for port in 1..=3 {
                for event in net.events(port) {
                    let Event::Arrived { message: bytes, node, .. } = event else { continue };
                    let number = usize::from(bytes[0]);
                    let mut sent = message(number as u8, sizes[number]);
                    sent[0] = number as u8;
                    prop_assert_eq!(&bytes[..], &sent[..]);
                    prop_assert!(met.insert(number), "message {} came twice", number);
                    prop_assert_eq!(node & 0xffff, [1, 2, 3, 1][number % 4]);
                }
            }
        }
        let lost: u64 = net.nodes.values().map(|node| node.stats().lost).sum();
        prop_assert!(met.len() as u64 + lost >= sizes.len() as u64, "{} of {}, {lost} lost", met.len(), sizes.len());
    }
}
