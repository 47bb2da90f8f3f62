//! Groups of threads: how they meet, agree, and fail; and of processes, where a limit is a process's. That those
//! do all else the same is in `pathcall-place`'s tests.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use pathcall_test_support::HANG;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Long enough for a machine that stands still, where nobody is missing.
const LONG: Duration = HANG;
/// Where somebody is: for one that stands still it may be too short, and is tried again.
const SHORT: Duration = Duration::from_millis(300);

/// A name that no other test has.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What each rank of a group comes to.
fn each<R: Send>(ranks: usize, timeout: Duration, work: impl Fn(Group) -> R + Sync) -> Vec<R> {
    each_that_comes(ranks, timeout, work).into_iter().map(|rank| rank.expect("all come")).collect()
}

/// The same; whoever has not met the others does nothing.
fn each_that_comes<R: Send>(
    ranks: usize,
    timeout: Duration,
    work: impl Fn(Group) -> R + Sync,
) -> Vec<Result<R, GroupError>> {
    let name = name();
    let run = |rank| Group::join(&Config::new(&name, rank, ranks).timeout(timeout)).map(&work);
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

#[test]
fn barriers_keep_ranks_together() {
    let turns: Vec<AtomicU32> = (0..3).map(|_| AtomicU32::new(0)).collect();
    each(3, LONG, |mut group| {
        assert_eq!(group.ranks(), 3);
        for turn in 0..200 {
            turns[group.rank()].store(turn, Ordering::Relaxed);
            group.barrier().expect("all are there");
            assert!(turns.iter().all(|of| [turn, turn + 1].contains(&of.load(Ordering::Relaxed))));
        }
    });
}

#[test]
fn each_part_of_all_rows_is_worked_on_once() {
    let rows = each(3, LONG, |mut group| {
        let mut buffer = group.buffer::<i64>(100_001).expect("memory");
        assert!(buffer.len() == 100_001 && buffer.iter().all(|value| *value == 0));
        for turn in 0..20 {
            let own = group.rank() as i64;
            buffer.iter_mut().enumerate().for_each(|(i, value)| *value = own * 1_000_000 + i as i64 + turn);
            let add = |mut part: Part<'_, i64>| {
                for rank in 0..part.ranks() {
                    part.row(rank).iter_mut().for_each(|value| *value += 1);
                }
            };
            group.share(&mut buffer, Op::Sum, add).expect("all are there");
            let right = |i: usize| own * 1_000_000 + i as i64 + turn + 1;
            assert!(buffer.iter().enumerate().all(|(i, value)| *value == right(i)));
        }
        buffer.len()
    });
    assert_eq!(rows, [100_001; 3]);
}

#[test]
fn there_are_as_many_ranks_as_were_said() {
    for (rank, ranks) in [(0, 0), (2, 2), (0, RANKS_MAX + 1)] {
        let error = Group::join(&Config::new("any", rank, ranks)).unwrap_err();
        assert!(error.to_string().contains("expected a rank below the number of ranks, which is 1 to 64"), "{error}");
    }
    for name in [String::new(), "n".repeat(NAME_MAX + 1)] {
        assert!(matches!(Group::join(&Config::new(name, 0, 1)), Err(GroupError::Name { .. })));
    }
    let mut alone = Group::join(&Config::new("n".repeat(NAME_MAX), 0, 1)).expect("nobody to wait for");
    alone.barrier().expect("nobody to wait for");
}

#[test]
fn who_has_not_come_is_named() {
    let name = name();
    let joins = |rank| Group::join(&Config::new(&name, rank, 4).timeout(SHORT));
    // Rank 2 comes, and comes to ask before rank 0 does; ranks 1 and 3 do not.
    let second = thread::scope(|scope| {
        let second = scope.spawn(|| Group::join(&Config::new(&name, 2, 4).timeout(LONG)));
        let mut time = SHORT;
        loop {
            let first = Group::join(&Config::new(&name, 0, 4).timeout(time)).unwrap_err().to_string();
            if first.contains(&format!("no rank [1, 3] within {time:?}")) {
                break;
            }
            assert!(first.contains("no rank [1, 2, 3] within") && time < LONG, "{first}");
            time *= 2;
        }
        second.join().expect("no panic").unwrap_err()
    });
    assert!(matches!(second, GroupError::Refused { rank: 2, why: Refusal::Missing, .. }), "{second}");
    let error = joins(1).unwrap_err();
    assert!(error.to_string().contains("no rank [0] within 300ms"), "{error}");
}

#[test]
fn those_who_do_not_belong_are_refused_and_the_group_goes_on() {
    let name = name();
    let join = |rank, ranks| Group::join(&Config::new(&name, rank, ranks).timeout(LONG));
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, 3));
        let second = scope.spawn(|| join(1, 3));
        // Either of two that are the same rank is refused, and the other waits for rank 2.
        let twice = scope.spawn(|| join(1, 3));
        let other = join(1, 2).unwrap_err();
        assert!(matches!(other, GroupError::Refused { why: Refusal::Ranks, .. }), "{other}");
        while !(second.is_finished() || twice.is_finished()) {
            thread::yield_now();
        }
        let same = join(0, 3).map(drop);
        assert!(matches!(same, Err(GroupError::Taken { .. })), "{same:?}");
        let last = scope.spawn(|| join(2, 3));
        let all = [first, second, twice, last].map(|rank| rank.join().expect("no panic"));
        let refused: Vec<_> = all.iter().filter_map(|rank| rank.as_ref().err()).collect();
        assert!(matches!(refused[..], [GroupError::Refused { why: Refusal::Twice, rank: 1, .. }]), "{refused:?}");
    });
}

#[test]
fn one_that_dies_while_the_others_meet_may_come_again() {
    let name = name();
    let join = |rank| Group::join(&Config::new(&name, rank, 3).timeout(LONG));
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0));
        // It goes before rank 2 comes, and gets no answer.
        let mut time = SHORT;
        loop {
            let error = Group::join(&Config::new(&name, 1, 3).timeout(time)).unwrap_err();
            if matches!(error, GroupError::Lost { rank: 0, how: How::Late }) {
                break;
            }
            // Rank 0 may not have begun.
            assert!(error.to_string().contains("no rank [0] within") && time < LONG, "{error}");
            time *= 2;
        }
        let others = [scope.spawn(|| join(1)), scope.spawn(|| join(2))];
        let all = others.map(|rank| rank.join().expect("no panic").expect("a place"));
        drop((all, first.join().expect("no panic").expect("all come")));
    });
}

#[test]
fn different_wishes_are_told_and_cost_nothing() {
    each(3, LONG, |mut group| {
        let odd = group.rank() == 1;
        let error = group.buffer::<f32>(if odd { 7 } else { 8 }).map(drop).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("a buffer of 7 f32") && said.contains("a buffer of 8 f32"), "{said}");

        let mut buffer = group.buffer::<f32>(8).expect("memory");
        let mut values = [group.rank() as f32; 5];
        let (op, len) = if odd { (Op::Max, 5) } else { (Op::Sum, 4) };
        let untouched = values;
        for error in [
            group.share(&mut buffer, op, |_| panic!("worked on")),
            group.pass(&mut values[..len], Op::Min, |_| panic!("worked on")),
            if odd { group.barrier() } else { group.pass(&mut values, Op::Min, |_| panic!("worked on")) },
        ] {
            let error = error.unwrap_err();
            assert!(
                matches!(error, GroupError::Differs { rank, own_rank, .. } if (rank == 1) != odd && own_rank == group.rank())
            );
            assert!(error.to_string().ends_with("all ranks of a group ask for the same"), "{error}");
        }
        assert_eq!(values, untouched);
        group.share(&mut buffer, Op::Sum, |_| ()).expect("as before");
        group.barrier().expect("as before");
    });
}

#[test]
fn memory_that_is_not_there_is_told_to_all() {
    each(2, LONG, |mut group| {
        for len in [usize::MAX, 1 << 60] {
            let error = group.buffer::<f64>(len).map(drop).unwrap_err();
            assert!(matches!(error, GroupError::Memory { rank: 0, .. }), "{error}");
        }
        assert_eq!(group.buffer::<f64>(3).expect("a little").len(), 3);
    });
}

/// What a process is told: the group's name, its rank, and which rank has no descriptor left.
const ROLE: &str = "PATHCALL_TEST_RANK";

/// Not a test of its own: the process of a rank, when another test has started it.
#[test]
fn rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [name, rank, full] = role.split(' ').collect::<Vec<_>>().try_into().expect("three words");
    let [rank, full] = [rank, full].map(|number| number.parse::<usize>().expect("a number"));
    let mut group = Group::join(&Config::new(name, rank, 3).timeout(LONG)).expect("all come");
    let before = getrlimit(Resource::Nofile);
    if rank == full {
        let next = File::open("/dev/null").expect("one more").as_raw_fd() as u64;
        setrlimit(Resource::Nofile, Rlimit { current: Some(next), ..before }).expect("fewer");
    }
    let begun = Instant::now();
    let error = group.buffer::<i64>(1000).map(drop).unwrap_err();
    assert!(matches!(error, GroupError::Memory { rank, .. } if rank == full), "{error}");
    assert!(rank != full || error.to_string().contains("open files"), "{error}");
    assert!(begun.elapsed() < LONG / 2);
    group.barrier().expect("it goes on");
    setrlimit(Resource::Nofile, before).expect("as before");
    assert_eq!(group.buffer::<i64>(1000).expect("memory").len(), 1000);
}

#[test]
fn a_rank_that_can_have_no_more_descriptors_is_told_to_all() {
    for full in 0..3 {
        let name = name();
        let start = |rank| {
            let mut command = Command::new(std::env::current_exe().expect("this test"));
            command.args(["--exact", "group::tests::rank", "--nocapture"]).env(ROLE, format!("{name} {rank} {full}"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
        };
        for (rank, process) in [0, 1, 2].map(start).into_iter().enumerate() {
            let output = process.wait_with_output().expect("its end");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "rank {rank}, where {full} has none left: {said}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "no process of rank {rank}");
        }
    }
}

#[test]
fn a_buffer_stays_with_its_group() {
    let mut one = Group::join(&Config::new(name(), 0, 1)).expect("nobody to wait for");
    let mut other = Group::join(&Config::new(name(), 0, 1)).expect("nobody to wait for");
    let mut buffer = one.buffer::<i32>(4).expect("memory");
    assert!(matches!(other.share(&mut buffer, Op::Sum, |_| ()), Err(GroupError::Foreign)));
    buffer.copy_from_slice(&[1, 2, 3, 4]);
    drop(one);
    assert_eq!(*buffer, [1, 2, 3, 4]);
}

#[test]
fn one_that_leaves_is_not_waited_for() {
    let errors = each(3, LONG, |mut group| {
        let mut buffer = group.buffer::<i32>(1000).expect("memory");
        let mut kept = group.buffer::<i32>(2).expect("memory");
        buffer.fill(7);
        kept.fill(8);
        if group.rank() == 2 {
            return None;
        }
        let begun = Instant::now();
        let error = group.share(&mut buffer, Op::Sum, |_| ()).unwrap_err();
        assert!(begun.elapsed() < LONG / 2);
        // Others may still write the one; nobody touches the other.
        assert!(buffer.len() == 1000 && buffer.iter().all(|value| *value == 0) && *kept == [8, 8]);
        let again = group.share(&mut buffer, Op::Sum, |_| ()).unwrap_err();
        assert!(group.share(&mut kept, Op::Sum, |_| ()).is_err() && *kept == [8, 8]);
        assert_eq!(error.to_string(), again.to_string());
        assert_eq!(error.to_string(), group.barrier().unwrap_err().to_string());
        Some(error.to_string())
    });
    let said = Some("rank 2 has left: the group has failed".to_owned());
    assert_eq!(errors, [said.clone(), said, None]);
}

#[test]
fn one_that_is_late_fails_the_group_and_hears_of_it() {
    let late = |rank: usize| format!("rank {rank} did not come in time: the group has failed");
    let mut time = SHORT;
    loop {
        let errors = each_that_comes(2, time, |mut group| {
            if group.rank() == 1 {
                // Alive, and busy with something else for longer than others wait.
                while group.barrier().is_ok() {
                    thread::sleep(4 * time);
                }
            }
            while group.barrier().is_ok() {}
            group.pass(&mut [1.0_f32], Op::Sum, |_| ()).unwrap_err().to_string()
        });
        match &errors.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(errors) if *errors == [late(1), late(1)] => return,
            // So may the other one be on a machine that stands still, and both before they have met.
            Ok(errors) => assert_eq!(*errors, [late(0), late(0)]),
            Err(apart) => println!("{apart}"),
        }
        time *= 2;
        assert!(time < LONG, "rank 1 is not found to be late");
    }
}

#[test]
fn a_panic_in_the_middle_is_told() {
    let panics = Barrier::new(2);
    let errors = each(2, LONG, |mut group| {
        let mut buffer = group.buffer::<i32>(100_000).expect("memory");
        let fails = group.rank() == 1;
        let mut waits = true;
        // The one has not done the other's part when that comes to it.
        let mut part = || {
            if std::mem::take(&mut waits) {
                panics.wait();
            }
            assert!(!fails, "on purpose");
        };
        let work = std::panic::AssertUnwindSafe(|| {
            group.share(&mut buffer, Op::Sum, |_| part()).map_err(|error| error.to_string())
        });
        let caught = std::panic::catch_unwind(work);
        assert_eq!(caught.is_err(), fails);
        if fails {
            // Others may still write there.
            assert!(buffer.is_empty());
        }
        group.barrier().unwrap_err().to_string()
    });
    assert_eq!(errors, ["rank 1 has panicked: the group has failed"; 2]);
}

#[test]
fn who_waits_for_memory_hears_that_the_group_has_failed() {
    let name = format!("test-unheard-{}", std::process::id());
    let join = &|rank| Group::join(&Config::new(&name, rank, 3)).unwrap();
    let begun = Instant::now();
    let [first, third] = std::thread::scope(|scope| {
        // Rank 1 comes to the task, and can't be given anything.
        let second = scope.spawn(|| {
            let mut group = join(1);
            group.peers.clear();
            group.begin(Task::Make { kind: Type::I32, values: 1 }).unwrap();
            group
        });
        // Nobody leaves before all have heard.
        let others = [0, 2].map(|rank| {
            scope.spawn(move || {
                let mut group = join(rank);
                (group.buffer::<i32>(1).map(drop).unwrap_err(), group)
            })
        });
        let others = others.map(|rank| rank.join().unwrap());
        drop(second.join().unwrap());
        others.map(|(error, _)| error.to_string())
    });
    assert_eq!([&first, &third], ["rank 1 has died: the group has failed"; 2]);
    assert!(begun.elapsed() < TIMEOUT / 2);
}
