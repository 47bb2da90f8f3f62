//! Routing of calls: through the element or past it, at the first send, for repeats and for hedges.

use std::time::Duration;

use pathcall_wire::{CloneFlags, CloneFrame, FrameKind, Instant, Mutant, SplitMix64, clone, mutant};

use super::super::{Balance, CloneDestination};
use super::call::bit;
use super::outgoing::OutgoingRequest;
use super::{Call, CloneCaller};

/// Most groups that are drawn to find one of other servers than before.
const DRAWS_MAX: u32 = 8;
/// Least number of times that an unanswered call is sent before its deadline, if time allows.
const SENDS_MIN: u32 = 4;

impl CloneCaller {
    /// Sends a call for the first time.
    pub(super) fn send_first(&mut self, now: Instant, seq: u32, call: &mut Call) {
        let options = call.options;
        let asks_extra = options.clone || options.send_to_two || options.hedge.is_some();
        self.stats.refused.not_idempotent += u64::from(asks_extra && !options.idempotent);
        let asks_element = options.clone || options.through_element || options.balance == Balance::Shortest;
        let element_may_handle = options.idempotent || mutant::on(Mutant::CloneAnyCall);
        if asks_element && element_may_handle && self.element.should_use(now) {
            self.send_by_element(now, seq, call);
        } else {
            self.send_direct(now, seq, call);
            let others = self.config.pool.servers.len() > 1;
            if options.send_to_two && options.idempotent && others && self.spend_optional(now, call) {
                self.stats.second_requests += 1;
                self.send_direct(now, seq, call);
            }
        }
        let pause = self.retry_pause(call, 0);
        let again = options.idempotent || mutant::on(Mutant::CloneAnyRepeated);
        call.retry_at = again.then(|| now + pause);
        call.hedge_at = self.hedge_delay(call).map(|delay| now + delay);
    }

    /// Repeats an unanswered call.
    pub(super) fn send_again(&mut self, now: Instant, seq: u32) {
        let Some(mut call) = self.calls.remove(&seq) else { return };
        if call.not_before > now && !call.is_pushed_back() && call.working.is_empty() {
            // A server wishes that no other one is asked yet.
            call.retry_at = Some(call.not_before);
            self.calls.insert(seq, call);
            return;
        }
        if let Some(failed) = call.ask_after.take() {
            self.ask_another_server(now, seq, &mut call, failed);
            let over = call.has_failed();
            self.calls.insert(seq, call);
            return if over {
                self.complete_with_failure(now, seq)
            };
        }
        call.working.retain(|server| self.config.pool.servers.contains(server));
        if call.failure.is_some() && call.working.is_empty() {
            // No server is known to work on it: the missing answer is lost. Without a hedge, the failure is the answer.
            self.calls.insert(seq, call);
            if !self.hedge(now, seq) {
                self.complete_with_failure(now, seq);
            }
            return;
        }
        call.unanswered += 1;
        let pause = self.retry_pause(&call, call.unanswered).max(call.min_pause(now));
        call.retry_at = (!mutant::on(Mutant::CloneNeverRepeated)).then(|| now + pause);
        if call.by_element && !std::mem::replace(&mut call.timed_out, true) && self.element.record_timeout(now) {
            self.stats.silent += 1;
        }
        if call.attempt < u8::MAX && self.spend_extra(now, &call) {
            call.attempt += 1;
            let by_element = call.by_element || self.uses_element(&call);
            let working = call.working.pop();
            if working.is_some() {
                call.reminders += 1;
                self.stats.reminded += 1;
            } else {
                call.retried_elsewhere = true;
                self.stats.repeated += 1;
            }
            match working {
                Some(server) => self.send_to(seq, &mut call, server, by_element && self.element.is_responsive()),
                // Only new calls probe a silent element; otherwise a lone call would never go past it.
                None if by_element && self.element.is_responsive() => self.send_by_element(now, seq, &mut call),
                None => self.send_direct(now, seq, &mut call),
            }
        }
        self.calls.insert(seq, call);
    }

    /// Tells the servers that may have a call in their queues that it is answered.
    pub(super) fn cancel_others(&mut self, seq: u32, call: &Call, frame: &CloneFrame<&[u8]>) {
        let (winner, head) = (frame.base().src(), frame.head());
        let cancel = OutgoingRequest {
            kind: FrameKind::CloneCancel,
            grp: head.grp(),
            version: frame.base().epoch(),
            idx: head.idx(),
            attempt: call.attempt,
            sid: head.sid(),
            ..OutgoingRequest::new(seq)
        };
        if head.clo() != 0 {
            self.stats.cancelled += 1;
            self.outgoing.push_back(cancel);
        }
        let others: Vec<u32> = call.asked.into_iter().filter(|asked| *asked != 0 && *asked != winner).collect();
        for server in others {
            self.stats.cancelled += 1;
            self.outgoing.push_back(OutgoingRequest {
                to: CloneDestination::Endpoint(server),
                dst: server,
                flags: CloneFlags::DIRECT,
                ..cancel
            });
        }
    }

    /// Tells all servers that may have a call that it is cancelled.
    pub(super) fn cancel_all(&mut self, seq: u32, call: &Call) {
        let cancel =
            OutgoingRequest { kind: FrameKind::CloneCancel, attempt: call.attempt, ..OutgoingRequest::new(seq) };
        let pair = |(version, grp)| Some((version, grp, clone::pair(grp, self.config.pool.servers.len())?));
        let element_choice = call.element_choice.filter(|(version, _)| *version == self.config.pool.version);
        if let Some((version, grp, (first, second))) = element_choice.and_then(pair) {
            // A cancellation goes to the other server of the pair than the one that it names.
            for sid in [first, second] {
                self.stats.cancelled += 1;
                self.outgoing.push_back(OutgoingRequest { version, grp, sid, ..cancel });
            }
        }
        for server in call.asked.into_iter().filter(|asked| *asked != 0) {
            self.stats.cancelled += 1;
            let version = self.config.pool.version;
            let (to, flags) = (CloneDestination::Endpoint(server), CloneFlags::DIRECT);
            self.outgoing.push_back(OutgoingRequest { to, dst: server, flags, version, ..cancel });
        }
    }

    pub(super) fn uses_element(&self, call: &Call) -> bool {
        let options = call.options;
        options.idempotent && (options.clone || options.through_element || options.balance == Balance::Shortest)
    }

    /// Sends a call to a random pair of servers, for the element to choose.
    pub(super) fn send_by_element(&mut self, now: Instant, seq: u32, call: &mut Call) {
        let options = call.options;
        // All parts of a repeated request go to one server: the element must not steer single parts.
        let may_be_cloned = call.parts == 1 || call.attempt == 0;
        let mut flags = 0;
        if may_be_cloned && options.balance == Balance::Shortest {
            flags |= CloneFlags::SHORTEST;
        }
        if may_be_cloned && options.clone && self.spend_optional(now, call) {
            flags |= CloneFlags::CLONE;
            call.reserved |= bit(call.attempt);
        }
        let hedge_after = self.grant_hedge(now, call);
        let (grp, idx) = (self.draw_group(now, call), self.random.below(self.config.filter_tables.into()));
        if let Some((first, _)) = clone::pair(grp, self.config.pool.servers.len()) {
            // The element may choose the other one.
            self.record_open(call, self.config.pool.servers[usize::from(first)]);
        }
        call.by_element = true;
        call.timed_out = false;
        call.element_choice = Some((self.config.pool.version, grp));
        call.requests += 1;
        self.outgoing.push_back(OutgoingRequest {
            grp,
            version: self.config.pool.version,
            idx: idx as u8,
            flags,
            attempt: call.attempt,
            parts: call.parts,
            patience: self.report_after(call),
            hedge_after,
            ..OutgoingRequest::new(seq)
        });
    }

    /// Sends a call past the element, to a server that was not asked yet if there is one: for the shorter queue, to the
    /// better of two.
    pub(super) fn send_direct(&mut self, now: Instant, seq: u32, call: &mut Call) {
        let servers = &self.config.pool.servers;
        let in_turn = call.options.balance == Balance::RoundRobin && call.requests == 0;
        let server = if in_turn {
            self.last_in_turn = self.last_in_turn.wrapping_add(1) % servers.len().max(1) as u32;
            servers.get(self.last_in_turn as usize).copied()
        } else {
            let first = pick(&mut self.random, servers, |server| !call.has_asked(server));
            match first.filter(|_| call.options.balance == Balance::Shortest) {
                Some(first) => {
                    let is_other = |server| server != first && !call.has_asked(server);
                    let second = pick(&mut self.random, servers, is_other);
                    second.filter(|second| self.loads.is_second_shorter(now, first, *second)).or(Some(first))
                }
                None => first,
            }
        };
        if let Some(server) = server.or_else(|| pick(&mut self.random, servers, |_| true)) {
            self.send_to(seq, call, server, false);
        }
    }

    /// Sends a call to one server.
    fn send_to(&mut self, seq: u32, call: &mut Call, server: u32, by_element: bool) {
        call.record_asked(server);
        self.record_open(call, server);
        call.by_element = by_element;
        call.timed_out = false;
        call.requests += 1;
        self.outgoing.push_back(OutgoingRequest {
            to: if by_element { CloneDestination::Element } else { CloneDestination::Endpoint(server) },
            dst: server,
            flags: CloneFlags::DIRECT,
            version: self.config.pool.version,
            attempt: call.attempt,
            parts: call.parts,
            patience: self.report_after(call),
            ..OutgoingRequest::new(seq)
        });
    }

    /// Records a request to a server.
    fn record_open(&mut self, call: &mut Call, server: u32) {
        self.loads.record_sent(server);
        if let Some(forgotten) = call.record_open(server) {
            self.loads.record_answered(forgotten);
        }
    }

    /// Draws a group whose first server follows the balance option: the one with the shorter queue, as far as the caller
    /// knows, is preferred by the element if both queues seem equal to it. Another attempt gets other servers than the
    /// last group, if possible.
    fn draw_group(&mut self, now: Instant, call: &Call) -> u32 {
        let servers = self.config.pool.servers.len();
        if call.options.balance == Balance::RoundRobin && servers > 1 {
            self.last_in_turn = self.last_in_turn.wrapping_add(1) % servers as u32;
            let others = servers as u32 - 1;
            return self.last_in_turn * others + self.random.below(others);
        }
        let last = call.element_choice.filter(|(version, _)| *version == self.config.pool.version);
        let last = last.and_then(|(_, grp)| clone::pair(grp, servers)).filter(|_| servers > 3);
        let mut drawn = self.random.below(clone::groups(servers));
        for _ in 1..DRAWS_MAX {
            let (Some(last), Some(pair)) = (last, clone::pair(drawn, servers)) else { break };
            if [last.0, last.1].iter().all(|server| *server != pair.0 && *server != pair.1) {
                break;
            }
            drawn = self.random.below(clone::groups(servers));
        }
        let of_sid = |sid: u16| self.config.pool.servers[usize::from(sid)];
        match clone::pair(drawn, servers).filter(|_| call.options.balance == Balance::Shortest) {
            Some((first, second)) if self.loads.is_second_shorter(now, of_sid(first), of_sid(second)) => {
                clone::group_of(second, first, servers)
            }
            _ => drawn,
        }
    }

    /// Time in µs after which a server reports that it works on a call.
    fn report_after(&self, call: &Call) -> u32 {
        let patience = call.options.patience.unwrap_or_else(|| self.retry_pause(call, call.unanswered) / 2);
        u32::try_from(patience.as_micros()).unwrap_or(u32::MAX)
    }

    /// Pause after `again` repeats: short enough for a few repeats before the deadline, whatever the measured latency.
    pub(super) fn retry_pause(&self, call: &Call, again: u32) -> Duration {
        let pause = self.latency.retry_delay(again, self.config.retry_min, self.config.retry_max);
        pause.min((call.options.deadline / SENDS_MIN).max(self.config.retry_min))
    }
}

/// Picks one of the matching values uniformly; `None` if none matches.
fn pick(random: &mut SplitMix64, from: &[u32], matches: impl Fn(u32) -> bool) -> Option<u32> {
    let nth = random.index(from.iter().filter(|one| matches(**one)).count());
    from.iter().copied().filter(|one| matches(*one)).nth(nth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pick_returns_matching_value_or_none() {
        let mut random = SplitMix64::new(7);
        assert_eq!(pick(&mut random, &[3, 4, 5], |one| one == 4), Some(4));
        assert_eq!(pick(&mut random, &[3], |one| one == 4), None);
    }
}
