//! All-reduce with processes as ranks: results are equal, and every other rank detects a killed or stopped one.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pathcall_place::reduce::{AllReduce, Config, Group, ReduceOp};

const RANKS: usize = 3;
const VALUES: usize = 300_000;
/// Timeout, longer than pauses of the machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// Environment variable for a process: group, rank, reduction, timeout in milliseconds.
const ROLE: &str = "PATHCALL_TEST_RANK";

/// Not a test of its own: process of a rank that another test starts.
#[test]
fn rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [name, rank, how, timeout] = role.split(' ').collect::<Vec<_>>().try_into().expect("four words");
    let timeout = Duration::from_millis(timeout.parse().expect("a number"));
    let config = Config::new(name, rank.parse().expect("a number"), RANKS).timeout(timeout);
    let mut group = Group::join(&config).expect("all answers arrive");
    let mut buffer = group.buffer::<f64>(VALUES).expect("memory");
    let mut values = vec![0.0; VALUES];
    for turn in 0.. {
        let own = (turn * RANKS + group.rank()) as f64;
        buffer.fill(own);
        values.fill(own);
        let done = match how {
            "registered" => group.all_reduce(&mut buffer, ReduceOp::Sum),
            _ => group.all_reduce_slice(&mut values, ReduceOp::Sum),
        };
        if let Err(error) = done {
            // The buffer stays readable, and no rank writes to it any more.
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

/// Starts ranks that reduce without end.
fn start(test: &str, how: &str, timeout: Duration) -> Vec<Child> {
    let start = |rank| {
        let role = format!("{test}-{}-{how} {rank} {how} {}", std::process::id(), timeout.as_millis());
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "reduce_processes::rank", "--nocapture"]).env(ROLE, role);
        command.stdout(Stdio::piped()).spawn().expect("a process")
    };
    (0..RANKS).map(start).collect()
}

/// Applies `end` to a rank in the middle of a reduction; returns the messages of the others.
fn others(mut ranks: Vec<Child>, rank: usize, turns: usize, end: impl FnOnce(&mut Child)) -> Vec<String> {
    let mut output = BufReader::new(ranks[rank].stdout.take().expect("piped")).lines();
    output.by_ref().filter(|line| line.as_ref().is_ok_and(|line| line.starts_with("turn"))).take(turns).for_each(drop);
    end(&mut ranks[rank]);
    let heard = ranks.iter_mut().enumerate().filter(|(k, _)| *k != rank).map(|(_, other)| {
        let mut all = String::new();
        other.stdout.take().expect("piped").read_to_string(&mut all).expect("text");
        let ended = other.wait().expect("end of the call");
        let failure = all.lines().find_map(|line| line.split("failed: ").nth(1)).filter(|_| ended.success());
        failure.map_or_else(|| format!("{ended}: {all}"), str::to_owned)
    });
    let heard = heard.collect();
    ranks[rank].kill().expect("packet of this simulation");
    ranks[rank].wait().expect("end of the call");
    heard
}

#[test]
fn killed_rank_is_detected() {
    for (how, turns) in [("registered", 1), ("private", 3), ("registered", 10), ("private", 1)] {
        for rank in 0..RANKS {
            let ranks = start(&format!("killed-{turns}-{rank}"), how, PATIENCE);
            let begun = std::cell::Cell::new(Instant::now());
            let output = others(ranks, rank, turns, |child| {
                begun.set(Instant::now());
                child.kill().expect("packet of this simulation");
            });
            let expected = format!("rank {rank} has died: the group has failed");
            assert_eq!(output, [expected.clone(), expected], "{how}");
            assert!(begun.get().elapsed() < PATIENCE, "detected only by the timeout");
        }
    }
}

/// A pause of the machine delays the others, too, and one of them may be blamed, or may not arrive at all; then all
/// get a longer timeout.
#[test]
fn stopped_rank_times_out() {
    let expected = ["rank 1 did not finish a step in time: the group has failed"; 2];
    let output = |seconds| {
        let ranks = start(&format!("stopped-{seconds}"), "registered", Duration::from_secs(seconds));
        others(ranks, 1, 2, |child| {
            let pid = rustix::process::Pid::from_child(child);
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("packet of this simulation");
        })
    };
    if [1, 5, 25].into_iter().any(|seconds| output(seconds) == expected) {
        return;
    }
    assert_eq!(output(125), expected);
}
