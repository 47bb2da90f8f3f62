//! Lock lease of a caller. A caller acquires locks only with a lease, and loses its locks when the lease ends.
//!
//! The caller renews the lease while it holds locks or waits for locks. The lease starts at the transmission of an
//! answered request. A caller that was stopped for longer detects the loss of its locks before any other action.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use super::super::super::lease::holder_lease;
use super::super::ClientConfig;

/// Maximum number of unanswered requests; older ones are dropped.
const SENT_MAX: usize = 8;

/// State of the lock lease.
#[derive(Default)]
pub(super) struct CallerLease {
    /// Number of requests. The server ignores requests older than the last one received.
    requests: u32,
    /// Number of ended sessions; the current session is the next one.
    ended: u32,
    /// Start of the current lease.
    from: Option<Instant>,
    sent: VecDeque<(u32, Instant)>,
    /// Time of the next request, and the pause after it.
    next: Option<(Instant, Duration)>,
    /// Time of the first unanswered request.
    unheard: Option<Instant>,
    /// Whether the caller has given up its lease.
    resigned: bool,
}

/// Request for a lease, or notice that none is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct LeaseRequest {
    /// Number of the request.
    pub(in super::super) request: u32,
    /// Session of the request.
    pub(in super::super) session: u32,
    /// Whether the caller gives up its lease.
    pub(in super::super) resigns: bool,
}

impl CallerLease {
    /// Current session, if its lease is valid.
    pub(super) fn session(&self, now: Instant, config: &ClientConfig) -> Option<u32> {
        self.until(config).filter(|until| now < *until).map(|_| self.number())
    }

    fn number(&self) -> u32 {
        self.ended.wrapping_add(1).max(1)
    }

    /// Ends the session; the next one has another number.
    fn end(&mut self) {
        (self.ended, self.from) = (self.number(), None);
        self.sent.clear();
    }

    /// End of the lease.
    pub(super) fn until(&self, config: &ClientConfig) -> Option<Instant> {
        let from = self.from?;
        Some(if mutant::on(Mutant::LeaseNotChecked) { Instant(u64::MAX) } else { from + holder_part(config) })
    }

    /// Ends the session if its lease has expired; returns whether it has.
    pub(super) fn end_if_expired(&mut self, now: Instant, config: &ClientConfig) -> bool {
        if self.until(config).is_none_or(|until| now < until) {
            return false;
        }
        self.end();
        true
    }

    /// Time of the next action.
    pub(super) fn deadline(&self, config: &ClientConfig) -> Option<Instant> {
        [self.next.map(|(at, _)| at), self.until(config).filter(|until| until.0 != u64::MAX)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Requests a lease from now on.
    pub(super) fn request_lease(&mut self, now: Instant, config: &ClientConfig) {
        if self.next.is_none() || self.resigned {
            (self.next, self.unheard) = (Some((now, config.timing.rto_initial)), None);
        }
        self.resigned = false;
    }

    /// Whether a request is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|(at, _)| at <= now)
    }

    /// Time since the first unanswered request.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        self.unheard.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Next request; `wanted`: locks are held or requested.
    pub(super) fn next_request(&mut self, now: Instant, wanted: bool, config: &ClientConfig) -> Option<LeaseRequest> {
        let (_, pause) = self.next?;
        if !wanted && !self.resigned {
            // Keep the lease for a while, for a caller that needs locks again soon.
            let later = self.from.map(|from| from + holder_part(config) / 2).filter(|later| now < *later);
            if self.from.is_none() || later.is_some() {
                (self.next, self.unheard) = (later.map(|later| (later, pause)), None);
                return None;
            }
        }
        self.requests += 1;
        let session = self.number();
        if wanted {
            self.sent.push_back((self.requests, now));
            if self.sent.len() > SENT_MAX {
                self.sent.pop_front();
            }
        } else if !std::mem::replace(&mut self.resigned, true) {
            self.end();
        }
        self.unheard.get_or_insert(now);
        let longest = (holder_part(config) / 8).min(config.timing.rto_max);
        self.next = Some((now + pause, (pause * 2).min(longest)));
        Some(LeaseRequest { request: self.requests, session, resigns: !wanted })
    }

    /// Handles the notice that the session has ended. Returns false if the notice is for another session.
    pub(super) fn on_session_ended(&mut self, request: u32) -> bool {
        let current = !self.resigned && self.sent.iter().any(|(number, _)| *number == request);
        if current {
            self.unheard = None;
            self.end();
        }
        current
    }

    /// Handles the answer to a request. Returns false if the answer has no effect.
    pub(super) fn on_lease_answer(&mut self, now: Instant, request: u32, session: u32, config: &ClientConfig) -> bool {
        if self.resigned {
            let done = request == self.requests;
            if done {
                (self.next, self.unheard, self.resigned) = (None, None, false);
            }
            return done;
        }
        let Some(at) = self.sent.iter().find(|(number, _)| *number == request).map(|(_, at)| *at) else { return false };
        self.unheard = None;
        if session != self.number() || now.since(at) >= holder_part(config) {
            return session == 0;
        }
        self.from = self.from.max(Some(at));
        self.sent.retain(|(number, _)| *number > request);
        self.next = Some((at.max(now) + holder_part(config) / 4, config.timing.rto_initial));
        true
    }
}

fn holder_part(config: &ClientConfig) -> Duration {
    if mutant::on(Mutant::LeaseWithoutDrift) { config.lease } else { holder_lease(config.lease) }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::lease::DEFAULT_LEASE;
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// Requests a lease at this time, and returns the number of the request.
    fn send_request(lease: &mut CallerLease, now: Instant) -> u32 {
        let config = ClientConfig::default();
        lease.request_lease(now, &config);
        lease.next_request(now, true, &config).expect("a request is due").request
    }

    #[test]
    fn lease_starts_at_request_despite_late_answer() {
        let (mut lease, config) = (CallerLease::default(), ClientConfig::default());
        let first = send_request(&mut lease, ms(100));
        assert!(lease.on_lease_answer(ms(700), first, 1, &config));
        // The server measures from the receipt of the request.
        let end = ms(100) + holder_lease(DEFAULT_LEASE);
        assert_eq!(lease.until(&config), Some(end));
        assert_eq!((lease.session(Instant(end.0 - 1), &config), lease.session(end, &config)), (Some(1), None));
        let (second, third) = (send_request(&mut lease, ms(1_000)), send_request(&mut lease, ms(1_100)));
        assert!(lease.on_lease_answer(ms(1_900), third, 1, &config));
        assert!(!lease.on_lease_answer(ms(1_950), second, 1, &config), "the answer to an older request has no effect");
        assert_eq!(lease.until(&config), Some(ms(1_100) + holder_lease(DEFAULT_LEASE)));
    }

    #[test]
    fn answer_after_end_of_lease_has_no_effect() {
        let (mut lease, config) = (CallerLease::default(), ClientConfig::default());
        let request = send_request(&mut lease, ms(100));
        assert!(!lease.on_lease_answer(ms(100) + holder_lease(DEFAULT_LEASE), request, 1, &config));
        assert_eq!(lease.until(&config), None);
        let request = send_request(&mut lease, ms(9_000));
        assert!(!lease.on_lease_answer(ms(9_001), request, 2, &config), "answer for another session");
        assert_eq!(lease.until(&config), None);
    }
}
