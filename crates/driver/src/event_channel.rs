//! Event channel from a node to one receiver, of the events of a call for example.
//!
//! Unlike tokio's channels, it allocates nothing until the first event: most channels carry one or two events.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Sending end of an event channel. Dropping it ends the channel.
pub struct EventSender<T>(Arc<EventChannel<T>>);

/// Receiving end of an event channel.
pub struct EventReceiver<T>(Arc<EventChannel<T>>);

struct EventChannel<T>(Mutex<ChannelState<T>>);

struct ChannelState<T> {
    events: VecDeque<T>,
    waiting: Option<Waker>,
    /// The sender was dropped.
    sender_dropped: bool,
    /// The receiver was dropped.
    receiver_dropped: bool,
}

/// Creates an empty event channel.
#[must_use]
pub fn event_channel<T>() -> (EventSender<T>, EventReceiver<T>) {
    let state = ChannelState { events: VecDeque::new(), waiting: None, sender_dropped: false, receiver_dropped: false };
    let channel = Arc::new(EventChannel(Mutex::new(state)));
    (EventSender(Arc::clone(&channel)), EventReceiver(channel))
}

impl<T> EventSender<T> {
    /// Sends an event; false if the receiver was dropped. The queue is bounded only by the number of replies that
    /// servers are granted.
    pub fn send(&self, event: T) -> bool {
        let mut state = self.0.lock();
        if state.receiver_dropped {
            return false;
        }
        state.events.push_back(event);
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        true
    }
}

impl<T> EventReceiver<T> {
    /// Polls for the next event; `None` when the sender was dropped.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        if let Some(next) = state.events.pop_front() {
            return Poll::Ready(Some(next));
        }
        if state.sender_dropped {
            return Poll::Ready(None);
        }
        if state.waiting.as_ref().is_none_or(|waiting| !waiting.will_wake(cx.waker())) {
            state.waiting = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Returns the next event, if one is queued.
    pub fn try_next(&mut self) -> Option<T> {
        self.0.lock().events.pop_front()
    }
}

impl<T> EventChannel<T> {
    fn lock(&self) -> MutexGuard<'_, ChannelState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for EventSender<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.sender_dropped = true;
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for EventReceiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.receiver_dropped, state.waiting) = (true, None);
        let left = std::mem::take(&mut state.events);
        drop(state);
        drop(left);
    }
}

impl<T> fmt::Debug for EventSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSender")
    }
}

impl<T> fmt::Debug for EventReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventReceiver")
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn sent_events_arrive_before_the_end() {
        let (sender, mut receiver) = event_channel();
        assert!(sender.send(1) && sender.send(2));
        assert_eq!(receiver.try_next(), Some(1));
        let waits = tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(next) = poll_fn(|cx| receiver.poll_next(cx)).await {
                all.push(next);
            }
            all
        });
        tokio::task::yield_now().await;
        assert!(sender.send(3));
        drop(sender);
        assert_eq!(waits.await.expect("listens"), [2, 3]);
    }

    #[test]
    fn send_fails_after_receiver_is_dropped() {
        let (sender, receiver) = event_channel();
        assert!(sender.send(1));
        drop(receiver);
        assert!(!sender.send(2));
    }
}
