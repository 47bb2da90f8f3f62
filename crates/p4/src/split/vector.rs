//! Size of the packet header vector that a program needs.
//!
//! A packet header vector "serves to convey information from headers and metadata, including temporary values or
//! intermediate results, passing through the pipeline" (CLIP §III); the paper assumes 200 bytes (§IV-C). This module
//! counts the live bits at each statement from the ingress to the deparser and takes the maximum of:
//!
//! - header fields, those of generated headers included: from the parser, or from the first write, to the last use.
//!   Headers that are emitted are in use up to the deparser;
//! - metadata, variables, and parameters of requests, responses and actions: from a write to the last read.
//!
//! Headers that no packet has together (ARP and IPv4, TCP and UDP) share space: each path through the parser is counted
//! separately, with the headers that the program may add. Not counted: fragmentation from containers of 8, 16 and 32
//! bits, and the state of the parser.

use std::collections::HashSet;

use super::call_site::target_states;
use super::liveness::{self, PlaceSet};
use crate::ir::{Block, HeaderId, Program, StateId, StmtKind};

/// Largest number of paths through a parser that are counted separately; beyond it all headers are counted together.
const WAYS_MAX: usize = 4096;

/// Largest number of simultaneously live bits in a program's header vector. `aligned` names the parameter headers of
/// request and response, which occupy the same bytes of a frame (§IV-B).
pub fn bits(program: &Program, aligned: Option<(HeaderId, HeaderId)>) -> u32 {
    let mut kinds = kinds(program);
    if let Some((request, response)) = aligned {
        kinds.iter_mut().filter(|kind| kind.has_valid(response)).for_each(|kind| kind.remove_valid(request));
    }
    kinds.iter().map(|kind| liveness::peak_bits(program, kind)).max().unwrap_or(0)
}

/// Maximal sets of headers that packets may have.
fn kinds(program: &Program) -> Vec<PlaceSet> {
    let mut always = PlaceSet::none(program);
    let blocks = [&program.ingress, &program.egress, &program.compute];
    let turned_on = |block: &Block, places: &mut PlaceSet| {
        liveness::visit_statements(program, block, &mut |stmt| {
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
        for stmt in liveness::flatten(program, &of.body) {
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
        // A packet may end before the next state's header, so any state can be the last.
        let next = target_states(&of.next);
        waiting.extend(next.into_iter().map(|to| (StateId(to as u32), headers.clone())));
        ends.push(headers);
    }
    let within = |one: &PlaceSet, other: &PlaceSet| {
        let mut rest = one.clone();
        rest.subtract(other);
        rest.is_empty()
    };
    let mut largest: Vec<PlaceSet> = Vec::new();
    for headers in ends {
        if !largest.iter().any(|known| within(&headers, known)) {
            largest.retain(|known| !within(known, &headers));
            largest.push(headers);
        }
    }
    largest
}
