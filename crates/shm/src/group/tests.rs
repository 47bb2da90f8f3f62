//! Tests of groups: rendezvous, agreement and failure, between threads; and between processes, where a limit applies to
//! a process. The tests of `pathcall-place` cover the rest between processes.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use pathcall_test_support::HANG;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Timeout where no rank is missing: long enough for a machine that stands still.
const LONG: Duration = HANG;
/// Timeout where a rank is missing: it may be too short on a machine that stands still, and is then extended.
const SHORT: Duration = Duration::from_millis(300);

/// Unique name of a group.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs `work` on each rank of a group, and returns the results.
fn run_ranks<R: Send>(ranks: usize, timeout: Duration, work: impl Fn(Group) -> R + Sync) -> Vec<R> {
    run_joining_ranks(ranks, timeout, work).into_iter().map(|rank| rank.expect("all ranks join")).collect()
}

/// Runs `work` on each rank that joins, and returns the results.
fn run_joining_ranks<R: Send>(
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
    run_ranks(3, LONG, |mut group| {
        assert_eq!(group.ranks(), 3);
        for turn in 0..200 {
            turns[group.rank()].store(turn, Ordering::Relaxed);
            group.barrier().expect("all ranks have joined");
            assert!(turns.iter().all(|of| [turn, turn + 1].contains(&of.load(Ordering::Relaxed))));
        }
    });
}

#[test]
fn each_part_is_processed_once() {
    let rows = run_ranks(3, LONG, |mut group| {
        let mut buffer = group.buffer::<i64>(100_001).expect("memory");
        assert!(buffer.len() == 100_001 && buffer.iter().all(|value| *value == 0));
        for turn in 0..20 {
            let own = group.rank() as i64;
            buffer.iter_mut().enumerate().for_each(|(i, value)| *value = own * 1_000_000 + i as i64 + turn);
            let add = |mut part: BufferPart<'_, i64>| {
                for rank in 0..part.ranks() {
                    part.row(rank).iter_mut().for_each(|value| *value += 1);
                }
            };
            group.process_buffer(&mut buffer, ReduceOp::Sum, add).expect("all ranks have joined");
            let right = |i: usize| own * 1_000_000 + i as i64 + turn + 1;
            assert!(buffer.iter().enumerate().all(|(i, value)| *value == right(i)));
        }
        buffer.len()
    });
    assert_eq!(rows, [100_001; 3]);
}

#[test]
fn invalid_rank_or_name_is_refused() {
    for (rank, ranks) in [(0, 0), (2, 2), (0, RANKS_MAX + 1)] {
        let error = Group::join(&Config::new("any", rank, ranks)).unwrap_err();
        assert!(error.to_string().contains("expected a rank below the number of ranks, which is 1 to 64"), "{error}");
    }
    for name in [String::new(), "n".repeat(NAME_MAX + 1)] {
        assert!(matches!(Group::join(&Config::new(name, 0, 1)), Err(GroupError::Name { .. })));
    }
    let mut alone = Group::join(&Config::new("n".repeat(NAME_MAX), 0, 1)).expect("a group of one rank");
    alone.barrier().expect("a group of one rank");
}

#[test]
fn missing_ranks_are_reported() {
    let name = name();
    let joins = |rank| Group::join(&Config::new(&name, rank, 4).timeout(SHORT));
    // Rank 2 joins, before rank 0 even; ranks 1 and 3 do not.
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
    assert!(matches!(second, GroupError::Refused { rank: 2, reason: JoinRefusal::IncompleteGroup, .. }), "{second}");
    let error = joins(1).unwrap_err();
    assert!(error.to_string().contains("no rank [0] within 300ms"), "{error}");
}

#[test]
fn foreign_processes_are_refused_and_group_continues() {
    let name = name();
    let join = |rank, ranks| Group::join(&Config::new(&name, rank, ranks).timeout(LONG));
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, 3));
        let second = scope.spawn(|| join(1, 3));
        // Of two processes with the same rank one is refused, and the other waits for rank 2.
        let twice = scope.spawn(|| join(1, 3));
        let other = join(1, 2).unwrap_err();
        assert!(matches!(other, GroupError::Refused { reason: JoinRefusal::RankCount, .. }), "{other}");
        while !(second.is_finished() || twice.is_finished()) {
            thread::yield_now();
        }
        let same = join(0, 3).map(drop);
        assert!(matches!(same, Err(GroupError::Taken { .. })), "{same:?}");
        let last = scope.spawn(|| join(2, 3));
        let all = [first, second, twice, last].map(|rank| rank.join().expect("no panic"));
        let refused: Vec<_> = all.iter().filter_map(|rank| rank.as_ref().err()).collect();
        assert!(
            matches!(refused[..], [GroupError::Refused { reason: JoinRefusal::DuplicateRank, rank: 1, .. }]),
            "{refused:?}"
        );
    });
}

#[test]
fn rank_may_rejoin_during_rendezvous() {
    let name = name();
    let join = |rank| Group::join(&Config::new(&name, rank, 3).timeout(LONG));
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0));
        // Rank 1 leaves before rank 2 joins, and gets no answer.
        let mut time = SHORT;
        loop {
            let error = Group::join(&Config::new(&name, 1, 3).timeout(time)).unwrap_err();
            if matches!(error, GroupError::Lost { rank: 0, how: RankLossReason::Late }) {
                break;
            }
            // Rank 0 may not listen yet.
            assert!(error.to_string().contains("no rank [0] within") && time < LONG, "{error}");
            time *= 2;
        }
        let others = [scope.spawn(|| join(1)), scope.spawn(|| join(2))];
        let all = others.map(|rank| rank.join().expect("no panic").expect("a place"));
        drop((all, first.join().expect("no panic").expect("all ranks join")));
    });
}

#[test]
fn differing_tasks_are_reported_without_effect() {
    run_ranks(3, LONG, |mut group| {
        let odd = group.rank() == 1;
        let error = group.buffer::<f32>(if odd { 7 } else { 8 }).map(drop).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("a buffer of 7 f32") && text.contains("a buffer of 8 f32"), "{text}");

        let mut buffer = group.buffer::<f32>(8).expect("memory");
        let mut values = [group.rank() as f32; 5];
        let (op, len) = if odd { (ReduceOp::Max, 5) } else { (ReduceOp::Sum, 4) };
        let untouched = values;
        for error in [
            group.process_buffer(&mut buffer, op, |_| panic!("unexpected processing")),
            group.process_slice(&mut values[..len], ReduceOp::Min, |_| panic!("unexpected processing")),
            if odd {
                group.barrier()
            } else {
                group.process_slice(&mut values, ReduceOp::Min, |_| panic!("unexpected processing"))
            },
        ] {
            let error = error.unwrap_err();
            let own = group.rank();
            assert!(
                matches!(error, GroupError::Differs { rank, own_rank, .. } if (rank == 1) != odd && own_rank == own)
            );
            assert!(error.to_string().ends_with("all ranks of a group ask for the same"), "{error}");
        }
        assert_eq!(values, untouched);
        group.process_buffer(&mut buffer, ReduceOp::Sum, |_| ()).expect("as before");
        group.barrier().expect("as before");
    });
}

#[test]
fn lack_of_memory_is_reported_to_all_ranks() {
    run_ranks(2, LONG, |mut group| {
        for len in [usize::MAX, 1 << 60] {
            let error = group.buffer::<f64>(len).map(drop).unwrap_err();
            assert!(matches!(error, GroupError::Memory { rank: 0, .. }), "{error}");
        }
        assert_eq!(group.buffer::<f64>(3).expect("a little").len(), 3);
    });
}

/// Environment variable for a rank's process: name of the group, its rank, and the rank without a free descriptor.
const ROLE: &str = "PATHCALL_TEST_RANK";

/// Process of a rank, when another test has started it; no test of its own.
#[test]
fn rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [name, rank, full] = role.split(' ').collect::<Vec<_>>().try_into().expect("three words");
    let [rank, full] = [rank, full].map(|number| number.parse::<usize>().expect("a number"));
    let mut group = Group::join(&Config::new(name, rank, 3).timeout(LONG)).expect("all ranks join");
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
fn lack_of_descriptors_is_reported_to_all_ranks() {
    for full in 0..3 {
        let name = name();
        let start = |rank| {
            let mut command = Command::new(std::env::current_exe().expect("this test"));
            command.args(["--exact", "group::tests::rank", "--nocapture"]).env(ROLE, format!("{name} {rank} {full}"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
        };
        for (rank, process) in [0, 1, 2].map(start).into_iter().enumerate() {
            let output = process.wait_with_output().expect("its end");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "rank {rank}, with no free descriptor at rank {full}: {text}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "no process of rank {rank}");
        }
    }
}

#[test]
fn buffer_of_another_group_is_refused() {
    let mut one = Group::join(&Config::new(name(), 0, 1)).expect("a group of one rank");
    let mut other = Group::join(&Config::new(name(), 0, 1)).expect("a group of one rank");
    let mut buffer = one.buffer::<i32>(4).expect("memory");
    assert!(matches!(other.process_buffer(&mut buffer, ReduceOp::Sum, |_| ()), Err(GroupError::Foreign)));
    buffer.copy_from_slice(&[1, 2, 3, 4]);
    drop(one);
    assert_eq!(*buffer, [1, 2, 3, 4]);
}

#[test]
fn leaving_rank_fails_the_group() {
    let errors = run_ranks(3, LONG, |mut group| {
        let mut buffer = group.buffer::<i32>(1000).expect("memory");
        let mut kept = group.buffer::<i32>(2).expect("memory");
        buffer.fill(7);
        kept.fill(8);
        if group.rank() == 2 {
            return None;
        }
        let begun = Instant::now();
        let error = group.process_buffer(&mut buffer, ReduceOp::Sum, |_| ()).unwrap_err();
        assert!(begun.elapsed() < LONG / 2);
        // Other ranks may still write this buffer; no rank accesses the other one.
        assert!(buffer.len() == 1000 && buffer.iter().all(|value| *value == 0) && *kept == [8, 8]);
        let again = group.process_buffer(&mut buffer, ReduceOp::Sum, |_| ()).unwrap_err();
        assert!(group.process_buffer(&mut kept, ReduceOp::Sum, |_| ()).is_err() && *kept == [8, 8]);
        assert_eq!(error.to_string(), again.to_string());
        assert_eq!(error.to_string(), group.barrier().unwrap_err().to_string());
        Some(error.to_string())
    });
    let text = Some("rank 2 has left: the group has failed".to_owned());
    assert_eq!(errors, [text.clone(), text, None]);
}

#[test]
fn late_rank_fails_the_group() {
    let late = |rank: usize| format!("rank {rank} did not finish a step in time: the group has failed");
    let mut time = SHORT;
    loop {
        let errors = run_joining_ranks(2, time, |mut group| {
            if group.rank() == 1 {
                // The rank is alive, and busy for longer than the other waits.
                while group.barrier().is_ok() {
                    thread::sleep(4 * time);
                }
            }
            while group.barrier().is_ok() {}
            group.process_slice(&mut [1.0_f32], ReduceOp::Sum, |_| ()).unwrap_err().to_string()
        });
        match &errors.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(errors) if *errors == [late(1), late(1)] => return,
            // On a machine that stands still, the other rank may be late instead, and both may miss the rendezvous.
            Ok(errors) => assert_eq!(*errors, [late(0), late(0)]),
            Err(apart) => println!("{apart}"),
        }
        time *= 2;
        assert!(time < LONG, "rank 1 is not found to be late");
    }
}

#[test]
fn panic_during_task_fails_the_group() {
    let panics = Barrier::new(2);
    let errors = run_ranks(2, LONG, |mut group| {
        let mut buffer = group.buffer::<i32>(100_000).expect("memory");
        let fails = group.rank() == 1;
        let mut waits = true;
        // Rank 1 has not processed its part when the other rank comes to it.
        let mut part = || {
            if std::mem::take(&mut waits) {
                panics.wait();
            }
            assert!(!fails, "on purpose");
        };
        let work = std::panic::AssertUnwindSafe(|| {
            group.process_buffer(&mut buffer, ReduceOp::Sum, |_| part()).map_err(|error| error.to_string())
        });
        let caught = std::panic::catch_unwind(work);
        assert_eq!(caught.is_err(), fails);
        if fails {
            // Other ranks may still write the row.
            assert!(buffer.is_empty());
        }
        group.barrier().unwrap_err().to_string()
    });
    assert_eq!(errors, ["rank 1 has panicked: the group has failed"; 2]);
}

#[test]
fn waiting_for_memory_ends_when_group_fails() {
    let name = format!("test-unheard-{}", std::process::id());
    let join = &|rank| Group::join(&Config::new(&name, rank, 3)).unwrap();
    let begun = Instant::now();
    let [first, third] = std::thread::scope(|scope| {
        // Rank 1 joins the task, and cannot receive anything.
        let second = scope.spawn(|| {
            let mut group = join(1);
            group.peers.clear();
            group.begin(GroupTask::CreateBuffer { kind: NumberType::I32, values: 1 }).unwrap();
            group
        });
        // No rank leaves before all have got the error.
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
