//! Delegated call in progress: its repeats, its one reply if it is unary, and its trace after its end.
//!
//! ```text
//! poll_next ─▶ replies ─▶ failed, and exactly-once ─ pause ─▶ the same call again
//!                     ├▶ failed, idempotent, nothing delivered ─ pause ─▶ another call
//!                     └▶ end: status ─▶ a task waits for the spans
//! ```

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use pathcall_driver::node::{NodeCall, NodeReply};
use pathcall_endpoint::delegate;
use pathcall_endpoint::delegate::attempts::CallAttempts;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, CallOutcome};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tonic::{Code, Status};

use super::attempts::{CallPlan, pushback};
use super::directory::Directory;
use super::failure;
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
    attempts: CallAttempts,
    /// Plan of further attempts, as long as there may be one.
    plan: Option<CallPlan>,
    /// Directory that the call's servers are found in.
    directory: Directory,
    /// Pause before the next attempt.
    pause: Option<Pin<Box<Sleep>>>,
    /// The call was aborted during such a pause.
    aborted: bool,
    /// Whether the reply of a unary call was returned.
    answered: bool,
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
    /// Makes the first attempt of a call. Must be called within a runtime.
    ///
    /// # Errors
    /// As [`CallPlan::make`].
    pub(super) fn begin(plan: CallPlan, report: Option<TraceReport>) -> Result<Self, Status> {
        let attempts = plan.attempts();
        let call = plan.make(&attempts)?;
        let after = |time| Instant::now().checked_add(time);
        let CallOptions { once, deadline, ping_period: pause, timeout: pause_max, .. } = plan.options;
        let (until, deadline) = (after(deadline.unwrap_or(RETRY_TIMEOUT)), deadline.and_then(after));
        let again = RetryState { once, until, deadline, pause, pause_max, sleep: None, end: None };
        let (call, directory, runtime) = (Some(call), plan.directory.clone(), Handle::current());
        let plan = attempts.may_repeat().then_some(plan);
        let (pause, aborted, answered) = (None, false, false);
        Ok(Self { call, again, attempts, plan, directory, pause, aborted, answered, report, runtime })
    }

    /// The call, unless it has ended.
    pub(super) fn call(&self) -> Option<&NodeCall> {
        self.call.as_ref()
    }

    /// Ends the call: it is stopped on all servers, and not repeated.
    pub(super) fn abort(&mut self) {
        self.stop_attempts();
        self.aborted |= self.pause.take().is_some();
        self.call.iter().for_each(NodeCall::abort);
    }

    /// Adds a request to the call, which is not repeated any more if it fails.
    pub(super) fn send(&mut self, to: SocketAddr, request: Bytes) -> Result<(), Status> {
        let ended = || Status::failed_precondition("the call has ended");
        let call = self.call.as_ref().filter(|_| self.pause.is_none()).ok_or_else(ended)?;
        call.send(to, request).map_err(|error| Status::failed_precondition(error.to_string()))?;
        self.stop_attempts();
        Ok(())
    }

    fn stop_attempts(&mut self) {
        self.attempts.stop();
        self.plan = None;
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<StreamEvent> {
        loop {
            if self.aborted && self.call.is_some() {
                return Poll::Ready(self.end(&CallOutcome::Aborted { confirmed: false }));
            }
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
                if let Some(plan) = &self.plan {
                    let elapsed = self.attempts.elapsed(self.directory.now());
                    self.report.iter_mut().for_each(|report| report.repeat(elapsed));
                    match plan.make(&self.attempts) {
                        Ok(call) => self.call = Some(call),
                        Err(status) => return Poll::Ready(self.end_with(status, None)),
                    }
                }
            }
            let Some(call) = &mut self.call else { return Poll::Ready(self.after_end()) };
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
                NodeReply::Item(item) => match self.attempts.take_reply(item) {
                    Ok(Some(item)) => {
                        self.plan = None;
                        return Poll::Ready(StreamEvent::Item(item));
                    }
                    Ok(None) => {}
                    Err(error) => {
                        self.abort();
                        return Poll::Ready(self.end_with(Status::internal(error.to_string()), None));
                    }
                },
                NodeReply::Ended(outcome) if self.again.is_due(&outcome) => {}
                NodeReply::Ended(CallOutcome::Failed(failure)) if self.repeat(&failure) => {}
                NodeReply::Ended(CallOutcome::Complete) => return Poll::Ready(self.complete()),
                NodeReply::Ended(outcome) => return Poll::Ready(self.end(&outcome)),
            }
        }
    }

    /// Begins another attempt after a failure, if one is due.
    fn repeat(&mut self, failure: &CallFailure) -> bool {
        self.directory.record_call_failure(failure);
        let Some(pause) = self.attempts.next(self.directory.now(), failure, pushback) else { return false };
        tracing::debug!(%failure, "a delegated call is made again");
        self.pause = Some(Box::pin(sleep(pause)));
        true
    }

    /// End of a complete call, or its only reply before it.
    fn complete(&mut self) -> StreamEvent {
        if !self.attempts.is_unary() {
            return self.end(&CallOutcome::Complete);
        }
        let Some(item) = self.attempts.take_held() else {
            return self.end_with(Status::internal("no server replied to a unary call"), None);
        };
        self.answered = true;
        // A caller may drop the call once it has the reply.
        self.trace(&Status::new(Code::Ok, ""));
        StreamEvent::Item(item)
    }

    /// End of a call whose reply or status has been returned.
    fn after_end(&self) -> StreamEvent {
        let status = if self.answered { Status::new(Code::Ok, "") } else { Status::cancelled("the call has ended") };
        StreamEvent::Ended { status, lost: None }
    }

    fn end(&mut self, outcome: &CallOutcome) -> StreamEvent {
        let lost = match outcome {
            CallOutcome::Failed(CallFailure::Lost { .. }) => Some(LostDirection::Replies),
            CallOutcome::Failed(CallFailure::Server(_) | CallFailure::DelegatedNowhere(_)) => None,
            CallOutcome::Complete | CallOutcome::Aborted { .. } => None,
            CallOutcome::Failed(_) => Some(LostDirection::Requests),
        };
        self.end_with(status(outcome), lost)
    }

    fn end_with(&mut self, status: Status, lost: Option<LostDirection>) -> StreamEvent {
        self.trace(&status);
        self.call = None;
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
            CallFailure::Unconfirmed { .. } | CallFailure::Lost { .. } => true,
            CallFailure::Unreachable(_) | CallFailure::DelegatedNowhere(_) => true,
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
        CallOutcome::Failed(cause) => {
            let mut of_call = failure::decode(cause.status());
            of_call.set_source(Arc::new(cause.clone()));
            of_call
        }
        CallOutcome::Aborted { .. } => Status::cancelled("the call was aborted"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http::HeaderMap;
    use pathcall_driver::node::{Node, NodeConfig};
    use tokio::sync::oneshot;

    use super::super::attempts::PlannedRequest;
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
        let request = PlannedRequest {
            to: server.address().into(),
            path: "/a.B/C".to_owned(),
            metadata: HeaderMap::new(),
            message: Bytes::new(),
        };
        let plan = CallPlan {
            node: caller,
            directory: Directory::default(),
            options,
            requests: vec![request],
            method: String::new(),
            unary: false,
            idempotent: false,
            retries: Arc::default(),
        };
        let mut ongoing = OngoingCall::begin(plan, None).expect("room");
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
