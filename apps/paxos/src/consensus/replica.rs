//! Replica: acceptor, learner and leader, joined by their messages.

use super::acceptor::Acceptor;
use super::counters::CastLedger;
use super::leader::Leader;
use super::learner::Learner;
use super::{
    Accepted, BallotNumber, Cast, Clear, Effects, Input, Message, Mutant, ProposalRefusal, Record, ReplicaConfig,
    ReplicaId, Slot, Step, Value,
};

/// Replica of the log.
#[derive(Debug)]
pub struct Replica {
    config: ReplicaConfig,
    acceptor: Acceptor,
    learner: Learner,
    leader: Leader,
    casts: CastLedger,
    /// Highest ballot that this replica may have voted in before it was started.
    ballot_at_start: BallotNumber,
    /// Ballot of the leader that was heard last.
    following: BallotNumber,
    /// Counted up by each message of a leader.
    leader_contacts: u64,
}

impl Replica {
    /// Starts from the records on disk, none at first. The effects restore the application.
    pub fn start(config: ReplicaConfig, records: impl IntoIterator<Item = Record>) -> (Self, Effects) {
        let acceptor = Acceptor::restore(records);
        let mut effects = Effects::default();
        if let Some((upto, state)) = acceptor.snapshot() {
            effects.steps.push(Step::Install { upto, state });
        }
        let promised = acceptor.promised();
        let replica = Self {
            config,
            learner: Learner::new(config, acceptor.truncated()),
            leader: Leader::new(config),
            casts: CastLedger::new(config.counters),
            ballot_at_start: if config.has(Mutant::CastsAfterRestart) { BallotNumber::default() } else { promised },
            following: BallotNumber::default(),
            leader_contacts: 0,
            acceptor,
        };
        (replica, effects)
    }

    /// Handles an input.
    pub fn handle(&mut self, input: Input, effects: &mut Effects) {
        match input {
            Input::Message { from, message } => self.on_message(from, message, effects),
            Input::Counted(Cast { ballot, slot }) => {
                self.casts.finish(ballot, slot, true);
                self.decide(slot, ballot, effects);
            }
            Input::CastFailed(Cast { ballot, slot }) => self.vote_by_message(ballot, slot, effects),
            Input::Cleared(clear) if clear.ballot == self.leader.ballot() => self.leader.counters().clear(clear),
            Input::Cleared(_) => {}
            Input::LeaderTimeout => self.campaign(effects),
            Input::Tick => self.on_tick(effects),
            Input::Checkpoint { upto, state } => {
                if upto > self.acceptor.truncated() && upto <= self.learner.applied() {
                    self.acceptor.truncate(upto, state.clone());
                    self.learner.truncate(upto);
                    effects.records.push(Record::Snapshot { upto, state });
                }
            }
        }
    }

    /// Proposes a command in a slot of its own, if this replica leads.
    ///
    /// # Errors
    /// Returns the reason if the command was not proposed.
    pub fn propose(&mut self, command: Value, effects: &mut Effects) -> Result<(), ProposalRefusal> {
        let proposed = self.leader.propose(command, self.learner.applied());
        match proposed {
            Ok(accept) => self.broadcast_urgently(&accept, effects),
            Err(ProposalRefusal::NotLeader(_)) => {
                let known = self.following > BallotNumber::default() && self.following.leader != self.config.id;
                return Err(ProposalRefusal::NotLeader(known.then_some(self.following.leader)));
            }
            Err(full) => return Err(full),
        }
        Ok(())
    }

    /// Whether this replica leads.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.leader.is_leading()
    }

    /// Ballot of the leader that was heard last.
    #[must_use]
    pub fn following(&self) -> BallotNumber {
        self.following
    }

    /// Number that changes with each message of a leader: its time-out begins anew.
    #[must_use]
    pub fn leader_contacts(&self) -> u64 {
        self.leader_contacts
    }

    /// Last slot that is applied.
    #[must_use]
    pub fn applied(&self) -> Slot {
        self.learner.applied()
    }

    /// Records that restore this replica, without obsolete ones.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.acceptor.records()
    }

    fn on_message(&mut self, from: ReplicaId, message: Message, effects: &mut Effects) {
        match message {
            Message::Prepare { ballot, first } => self.on_prepare(from, ballot, first, effects),
            Message::Promise { ballot, accepted, truncated } if ballot == self.leader.ballot() => {
                if let Some((requests, known)) = self.leader.promise(from, accepted, truncated) {
                    requests.iter().for_each(|request| self.broadcast_urgently(request, effects));
                    self.learner.know(known);
                    self.ask_for_missing(from, effects);
                    self.on_tick(effects);
                }
            }
            Message::Accept { proposal, chosen, counted_from } => {
                self.on_accept(from, &proposal, chosen, counted_from, effects);
            }
            Message::Vote { ballot, slot } => {
                if self.learner.vote(from, slot, ballot) {
                    self.decide(slot, ballot, effects);
                }
            }
            Message::Heartbeat { ballot, chosen, counted_from } => {
                if !self.follow(from, ballot, effects) {
                    return;
                }
                self.learn_up_to(chosen, ballot, effects);
                self.ask_for_missing(from, effects);
                self.enter(ballot, counted_from);
                let below = self.casts.settled(ballot);
                effects.messages.push((from, Message::Settled { ballot, below }));
            }
            Message::Settled { ballot, below } if ballot == self.leader.ballot() => {
                if let Some((first, end)) = self.leader.counters().settle(from, below) {
                    effects.clears.push(Clear { ballot, first, end });
                }
            }
            Message::Refused { promised } if promised > self.leader.ballot() && !self.leader.is_following() => {
                self.following = self.following.max(promised);
                self.leader.step_down();
            }
            Message::Missing { first } => self.on_missing(from, first, effects),
            Message::Chosen { first, values } => {
                for (slot, value) in (first..).zip(values) {
                    self.choose(slot, value, effects);
                }
            }
            Message::Snapshot { upto, state } => self.on_snapshot(upto, state, effects),
            Message::Promise { .. } | Message::Settled { .. } | Message::Refused { .. } => {}
        }
    }

    fn on_prepare(&mut self, from: ReplicaId, ballot: BallotNumber, first: Slot, effects: &mut Effects) {
        match self.acceptor.prepare(ballot, first, &self.config, effects) {
            Ok(accepted) => {
                self.follow(from, ballot, effects);
                let promise = Message::Promise { ballot, accepted, truncated: self.acceptor.truncated() };
                effects.messages.push((from, promise));
            }
            Err(promised) => effects.messages.push((from, Message::Refused { promised })),
        }
    }

    fn on_accept(
        &mut self,
        from: ReplicaId,
        proposal: &Accepted,
        chosen: Slot,
        counted_from: Slot,
        effects: &mut Effects,
    ) {
        let Accepted { slot, ballot, .. } = *proposal;
        if let Err(promised) = self.acceptor.accept(proposal, &self.config, effects) {
            return effects.messages.push((from, Message::Refused { promised }));
        }
        self.follow(from, ballot, effects);
        self.enter(ballot, counted_from);
        if counted_from > 0 && self.casts.cast(ballot, slot) {
            effects.casts.push(Cast { ballot, slot });
        } else {
            self.casts.finish(ballot, slot, false);
            self.vote_by_message(ballot, slot, effects);
        }
        self.learner.match_accepted(slot, self.acceptor.accepted(slot));
        self.learn_up_to(chosen, ballot, effects);
    }

    /// Follows the leader of this ballot, unless a higher one is promised.
    fn follow(&mut self, from: ReplicaId, ballot: BallotNumber, effects: &mut Effects) -> bool {
        if ballot < self.acceptor.promised() {
            effects.messages.push((from, Message::Refused { promised: self.acceptor.promised() }));
            return false;
        }
        self.following = ballot;
        self.leader_contacts += 1;
        if ballot > self.leader.ballot() && !self.leader.is_following() {
            self.leader.step_down();
        }
        true
    }

    /// Prepares to cast votes in a ballot, unless an earlier life of this acceptor may have cast some.
    fn enter(&mut self, ballot: BallotNumber, counted_from: Slot) {
        if counted_from > 0 && ballot > self.ballot_at_start {
            self.casts.enter(ballot, counted_from);
        }
    }

    fn vote_by_message(&mut self, ballot: BallotNumber, slot: Slot, effects: &mut Effects) {
        let vote = Message::Vote { ballot, slot };
        effects.messages.extend((0..self.config.replicas).map(|id| (id, vote.clone())));
    }

    /// Learns the values up to this slot that were accepted from the leader which says that they are chosen.
    fn learn_up_to(&mut self, chosen: Slot, ballot: BallotNumber, effects: &mut Effects) {
        self.learner.know(chosen);
        for slot in self.learner.applied() + 1..=chosen {
            match self.acceptor.accepted(slot) {
                Some((accepted, value)) if *accepted == ballot => self.choose(slot, value.clone(), effects),
                _ => break,
            }
        }
        self.apply(effects);
    }

    fn decide(&mut self, slot: Slot, ballot: BallotNumber, effects: &mut Effects) {
        self.learner.decide(slot, ballot, self.acceptor.accepted(slot));
        self.after_choice(slot, effects);
    }

    fn choose(&mut self, slot: Slot, value: Value, effects: &mut Effects) {
        self.learner.choose(slot, value);
        self.after_choice(slot, effects);
    }

    fn after_choice(&mut self, slot: Slot, effects: &mut Effects) {
        if self.learner.is_chosen(slot) {
            self.leader.close(slot);
            // This acceptor needs no vote any more.
            self.casts.finish(self.following, slot, false);
        }
        if let Some((ballot, below)) = self.casts.report() {
            effects.messages.push((ballot.leader, Message::Settled { ballot, below }));
        }
        self.apply(effects);
    }

    fn apply(&mut self, effects: &mut Effects) {
        self.learner.apply(&mut effects.steps);
    }

    fn on_missing(&mut self, from: ReplicaId, first: Slot, effects: &mut Effects) {
        match self.learner.values(first) {
            Some(values) if values.is_empty() => {}
            Some(values) => effects.messages.push((from, Message::Chosen { first, values })),
            None => {
                let snapshot = self.acceptor.snapshot();
                let message = snapshot.map(|(upto, state)| Message::Snapshot { upto, state });
                effects.messages.extend(message.map(|message| (from, message)));
            }
        }
    }

    fn on_snapshot(&mut self, upto: Slot, state: std::sync::Arc<[u8]>, effects: &mut Effects) {
        if upto <= self.learner.applied() {
            return;
        }
        self.acceptor.truncate(upto, state.clone());
        self.learner.truncate(upto);
        effects.records.push(Record::Snapshot { upto, state: state.clone() });
        effects.steps.push(Step::Install { upto, state });
        self.apply(effects);
    }

    fn ask_for_missing(&self, from: ReplicaId, effects: &mut Effects) {
        if let Some(first) = self.learner.missing().filter(|_| from != self.config.id) {
            effects.messages.push((from, Message::Missing { first }));
        }
    }

    fn campaign(&mut self, effects: &mut Effects) {
        let (seen, first) = (self.acceptor.promised().max(self.following), self.learner.applied() + 1);
        let prepare = self.leader.campaign(seen, first);
        // The own promise is on disk before the ballot is used: a later life takes another one.
        let own = self.acceptor.prepare(self.leader.ballot(), first, &self.config, effects);
        if own.is_ok() {
            effects.messages.extend((0..self.config.replicas).map(|id| (id, prepare.clone())));
        }
    }

    fn on_tick(&mut self, effects: &mut Effects) {
        if self.leader.wants_new_ballot() {
            return self.campaign(effects);
        }
        for message in self.leader.tick(self.learner.applied()) {
            self.broadcast_urgently(&message, effects);
        }
        if let Some(first) = self.learner.missing() {
            // Whoever leads may miss values too.
            let others = usize::from(self.config.replicas).saturating_sub(1).max(1);
            let to = self.config.others().nth((self.leader_contacts + first) as usize % others);
            effects.messages.extend(to.map(|to| (to, Message::Missing { first })));
        }
    }

    /// Sends a message of the leader to all acceptors. It needs no record: an acceptor's own record comes first.
    fn broadcast_urgently(&self, message: &Message, effects: &mut Effects) {
        effects.urgent.extend((0..self.config.replicas).map(|id| (id, message.clone())));
    }
}
