//! What servers bear, and when a group grows or shrinks by itself.

use pathcall_wire::Instant;

use super::ServerId;
use super::scaler::Scaler;

impl Scaler {
    /// The servers that the group shall be, also those that do not report.
    pub fn wanted(&self) -> impl Iterator<Item = ServerId> {
        self.wanted.iter().copied()
    }

    /// Flows that a server said it had; none: it does not report.
    #[must_use]
    pub fn flows(&self, server: ServerId) -> Option<u64> {
        Some(self.servers.get(&server)?.flows)
    }

    /// The group grows and shrinks by its load, if no operator has said what it shall be.
    pub(super) fn by_load(&mut self, now: Instant) {
        let group = self.group();
        let calm = self.changed_at.is_some_and(|at| now.since(at) < self.config.calm);
        if self.by_operator || calm || self.changing() || group.is_empty() {
            return;
        }
        let loads: Vec<f64> = group.iter().filter_map(|server| Some(self.servers.get(server)?.load)).collect();
        let (sum, count) = (loads.iter().sum::<f64>(), loads.len() as f64);
        let spare = self.servers.keys().find(|server| !group.contains(server)).copied();
        if sum / count > self.config.load_high
            && let Some(spare) = spare
        {
            self.wanted = group;
            self.wanted.insert(spare);
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
