//! Tests of acknowledgements that wait for a message to the same peer.

use pathcall_wire::messages::PART;

use super::*;

/// Nodes 1 and 3 with sessions to and from node 2.
fn connected() -> Net {
    let mut net = Net::new([1, 2, 3], |_| {});
    for (from, to) in [(1, 2), (2, 1), (3, 2), (2, 3)] {
        net.send(from, to, b"first");
    }
    net.deliver_all();
    [1, 2, 3].iter().for_each(|port| drop(net.events(*port)));
    net
}

/// Frames that node 2 sends: their destinations.
fn sent(net: &mut Net, send: impl FnOnce(&mut Messages, Instant, &mut dyn FnMut(SocketAddr, &[u8]))) -> Vec<u16> {
    let (node, mut destinations) = (net.nodes.get_mut(&2).expect("a node"), Vec::new());
    send(node, net.now, &mut |to, frame| {
        destinations.push(to.port());
        net.in_flight.push((2, to.port(), frame.to_vec()));
    });
    destinations
}

#[test]
fn held_acknowledgement_leaves_with_message_to_its_peer() {
    let mut net = connected();
    net.send(1, 2, b"request");
    net.send(3, 2, b"request");
    net.poll();
    net.deliver(0);
    net.deliver(0);
    assert!(net.in_flight.is_empty() && net.nodes[&2].can_hold_acks());
    net.send(2, 1, b"reply");
    assert_eq!(sent(&mut net, |node, now, mut out| node.send_due(now, &mut out)), [1, 1], "message, acknowledgement");
    assert!(net.in_flight[0].2.len() > net.in_flight[1].2.len(), "the longer frame is first: both fit one batch");
    assert_eq!(sent(&mut net, |node, _, mut out| node.acknowledge(&mut out)), [3]);
    while !net.in_flight.is_empty() {
        net.deliver(0);
    }
    assert!(net.nodes[&1].is_idle() && net.nodes[&3].is_idle());
    assert_eq!(net.arrived(1), [&b"reply"[..]]);
}

#[test]
fn parts_of_long_messages_and_of_many_peers_hold_no_acknowledgement() {
    let mut net = connected();
    net.send(1, 2, &message(1, 2 * PART));
    net.poll();
    net.deliver(0);
    assert!(!net.nodes[&2].can_hold_acks(), "the next part may wait");
    assert_eq!(sent(&mut net, |node, _, mut out| node.acknowledge(&mut out)), [1]);
    assert!(net.nodes[&2].can_hold_acks());

    let mut net = Net::new(1..=40, |_| {});
    for round in ["first", "second"] {
        (3..=40).for_each(|from| net.send(from, 2, round.as_bytes()));
        if round == "first" {
            net.deliver_all();
        }
    }
    net.poll();
    while !net.in_flight.is_empty() {
        net.deliver(0);
    }
    assert!(!net.nodes[&2].can_hold_acks(), "acknowledgements to 38 peers");
}
