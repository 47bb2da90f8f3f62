//! Tests of placement: one controller, one server, an element that does what it is told.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::Instant;
use proptest::prelude::{Strategy as _, any, prop_assert_eq, prop_oneof, proptest};

use pathcall_function::ir::{ActionId, Entry, Match, TableId};
use pathcall_function::place::{
    Command, Config, Given, Heavy, Holder, HolderOutput, Input, Mirror, Mode, Output, Placer, ServerId, TableFacts,
    Window, clear_prefix,
};

mod bounds;
mod several;

const TABLE: TableId = TableId(3);

/// Prefixes of 8 bits, with an argument each.
#[derive(Default)]
struct Routes(BTreeMap<(u16, u128), u128>);

impl Routes {
    fn with(routes: &[(u128, u16)]) -> Self {
        Self(routes.iter().map(|(value, bits)| ((*bits, *value), u128::from(*bits))).collect())
    }
}

fn entry(value: u128, prefix_bits: u16) -> Entry {
    Entry { keys: vec![Match { value, prefix_bits }], action: ActionId(0), args: vec![prefix_bits.into()] }
}

fn within(bits: u16, value: u128, key: u128) -> bool {
    (value ^ key) >> (8 - bits) == 0
}

impl Mirror for Routes {
    fn lookup(&self, _: TableId, key: &[u128]) -> Option<Entry> {
        let longest = self.0.keys().rev().find(|(bits, value)| within(*bits, *value, key[0]));
        longest.map(|(bits, value)| entry(*value, *bits))
    }

    fn beneath(&self, _: TableId, keys: &[Match]) -> bool {
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

fn leased(holder: &mut Holder, routes: &Routes, key: u128, number: u32) -> Option<(u128, u16)> {
    holder.lease(routes, TABLE, &[key], number);
    match holder.poll() {
        Some(HolderOutput::Leased { number: said, entry }) if said == number => {
            entry.map(|entry| (entry.keys[0].value, entry.keys[0].prefix_bits))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_prefixes_with_none_beneath_leave_their_server() {
    let routes = Routes::with(&[(0, 0), (0x40, 2), (0x44, 6), (0x80, 1)]);
    let mut holder = Holder::new(0);
    assert_eq!(leased(&mut holder, &routes, 0x81, 1), Some((0x80, 1)), "nothing beneath: all of it");
    assert_eq!(leased(&mut holder, &routes, 0x45, 2), Some((0x44, 6)));
    assert_eq!(leased(&mut holder, &routes, 0x40, 3), Some((0x40, 6)), "beside the longer one");
    assert_eq!(leased(&mut holder, &routes, 0x60, 4), Some((0x60, 3)), "the largest part without one");
    assert_eq!(leased(&mut holder, &routes, 0x10, 5), Some((0, 2)));
    assert_eq!(leased(&mut holder, &routes, 0x11, 6), None, "is there already");
}

#[test]
fn what_is_added_beneath_waits_until_the_element_has_let_go() {
    let routes = Routes::with(&[(0x40, 2)]);
    let mut holder = Holder::new(0);
    leased(&mut holder, &routes, 0x41, 7);
    holder.add(&routes, TABLE, entry(0x48, 5));
    assert_eq!(holder.poll(), Some(HolderOutput::Recall { number: 7 }));
    assert_eq!(holder.poll(), None, "not added");
    assert_eq!(leased(&mut holder, &routes, 0x49, 8), None, "nor does what covers it come back before");
    holder.released(&routes, 7);
    assert_eq!(holder.poll(), Some(HolderOutput::Add { table: TABLE, entry: entry(0x48, 5) }));
    holder.add(&routes, TABLE, entry(0, 0));
    assert_eq!(
        holder.poll(),
        Some(HolderOutput::Add { table: TABLE, entry: entry(0, 0) }),
        "shorter ones harm nothing"
    );
}

#[test]
fn a_change_is_said_by_the_response_that_made_it() {
    let routes = Routes::with(&[(0x40, 2)]);
    let mut holder = Holder::new(0);
    leased(&mut holder, &routes, 0x41, 7);
    assert_eq!(holder.responded(7), Some(2 << 2 | 1));
    assert!(holder.requested(7, 2 << 2 | 1) && !holder.requested(7, 1 << 2 | 1), "only the last turn's values are new");
    assert_eq!(holder.changed(&routes, TABLE, &[Match { value: 0x40, prefix_bits: 2 }]), [7]);
    assert_eq!(holder.responded(7), Some(3 << 2 | 3));
    assert_eq!(holder.responded(8), None, "nobody leased it");
}

fn placer(handed: bool) -> Placer {
    let facts = TableFacts { table: TABLE, widths: vec![8], capacity: 2, first_number: 10, handed };
    let config = Config { stay: Duration::ZERO, idle: Duration::from_secs(3), ..Config::default() };
    let mut placer = Placer::new(config, vec![facts]);
    placer.handle(at(0), Input::ServerUp(0));
    placer
}

fn at(seconds: u64) -> Instant {
    Instant(seconds * 1_000_000_000)
}

/// A window in which these flows, whose hashes are their keys, had so many packets.
fn window(flows: &[(u32, u32)], used: &[(u32, u32)]) -> Input {
    let mut row = vec![0; 256];
    flows.iter().for_each(|(hash, packets)| row[*hash as usize] = *packets);
    let packets = flows.iter().map(|(_, packets)| u64::from(*packets)).sum();
    // The second row looks at other bits, which are 0 here.
    Input::Window(Window {
        packets,
        marked: (flows.len() as u64, 1 << 16),
        rows: [row, vec![u32::MAX]],
        used: used.to_vec(),
    })
}

fn heavy(key: u32) -> Input {
    Input::Heavy(Heavy { table: TABLE, key: vec![key.into()], hash: key })
}

/// Answers all that is asked with exact entries; the commands that came, and who was released.
fn settle(placer: &mut Placer, now: Instant) -> (Vec<Command>, Vec<u32>) {
    let (mut all, mut released) = (Vec::new(), Vec::new());
    while let Some(output) = placer.poll() {
        match output {
            Output::Lease { server, key, number, .. } => {
                placer.handle(now, Input::Leased { server, number, entry: Some(entry(key[0], 8)) });
            }
            Output::Element { batch, commands } => {
                let given = |command: &Command| match command {
                    Command::Mode { number, .. } => Some(Given { number: *number, turn: 5, values: vec![9] }),
                    _ => None,
                };
                let given = commands.iter().filter_map(given).collect();
                all.extend(commands);
                placer.handle(now, Input::Applied { batch, refused: Vec::new(), given });
            }
            Output::Give { server, given } => {
                assert!(!all.iter().any(|command| matches!(command, Command::Remove { .. })), "given before it goes");
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
fn the_largest_come_in_and_what_is_unused_goes() {
    let mut placer = placer(false);
    [1, 2, 3].into_iter().for_each(|key| placer.handle(at(1), heavy(key)));
    placer.handle(at(1), window(&[(1, 10), (2, 30), (3, 20)], &[]));
    let (commands, _) = settle(&mut placer, at(1));
    assert_eq!(inserted(&commands), [2, 3]);
    assert_eq!(placer.placed(), 2);
    placer.handle(at(2), heavy(4));
    placer.handle(at(2), window(&[(4, 25)], &[(10, 30), (11, 20)]));
    assert_eq!(inserted(&settle(&mut placer, at(2)).0), [0; 0], "not so much larger");
    placer.handle(at(3), heavy(4));
    placer.handle(at(3), window(&[(4, 100)], &[(10, 30), (11, 20)]));
    let (commands, released) = settle(&mut placer, at(3));
    assert_eq!((inserted(&commands), released), (vec![4], vec![11]));
    placer.handle(at(6), window(&[], &[(12, 1)]));
    assert_eq!(settle(&mut placer, at(6)).1, [10], "unused for three seconds");
    assert_eq!((placer.stats().placed, placer.stats().replaced, placer.stats().aged), (3, 1, 1));
}

#[test]
fn batch_not_polled_before_the_element_restarts_is_dropped() {
    let mut placer = placer(false);
    placer.handle(at(1), heavy(1));
    placer.handle(at(1), window(&[(1, 10)], &[]));
    let asked = std::iter::from_fn(|| placer.poll()).find_map(|output| match output {
        Output::Lease { key, number, .. } => Some((key, number)),
        _ => None,
    });
    let (key, number) = asked.expect("a large flow's entry is asked for");
    placer.handle(at(1), Input::Leased { server: 0, number, entry: Some(entry(key[0], 8)) });
    placer.handle(at(1), Input::ElementRestarted);
    let left: Vec<_> = std::iter::from_fn(|| placer.poll()).collect();
    assert_eq!(left, [Output::Release { server: 0, number }]);
}

#[test]
fn values_are_given_before_their_entry_goes() {
    let mut placer = placer(true);
    placer.handle(at(1), heavy(1));
    placer.handle(at(1), window(&[(1, 10)], &[]));
    settle(&mut placer, at(1));
    placer.handle(at(2), Input::Recall { server: 0, number: 10 });
    let (commands, released) = settle(&mut placer, at(2));
    assert!(matches!(commands[0], Command::Mode { mode: Mode::Pending, .. }), "{commands:?}");
    assert!(matches!(commands[1], Command::Remove { number: 10, .. }), "{commands:?}");
    assert_eq!(released, [10]);
}

#[test]
fn an_entry_of_another_server_waits_until_the_values_of_the_last_are_given() {
    let mut placer = placer(true);
    placer.handle(at(1), Input::ServerUp(1));
    // Asks for the flow's entry, which this server has; the commands that come of it, and who is released.
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
                    let given = vec![Given { number: 10, turn: 5, values: vec![9] }];
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
    assert_eq!(turn(&mut placer, at(2), 1), (vec![], vec![11]), "the element still has the other");
    placer.handle(at(3), Input::Taken { server: 0, number: 10 });
    assert_eq!(turn(&mut placer, at(3), 1), (vec![1], vec![10]));
}

#[test]
fn who_does_not_answer_or_has_died_holds_nothing_up() {
    let mut placer = placer(false);
    placer.handle(at(1), Input::ServerUp(1));
    placer.handle(at(1), heavy(1));
    placer.handle(at(1), window(&[(1, 10)], &[]));
    while let Some(output) = placer.poll() {
        if let Output::Lease { server: 0, number, .. } = output {
            placer.handle(at(1), Input::Leased { server: 0, number, entry: Some(entry(1, 8)) });
        }
    }
    assert_eq!(placer.placed(), 0, "the other may have one");
    placer.handle_timeout(placer.poll_timeout().expect("it waits"));
    assert_eq!(placer.placed(), 1);
    settle(&mut placer, at(2));
    placer.handle(at(2), Input::ServerDown(0));
    assert!(settle(&mut placer, at(2)).0.iter().any(|command| matches!(command, Command::Remove { .. })));
}

/// What may happen to leases.
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
    /// The holder finds leases by where they stand; the model looks through all.
    #[test]
    fn leases_are_found_wherever_they_stand(
        routes in proptest::collection::vec((0..256_u128, 0..=8_u16), 1..40), steps in steps(),
    ) {
        let routes: Vec<_> = routes.into_iter().map(|(key, bits)| (key >> (8 - bits) << (8 - bits), bits)).collect();
        let (routes, mut holder) = (Routes::with(&routes), Holder::new(0));
        // Number, the server's prefix and the element's.
        let mut model: Vec<(u32, Match, Match)> = Vec::new();
        let meet = |one: Match, other: Match| within(one.prefix_bits.min(other.prefix_bits), one.value, other.value);
        for (number, step) in (1..).zip(steps) {
            match step {
                Step::Lease(key) => {
                    let held = routes.lookup(TABLE, &[key]).map(|entry| entry.keys[0]);
                    let given = held.and_then(|held| Some(clear_prefix(&routes, TABLE, &[key], &[held])?[0]));
                    let free = |given: &Match| model.iter().all(|(.., other)| !meet(*given, *other));
                    let expected = given.filter(free);
                    let got = leased(&mut holder, &routes, key, number);
                    prop_assert_eq!(got, expected.map(|given| (given.value, given.prefix_bits)));
                    model.extend(held.zip(expected).map(|(held, given)| (number, held, given)));
                }
                Step::Change(key, prefix_bits) => {
                    let changed = Match { value: key >> (8 - prefix_bits) << (8 - prefix_bits), prefix_bits };
                    let hit = |(number, held, given): &(u32, Match, Match)| {
                        (held.prefix_bits <= prefix_bits && meet(*given, changed)).then_some(*number)
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
                let owner = model.iter().find(|(.., given)| meet(*given, whole));
                let found = routes.lookup(TABLE, &[key]).and_then(|entry| holder.number(&routes, TABLE, &entry.keys, &[key]));
                prop_assert_eq!(found, owner.map(|(number, ..)| *number));
            }
        }
    }
}
