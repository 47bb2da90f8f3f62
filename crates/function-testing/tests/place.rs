//! Tests of the placement: one controller, one server, and an element that applies all commands.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::Instant;
use proptest::prelude::{Strategy as _, any, prop_assert_eq, prop_oneof, proptest};

use pathcall_netfn::place::{
    Command, Config, EntryMode, EntryValues, FlowReport, Input, LeasableTables, LeaseHolder, LeaseOutput, Output,
    Placer, ServerId, SketchWindow, TableFacts, clear_prefix,
};
use pathcall_p4::ir::{ActionId, Match, TableEntry, TableId};

mod bounds;
mod several;

const TABLE: TableId = TableId(3);

/// Table of 8-bit prefixes, with an argument each.
#[derive(Default)]
struct Routes(BTreeMap<(u16, u128), u128>);

impl Routes {
    fn with(routes: &[(u128, u16)]) -> Self {
        Self(routes.iter().map(|(value, bits)| ((*bits, *value), u128::from(*bits))).collect())
    }
}

fn entry(value: u128, prefix_bits: u16) -> TableEntry {
    TableEntry { keys: vec![Match { value, prefix_bits }], action: ActionId(0), args: vec![prefix_bits.into()] }
}

fn within(bits: u16, value: u128, key: u128) -> bool {
    (value ^ key) >> (8 - bits) == 0
}

impl LeasableTables for Routes {
    fn lookup(&self, _: TableId, key: &[u128]) -> Option<TableEntry> {
        let longest = self.0.keys().rev().find(|(bits, value)| within(*bits, *value, key[0]));
        longest.map(|(bits, value)| entry(*value, *bits))
    }

    fn has_more_specific(&self, _: TableId, keys: &[Match]) -> bool {
        let Match { value, prefix_bits } = keys[0];
        self.0.keys().any(|(bits, other)| *bits > prefix_bits && within(prefix_bits, value, *other))
    }

    fn widths(&self, _: TableId) -> &[u16] {
        &[8]
    }

    fn lpm(&self, _: TableId) -> Option<usize> {
        Some(0)
    }
}

fn leased(holder: &mut LeaseHolder, routes: &Routes, key: u128, number: u32) -> Option<(u128, u16)> {
    holder.lease(routes, TABLE, &[key], number);
    match holder.poll() {
        Some(LeaseOutput::Leased { number: leased, entry }) if leased == number => {
            entry.map(|entry| (entry.keys[0].value, entry.keys[0].prefix_bits))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn lease_covers_part_without_longer_prefix() {
    let routes = Routes::with(&[(0, 0), (0x40, 2), (0x44, 6), (0x80, 1)]);
    let mut holder = LeaseHolder::new(0);
    assert_eq!(leased(&mut holder, &routes, 0x81, 1), Some((0x80, 1)), "nothing beneath: the whole entry");
    assert_eq!(leased(&mut holder, &routes, 0x45, 2), Some((0x44, 6)));
    assert_eq!(leased(&mut holder, &routes, 0x40, 3), Some((0x40, 6)), "disjoint from the longer prefix");
    assert_eq!(leased(&mut holder, &routes, 0x60, 4), Some((0x60, 3)), "the largest part without a longer prefix");
    assert_eq!(leased(&mut holder, &routes, 0x10, 5), Some((0, 2)));
    assert_eq!(leased(&mut holder, &routes, 0x11, 6), None, "leased already");
}

#[test]
fn more_specific_entry_waits_for_release_of_covering_lease() {
    let routes = Routes::with(&[(0x40, 2)]);
    let mut holder = LeaseHolder::new(0);
    leased(&mut holder, &routes, 0x41, 7);
    holder.add(&routes, TABLE, entry(0x48, 5));
    assert_eq!(holder.poll(), Some(LeaseOutput::Recall { number: 7 }));
    assert_eq!(holder.poll(), None, "the addition waits");
    assert_eq!(
        leased(&mut holder, &routes, 0x49, 8),
        None,
        "the covering entry is not leased while the addition waits"
    );
    holder.released(&routes, 7);
    assert_eq!(holder.poll(), Some(LeaseOutput::Add { table: TABLE, entry: entry(0x48, 5) }));
    holder.add(&routes, TABLE, entry(0, 0));
    assert_eq!(
        holder.poll(),
        Some(LeaseOutput::Add { table: TABLE, entry: entry(0, 0) }),
        "a shorter prefix causes no recall"
    );
}

#[test]
fn response_names_entry_that_it_changed() {
    let routes = Routes::with(&[(0x40, 2)]);
    let mut holder = LeaseHolder::new(0);
    leased(&mut holder, &routes, 0x41, 7);
    assert_eq!(holder.responded(7), Some(2 << 2 | 1));
    assert!(
        holder.requested(7, 2 << 2 | 1) && !holder.requested(7, 1 << 2 | 1),
        "only values of the last turn are accepted"
    );
    assert_eq!(holder.changed(&routes, TABLE, &[Match { value: 0x40, prefix_bits: 2 }]), [7]);
    assert_eq!(holder.responded(7), Some(3 << 2 | 3));
    assert_eq!(holder.responded(8), None, "not leased");
}

fn placer(has_values: bool) -> Placer {
    let facts = TableFacts { table: TABLE, widths: vec![8], capacity: 2, first_number: 10, has_values };
    let config = Config { stay: Duration::ZERO, idle: Duration::from_secs(3), ..Config::default() };
    let mut placer = Placer::new(config, vec![facts]);
    placer.handle(at(0), Input::ServerUp(0));
    placer
}

fn at(seconds: u64) -> Instant {
    Instant(seconds * 1_000_000_000)
}

/// Window of flows and their packet counts; the hash of a flow is its key.
fn window(flows: &[(u32, u32)], used: &[(u32, u32)]) -> Input {
    let mut row = vec![0; 256];
    flows.iter().for_each(|(hash, packets)| row[*hash as usize] = *packets);
    let packets = flows.iter().map(|(_, packets)| u64::from(*packets)).sum();
    // The second row is indexed by other bits, which are 0 here.
    Input::Window(SketchWindow {
        packets,
        marked: (flows.len() as u64, 1 << 16),
        rows: [row, vec![u32::MAX]],
        used: used.to_vec(),
    })
}

fn heavy(key: u32) -> Input {
    Input::Report(FlowReport { table: TABLE, key: vec![key.into()], hash: key })
}

/// Answers all lease requests with exact entries; returns the commands and the released numbers.
fn apply_outputs(placer: &mut Placer, now: Instant) -> (Vec<Command>, Vec<u32>) {
    let (mut all, mut released) = (Vec::new(), Vec::new());
    while let Some(output) = placer.poll() {
        match output {
            Output::Lease { server, key, number, .. } => {
                placer.handle(now, Input::Leased { server, number, entry: Some(entry(key[0], 8)) });
            }
            Output::Element { batch, commands } => {
                let given = |command: &Command| match command {
                    Command::Mode { number, .. } => Some(EntryValues { number: *number, turn: 5, values: vec![9] }),
                    _ => None,
                };
                let given = commands.iter().filter_map(given).collect();
                all.extend(commands);
                placer.handle(now, Input::Applied { batch, refused: Vec::new(), given });
            }
            Output::Give { server, given } => {
                assert!(
                    !all.iter().any(|command| matches!(command, Command::Remove { .. })),
                    "values are sent before the removal"
                );
                placer.handle(now, Input::Taken { server, number: given.number });
            }
            Output::Release { number, .. } => released.push(number),
        }
    }
    (all, released)
}

fn inserted(commands: &[Command]) -> Vec<u128> {
    let of = |command: &Command| match command {
        Command::Insert { entry, .. } => Some(entry.keys[0].value),
        _ => None,
    };
    commands.iter().filter_map(of).collect()
}

#[test]
fn largest_flows_enter_and_unused_entries_leave() {
    let mut placer = placer(false);
    [1, 2, 3].into_iter().for_each(|key| placer.handle(at(1), heavy(key)));
    placer.handle(at(1), window(&[(1, 10), (2, 30), (3, 20)], &[]));
    let (commands, _) = apply_outputs(&mut placer, at(1));
    assert_eq!(inserted(&commands), [2, 3]);
    assert_eq!(placer.placed(), 2);
    placer.handle(at(2), heavy(4));
    placer.handle(at(2), window(&[(4, 25)], &[(10, 30), (11, 20)]));
    assert_eq!(inserted(&apply_outputs(&mut placer, at(2)).0), [0; 0], "not larger by the required factor");
    placer.handle(at(3), heavy(4));
    placer.handle(at(3), window(&[(4, 100)], &[(10, 30), (11, 20)]));
    let (commands, released) = apply_outputs(&mut placer, at(3));
    assert_eq!((inserted(&commands), released), (vec![4], vec![11]));
    placer.handle(at(6), window(&[], &[(12, 1)]));
    assert_eq!(apply_outputs(&mut placer, at(6)).1, [10], "unused for three seconds");
    assert_eq!((placer.stats().placed, placer.stats().replaced, placer.stats().aged), (3, 1, 1));
}

#[test]
fn batch_not_polled_before_element_restart_is_dropped() {
    let mut placer = placer(false);
    placer.handle(at(1), heavy(1));
    placer.handle(at(1), window(&[(1, 10)], &[]));
    let request = std::iter::from_fn(|| placer.poll()).find_map(|output| match output {
        Output::Lease { key, number, .. } => Some((key, number)),
        _ => None,
    });
    let (key, number) = request.expect("a lease request for the large flow");
    placer.handle(at(1), Input::Leased { server: 0, number, entry: Some(entry(key[0], 8)) });
    placer.handle(at(1), Input::ElementRestarted);
    let left: Vec<_> = std::iter::from_fn(|| placer.poll()).collect();
    assert_eq!(left, [Output::Release { server: 0, number }]);
}

#[test]
fn values_reach_server_before_entry_is_removed() {
    let mut placer = placer(true);
    placer.handle(at(1), heavy(1));
    placer.handle(at(1), window(&[(1, 10)], &[]));
    apply_outputs(&mut placer, at(1));
    placer.handle(at(2), Input::Recall { server: 0, number: 10 });
    let (commands, released) = apply_outputs(&mut placer, at(2));
    assert!(matches!(commands[0], Command::Mode { mode: EntryMode::Pending, .. }), "{commands:?}");
    assert!(matches!(commands[1], Command::Remove { number: 10, .. }), "{commands:?}");
    assert_eq!(released, [10]);
}

#[test]
fn entry_of_other_server_waits_for_values_of_last_one() {
    let mut placer = placer(true);
    placer.handle(at(1), Input::ServerUp(1));
    // Answers lease requests as the only server with the entry; returns the commands and the released numbers.
    let turn = |placer: &mut Placer, now: Instant, owner: ServerId| {
        let (mut all, mut released) = (Vec::new(), Vec::new());
        placer.handle(now, heavy(1));
        placer.handle(now, window(&[(1, 10)], &[]));
        while let Some(output) = placer.poll() {
            match output {
                Output::Lease { server, number, .. } => {
                    let entry = (server == owner).then(|| entry(1, 8));
                    placer.handle(now, Input::Leased { server, number, entry });
                }
                Output::Element { batch, commands } => {
                    let given = vec![EntryValues { number: 10, turn: 5, values: vec![9] }];
                    all.extend(commands);
                    placer.handle(now, Input::Applied { batch, refused: Vec::new(), given });
                }
                Output::Release { number, .. } => released.push(number),
                Output::Give { .. } => {}
            }
        }
        (inserted(&all), released)
    };
    assert_eq!(turn(&mut placer, at(1), 0), (vec![1], vec![]));
    placer.handle(at(2), Input::Recall { server: 0, number: 10 });
    assert_eq!(turn(&mut placer, at(2), 1), (vec![], vec![11]), "the element still has the other server's entry");
    placer.handle(at(3), Input::Taken { server: 0, number: 10 });
    assert_eq!(turn(&mut placer, at(3), 1), (vec![1], vec![10]));
}

#[test]
fn silent_or_dead_server_does_not_block_placement() {
    let mut placer = placer(false);
    placer.handle(at(1), Input::ServerUp(1));
    placer.handle(at(1), heavy(1));
    placer.handle(at(1), window(&[(1, 10)], &[]));
    while let Some(output) = placer.poll() {
        if let Output::Lease { server: 0, number, .. } = output {
            placer.handle(at(1), Input::Leased { server: 0, number, entry: Some(entry(1, 8)) });
        }
    }
    assert_eq!(placer.placed(), 0, "the other server has not answered yet");
    placer.handle_timeout(placer.poll_timeout().expect("a deadline of the request"));
    assert_eq!(placer.placed(), 1);
    apply_outputs(&mut placer, at(2));
    placer.handle(at(2), Input::ServerDown(0));
    assert!(apply_outputs(&mut placer, at(2)).0.iter().any(|command| matches!(command, Command::Remove { .. })));
}

/// Step of a lease test.
#[derive(Debug, Clone)]
enum Step {
    Lease(u128),
    Change(u128, u16),
    Release(usize),
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..256_u128).prop_map(Step::Lease),
        1 => (0..256_u128, 0..=8_u16).prop_map(|(key, bits)| Step::Change(key, bits)),
        2 => any::<usize>().prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// The holder finds leases by position; the model searches all of them.
    #[test]
    fn lease_lookup_by_prefix_matches_linear_search(
        routes in proptest::collection::vec((0..256_u128, 0..=8_u16), 1..40), steps in steps(),
    ) {
        let routes: Vec<_> = routes.into_iter().map(|(key, bits)| (key >> (8 - bits) << (8 - bits), bits)).collect();
        let (routes, mut holder) = (Routes::with(&routes), LeaseHolder::new(0));
        // Number, prefix of the server's entry, prefix of the element's entry.
        let mut model: Vec<(u32, Match, Match)> = Vec::new();
        let overlap = |one: Match, other: Match| within(one.prefix_bits.min(other.prefix_bits), one.value, other.value);
        for (number, step) in (1..).zip(steps) {
            match step {
                Step::Lease(key) => {
                    let held = routes.lookup(TABLE, &[key]).map(|entry| entry.keys[0]);
                    let given = held.and_then(|held| Some(clear_prefix(&routes, TABLE, &[key], &[held])?[0]));
                    let free = |given: &Match| model.iter().all(|(.., other)| !overlap(*given, *other));
                    let expected = given.filter(free);
                    let got = leased(&mut holder, &routes, key, number);
                    prop_assert_eq!(got, expected.map(|given| (given.value, given.prefix_bits)));
                    model.extend(held.zip(expected).map(|(held, given)| (number, held, given)));
                }
                Step::Change(key, prefix_bits) => {
                    let changed = Match { value: key >> (8 - prefix_bits) << (8 - prefix_bits), prefix_bits };
                    let hit = |(number, held, given): &(u32, Match, Match)| {
                        (held.prefix_bits <= prefix_bits && overlap(*given, changed)).then_some(*number)
                    };
                    let expected: Vec<_> = model.iter().filter_map(hit).collect();
                    prop_assert_eq!(holder.changed(&routes, TABLE, &[changed]), expected);
                    while holder.poll().is_some() {}
                }
                Step::Release(at) if !model.is_empty() => {
                    let (number, ..) = model.remove(at % model.len());
                    holder.released(&routes, number);
                }
                Step::Release(_) => {}
            }
            prop_assert_eq!(holder.leases(), model.len());
            for key in 0..256 {
                let whole = Match { value: key, prefix_bits: 8 };
                let owner = model.iter().find(|(.., given)| overlap(*given, whole));
                let found = routes
                    .lookup(TABLE, &[key])
                    .and_then(|entry| holder.number(&routes, TABLE, &entry.keys, &[key]));
                prop_assert_eq!(found, owner.map(|(number, ..)| *number));
            }
        }
    }
}
