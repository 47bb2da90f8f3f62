//! Tests of entries that several servers have.

use std::collections::BTreeSet;

use super::*;

/// Recalls a placed entry that two servers have; returns the placer, the servers that get the values, and the commands.
fn recalled_from_two() -> (Placer, Vec<ServerId>, Vec<Command>) {
    let mut placer = placer(true);
    placer.handle(at(1), Input::ServerUp(1));
    placer.handle(at(1), heavy(1));
    placer.handle(at(1), window(&[(1, 10)], &[]));
    apply_outputs(&mut placer, at(1));
    assert_eq!(placer.placed(), 1);
    placer.handle(at(2), Input::Recall { server: 0, number: 10 });
    let (mut given_to, mut all) = (Vec::new(), Vec::new());
    while let Some(output) = placer.poll() {
        match output {
            Output::Element { batch, commands } => {
                let given = vec![EntryValues { number: 10, turn: 5, values: vec![9] }];
                all.extend(commands);
                placer.handle(at(2), Input::Applied { batch, refused: Vec::new(), given });
            }
            Output::Give { server, given } => {
                assert_eq!((given.number, &given.values[..]), (10, &[9][..]));
                given_to.push(server);
            }
            other => panic!("{other:?}"),
        }
    }
    (placer, given_to, all)
}

fn removes(commands: &[Command]) -> bool {
    commands.iter().any(|command| matches!(command, Command::Remove { number: 10, .. }))
}

#[test]
fn recalled_entry_stays_until_all_servers_have_its_values() {
    for order in [[0, 1], [1, 0]] {
        let (mut placer, given_to, commands) = recalled_from_two();
        assert_eq!(given_to, [0, 1], "each server with the entry");
        assert!(!removes(&commands));
        placer.handle(at(3), Input::Taken { server: order[0], number: 10 });
        // A repeated acknowledgement of the same server does not count twice.
        placer.handle(at(3), Input::Taken { server: order[0], number: 10 });
        assert_eq!(apply_outputs(&mut placer, at(3)), (vec![], vec![]), "server {} has not acknowledged", order[1]);
        placer.handle(at(4), Input::Taken { server: order[1], number: 10 });
        let (commands, released) = apply_outputs(&mut placer, at(4));
        assert!(removes(&commands), "{commands:?}");
        assert_eq!(released, [10, 10], "released to both");
    }
}

#[test]
fn entry_removal_does_not_wait_for_dead_server() {
    let (mut placer, ..) = recalled_from_two();
    placer.handle(at(3), Input::Taken { server: 0, number: 10 });
    assert_eq!(apply_outputs(&mut placer, at(3)).0, []);
    placer.handle(at(4), Input::ServerDown(1));
    let (commands, released) = apply_outputs(&mut placer, at(4));
    assert!(removes(&commands), "{commands:?}");
    assert_eq!(released, [10]);
}

/// Keys inserted after these answers of two servers, and the numbers released.
fn leased_from_two(answers: [(ServerId, TableEntry); 2]) -> (Vec<Match>, Vec<u32>) {
    let mut placer = placer(false);
    placer.handle(at(1), Input::ServerUp(1));
    placer.handle(at(1), heavy(0x41));
    placer.handle(at(1), window(&[(0x41, 10)], &[]));
    let requests =
        std::iter::from_fn(|| placer.poll()).filter(|output| matches!(output, Output::Lease { number: 10, .. }));
    assert_eq!(requests.count(), 2);
    for (server, entry) in answers {
        placer.handle(at(1), Input::Leased { server, number: 10, entry: Some(entry) });
    }
    let (commands, released) = apply_outputs(&mut placer, at(1));
    let inserted = commands.into_iter().find_map(|command| match command {
        Command::Insert { entry, .. } => Some(entry.keys),
        _ => None,
    });
    (inserted.unwrap_or_default(), released)
}

/// Prefix whose action does not depend on its length.
fn route(value: u128, prefix_bits: u16, argument: u128) -> TableEntry {
    TableEntry { args: vec![argument], ..entry(value, prefix_bits) }
}

#[test]
fn longest_leased_prefix_of_all_servers_is_placed() {
    // The second server has more prefixes beneath, so the first server's shorter prefix would be wrong.
    let (short, long) = (route(0x40, 2, 7), route(0x40, 5, 7));
    for answers in [[(0, short.clone()), (1, long.clone())], [(0, long.clone()), (1, short.clone())]] {
        assert_eq!(leased_from_two(answers), (vec![Match { value: 0x40, prefix_bits: 5 }], vec![]));
    }
}

#[test]
fn entry_with_conflicting_answers_is_not_placed() {
    let answers = [(0, route(0x40, 5, 7)), (1, route(0x40, 5, 8))];
    assert_eq!(leased_from_two(answers), (vec![], vec![10, 10]));
}

#[test]
fn recall_before_all_answers_releases_each_lease() {
    let mut placer = placer(false);
    placer.handle(at(1), Input::ServerUp(1));
    placer.handle(at(1), heavy(1));
    placer.handle(at(1), window(&[(1, 10)], &[]));
    while placer.poll().is_some() {}
    placer.handle(at(1), Input::Leased { server: 0, number: 10, entry: Some(entry(1, 8)) });
    placer.handle(at(1), Input::Recall { server: 0, number: 10 });
    let released = |placer: &mut Placer| {
        let released = |output| match output {
            Output::Release { server, number: 10 } => server,
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| placer.poll()).map(released).collect::<BTreeSet<ServerId>>()
    };
    // The other server's answer, with its lease, is still on its way.
    assert_eq!(released(&mut placer), [0, 1].into());
    placer.handle(at(1), Input::Leased { server: 1, number: 10, entry: Some(entry(1, 8)) });
    assert_eq!(released(&mut placer), [1].into(), "late answer");
    assert_eq!(placer.placed(), 0);
}
