//! This caller's lease: without one it takes no locks, and with the lease it loses those that it has.
//!
//! As long as it holds locks or waits for some it asks the server again and again; the lease counts
//! from when an answered request was sent. A caller that was stopped for longer finds on its first look
//! at the clock that everything it held is lost.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use super::super::super::lease::held_for;
use super::super::ClientConfig;

/// Requests whose answer is waited for; older ones are of no use.
const SENT_MAX: usize = 8;

#[derive(Default)]
pub(super) struct Lease {
    /// Requests so far: the server heeds none that is older than the last it heard.
    requests: u32,
    /// Sessions that have ended: what locks are lent under is the one after them.
    ended: u32,
    /// When the lease was last asked for and given.
    from: Option<Instant>,
    sent: VecDeque<(u32, Instant)>,
    /// When it is asked for again, and the pause after that.
    next: Option<(Instant, Duration)>,
    /// Since when nobody has answered.
    unheard: Option<Instant>,
    /// It has said that it needs none.
    resigned: bool,
}

/// What the server is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Ask {
    /// Number of the request.
    pub(in super::super) request: u32,
    /// The session that it is for.
    pub(in super::super) session: u32,
    /// It holds nothing, and wants nothing.
    pub(in super::super) resigns: bool,
}

impl Lease {
    /// The session, as long as it lives.
    pub(super) fn session(&self, now: Instant, config: &ClientConfig) -> Option<u32> {
        self.until(config).filter(|until| now < *until).map(|_| self.number())
    }

    fn number(&self) -> u32 {
        self.ended.wrapping_add(1).max(1)
    }

    /// The session is over: the next one is another.
    fn end(&mut self) {
        (self.ended, self.from) = (self.number(), None);
        self.sent.clear();
    }

    /// Until when locks are the caller's.
    pub(super) fn until(&self, config: &ClientConfig) -> Option<Instant> {
        let from = self.from?;
        Some(if mutant::on(Mutant::LeaseNotChecked) { Instant(u64::MAX) } else { from + part(config) })
    }

    /// Whether it has run out since the last look; it is none any more, then.
    pub(super) fn runs_out(&mut self, now: Instant, config: &ClientConfig) -> bool {
        if self.until(config).is_none_or(|until| now < until) {
            return false;
        }
        self.end();
        true
    }

    /// When something is to be done about it.
    pub(super) fn deadline(&self, config: &ClientConfig) -> Option<Instant> {
        [self.next.map(|(at, _)| at), self.until(config).filter(|until| until.0 != u64::MAX)]
            .into_iter()
            .flatten()
            .min()
    }

    /// It is wanted from now on.
    pub(super) fn want(&mut self, now: Instant, config: &ClientConfig) {
        if self.next.is_none() || self.resigned {
            (self.next, self.unheard) = (Some((now, config.timing.rto_initial)), None);
        }
        self.resigned = false;
    }

    /// Whether it is time to ask.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|(at, _)| at <= now)
    }

    /// Since when nobody answers.
    pub(super) fn unheard(&self, now: Instant) -> Duration {
        self.unheard.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Asks; `wanted`: there are locks to be held.
    pub(super) fn ask(&mut self, now: Instant, wanted: bool, config: &ClientConfig) -> Option<Ask> {
        let (_, pause) = self.next?;
        if !wanted && !self.resigned {
            // Who comes back soon finds the lease as it was.
            let later = self.from.map(|from| from + part(config) / 2).filter(|later| now < *later);
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
        let longest = (part(config) / 8).min(config.timing.rto_max);
        self.next = Some((now + pause, (pause * 2).min(longest)));
        Some(Ask { request: self.requests, session, resigns: !wanted })
    }

    /// The server says that the session is over; false when it means another.
    pub(super) fn is_ended(&mut self, request: u32) -> bool {
        let current = !self.resigned && self.sent.iter().any(|(number, _)| *number == request);
        if current {
            self.unheard = None;
            self.end();
        }
        current
    }

    /// The server has answered; false when that means nothing.
    pub(super) fn lent(&mut self, now: Instant, request: u32, session: u32, config: &ClientConfig) -> bool {
        if self.resigned {
            let done = request == self.requests;
            if done {
                (self.next, self.unheard, self.resigned) = (None, None, false);
            }
            return done;
        }
        let Some(at) = self.sent.iter().find(|(number, _)| *number == request).map(|(_, at)| *at) else { return false };
        self.unheard = None;
        if session != self.number() || now.since(at) >= part(config) {
            return session == 0;
        }
        self.from = self.from.max(Some(at));
        self.sent.retain(|(number, _)| *number > request);
        self.next = Some((at.max(now) + part(config) / 4, config.timing.rto_initial));
        true
    }
}

fn part(config: &ClientConfig) -> Duration {
    if mutant::on(Mutant::LeaseWithoutDrift) { config.lease } else { held_for(config.lease) }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::ClearPolicy;
    use super::super::super::super::lease::{Era, LEASE};
    use super::*;
    use crate::flow::Timing;

    fn config() -> ClientConfig {
        ClientConfig {
            gaid: 7,
            epoch: 1,
            endpoint: 10,
            incarnation: 5,
            server: 1,
            server_incarnation: 5,
            slot_base: 0,
            flows: 1,
            element: false,
            inline: false,
            rows: 4,
            width: 1,
            worker: 0,
            votes: false,
            clear: ClearPolicy::Copy,
            start_chunk: 0,
            lease: LEASE,
            era: Era::of_epoch(1),
            timing: Timing::default(),
        }
    }

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// A lease that is asked for at that time; the request's number.
    fn asked(lease: &mut Lease, now: Instant) -> u32 {
        lease.want(now, &config());
        lease.ask(now, true, &config()).expect("it is wanted").request
    }

    #[test]
    fn lease_counts_from_its_request_however_late_the_answer_is() {
        let (mut lease, config) = (Lease::default(), config());
        let first = asked(&mut lease, ms(100));
        assert!(lease.lent(ms(700), first, 1, &config));
        // The server has counted since it had the request.
        let end = ms(100) + held_for(LEASE);
        assert_eq!(lease.until(&config), Some(end));
        assert_eq!((lease.session(Instant(end.0 - 1), &config), lease.session(end, &config)), (Some(1), None));
        let (second, third) = (asked(&mut lease, ms(1_000)), asked(&mut lease, ms(1_100)));
        assert!(lease.lent(ms(1_900), third, 1, &config));
        assert!(!lease.lent(ms(1_950), second, 1, &config), "an older request says nothing new");
        assert_eq!(lease.until(&config), Some(ms(1_100) + held_for(LEASE)));
    }

    #[test]
    fn answer_that_comes_after_its_lease_is_over_lends_nothing() {
        let (mut lease, config) = (Lease::default(), config());
        let request = asked(&mut lease, ms(100));
        assert!(!lease.lent(ms(100) + held_for(LEASE), request, 1, &config));
        assert_eq!(lease.until(&config), None);
        let request = asked(&mut lease, ms(9_000));
        assert!(!lease.lent(ms(9_001), request, 2, &config), "the server names another session");
        assert_eq!(lease.until(&config), None);
    }
}
