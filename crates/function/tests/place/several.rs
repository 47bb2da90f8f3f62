//! Entries that several servers have.

use std::collections::BTreeSet;

use super::*;

/// An entry that two servers hold alike is in the element and is recalled: the values that both are given, and the
/// commands so far.
fn recalled_from_two() -> (Placer, Vec<ServerId>, Vec<Command>) {
    let mut placer = placer(true);
    placer.handle(at(1), Input::ServerUp(1));
    placer.handle(at(1), heavy(1));
    placer.handle(at(1), window(&[(1, 10)], &[]));
    settle(&mut placer, at(1));
    assert_eq!(placer.placed(), 1);
    placer.handle(at(2), Input::Recall { server: 0, number: 10 });
    let (mut given_to, mut all) = (Vec::new(), Vec::new());
    while let Some(output) = placer.poll() {
        match output {
            Output::Element { batch, commands } => {
                let given = vec![Given { number: 10, turn: 5, values: vec![9] }];
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
fn entry_stays_until_the_last_of_its_servers_has_its_values() {
    for order in [[0, 1], [1, 0]] {
        let (mut placer, given_to, commands) = recalled_from_two();
        assert_eq!(given_to, [0, 1], "each server that holds it");
        assert!(!removes(&commands));
        placer.handle(at(3), Input::Taken { server: order[0], number: 10 });
        // Said twice it is one server's word all the same.
        placer.handle(at(3), Input::Taken { server: order[0], number: 10 });
        assert_eq!(settle(&mut placer, at(3)), (vec![], vec![]), "server {} has not said so", order[1]);
        placer.handle(at(4), Input::Taken { server: order[1], number: 10 });
        let (commands, released) = settle(&mut placer, at(4));
        assert!(removes(&commands), "{commands:?}");
        assert_eq!(released, [10, 10], "both have it back");
    }
}

#[test]
fn entry_does_not_wait_for_a_server_that_is_gone() {
    let (mut placer, ..) = recalled_from_two();
    placer.handle(at(3), Input::Taken { server: 0, number: 10 });
    assert_eq!(settle(&mut placer, at(3)).0, []);
    placer.handle(at(4), Input::ServerDown(1));
    let (commands, released) = settle(&mut placer, at(4));
    assert!(removes(&commands), "{commands:?}");
    assert_eq!(released, [10]);
}

/// What is inserted when two servers answer like this, and how many servers have back what they leased.
fn leased_from_two(answers: [(ServerId, Entry); 2]) -> (Vec<Match>, Vec<u32>) {
    let mut placer = placer(false);
    placer.handle(at(1), Input::ServerUp(1));
    placer.handle(at(1), heavy(0x41));
    placer.handle(at(1), window(&[(0x41, 10)], &[]));
    let asked =
        std::iter::from_fn(|| placer.poll()).filter(|output| matches!(output, Output::Lease { number: 10, .. }));
    assert_eq!(asked.count(), 2);
    for (server, entry) in answers {
        placer.handle(at(1), Input::Leased { server, number: 10, entry: Some(entry) });
    }
    let (commands, released) = settle(&mut placer, at(1));
    let inserted = commands.into_iter().find_map(|command| match command {
        Command::Insert { entry, .. } => Some(entry.keys),
        _ => None,
    });
    (inserted.unwrap_or_default(), released)
}

/// A prefix whose action does not depend on its length.
fn route(value: u128, prefix_bits: u16, argument: u128) -> Entry {
    Entry { args: vec![argument], ..entry(value, prefix_bits) }
}

#[test]
fn longest_prefix_of_all_servers_is_placed() {
    // The second has more beneath the prefix that the first may give: there the first one's is wrong.
    let (short, long) = (route(0x40, 2, 7), route(0x40, 5, 7));
    for answers in [[(0, short.clone()), (1, long.clone())], [(0, long.clone()), (1, short.clone())]] {
        assert_eq!(leased_from_two(answers), (vec![Match { value: 0x40, prefix_bits: 5 }], vec![]));
    }
}

#[test]
fn entry_that_servers_disagree_about_is_not_placed() {
    let answers = [(0, route(0x40, 5, 7)), (1, route(0x40, 5, 8))];
    assert_eq!(leased_from_two(answers), (vec![], vec![10, 10]));
}

#[test]
fn recall_before_all_have_answered_gives_the_lease_back_to_each() {
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
    // The answer of the other is on its way, and the lease with it.
    assert_eq!(released(&mut placer), [0, 1].into());
    placer.handle(at(1), Input::Leased { server: 1, number: 10, entry: Some(entry(1, 8)) });
    assert_eq!(released(&mut placer), [1].into(), "it came too late");
    assert_eq!(placer.placed(), 0);
}
