//! Postpones values until the element fits its target's header vector (CLIP §IV-C).

use super::carried::carried;
use super::find::Parts;
use super::postpone::{self, Choice};
use super::report::Report;
use super::{Refused, Split, Target, Warning, element, vector};
use crate::ir::{Handler, Program, SlotId};

/// How many of the largest headers an error names.
const NAMED: usize = 3;

/// An element that fits.
pub struct Fitted {
    /// What it was made of.
    pub of: postpone::Made,
    /// The element.
    pub made: element::Made,
    /// What its header vector has to hold.
    pub bits: u32,
    /// What it would have to hold if nothing were postponed.
    pub bits_whole: u32,
}

impl Fitted {
    /// With the handler, and what is told of it.
    pub fn finish(self, handler: Handler, warnings: Vec<Warning>) -> Split {
        let Self { of, made, bits, bits_whole } = self;
        let report = Report::new(&of, warnings).of(&made.program, &made.layout, (bits_whole, bits));
        let (element, layout, generated) = (made.program, made.layout, made.generated);
        Split { element, layout, handler, on_server: of.on_server, generated, report }
    }
}

/// All that can be postponed is, whether it helps or not.
pub fn postpone_all(program: &Program, parts: &Parts, target: &Target) -> Fitted {
    let carried = carried(program, parts);
    let all = postpone::candidates(program, parts, &carried);
    let of = postpone::postpone(program, parts, &carried, &all);
    let made = element::element(&of, target);
    let bits = vector::bits(&made.program, made.aligned);
    Fitted { of, bits, bits_whole: bits, made }
}

/// Makes the element. Nothing is postponed if it fits as it is; else the largest values first, and no more than it takes.
///
/// # Errors
/// [`Refused::Phv`] if nothing helps.
pub fn fit(program: &Program, parts: &Parts, target: &Target) -> Result<Fitted, Refused> {
    let carried = carried(program, parts);
    let finish = |of: postpone::Made| {
        let made = element::element(&of, target);
        let bits = vector::bits(&made.program, made.aligned);
        Fitted { of, bits, bits_whole: bits, made }
    };
    let make = |values: &[Value]| finish(postpone::postpone(program, parts, &carried, &choice(values)));
    let whole = finish(postpone::Made::whole(program, parts, &carried));
    let (bits_whole, Some(limit)) = (whole.bits, target.phv_bits.filter(|limit| whole.bits > *limit)) else {
        return Ok(whole);
    };
    let (mut values, mut best) = (Vec::new(), whole);
    for value in widest_first(program, postpone::candidates(program, parts, &carried)) {
        values.push(value);
        let made = make(&values);
        if made.bits <= best.bits {
            best = made;
        } else {
            values.pop();
        }
        if best.bits <= limit {
            break;
        }
    }
    if best.bits > limit {
        let (needed, postponed) = (best.bits, values.len());
        return Err(Refused::Phv { needed, whole: bits_whole, bits: limit, postponed, largest: largest(program) });
    }
    // Some made no difference, or none any more.
    for at in (0..values.len()).rev() {
        let value = values.remove(at);
        let made = make(&values);
        if made.bits <= limit {
            best = made;
        } else {
            values.insert(at, value);
        }
    }
    Ok(Fitted { bits_whole, ..best })
}

/// Whether a program that needs so many bits as it is fits.
///
/// # Errors
/// [`Refused::Phv`] if not.
pub fn fits(program: &Program, needed: u32, target: &Target) -> Result<(), Refused> {
    match target.phv_bits.filter(|bits| needed > *bits) {
        None => Ok(()),
        Some(bits) => Err(Refused::Phv { needed, whole: needed, bits, postponed: 0, largest: largest(program) }),
    }
}

/// What it was before, in words.
pub fn before(whole: u32, postponed: usize) -> String {
    match postponed {
        0 => String::new(),
        count => format!(" ({} B before {count} were postponed)", whole.div_ceil(8)),
    }
}

/// A value that can be postponed: for the part behind, or for the server.
#[derive(Debug, Clone, Copy)]
enum Value {
    Behind(SlotId),
    Server(SlotId),
}

fn widest_first(program: &Program, of: Choice) -> Vec<Value> {
    let (behind, server) = (of.behind.into_iter().map(Value::Behind), of.server.into_iter().map(Value::Server));
    let mut all: Vec<Value> = behind.chain(server).collect();
    all.sort_by_key(|(Value::Behind(slot) | Value::Server(slot))| std::cmp::Reverse(program.width(*slot)));
    all
}

fn choice(values: &[Value]) -> Choice {
    let mut choice = Choice::default();
    for value in values {
        match value {
            Value::Behind(slot) => choice.behind.push(*slot),
            Value::Server(slot) => choice.server.push(*slot),
        }
    }
    choice
}

/// The largest headers of a program, in words.
fn largest(program: &Program) -> String {
    let bits = |fields: &[SlotId]| fields.iter().map(|slot| u32::from(program.width(*slot))).sum::<u32>();
    let mut all: Vec<(u32, &str)> = program.headers.iter().map(|h| (bits(&h.fields), h.name.as_str())).collect();
    all.sort_by_key(|(bits, _)| std::cmp::Reverse(*bits));
    let named = all.iter().take(NAMED).map(|(bits, name)| format!("{name}, {} B", bits / 8));
    named.collect::<Vec<_>>().join("; ")
}
