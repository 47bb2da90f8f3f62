//! State machine of an endpoint's request for memory shared with its element: no I/O, time is passed in.
//!
//! ```text
//! set_target ─► hello due ─► hello sent ─► offer ─► join ─► shared
//!                   ▲                                │       │
//!                   └──── wait, longer each time ◀───┴─ refused, lost
//! ```
//!
//! Frames never wait for the request: they go by UDP until memory is shared, and again when it is lost.

use std::net::SocketAddr;
use std::time::Duration;

use pathcall_wire::Instant;
use pathcall_wire::link::{LinkKind, LinkRepr};

/// First wait before another hello.
pub(super) const WAIT_FIRST: Duration = Duration::from_millis(20);
/// Longest wait: an element that restarts, or has capacity again, is found within this time.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);
/// Memory that lasted this long was useful: after its loss, the next hello has the shortest wait.
const USEFUL_TIME: Duration = Duration::from_secs(10);

/// Progress of an endpoint's request for shared memory.
#[derive(Debug)]
pub(super) struct MemoryRequest {
    target: Option<SocketAddr>,
    /// Latest time passed in.
    now: Instant,
    wait: Duration,
    phase: RequestPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestPhase {
    /// A hello is due at this time.
    HelloDue(Instant),
    /// A hello with this nonce was sent; the next one is due at this time.
    HelloSent(u64, Instant),
    /// The connection to the listener was made; it times out at this time.
    Joining(Instant),
    /// Memory has been shared since this time.
    Shared(Instant),
}

impl MemoryRequest {
    pub(super) fn new() -> Self {
        Self {
            target: None,
            now: Instant::default(),
            wait: WAIT_FIRST,
            phase: RequestPhase::HelloDue(Instant::default()),
        }
    }

    /// Element whose memory is requested.
    pub(super) fn target(&self) -> Option<SocketAddr> {
        self.target
    }

    /// Sets the element whose memory is requested from now on.
    pub(super) fn set_target(&mut self, target: Option<SocketAddr>) {
        *self = Self { target, now: self.now, wait: WAIT_FIRST, phase: RequestPhase::HelloDue(self.now) };
    }

    /// Returns the hello to send now, if one is due; `nonce` draws its number.
    pub(super) fn poll(&mut self, now: Instant, nonce: impl FnOnce() -> Option<u64>) -> Option<LinkRepr> {
        self.now = self.now.max(now);
        self.target?;
        let (RequestPhase::HelloDue(due) | RequestPhase::HelloSent(_, due) | RequestPhase::Joining(due)) = self.phase
        else {
            return None;
        };
        if now < due {
            return None;
        }
        let nonce = nonce();
        self.phase = RequestPhase::HelloSent(nonce.unwrap_or_default(), now + self.wait);
        self.wait = (self.wait * 2).min(WAIT_MAX);
        // Without randomness no hello is sent; the next poll that is due tries again.
        nonce.map(LinkRepr::hello)
    }

    /// Returns whether to accept this offer: it answers the last hello, and comes from the target.
    pub(super) fn accepts(&self, from: SocketAddr, offer: &LinkRepr) -> bool {
        offer.is(LinkKind::Offer)
            && Some(from) == self.target
            && matches!(self.phase, RequestPhase::HelloSent(nonce, _) if nonce == offer.nonce)
    }

    /// Records that the connection to the listener was made.
    pub(super) fn start_join(&mut self) {
        self.phase = RequestPhase::Joining(self.now + self.wait);
    }

    /// Records that memory is shared.
    pub(super) fn complete(&mut self) {
        self.phase = RequestPhase::Shared(self.now);
    }

    /// Records that the request was refused, or that the memory was lost.
    pub(super) fn fail(&mut self) {
        if matches!(self.phase, RequestPhase::Shared(since) if self.now.since(since) >= USEFUL_TIME) {
            self.wait = WAIT_FIRST;
        }
        self.phase = RequestPhase::HelloDue(self.now + self.wait);
        self.wait = (self.wait * 2).min(WAIT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn element(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn at(ms: u64) -> Instant {
        Instant(ms * MS)
    }

    /// Times in milliseconds, before `until`, at which a hello is sent.
    fn hellos(request: &mut MemoryRequest, from: u64, until: u64) -> Vec<u64> {
        (from..until).filter(|&ms| request.poll(at(ms), || Some(ms)).is_some()).collect()
    }

    #[test]
    fn hellos_start_at_once_and_back_off() {
        let mut request = MemoryRequest::new();
        assert!(hellos(&mut request, 0, 100).is_empty(), "there is no target");
        request.set_target(Some(element(1)));
        let sent_at = hellos(&mut request, 100, 60_000);
        assert_eq!(sent_at[..5], [100, 120, 160, 240, 400]);
        let last = sent_at.len() - 1;
        assert_eq!(sent_at[last] - sent_at[last - 1], WAIT_MAX.as_millis() as u64);
    }

    #[test]
    fn only_the_offer_for_the_last_hello_is_accepted() {
        let mut request = MemoryRequest::new();
        request.set_target(Some(element(1)));
        let first = request.poll(at(0), || Some(5)).unwrap();
        let second = request.poll(at(20), || Some(6)).unwrap();
        assert_eq!((first.nonce, second.nonce), (5, 6));
        let offer = |nonce| LinkRepr::offer(nonce, element(9), 0, 0);
        assert!(!request.accepts(element(1), &offer(5)), "answers an older hello");
        assert!(!request.accepts(element(2), &offer(6)), "comes from another element");
        assert!(!request.accepts(element(1), &second), "a hello is not an offer");
        assert!(request.accepts(element(1), &offer(6)));
        request.start_join();
        assert!(!request.accepts(element(1), &offer(6)), "an offer is accepted once");
        request.complete();
        assert!(hellos(&mut request, 21, 5000).is_empty());
    }

    #[test]
    fn refused_join_backs_off() {
        let mut request = MemoryRequest::new();
        request.set_target(Some(element(1)));
        request.poll(at(0), || Some(1)).unwrap();
        request.start_join();
        assert_eq!(hellos(&mut request, 1, 100), [40, 80]);
    }

    #[test]
    fn short_lived_memory_backs_off_and_long_lived_memory_does_not() {
        let mut request = MemoryRequest::new();
        request.set_target(Some(element(1)));
        let (mut now, mut waits) = (0, Vec::new());
        for lasted in [0, 0, 0, 0, 11_000, 0] {
            let sent_at = (now..).find(|&ms| request.poll(at(ms), || Some(ms)).is_some()).unwrap();
            waits.push(sent_at - now);
            request.start_join();
            request.complete();
            now = sent_at + lasted;
            request.poll(at(now), || None);
            request.fail();
        }
        assert_eq!(waits, [0, 40, 160, 640, 2560, 20]);
    }

    #[test]
    fn new_target_restarts_request() {
        let mut request = MemoryRequest::new();
        request.set_target(Some(element(1)));
        request.poll(at(0), || Some(1)).unwrap();
        request.complete();
        request.set_target(Some(element(2)));
        assert!(request.poll(at(1), || Some(2)).is_some());
        assert!(!request.accepts(element(1), &LinkRepr::offer(2, element(9), 0, 0)));
        request.set_target(None);
        assert!(request.poll(at(100), || Some(3)).is_none());
    }

    proptest! {
        /// Under loss, delay, repeats and refusals, hellos keep their distance, only the answer to the last hello is
        /// accepted, once, and finally memory is shared.
        #[test]
        fn request_completes_with_spaced_hellos(steps in prop::collection::vec((0_u64..3000, 0_u8..6), 0..200)) {
            let mut request = MemoryRequest::new();
            request.set_target(Some(element(1)));
            let (mut now, mut hellos_sent, mut joining, mut shared) = (0, Vec::<(u64, u64)>::new(), false, false);
            for (passed, step) in steps {
                now += passed;
                if let Some(hello) = request.poll(at(now), || Some(hellos_sent.len() as u64 + 1)) {
                    prop_assert!(!shared && hello.nonce == hellos_sent.len() as u64 + 1);
                    let distance = hellos_sent.last().map_or(u64::MAX, |(_, at)| now - at);
                    prop_assert!(distance >= WAIT_FIRST.as_millis() as u64, "{distance} ms after the last hello");
                    hellos_sent.push((hello.nonce, now));
                    joining = false;
                }
                let last = hellos_sent.last().map_or(0, |(nonce, _)| *nonce);
                let offer = |nonce| LinkRepr::offer(nonce, element(9), 0, 0);
                match step {
                    0 | 1 => {
                        let taken = request.accepts(element(1), &offer(last));
                        prop_assert!(!taken || !joining && !shared);
                        if taken {
                            request.start_join();
                            joining = true;
                        }
                    }
                    2 => prop_assert!(!request.accepts(element(1), &offer(last.wrapping_sub(1)))),
                    3 if joining => {
                        request.complete();
                        (joining, shared) = (false, true);
                    }
                    4 if joining || shared => {
                        request.fail();
                        (joining, shared) = (false, false);
                    }
                    _ => {}
                }
            }
            // From here on nothing is lost.
            let until = now + 2 * WAIT_MAX.as_millis() as u64;
            while !shared && now <= until {
                now += 1;
                if let Some(hello) = request.poll(at(now), || Some(u64::MAX)) {
                    shared = request.accepts(element(1), &LinkRepr::offer(hello.nonce, element(9), 0, 0));
                }
            }
            prop_assert!(shared);
        }
    }
}
