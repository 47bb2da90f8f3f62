//! Messages that wait where they were sent.

use super::*;

/// Writes how long a message has waited, in milliseconds, into its first byte.
fn say_wait(message: &mut [u8], waited: Duration) {
    message[0] = u8::try_from(waited.as_millis()).expect("not for long");
}

#[test]
fn message_that_waits_says_for_how_long_each_time_that_it_is_sent() {
    let mut net = Net::new([1, 2], |config| config.wait = Some(say_wait));
    let long = vec![0; 3 * 1_400];
    net.send(1, 2, &long);
    net.poll();
    // Nobody has welcomed it for a while.
    net.now = ms(70);
    net.settle_for(1);
    net.settle_for(1);
    // The parts are lost, and go again.
    net.air.clear();
    while net.air.is_empty() {
        assert!(net.wait(), "they are sent again");
        net.poll();
    }
    let waited = net.now.since(ms(0)).as_millis();
    net.settle();
    while net.nodes[&2].stats.arrived == 0 {
        assert!(net.wait(), "all of it comes");
        net.settle();
    }
    let arrived = net.arrived(2);
    assert!(u128::from(arrived[0][0]) >= waited && waited > 70, "{} of {waited}", arrived[0][0]);
    assert_eq!(arrived[0][1..], long[1..]);
}
