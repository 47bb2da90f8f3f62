//! Tests of the random generator's reproducibility.

use pathcall_conformance::SplitMix64;

#[test]
fn random_numbers_match_published_values() {
    // Values of the authors' splitmix64.c for seed 1234567.
    let mut random = SplitMix64::new(1_234_567);
    assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
}

#[test]
fn weighted_choice_follows_weights() {
    let mut random = SplitMix64::new(1);
    let drawn: Vec<_> = (0..1000).map(|_| random.weighted(&[(1, 'a'), (0, 'b'), (3, 'c')])).collect();
    let count = |what| drawn.iter().filter(|c| **c == what).count();
    assert!((150..350).contains(&count('a')) && count('b') == 0, "{} {}", count('a'), count('b'));
}
