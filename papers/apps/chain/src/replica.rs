//! State machine of a node: writes, reads, and view changes, without I/O.
//!
//! ```text
//! write (head), pass (others) ─▶ NextStep: Pass to the successor │ Reply, at the tail │ Missing: recall first
//! read (tail, with a lease)   ─▶ the value
//! ```
//!
//! The head numbers all updates. A node applies updates in order, each once, before it passes them on: so each node has
//! all updates of its successor (the Update Propagation Invariant), and the tail's state is final. Messages between
//! nodes may be lost, repeated or late. A node that receives an update too early recalls the missing ones from its
//! predecessor. A node that receives an update again passes it on again, because the sender has no answer. Updates of
//! another view are rejected, and their clients repeat them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::pb::update::Effect;
use crate::pb::{Done, Entry, History, PassRequest, State, Update, View};

/// Updates that a node keeps for its successor. A successor that lacks more receives the whole state.
const LOG_MAX: usize = 1024;
/// Clients whose last write is remembered. If more clients write meanwhile, the oldest is forgotten, and a repeat of
/// its last write takes effect again.
const CLIENTS_MAX: usize = 1 << 16;

/// Node of the chain.
#[derive(Debug)]
pub struct Replica {
    id: u32,
    view: View,
    /// End of the lease: until then a tail may answer reads.
    lease: Duration,
    applied: u64,
    values: BTreeMap<String, String>,
    done: BTreeMap<u64, Done>,
    /// Clients in `done`, by the number of their last update.
    by_number: BTreeMap<u64, u64>,
    /// Last updates, up to `applied`.
    log: VecDeque<Entry>,
    mutant: Option<Mutant>,
}

/// Next step of an update.
#[derive(Debug, Clone, PartialEq)]
pub enum NextStep {
    /// Pass the update on to this node.
    Pass(u32, PassRequest),
    /// Reply with this value.
    Reply(String),
    /// Recall the missing updates from the predecessor, and process this update again.
    Missing {
        /// Predecessor.
        from: u32,
        /// Number of the last update of this node.
        after: u64,
    },
}

/// Reason for rejecting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Only the head accepts writes.
    #[error("node {0} is not the head")]
    NotHead(u32),
    /// Only the tail answers reads.
    #[error("node {0} is not the tail, or its lease has expired")]
    NotTail(u32),
    /// The request belongs to another view.
    #[error("node {node} is in view {ours}, the request is from view {theirs}")]
    View {
        /// Node.
        node: u32,
        /// View of the node.
        ours: u64,
        /// View of the sender.
        theirs: u64,
    },
    /// The node was removed from the chain, or has no view yet.
    #[error("node {0} is not in the chain")]
    NotMember(u32),
    /// The client has made another write since.
    #[error("write {seq} of client {client} was superseded by a later write")]
    Superseded {
        /// Client.
        client: u64,
        /// Number of the client's write.
        seq: u64,
    },
    /// A field of the message is missing.
    #[error("request has no {0}")]
    MissingField(&'static str),
}

/// Mistake that is planted to test the checks.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A repeated update takes effect again.
    Again,
    /// Updates are applied in the order of arrival.
    Gaps,
    /// Updates of other views are accepted, also by a head.
    AnyView,
    /// Reads are answered without a lease.
    NoLease,
    /// Any node answers reads.
    AnyReads,
    /// A node replies before its successor has the update.
    Early,
}

impl Replica {
    /// Creates an empty node without a view.
    #[must_use]
    pub fn new(id: u32) -> Self {
        Self {
            id,
            view: View::default(),
            lease: Duration::ZERO,
            applied: 0,
            values: BTreeMap::new(),
            done: BTreeMap::new(),
            by_number: BTreeMap::new(),
            log: VecDeque::new(),
            mutant: None,
        }
    }

    /// Plants a mistake.
    #[doc(hidden)]
    #[must_use]
    pub fn planted(self, mutant: Option<Mutant>) -> Self {
        Self { mutant, ..self }
    }

    /// Current view.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Number of the last applied update.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Adopts the master's view, with a lease until `lease` by this node's clock.
    pub fn adopt(&mut self, view: View, lease: Duration) {
        if view.number >= self.view.number {
            self.view = view;
            self.lease = self.lease.max(lease);
        }
    }

    /// Processes a client's write.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn write(&mut self, update: Update) -> Result<NextStep, Refusal> {
        if self.position()? != 0 {
            return Err(Refusal::NotHead(self.id));
        }
        if update.effect.is_none() {
            return Err(Refusal::MissingField("effect"));
        }
        let (client, seq) = (update.client, update.seq);
        let (number, repeat) = match self.done.get(&client).filter(|_| self.mutant != Some(Mutant::Again)) {
            Some(done) if done.seq > seq => return Err(Refusal::Superseded { client, seq }),
            Some(done) if done.seq == seq => (done.number, true),
            _ => (self.applied + 1, false),
        };
        self.process_entry(Entry { number, update: Some(update) }, repeat)
    }

    /// Processes an update from the predecessor.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn pass(&mut self, request: PassRequest) -> Result<NextStep, Refusal> {
        let position = self.position()?;
        self.check_view(request.view)?;
        let entry = request.entry.ok_or(Refusal::MissingField("entry"))?;
        // Number of an update that can be processed now.
        let has = if request.repeat { self.applied } else { self.applied + 1 };
        match position.checked_sub(1) {
            // Only the head assigns numbers.
            None if self.mutant != Some(Mutant::AnyView) => {
                Err(Refusal::View { node: self.id, ours: self.view.number, theirs: request.view })
            }
            Some(before) if entry.number > has && self.mutant != Some(Mutant::Gaps) => {
                Ok(NextStep::Missing { from: self.view.members[before].id, after: self.applied })
            }
            None | Some(_) => self.process_entry(entry, request.repeat),
        }
    }

    /// Reads the value of a key.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn read(&self, now: Duration, key: &str) -> Result<Option<String>, Refusal> {
        let is_tail = self.position()? + 1 == self.view.members.len() || self.mutant == Some(Mutant::AnyReads);
        if !is_tail || (now >= self.lease && self.mutant != Some(Mutant::NoLease)) {
            return Err(Refusal::NotTail(self.id));
        }
        Ok(self.values.get(key).cloned())
    }

    /// Updates after number `after`, for the successor of the same view.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn history(&self, view: u64, after: u64) -> Result<History, Refusal> {
        self.position()?;
        self.check_view(view)?;
        let missing = self.applied.saturating_sub(after);
        let kept = self.log.len() as u64;
        if missing <= kept {
            let entries = self.log.iter().skip((kept - missing) as usize).cloned().collect();
            return Ok(History { state: None, entries });
        }
        let values = self.values.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let state = State { applied: self.applied, values, done: self.done.values().cloned().collect() };
        Ok(History { state: Some(state), entries: Vec::new() })
    }

    /// Adopts a history from the predecessor of the same view.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn learn(&mut self, view: u64, history: History) -> Result<(), Refusal> {
        self.check_view(view)?;
        if let Some(state) = history.state.filter(|state| state.applied > self.applied) {
            self.applied = state.applied;
            self.values = state.values.into_iter().collect();
            self.by_number = state.done.iter().map(|done| (done.number, done.client)).collect();
            self.done = state.done.into_iter().map(|done| (done.client, done)).collect();
            self.log.clear();
        }
        for entry in history.entries {
            if entry.number == self.applied + 1 {
                self.apply(entry)?;
            }
        }
        Ok(())
    }

    /// Applies an update, unless it is a repeat, and returns the next step.
    fn process_entry(&mut self, entry: Entry, repeat: bool) -> Result<NextStep, Refusal> {
        let update = entry.update.as_ref().ok_or(Refusal::MissingField("update"))?;
        let (client, seq) = (update.client, update.seq);
        if entry.number > self.applied {
            self.apply(entry.clone())?;
        }
        let next = self.view.members.get(self.position()? + 1);
        if let Some(next) = next.filter(|_| self.mutant != Some(Mutant::Early)) {
            let request = PassRequest { view: self.view.number, entry: Some(entry), nested: false, repeat };
            return Ok(NextStep::Pass(next.id, request));
        }
        let done = self.done.get(&client).filter(|done| done.seq == seq);
        done.map(|done| NextStep::Reply(done.value.clone())).ok_or(Refusal::Superseded { client, seq })
    }

    fn apply(&mut self, entry: Entry) -> Result<(), Refusal> {
        let update = entry.update.as_ref().ok_or(Refusal::MissingField("update"))?;
        let value = self.values.entry(update.key.clone()).or_default();
        match update.effect.as_ref() {
            Some(Effect::Put(put)) => value.clone_from(put),
            Some(Effect::Append(append)) => value.push_str(append),
            // The head accepts no such update.
            None => {}
        }
        let done = Done { client: update.client, seq: update.seq, number: entry.number, value: value.clone() };
        self.by_number.insert(entry.number, update.client);
        if let Some(before) = self.done.insert(update.client, done) {
            self.by_number.remove(&before.number);
        } else if self.done.len() > CLIENTS_MAX
            && let Some((_, client)) = self.by_number.pop_first()
        {
            self.done.remove(&client);
        }
        self.applied = entry.number;
        self.log.push_back(entry);
        if self.log.len() > LOG_MAX {
            self.log.pop_front();
        }
        Ok(())
    }

    /// Index in the chain; 0 is the head.
    fn position(&self) -> Result<usize, Refusal> {
        let position = self.view.members.iter().position(|member| member.id == self.id);
        position.ok_or(Refusal::NotMember(self.id))
    }

    fn check_view(&self, view: u64) -> Result<(), Refusal> {
        if view == self.view.number || self.mutant == Some(Mutant::AnyView) {
            return Ok(());
        }
        Err(Refusal::View { node: self.id, ours: self.view.number, theirs: view })
    }
}

#[cfg(test)]
mod tests;
