//! A call that its stub waits for: made again where it is to be done exactly once, its trace told after its end.
//!
//! ```text
//! poll_next ─▶ items ─▶ failed, and to be done exactly once ─ pause ─▶ the same again
//!                    └▶ the end: a status ─▶ a task waits for the spans
//! ```

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, Outcome};
use pathcall_endpoint::driver::node::{Call, Reply};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tonic::{Code, Status};

use super::trace::Report;

/// A call that is to be done exactly once is made again for so long, if it has no deadline.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What the next poll gives.
#[derive(Debug)]
pub(super) enum Next {
    Item(Bytes),
    /// The end. `silence`: no server said that.
    Ended {
        status: Status,
        silence: Option<Silence>,
    },
}

/// What of a call nobody has heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Whether its requests are worked on: the server that was called may be another one now.
    Requests,
    /// Replies that servers have sent: they may not reach this host.
    Replies,
}

/// A call in progress. Dropped before its end it is aborted.
pub(super) struct Ongoing {
    /// Until it has ended and waits for its trace elsewhere.
    call: Option<Call>,
    again: Again,
    report: Option<Report>,
    runtime: Handle,
}

/// When a call that failed is made again.
#[derive(Debug)]
struct Again {
    once: bool,
    /// It is made again until then.
    until: Option<Instant>,
    /// It ends then, if its caller said so.
    deadline: Option<Instant>,
    pause: Duration,
    pause_max: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Each time it is made it has its deadline anew; this one holds for all.
    end: Option<Pin<Box<Sleep>>>,
}

impl Ongoing {
    /// To be made in a runtime, as calls are.
    pub(super) fn new(call: Call, options: &CallOptions, report: Option<Report>) -> Self {
        let after = |time| Instant::now().checked_add(time);
        let (until, deadline) = (after(options.deadline.unwrap_or(PATIENCE)), options.deadline.and_then(after));
        let (pause, pause_max) = (options.ping_period, options.timeout);
        let again = Again { once: options.once, until, deadline, pause, pause_max, sleep: None, end: None };
        Self { call: Some(call), again, report, runtime: Handle::current() }
    }

    /// The call, unless it has ended.
    pub(super) fn call(&self) -> Option<&Call> {
        self.call.as_ref()
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            let Some(call) = &mut self.call else {
                return Poll::Ready(Next::Ended { status: Status::cancelled("the call has ended"), silence: None });
            };
            if let Some(end) = &mut self.again.end
                && end.as_mut().poll(cx).is_ready()
            {
                call.abort();
                return Poll::Ready(self.end(&Outcome::Failed(CallFailure::Deadline)));
            }
            if let Some(pause) = &mut self.again.sleep {
                ready!(pause.as_mut().poll(cx));
                self.again.sleep = None;
                self.again.end = self.again.deadline.map(|deadline| Box::pin(sleep_until(deadline)));
                // Nothing else ends a call that has failed.
                if call.retry().is_err() {
                    return Poll::Ready(self.end(&Outcome::Aborted { confirmed: false }));
                }
            }
            match ready!(call.poll_receive(cx)) {
                Reply::Item(item) => return Poll::Ready(Next::Item(item)),
                Reply::Ended(outcome) if self.again.is_due(&outcome) => {}
                Reply::Ended(outcome) => return Poll::Ready(self.end(&outcome)),
            }
        }
    }

    fn end(&mut self, outcome: &Outcome) -> Next {
        let status = status(outcome);
        self.trace(&status);
        let silence = match outcome {
            Outcome::Failed(CallFailure::Lost { .. }) => Some(Silence::Replies),
            Outcome::Failed(CallFailure::Server(_)) | Outcome::Complete | Outcome::Aborted { .. } => None,
            Outcome::Failed(_) => Some(Silence::Requests),
        };
        Next::Ended { status, silence }
    }

    /// Has the trace told when it is there.
    fn trace(&mut self, status: &Status) {
        let (Some(mut call), Some(report)) = (self.call.take(), self.report.take()) else { return };
        let ended = report.ended(status);
        self.runtime.spawn(async move {
            if let Some(tree) = call.trace().await {
                ended.tell(tree);
            }
        });
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        if let Some(call) = self.call.as_ref().filter(|_| self.report.is_some()) {
            call.abort();
            self.trace(&Status::cancelled("the call was dropped"));
        }
    }
}

impl Again {
    /// Whether a call that ended like this is made again; after a pause.
    fn is_due(&mut self, outcome: &Outcome) -> bool {
        let Outcome::Failed(failure) = outcome else { return false };
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

/// The status that a call ends with.
fn status(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Complete => Status::new(Code::Ok, ""),
        Outcome::Failed(failure) => {
            let status = failure.status();
            Status::new(Code::from_i32(status.code.into()), status.message)
        }
        Outcome::Aborted { .. } => Status::cancelled("the call was aborted"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use pathcall_endpoint::driver::node::{Node, NodeConfig};
    use tokio::sync::oneshot;

    use super::*;

    /// What comes of a call that fails, and whose caller's patience ends while it is made again.
    async fn takes_long(deadline: Option<Duration>) -> Next {
        let (server, requests) = Node::start(&NodeConfig::default()).await.expect("starts");
        let (caller, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
        let ((begins, begun), (ends, end)) = (oneshot::channel(), oneshot::channel());
        let handler = tokio::spawn(async move {
            requests.receive().await.fail(&delegate::Status::new(delegate::Status::UNAVAILABLE, "not yet"));
            let request = requests.receive().await;
            let _ = begins.send(());
            end.await.expect("the test goes on");
            request.reply(Bytes::from_static(b"late")).await.expect("wanted");
            request.seal().expect("wanted").release();
        });
        let ping_period = Duration::from_millis(20);
        let options = CallOptions::default().once(true).ping_period(ping_period).deadline(deadline);
        let call = caller.call(options, [(server.address(), Bytes::new())]).expect("room");
        let mut ongoing = Ongoing::new(call, &options, None);
        tokio::select! {
            next = poll_fn(|cx| ongoing.poll_next(cx)) => return next,
            begun = begun => begun.expect("it is made again"),
        }
        ongoing.again.until = Some(Instant::now());
        // What has a deadline is not answered before it.
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
    async fn pauses_between_attempts_double_up_to_the_time_out() {
        let ms = Duration::from_millis;
        let (pause, pause_max) = (ms(20), ms(100));
        let until = Instant::now().checked_add(ms(500));
        let mut again = Again { once: true, until, deadline: None, pause, pause_max, sleep: None, end: None };
        let lost = Outcome::Failed(CallFailure::Lost { millis: 1 });
        let mut pauses = Vec::new();
        while again.is_due(&lost) {
            let began = Instant::now();
            again.sleep.take().expect("it pauses").await;
            pauses.push(began.elapsed());
        }
        // The next one would end when nobody is patient any more.
        assert_eq!(pauses, [20, 40, 80, 100, 100, 100].map(ms));
        again.until = None;
        for (outcome, due) in [
            (Outcome::Failed(CallFailure::Unconfirmed { millis: 1 }), true),
            (Outcome::Failed(CallFailure::Server(delegate::Status::new(delegate::Status::UNAVAILABLE, ""))), true),
            (Outcome::Failed(CallFailure::Server(delegate::Status::new(delegate::Status::INTERNAL, ""))), false),
            (Outcome::Failed(CallFailure::Deadline), false),
            (Outcome::Failed(CallFailure::TooLarge(1)), false),
            (Outcome::Complete, false),
        ] {
            assert_eq!(again.is_due(&outcome), due, "{outcome:?}");
        }
        assert!(!Again { once: false, ..again }.is_due(&lost), "it may take effect twice");
    }

    #[tokio::test]
    async fn patience_is_no_deadline() {
        let deadline = Some(Duration::from_millis(300));
        let (unlimited, limited) = tokio::join!(takes_long(None), takes_long(deadline));
        assert!(matches!(&unlimited, Next::Item(item) if item == "late"), "{unlimited:?}");
        let late = matches!(&limited, Next::Ended { status, .. } if status.code() == Code::DeadlineExceeded);
        assert!(late, "{limited:?}");
    }
}
