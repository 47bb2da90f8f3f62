//! Loads of a pool's servers as one caller knows them.
//!
//! ```text
//! answers ─▶ the latest report of each server ─┐
//! requests sent, and answered ─▶ open requests ─┴─▶ shorter_of a pair
//! ```
//!
//! A report is old when it arrives, and more requests have followed it. Without the second input, all calls between two
//! reports would go to the server that was idle last (herding, NetClone §5.3.2). So the caller adds the requests that
//! it has sent itself and that have no answer yet, as C3 (NSDI '15) does. It does not know those of other callers.

use std::time::Duration;

use pathcall_wire::Instant;
use pathcall_wire::clone::ServerReport;

use super::super::KnownLoads;
use crate::tables::FixedHashMap;

/// Loads of servers, by endpoint.
#[derive(Debug)]
pub(super) struct ServerLoads {
    known: KnownLoads,
    /// Age from which on a report counts no longer.
    age_max: Duration,
    servers: FixedHashMap<u32, ServerLoad>,
}

#[derive(Debug, Default)]
struct ServerLoad {
    /// Server process that has made the report, and the time of its arrival.
    incarnation: u32,
    report: ServerReport,
    reported_at: Instant,
    /// Requests of this caller that have no answer yet.
    open: u32,
}

impl ServerLoads {
    pub(super) fn new(known: KnownLoads, age_max: Duration) -> Self {
        Self { known, age_max, servers: FixedHashMap::default() }
    }

    /// Forgets the servers that have left the pool.
    pub(super) fn retain(&mut self, servers: &[u32]) {
        self.servers.retain(|server, _| servers.contains(server));
    }

    /// Records a report, unless a newer one of the same process has overtaken it.
    pub(super) fn record_report(&mut self, now: Instant, server: u32, incarnation: u32, report: ServerReport) {
        let load = self.servers.entry(server).or_default();
        if load.incarnation != incarnation || !load.report.is_newer_than(report) {
            (load.incarnation, load.report, load.reported_at) = (incarnation, report, now);
        }
    }

    /// Records a request to a server.
    pub(super) fn record_sent(&mut self, server: u32) {
        self.servers.entry(server).or_default().open += 1;
    }

    /// Records that a request is answered, or that its answer no longer matters.
    pub(super) fn record_answered(&mut self, server: u32) {
        if let Some(load) = self.servers.get_mut(&server) {
            load.open = load.open.saturating_sub(1);
        }
    }

    /// Whether the second server seems to have the shorter queue. If the report of one of them is missing or too old,
    /// only the open requests count.
    pub(super) fn is_second_shorter(&self, now: Instant, first: u32, second: u32) -> bool {
        let [first, second] = [first, second].map(|server| self.servers.get(&server));
        let reported = |load: Option<&ServerLoad>| {
            load.filter(|load| load.report.number != 0 && now.since(load.reported_at) <= self.age_max)
                .map(|load| u32::from(load.report.state))
        };
        let reports = reported(first).zip(reported(second)).unwrap_or_default();
        let counts = self.known == KnownLoads::ReportsAndRequests;
        let open = |load: Option<&ServerLoad>| load.filter(|_| counts).map_or(0, |load| load.open);
        self.known != KnownLoads::Nothing && reports.1 + open(second) < reports.0 + open(first)
    }
}

#[cfg(test)]
mod tests;
