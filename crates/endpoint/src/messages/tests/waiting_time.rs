//! Tests of the waiting time that messages carry.

use super::*;

/// Writes the waiting time of a message, in milliseconds, into its first byte.
fn write_wait(message: &mut [u8], waited: Duration) {
    message[0] = u8::try_from(waited.as_millis()).expect("fits in a byte");
}

#[test]
fn message_carries_waiting_time_at_each_send() {
    let mut net = Net::new([1, 2], |config| config.wait = Some(write_wait));
    let long = vec![0; 3 * 1_400];
    net.send(1, 2, &long);
    net.poll();
    // The receiver welcomes the session late.
    net.now = ms(70);
    net.deliver_frames(1);
    net.deliver_frames(1);
    // The parts are lost and retransmitted.
    net.in_flight.clear();
    while net.in_flight.is_empty() {
        assert!(net.wait(), "no deadline is set");
        net.poll();
    }
    let waited = net.now.since(ms(0)).as_millis();
    net.deliver_all();
    while net.nodes[&2].stats.arrived == 0 {
        assert!(net.wait(), "no deadline is set");
        net.deliver_all();
    }
    let arrived = net.arrived(2);
    assert!(u128::from(arrived[0][0]) >= waited && waited > 70, "{} of {waited}", arrived[0][0]);
    assert_eq!(arrived[0][1..], long[1..]);
}
