//! What the element has to do with a stream of words whose hot ones change.

use pathcall_endpoint::map::server::Eviction;
use pathcall_models::caching::{PARTS, REGISTERS, Rule, Stream, hits};
use pathcall_sim::Outcome;

const STEADY: Stream = Stream { skew: 1.0, drifts: 0, calls: 500 };
const DRIFTING: Stream = Stream { drifts: PARTS - 1, ..STEADY };

fn play(stream: Stream, eviction: Option<Eviction>) -> Outcome {
    let outcome = stream.play(eviction);
    assert_eq!(outcome.failure, None);
    outcome
}

#[test]
fn hot_words_get_the_registers_of_words_that_were_hot() {
    let (first_come, replaced) = (play(DRIFTING, None), play(DRIFTING, Some(Eviction::default())));
    assert_eq!(first_come.tally.keys_evicted, 0);
    assert!(hits(&replaced) >= 3.0 * hits(&first_come), "{}, {}", hits(&replaced), hits(&first_come));
}

#[test]
fn words_that_stay_hot_get_the_registers_of_those_that_came_first() {
    let (first_come, replaced) = (play(STEADY, None), play(STEADY, Some(Eviction::default())));
    assert!(hits(&replaced) >= hits(&first_come) + 0.08, "{}, {}", hits(&replaced), hits(&first_come));
    // And then they stay.
    let evicted = replaced.tally.keys_evicted;
    assert!(evicted < u64::from(REGISTERS), "{evicted}");
}

#[test]
fn words_that_are_used_alike_keep_their_registers() {
    let stream = Stream { skew: 0.0, ..STEADY };
    let (evicted, windows) = (play(stream, Some(Eviction::default())).tally.keys_evicted, PARTS * stream.calls / 100);
    assert!(evicted <= windows, "{evicted} of {REGISTERS} registers in {windows} windows");
}

/// What others' rules are held to is no straw man: by its model, who comes first has as many hits as in the network.
#[test]
fn a_rule_has_the_hits_that_it_has_in_the_network() {
    for stream in [STEADY, DRIFTING] {
        let (model, network) = (stream.by_rule(Rule::MoreThan(0)), hits(&play(stream, None)));
        assert!((model - network).abs() < 0.03, "{stream:?}: {model} by the model, {network} in the network");
    }
}
