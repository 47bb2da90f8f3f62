//! Behaviour of cache eviction on a stream of words whose frequent words change.

use pathcall_endpoint::map::server::EvictionPolicy;
use pathcall_models::caching::{PARTS, REGISTERS, RegisterRule, Stream, hits};
use pathcall_sim::map::MapOutcome;

const STEADY: Stream = Stream { skew: 1.0, drifts: 0, calls: 500 };
const DRIFTING: Stream = Stream { drifts: PARTS - 1, ..STEADY };

fn play(stream: Stream, eviction: Option<EvictionPolicy>) -> MapOutcome {
    let outcome = stream.play(eviction);
    assert_eq!(outcome.failure, None);
    outcome
}

#[test]
fn new_hot_words_replace_former_hot_words() {
    let (first_come, replaced) = (play(DRIFTING, None), play(DRIFTING, Some(EvictionPolicy::default())));
    assert_eq!(first_come.counts.keys_evicted, 0);
    assert!(hits(&replaced) >= 3.0 * hits(&first_come), "{}, {}", hits(&replaced), hits(&first_come));
}

#[test]
fn steady_hot_words_replace_first_words() {
    let (first_come, replaced) = (play(STEADY, None), play(STEADY, Some(EvictionPolicy::default())));
    assert!(hits(&replaced) >= hits(&first_come) + 0.08, "{}, {}", hits(&replaced), hits(&first_come));
    // Afterwards the words keep their registers.
    let evicted = replaced.counts.keys_evicted;
    assert!(evicted < u64::from(REGISTERS), "{evicted}");
}

#[test]
fn equally_used_words_keep_registers() {
    let stream = Stream { skew: 0.0, ..STEADY };
    let (evicted, windows) =
        (play(stream, Some(EvictionPolicy::default())).counts.keys_evicted, PARTS * stream.calls / 100);
    assert!(evicted <= windows, "{evicted} of {REGISTERS} registers in {windows} windows");
}

/// The model of a rule agrees with the network: first come, first served has the same hit ratio in both.
#[test]
fn rule_model_matches_network_hit_ratio() {
    for stream in [STEADY, DRIFTING] {
        let (model, network) = (stream.hit_ratio_by_rule(RegisterRule::MoreThan(0)), hits(&play(stream, None)));
        assert!((model - network).abs() < 0.03, "{stream:?}: {model} by the model, {network} in the network");
    }
}
