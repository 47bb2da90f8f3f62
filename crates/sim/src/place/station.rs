//! Queueing station of a host: a node with its slots, or a link, with faults.

use pathcall_wire::Instant;

/// Fault of a station during some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationFault {
    /// First instant.
    pub from: Instant,
    /// First instant after it.
    pub until: Instant,
    /// Kind of the fault.
    pub what: StationFaultKind,
}

/// Kind of a station's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StationFaultKind {
    /// Each service takes this many times longer.
    Slow(u32),
    /// No service begins.
    Stands,
    /// All messages at the station are lost.
    Dead,
}

/// Node or link: first come, first served, with a number of slots.
#[derive(Debug, Clone)]
pub(super) struct Station {
    /// Time at which each slot is free, in nanoseconds.
    free: Vec<u64>,
    station_faults: Vec<StationFault>,
}

impl Station {
    /// Creates a station with this number of slots, at least one.
    pub(super) fn new(slots: usize) -> Self {
        Self { free: vec![0; slots.max(1)], station_faults: Vec::new() }
    }

    /// Adds a fault.
    pub(super) fn add_fault(&mut self, fault: StationFault) {
        self.station_faults.push(fault);
        self.station_faults.sort_by_key(|fault| fault.from);
    }

    /// Serves a message that arrives at `now`, after all earlier arrivals, and takes a slot for `busy` nanoseconds.
    /// Returns the end of the service; `None` if the message is lost.
    pub(super) fn take(&mut self, now: u64, busy: u64) -> Option<u64> {
        let slot = self.earliest();
        let mut begins = self.free[slot].max(now);
        let mut takes = busy;
        for fault in self.station_faults.iter().filter(|fault| fault.until.0 > now) {
            let within = fault.from.0 <= begins && begins < fault.until.0;
            match fault.what {
                StationFaultKind::Slow(times) if within => takes = busy.saturating_mul(u64::from(times)),
                StationFaultKind::Stands if within => begins = fault.until.0,
                // This includes a message that is being served when the station dies.
                StationFaultKind::Dead if fault.from.0 < begins + takes => {
                    // Messages that arrive after the fault find an empty station.
                    self.free.iter_mut().for_each(|free| *free = (*free).min(fault.until.0));
                    return None;
                }
                _ => {}
            }
        }
        self.free[slot] = begins + takes;
        Some(begins + takes)
    }

    fn earliest(&self) -> usize {
        let mut best = 0;
        for (slot, free) in self.free.iter().enumerate() {
            if *free < self.free[best] {
                best = slot;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(from: u64, until: u64, what: StationFaultKind) -> StationFault {
        StationFault { from: Instant(from), until: Instant(until), what }
    }

    #[test]
    fn station_serves_in_order_of_arrival_in_all_slots() {
        let mut station = Station::new(2);
        let done: Vec<_> = [0, 0, 1, 50].into_iter().map(|at| station.take(at, 10)).collect();
        assert_eq!(done, [Some(10), Some(10), Some(20), Some(60)]);
    }

    #[test]
    fn station_faults_slow_stall_or_lose_messages() {
        let mut station = Station::new(1);
        station.add_fault(fault(100, 200, StationFaultKind::Slow(10)));
        station.add_fault(fault(300, 400, StationFaultKind::Stands));
        station.add_fault(fault(500, 600, StationFaultKind::Dead));
        assert_eq!(station.take(90, 5), Some(95));
        assert_eq!(station.take(100, 5), Some(150), "ten times as slow");
        assert_eq!(station.take(200, 5), Some(205));
        assert_eq!(station.take(310, 5), Some(405), "station is stalled");
        assert_eq!(station.take(496, 5), None, "station dies during service");
        assert_eq!(station.take(550, 5), None, "station is dead");
        assert_eq!(station.take(600, 5), Some(605), "station works again");
    }
}
