//! `function-table2`: a server's mirrored tables and its handler alone (CLIP, Table II's mirrored rows): look-ups in a
//! real routing table, table updates, and the cost of a handler call in each sandbox.
//!
//! Routes are those of [`routes`]. Addresses are uniform over prefixes and random within them; or drawn from 65,536
//! such addresses by Zipf's law.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pathcall_netfn::mirror::lpm::Lpm;
use pathcall_p4::ir::Match;
use pathcall_sandbox::{Guest, GuestSource, Host, LIMIT, SandboxKind, build};
use prefix_trie::PrefixMap;

use crate::function::routes::{self, Prefix, XorShift, Zipf, addresses};
use crate::function::thread_time;
use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-table2",
    about: "mirrored tables and handlers alone, in memory: look-ups, changes, calls",
    kind: Kind::Measured,
    run,
};

const LOOKUPS: usize = 1 << 22;
const LOOKUPS_QUICK: usize = 1 << 16;
/// Addresses of one batched look-up.
const BURST: usize = 64;
/// Target in millions of look-ups per second.
const ASKED: f64 = 50.0;
/// Entries per turn of updates, as in the paper's `Insert-1k`.
const OPERATIONS: usize = 1000;

fn run(bench: &mut Bench) -> Result<()> {
    let prefixes = routes::table(bench);
    let lookups = bench.size(LOOKUPS, LOOKUPS_QUICK);
    let addresses = addresses(&prefixes, lookups);
    lookup_rows(bench, &prefixes, &addresses)?;
    update_rows(bench, &prefixes)?;
    call_rows(bench)
}

/// Rows of look-ups: compared with the target, with one array read per address (the limit of any structure indexed by
/// 24 bits), and with a trie; one address at a time, independent look-ups, and batches.
fn lookup_rows(bench: &mut Bench, prefixes: &[Prefix], addresses: &[u32]) -> Result<()> {
    let mut trie = PrefixMap::<(u32, u8), u32>::new();
    prefixes.iter().zip(0..).for_each(|(prefix, id)| _ = trie.insert(*prefix, id));
    let in_trie = |address: u32| trie.get_lpm(&(address, 32)).map(|(_, id)| *id);
    let popular = zipf_order(addresses);
    for (name, exact) in [("routes", &[][..]), ("routes of a tenant", &[7, 0])] {
        let lpm = filled(prefixes, exact)?;
        let view = lpm.view(exact).context("exact group not found")?;
        let mut array = Vec::with_capacity(1 << 24);
        pathcall_sandbox::large_pages(&mut array);
        array.extend((0..1u32 << 24).map(|top| view.lookup(top << 8).unwrap_or(0)));
        let mut found = vec![None; addresses.len()];
        view.lookup_all(addresses, &mut found);
        for (address, found) in addresses.iter().zip(&found).step_by(97) {
            let right = in_trie(*address);
            ensure!(
                lpm.lookup(exact, (*address).into()) == right && *found == right,
                "different answers for {address:#x}"
            );
        }
        for (pattern, addresses) in [("uniform", addresses), ("Zipf 0.99", &popular)] {
            let metric =
                |how, peer| Metric::new(format!("{name}, {pattern}, {how}"), peer, "M look-ups/s", Better::Higher);
            let together = || Ok([at_once(addresses, |some, found| view.lookup_all(some, found))]);
            bench.compare([metric("many at once", "what is asked").expect(1.0)], together, || Ok([ASKED]))?;
            bench.compare([metric("many at once", "one read of an array").peer_is_limit()], together, || {
                Ok([rate(addresses, |address| array[(address >> 8) as usize])])
            })?;
            bench.compare(
                [metric("one by one", "one read of an array").peer_is_limit()],
                || Ok([rate(addresses, |address| view.lookup(address).unwrap_or(0))]),
                || Ok([rate(addresses, |address| array[(address >> 8) as usize])]),
            )?;
            bench.compare(
                [metric("one by one", "prefix-trie")],
                || Ok([rate(addresses, |address| view.lookup(address).unwrap_or(0))]),
                || Ok([rate(&addresses[..addresses.len() / 8], |address| in_trie(address).unwrap_or(0))]),
            )?;
        }
        // Look-ups of another thread, concurrent with a writer.
        if let Some(reader) = lpm.reader() {
            let metric = Metric::new(
                format!("{name}, uniform, one by one, beside a writer"),
                "without",
                "M look-ups/s",
                Better::Higher,
            );
            bench.compare(
                [metric.peer_is_limit()],
                || Ok([rate(addresses, |address| reader.lookup(0, address).unwrap_or(0))]),
                || Ok([rate(addresses, |address| view.lookup(address).unwrap_or(0))]),
            )?;
        }
    }
    Ok(())
}

/// The same addresses, reordered so that few of them recur often.
fn zipf_order(addresses: &[u32]) -> Vec<u32> {
    let zipf = Zipf::new(addresses.len().min(1 << 16), 0.99);
    let mut random = XorShift(3);
    addresses.iter().map(|_| addresses[zipf.draw(&mut random)]).collect()
}

/// Millions of look-ups per second.
fn rate(addresses: &[u32], look_up: impl Fn(u32) -> u32) -> f64 {
    let began = thread_time();
    let sum = addresses.iter().fold(0u64, |sum, address| sum.wrapping_add(look_up(*address).into()));
    black_box(sum);
    addresses.len() as f64 / (thread_time() - began).as_secs_f64() / 1e6
}

/// Millions of look-ups per second, in batches of the size of a packet burst.
fn at_once(addresses: &[u32], look_up: impl Fn(&[u32], &mut [Option<u32>])) -> f64 {
    let mut found = [None; BURST];
    let began = thread_time();
    for addresses in addresses.chunks(BURST) {
        look_up(addresses, &mut found);
        black_box(&found);
    }
    addresses.len() as f64 / (thread_time() - began).as_secs_f64() / 1e6
}

/// Rows of updates: a thousand prefixes are removed and inserted, among all others.
fn update_rows(bench: &mut Bench, prefixes: &[Prefix]) -> Result<()> {
    let chosen: Vec<(Prefix, u32)> =
        prefixes.iter().copied().zip(0..).step_by(prefixes.len() / OPERATIONS).take(OPERATIONS).collect();
    let mut lpm = filled(prefixes, &[])?;
    let mut trie: PrefixMap<(u32, u8), u32> = prefixes.iter().copied().zip(0..).collect();
    let metric = |what| Metric::new(format!("LPM-m {what}"), "prefix-trie", "µs/entry", Better::Lower);
    bench.compare(
        [metric("delete"), metric("insert")],
        || {
            timed(&chosen, |prefix, id, insert| match insert {
                true => lpm.insert(&[], matched(prefix), id).is_ok(),
                false => lpm.remove(&[], matched(prefix)) == Some(id),
            })
        },
        || {
            timed(&chosen, |prefix, id, insert| match insert {
                true => trie.insert(prefix, id).is_none(),
                false => trie.remove(&prefix) == Some(id),
            })
        },
    )?;
    // Exact part of a table, compared with the standard library's map.
    let mut groups = Lpm::new(32, 1 << 20, true);
    let mut map: HashMap<[u8; 8], u32> = HashMap::new();
    let key = |prefix: Prefix| (u64::from(prefix.0) << 8 | u64::from(prefix.1)).to_le_bytes();
    let metric =
        |what| Metric::new(format!("new tenant {what}"), "an entry of std's HashMap", "µs/entry", Better::Lower);
    bench.compare(
        [metric("delete"), metric("insert")],
        || {
            chosen.iter().for_each(|(prefix, id)| _ = groups.insert(&key(*prefix), matched(*prefix), *id));
            timed(&chosen, |prefix, id, insert| match insert {
                true => groups.insert(&key(prefix), matched(prefix), id).is_ok(),
                false => groups.remove(&key(prefix), matched(prefix)) == Some(id),
            })
        },
        || {
            chosen.iter().for_each(|(prefix, id)| _ = map.insert(key(*prefix), *id));
            timed(&chosen, |prefix, id, insert| match insert {
                true => map.insert(key(prefix), id).is_none(),
                false => map.remove(&key(prefix)) == Some(id),
            })
        },
    )
}

/// Microseconds per entry: deletion, insertion.
fn timed(chosen: &[(Prefix, u32)], mut change: impl FnMut(Prefix, u32, bool) -> bool) -> Result<[f64; 2]> {
    let mut took_us = [0.0; 2];
    for (took_us, insert) in took_us.iter_mut().zip([false, true]) {
        let began = Instant::now();
        let done = chosen.iter().filter(|(prefix, id)| change(*prefix, *id, insert)).count();
        *took_us = began.elapsed().as_secs_f64() * 1e6 / chosen.len() as f64;
        ensure!(done == chosen.len(), "{done} of {} changes", chosen.len());
    }
    Ok(took_us)
}

/// Rows of handler calls: a nearly empty call, and a call with one host call; each sandbox compared with a bare call.
fn call_rows(bench: &mut Bench) -> Result<()> {
    let cache = pathcall_netfn::handler::cache_dir();
    let open =
        |kind| -> Result<Guest> { Ok(Guest::open(&build(kind, GuestSource { text: GUEST }, &cache)?, 64, LIMIT)?) };
    for (entry, what) in [(0, "a call"), (1, "a call that asks its host")] {
        for (kind, calls) in [(SandboxKind::Wasm, 1 << 20), (SandboxKind::Process, 1 << 10)] {
            let (mut guest, mut native) = match (open(kind), open(SandboxKind::Native)) {
                (Ok(guest), Ok(native)) => (guest, native),
                (guest, native) => {
                    bench.print_note(&format!("no {kind}: {:#}", guest.and(native).unwrap_err()));
                    continue;
                }
            };
            let metric = Metric::new(format!("{what}: {kind}"), "native", "ns/call", Better::Lower).peer_is_limit();
            let calls = bench.size(calls, calls >> 6);
            bench.compare([metric], || call(&mut guest, entry, calls), || call(&mut native, entry, 1 << 18))?;
        }
    }
    Ok(())
}

const GUEST: &str = "#include <stdint.h>
#ifdef __wasm__
__attribute__((import_module(\"env\"), import_name(\"pc_host\")))
#endif
uint64_t pc_host(uint32_t op, uint32_t which, const void *in, uint32_t in_bytes, void *out, uint32_t out_bytes,
                 uint64_t value);
static struct { uint32_t in, out; uint8_t rest[56]; } area;
const uint32_t pc_area_bytes = sizeof area;
void *pc_area(void) { return &area; }
void pc_enter(uint32_t entry, uint32_t argument)
{
    if (entry)
        pc_host(1, 2, &area, 8, area.rest, 8, 0);
    area.out = area.in * 3 + argument;
}
";

struct Echo;

impl Host for Echo {
    fn call(&mut self, _: u32, _: u32, input: &[u8], output: &mut [u8], _: u64) -> u64 {
        output.copy_from_slice(input);
        1
    }
}

fn call(guest: &mut Guest, entry: u32, calls: u32) -> Result<[f64; 1]> {
    guest.area()[..4].copy_from_slice(&5u32.to_le_bytes());
    let began = Instant::now();
    for argument in 0..calls {
        guest.enter(entry, argument, &mut Echo)?;
    }
    let took_ns = began.elapsed().as_nanos() as f64;
    let last = u32::from_le_bytes(guest.area()[4..8].try_into()?);
    ensure!(last == 15 + calls - 1, "the last call gave {last}");
    Ok([took_ns / f64::from(calls)])
}

fn filled(prefixes: &[Prefix], exact: &[u8]) -> Result<Lpm> {
    let mut lpm = Lpm::new(32, 1 << 20, !exact.is_empty());
    for (prefix, id) in prefixes.iter().zip(0..) {
        lpm.insert(exact, matched(*prefix), id)?;
    }
    Ok(lpm)
}

fn matched((value, len): Prefix) -> Match {
    Match { value: value.into(), prefix_bits: len.into() }
}
