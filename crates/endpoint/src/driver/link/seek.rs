//! When an endpoint asks its element for shared memory: no I/O, and time is handed in.
//!
//! ```text
//! aim ─► ask ─ hello ─► offer ─► join ─► have
//!         ▲                        │      │
//!         └──── wait, longer each time ◀──┴─ refused, lost
//! ```
//!
//! Nobody waits for it: frames go by UDP until there is another road, and again when it ends.

use std::net::SocketAddr;
use std::time::Duration;

use pathcall_wire::Instant;
use pathcall_wire::link::{LinkKind, LinkRepr};

/// First wait before it asks again.
pub(super) const WAIT_FIRST: Duration = Duration::from_millis(20);
/// Longest wait: an element that comes back, or has room again, is found within this.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(10);
/// Memory that lasted so long was worth it: the next is asked for at once.
const LASTING: Duration = Duration::from_secs(10);

/// How far an endpoint has got with its element.
#[derive(Debug)]
pub(super) struct Seek {
    target: Option<SocketAddr>,
    /// The latest that it was told.
    now: Instant,
    wait: Duration,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Asks from then on.
    Asking(Instant),
    /// Has asked by this number; asks again then.
    Asked(u64, Instant),
    /// Has come by the door; gives up then.
    Joining(Instant),
    /// Has had shared memory since.
    Having(Instant),
}

impl Seek {
    pub(super) fn new() -> Self {
        Self { target: None, now: Instant::default(), wait: WAIT_FIRST, phase: Phase::Asking(Instant::default()) }
    }

    /// What it seeks memory with.
    pub(super) fn target(&self) -> Option<SocketAddr> {
        self.target
    }

    /// Seeks memory with this one from now on, with no other.
    pub(super) fn aim(&mut self, target: Option<SocketAddr>) {
        *self = Self { target, now: self.now, wait: WAIT_FIRST, phase: Phase::Asking(self.now) };
    }

    /// Time has passed: the hello to send now, if one is due; `nonce` is drawn for it.
    pub(super) fn poll(&mut self, now: Instant, nonce: impl FnOnce() -> Option<u64>) -> Option<LinkRepr> {
        self.now = self.now.max(now);
        self.target?;
        let (Phase::Asking(due) | Phase::Asked(_, due) | Phase::Joining(due)) = self.phase else { return None };
        if now < due {
            return None;
        }
        let nonce = nonce();
        self.phase = Phase::Asked(nonce.unwrap_or_default(), now + self.wait);
        self.wait = (self.wait * 2).min(WAIT_MAX);
        // Without randomness, no hello: it is tried again.
        nonce.map(LinkRepr::hello)
    }

    /// Whether to come by the door of this offer: it answers the last hello, and comes from where that went.
    pub(super) fn takes_up(&self, from: SocketAddr, offer: &LinkRepr) -> bool {
        offer.is(LinkKind::Offer)
            && Some(from) == self.target
            && matches!(self.phase, Phase::Asked(nonce, _) if nonce == offer.nonce)
    }

    /// It has come by the door.
    pub(super) fn joins(&mut self) {
        self.phase = Phase::Joining(self.now + self.wait);
    }

    /// It has the memory.
    pub(super) fn has(&mut self) {
        self.phase = Phase::Having(self.now);
    }

    /// The door was shut, or the memory is gone.
    pub(super) fn lost(&mut self) {
        if matches!(self.phase, Phase::Having(since) if self.now.since(since) >= LASTING) {
            self.wait = WAIT_FIRST;
        }
        self.phase = Phase::Asking(self.now + self.wait);
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

    /// Times in milliseconds at which it says hello, until `until`.
    fn hellos(seek: &mut Seek, from: u64, until: u64) -> Vec<u64> {
        (from..until).filter(|&ms| seek.poll(at(ms), || Some(ms)).is_some()).collect()
    }

    #[test]
    fn it_asks_at_once_and_then_less_and_less_often() {
        let mut seek = Seek::new();
        assert!(hellos(&mut seek, 0, 100).is_empty(), "nobody to ask");
        seek.aim(Some(element(1)));
        let asked = hellos(&mut seek, 100, 60_000);
        assert_eq!(asked[..5], [100, 120, 160, 240, 400]);
        let last = asked.len() - 1;
        assert_eq!(asked[last] - asked[last - 1], WAIT_MAX.as_millis() as u64);
    }

    #[test]
    fn only_the_answer_to_the_last_hello_is_taken_up() {
        let mut seek = Seek::new();
        seek.aim(Some(element(1)));
        let first = seek.poll(at(0), || Some(5)).unwrap();
        let second = seek.poll(at(20), || Some(6)).unwrap();
        assert_eq!((first.nonce, second.nonce), (5, 6));
        let offer = |nonce| LinkRepr::offer(nonce, element(9), 0, 0);
        assert!(!seek.takes_up(element(1), &offer(5)), "an older one");
        assert!(!seek.takes_up(element(2), &offer(6)), "somebody else's");
        assert!(!seek.takes_up(element(1), &second), "a hello");
        assert!(seek.takes_up(element(1), &offer(6)));
        seek.joins();
        assert!(!seek.takes_up(element(1), &offer(6)), "once");
        seek.has();
        assert!(hellos(&mut seek, 21, 5000).is_empty());
    }

    #[test]
    fn a_door_that_stays_shut_is_left_alone() {
        let mut seek = Seek::new();
        seek.aim(Some(element(1)));
        seek.poll(at(0), || Some(1)).unwrap();
        seek.joins();
        assert_eq!(hellos(&mut seek, 1, 100), [40, 80]);
    }

    #[test]
    fn what_is_lost_soon_is_asked_for_later_and_later_and_what_lasted_at_once() {
        let mut seek = Seek::new();
        seek.aim(Some(element(1)));
        let (mut now, mut waits) = (0, Vec::new());
        for lasted in [0, 0, 0, 0, 11_000, 0] {
            let asked = (now..).find(|&ms| seek.poll(at(ms), || Some(ms)).is_some()).unwrap();
            waits.push(asked - now);
            seek.joins();
            seek.has();
            now = asked + lasted;
            seek.poll(at(now), || None);
            seek.lost();
        }
        assert_eq!(waits, [0, 40, 160, 640, 2560, 20]);
    }

    #[test]
    fn another_element_is_another_beginning() {
        let mut seek = Seek::new();
        seek.aim(Some(element(1)));
        seek.poll(at(0), || Some(1)).unwrap();
        seek.has();
        seek.aim(Some(element(2)));
        assert!(seek.poll(at(1), || Some(2)).is_some());
        assert!(!seek.takes_up(element(1), &LinkRepr::offer(2, element(9), 0, 0)));
        seek.aim(None);
        assert!(seek.poll(at(100), || Some(3)).is_none());
    }

    proptest! {
        /// Whatever is lost, late, repeated or refused: hellos keep their distance, only the answer to the
        /// last is taken up, once, and in the end there is memory.
        #[test]
        fn it_gets_there_in_the_end_and_bothers_nobody(steps in prop::collection::vec((0_u64..3000, 0_u8..6), 0..200)) {
            let mut seek = Seek::new();
            seek.aim(Some(element(1)));
            let (mut now, mut said, mut joining, mut having) = (0, Vec::<(u64, u64)>::new(), false, false);
            for (passed, what) in steps {
                now += passed;
                if let Some(hello) = seek.poll(at(now), || Some(said.len() as u64 + 1)) {
                    prop_assert!(!having && hello.nonce == said.len() as u64 + 1);
                    let distance = said.last().map_or(u64::MAX, |(_, at)| now - at);
                    prop_assert!(distance >= WAIT_FIRST.as_millis() as u64, "{distance} ms after the last");
                    said.push((hello.nonce, now));
                    joining = false;
                }
                let last = said.last().map_or(0, |(nonce, _)| *nonce);
                let offer = |nonce| LinkRepr::offer(nonce, element(9), 0, 0);
                match what {
                    0 | 1 => {
                        let taken = seek.takes_up(element(1), &offer(last));
                        prop_assert!(!taken || !joining && !having);
                        if taken {
                            seek.joins();
                            joining = true;
                        }
                    }
                    2 => prop_assert!(!seek.takes_up(element(1), &offer(last.wrapping_sub(1)))),
                    3 if joining => {
                        seek.has();
                        (joining, having) = (false, true);
                    }
                    4 if joining || having => {
                        seek.lost();
                        (joining, having) = (false, false);
                    }
                    _ => {}
                }
            }
            // From here on nothing is lost.
            let until = now + 2 * WAIT_MAX.as_millis() as u64;
            while !having && now <= until {
                now += 1;
                if let Some(hello) = seek.poll(at(now), || Some(u64::MAX)) {
                    having = seek.takes_up(element(1), &LinkRepr::offer(hello.nonce, element(9), 0, 0));
                }
            }
            prop_assert!(having);
        }
    }
}
