//! Comparison of the multi-tenant FIB (`functions/fib.p4c`, CLIP §VI), split, with the kernel's own lookup: a namespace
//! and the function get the same routes, and both look up the same random addresses.
//!
//! ```text
//! ip -batch ─► kernel ── RTM_GETROUTE, FIB_MATCH ─► prefix, all next hops, or why there is none
//! entries ─► servers, element ── a packet ─► the port and neighbour that it leaves by, or nothing
//! ```
//!
//! Overlapping prefixes, several next hops (the kernel's whole set), a default route, unreachable, blackhole, prohibit;
//! then routes are deleted, added again, and changed. Needs root; with `PATHCALL_ROOT_TESTS=1` missing permission is a
//! failure. `LOOKUPS` is the number of addresses.

mod function;
mod kernel;
mod routes;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use function::Function;
use kernel::{Answer, Kernel};
use pathcall_wire::SplitMix64;
use routes::{Hops, Routes, addresses};

/// Initial number of prefixes.
const ROUTES: usize = 100_000;
const LOOKUPS: usize = 1_000_000;
/// Number of addresses with many packets, and number of these packets.
const OFTEN: usize = 16;
const TIMES: usize = 1_000;
/// Number of flows to one address with several next hops, enough to see all of them.
const FLOWS: u16 = 200;

/// Compares the kernel and the function for each address.
fn compare(kernel: &mut Kernel, function: &mut Function, addresses: &[Ipv4Addr]) -> (usize, usize) {
    let (answers, left) = std::thread::scope(|scope| {
        let answers = scope.spawn(|| kernel.look_up(addresses));
        let left = function.forward(addresses);
        (answers.join().expect("it does not panic"), left)
    });
    let (mut found, mut several) = (0, 0);
    for ((address, answer), left) in addresses.iter().zip(&answers).zip(&left) {
        match (answer, left) {
            (Answer::Route { hops, .. }, Some(hop)) if hops.contains(hop) => {
                found += 1;
                several += usize::from(hops.len() > 1);
            }
            (Answer::Refused(_), None) => {}
            (answer, left) => panic!("{address}: kernel: {answer:?}, function: {left:?}"),
        }
    }
    (found, several)
}

/// Compares the set of next hops for addresses with several.
fn compare_sets(kernel: &mut Kernel, function: &mut Function, addresses: &[Ipv4Addr]) -> usize {
    let answers = kernel.look_up(addresses);
    let mut compared = 0;
    for (address, answer) in addresses.iter().zip(answers) {
        let Answer::Route { hops, .. } = answer else { continue };
        if hops.len() < 2 {
            continue;
        }
        let taken: BTreeSet<u16> = function.flows(*address, FLOWS).into_iter().flatten().collect();
        assert_eq!(taken, hops, "{address}: next hops of {FLOWS} flows, and of the kernel");
        compared += 1;
    }
    compared
}

#[test]
fn random_addresses_match_kernel_lookup() {
    if !kernel::permitted() {
        return;
    }
    let lookups = std::env::var("LOOKUPS").map_or(LOOKUPS, |count| count.parse().expect("LOOKUPS: a number"));
    let mut random = SplitMix64::new(7);
    let mut routes = Routes::random(&mut random, ROUTES);
    let mut kernel = Kernel::up(&routes);
    let mut function = Function::new(&routes.groups);
    let all: Vec<_> = routes.all().collect();
    kernel.batch("add", &all);
    all.iter().for_each(|(prefix, hops)| function.add(*prefix, hops));

    let mut total = (0, 0, 0);
    let mut ask = |kernel: &mut Kernel, function: &mut Function, routes: &Routes, random: &mut SplitMix64, count| {
        let addresses = addresses(routes, random, count);
        let (found, several) = compare(kernel, function, &addresses);
        // Many packets to some addresses, so that the element gets their routes.
        compare(kernel, function, &addresses[..OFTEN.min(count)].repeat(TIMES));
        let sets = compare_sets(kernel, function, &addresses[..600.min(addresses.len())]);
        total = (total.0 + found, total.1 + several, total.2 + sets);
    };
    ask(&mut kernel, &mut function, &routes, &mut random, lookups * 2 / 5);

    let removed = routes.remove(&mut random, ROUTES / 5);
    kernel.batch("del", &removed);
    removed.iter().for_each(|(prefix, _)| function.remove(*prefix));
    ask(&mut kernel, &mut function, &routes, &mut random, lookups / 5);

    // Some routes are added again, others are changed.
    let restored = routes.put(&mut random, removed.iter().map(|(prefix, _)| *prefix).step_by(2).collect());
    kernel.batch("add", &restored);
    let held: Vec<_> = routes.all().map(|(prefix, _)| prefix).step_by(9).collect();
    let changed = routes.put(&mut random, held);
    kernel.batch("replace", &changed);
    restored.iter().chain(&changed).for_each(|(prefix, hops)| function.add(*prefix, hops));
    ask(&mut kernel, &mut function, &routes, &mut random, lookups * 2 / 5);

    let (found, several, sets) = total;
    println!(
        "{lookups} addresses: {found} had a route, {several} of them with several next hops, whose sets were compared \
         {sets} times; {} were sent on in the element without_server",
        function.without_server()
    );
    assert!(found > lookups / 2 && several > lookups / 50 && sets > 100);
    assert!(function.without_server() > 0, "no route was placed in the element");
    let refused = |hops: &Hops| matches!(hops, Hops::None(_));
    assert!(routes.all().any(|(_, hops)| refused(&hops)));
}
