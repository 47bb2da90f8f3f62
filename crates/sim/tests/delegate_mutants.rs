//! Mistakes planted in delegate, one at a time: each is caught.

mod planted;

use pathcall_sim::delegate::Sim;
use pathcall_wire::Mutant;

/// Seeds within which every mistake shows.
const SEEDS: u64 = 2_000;

#[test]
fn every_planted_mistake_is_caught() {
    planted::each_is_caught::<Sim>(Mutant::DELEGATE.iter().copied(), SEEDS);
}
