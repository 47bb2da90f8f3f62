//! The turns of a node's task: when there are frames to take, when time has passed, and when others have made it
//! necessary to look again.
//!
//! ```text
//! frames came ────────────▶ ┌───────┐
//! its alarm has gone off ─▶ │ Turns │ ─▶ the task: takes frames, does what is due, and arms anew
//! Wakers::ring ───────────▶ └───────┘
//! ```
//!
//! An alarm that is set is left as it is when there is more time: it goes off once for nothing, and is set anew then.
//! Deadlines are put off with almost every message, and so nobody has to be woken to note that.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant as Clock};

use pathcall_wire::Instant;
use tokio::time::{Sleep, sleep_until};

use super::link::Readiness;

/// What others know of the task, behind the node's lock.
#[derive(Debug, Default)]
pub struct Wakers {
    /// When it wakes by itself.
    armed: Option<Instant>,
    /// Who wakes it before; it waits.
    waiting: Option<Waker>,
}

impl Wakers {
    /// What was done needs the task by then, or, `blocked`, when the socket can be written to. Who has to be woken,
    /// once the lock is given back: nobody, if the task looks early enough by itself.
    #[must_use = "it sleeps too long otherwise"]
    pub fn ring(&mut self, by: Option<Instant>, blocked: bool) -> Option<Waker> {
        let early = by.is_some_and(|by| self.armed.is_none_or(|armed| by < armed));
        if early || blocked { self.waiting.take() } else { None }
    }
}

/// How the task waits.
#[derive(Debug)]
pub struct Turns {
    origin: Clock,
    sleep: Pin<Box<Sleep>>,
    /// When the sleep ends, if an alarm is set.
    set: Option<Instant>,
}

impl Turns {
    /// A task's, whose node counts time from `origin` on.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    #[must_use]
    pub fn new(origin: Clock) -> Self {
        Self { origin, sleep: Box::pin(sleep_until(origin.into())), set: None }
    }

    /// Before [`poll`](Self::poll), under the node's lock: there is something to do by then.
    pub fn arm(&mut self, wakers: &mut Wakers, by: Option<Instant>, task: &Waker) {
        if let Some(by) = by.filter(|by| self.set.is_none_or(|set| *by < set)) {
            self.set = Some(by);
            self.sleep.as_mut().reset((self.origin + Duration::from_nanos(by.0)).into());
        }
        wakers.armed = self.set;
        if wakers.waiting.as_ref().is_none_or(|waiting| !waiting.will_wake(task)) {
            wakers.waiting = Some(task.clone());
        }
    }

    /// Waits for the next turn: until frames may have come or the time is up. A link's `readiness`, and whether frames
    /// wait for its send buffer, if frames come by one.
    ///
    /// # Errors
    /// When the runtime that owns the socket is shut down.
    pub fn poll(&mut self, cx: &mut Context<'_>, link: Option<(&Readiness, bool)>) -> Poll<io::Result<()>> {
        if let Some((readiness, blocked)) = link
            && let Poll::Ready(ready) = readiness.poll_ready(cx, blocked)
        {
            return Poll::Ready(ready);
        }
        if self.set.is_some() && self.sleep.as_mut().poll(cx).is_ready() {
            self.set = None;
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn only_who_has_less_time_wakes_the_task_and_it_wakes_by_itself() {
        let ms = |ms: u64| Some(Instant(ms * 1_000_000));
        let (mut wakers, origin) = (Wakers::default(), Clock::now());
        let (mut turns, count) = (Turns::new(origin), Arc::<Count>::default());
        let waker = Waker::from(Arc::clone(&count));
        turns.arm(&mut wakers, ms(600_000), &waker);
        assert!(turns.poll(&mut Context::from_waker(&waker), None).is_pending());
        // More time than it has anyway: its alarm stays.
        assert!(wakers.ring(ms(700_000), false).is_none());
        wakers.ring(ms(10), false).expect("it sleeps too long").wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(wakers.ring(ms(5), false).is_none(), "it is awake");

        turns.arm(&mut wakers, ms(10), &waker);
        turns.arm(&mut wakers, ms(800_000), &waker);
        assert!(wakers.ring(None, true).is_some(), "frames wait");
        poll_fn(|cx| turns.poll(cx, None)).await.expect("no link");
        assert!(origin.elapsed() >= Duration::from_millis(10), "{:?}", origin.elapsed());
        assert!(turns.poll(&mut Context::from_waker(&waker), None).is_pending(), "nothing is set");
    }
}
