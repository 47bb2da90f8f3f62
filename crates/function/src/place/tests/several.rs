//! Entries that several servers have.

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
