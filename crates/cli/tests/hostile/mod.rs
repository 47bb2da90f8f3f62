//! A network under attack: honest callers, each of whose answers is checked, and a hostile client that knows the protocol.
//!
//! ```text
//! honest callers ─┬─ gRPC ─► server: maps, a pool, delegated handlers ◄── RPCs, metadata, floods ── hostile client
//!                 └─ UDP ──► relay ─► element                         ◄── frames, also recorded ones ─┘
//! ```
//!
//! `network` is who is attacked, `honest` who is served meanwhile. `attack` names the kinds of attack and counts what became
//! of them; `peer` lies in calls of the service Peer and in metadata, `frames` in frames of *map* and *clone*, `messages` in
//! those of *delegate*; `flood` has too much of everything; `control` has garbage for the ports of controller and
//! element. `raw` is HTTP/2 by hand. `relay` is another network, with a forger on the way.
//!
//! What is random comes from a seed, which is printed: `PATHCALL_HOSTILE_SEED` names another. `PATHCALL_HOSTILE_S` has
//! attacks go on for so many seconds, and `PATHCALL_HOSTILE_ONLY` names the one kind of attack that is made.

mod attack;
mod control;
mod flood;
mod frames;
mod honest;
mod messages;
mod network;
mod peer;
mod raw;
mod relay;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pathcall_test_support::HANG;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::apart::{LIMIT, is_alone};
use crate::bad_input::flood::resident;
use attack::{Attack, Hostile};
use honest::Honest;
use network::Network;

/// Rounds that there are at least: in each of them every kind of attack is tried.
const ROUNDS_MIN: u64 = 1;
/// How much this process, which is all parties and the hostile client, may grow under attack, bytes.
const GROWTH_MAX: u64 = 256 << 20;
/// Descriptors that may come and go: of connections between those that stay.
const DESCRIPTORS_SLACK: usize = 16;
/// Between two looks at what has to be so in the end.
const PAUSE: Duration = Duration::from_millis(20);

/// Panics of any thread.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts panics from now on, and says them as before.
fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(panic);
    }));
}

/// Waits until it is so; nobody may panic meanwhile.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "somebody panicked");
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

/// Attacks for so long, or a few rounds. `tokens`: frames carry them.
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
    until("members stay", || network.members() == honest.members()).await;
    until("descriptors stay", || descriptors() <= before + DESCRIPTORS_SLACK).await;
    assert!(grown < GROWTH_MAX, "grown by {grown} bytes");
    honest.served_again().await;
    honest.end(&network).await;
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "nobody panicked");
}

async fn play_for_as_long_as_is_said(tokens: bool) {
    let time = Duration::from_secs(number("PATHCALL_HOSTILE_S", 0));
    tokio::time::timeout(time + LIMIT, play(tokens, time)).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honest_callers_are_unharmed_beside_a_hostile_client_with_tokens() {
    // Memory, descriptors and panics are the process's.
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
