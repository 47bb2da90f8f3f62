//! Application paxos: a replicated log by Paxos, with votes that the network counts (NetRPC §6.3).
//!
//! `paxos votes` is the server of the votes' application; `paxos replica` runs one of three replicas; `paxos client`
//! writes through them and checks that all have the same state.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::{Report, call_path};
use clap::{Parser, Subcommand};
use paxos::consensus::ReplicaId;
use paxos::driver::{self, ReplicaOptions};
use paxos::load::{Session, write_all};
use paxos::votes::{self, VotesOptions};

/// Run a replicated log with votes that the network counts
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Serve the application of the votes; it keeps nothing that Paxos needs
    Votes {
        /// Address to serve at
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Controller; without one, this server counts
        #[arg(long, value_name = "URL")]
        controller: Option<String>,
        /// Path of the votes: automatic, element or software [default: that of the filter]
        #[arg(long, value_name = "PATH", value_parser = call_path::parse_path)]
        path: Option<pathcall::manifest::MapPath>,
    },
    /// Run a replica: acceptor, learner, and at times the leader
    Replica {
        /// Number of this replica, from 0
        #[arg(long)]
        id: ReplicaId,
        /// URLs of all replicas, in the order of their numbers
        #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
        replicas: Vec<String>,
        /// Address to serve at [default: that of the own URL]
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
        /// Directory of the log
        #[arg(long, value_name = "DIRECTORY")]
        data: PathBuf,
        /// Server of the votes
        #[arg(long, value_name = "URL", required_unless_present = "plain", conflicts_with = "plain")]
        votes: Option<String>,
        /// Plain gRPC: each learner counts the votes
        #[arg(long)]
        plain: bool,
        /// Milliseconds without a leader after which this replica tries to lead
        #[arg(long, value_name = "MS", default_value_t = 1000)]
        election_ms: u64,
    },
    /// Write through the replicas, and check that all have the same state
    Client {
        /// URLs of all replicas
        #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
        replicas: Vec<String>,
        /// Writes of each session
        #[arg(long, default_value_t = 100)]
        writes: usize,
        /// Concurrent sessions
        #[arg(long, default_value_t = 8)]
        concurrent: u64,
        /// Bytes of a value
        #[arg(long, default_value_t = 64)]
        bytes: usize,
        /// Number of the first session: no other client has it
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Seconds after which a write fails
        #[arg(long, value_name = "S", default_value_t = 60)]
        timeout_s: u64,
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    apps_report::exit(env!("CARGO_PKG_NAME"), run(Args::parse().role).await)
}

async fn run(role: Role) -> Result<()> {
    match role {
        Role::Votes { listen, controller, path } => {
            let serving = votes::serve(VotesOptions { listen, controller, path }).await?;
            println!("paxos: votes at {}", serving.url);
            forever().await
        }
        Role::Replica { id, replicas, listen, data, votes, plain: _, election_ms } => {
            let url = replicas.get(usize::from(id)).with_context(|| format!("no URL of replica {id}"))?.clone();
            let own = url.rsplit("//").next().unwrap_or_default().parse();
            let listen = listen.map_or_else(|| own.with_context(|| format!("{url} has no address")), Ok)?;
            let listener = driver::bind(listen).await?;
            let election = Duration::from_millis(election_ms.max(1));
            let running = driver::start(ReplicaOptions { id, replicas, data, votes, election }, listener).await?;
            println!("paxos: replica {id} at {url}");
            let ended = forever().await;
            drop(running);
            ended
        }
        Role::Client { replicas, writes, concurrent, bytes, first, timeout_s, json } => {
            ensure!(concurrent > 0, "no sessions: --concurrent must be at least 1");
            let (session, timeout) = (Session::new(&replicas, 0)?, Duration::from_secs(timeout_s));
            let began = Instant::now();
            let took = write_all(&session, first..first + concurrent, writes, bytes, timeout).await?;
            let elapsed = began.elapsed();
            let states = session.agree(timeout).await?;
            let mut report = Report::new("paxos", states.iter().all(|state| state.votes == 0), took, elapsed);
            let sum = |part: fn(&paxos::pb::Condition) -> u64| states.iter().map(part).sum::<u64>();
            let (counted, votes) = (sum(|state| state.counted), sum(|state| state.votes));
            report.element_share = (votes > 0).then(|| counted as f64 / votes as f64);
            report.digest = states.first().map(|state| format!("{:016x}", state.digest)).unwrap_or_default();
            report.print(json);
            Ok(())
        }
    }
}

async fn forever() -> Result<()> {
    tokio::signal::ctrl_c().await.context("cannot wait for the end")
}
