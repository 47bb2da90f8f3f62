//! Paxos without I/O and without a clock: one [`Replica`] is acceptor, learner, and at times the leader.
//!
//! ```text
//! messages, votes counted by the network, time-outs ─► Replica::handle ─► Effects: messages, records, casts, values
//! ```
//!
//! The log has slots; each slot is an instance of Paxos (Lamport, Paxos made simple, §3). A leader prepares all open
//! slots with one ballot number (phase 1), and then sends accept requests (phase 2a). Each acceptor writes what it
//! accepts to its disk, and votes (phase 2b). The votes for a slot and a ballot number are counted in one of two ways:
//!
//! - in the network (NetRPC §6.3): the acceptor *casts* its vote, and hears of a majority ([`Effects::casts`],
//!   [`Input::Counted`]);
//! - by messages: the acceptor sends its vote to all learners, and each learner counts.
//!
//! Both ways count alone; a vote of one is never added to a vote of the other. The network is only asked while the
//! leader knows that its counters are free (`counters.rs`).

mod acceptor;
mod counters;
mod leader;
mod learner;
mod replica;

use std::sync::Arc;

pub use replica::Replica;

/// Position in the log, from 1.
pub type Slot = u64;
/// Number of a replica, from 0.
pub type ReplicaId = u8;

/// Maximum number of slots that a leader has open: proposed, and not known to be chosen.
pub const OPEN_MAX: usize = 1024;
/// Maximum number of chosen values in one message.
pub const VALUES_MAX: usize = 256;
/// Maximum number of replicas: their votes are the bits of a byte.
pub const REPLICAS_MAX: usize = 7;

/// Ballot number. The leader's id makes it unique; zero is below all ballots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BallotNumber {
    /// Counted up by each new leader.
    pub round: u32,
    /// Leader of the ballot.
    pub leader: ReplicaId,
}

/// Value of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// Nothing: a new leader fills gaps with it.
    Noop,
    /// Command of a client.
    Command(Arc<[u8]>),
}

/// Value accepted in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Slot of the value.
    pub slot: Slot,
    /// Ballot in which it was accepted.
    pub ballot: BallotNumber,
    /// The value.
    pub value: Value,
}

/// Message between replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Phase 1a, for all slots from `first` on.
    Prepare {
        /// Ballot of the leader.
        ballot: BallotNumber,
        /// First slot that the leader does not know.
        first: Slot,
    },
    /// Phase 1b.
    Promise {
        /// Ballot that is promised.
        ballot: BallotNumber,
        /// Values accepted from the asked slot on.
        accepted: Vec<Accepted>,
        /// All slots up to this one are chosen, and no longer stored by value.
        truncated: Slot,
    },
    /// Phase 2a.
    Accept {
        /// Ballot of the leader, slot and value.
        proposal: Accepted,
        /// All slots up to this one are chosen.
        chosen: Slot,
        /// First slot of the ballot that the network counts, if it shall count this one; 0 otherwise.
        counted_from: Slot,
    },
    /// Phase 2b, counted by each learner.
    Vote {
        /// Ballot of the vote.
        ballot: BallotNumber,
        /// Slot of the vote.
        slot: Slot,
    },
    /// Sign of life of a leader.
    Heartbeat {
        /// Ballot of the leader.
        ballot: BallotNumber,
        /// All slots up to this one are chosen.
        chosen: Slot,
        /// First slot of the ballot that the network counts; 0 if it counts none.
        counted_from: Slot,
    },
    /// Answer to a heartbeat, also sent when many casts have completed.
    Settled {
        /// Ballot of the leader.
        ballot: BallotNumber,
        /// No vote of this ballot for a slot below is or will be under way to the network; 0 if unknown.
        below: Slot,
    },
    /// Answer to a message of an older ballot.
    Refused {
        /// Ballot promised to another leader.
        promised: BallotNumber,
    },
    /// Question for chosen values.
    Missing {
        /// First unknown slot.
        first: Slot,
    },
    /// Chosen values.
    Chosen {
        /// Slot of the first value.
        first: Slot,
        /// Values of consecutive slots.
        values: Vec<Value>,
    },
    /// State after all slots up to `upto`, instead of their values.
    Snapshot {
        /// Last slot of the state.
        upto: Slot,
        /// State as the application has written it.
        state: Arc<[u8]>,
    },
}

/// Event for a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A message has arrived.
    Message {
        /// Sender.
        from: ReplicaId,
        /// The message.
        message: Message,
    },
    /// The network has counted a majority of the votes for this slot in this ballot; the own one has completed.
    Counted(Cast),
    /// A cast has failed: it may be counted or not.
    CastFailed(Cast),
    /// The counters of these slots are clear.
    Cleared(Clear),
    /// No leader was heard for a while.
    LeaderTimeout,
    /// Time to repeat what may be lost.
    Tick,
    /// State of the application after all slots up to `upto`.
    Checkpoint {
        /// Last applied slot.
        upto: Slot,
        /// The state.
        state: Arc<[u8]>,
    },
}

/// Vote for a slot in a ballot, counted by the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cast {
    /// Ballot of the vote.
    pub ballot: BallotNumber,
    /// Slot of the vote.
    pub slot: Slot,
}

/// Counters to clear, from slot `first` to before slot `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clear {
    /// Ballot of the counters.
    pub ballot: BallotNumber,
    /// First slot.
    pub first: Slot,
    /// Slot after the last.
    pub end: Slot,
}

/// Record of a replica's log on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A promise.
    Promise(BallotNumber),
    /// An accepted value, which is a promise of its ballot too.
    Accept(Accepted),
    /// State after all slots up to `upto`: older records are obsolete.
    Snapshot {
        /// Last slot of the state.
        upto: Slot,
        /// The state.
        state: Arc<[u8]>,
    },
}

/// Step of the replicated application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The next chosen value.
    Apply {
        /// Its slot.
        slot: Slot,
        /// The value.
        value: Value,
    },
    /// The state after all slots up to `upto` replaces the present one.
    Install {
        /// Last slot of the state.
        upto: Slot,
        /// The state.
        state: Arc<[u8]>,
    },
}

/// Effects of inputs, in the order in which a driver executes them.
#[derive(Debug, Default)]
pub struct Effects {
    /// Messages that may leave at once.
    pub urgent: Vec<(ReplicaId, Message)>,
    /// Records. They must be on disk before anything below is done.
    pub records: Vec<Record>,
    /// Messages, also to this replica itself.
    pub messages: Vec<(ReplicaId, Message)>,
    /// Votes to cast in the network. Casts of older ballots end.
    pub casts: Vec<Cast>,
    /// Counters to clear in the network.
    pub clears: Vec<Clear>,
    /// Steps of the application.
    pub steps: Vec<Step>,
}

/// Settings of a replica.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaConfig {
    /// Own number.
    pub id: ReplicaId,
    /// Number of replicas, at most [`REPLICAS_MAX`].
    pub replicas: u8,
    /// Counters of a ballot in the network, a multiple of eight; with 0, the network counts no votes.
    pub counters: u64,
    /// Planted mistake; only tests have one.
    pub mutant: Option<Mutant>,
}

/// Mistake that tests plant to see that they would find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// An acceptor answers before its promise is on disk, and forgets it in a crash.
    PromiseNotOnDisk,
    /// A new leader proposes its own value where another was accepted.
    AcceptedIgnored,
    /// A new leader takes the value of the lowest accepted ballot.
    LowestBallotWins,
    /// A learner adds votes of different ballots.
    BallotsAdded,
    /// A restarted acceptor casts votes in a ballot of its earlier life.
    CastsAfterRestart,
    /// A leader reuses a counter before all acceptors have settled.
    CounterReusedEarly,
    /// A leader proposes in slots of which an acceptor has only a snapshot.
    TruncatedProposed,
    /// An acceptor accepts values below its promise.
    OldBallotAccepted,
}

/// Reason why a proposal was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalRefusal {
    /// Another replica leads, if one is known.
    NotLeader(Option<ReplicaId>),
    /// Too many slots are open.
    Full,
}

impl ReplicaConfig {
    /// Votes that decide.
    #[must_use]
    pub fn majority(&self) -> usize {
        usize::from(self.replicas) / 2 + 1
    }

    fn others(self) -> impl Iterator<Item = ReplicaId> {
        (0..self.replicas).filter(move |id| *id != self.id)
    }

    fn has(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
