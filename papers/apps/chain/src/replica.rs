//! A node of the chain: what it does with writes, reads, and a new view. Pure: nothing here waits or sends.
//!
//! ```text
//! write (head), pass (others) ─▶ Next: Pass it to the successor │ Reply, at the tail │ Missing: recall first
//! read (tail, with a lease)   ─▶ the value
//! ```
//!
//! Every update has a number, given by the head. A node applies them in order, each once, before it passes it
//! on: so each has all that its successor has (the Update Propagation Invariant), and what the tail has is
//! decided for good. Messages between nodes may be lost, repeated or late: who gets an update too early recalls
//! those before from its predecessor; who gets one again passes it on again, for who repeats it has no answer.
//! Between views nothing is passed: an update of another view is refused, and its client repeats it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::pb::update::Effect;
use crate::pb::{Done, Entry, History, PassRequest, State, Update, View};

/// Last updates that a node keeps for its successor; who lacks more gets the whole state.
const LOG_MAX: usize = 1024;
/// Clients whose last writes are known. One that was silent while so many others wrote is forgotten: a repeat
/// of its last write would take effect again.
const CLIENTS_MAX: usize = 1 << 16;

/// A node.
#[derive(Debug)]
pub struct Replica {
    id: u32,
    view: View,
    /// Until when it may answer reads, where it is the tail.
    lease: Duration,
    applied: u64,
    values: BTreeMap<String, String>,
    done: BTreeMap<u64, Done>,
    /// The clients of `done`, by the number of their last update.
    by_number: BTreeMap<u64, u64>,
    /// The last updates, up to `applied`.
    log: VecDeque<Entry>,
    mutant: Option<Mutant>,
}

/// What an update leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// It goes on to this node.
    Pass(u32, PassRequest),
    /// It is done, and this is the value.
    Reply(String),
    /// This node lacks what comes before: it has to recall that from its predecessor, and take the update again.
    Missing {
        /// The predecessor.
        from: u32,
        /// The last number that is here.
        after: u64,
    },
}

/// Why a node does not do what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Writes are the head's.
    #[error("node {0} is not the head")]
    NotHead(u32),
    /// Reads are the tail's.
    #[error("node {0} is not the tail, or its lease is over")]
    NotTail(u32),
    /// Of another view.
    #[error("node {node} is in view {ours}, and not in view {theirs}")]
    View {
        /// The node.
        node: u32,
        /// Its view.
        ours: u64,
        /// The sender's.
        theirs: u64,
    },
    /// The chain goes on without it, or it has not heard of a chain.
    #[error("node {0} is not in the chain")]
    NotMember(u32),
    /// The client has made another write since.
    #[error("write {seq} of client {client} was given up: it has made another")]
    Superseded {
        /// The client.
        client: u64,
        /// Its number of the write.
        seq: u64,
    },
    /// A message lacks a part.
    #[error("a request without {0}")]
    Lacks(&'static str),
}

/// A mistake, planted to see that it is found.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A repeat takes effect again.
    Again,
    /// Updates are applied as they come.
    Gaps,
    /// Updates of other views are taken, by a head too.
    AnyView,
    /// Reads do not ask for a lease.
    NoLease,
    /// Any node answers reads.
    AnyReads,
    /// A node replies before its successor has the update.
    Early,
}

impl Replica {
    /// A node with nothing, in no chain yet.
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

    /// The same with a mistake.
    #[doc(hidden)]
    #[must_use]
    pub fn planted(self, mutant: Option<Mutant>) -> Self {
        Self { mutant, ..self }
    }

    /// The view that it is in.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The number of its last update.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The master has answered: the view, and a lease until then, by this node's clock.
    pub fn adopt(&mut self, view: View, lease: Duration) {
        if view.number >= self.view.number {
            self.view = view;
            self.lease = self.lease.max(lease);
        }
    }

    /// A client's write.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn write(&mut self, update: Update) -> Result<Next, Refusal> {
        if self.position()? != 0 {
            return Err(Refusal::NotHead(self.id));
        }
        if update.effect.is_none() {
            return Err(Refusal::Lacks("an effect"));
        }
        let (client, seq) = (update.client, update.seq);
        let (number, repeat) = match self.done.get(&client).filter(|_| self.mutant != Some(Mutant::Again)) {
            Some(done) if done.seq > seq => return Err(Refusal::Superseded { client, seq }),
            Some(done) if done.seq == seq => (done.number, true),
            _ => (self.applied + 1, false),
        };
        self.take(Entry { number, update: Some(update) }, repeat)
    }

    /// An update from the predecessor.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn pass(&mut self, request: PassRequest) -> Result<Next, Refusal> {
        let position = self.position()?;
        self.same(request.view)?;
        let entry = request.entry.ok_or(Refusal::Lacks("an entry"))?;
        // What is here, or may come next.
        let has = if request.repeat { self.applied } else { self.applied + 1 };
        match position.checked_sub(1) {
            // Numbers are the head's to give.
            None if self.mutant != Some(Mutant::AnyView) => {
                Err(Refusal::View { node: self.id, ours: self.view.number, theirs: request.view })
            }
            Some(before) if entry.number > has && self.mutant != Some(Mutant::Gaps) => {
                Ok(Next::Missing { from: self.view.members[before].id, after: self.applied })
            }
            None | Some(_) => self.take(entry, request.repeat),
        }
    }

    /// The value of a key.
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

    /// What a successor of the same view lacks.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn history(&self, view: u64, after: u64) -> Result<History, Refusal> {
        self.position()?;
        self.same(view)?;
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

    /// What the predecessor in this view has sent.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn learn(&mut self, view: u64, history: History) -> Result<(), Refusal> {
        self.same(view)?;
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

    /// Applies an update unless it is, and tells what is next.
    fn take(&mut self, entry: Entry, repeat: bool) -> Result<Next, Refusal> {
        let update = entry.update.as_ref().ok_or(Refusal::Lacks("an update"))?;
        let (client, seq) = (update.client, update.seq);
        if entry.number > self.applied {
            self.apply(entry.clone())?;
        }
        let next = self.view.members.get(self.position()? + 1);
        if let Some(next) = next.filter(|_| self.mutant != Some(Mutant::Early)) {
            let request = PassRequest { view: self.view.number, entry: Some(entry), nested: false, repeat };
            return Ok(Next::Pass(next.id, request));
        }
        let done = self.done.get(&client).filter(|done| done.seq == seq);
        done.map(|done| Next::Reply(done.value.clone())).ok_or(Refusal::Superseded { client, seq })
    }

    fn apply(&mut self, entry: Entry) -> Result<(), Refusal> {
        let update = entry.update.as_ref().ok_or(Refusal::Lacks("an update"))?;
        let value = self.values.entry(update.key.clone()).or_default();
        match update.effect.as_ref() {
            Some(Effect::Put(put)) => value.clone_from(put),
            Some(Effect::Append(append)) => value.push_str(append),
            // The head takes none such.
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

    /// Where in the chain it is; 0: the head.
    fn position(&self) -> Result<usize, Refusal> {
        let position = self.view.members.iter().position(|member| member.id == self.id);
        position.ok_or(Refusal::NotMember(self.id))
    }

    fn same(&self, view: u64) -> Result<(), Refusal> {
        if view == self.view.number || self.mutant == Some(Mutant::AnyView) {
            return Ok(());
        }
        Err(Refusal::View { node: self.id, ours: self.view.number, theirs: view })
    }
}

#[cfg(test)]
mod tests;
