//! The multi-tenant FIB (`functions/fib.p4c`, CLIP §VI), split, against the kernel's own look-up: a namespace gets routes,
//! the function gets the same, and both are asked for the same random addresses.
//!
//! ```text
//! ip -batch ─► kernel ── RTM_GETROUTE, FIB_MATCH ─► prefix, all next hops, or why there is none
//! entries ─► servers, element ── a packet ─► the port and neighbour that it leaves by, or nothing
//! ```
//!
//! Overlapping prefixes, several next hops (the kernel's whole set), a default route, unreachable, blackhole, prohibit;
//! then routes are deleted, come again, and change. Needs root; `PATHCALL_ROOT_TESTS=1` makes its lack a failure.
//! `LOOKUPS` says how many addresses.

mod function;
mod kernel;
mod routes;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use function::Function;
use kernel::{Answer, Kernel};
use pathcall_conformance::Random;
use routes::{Hops, Routes, addresses};

/// Prefixes at first.
const ROUTES: usize = 100_000;
const LOOKUPS: usize = 1_000_000;
/// Addresses that many packets go to, and how many.
const OFTEN: usize = 16;
const TIMES: usize = 1_000;
/// Flows to one address with several next hops: all of them are seen.
const FLOWS: u16 = 200;

/// Asks both for each address.
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
            (answer, left) => panic!("{address}: the kernel says {answer:?}, the function sent it to {left:?}"),
        }
    }
    (found, several)
}

/// All next hops of addresses with several: the set that flows take is the kernel's.
fn compare_sets(kernel: &mut Kernel, function: &mut Function, addresses: &[Ipv4Addr]) -> usize {
    let answers = kernel.look_up(addresses);
    let mut compared = 0;
    for (address, answer) in addresses.iter().zip(answers) {
        let Answer::Route { hops, .. } = answer else { continue };
        if hops.len() < 2 {
            continue;
        }
        let taken: BTreeSet<u16> = function.flows(*address, FLOWS).into_iter().flatten().collect();
        assert_eq!(taken, hops, "{address}: the next hops that {FLOWS} flows take, and the kernel's");
        compared += 1;
    }
    compared
}

#[test]
fn a_million_addresses_go_where_the_kernel_sends_them() {
    if !kernel::permitted() {
        return;
    }
    let lookups = std::env::var("LOOKUPS").map_or(LOOKUPS, |count| count.parse().expect("LOOKUPS: a number"));
    let mut random = Random::new(7);
    let mut routes = Routes::random(&mut random, ROUTES);
    let mut kernel = Kernel::up(&routes);
    let mut function = Function::new(&routes.groups);
    let all: Vec<_> = routes.all().collect();
    kernel.batch("add", &all);
    all.iter().for_each(|(prefix, hops)| function.add(*prefix, hops));

    let mut total = (0, 0, 0);
    let mut ask = |kernel: &mut Kernel, function: &mut Function, routes: &Routes, random: &mut Random, count| {
        let addresses = addresses(routes, random, count);
        let (found, several) = compare(kernel, function, &addresses);
        // Some are asked for so often that the element gets their routes.
        compare(kernel, function, &addresses[..OFTEN.min(count)].repeat(TIMES));
        let sets = compare_sets(kernel, function, &addresses[..600.min(addresses.len())]);
        total = (total.0 + found, total.1 + several, total.2 + sets);
    };
    ask(&mut kernel, &mut function, &routes, &mut random, lookups * 2 / 5);

    let gone = routes.remove(&mut random, ROUTES / 5);
    kernel.batch("del", &gone);
    gone.iter().for_each(|(prefix, _)| function.remove(*prefix));
    ask(&mut kernel, &mut function, &routes, &mut random, lookups / 5);

    // Some come again, others change.
    let back = routes.put(&mut random, gone.iter().map(|(prefix, _)| *prefix).step_by(2).collect());
    kernel.batch("add", &back);
    let held: Vec<_> = routes.all().map(|(prefix, _)| prefix).step_by(9).collect();
    let changed = routes.put(&mut random, held);
    kernel.batch("replace", &changed);
    back.iter().chain(&changed).for_each(|(prefix, hops)| function.add(*prefix, hops));
    ask(&mut kernel, &mut function, &routes, &mut random, lookups * 2 / 5);

    let (found, several, sets) = total;
    println!(
        "{lookups} addresses: {found} had a route, {several} of them with several next hops, whose sets were compared \
         {sets} times; {} were sent on in the element alone",
        function.alone()
    );
    assert!(found > lookups / 2 && several > lookups / 50 && sets > 100);
    assert!(function.alone() > 0, "no route came into the element");
    let refused = |hops: &Hops| matches!(hops, Hops::None(_));
    assert!(routes.all().any(|(_, hops)| refused(&hops)));
}
