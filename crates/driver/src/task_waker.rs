//! Waiting of a node's task: for frames, for deadlines, and for wake-ups by other threads.
//!
//! ```text
//! frames arrived ─────────▶ ┌───────────┐
//! the timer expired ──────▶ │ TaskWaker │ ─▶ task: receives frames, does what is due, arms again
//! WakeState::take_waker ──▶ └───────────┘
//! ```
//!
//! A timer that is set stays as it is when the deadline becomes later: it expires once too early, and is then set
//! again. Almost every message makes deadlines later, and this way no thread has to wake the task for it.
//!
//! A task that *busy-polls* keeps its runtime from sleeping for a time after each message: the runtime runs the ready
//! tasks, asks the system for events without waiting, and returns to the task. So one thread does all the work of its
//! nodes, calls and handlers, and none is woken.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant as Clock};

use pathcall_wire::Instant;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep_until};

use super::link::Readiness;

/// State of the waiting task, shared with other threads under the node's lock.
#[derive(Debug, Default)]
pub struct WakeState {
    /// Time at which the task wakes by itself.
    armed: Option<Instant>,
    /// Waker of the task, if it waits.
    waiting: Option<Waker>,
    /// Time after each message for which the task busy-polls.
    busy_poll: Duration,
    /// End of the busy poll.
    poll_until: Instant,
    poll: BusyPollState,
}

/// State of a task's busy poll.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum BusyPollState {
    /// The task waits for the system.
    #[default]
    Off,
    /// A message was sent while the task waits: it has to begin to poll.
    Due,
    /// The task polls, and sees every change by itself.
    On,
}

impl WakeState {
    /// Sets the time after each message for which the task busy-polls; zero: it does not.
    #[must_use]
    pub fn with_busy_poll(time: Duration) -> Self {
        Self { busy_poll: time, ..Self::default() }
    }

    /// Returns whether the task busy-polls after messages.
    fn has_busy_poll(&self) -> bool {
        !self.busy_poll.is_zero()
    }

    /// Records a message that was sent or received now: the task busy-polls from now on.
    pub fn note_message(&mut self, now: Instant) {
        if self.has_busy_poll() {
            self.poll_until = now + self.busy_poll;
            if self.poll == BusyPollState::Off {
                self.poll = BusyPollState::Due;
            }
        }
    }

    /// Requests a wake-up: the task is needed before `by` or, if `blocked`, when the socket becomes writable. Returns
    /// the waker to call once the lock is released, or `None` if the task wakes early enough by itself.
    #[must_use = "it sleeps too long otherwise"]
    pub fn take_waker(&mut self, by: Option<Instant>, blocked: bool) -> Option<Waker> {
        let early = by.is_some_and(|by| self.armed.is_none_or(|armed| by < armed));
        match self.poll {
            BusyPollState::On => None,
            BusyPollState::Off if !early && !blocked => None,
            BusyPollState::Off | BusyPollState::Due => self.waiting.take(),
        }
    }
}

/// Timer and readiness wait of a node's task.
#[derive(Debug)]
pub struct TaskWaker {
    origin: Clock,
    sleep: Pin<Box<Sleep>>,
    /// Time at which the sleep ends, if the timer is set.
    set: Option<Instant>,
    polls: bool,
}

impl TaskWaker {
    /// Creates the waker of a task whose node counts time from `origin`.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time enabled.
    #[must_use]
    pub fn new(origin: Clock) -> Self {
        Self { origin, sleep: Box::pin(sleep_until(origin.into())), set: None, polls: false }
    }

    /// Arms the timer for `by`. Call it under the node's lock, before [`poll`](Self::poll).
    pub fn arm(&mut self, wakers: &mut WakeState, by: Option<Instant>, task: &Waker) {
        if let Some(by) = by.filter(|by| self.set.is_none_or(|set| *by < set)) {
            self.set = Some(by);
            self.sleep.as_mut().reset((self.origin + Duration::from_nanos(by.0)).into());
        }
        wakers.armed = self.set;
        if wakers.waiting.as_ref().is_none_or(|waiting| !waiting.will_wake(task)) {
            wakers.waiting = Some(task.clone());
        }
        self.polls = wakers.has_busy_poll() && self.now() < wakers.poll_until;
        wakers.poll = if self.polls { BusyPollState::On } else { BusyPollState::Off };
    }

    /// Returns whether the task busy-polls, as of the last [`arm`](Self::arm).
    #[must_use]
    pub fn polls(&self) -> bool {
        self.polls
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Waits until frames may have arrived or the timer expires. `link` is the readiness of the node's link, if it has
    /// one, and whether frames wait for its send buffer.
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
        if self.polls {
            // Wakes the task after the runtime has run the ready tasks and asked the system for events; a plain wake-up
            // would put the task before both.
            let _ = pin!(yield_now()).poll(cx);
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
    async fn message_makes_task_poll_until_time_is_over() {
        let (mut wakers, origin) = (WakeState::with_busy_poll(Duration::from_nanos(1)), Clock::now());
        let (mut task_waker, count) = (TaskWaker::new(origin), Arc::<Count>::default());
        let waker = Waker::from(Arc::clone(&count));
        let woken = async |task_waker: &mut TaskWaker| {
            assert!(task_waker.poll(&mut Context::from_waker(&waker), None).is_pending());
            yield_now().await;
            count.0.swap(0, Ordering::Relaxed)
        };
        task_waker.arm(&mut wakers, None, &waker);
        assert_eq!(woken(&mut task_waker).await, 0, "no message yet");

        // The clock never reaches the end of this poll.
        wakers.note_message(Instant(u64::MAX - 1));
        wakers.take_waker(None, false).expect("the task does not poll").wake();
        count.0.store(0, Ordering::Relaxed);
        task_waker.arm(&mut wakers, None, &waker);
        assert_eq!(woken(&mut task_waker).await, 1);
        assert!(wakers.take_waker(Some(Instant(5)), true).is_none(), "the task sees it by itself");

        wakers.note_message(Instant(0));
        task_waker.arm(&mut wakers, None, &waker);
        assert_eq!(woken(&mut task_waker).await, 0, "the time is over");
        assert!(wakers.take_waker(Some(Instant(5)), false).is_some(), "the task sleeps too long");
    }

    #[tokio::test]
    async fn earlier_deadline_wakes_task_and_later_one_does_not() {
        let ms = |ms: u64| Some(Instant(ms * 1_000_000));
        let (mut wakers, origin) = (WakeState::default(), Clock::now());
        let (mut task_waker, count) = (TaskWaker::new(origin), Arc::<Count>::default());
        let waker = Waker::from(Arc::clone(&count));
        task_waker.arm(&mut wakers, ms(600_000), &waker);
        assert!(task_waker.poll(&mut Context::from_waker(&waker), None).is_pending());
        // A later deadline: the timer stays as it is.
        assert!(wakers.take_waker(ms(700_000), false).is_none());
        wakers.take_waker(ms(10), false).expect("the task sleeps too long").wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(wakers.take_waker(ms(5), false).is_none(), "the task is awake");

        task_waker.arm(&mut wakers, ms(10), &waker);
        task_waker.arm(&mut wakers, ms(800_000), &waker);
        assert!(wakers.take_waker(None, true).is_some(), "frames wait for the socket");
        poll_fn(|cx| task_waker.poll(cx, None)).await.expect("no link");
        assert!(origin.elapsed() >= Duration::from_millis(10), "{:?}", origin.elapsed());
        assert!(task_waker.poll(&mut Context::from_waker(&waker), None).is_pending(), "the timer is not set");
    }
}
