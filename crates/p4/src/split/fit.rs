//! Choice of the values to postpone, so that the element fits the target's header vector (CLIP §IV-C).

use super::call_site::IngressParts;
use super::carried::carried;
use super::postpone::{self, PostponeChoice};
use super::report::SplitReport;
use super::{SplitError, SplitFunction, SplitTarget, SplitWarning, element, vector};
use crate::ir::{HandlerDecl, Program, SlotId};

/// Number of headers that an error lists.
const NAMED: usize = 3;

/// Element that fits the target.
pub struct Fitted {
    /// Function with its values postponed.
    pub of: postpone::PostponedFunction,
    /// Element.
    pub made: element::BuiltElement,
    /// Size of the element's header vector, bits.
    pub bits: u32,
    /// Size of the header vector without postponed values, bits.
    pub bits_whole: u32,
}

impl Fitted {
    /// Completes the split with the handler and the warnings.
    pub fn finish(self, handler: HandlerDecl, warnings: Vec<SplitWarning>) -> SplitFunction {
        let Self { of, made, bits, bits_whole } = self;
        let report = SplitReport::new(&of, warnings).of(&made.program, &made.layout, (bits_whole, bits));
        let (element, layout, generated) = (made.program, made.layout, made.generated);
        SplitFunction { element, layout, handler, on_server: of.on_server, generated, report }
    }
}

/// Postpones all candidates, needed or not.
pub fn postpone_all(program: &Program, parts: &IngressParts, target: &SplitTarget) -> Fitted {
    let carried = carried(program, parts);
    let all = postpone::candidates(program, parts, &carried);
    let of = postpone::postpone(program, parts, &carried, &all);
    let made = element::element(&of, target);
    let bits = vector::bits(&made.program, made.aligned);
    Fitted { of, bits, bits_whole: bits, made }
}

/// Builds an element that fits. Values are postponed only if necessary, the largest first, and as few as possible.
///
/// # Errors
/// [`SplitError::Phv`] if the element does not fit with all values postponed.
pub fn fit_to_target(program: &Program, parts: &IngressParts, target: &SplitTarget) -> Result<Fitted, SplitError> {
    let carried = carried(program, parts);
    let finish = |of: postpone::PostponedFunction| {
        let made = element::element(&of, target);
        let bits = vector::bits(&made.program, made.aligned);
        Fitted { of, bits, bits_whole: bits, made }
    };
    let make = |values: &[PostponeCandidate]| finish(postpone::postpone(program, parts, &carried, &to_choice(values)));
    let whole = finish(postpone::PostponedFunction::whole(program, parts, &carried));
    let (bits_whole, Some(limit)) = (whole.bits, target.phv_bits.filter(|limit| whole.bits > *limit)) else {
        return Ok(whole);
    };
    let (mut values, mut best) = (Vec::new(), whole);
    for value in sort_widest_first(program, postpone::candidates(program, parts, &carried)) {
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
        return Err(SplitError::Phv {
            needed,
            whole: bits_whole,
            bits: limit,
            postponed,
            largest: list_largest_headers(program),
        });
    }
    // Removes values whose postponement has no effect.
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

/// Checks that a program with a header vector of `needed` bits fits.
///
/// # Errors
/// [`SplitError::Phv`] if it does not fit.
pub fn check_fit(program: &Program, needed: u32, target: &SplitTarget) -> Result<(), SplitError> {
    match target.phv_bits.filter(|bits| needed > *bits) {
        None => Ok(()),
        Some(bits) => {
            Err(SplitError::Phv { needed, whole: needed, bits, postponed: 0, largest: list_largest_headers(program) })
        }
    }
}

/// Text of the size without postponed values, for the error.
pub fn describe_saving(whole: u32, postponed: usize) -> String {
    match postponed {
        0 => String::new(),
        count => format!(" ({} B without postponement of {count} values)", whole.div_ceil(8)),
    }
}

/// Value that can be postponed: to the part after the call, or to the server.
#[derive(Debug, Clone, Copy)]
enum PostponeCandidate {
    After(SlotId),
    Server(SlotId),
}

fn sort_widest_first(program: &Program, of: PostponeChoice) -> Vec<PostponeCandidate> {
    let (after, server) =
        (of.after.into_iter().map(PostponeCandidate::After), of.server.into_iter().map(PostponeCandidate::Server));
    let mut all: Vec<PostponeCandidate> = after.chain(server).collect();
    all.sort_by_key(|(PostponeCandidate::After(slot) | PostponeCandidate::Server(slot))| {
        std::cmp::Reverse(program.width(*slot))
    });
    all
}

fn to_choice(values: &[PostponeCandidate]) -> PostponeChoice {
    let mut choice = PostponeChoice::default();
    for value in values {
        match value {
            PostponeCandidate::After(slot) => choice.after.push(*slot),
            PostponeCandidate::Server(slot) => choice.server.push(*slot),
        }
    }
    choice
}

/// Text that lists the largest headers of a program.
fn list_largest_headers(program: &Program) -> String {
    let bits = |fields: &[SlotId]| fields.iter().map(|slot| u32::from(program.width(*slot))).sum::<u32>();
    let mut all: Vec<(u32, &str)> = program.headers.iter().map(|h| (bits(&h.fields), h.name.as_str())).collect();
    all.sort_by_key(|(bits, _)| std::cmp::Reverse(*bits));
    let named = all.iter().take(NAMED).map(|(bits, name)| format!("{name}, {} B", bits / 8));
    named.collect::<Vec<_>>().join("; ")
}
