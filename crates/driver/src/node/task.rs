//! Task of a node: waits for messages and deadlines, and handles them.

use std::future::poll_fn;
use std::sync::Weak;
use std::task::Poll;
use std::time::{Duration, Instant as Clock};

use pathcall_endpoint::messages::Event;
use tokio::sync::mpsc;

use super::state::NodeShared;
use crate::link::{PollMode, Readiness};
use crate::task_waker::TaskWaker;

/// Time after which a busy poll yields its processor between two polls.
const SPIN_TIME: Duration = Duration::from_micros(20);

/// Source of a node's messages.
pub(super) enum Source {
    Link(Readiness),
    Streams(mpsc::UnboundedReceiver<Event>),
}

/// Receives messages and advances time for a node, as long as a handle to it exists.
///
/// For `busy_poll` after a message, the task polls the link before each wait; other tasks of its thread run in between.
pub(super) async fn run(node: Weak<NodeShared>, origin: Clock, mut from: Source, busy_poll: Duration) {
    let (mut task_waker, mut events) = (TaskWaker::new(origin), Vec::new());
    let (busy_poll, mut last_message) = (Some(busy_poll).filter(|time| !time.is_zero()), Clock::now());
    poll_fn(|cx| {
        loop {
            let Some(node) = node.upgrade() else { return Poll::Ready(()) };
            let blocked = node.arm(&mut task_waker, cx.waker());
            let link = match &mut from {
                Source::Link(readiness) => Some((&*readiness, blocked)),
                Source::Streams(incoming) => {
                    while let Poll::Ready(Some(event)) = incoming.poll_recv(cx) {
                        events.push(event);
                    }
                    None
                }
            };
            match task_waker.poll(cx, link) {
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending if events.is_empty() => {
                    let idle = busy_poll.map(|_| last_message.elapsed());
                    let polls = idle.zip(busy_poll).is_some_and(|(idle, time)| idle < time);
                    if !polls {
                        return Poll::Pending;
                    }
                    if node.run_once(&mut events, PollMode::Always) {
                        last_message = Clock::now();
                    } else if idle > Some(SPIN_TIME) {
                        // The other side may be waiting for this processor.
                        std::thread::yield_now();
                    }
                    // Other tasks run before the next poll.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                _ => {
                    if node.run_once(&mut events, PollMode::IfReady) && busy_poll.is_some() {
                        last_message = Clock::now();
                    }
                }
            }
        }
    })
    .await;
}
