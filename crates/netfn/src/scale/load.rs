//! Scaling of a group by the load that its servers report.

use pathcall_wire::Instant;

use super::ServerId;
use super::scaler::Scaler;

impl Scaler {
    /// Servers that are wanted in the group, including those that do not report.
    pub fn wanted(&self) -> impl Iterator<Item = ServerId> {
        self.wanted.iter().copied()
    }

    /// Number of flows that a server reported; `None` if the server does not report.
    #[must_use]
    pub fn flows(&self, server: ServerId) -> Option<u64> {
        Some(self.servers.get(&server)?.flows)
    }

    /// Grows or shrinks the group by its load, unless an operator has set the group.
    pub(super) fn scale_by_load(&mut self, now: Instant) {
        let group = self.group();
        let calm = self.changed_at.is_some_and(|at| now.since(at) < self.config.calm);
        if self.by_operator || calm || self.changing() || group.is_empty() {
            return;
        }
        let loads: Vec<f64> = group.iter().filter_map(|server| Some(self.servers.get(server)?.load)).collect();
        let (sum, count) = (loads.iter().sum::<f64>(), loads.len() as f64);
        let added = self.servers.keys().find(|server| !group.contains(server)).copied();
        if sum / count > self.config.load_high
            && let Some(added) = added
        {
            self.wanted = group;
            self.wanted.insert(added);
            self.stats.by_load += 1;
        } else if sum / count < self.config.load_low
            && loads.len() > self.config.servers_min.max(1)
            && sum / (count - 1.0) < self.config.load_high * 0.9
        {
            let fewest = group.iter().min_by_key(|server| self.servers.get(server).map_or(0, |server| server.flows));
            let fewest = fewest.copied();
            self.wanted = group;
            self.wanted.retain(|server| Some(*server) != fewest);
            self.stats.by_load += 1;
        }
    }
}
