//! Whole processes: replicas and the server of votes are killed while clients write, and start again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pathcall_test_support::application::{ApplicationProcess, addresses};
use paxos::load::{Session, write_all};
use paxos::pb;
use tokio::runtime::Runtime;

const LIMIT: Duration = Duration::from_secs(300);
const SESSIONS: u64 = 4;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_paxos"))
}

/// Three replicas, with a server of votes or without, and the logs of a test.
struct Cluster {
    urls: Vec<String>,
    data: PathBuf,
    votes: Option<(String, Option<ApplicationProcess>)>,
    replicas: Vec<Option<ApplicationProcess>>,
    runtime: Runtime,
    session: Session,
}

impl Cluster {
    fn start(name: &str, counted: bool) -> Self {
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // A run before may have been stopped.
        let _ = std::fs::remove_dir_all(&data);
        let urls: Vec<_> = addresses(3).into_iter().map(|address| format!("http://{address}")).collect();
        let runtime = Runtime::new().expect("a runtime");
        let session = runtime.block_on(async { Session::new(&urls, 0) }).expect("URLs");
        let votes = counted.then(|| (addresses(1).remove(0), None));
        let mut cluster = Self { urls, data, votes, replicas: vec![None, None, None], runtime, session };
        cluster.start_votes();
        (0..3).for_each(|id| cluster.start_replica(id));
        cluster
    }

    fn start_votes(&mut self) {
        if let Some((address, process)) = &mut self.votes {
            let mut command = program();
            let mut started =
                ApplicationProcess::start(command.args(["votes", "--path", "software", "--listen", address]));
            started.line();
            *process = Some(started);
        }
    }

    fn start_replica(&mut self, id: usize) {
        let mut command = program();
        command.args(["replica", "--id", &id.to_string(), "--replicas", &self.urls.join(",")]);
        command.args(["--election-ms", "400", "--data"]).arg(self.data.join(id.to_string()));
        match &self.votes {
            Some((address, _)) => command.args(["--votes", &format!("http://{address}")]),
            None => command.arg("--plain"),
        };
        let mut started = ApplicationProcess::start(&mut command);
        started.line();
        self.replicas[id] = Some(started);
    }

    /// Begins writes of sessions that start at `first`.
    fn write(&self, first: u64, writes: usize) -> tokio::task::JoinHandle<anyhow::Result<Vec<Duration>>> {
        let session = self.session.clone();
        self.runtime.spawn(async move { write_all(&session, first..first + SESSIONS, writes, 32, LIMIT).await })
    }

    fn join(&self, writing: tokio::task::JoinHandle<anyhow::Result<Vec<Duration>>>) -> usize {
        self.runtime.block_on(writing).expect("no panic").expect("all writes succeed").len()
    }

    /// Waits until some replica is in a condition; returns its number.
    fn until(&self, condition: impl Fn(&pb::Condition) -> bool) -> usize {
        pathcall_test_support::process::until_within(LIMIT, "a replica in this condition", || {
            let all = self.runtime.block_on(self.session.inspect());
            all.iter().position(|one| one.as_ref().is_some_and(&condition))
        })
    }

    fn agree(&self) -> Vec<pb::Condition> {
        self.runtime.block_on(self.session.agree(LIMIT)).expect("all have the same state")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.replicas.clear();
        // A failed test's logs are deleted by the next run.
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

#[test]
fn killed_leader_loses_no_write() {
    let mut cluster = Cluster::start("killed-leader", false);
    let writing = cluster.write(1, 60);
    let leader = cluster.until(|one| one.leading && one.applied > 40);
    cluster.replicas[leader] = None;
    let next = cluster.until(|one| one.leading && one.applied > 120);
    assert_ne!(next, leader);
    cluster.start_replica(leader);
    assert_eq!(cluster.join(writing), 240);
    let states = cluster.agree();
    assert!(states.iter().all(|state| state.counted == 0 && state.applied >= 240), "{states:?}");
}

#[test]
fn all_replicas_killed_at_once_keep_log_on_disk() {
    let mut cluster = Cluster::start("all-killed", false);
    let writing = cluster.write(1, 20);
    assert_eq!(cluster.join(writing), 80);
    let digest = cluster.agree()[0].digest;
    (0..3).for_each(|id| cluster.replicas[id] = None);
    (0..3).for_each(|id| cluster.start_replica(id));
    cluster.until(|one| one.digest == digest);
    assert_eq!(cluster.agree()[0].digest, digest);
}

#[test]
fn votes_are_counted_again_after_death_of_replica_and_of_counters() {
    let mut cluster = Cluster::start("counted", true);
    let writing = cluster.write(1, 150);
    let leader = cluster.until(|one| one.leading && one.counted > 60);
    let follower = (leader + 1) % 3;
    cluster.replicas[follower] = None;
    cluster.until(|one| one.leading && one.applied > 200);
    cluster.start_replica(follower);
    // It does not count votes in the ballot of its earlier life, so the leader takes a new one.
    let writing_more = cluster.write(100, 150);
    pathcall_test_support::process::until_within(LIMIT, "a counted vote of the restarted replica", || {
        let all = cluster.runtime.block_on(cluster.session.inspect());
        all[follower].as_ref().filter(|one| one.counted > 0).map(drop)
    });
    if let Some((_, process)) = &mut cluster.votes {
        *process = None;
    }
    assert_eq!(cluster.join(writing) + cluster.join(writing_more), 1200);
    // Without counters, learners count.
    let writing = cluster.write(200, 10);
    assert_eq!(cluster.join(writing), 40);
    cluster.start_votes();
    cluster.agree();
}
