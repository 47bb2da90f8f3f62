//! Clients of a simulation: each sends an operation until it is answered.

use paxos::consensus::{Effects, ProposalRefusal, ReplicaId, Value};
use paxos::pb;
use prost::Message as _;

use super::{CLIENT_TIMEOUT, Event, KEYS, Simulation};
use crate::history::Operation;

/// Client with one operation at a time.
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) attempt: u32,
    pub(super) left: u32,
    pub(super) target: ReplicaId,
}

impl Simulation {
    /// Begins the next operation of a client.
    pub(super) fn call(&mut self, client: u64) {
        let (write, key, called) = (self.random.happens(0.6), self.random.below(KEYS), self.now);
        let this = &mut self.clients[client as usize];
        (this.number, this.attempt) = (this.number + 1, 0);
        let value = write.then(|| format!("{client}/{}", this.number).into_bytes());
        let command = pb::Command { client, number: this.number, key: vec![key as u8], value };
        self.history.operations.push(Operation { command, called, answered: None });
        self.send_call(client);
    }

    /// Sends the operation again, perhaps to another replica, if it was not answered.
    pub(super) fn give_up(&mut self, client: u64, number: u64, attempt: u32) {
        let this = &mut self.clients[client as usize];
        if (this.number, this.attempt) == (number, attempt) {
            this.attempt += 1;
            this.target = self.random.below(self.hosts.len() as u64) as ReplicaId;
            self.send_call(client);
        }
    }

    fn send_call(&mut self, client: u64) {
        let Client { number, attempt, target, .. } = self.clients[client as usize];
        self.after(CLIENT_TIMEOUT, Event::GiveUp { client, number, attempt });
        let called = self.history.operations.iter().rev().find(|operation| operation.command.client == client);
        let command = called.expect("an operation").command.clone();
        let host = &mut self.hosts[usize::from(target)];
        let Some(replica) = &mut host.replica else { return };
        let mut effects = Effects::default();
        let value = Value::Command(command.encode_to_vec().into());
        match replica.propose(value, &mut effects) {
            Ok(()) => drop(host.waiting.insert(client, number)),
            Err(ProposalRefusal::NotLeader(Some(leader))) => {
                self.clients[client as usize].target = leader;
            }
            Err(_) => {}
        }
        self.finish(target, effects);
    }

    pub(super) fn answered(&mut self, client: u64, number: u64, outcome: pb::Outcome) {
        let now = self.now;
        let this = &mut self.clients[client as usize];
        if this.number != number || this.left == 0 {
            return;
        }
        let operation = self.history.operations.iter_mut().rev().find(|operation| operation.command.client == client);
        operation.expect("an operation").answered = Some((now, outcome));
        this.left -= 1;
        if this.left > 0 {
            let pause = self.random.below(60);
            self.after(pause, Event::Call { client });
        } else {
            // Its time-outs do not matter any more.
            self.clients[client as usize].number += 1;
        }
    }
}
