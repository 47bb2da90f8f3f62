//! Who is asked: by way of the element or past it, first, again, and besides.

use std::time::Duration;

use pathcall_wire::{CloneFlags, CloneFrame, Instant, Kind, Mutant, clone, mutant};

use super::super::{Balance, Options, To};
use super::call::bit;
use super::frames::Outgoing;
use super::{Call, Caller};

/// As often a call that nobody answers is sent before its deadline, if that leaves so much time.
const SENDS_MIN: u32 = 4;

impl Caller {
    /// Sends a call for the first time.
    pub(super) fn send_first(&mut self, now: Instant, seq: u32, call: &mut Call) {
        let options = call.options;
        let asks_element = options.clone || options.steered || options.balance == Balance::Shortest;
        let may_be_steered = options.idempotent || mutant::on(Mutant::CloneAnyCall);
        if asks_element && may_be_steered && self.silence.passes(now) {
            self.send_by_element(now, seq, call);
        } else {
            self.send_past(seq, call);
            let others = self.config.pool.servers.len() > 1;
            if options.twice && options.idempotent && others && self.extra(now, call) {
                self.stats.twice += 1;
                self.send_past(seq, call);
            }
        }
        let pause = self.pause(call, 0);
        let again = options.idempotent || mutant::on(Mutant::CloneAnyRepeated);
        call.retry_at = again.then(|| now + pause);
        call.hedge_at = options.hedge.filter(|_| options.idempotent).map(|hedge| now + hedge.delay);
    }

    /// Sends a call again that nobody answered.
    pub(super) fn send_again(&mut self, now: Instant, seq: u32) {
        let Some(mut call) = self.calls.remove(&seq) else { return };
        if call.failure.is_some() && call.working.is_empty() {
            // Nobody is known to work on it: what is missing is lost. If nobody else is asked, it has an answer.
            self.calls.insert(seq, call);
            if !self.hedge(now, seq) {
                self.end_as_failed(now, seq);
            }
            return;
        }
        call.unanswered += 1;
        let pause = self.pause(&call, call.unanswered).max(call.spread(now));
        call.retry_at = (!mutant::on(Mutant::CloneNeverRepeated)).then(|| now + pause);
        if call.by_element && !std::mem::replace(&mut call.missed, true) && self.silence.missed(now) {
            self.stats.silent += 1;
        }
        if call.attempt < u8::MAX && self.extra(now, &call) {
            call.attempt += 1;
            self.stats.repeated += 1;
            let by_element = call.by_element || self.steers(&call);
            let working = call.working.pop().filter(|server| self.config.pool.servers.contains(server));
            call.strayed |= working.is_none();
            match working {
                Some(server) => self.send_to(seq, &mut call, server, by_element && self.silence.answers()),
                // Only what is new tries an element that is silent, or a call alone would try nothing else.
                None if by_element && self.silence.answers() => self.send_by_element(now, seq, &mut call),
                None => self.send_past(seq, &mut call),
            }
        }
        self.calls.insert(seq, call);
    }

    /// Sends a call to another server, besides; false: it was not sent.
    pub(super) fn hedge(&mut self, now: Instant, seq: u32) -> bool {
        let Some(mut call) = self.calls.remove(&seq) else { return false };
        let before = call.attempt;
        call.hedge_at = None;
        if let Some(hedge) = call.options.hedge.filter(|_| call.may_hedge()) {
            // What there are no requests for now is not tried again at once, however short the delay is.
            call.hedge_at = Some(now + hedge.delay.max(self.config.retry_min));
            if self.extra(now, &call) {
                call.hedge_at = Some(now + hedge.delay);
                call.attempt += 1;
                self.stats.hedged += 1;
                if call.failure.is_some() {
                    // Who was asked before has answered: this one has all of the time.
                    let pause = self.pause(&call, call.unanswered);
                    call.retry_at = call.retry_at.map(|_| now + pause);
                }
                if self.steers(&call) && self.silence.answers() {
                    self.send_by_element(now, seq, &mut call);
                } else {
                    self.send_past(seq, &mut call);
                }
            }
        }
        let sent = call.attempt > before;
        self.calls.insert(seq, call);
        sent
    }

    /// Asks another server when the only one that was asked has failed: the element might have asked two.
    pub(super) fn clone_late(&mut self, now: Instant, seq: u32, call: &mut Call, failed: u32) {
        let Options { clone, idempotent, hedge, .. } = call.options;
        let may = clone && idempotent && hedge.is_none() && call.requests == 1 && call.attempt < u8::MAX;
        call.asks(failed);
        let another = self.config.pool.servers.iter().any(|server| !call.has_asked(*server));
        if may && another && self.extra(now, call) {
            call.attempt += 1;
            self.stats.hedged += 1;
            let pause = self.pause(call, call.unanswered);
            call.retry_at = call.retry_at.map(|_| now + pause);
            self.send_past(seq, call);
        }
    }

    /// Tells servers that may have a call in their queues that it is answered.
    pub(super) fn cancel_others(&mut self, seq: u32, call: &Call, frame: &CloneFrame<&[u8]>) {
        let (winner, head) = (frame.base().src(), frame.head());
        let cancel = Outgoing {
            kind: Kind::CloneCancel,
            grp: head.grp(),
            version: frame.base().epoch(),
            idx: head.idx(),
            attempt: call.attempt,
            sid: head.sid(),
            ..Outgoing::new(seq)
        };
        if head.clo() != 0 {
            self.stats.cancelled += 1;
            self.outgoing.push_back(cancel);
        }
        let others: Vec<u32> = call.asked.into_iter().filter(|asked| *asked != 0 && *asked != winner).collect();
        for server in others {
            self.stats.cancelled += 1;
            self.outgoing.push_back(Outgoing {
                to: To::Endpoint(server),
                dst: server,
                flags: CloneFlags::DIRECT,
                ..cancel
            });
        }
    }

    /// Tells all servers that may have a call that nobody wants its answer any more.
    pub(super) fn cancel_all(&mut self, seq: u32, call: &Call) {
        let cancel = Outgoing { kind: Kind::CloneCancel, attempt: call.attempt, ..Outgoing::new(seq) };
        let pair = |(version, grp)| Some((version, grp, clone::pair(grp, self.config.pool.servers.len())?));
        let steered = call.steered.filter(|(version, _)| *version == self.config.pool.version);
        if let Some((version, grp, (first, second))) = steered.and_then(pair) {
            // It goes to the other of the pair than the one that it names.
            for sid in [first, second] {
                self.stats.cancelled += 1;
                self.outgoing.push_back(Outgoing { version, grp, sid, ..cancel });
            }
        }
        for server in call.asked.into_iter().filter(|asked| *asked != 0) {
            self.stats.cancelled += 1;
            let version = self.config.pool.version;
            let (to, flags) = (To::Endpoint(server), CloneFlags::DIRECT);
            self.outgoing.push_back(Outgoing { to, dst: server, flags, version, ..cancel });
        }
    }

    fn steers(&self, call: &Call) -> bool {
        let options = call.options;
        options.idempotent && (options.clone || options.steered || options.balance == Balance::Shortest)
    }

    /// Whether one request more may be sent than calls were made.
    fn extra(&mut self, now: Instant, call: &Call) -> bool {
        let pays = self.purses.take(now, call.options.purse);
        self.stats.refused += u64::from(!pays);
        pays
    }

    /// Sends a call to a random pair of servers, for the element to choose.
    fn send_by_element(&mut self, now: Instant, seq: u32, call: &mut Call) {
        let options = call.options;
        // Parts of a request that is sent again gather at one server: no part may be steered by itself.
        let whole = call.parts == 1 || call.attempt == 0;
        let mut flags = 0;
        if whole && options.balance == Balance::Shortest {
            flags |= CloneFlags::SHORTEST;
        }
        if whole && options.clone && self.extra(now, call) {
            flags |= CloneFlags::CLONE;
            call.reserved |= bit(call.attempt);
        }
        let (grp, idx) = (self.group(options.balance), self.draw.below(self.config.filter_tables.into()));
        call.by_element = true;
        call.missed = false;
        call.steered = Some((self.config.pool.version, grp));
        call.requests += 1;
        self.outgoing.push_back(Outgoing {
            grp,
            version: self.config.pool.version,
            idx: idx as u8,
            flags,
            attempt: call.attempt,
            parts: call.parts,
            patience: self.patience(call),
            ..Outgoing::new(seq)
        });
    }

    /// Sends a call past the element, to a server that it was not sent to if there is one.
    fn send_past(&mut self, seq: u32, call: &mut Call) {
        let servers = &self.config.pool.servers;
        let in_turn = call.options.balance == Balance::RoundRobin && call.requests == 0;
        let server = if in_turn {
            self.turn = self.turn.wrapping_add(1) % servers.len().max(1) as u32;
            servers.get(self.turn as usize).copied()
        } else {
            self.draw.pick(servers, |server| !call.has_asked(server))
        };
        if let Some(server) = server.or_else(|| self.draw.pick(servers, |_| true)) {
            self.send_to(seq, call, server, false);
        }
    }

    /// Sends a call to one server.
    fn send_to(&mut self, seq: u32, call: &mut Call, server: u32, by_element: bool) {
        call.asks(server);
        call.by_element = by_element;
        call.missed = false;
        call.requests += 1;
        self.outgoing.push_back(Outgoing {
            to: if by_element { To::Element } else { To::Endpoint(server) },
            dst: server,
            flags: CloneFlags::DIRECT,
            version: self.config.pool.version,
            attempt: call.attempt,
            parts: call.parts,
            patience: self.patience(call),
            ..Outgoing::new(seq)
        });
    }

    /// A group, drawn so that the balance holds for its first server.
    fn group(&mut self, balance: Balance) -> u32 {
        let servers = self.config.pool.servers.len();
        if balance != Balance::RoundRobin || servers < 2 {
            return self.draw.below(clone::groups(servers));
        }
        self.turn = self.turn.wrapping_add(1) % servers as u32;
        let others = servers as u32 - 1;
        self.turn * others + self.draw.below(others)
    }

    /// After how many microseconds a server says that it works on a call.
    fn patience(&self, call: &Call) -> u32 {
        let patience = call.options.patience.unwrap_or_else(|| self.pause(call, call.unanswered) / 2);
        u32::try_from(patience.as_micros()).unwrap_or(u32::MAX)
    }

    /// How long an answer to a call that was sent `again` so often is waited for: it can be sent a few times before its
    /// deadline, however long others take.
    pub(super) fn pause(&self, call: &Call, again: u32) -> Duration {
        let pause = self.latency.retry_after(again, self.config.retry_min, self.config.retry_max);
        pause.min((call.options.deadline / SENDS_MIN).max(self.config.retry_min))
    }
}
