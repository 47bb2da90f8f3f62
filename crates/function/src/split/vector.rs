//! How much a target's header vector has to hold.
//!
//! A packet header vector "serves to convey information from headers and metadata, including temporary values or
//! intermediate results, passing through the pipeline" (CLIP §III); 200 bytes of it are what the paper reckons with
//! (§IV-C). Counted here, in bits, at every statement from the ingress to the deparser, the most of:
//!
//! - fields of headers that a packet may have there, those of the compiler's own headers included: from the parser, or from
//!   where they are written first, to where they are needed last. What leaves is needed up to the deparser;
//! - metadata, variables, parameters of requests, responses and actions: from where they are written to their last reader.
//!
//! Headers that no packet has together (ARP and IPv4, TCP and UDP) share room: each way through the parser is counted by
//! itself, with what the program may turn on. Not counted: what a target loses by laying values out in words of 8, 16 and
//! 32 bits, and what its parser holds.

use std::collections::HashSet;

use super::find::targets;
use super::flow::{self, Places};
use crate::ir::{Block, HeaderId, Program, StateId, StmtKind};

/// Ways through a parser that are told apart; beyond that, all its headers are counted at once.
const WAYS_MAX: usize = 4096;

/// The most bits that a program's header vector has to hold at once. `aligned`: request and response of a split function,
/// which are the same bytes of a frame (§IV-B).
pub fn bits(program: &Program, aligned: Option<(HeaderId, HeaderId)>) -> u32 {
    let mut kinds = kinds(program);
    if let Some((request, response)) = aligned {
        kinds.iter_mut().filter(|kind| kind.has_valid(response)).for_each(|kind| kind.remove_valid(request));
    }
    kinds.iter().map(|kind| flow::peak_bits(program, kind)).max().unwrap_or(0)
}

/// The sets of headers that packets may have; none lies within another.
fn kinds(program: &Program) -> Vec<Places> {
    let mut always = Places::none(program);
    let blocks = [&program.ingress, &program.egress, &program.compute];
    let turned_on = |block: &Block, places: &mut Places| {
        flow::walk(program, block, &mut |stmt| {
            if let StmtKind::SetValid { header, valid: true } = stmt.kind {
                places.add_valid(header);
            }
        });
    };
    blocks.into_iter().for_each(|block| turned_on(block, &mut always));
    if program.parser.states.is_empty() {
        return vec![always];
    }
    let (mut seen, mut waiting, mut ends) = (HashSet::new(), vec![(StateId(0), always.clone())], Vec::new());
    while let Some((state, mut headers)) = waiting.pop() {
        let of = &program.parser.states[state.0 as usize];
        for stmt in flow::flat(program, &of.body) {
            if let StmtKind::Extract { header, .. } = stmt.kind {
                headers.add_valid(header);
            }
        }
        turned_on(&of.body, &mut headers);
        if !seen.insert((state, headers.clone())) {
            continue;
        }
        if seen.len() > WAYS_MAX {
            (0..program.headers.len() as u32).for_each(|header| always.add_valid(HeaderId(header)));
            return vec![always];
        }
        // Any state may be the last one: a packet may be too short for the next.
        let next = targets(&of.next);
        waiting.extend(next.into_iter().map(|to| (StateId(to as u32), headers.clone())));
        ends.push(headers);
    }
    let within = |one: &Places, other: &Places| {
        let mut rest = one.clone();
        rest.subtract(other);
        rest.is_empty()
    };
    let mut largest: Vec<Places> = Vec::new();
    for headers in ends {
        if !largest.iter().any(|known| within(&headers, known)) {
            largest.retain(|known| !within(known, &headers));
            largest.push(headers);
        }
    }
    largest
}
