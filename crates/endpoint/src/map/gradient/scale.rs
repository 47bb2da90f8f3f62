//! Scale of a block of values: a power of two, on which all workers agree before their values count.
//!
//! A scale is a code from 1 to [`CODE_MAX`]; its unit is `2^(code - 127)`. Each worker puts the code that it used into
//! its part, and the square of the code. From the two sums, each worker sees whether all codes were equal
//! ([`agreed`]): W times the sum of squares is the square of the sum exactly then. If they were, all workers move the
//! code alike by the votes ([`moved`]). If not, the workers count their codes once ([`count`]), and take the largest.

use pathcall_wire::{Mutant, mutant};

/// Largest code.
pub(super) const CODE_MAX: u8 = 254;
/// No scale: of a worker that has none, or whose values are far beyond it.
pub(super) const NO_CODE: u8 = 0;
/// Words in front of a block's values: sum of codes, sum of squares, votes.
pub(super) const HEADER_WORDS: usize = 3;
/// Words in which the workers count the codes that they need.
pub(super) const COUNT_WORDS: usize = (CODE_MAX as usize + 1).div_ceil(COUNTS_PER_WORD);

/// Bits of a count: at most 1,023 workers.
const COUNT_BITS: u32 = 10;
const COUNTS_PER_WORD: usize = 3;
/// Distance between a worker's scale and that of its values, in powers of two, at which it votes for a jump.
const JUMP: u8 = 4;

/// Unit of a code's values.
pub(super) fn unit(code: u8) -> f64 {
    f64::from_bits((u64::from(code) + 1023 - 127) << 52)
}

/// Smallest code with which values up to `largest` are at most `limit` units.
pub(super) fn needed(largest: f32, limit: i32) -> u8 {
    let ratio = f64::from(largest) / f64::from(limit.max(1));
    let bits = ratio.to_bits();
    let exponent = (bits >> 52) as i32 - 1023 + i32::from(bits << 12 != 0);
    (exponent + 127).clamp(1, i32::from(CODE_MAX)) as u8
}

/// Whether a worker whose values need `needed` uses this code: it clips values up to twice too large, and keeps the
/// rest for the next step. With larger ones, it uses no code, so that all workers count.
pub(super) fn fits(code: u8, needed: u8) -> bool {
    code != NO_CODE && needed <= code.saturating_add(1)
}

/// Header of a worker's block.
pub(super) fn header(code: u8, needed: u8) -> [i32; HEADER_WORDS] {
    let clips = needed > code;
    let room = u32::from(needed < code);
    let jump = u32::from(needed.saturating_add(JUMP) <= code);
    let votes = u32::from(clips) | room << COUNT_BITS | jump << (2 * COUNT_BITS);
    let code = i32::from(code);
    [code, code * code, if code == 0 { 0 } else { votes as i32 }]
}

/// Code that all workers used, from the sums of their headers.
pub(super) fn agreed(header: &[i64], workers: u32) -> Option<u8> {
    let (&[sum, squares, _], workers) = (header.first_chunk()?, i64::from(workers.max(1)));
    let equal = workers.checked_mul(squares)? == sum.checked_mul(sum)? || mutant::on(Mutant::ScalesUnchecked);
    let code = u8::try_from(sum / workers).ok().filter(|code| (1..=CODE_MAX).contains(code))?;
    equal.then_some(code)
}

/// Code of the next step, from the sums of the headers of this one.
pub(super) fn moved(code: u8, header: &[i64], workers: u32) -> u8 {
    let votes = header.get(2).copied().unwrap_or_default();
    let count = |at: u32| (votes >> (at * COUNT_BITS)) & ((1 << COUNT_BITS) - 1);
    let all = i64::from(workers);
    let down = match () {
        () if count(0) > 0 => return code.saturating_add(1).min(CODE_MAX),
        () if count(2) == all => JUMP,
        () if count(1) == all => 1,
        () => 0,
    };
    code.saturating_sub(down).max(1)
}

/// Words in which a worker counts the code that it needs.
pub(super) fn count(needed: u8) -> [i32; COUNT_WORDS] {
    let mut words = [0; COUNT_WORDS];
    let at = usize::from(needed);
    words[at / COUNTS_PER_WORD] = 1 << (COUNT_BITS * (at % COUNTS_PER_WORD) as u32);
    words
}

/// Largest code that a worker needs, from the sums of the counts.
pub(super) fn largest(counts: &[i64]) -> Option<u8> {
    let (at, word) = counts.iter().enumerate().rev().find(|(_, word)| **word > 0)?;
    let code = at * COUNTS_PER_WORD + (word.ilog2() / COUNT_BITS) as usize;
    u8::try_from(code).ok().filter(|code| (1..=CODE_MAX).contains(code))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sums<const N: usize>(parts: impl IntoIterator<Item = [i32; N]>) -> [i64; N] {
        let mut sums = [0; N];
        for part in parts {
            sums.iter_mut().zip(part).for_each(|(sum, word)| *sum += i64::from(word));
        }
        sums
    }

    #[test]
    fn needed_code_is_smallest_that_fits() {
        for (largest, limit) in [(1.0, 1), (1.0, 63), (63.0, 63), (64.0, 63), (1e-3, 15), (3e38, 127), (1e-45, 32767)] {
            let code = needed(largest, limit);
            assert!(f64::from(largest) <= f64::from(limit) * unit(code), "{largest} / {limit}");
            assert!(code == 1 || f64::from(largest) > f64::from(limit) * unit(code - 1), "{largest} / {limit}");
        }
        assert_eq!(needed(0.0, 63), 1);
        assert_eq!(needed(f32::MAX, 1), CODE_MAX);
    }

    #[test]
    fn scale_moves_by_votes_of_all() {
        let moved_by = |needs: &[u8]| {
            let header = sums(needs.iter().map(|needed| header(100, *needed)));
            assert_eq!(agreed(&header, needs.len() as u32), Some(100));
            moved(100, &header, needs.len() as u32)
        };
        assert_eq!(moved_by(&[100, 90, 99]), 100, "one fills the range");
        assert_eq!(moved_by(&[101, 90, 99]), 101, "one clips");
        assert_eq!(moved_by(&[98, 90, 99]), 99, "all have room");
        assert_eq!(moved_by(&[96, 90, 1]), 96, "all have much room");
    }

    #[test]
    fn worker_without_scale_votes_for_nothing() {
        assert_eq!(header(NO_CODE, 200), [0, 0, 0]);
        assert_eq!(agreed(&sums([header(NO_CODE, 9); 3]), 3), None);
    }

    proptest! {
        #[test]
        fn codes_are_agreed_if_equal(codes in proptest::collection::vec(0u8..=CODE_MAX, 1..70), same: bool) {
            let codes: Vec<u8> = if same { vec![codes[0]; codes.len()] } else { codes };
            let header = sums(codes.iter().map(|code| header(*code, 1)));
            let equal = codes.iter().all(|code| *code == codes[0] && *code != NO_CODE);
            prop_assert_eq!(agreed(&header, codes.len() as u32), equal.then_some(codes[0]));
        }

        #[test]
        fn largest_needed_code_is_found(codes in proptest::collection::vec(1u8..=CODE_MAX, 1..1023)) {
            let counts = sums(codes.iter().map(|code| count(*code)));
            prop_assert_eq!(largest(&counts), codes.iter().max().copied());
        }
    }
}
