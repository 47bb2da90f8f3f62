//! Delegated call in progress: its retries if it has exactly-once semantics, and its trace after its end.
//!
//! ```text
//! poll_next ─▶ replies ─▶ failed, and exactly-once ─ pause ─▶ retry
//!                     └▶ end: status ─▶ a task waits for the spans
//! ```

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use pathcall_driver::node::{NodeCall, NodeReply};
use pathcall_endpoint::delegate;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, CallOutcome};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tonic::{Code, Status};

use super::trace::TraceReport;

/// Time during which a failed exactly-once call without a deadline is retried.
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Result of one poll.
#[derive(Debug)]
pub(super) enum StreamEvent {
    Item(Bytes),
    /// End of the call. `lost` is set if no server reported the failure.
    Ended {
        status: Status,
        lost: Option<LostDirection>,
    },
}

/// Direction in which messages of a call were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LostDirection {
    /// Requests: the address may now belong to another server.
    Requests,
    /// Replies: they may not reach this host.
    Replies,
}

/// Call in progress. Dropping it before its end aborts the call.
pub(super) struct OngoingCall {
    /// `None` once the call has ended and waits for its trace in another task.
    call: Option<NodeCall>,
    again: RetryState,
    report: Option<TraceReport>,
    runtime: Handle,
}

/// Retry state of an exactly-once call.
#[derive(Debug)]
struct RetryState {
    once: bool,
    /// End of the period in which the call is retried.
    until: Option<Instant>,
    /// Deadline of the call, if the caller set one.
    deadline: Option<Instant>,
    pause: Duration,
    pause_max: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Timer of the deadline. Each attempt begins with the full timeout again; this timer covers all attempts.
    end: Option<Pin<Box<Sleep>>>,
}

impl OngoingCall {
    /// Must be called within a runtime.
    pub(super) fn new(call: NodeCall, options: &CallOptions, report: Option<TraceReport>) -> Self {
        let after = |time| Instant::now().checked_add(time);
        let (until, deadline) = (after(options.deadline.unwrap_or(RETRY_TIMEOUT)), options.deadline.and_then(after));
        let (pause, pause_max) = (options.ping_period, options.timeout);
        let again = RetryState { once: options.once, until, deadline, pause, pause_max, sleep: None, end: None };
        Self { call: Some(call), again, report, runtime: Handle::current() }
    }

    /// The call, unless it has ended.
    pub(super) fn call(&self) -> Option<&NodeCall> {
        self.call.as_ref()
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<StreamEvent> {
        loop {
            let Some(call) = &mut self.call else {
                return Poll::Ready(StreamEvent::Ended { status: Status::cancelled("the call has ended"), lost: None });
            };
            if let Some(end) = &mut self.again.end
                && end.as_mut().poll(cx).is_ready()
            {
                call.abort();
                return Poll::Ready(self.end(&CallOutcome::Failed(CallFailure::Deadline)));
            }
            if let Some(pause) = &mut self.again.sleep {
                ready!(pause.as_mut().poll(cx));
                self.again.sleep = None;
                self.again.end = self.again.deadline.map(|deadline| Box::pin(sleep_until(deadline)));
                // Only an abort ends a call that has failed.
                if call.retry().is_err() {
                    return Poll::Ready(self.end(&CallOutcome::Aborted { confirmed: false }));
                }
            }
            match ready!(call.poll_receive(cx)) {
                NodeReply::Item(item) => return Poll::Ready(StreamEvent::Item(item)),
                NodeReply::Ended(outcome) if self.again.is_due(&outcome) => {}
                NodeReply::Ended(outcome) => return Poll::Ready(self.end(&outcome)),
            }
        }
    }

    fn end(&mut self, outcome: &CallOutcome) -> StreamEvent {
        let status = status(outcome);
        self.trace(&status);
        let lost = match outcome {
            CallOutcome::Failed(CallFailure::Lost { .. }) => Some(LostDirection::Replies),
            CallOutcome::Failed(CallFailure::Server(_)) | CallOutcome::Complete | CallOutcome::Aborted { .. } => None,
            CallOutcome::Failed(_) => Some(LostDirection::Requests),
        };
        StreamEvent::Ended { status, lost }
    }

    /// Delivers the trace when it is complete.
    fn trace(&mut self, status: &Status) {
        let (Some(mut call), Some(report)) = (self.call.take(), self.report.take()) else { return };
        let ended = report.ended(status);
        self.runtime.spawn(async move {
            if let Some(tree) = call.trace().await {
                ended.deliver(tree);
            }
        });
    }
}

impl Drop for OngoingCall {
    fn drop(&mut self) {
        if let Some(call) = self.call.as_ref().filter(|_| self.report.is_some()) {
            call.abort();
            self.trace(&Status::cancelled("the call was dropped"));
        }
    }
}

impl RetryState {
    /// Whether a call with this outcome is retried; if so, starts the pause.
    fn is_due(&mut self, outcome: &CallOutcome) -> bool {
        let CallOutcome::Failed(failure) = outcome else { return false };
        let passes = match failure {
            CallFailure::Server(status) => status.code == delegate::Status::UNAVAILABLE,
            CallFailure::Unconfirmed { .. } | CallFailure::Lost { .. } | CallFailure::Unreachable(_) => true,
            CallFailure::Deadline | CallFailure::TooLarge(_) => false,
        };
        let in_time = self.until.is_none_or(|until| Instant::now() + self.pause < until);
        if !(self.once && passes && in_time) {
            return false;
        }
        self.sleep = Some(Box::pin(sleep(self.pause)));
        self.pause = (self.pause * 2).min(self.pause_max);
        true
    }
}

/// Status for the outcome of a call.
fn status(outcome: &CallOutcome) -> Status {
    match outcome {
        CallOutcome::Complete => Status::new(Code::Ok, ""),
        CallOutcome::Failed(failure) => {
            let status = failure.status();
            Status::new(Code::from_i32(status.code.into()), status.message)
        }
        CallOutcome::Aborted { .. } => Status::cancelled("the call was aborted"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use pathcall_driver::node::{Node, NodeConfig};
    use tokio::sync::oneshot;

    use super::*;

    /// First reply or end of a call that fails once and whose retry period ends during its second attempt.
    async fn call_after_retry_period(deadline: Option<Duration>) -> StreamEvent {
        let (server, requests) = Node::start(&NodeConfig::default()).await.expect("starts");
        let (caller, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
        let ((begins, begun), (ends, end)) = (oneshot::channel(), oneshot::channel());
        let handler = tokio::spawn(async move {
            requests.receive().await.fail(&delegate::Status::new(delegate::Status::UNAVAILABLE, "not yet"));
            let request = requests.receive().await;
            let _ = begins.send(());
            end.await.expect("the test goes on");
            request.reply(Bytes::from_static(b"late")).await.expect("wanted");
            request.prepare().expect("wanted").release();
        });
        let ping_period = Duration::from_millis(20);
        let options = CallOptions::default().once(true).ping_period(ping_period).deadline(deadline);
        let call = caller.call(options, [(server.address(), Bytes::new())]).expect("room");
        let mut ongoing = OngoingCall::new(call, &options, None);
        tokio::select! {
            next = poll_fn(|cx| ongoing.poll_next(cx)) => return next,
            begun = begun => begun.expect("it is made again"),
        }
        ongoing.again.until = Some(Instant::now());
        // A call with a deadline is not answered before it.
        let ends = match deadline {
            Some(_) => Some(ends),
            None => ends.send(()).map(|()| None).expect("it is worked on"),
        };
        let next = poll_fn(|cx| ongoing.poll_next(cx)).await;
        handler.abort();
        drop(ends);
        next
    }

    #[tokio::test(start_paused = true)]
    async fn pause_between_attempts_doubles_up_to_timeout() {
        let ms = Duration::from_millis;
        let (pause, pause_max) = (ms(20), ms(100));
        let until = Instant::now().checked_add(ms(500));
        let mut again = RetryState { once: true, until, deadline: None, pause, pause_max, sleep: None, end: None };
        let lost = CallOutcome::Failed(CallFailure::Lost { server: None, millis: 1 });
        let mut pauses = Vec::new();
        while again.is_due(&lost) {
            let began = Instant::now();
            again.sleep.take().expect("it pauses").await;
            pauses.push(began.elapsed());
        }
        // The next pause would end after the retry period.
        assert_eq!(pauses, [20, 40, 80, 100, 100, 100].map(ms));
        again.until = None;
        for (outcome, due) in [
            (CallOutcome::Failed(CallFailure::Unconfirmed { server: None, millis: 1 }), true),
            (CallOutcome::Failed(CallFailure::Server(delegate::Status::new(delegate::Status::UNAVAILABLE, ""))), true),
            (CallOutcome::Failed(CallFailure::Server(delegate::Status::new(delegate::Status::INTERNAL, ""))), false),
            (CallOutcome::Failed(CallFailure::Deadline), false),
            (CallOutcome::Failed(CallFailure::TooLarge(1)), false),
            (CallOutcome::Complete, false),
        ] {
            assert_eq!(again.is_due(&outcome), due, "{outcome:?}");
        }
        assert!(!RetryState { once: false, ..again }.is_due(&lost), "it may take effect twice");
    }

    #[tokio::test]
    async fn attempt_outlives_retry_timeout() {
        let deadline = Some(Duration::from_millis(300));
        let (unlimited, limited) = tokio::join!(call_after_retry_period(None), call_after_retry_period(deadline));
        assert!(matches!(&unlimited, StreamEvent::Item(item) if item == "late"), "{unlimited:?}");
        let late = matches!(&limited, StreamEvent::Ended { status, .. } if status.code() == Code::DeadlineExceeded);
        assert!(late, "{limited:?}");
    }
}
