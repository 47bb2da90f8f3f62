//! Task of a shard: waits for messages and deadlines, and handles them.

use std::future::poll_fn;
use std::sync::Weak;
use std::task::Poll;
use std::time::Instant as Clock;

use pathcall_endpoint::messages::Event;
use tokio::sync::mpsc;

use super::shards::NodeShards;
use crate::link::Readiness;
use crate::task_waker::TaskWaker;

/// Source of a shard's messages.
pub(super) enum Source {
    Link(Readiness),
    Streams(mpsc::UnboundedReceiver<Event>),
}

/// Receives messages and advances time for a shard, as long as a handle to its node exists.
pub(super) async fn run(node: Weak<NodeShards>, index: usize, origin: Clock, mut from: Source) {
    let (mut task_waker, mut events) = (TaskWaker::new(origin), Vec::new());
    let shards = node.upgrade().map_or(0, |node| node.all().len());
    let mut handed_over = (0..shards).map(|_| Vec::new()).collect();
    poll_fn(|cx| {
        loop {
            let Some(node) = node.upgrade() else { return Poll::Ready(()) };
            let shard = &node.all()[index];
            let blocked = shard.arm(&mut task_waker, cx.waker());
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
                Poll::Pending if events.is_empty() => return Poll::Pending,
                _ => {
                    node.note_thread(index);
                    shard.run_once(&mut events, &mut handed_over);
                    node.hand_over(&mut handed_over);
                }
            }
        }
    })
    .await;
}
