//! Tests of placement: one controller, one server, an element that does what it is told.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::Instant;

use super::*;
use crate::ir::ActionId;

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
