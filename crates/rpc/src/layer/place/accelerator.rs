//! Answer of the accelerator, or the failure after which the processor answers in its place.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;
use tonic::{Code, Status};

/// Failure of the accelerator. The selector leaves the path.
#[derive(Debug)]
pub(super) enum AcceleratorFailure {
    /// It answered with a status that [says so](is_device_failure).
    Status(Status),
    /// Its handler panicked.
    Panic,
    /// It did not answer in this time.
    Timeout(Duration),
}

impl AcceleratorFailure {
    /// Status of the call if no other path is left.
    pub(super) fn into_status(self) -> Status {
        match self {
            Self::Status(status) => status,
            Self::Panic => Status::internal(self.to_string()),
            Self::Timeout(_) => Status::unavailable(self.to_string()),
        }
    }
}

impl fmt::Display for AcceleratorFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "the accelerator answered {}", name(status.code())),
            Self::Panic => f.write_str("the accelerator's handler panicked"),
            Self::Timeout(limit) => write!(f, "the accelerator did not answer in {} ms", limit.as_millis()),
        }
    }
}

/// Whether the status says that the device, not the request, is at fault.
pub(super) fn is_device_failure(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::ResourceExhausted
            | Code::Internal
            | Code::Unknown
            | Code::DataLoss
            | Code::Unimplemented
    )
}

fn name(code: Code) -> &'static str {
    match code {
        Code::Unavailable => "UNAVAILABLE",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::Internal => "INTERNAL",
        Code::DataLoss => "DATA_LOSS",
        Code::Unimplemented => "UNIMPLEMENTED",
        _ => "UNKNOWN",
    }
}

/// Time for which a call waits for the accelerator: at most half of the time left, so that the processor can answer.
pub(super) fn time_limit(acc_timeout: Duration, left: Option<Duration>) -> Duration {
    left.map_or(acc_timeout, |left| acc_timeout.min(left / 2))
}

/// Waits for the accelerator's answer: for `limit` until it `has_begun` to answer, and not if its handler panics.
pub(super) async fn answer<T>(
    limit: Duration,
    has_begun: impl Fn() -> bool,
    answer: impl Future<Output = Result<T, AcceleratorFailure>>,
) -> Result<T, AcceleratorFailure> {
    let mut answer = pin!(answer);
    // After a panic the future is only dropped.
    let mut caught = pin!(std::future::poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx)))
            .unwrap_or(Poll::Ready(Err(AcceleratorFailure::Panic)))
    }));
    match timeout(limit, caught.as_mut()).await {
        Ok(answered) => answered,
        Err(_) if has_begun() => caught.await,
        Err(_) => Err(AcceleratorFailure::Timeout(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_has_half_of_the_time_to_the_deadline() {
        let (short, long) = (Duration::from_secs(2), Duration::from_secs(60));
        assert_eq!(time_limit(long, Some(short)), Duration::from_secs(1));
        assert_eq!(time_limit(short, Some(long)), short);
        assert_eq!(time_limit(short, None), short);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_that_has_begun_has_no_limit() {
        let slow = || async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(7)
        };
        assert_eq!(answer(Duration::from_secs(1), || true, slow()).await.expect("answered"), 7);
        let failure = answer(Duration::from_secs(1), || false, slow()).await.expect_err("too late");
        assert_eq!(failure.to_string(), "the accelerator did not answer in 1000 ms");
        assert_eq!(failure.into_status().code(), Code::Unavailable);
    }

    #[tokio::test]
    async fn panic_is_a_failure() {
        let panics = async { if true { panic!("planted") } else { Ok(()) } };
        let failure = answer(Duration::from_secs(60), || false, panics).await.expect_err("it panicked");
        assert_eq!(failure.into_status().code(), Code::Internal);
    }
}
