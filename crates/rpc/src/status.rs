//! What a caller's stub sees when a map call fails: one code and one line.

use std::error::Error;

use pathcall_endpoint::map::CallError;
use pathcall_proto::manifest::Method;
use tonic::{Code, Status, TimeoutExpired};

use crate::message::frame::FrameError;
use crate::message::reply::ReplyError;
use crate::message::typed::TypedError;

/// The status of a map call that the endpoint could not do.
pub(crate) fn of_call(method: &Method, error: &CallError) -> Status {
    Status::new(code(error), format!("{} ({}): {error}", method.path, method.app))
}

/// The status of a caller that can't become a member.
pub(crate) fn of_join(error: &CallError) -> Status {
    Status::new(code(error), error.to_string())
}

/// What is said again of a text that a caller has sent: no status is longer for it than metadata may be.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(SAID_MAX).collect()
}

/// Characters of such a text at most.
const SAID_MAX: usize = 80;

fn code(error: &CallError) -> Code {
    match error {
        CallError::Unreachable { .. } | CallError::Spent | CallError::Closed => Code::Unavailable,
        CallError::Range { .. } | CallError::Overflow { .. } => Code::OutOfRange,
        CallError::KeysFull | CallError::BooksFull => Code::ResourceExhausted,
        CallError::KeyLength { .. } => Code::InvalidArgument,
        CallError::Disagree { .. } | CallError::WorkersFull { .. } => Code::FailedPrecondition,
        CallError::DataLoss { .. } | CallError::Forgotten => Code::DataLoss,
        CallError::Late | CallError::GivenUp => Code::Aborted,
    }
}

/// The status of a request whose typed field can't travel.
pub(crate) fn of_request(field: &'static str, error: &TypedError) -> Status {
    Status::invalid_argument(format!("{field}: {error}"))
}

/// The status of a reply that its typed field can't hold.
pub(crate) fn of_reply(field: &'static str, error: &ReplyError) -> Status {
    Status::out_of_range(format!("{field}: {error}"))
}

/// The status of a message that can't be taken out of its frame, or put in.
pub(crate) fn of_frame(method: &Method, error: FrameError) -> Status {
    of_framed(method.path, error)
}

/// The same of a method of this path.
pub(crate) fn of_framed(path: &str, error: FrameError) -> Status {
    match error {
        FrameError::Compressed => Status::failed_precondition(format!(
            "{path}: the message is compressed, so its fields can't be seen: send it without compression, or with gzip to a \
             build with the feature gzip"
        )),
        FrameError::Damaged => Status::invalid_argument(format!("{path}: {error}")),
        FrameError::Unpacked(_) => Status::resource_exhausted(format!("{path}: {error}")),
        FrameError::Length { .. } => Status::internal(format!("{path}: {error}")),
        FrameError::TooLong(_) => Status::out_of_range(format!("{path}: {error}")),
    }
}

/// The status of a call that the transport could not do. Its own timer fires for a deadline that
/// the caller set; tonic calls that CANCELLED.
pub(crate) fn of_transport(error: impl Into<Box<dyn Error + Send + Sync>>) -> Status {
    let error = error.into();
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(error) = cause {
        if error.is::<TimeoutExpired>() {
            return deadline_exceeded();
        }
        cause = error.source();
    }
    Status::from_error(error)
}

/// The status of a call that took too long.
pub(crate) fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("the deadline of the call has passed")
}
