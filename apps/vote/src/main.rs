//! Application vote: concurrent ballots. Votes are counted in the network, and only the vote that makes a majority
//! reaches the server (CntFwd with a threshold, NetRPC §4), as in Paxos between acceptors and learner.
//!
//! Every voter casts a vote in every ballot and learns the winner. The winners follow from the seed; all voters must
//! learn exactly these, and the server must receive each once.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apps_report::call_path::{Bytes, CallPath, Lanes, Transport, tonic_channel};
use apps_report::{Report, digest};
use clap::Parser;
use pathcall::types::StrintMap;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status};

mod pb {
    pathcall::include_proto!("vote");
}
use pb::vote_client::VoteClient;
use pb::vote_server::{Vote, VoteServer};

/// Number of voters, and of a majority: the filter's threshold.
const VOTERS: u32 = 5;
const MAJORITY: u32 = 3;
const CANDIDATES: [&str; 3] = ["ada", "grace", "edsger"];

/// Hold ballots in the network
#[derive(Debug, Clone, Parser)]
struct Args {
    #[command(flatten)]
    way: CallPath,
    /// Number of ballots
    #[arg(long, default_value_t = 500)]
    ballots: u32,
    /// Concurrent ballots of a voter
    #[arg(long, default_value_t = 8)]
    concurrent: u32,
    /// Seed of the votes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Handler of the service. With Pathcall, only the deciding votes reach it.
#[derive(Debug, Clone, Default)]
struct Handler {
    plain: bool,
    ballots: Arc<Mutex<HashMap<u32, Decision>>>,
    bytes: Arc<Bytes>,
}

/// State of a ballot at the server.
#[derive(Debug, Default)]
struct Decision {
    /// Votes by candidate; used with plain gRPC only, where all votes come here.
    votes: HashMap<String, u32>,
    /// Reported winners: exactly one if all is correct.
    winners: Vec<String>,
    winner_changes: watch::Sender<Option<String>>,
}

#[tonic::async_trait]
impl Vote for Handler {
    async fn cast(&self, request: Request<pb::Ballot>) -> Result<Response<pb::Counted>, Status> {
        let vote = request.into_inner();
        self.bytes.count(&vote);
        let mut ballots = self.ballots.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = ballots.entry(vote.ballot).or_default();
        if self.plain {
            let votes = decision.votes.entry(vote.candidate.clone()).or_default();
            *votes += 1;
            if *votes != MAJORITY {
                return Ok(Response::new(pb::Counted {}));
            }
        }
        decision.winners.push(vote.candidate.clone());
        decision.winner_changes.send_replace(Some(vote.candidate));
        Ok(Response::new(pb::Counted {}))
    }

    async fn learn(&self, request: Request<pb::Question>) -> Result<Response<pb::Winner>, Status> {
        let ballot = request.into_inner().ballot;
        let mut winner_changes = {
            let mut ballots = self.ballots.lock().unwrap_or_else(PoisonError::into_inner);
            ballots.entry(ballot).or_default().winner_changes.subscribe()
        };
        let winner =
            winner_changes.wait_for(Option::is_some).await.map_err(|_| Status::aborted("the ballot has ended"))?;
        Ok(Response::new(pb::Winner { candidate: winner.clone().unwrap_or_default() }))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    apps_report::exit(env!("CARGO_PKG_NAME"), run(Args::parse()).await)
}

async fn run(args: Args) -> Result<()> {
    let handler = Handler { plain: args.way.plain, ..Handler::default() };
    let host = args.way.serve(VoteServer::new(handler.clone()), &pb::PATHCALL).await?;

    let began = Instant::now();
    let mut voters = JoinSet::new();
    for id in 0..VOTERS {
        let part = voter(host.url.clone(), args.clone(), id);
        voters.spawn(args.way.places.clone().client(id as usize, part));
    }
    let (mut latencies, mut lanes) = (Vec::new(), Lanes::default());
    while let Some(voter) = voters.join_next().await {
        let (took, worked) = voter??;
        latencies.extend(took);
        lanes.add(worked);
    }
    let took = began.elapsed();
    let winners = handler.winners(&args)?;

    let mut report = Report::new("vote", args.way.plain, latencies, took);
    report.server_bytes = host.bytes(&handler.bytes);
    report.element_share = lanes.share();
    report.digest = digest(winners.iter().map(|winner| winner.as_bytes()));
    report.print(args.way.json);
    if !args.way.json {
        let won = CANDIDATES.map(|name| winners.iter().filter(|winner| **winner == name).count());
        println!("  {} ballots, one winner each: {CANDIDATES:?} won {won:?}", args.ballots);
    }
    Ok(())
}

impl Handler {
    /// Winner of each ballot, as reported to the server.
    fn winners(&self, args: &Args) -> Result<Vec<&'static str>> {
        let ballots = self.ballots.lock().unwrap_or_else(PoisonError::into_inner);
        let winner = |ballot: u32| {
            let heard = &ballots.get(&ballot).with_context(|| format!("ballot {ballot} was not decided"))?.winners;
            let expected = CANDIDATES[Votes::of(args.seed, ballot).winner];
            ensure!(*heard == [expected], "ballot {ballot}: expected winner {expected}, the server received {heard:?}");
            Ok(expected)
        };
        (0..args.ballots).map(winner).collect()
    }
}

/// Votes of a ballot: a majority for one candidate, the rest for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Votes {
    winner: usize,
    /// Candidate of each voter.
    candidates: [usize; VOTERS as usize],
}

impl Votes {
    fn of(seed: u64, ballot: u32) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(ballot.into());
        let mut below = |bound: u32| {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed >> 33) as u32 % bound
        };
        let winner = below(CANDIDATES.len() as u32) as usize;
        let others = below(VOTERS - MAJORITY + 1);
        let mut candidates = [winner; VOTERS as usize];
        for candidate in candidates.iter_mut().take(others as usize) {
            *candidate = (winner + 1 + below(CANDIDATES.len() as u32 - 1) as usize) % CANDIDATES.len();
        }
        candidates.rotate_left(below(VOTERS) as usize);
        Self { winner, candidates }
    }
}

/// Votes in all ballots. Returns times from casting to learning, and the counts of element and software.
async fn voter(url: String, args: Args, id: u32) -> Result<(Vec<Duration>, Lanes)> {
    let mut lanes = Lanes::default();
    if args.way.plain {
        return Ok((vote(&VoteClient::new(tonic_channel(url).await?), &args, id).await?, lanes));
    }
    let channel = pathcall::Channel::connect(url, &pb::PATHCALL).await?;
    let latencies = vote(&VoteClient::new(channel.clone()), &args, id).await?;
    lanes.count(&channel);
    Ok((latencies, lanes))
}

/// Each of `concurrent` tasks has every `concurrent`-th ballot.
async fn vote<T: Transport>(client: &VoteClient<T>, args: &Args, id: u32) -> Result<Vec<Duration>>
where
    T::Future: Send,
{
    let mut hands = JoinSet::new();
    let step = args.concurrent.max(1);
    for first in 0..step.min(args.ballots) {
        let (mut client, seed, ballots) = (client.clone(), args.seed, args.ballots);
        hands.spawn(async move {
            let mut latencies = Vec::new();
            for ballot in (first..ballots).step_by(step as usize) {
                let votes = Votes::of(seed, ballot);
                latencies.push(one(&mut client, ballot, votes, id).await?);
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(hand) = hands.join_next().await {
        latencies.extend(hand??);
    }
    Ok(latencies)
}

async fn one<T: Transport>(client: &mut VoteClient<T>, ballot: u32, votes: Votes, id: u32) -> Result<Duration> {
    let candidate = CANDIDATES[votes.candidates[id as usize]];
    let kvs = Some(StrintMap { map: [(format!("{ballot}/{candidate}"), 1)].into() });
    let began = Instant::now();
    client.cast(pb::Ballot { kvs, ballot, candidate: candidate.to_owned() }).await?;
    let learnt = client.learn(pb::Question { ballot }).await?.into_inner().candidate;
    let took = began.elapsed();
    let expected = CANDIDATES[votes.winner];
    ensure!(learnt == expected, "voter {id}: expected winner {expected} of ballot {ballot}, got {learnt:?}");
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_have_majorities_of_every_size() {
        let mut sizes = std::collections::BTreeMap::new();
        for ballot in 0..300 {
            let votes = Votes::of(1, ballot);
            assert_eq!(votes, Votes::of(1, ballot));
            let size = votes.candidates.iter().filter(|candidate| **candidate == votes.winner).count();
            *sizes.entry(size).or_insert(0) += 1;
        }
        let majorities: Vec<usize> = sizes.into_keys().collect();
        assert_eq!(majorities, (MAJORITY as usize..=VOTERS as usize).collect::<Vec<_>>());
        assert_ne!(
            (0..9).map(|b| Votes::of(1, b)).collect::<Vec<_>>(),
            (0..9).map(|b| Votes::of(2, b)).collect::<Vec<_>>()
        );
    }
}
