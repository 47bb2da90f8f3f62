//! Processes as ranks: they agree, and one that is killed or stopped in the middle is noticed by all others.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pathcall_place::reduce::{AllReduce, Config, Group, Op};

const RANKS: usize = 3;
const VALUES: usize = 300_000;
/// Longer than a machine stands still.
const PATIENCE: Duration = Duration::from_secs(180);
/// What a process is told: group, rank, what it does, time-out in milliseconds.
const ROLE: &str = "PATHCALL_TEST_RANK";

/// Not a test of its own: the process of a rank, when another test has started it.
#[test]
fn rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [name, rank, how, timeout] = role.split(' ').collect::<Vec<_>>().try_into().expect("four words");
    let timeout = Duration::from_millis(timeout.parse().expect("a number"));
    let config = Config::new(name, rank.parse().expect("a number"), RANKS).timeout(timeout);
    let mut group = Group::join(&config).expect("all come");
    let mut buffer = group.buffer::<f64>(VALUES).expect("memory");
    let mut values = vec![0.0; VALUES];
    for turn in 0.. {
        let own = (turn * RANKS + group.rank()) as f64;
        buffer.fill(own);
        values.fill(own);
        let done = match how {
            "registered" => group.all_reduce(&mut buffer, Op::Sum),
            _ => group.all_reduce_slice(&mut values, Op::Sum),
        };
        if let Err(error) = done {
            // What is left of it can be read, and nobody writes it any more.
            assert!(how != "registered" || buffer.iter().all(|value| *value == 0.0));
            println!("failed: {error}");
            return;
        }
        let all = (0..RANKS).map(|rank| (turn * RANKS + rank) as f64).sum::<f64>();
        let results = if how == "registered" { &*buffer } else { &values };
        assert!(results.iter().all(|value| *value == all), "turn {turn}");
        println!("turn {turn}");
    }
}

/// Ranks that reduce without end.
fn start(test: &str, how: &str, timeout: Duration) -> Vec<Child> {
    let start = |rank| {
        let role = format!("{test}-{}-{how} {rank} {how} {}", std::process::id(), timeout.as_millis());
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "reduce_processes::rank", "--nocapture"]).env(ROLE, role);
        command.stdout(Stdio::piped()).spawn().expect("a process")
    };
    (0..RANKS).map(start).collect()
}

/// In the middle of a turn, whichever that is, `end` happens to a rank; what the others say then.
fn others(mut ranks: Vec<Child>, rank: usize, turns: usize, end: impl FnOnce(&mut Child)) -> Vec<String> {
    let mut said = BufReader::new(ranks[rank].stdout.take().expect("piped")).lines();
    said.by_ref().filter(|line| line.as_ref().is_ok_and(|line| line.starts_with("turn"))).take(turns).for_each(drop);
    end(&mut ranks[rank]);
    let heard = ranks.iter_mut().enumerate().filter(|(k, _)| *k != rank).map(|(_, other)| {
        let mut all = String::new();
        other.stdout.take().expect("piped").read_to_string(&mut all).expect("text");
        let ended = other.wait().expect("its end");
        let failure = all.lines().find_map(|line| line.split("failed: ").nth(1)).filter(|_| ended.success());
        failure.map_or_else(|| format!("{ended}: {all}"), str::to_owned)
    });
    let heard = heard.collect();
    ranks[rank].kill().expect("it is ours");
    ranks[rank].wait().expect("its end");
    heard
}

#[test]
fn one_that_is_killed_is_noticed() {
    for (how, turns) in [("registered", 1), ("private", 3), ("registered", 10), ("private", 1)] {
        for rank in 0..RANKS {
            let ranks = start(&format!("killed-{turns}-{rank}"), how, PATIENCE);
            let begun = std::cell::Cell::new(Instant::now());
            let said = others(ranks, rank, turns, |child| {
                begun.set(Instant::now());
                child.kill().expect("it is ours");
            });
            let expected = format!("rank {rank} has died: the group has failed");
            assert_eq!(said, [expected.clone(), expected], "{how}");
            assert!(begun.get().elapsed() < PATIENCE, "noticed by the time-out only");
        }
    }
}

/// Where the machine stands still the others are late, too, and one of them may be blamed, or not come at all: then all
/// have more time.
#[test]
fn one_that_is_stopped_is_given_up() {
    let expected = ["rank 1 did not come in time: the group has failed"; 2];
    let said = |seconds| {
        let ranks = start(&format!("stopped-{seconds}"), "registered", Duration::from_secs(seconds));
        others(ranks, 1, 2, |child| {
            let pid = rustix::process::Pid::from_child(child);
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is ours");
        })
    };
    if [1, 5, 25].into_iter().any(|seconds| said(seconds) == expected) {
        return;
    }
    assert_eq!(said(125), expected);
}
