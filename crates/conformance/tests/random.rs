//! Tests of random choices.

use pathcall_conformance::RandomChoice;
use pathcall_wire::SplitMix64;

#[test]
fn weighted_choice_follows_weights() {
    let mut random = SplitMix64::new(1);
    let drawn: Vec<_> = (0..1000).map(|_| random.weighted(&[(1, 'a'), (0, 'b'), (3, 'c')])).collect();
    let count = |what| drawn.iter().filter(|c| **c == what).count();
    assert!((150..350).contains(&count('a')) && count('b') == 0, "{} {}", count('a'), count('b'));
}
