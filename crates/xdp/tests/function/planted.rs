//! Mutation tests of the emitted C: the comparison with the interpreter finds each planted mistake.

use pathcall_function_testing::random::{Choices, ProgramLimits, first_difference, program, steps};
use pathcall_p4::emit::xdp::{EmitOptions, Emitted, Storage, emit};
use pathcall_p4::interp::Interpreter;
use pathcall_wire::SplitMix64;
use pathcall_xdp::function::{Config, Error, XdpFunction};

/// Seed of a program that shows the mistake, its name, the original text, and the replacement.
const MISTAKES: &[(u64, &str, &str, &str)] = &[
    (12, "a header that is cut short is refused too early", "> end) {", "+ 1 > end) {"),
    (11, "a parser's error is forgotten", "error = 1;", "error = 0;"),
    (5, "a select looks at no case", "if (on_", "if (0 && on_"),
    (6, "a field of a header that is not valid is written", "if (v->off_hdr_h0 != NOWHERE) {", "if (1) {"),
    (19, "a sum saturates nowhere", "return sum < a || sum > most ? most : sum;", "return sum & most;"),
    (5, "a difference saturates nowhere", "return a > b ? a - b : 0;", "return (a - b) & mask_of(width);"),
    (639, "signs are forgotten where numbers grow", "return sub128(x ^ sign, sign);", "return x;"),
    (37, "a product of wide numbers lacks a part", "+ al * bh + ah * bl", "+ al * bh"),
    (26, "a shift is modulo the width", "return by >= width ? 0 : x << by;", "return x << (by & 63);"),
    (1468, "a wide shift is modulo the width", "return (u128)(low << (by - 64)) << 64;", "return low << (by - 64);"),
    (6, "a checksum does not carry", "sum = (sum & 0xffffffff) + (sum >> 32);", "sum = (sum & 0xffff);"),
    (5, "a checksum is not turned over", "hash = ~fold(hash) & 0xffff;", "hash = fold(hash) & 0xffff;"),
    (6, "a payload's last byte is left out", "sum += *(__u8 *)(data + at);", ";"),
    (17, "a crc begins with nothing", "__u32 crc = 0xffffffff;", "__u32 crc = 0;"),
    (9, "a miss runs nothing", "_default, &only);", "_default, &only), e = 0;"),
    (56, "a hit leaves no mark", "e->used = 1;", ";"),
    (71, "a hit is not told", "= !!e;", "= 0;"),
    (270, "an action's number is not told", "= e->action;", "= 0;"),
    (31, "a counter counts no bytes", "cell->bytes += length;", ";"),
    (99, "a register keeps what was written before", "\t*cell = ", "\t*cell |= "),
    (114, "a step of a register tells nothing", "\tafter = ", "\tafter = 0 & "),
    (5, "an exit goes on", "goto ingress_done;", ";"),
    (115, "a return leaves nothing", "goto body_", "if (0) goto body_"),
    (17, "headers that moved stay", "if (!v->same) {", "if (0) {"),
    (114, "a new header has what was there before", " = FRESH;", " = 0;"),
    (17, "the payload begins where it began", "longer = (int)v->place - (int)v->cur;", "longer = 0;"),
    (898, "a varbit field is left out", "v->same &= v->off", "v->same = v->off"),
    (45, "a packet is not cut", "adjust_tail(xdp, (int)v->keep - (int)length)", "adjust_tail(xdp, 0)"),
    (17, "a packet comes in once more as itself", "turn ? 4 : 0", "0"),
    (10, "a packet comes in once more too often", "if (turn >= 8)", "if (turn >= 9)"),
    (9, "the time is one off", "return tested.now_us;", "return tested.now_us + 1;"),
    (5, "a digest lacks a value", "told->value_0 = ", "told->value_0 = 1 | "),
];

const LIMITS: ProgramLimits = ProgramLimits { copies: false, generated: true };
/// Steps of each program.
const STEPS: usize = 60;
/// Most programs until a mistake has to be found.
const PROGRAMS: u64 = 2_000;

/// Whether the text contains `mistake` in a function that is called.
fn used(text: &str, mistake: &str) -> bool {
    const HEAD: &str = "static __always_inline ";
    let Some(at) = text.find(mistake) else { return false };
    let Some(head) = text[..at].rfind(HEAD) else { return true };
    let name = text[head..].split('(').next().and_then(|head| head.split([' ', '*']).next_back());
    name.is_none_or(|name| text.matches(&format!("{name}(")).count() > 1)
}

/// Whether the mistake shows in the program of this seed; `None` if it cannot be planted there.
fn planted(mistake: &str, instead: &str, seed: u64) -> Result<Option<bool>, Error> {
    let mut random = SplitMix64::new(seed);
    let bytes: Vec<u8> = (0..1500).map(|_| random.bits() as u8).collect();
    let (mut of_program, mut of_steps) = Choices::new(&bytes).split(160);
    let program = program(&mut of_program, LIMITS);
    let emitted = emit(&program, EmitOptions { storage: Storage::Scratch })?;
    if !used(&emitted.text, mistake) {
        return Ok(None);
    }
    let emitted = Emitted { text: emitted.text.replace(mistake, instead), ..emitted };
    let config = Config { testing: true, local_port: None, storage: None };
    let mut kernel = match XdpFunction::load_text(&program, &config, emitted) {
        // A mistake that the verifier refuses does not count as found.
        Err(Error::Refused(_)) => return Ok(None),
        loaded => loaded?,
    };
    let steps = steps(&program, &mut of_steps, STEPS);
    let mut reference = Interpreter::new(&program).expect("well-typed");
    Ok(Some(first_difference(&program, &steps, &mut reference, &mut kernel).is_some()))
}

#[test]
fn every_planted_mistake_is_found() {
    if super::permitted(planted("SPDX", "SPDX", 1)).is_none() {
        return;
    }
    let mut missed = Vec::new();
    for (first, what, mistake, instead) in MISTAKES {
        let tried = |seed: &u64| planted(mistake, instead, *seed).unwrap_or_else(|error| panic!("{what}: {error}"));
        // All seeds are tried, in case the generator has changed.
        let found = [*first].into_iter().chain(1..=PROGRAMS).find(|seed| tried(seed) == Some(true));
        println!("{what}: seed {found:?}");
        missed.extend(found.is_none().then_some(*what));
    }
    assert!(missed.is_empty(), "not found in {PROGRAMS} programs: {missed:#?}");
}

#[test]
fn unmodified_program_has_no_differences() {
    if super::permitted(planted("SPDX", "SPDX", 1)).is_none() {
        return;
    }
    for seed in 1..=20 {
        let found = planted("SPDX", "SPDX", seed).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found, Some(false), "seed {seed}");
    }
}
