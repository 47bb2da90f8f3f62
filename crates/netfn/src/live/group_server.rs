//! Server of a group: executes the controller's commands and reports its load.

use std::collections::VecDeque;

use super::{ServerCommand, ServerMessage};
use crate::place::LeaseOutput;
use crate::scale::ValueBlock;
use crate::serve::{FrameAnswer, FunctionHandler, HandlerServer, Stats};

/// Period of load reports, µs.
const REPORT_US: u64 = 100_000;
/// Period of the check for blocks that can be returned, µs; each check reads every entry.
const RETURN_US: u64 = 1_000_000;

/// Server of a group, with the queue of its messages to the controller.
#[derive(Debug)]
pub struct GroupServer<H> {
    server: HandlerServer<H>,
    messages: VecDeque<ServerMessage>,
    /// Blocks to be returned to the controller.
    requested_returns: Vec<(usize, ValueBlock, (u128, u128))>,
    next_report_us: u64,
    next_return_us: u64,
    /// Time of the last report, and the number of requests at that time.
    reported: (u64, u64),
}

impl<H: FunctionHandler> GroupServer<H> {
    /// Server that starts at `now_us`.
    #[must_use]
    pub fn new(now_us: u64, server: HandlerServer<H>) -> Self {
        Self {
            server,
            messages: VecDeque::new(),
            requested_returns: Vec::new(),
            next_report_us: now_us,
            next_return_us: now_us,
            reported: (now_us, 0),
        }
    }

    /// Processes a frame in place.
    pub fn handle(&mut self, now_us: u64, frame: &mut [u8]) -> FrameAnswer {
        let answer = self.server.handle(now_us, frame);
        self.collect_outputs();
        answer
    }

    /// Executes a command of the controller.
    pub fn handle_command(&mut self, now_us: u64, command: ServerCommand) {
        match command {
            ServerCommand::Lease { table, key, number } => self.server.lease(now_us, table, &key, number),
            ServerCommand::Store(given) => {
                self.server.take(&given);
                self.messages.push_back(ServerMessage::Stored(given.number));
            }
            ServerCommand::Release(number) => self.server.release(now_us, number),
            ServerCommand::Group { version, buckets, old } => {
                let old = old.as_ref().map(|(version, buckets)| (*version, buckets.as_slice()));
                self.server.set_group(version, &buckets, old);
            }
            ServerCommand::Drain(idle) => self.server.drain(now_us, idle),
            ServerCommand::Ranges { partition, ranges } => self.server.set_ranges(partition, &ranges),
            ServerCommand::ReturnBlock { partition, block, values } => {
                self.requested_returns.push((partition, block, values));
                // The block may never have been used, so check at once.
                self.next_return_us = now_us;
            }
        }
        self.collect_outputs();
    }

    /// Sends the reports and returns that are due.
    pub fn run(&mut self, now_us: u64) {
        self.server.expire(now_us);
        if now_us >= self.next_return_us && !self.requested_returns.is_empty() {
            self.next_return_us = now_us + RETURN_US;
            let server = &self.server;
            let free =
                |(partition, _, values): &mut (usize, ValueBlock, (u128, u128))| !server.uses(*partition, *values);
            for (partition, block, _) in self.requested_returns.extract_if(.., free) {
                self.messages.push_back(ServerMessage::ReturnedBlock { partition, block });
            }
        }
        if now_us >= self.next_report_us {
            self.next_report_us = now_us + REPORT_US;
            self.report(now_us);
        }
        self.collect_outputs();
    }

    fn report(&mut self, now_us: u64) {
        let all = self.server.stats().requests;
        let (since_us, before) = std::mem::replace(&mut self.reported, (now_us, all));
        let requests = (all - before) as f64 * 1e6 / now_us.saturating_sub(since_us).max(1) as f64;
        let (flows, old_flows, version) = self.server.flows();
        self.messages.push_back(ServerMessage::Load { requests, flows, old_flows, version });
    }

    /// Latest time of the next call of [`Self::run`].
    #[must_use]
    pub fn next_at(&self) -> u64 {
        let returns = (!self.requested_returns.is_empty()).then_some(self.next_return_us);
        let expiry = self.server.handler().next_expiry_ms().map(|ms| ms.saturating_mul(1000));
        [returns, expiry].into_iter().flatten().fold(self.next_report_us, u64::min)
    }

    /// Next message for the controller.
    pub fn poll(&mut self) -> Option<ServerMessage> {
        self.messages.pop_front()
    }

    /// Counters of the server.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.server.stats()
    }

    fn collect_outputs(&mut self) {
        while let Some(output) = self.server.poll() {
            match output {
                LeaseOutput::Leased { number, entry } => {
                    self.messages.push_back(ServerMessage::Leased { number, entry })
                }
                LeaseOutput::Recall { number } => self.messages.push_back(ServerMessage::Recall(number)),
                // The server has added the entry already.
                LeaseOutput::Add { .. } => {}
            }
        }
    }
}
