//! Tests of a network under attack: honest callers check each of their answers while a hostile client that knows the
//! protocol attacks.
//!
//! ```text
//! honest callers ─┬─ gRPC ─► server: maps, a pool, delegated handlers ◄── RPCs, metadata, floods ── hostile client
//!                 └─ UDP ──► relay ─► element                         ◄── frames, also recorded ones ─┘
//! ```
//!
//! `network` is the victim, `honest` the callers that are served meanwhile. `attack` lists the kinds of attack and
//! counts outcomes. `peer` forges calls of the service Peer and metadata, `frames` frames of *map* and *clone*,
//! `messages` those of *delegate*. `flood` exhausts resources, `control` sends garbage to controller and element, `raw`
//! builds HTTP/2 by hand. `relay` is another network, with a forger between hosts and element.
//!
//! Random choices come from a printed seed; `PATHCALL_HOSTILE_SEED` sets it. `PATHCALL_HOSTILE_S` sets the seconds of
//! attack, and `PATHCALL_HOSTILE_ONLY` limits them to one kind.

mod attack;
mod control;
mod flood;
mod frames;
mod honest;
mod messages;
mod network;
mod peer;
mod raw_http2;
mod relay;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pathcall_test_support::HANG;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::bad_input::flood::resident;
use crate::isolation::{LIMIT, is_alone};
use attack::{Attack, Hostile};
use honest::Honest;
use network::Network;

/// Least number of rounds, each of which tries every kind of attack.
const ROUNDS_MIN: u64 = 1;
/// Limit of the memory growth of this process, which runs all parties and the hostile client, in bytes.
const GROWTH_MAX: u64 = 256 << 20;
/// Descriptors that may be left, of connections that come and go.
const DESCRIPTORS_SLACK: usize = 16;
/// Pause between two checks of an expected end state.
const PAUSE: Duration = Duration::from_millis(20);

/// Panics of any thread.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts panics from now on, besides the usual report.
fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(panic);
    }));
}

/// Waits for a condition, and fails if any thread panics meanwhile.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a thread panicked");
        assert!(began.elapsed() < HANG, "{what}");
        tokio::time::sleep(PAUSE).await;
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().map_or(or, |text| text.parse().expect("a number"))
}

/// Attacks for a time, or for a few rounds. With `tokens`, frames carry tokens.
async fn play(tokens: bool, time: Duration) {
    count_panics();
    let seed = number("PATHCALL_HOSTILE_SEED", 1);
    println!("PATHCALL_HOSTILE_SEED={seed}");
    let network = Network::start(tokens).await;
    let honest = Honest::start(&network).await;
    honest.served_again().await;
    let before = descriptors();
    let mut hostile = Hostile::new(&network, &honest, StdRng::seed_from_u64(seed)).await;
    let only = std::env::var("PATHCALL_HOSTILE_ONLY").ok();
    let (began, warm, mut rounds, mut grown) = (Instant::now(), resident(), 0, 0);
    while rounds < ROUNDS_MIN || began.elapsed() < time {
        let mut kinds = Attack::ALL.to_vec();
        kinds.retain(|kind| only.as_ref().is_none_or(|only| *only == format!("{kind:?}")));
        kinds.shuffle(&mut hostile.random);
        for kind in kinds {
            hostile.attack(kind).await;
            honest.served_again().await;
        }
        rounds += 1;
        grown = resident().saturating_sub(warm);
        println!("{rounds} rounds in {:?}, grown by {} KiB", began.elapsed(), grown >> 10);
    }
    println!("{:#?}\n{:#?}", hostile.tally, network.refusals(&honest).await);
    if only.is_none() {
        hostile.tally.check();
    }
    drop(hostile);
    until("members are left", || network.members() == honest.members()).await;
    until("descriptors are left", || descriptors() <= before + DESCRIPTORS_SLACK).await;
    assert!(grown < GROWTH_MAX, "grown by {grown} bytes");
    honest.served_again().await;
    honest.end(&network).await;
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a thread panicked");
}

async fn play_for_as_long_as_is_said(tokens: bool) {
    let time = Duration::from_secs(number("PATHCALL_HOSTILE_S", 0));
    tokio::time::timeout(time + LIMIT, play(tokens, time)).await.expect("the test finishes in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honest_callers_are_unharmed_beside_a_hostile_client_with_tokens() {
    // The test measures memory, descriptors and panics of its process.
    if is_alone("hostile::honest_callers_are_unharmed_beside_a_hostile_client_with_tokens") {
        play_for_as_long_as_is_said(true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honest_callers_are_unharmed_beside_a_hostile_client_without_tokens() {
    if is_alone("hostile::honest_callers_are_unharmed_beside_a_hostile_client_without_tokens") {
        play_for_as_long_as_is_said(false).await;
    }
}
