//! Attempts of a call: if its servers fail before the first reply reaches the application, an idempotent call is made
//! again at other servers (DPC §7.3: a failed call is repeated as a whole).
//!
//! ```text
//! attempt 1 ─┬─ reply ─▶ application; of a unary call, only once the attempt is complete
//!            └─ a server is silent ─ pause ─▶ attempt 2, with new ids, without this server ─▶ …
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::{Instant, Mutant, mutant};

use super::Status;
use super::caller::CallFailure;
use crate::clone::Pushback;

/// Most attempts of a call.
pub const ATTEMPTS_MAX: u32 = 3;
/// Pause before a call is made again that a server has answered with UNAVAILABLE; it doubles each time.
pub const PAUSE: Duration = Duration::from_millis(20);
/// Longest pause that a server may ask for; a call with a longer one is not made again.
pub const PUSHBACK_MAX: Duration = Duration::from_secs(60);

/// Attempts of one call.
#[derive(Debug)]
pub struct CallAttempts {
    began: Instant,
    deadline: Option<Instant>,
    /// Budget for further attempts; `None` if the call is not made again.
    budget: Option<Arc<RetryBudget>>,
    made: u32,
    /// Servers that have failed in this call.
    avoided: Vec<SocketAddr>,
    /// Reply of a unary call. It is held until the attempt is complete, because it may be followed by another one.
    held: Option<Bytes>,
    unary: bool,
}

/// Error of a unary call whose servers sent several replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the servers sent several replies to a unary call")]
pub struct SeveralReplies;

impl CallAttempts {
    /// Attempts of a call whose first one is made now. A call that is not `repeatable` has no other one.
    #[must_use]
    pub fn new(
        now: Instant,
        deadline: Option<Duration>,
        unary: bool,
        repeatable: bool,
        budget: &Arc<RetryBudget>,
    ) -> Self {
        let budget = (repeatable || mutant::on(Mutant::DelegateAnyRepeated)).then(|| Arc::clone(budget));
        budget.iter().for_each(|budget| budget.add_call());
        let deadline = deadline.map(|time| now + time);
        Self { began: now, deadline, budget, made: 1, avoided: Vec::new(), held: None, unary }
    }

    /// Takes a reply of the current attempt; returns it if the application gets it now.
    ///
    /// # Errors
    /// [`SeveralReplies`].
    pub fn take_reply(&mut self, reply: Bytes) -> Result<Option<Bytes>, SeveralReplies> {
        if !self.unary {
            if !mutant::on(Mutant::DelegateRepliesMixed) {
                self.stop();
            }
            return Ok(Some(reply));
        }
        if self.held.replace(reply).is_some() { Err(SeveralReplies) } else { Ok(None) }
    }

    /// Takes the reply of a unary call whose attempt is complete.
    pub fn take_held(&mut self) -> Option<Bytes> {
        self.held.take()
    }

    /// Pause before the next attempt after this failure of the current one; `None` if there is none. `pushback` reads
    /// the server's wish from a status.
    pub fn next(
        &mut self,
        now: Instant,
        failure: &CallFailure,
        pushback: impl FnOnce(&Status) -> Option<Pushback>,
    ) -> Option<Duration> {
        let pause = match failure {
            CallFailure::Unconfirmed { server, .. } | CallFailure::Lost { server, .. } => {
                self.avoided.extend(*server);
                Duration::ZERO
            }
            CallFailure::Unreachable(server) | CallFailure::DelegatedNowhere(server) => {
                self.avoided.push(*server);
                Duration::ZERO
            }
            CallFailure::Server(status) if status.code == Status::UNAVAILABLE => {
                let usual = PAUSE * (1 << (self.made - 1).min(ATTEMPTS_MAX));
                match pushback(status).filter(|_| !mutant::on(Mutant::DelegatePushbackIgnored)) {
                    None => usual,
                    Some(Pushback::After(pause)) if pause <= PUSHBACK_MAX => pause,
                    Some(Pushback::After(_) | Pushback::Never) => return None,
                }
            }
            CallFailure::Server(_) | CallFailure::Deadline | CallFailure::TooLarge(_) => return None,
        };
        let budget = self.budget.as_ref()?;
        let in_time = self.deadline.is_none_or(|deadline| now + pause < deadline);
        let is_left = self.made < ATTEMPTS_MAX || mutant::on(Mutant::DelegateAttemptsUnlimited);
        if !(is_left && in_time && budget.spend()) {
            return None;
        }
        self.made += 1;
        // The reply of an attempt that failed may differ from the next one's.
        if !mutant::on(Mutant::DelegateReplyKept) {
            self.held = None;
        }
        Some(pause)
    }

    /// Makes the current attempt the last one.
    pub fn stop(&mut self) {
        self.budget = None;
    }

    /// Whether there may be another attempt.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        self.budget.is_some()
    }

    /// Whether the call has exactly one reply.
    #[must_use]
    pub fn is_unary(&self) -> bool {
        self.unary
    }

    /// Servers that have failed in this call.
    #[must_use]
    pub fn avoided(&self) -> &[SocketAddr] {
        &self.avoided
    }

    /// Time since the first attempt.
    #[must_use]
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.since(self.began)
    }

    /// Time left until the deadline, if there is one.
    #[must_use]
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(now))
    }
}

/// Budget of further attempts: one for every five calls, and many at once, so that the calls in progress at a server
/// that dies are made again, but an outage of all servers does not triple the load.
#[derive(Debug)]
pub struct RetryBudget {
    credit: AtomicU32,
    credit_max: u32,
}

impl RetryBudget {
    /// Credit of one call; a further attempt costs five.
    const CALL: u32 = 1;
    const ATTEMPT: u32 = 5;
    /// Usual number of attempts at once.
    const BURST: u32 = 1_000;

    /// Creates a budget with this number of attempts at once.
    #[must_use]
    pub fn new(burst: u32) -> Self {
        let credit_max = burst.saturating_mul(Self::ATTEMPT);
        Self { credit: AtomicU32::new(credit_max), credit_max }
    }

    fn add_call(&self) {
        let add = |credit: u32| (credit < self.credit_max).then_some(credit + Self::CALL);
        // Full otherwise.
        let _ = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn spend(&self) -> bool {
        let spend = |credit: u32| credit.checked_sub(Self::ATTEMPT);
        let paid = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok();
        paid || mutant::on(Mutant::DelegateBudgetIgnored)
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(Self::BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(5_000_000_000);

    fn attempts(deadline: Option<Duration>, unary: bool) -> CallAttempts {
        CallAttempts::new(NOW, deadline, unary, true, &Arc::default())
    }

    fn unavailable() -> CallFailure {
        CallFailure::Server(Status::new(Status::UNAVAILABLE, "busy"))
    }

    fn silent(port: u16) -> CallFailure {
        CallFailure::Unconfirmed { server: Some(SocketAddr::from(([10, 0, 0, 1], port))), millis: 1 }
    }

    #[test]
    fn pushback_of_a_server_is_heeded() {
        let asked = |pushback| attempts(None, true).next(NOW, &unavailable(), |_| pushback);
        assert_eq!(asked(None), Some(PAUSE));
        let ms = |time| Some(Pushback::After(Duration::from_millis(time)));
        assert_eq!(asked(ms(250)), Some(Duration::from_millis(250)));
        assert_eq!([Some(Pushback::Never), ms(60_001)].map(asked), [None; 2]);
    }

    #[test]
    fn idempotent_call_has_three_attempts_until_its_first_reply() {
        let none = |_: &Status| None;
        let mut call = attempts(None, true);
        let pauses = [unavailable(), unavailable(), unavailable()].map(|failure| call.next(NOW, &failure, none));
        assert_eq!(pauses, [Some(PAUSE), Some(PAUSE * 2), None]);
        let mut call = attempts(None, true);
        assert_eq!([silent(1), silent(2)].map(|failure| call.next(NOW, &failure, none)), [Some(Duration::ZERO); 2]);
        assert_eq!(call.avoided().iter().map(SocketAddr::port).collect::<Vec<_>>(), [1, 2]);
        let mut call = attempts(None, false);
        assert_eq!(call.take_reply(Bytes::from_static(b"first")), Ok(Some(Bytes::from_static(b"first"))));
        assert_eq!(call.next(NOW, &silent(1), none), None, "the application has a reply");
        let mut call = CallAttempts::new(NOW, None, true, false, &Arc::default());
        assert_eq!(call.next(NOW, &silent(1), none), None, "it is not idempotent");
        for failure in [CallFailure::Deadline, CallFailure::Server(Status::new(Status::INTERNAL, "bug"))] {
            assert_eq!(attempts(None, true).next(NOW, &failure, none), None, "{failure:?}");
        }
        let mut call = attempts(Some(PAUSE * 2), true);
        assert_eq!(call.next(NOW + PAUSE, &unavailable(), none), None, "the pause ends at the deadline");
    }

    #[test]
    fn unary_call_has_the_reply_of_its_last_attempt() {
        let mut call = attempts(None, true);
        assert_eq!(call.take_reply(Bytes::from_static(b"old")), Ok(None));
        assert!(call.next(NOW, &silent(1), |_| None).is_some());
        assert_eq!(call.take_reply(Bytes::from_static(b"new")), Ok(None));
        assert_eq!(call.take_reply(Bytes::from_static(b"second")), Err(SeveralReplies));
        let mut call = attempts(None, true);
        assert_eq!(call.take_reply(Bytes::from_static(b"new")), Ok(None));
        assert_eq!(call.take_held(), Some(Bytes::from_static(b"new")));
    }

    #[test]
    fn retry_budget_allows_a_burst_and_a_fifth_of_the_calls() {
        let budget = RetryBudget::default();
        let spent = || (0..).take_while(|_| budget.spend()).count();
        assert_eq!(spent(), 1_000);
        (0..100).for_each(|_| budget.add_call());
        assert_eq!(spent(), 20);
        (0..100_000).for_each(|_| budget.add_call());
        assert_eq!(spent(), 1_000);
    }
}
