//! Nodes with a key: who lacks it changes nothing, and what was recorded has no second effect.

use pathcall_wire::W_MAX;
use pathcall_wire::messages::Part;

use super::*;

const KEY: TokenKey = TokenKey::new([1, 2]);

fn keyed(config: &mut Config) {
    config.key = Some(KEY);
}

/// What a node has, but for what it did not believe.
fn standing(node: &Messages) -> (Stats, usize, usize, Option<Instant>) {
    (Stats { unauthenticated: 0, ..node.stats() }, node.sessions(), node.receiver.bytes(), node.deadline())
}

/// Frames of every kind, on their way to node 2, which takes part in the sessions that they are of; its network.
fn all_kinds() -> (Net, Vec<(u16, Vec<u8>)>) {
    let mut net = Net::new([1, 2, 3], keyed);
    let mut kinds: BTreeMap<u8, (u16, Vec<u8>)> = BTreeMap::new();
    // Both send; what is recorded of 2's is its peer's, and the third knows nothing of a session that it is told of.
    net.send(1, 2, &message(1, 5_000));
    net.send(2, 1, &message(2, 5_000));
    for _ in 0..6 {
        net.poll();
        for (from, to, frame) in std::mem::take(&mut net.air) {
            if to == 2 {
                kinds.insert(frame[3], (from, frame.clone()));
            }
            if to == 1 && frame[3] & 0x7f == MessageKind::Part as u8 {
                // Another node signs a gone of that.
                net.air.push((2, 3, frame.clone()));
                net.bring(net.air.len() - 1);
                let (_, _, gone) = net.air.pop().expect("it knows nothing of it");
                kinds.insert(gone[3], (1, gone));
            }
            net.air.push((from, to, frame));
            net.bring(net.air.len() - 1);
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
    while !net.air.is_empty() {
        assert!(net.air.iter().all(|(.., frame)| token::admits(Some(&KEY), frame) && frame.len() <= 1372));
        net.bring(0);
        net.poll();
    }
    let arrived: BTreeSet<Bytes> = net.arrived(2).into_iter().collect();
    let sent = sizes.into_iter().enumerate().map(|(number, len)| Bytes::from(message(number as u8, len)));
    assert_eq!(arrived, sent.collect());
    assert!(net.nodes.values().all(|node| node.stats().unauthenticated == 0));
}

#[test]
fn frame_of_any_kind_without_the_right_token_changes_nothing() {
    let (mut net, frames) = all_kinds();
    let now = net.now;
    let node = net.nodes.get_mut(&2).expect("a node");
    let (before, mut refused) = (standing(node), 0);
    let mut refuses = |node: &mut Messages, from: u16, frame: &[u8]| {
        node.handle(now, at(from), frame, true, &mut |_, answer| panic!("{answer:?}"));
        refused += 1;
        assert_eq!((standing(node), node.stats().unauthenticated), (before, refused), "{frame:?}");
    };
    for (from, frame) in frames {
        let signed = frame.len() - TOKEN_LEN;
        for bit in 0..8 * frame.len() {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            refuses(node, from, &changed);
        }
        for len in [0, 3, 4, 11, signed, frame.len() - 1] {
            refuses(node, from, &frame[..len]);
        }
        // As a node without a key says it, and one with another.
        let mut plain = frame[..signed].to_vec();
        plain[3] &= !pathcall_wire::messages::TOKEN;
        refuses(node, from, &plain);
        let mut other = [plain, vec![0; TOKEN_LEN]].concat();
        let other = token::seal(Some(&TokenKey::new([1, 3])), &mut other, signed).to_vec();
        refuses(node, from, &other);
    }
}

#[test]
fn node_without_a_key_drops_what_is_signed() {
    let mut net = Net::new([1, 2], |_| {});
    net.start(1, keyed);
    net.send(1, 2, &message(1, 50));
    net.poll();
    net.bring(0);
    assert_eq!((net.air.len(), net.nodes[&2].sessions(), net.nodes[&2].stats().unauthenticated), (0, 0, 1));
}

#[test]
fn key_that_comes_late_opens_the_way() {
    let mut net = Net::new([1, 2], |_| {});
    net.send(1, 2, &message(1, 50));
    net.settle();
    assert_eq!(net.arrived(2).len(), 1);
    // The receiver has it first; then what one of them sends is not taken.
    net.nodes.get_mut(&2).expect("a node").set_key(net.now, Some(KEY));
    net.send(1, 2, &message(2, 5_000));
    net.settle();
    assert!(net.nodes[&2].stats().unauthenticated > 0 && net.events(2).is_empty());
    net.nodes.get_mut(&1).expect("a node").set_key(net.now, Some(KEY));
    net.send(1, 2, &message(3, 5_000));
    net.settle();
    assert_eq!(net.arrived(2), [Bytes::from(message(3, 5_000))]);
    assert_eq!(net.nodes[&1].stats().lost, 1, "its parts had another length");
}

#[test]
fn another_key_is_taken_while_messages_are_on_their_way() {
    let mut net = Net::new([1, 2], keyed);
    let long = message(1, 1_000_000);
    net.send(1, 2, &long);
    net.settle_for(40);
    for port in [2, 1] {
        net.nodes.get_mut(&port).expect("a node").set_key(net.now, Some(TokenKey::new([3, 4])));
        net.settle_for(40);
    }
    while !net.nodes[&1].is_idle() {
        net.settle();
        assert!(net.wait(), "it waits for ever");
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
    while !net.air.is_empty() {
        recorded.push(net.air[0].clone());
        net.bring(0);
        net.poll();
    }
    assert_eq!(net.arrived(2).len(), 1);
    let again = |net: &mut Net| {
        for frame in &recorded {
            net.air.push(frame.clone());
            net.settle();
        }
        (net.events(1), net.events(2))
    };
    assert_eq!(again(&mut net), (vec![], vec![]), "while the session lives");
    while net.wait() && net.nodes.values().any(|node| node.sessions() > 0) {
        net.settle();
    }
    assert_eq!(again(&mut net), (vec![], vec![]), "when it has ended");
    net.start(2, keyed);
    assert_eq!(again(&mut net), (vec![], vec![]), "when its receiver has started anew");
    // And it is in nobody's way.
    net.send(1, 2, &message(2, 5_000));
    net.settle();
    assert_eq!(net.arrived(2), [Bytes::from(message(2, 5_000))]);
}

/// A message of several windows has begun to leave node 1, and another node's *gone* of its session comes to it.
fn told_that_it_is_gone(net: &mut Net) -> Vec<u8> {
    let long = message(1, 3 * W_MAX as usize * PART);
    net.send(1, 2, &long);
    net.poll();
    while net.nodes[&2].stats().arrived == 0 && net.air.iter().all(|(.., frame)| frame.len() < Part::LEN + 100) {
        net.bring(0);
        net.poll();
    }
    let part = net.air.iter().find(|(.., frame)| frame.len() > Part::LEN + 100).expect("a part").clone();
    net.air.push((1, 3, part.2));
    net.bring(net.air.len() - 1);
    let (from, to, gone) = net.air.pop().expect("it knows nothing of it");
    assert_eq!((from, to), (3, 1));
    net.air.push((2, 1, gone));
    net.bring(net.air.len() - 1);
    long
}

#[test]
fn session_that_somebody_else_calls_gone_goes_on() {
    let mut net = Net::new([1, 2, 3], keyed);
    let long = told_that_it_is_gone(&mut net);
    while !net.nodes[&1].is_idle() {
        net.settle();
        if !net.nodes[&1].is_idle() {
            assert!(net.wait(), "it waits for ever");
        }
    }
    assert_eq!(net.arrived(2), [Bytes::from(long)]);
    assert_eq!(net.nodes[&1].stats().lost, 0);
}

#[test]
fn session_whose_receiver_is_gone_ends_and_what_was_not_begun_goes_by_the_next() {
    let mut net = Net::new([1, 2, 3], keyed);
    told_that_it_is_gone(&mut net);
    net.start(2, keyed);
    net.send(1, 2, &message(2, 50));
    let began = net.now;
    while net.nodes[&2].stats().arrived == 0 {
        net.settle();
        assert!(net.nodes[&2].stats().arrived > 0 || net.wait(), "it waits for ever");
    }
    assert_eq!(net.arrived(2), [Bytes::from(message(2, 50))]);
    assert_eq!(net.nodes[&1].stats().lost, 1);
    assert!(net.now.since(began) < Duration::from_secs(1), "long before it is given up");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A stranger without the key records, repeats to anybody from anywhere, changes, and makes up, beside a network that
    /// loses: no message comes twice, none comes broken, none of its own comes, and none goes missing for long.
    #[test]
    fn stranger_without_the_key_brings_nothing(seed in any::<u64>(), loss in 0u64..20, sizes in prop::collection::vec(1usize..20_000, 1..20)) {
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
            if net.air.is_empty() {
                let idle = net.nodes.values().all(Messages::is_idle);
                if next == sizes.len() && idle { break; }
                if !net.wait() && next == sizes.len() { break; }
            } else {
                net.now = net.now + Duration::from_micros(20);
                let index = roll(net.air.len().min(6) as u64) as usize;
                let frame = net.air[index].2.clone();
                if roll(4) == 0 { recorded.push(frame); }
                if roll(100) < loss { net.air.swap_remove(index); } else { net.bring(index); }
            }
            if roll(20) == 0 && !recorded.is_empty() {
                let mut frame = recorded[roll(recorded.len() as u64) as usize].clone();
                match roll(3) {
                    // Repeated as it is.
                    0 => {}
                    1 => {
                        let bit = roll(8 * frame.len() as u64) as usize;
                        frame[bit / 8] ^= 1 << (bit % 8);
                    }
                    _ => {
                        let len = frame.len() - TOKEN_LEN;
                        frame = token::seal(Some(&TokenKey::new([9, roll(1 << 30)])), &mut frame, len).to_vec();
                    }
                }
                // From where nobody is, too; answers go nowhere then.
                net.air.push((1 + roll(5) as u16, 1 + roll(3) as u16, frame));
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
