//! Thread of a replica: inputs in batches, one write to the disk for each batch, then everything that depends on it.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::Receiver;
use std::thread;

use anyhow::{Context, Result};
use prost::Message as _;
use tokio::sync::oneshot;
use tonic::Status;

use super::links::{PeerLinks, VoteLink};
use crate::consensus::{Effects, Input, Message, ProposalRefusal, Record, Replica, ReplicaConfig, Slot, Step, Value};
use crate::disk::DiskLog;
use crate::pb;
use crate::store::Registers;

/// Maximum number of inputs before a write to the disk.
const BATCH_MAX: usize = 256;
/// Slots between two snapshots.
const CHECKPOINT: Slot = 16 << 10;
/// Metadata that names the leader, if it is known.
pub(crate) const LEADER: &str = "paxos-leader";

/// Answer to a command.
pub(crate) type Answer = oneshot::Sender<Result<pb::Outcome, Status>>;

/// Work for the thread.
#[derive(Debug)]
pub(crate) enum Work {
    Input(Input),
    Execute {
        command: pb::Command,
        answer: Answer,
    },
    Inspect(oneshot::Sender<pb::Condition>),
    /// Time to become leader if none was heard since the last time.
    LookForLeader,
}

/// Replica with its disk and links, until it starts.
pub(crate) struct LogThread {
    pub(crate) replica: Replica,
    pub(crate) disk: DiskLog,
    pub(crate) links: PeerLinks,
    pub(crate) votes: Option<VoteLink>,
    pub(crate) config: ReplicaConfig,
}

/// Running thread.
struct Running {
    parts: LogThread,
    registers: Registers,
    checkpoint: Slot,
    /// Clients that wait for a command: client and number.
    waiting: HashMap<(u64, u64), Answer>,
    was_leading: bool,
    contacts: u64,
    counted: u64,
    cast: u64,
}

impl LogThread {
    /// Starts the thread; it ends when all senders of work are gone, or when its disk fails.
    pub(crate) fn start(self, queue: Receiver<Work>, restored: Effects) -> Result<()> {
        let name = format!("paxos-{}", self.config.id);
        let mut running = Running {
            parts: self,
            registers: Registers::default(),
            checkpoint: 0,
            waiting: HashMap::new(),
            was_leading: false,
            contacts: 0,
            counted: 0,
            cast: 0,
        };
        running.execute(restored)?;
        let run = move || {
            if let Err(error) = running.run(&queue) {
                // What may not be on disk must not be answered for.
                eprintln!("paxos: replica {} stops: {error:#}", running.parts.config.id);
            }
        };
        thread::Builder::new().name(name).spawn(run).context("cannot start the replica's thread")?;
        Ok(())
    }
}

impl Running {
    fn run(&mut self, queue: &Receiver<Work>) -> Result<()> {
        while let Ok(work) = queue.recv() {
            let mut effects = Effects::default();
            self.take(work, &mut effects);
            for work in queue.try_iter().take(BATCH_MAX - 1) {
                self.take(work, &mut effects);
            }
            self.execute(effects)?;
            self.refuse_after_loss_of_leadership();
        }
        Ok(())
    }

    fn take(&mut self, work: Work, effects: &mut Effects) {
        match work {
            Work::Input(input) => {
                self.counted += u64::from(matches!(input, Input::Counted(_)));
                self.handle(input, effects);
            }
            Work::Execute { command, answer } => self.propose(command, answer, effects),
            Work::Inspect(answer) => {
                // Who has asked may have gone.
                let _ = answer.send(self.condition());
            }
            Work::LookForLeader => {
                let contacts = self.parts.replica.leader_contacts();
                if contacts == self.contacts && !self.parts.replica.is_leading() {
                    self.handle(Input::LeaderTimeout, effects);
                }
                self.contacts = contacts;
            }
        }
    }

    /// Handles an input. Urgent messages leave at once; those to this replica itself are handled.
    fn handle(&mut self, input: Input, effects: &mut Effects) {
        self.parts.replica.handle(input, effects);
        self.send_urgent(effects);
    }

    fn send_urgent(&mut self, effects: &mut Effects) {
        let mut own = VecDeque::new();
        loop {
            for (to, message) in effects.urgent.drain(..) {
                if to == self.parts.config.id { own.push_back(message) } else { self.parts.links.send(to, &message) }
            }
            let Some(message) = own.pop_front() else { return };
            self.parts.replica.handle(self.own(message), effects);
        }
    }

    fn own(&self, message: Message) -> Input {
        Input::Message { from: self.parts.config.id, message }
    }

    fn propose(&mut self, command: pb::Command, answer: Answer, effects: &mut Effects) {
        let id = (command.client, command.number);
        if let Some(outcome) = self.registers.outcome(id.0, id.1).filter(|_| self.parts.replica.is_leading()) {
            // Repeated, and chosen already.
            let _ = answer.send(Ok(outcome));
            return;
        }
        match self.parts.replica.propose(Value::Command(command.encode_to_vec().into()), effects) {
            Ok(()) => drop(self.waiting.insert(id, answer)),
            // Who has asked may have gone.
            Err(refusal) => drop(answer.send(Err(refused(refusal)))),
        }
        self.send_urgent(effects);
    }

    /// Executes effects in their order, and the effects of messages to this replica itself.
    fn execute(&mut self, mut effects: Effects) -> Result<()> {
        loop {
            self.write(&effects.records)?;
            let mut own = Vec::new();
            for (to, message) in effects.messages {
                if to == self.parts.config.id { own.push(message) } else { self.parts.links.send(to, &message) }
            }
            if let Some(votes) = &mut self.parts.votes {
                self.cast += effects.casts.len() as u64;
                effects.casts.into_iter().for_each(|cast| votes.cast(cast));
                effects.clears.into_iter().for_each(|clear| votes.clear(clear));
            }
            let mut next = Effects::default();
            for step in effects.steps {
                self.apply(step, &mut next)?;
            }
            for message in own {
                let input = self.own(message);
                self.handle(input, &mut next);
            }
            if next.records.is_empty() && next.messages.is_empty() && next.casts.is_empty() && next.steps.is_empty() {
                return Ok(());
            }
            effects = next;
        }
    }

    fn write(&mut self, records: &[Record]) -> Result<()> {
        if records.iter().any(|record| matches!(record, Record::Snapshot { .. })) {
            return self.parts.disk.rewrite(&self.parts.replica.records());
        }
        if records.is_empty() { Ok(()) } else { self.parts.disk.append(records) }
    }

    fn apply(&mut self, step: Step, effects: &mut Effects) -> Result<()> {
        let slot = match step {
            Step::Install { upto, state } => {
                self.registers = Registers::restore(&state).context("cannot read the snapshot")?;
                self.checkpoint = upto;
                return Ok(());
            }
            Step::Apply { slot, value: Value::Noop } => slot,
            Step::Apply { slot, value: Value::Command(bytes) } => {
                let command = pb::Command::decode(&bytes[..]).context("cannot read a command of the log")?;
                let id = (command.client, command.number);
                let outcome = self.registers.apply(slot, command);
                if let Some(answer) = self.waiting.remove(&id) {
                    let outdated = || Status::out_of_range("the client has sent a later command already");
                    // Who has asked may have gone.
                    let _ = answer.send(outcome.ok_or_else(outdated));
                }
                slot
            }
        };
        if slot >= self.checkpoint + CHECKPOINT {
            self.checkpoint = slot;
            let state = self.registers.snapshot().into();
            self.handle(Input::Checkpoint { upto: slot, state }, effects);
        }
        Ok(())
    }

    /// Commands of a former leader may be chosen or not: their clients ask again.
    fn refuse_after_loss_of_leadership(&mut self) {
        let leads = self.parts.replica.is_leading();
        if self.was_leading && !leads {
            for (_, answer) in self.waiting.drain() {
                // Who has asked may have gone.
                let _ = answer.send(Err(refused(ProposalRefusal::NotLeader(None))));
            }
        }
        self.was_leading = leads;
    }

    fn condition(&self) -> pb::Condition {
        pb::Condition {
            leading: self.parts.replica.is_leading(),
            applied: self.parts.replica.applied(),
            digest: self.registers.digest(),
            counted: self.counted,
            votes: self.cast,
            round: self.parts.replica.following().round,
        }
    }
}

fn refused(refusal: ProposalRefusal) -> Status {
    match refusal {
        ProposalRefusal::Full => Status::resource_exhausted("too many commands are open: try again later"),
        ProposalRefusal::NotLeader(leader) => {
            let mut status = Status::unavailable("this replica does not lead: ask another");
            if let Some(leader) = leader {
                status.metadata_mut().insert(LEADER, u64::from(leader).into());
            }
            status
        }
    }
}
