//! Loads of servers: what a server reports to the nodes that send it requests, and what they make of the reports.
//!
//! ```text
//! server: request arrives ─▶ LoadReports::due ─▶ report to its sender, if the load has another level
//! sender: report ─▶ ServerLoads::record ─▶ ServerLoads::estimate ─▶ choice of the less loaded of two servers
//! ```
//!
//! The load is the number of requests that wait or run (RackSched §3.3: servers report their queue lengths). Reports
//! follow requests, so a server that gets none sends none: its last report counts less and less.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

/// Loads below this are not reported: they differ by chance.
const LOAD_MIN: u32 = 4;
/// Shortest time between two reports to one node.
const REPORT_PAUSE: Duration = Duration::from_millis(1);
/// Time after which an estimate without news is half as large.
const HALF_LIFE: Duration = Duration::from_millis(50);
/// Nodes whose reports are remembered at most, by either side; the oldest one is forgotten.
const NODES_MAX: usize = 1024;

/// Reports that a server owes the nodes that send it requests.
#[derive(Debug, Default)]
pub struct LoadReports(HashMap<SocketAddr, SentReport>);

/// Last report to a node.
#[derive(Debug, Clone, Copy)]
struct SentReport {
    level: u32,
    at: Instant,
}

impl LoadReports {
    /// Load to report to the node that has just sent a request, if the load has another level than its last report. The
    /// levels are 0, 4, 8, 16 and so on.
    pub fn due(&mut self, now: Instant, to: SocketAddr, load: usize) -> Option<u32> {
        let level = level(load);
        match self.0.get_mut(&to) {
            None if level == 0 => return None,
            Some(sent) if sent.level == level || sent.at + REPORT_PAUSE > now => return None,
            Some(sent) => *sent = SentReport { level, at: now },
            None => {
                make_room(&mut self.0, |sent| sent.at);
                self.0.insert(to, SentReport { level, at: now });
            }
        }
        if level == 0 {
            self.0.remove(&to);
        }
        Some(level)
    }
}

/// Level of a load: the power of two below it.
fn level(load: usize) -> u32 {
    let load = u32::try_from(load).unwrap_or(u32::MAX);
    if load < LOAD_MIN { 0 } else { 1 << load.ilog2() }
}

/// Loads of the servers that a node sends requests to, as far as it knows.
#[derive(Debug, Default)]
pub struct ServerLoads(HashMap<SocketAddr, LoadEstimate>);

/// Load of a server at a time.
#[derive(Debug, Clone, Copy)]
struct LoadEstimate {
    load: f64,
    at: Instant,
}

impl LoadEstimate {
    fn at(&self, now: Instant) -> f64 {
        if mutant::on(Mutant::DelegateLoadKept) {
            return self.load;
        }
        self.load * (-now.since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
    }
}

impl ServerLoads {
    /// Records a server's report.
    pub fn record(&mut self, now: Instant, server: SocketAddr, load: u32) {
        self.set(now, server, load.into());
    }

    /// Records that this node sends a request to a server.
    pub fn record_sent(&mut self, now: Instant, server: SocketAddr) {
        if !mutant::on(Mutant::DelegateSentUncounted) {
            self.set(now, server, self.estimate(now, server) + 1.0);
        }
    }

    /// Estimate of a server's load: its last report and the requests sent since, all of which count half after 50 ms.
    #[must_use]
    pub fn estimate(&self, now: Instant, server: SocketAddr) -> f64 {
        self.0.get(&server).map_or(0.0, |known| known.at(now))
    }

    fn set(&mut self, now: Instant, server: SocketAddr, load: f64) {
        if !self.0.contains_key(&server) {
            make_room(&mut self.0, |known| known.at);
        }
        self.0.insert(server, LoadEstimate { load, at: now });
    }
}

/// Forgets the oldest node if there are as many as may be.
fn make_room<T>(nodes: &mut HashMap<SocketAddr, T>, at: impl Fn(&T) -> Instant) {
    if nodes.len() >= NODES_MAX
        && let Some(oldest) = nodes.iter().min_by_key(|(address, node)| (at(node), **address)).map(|(at, _)| *at)
    {
        nodes.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn ms(time: u64) -> Instant {
        Instant(time * 1_000_000)
    }

    #[test]
    fn load_is_reported_when_its_level_changes() {
        let mut reports = LoadReports::default();
        let mut sent = Vec::new();
        for (time, load) in [0, 3, 4, 7, 9, 15, 16, 9, 3, 0, 2].into_iter().enumerate() {
            sent.extend(reports.due(ms(time as u64), at(1), load).map(|level| (load, level)));
        }
        assert_eq!(sent, [(4, 4), (9, 8), (16, 16), (9, 8), (3, 0)]);
        assert!(reports.0.is_empty(), "a node that knows of no load needs no entry");
        assert_eq!(reports.due(ms(20), at(1), 5), Some(4));
        assert_eq!(reports.due(ms(20), at(1), 50), None, "too soon");
        assert_eq!(reports.due(ms(20), at(2), 50), Some(32), "another node");
        assert_eq!(reports.due(ms(21), at(1), usize::MAX), Some(1 << 31));
    }

    #[test]
    fn estimate_is_the_last_report_and_the_requests_since() {
        let mut loads = ServerLoads::default();
        assert_eq!(loads.estimate(ms(0), at(1)), 0.0);
        (0..3).for_each(|_| loads.record_sent(ms(0), at(1)));
        assert_eq!(loads.estimate(ms(0), at(1)), 3.0);
        loads.record(ms(1), at(1), 16);
        loads.record_sent(ms(1), at(1));
        assert_eq!(loads.estimate(ms(1), at(1)), 17.0);
        assert_eq!(loads.estimate(ms(51), at(1)), 8.5);
        assert!(loads.estimate(ms(10_000), at(1)) < 1e-9, "it may have become idle");
    }

    #[test]
    fn oldest_nodes_are_forgotten() {
        let (mut reports, mut loads) = (LoadReports::default(), ServerLoads::default());
        for port in 1..=2 * NODES_MAX as u16 {
            reports.due(ms(port.into()), at(port), 8);
            loads.record(ms(port.into()), at(port), 8);
        }
        assert_eq!((reports.0.len(), loads.0.len()), (NODES_MAX, NODES_MAX));
        let now = ms(2 * NODES_MAX as u64);
        assert_eq!(loads.estimate(now, at(1)), 0.0);
        assert_eq!(loads.estimate(now, at(2 * NODES_MAX as u16)), 8.0);
    }
}
