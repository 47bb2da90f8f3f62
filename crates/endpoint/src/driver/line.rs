//! A line from a node to the one who waits for what it tells: of a call, say.
//!
//! Most lines are told a thing or two in all, so one begins without room for many, as channels have.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The end that tells. When it is dropped nothing more comes.
pub struct Teller<T>(Arc<Line<T>>);

/// The end that is told.
pub struct Listener<T>(Arc<Line<T>>);

struct Line<T>(Mutex<State<T>>);

struct State<T> {
    told: VecDeque<T>,
    waiting: Option<Waker>,
    /// The teller is gone.
    over: bool,
    /// The listener is gone.
    alone: bool,
}

/// A line that nothing was told by yet.
#[must_use]
pub fn line<T>() -> (Teller<T>, Listener<T>) {
    let state = State { told: VecDeque::new(), waiting: None, over: false, alone: false };
    let line = Arc::new(Line(Mutex::new(state)));
    (Teller(Arc::clone(&line)), Listener(line))
}

impl<T> Teller<T> {
    /// Tells this; false when nobody listens any more. Nothing bounds what waits in a line but that servers are granted
    /// so many replies and no more.
    pub fn tell(&self, what: T) -> bool {
        let mut state = self.0.lock();
        if state.alone {
            return false;
        }
        state.told.push_back(what);
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        true
    }
}

impl<T> Listener<T> {
    /// The next thing; `None` when the teller is gone.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        if let Some(next) = state.told.pop_front() {
            return Poll::Ready(Some(next));
        }
        if state.over {
            return Poll::Ready(None);
        }
        if state.waiting.as_ref().is_none_or(|waiting| !waiting.will_wake(cx.waker())) {
            state.waiting = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The next thing, if there is one now.
    pub fn try_next(&mut self) -> Option<T> {
        self.0.lock().told.pop_front()
    }
}

impl<T> Line<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.over = true;
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for Listener<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.alone, state.waiting) = (true, None);
        let left = std::mem::take(&mut state.told);
        drop(state);
        drop(left);
    }
}

impl<T> fmt::Debug for Teller<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}

impl<T> fmt::Debug for Listener<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn all_that_was_told_comes_and_then_the_end() {
        let (teller, mut listener) = line();
        assert!(teller.tell(1) && teller.tell(2));
        assert_eq!(listener.try_next(), Some(1));
        let waits = tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(next) = poll_fn(|cx| listener.poll_next(cx)).await {
                all.push(next);
            }
            all
        });
        tokio::task::yield_now().await;
        assert!(teller.tell(3));
        drop(teller);
        assert_eq!(waits.await.expect("listens"), [2, 3]);
    }

    #[test]
    fn a_teller_notices_that_nobody_listens() {
        let (teller, listener) = line();
        assert!(teller.tell(1));
        drop(listener);
        assert!(!teller.tell(2));
    }
}
