//! A server beside what it is told and what it says of itself.

use std::collections::VecDeque;

use super::{Task, Word};
use crate::place::HolderOutput;
use crate::scale::Block;
use crate::serve::{Answer, Handler, Server, Stats};

/// How often a server says what it bears, microseconds.
const REPORT_US: u64 = 100_000;
/// How often it looks whether blocks are free that it is to give back, microseconds: that looks at every entry.
const RETURN_US: u64 = 1_000_000;

/// A server of a group.
#[derive(Debug)]
pub struct Member<H> {
    server: Server<H>,
    words: VecDeque<Word>,
    /// Blocks that it is to give back.
    asked: Vec<(usize, Block, (u128, u128))>,
    next_report_us: u64,
    next_return_us: u64,
    /// When it reported last, and the requests that it had then.
    reported: (u64, u64),
}

impl<H: Handler> Member<H> {
    /// One that begins now.
    #[must_use]
    pub fn new(now_us: u64, server: Server<H>) -> Self {
        Self {
            server,
            words: VecDeque::new(),
            asked: Vec::new(),
            next_report_us: now_us,
            next_return_us: now_us,
            reported: (now_us, 0),
        }
    }

    /// Works on a frame, in place.
    pub fn handle(&mut self, now_us: u64, frame: &mut [u8]) -> Answer {
        let answer = self.server.handle(now_us, frame);
        self.listen();
        answer
    }

    /// Does what it is told.
    pub fn told(&mut self, now_us: u64, task: Task) {
        match task {
            Task::Lease { table, key, number } => self.server.lease(now_us, table, &key, number),
            Task::Give(given) => {
                self.server.take(&given);
                self.words.push_back(Word::Taken(given.number));
            }
            Task::Release(number) => self.server.release(now_us, number),
            Task::Group { version, buckets, old } => {
                let old = old.as_ref().map(|(version, buckets)| (*version, buckets.as_slice()));
                self.server.set_group(version, &buckets, old);
            }
            Task::Drain(idle) => self.server.drain(now_us, idle),
            Task::Ranges { partition, ranges } => self.server.set_ranges(partition, &ranges),
            Task::Return { partition, block, values } => {
                self.asked.push((partition, block, values));
                // It may never have used them.
                self.next_return_us = now_us;
            }
        }
        self.listen();
    }

    /// Time has passed.
    pub fn run(&mut self, now_us: u64) {
        self.server.expire(now_us);
        if now_us >= self.next_return_us && !self.asked.is_empty() {
            self.next_return_us = now_us + RETURN_US;
            let server = &self.server;
            let free = |(partition, _, values): &mut (usize, Block, (u128, u128))| !server.uses(*partition, *values);
            for (partition, block, _) in self.asked.extract_if(.., free) {
                self.words.push_back(Word::Returned { partition, block });
            }
        }
        if now_us >= self.next_report_us {
            self.next_report_us = now_us + REPORT_US;
            self.report(now_us);
        }
        self.listen();
    }

    fn report(&mut self, now_us: u64) {
        let all = self.server.stats().requests;
        let (since_us, before) = std::mem::replace(&mut self.reported, (now_us, all));
        let requests = (all - before) as f64 * 1e6 / now_us.saturating_sub(since_us).max(1) as f64;
        let (flows, old_flows, version) = self.server.flows();
        self.words.push_back(Word::Load { requests, flows, old_flows, version });
    }

    /// When [`Self::run`] is to be called, at the latest.
    #[must_use]
    pub fn next_at(&self) -> u64 {
        let returns = (!self.asked.is_empty()).then_some(self.next_return_us);
        let expiry = self.server.handler().next_expiry_ms().map(|ms| ms.saturating_mul(1000));
        [returns, expiry].into_iter().flatten().fold(self.next_report_us, u64::min)
    }

    /// The next that the controller is to hear.
    pub fn poll(&mut self) -> Option<Word> {
        self.words.pop_front()
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.server.stats()
    }

    fn listen(&mut self) {
        while let Some(said) = self.server.poll() {
            match said {
                HolderOutput::Leased { number, entry } => self.words.push_back(Word::Leased { number, entry }),
                HolderOutput::Recall { number } => self.words.push_back(Word::Recall(number)),
                // Added already, by the server.
                HolderOutput::Add { .. } => {}
            }
        }
    }
}
