//! Reproducible numbers of the generator of frames.

use pathcall_conformance::Random;

#[test]
fn numbers_are_fixed_for_ever() {
    // As the authors' splitmix64.c gives them for the seed 1234567.
    let mut random = Random::new(1_234_567);
    assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
}

#[test]
fn weights_are_kept() {
    let mut random = Random::new(1);
    let drawn: Vec<_> = (0..1000).map(|_| random.weighted(&[(1, 'a'), (0, 'b'), (3, 'c')])).collect();
    let count = |what| drawn.iter().filter(|c| **c == what).count();
    assert!((150..350).contains(&count('a')) && count('b') == 0, "{} {}", count('a'), count('b'));
}
