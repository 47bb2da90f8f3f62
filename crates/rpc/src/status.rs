//! gRPC statuses of failed map calls: one code and one line of text.

use std::error::Error;

use pathcall_endpoint::map::CallError;
use pathcall_proto::manifest::Method;
use tonic::{Code, Status, TimeoutExpired};

use crate::message::frame::FrameError;
use crate::message::reply::ReplyError;
use crate::message::typed::TypedError;

/// Status of a failed map operation.
pub(crate) fn of_call(method: &Method, error: &CallError) -> Status {
    Status::new(code(error), format!("{} ({}): {error}", method.path, method.app))
}

/// Status of a caller that cannot join.
pub(crate) fn of_join(error: &CallError) -> Status {
    Status::new(code(error), error.to_string())
}

/// Text of a caller, truncated for a status message: metadata has a maximum size.
pub(crate) fn truncated(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// Maximum length of such a text, characters.
const TEXT_CHARS_MAX: usize = 80;

fn code(error: &CallError) -> Code {
    match error {
        CallError::Unreachable { .. } | CallError::SequenceExhausted | CallError::Closed => Code::Unavailable,
        CallError::Range { .. } | CallError::Overflow { .. } => Code::OutOfRange,
        CallError::KeysFull | CallError::IdempotencyFull | CallError::LoneCallsFull => Code::ResourceExhausted,
        CallError::KeyLength { .. } => Code::InvalidArgument,
        CallError::Disagree { .. } | CallError::WorkersFull { .. } => Code::FailedPrecondition,
        CallError::DataLoss { .. } | CallError::JournalForgotten => Code::DataLoss,
        CallError::AbandonedAttempt | CallError::SumAbandoned => Code::Aborted,
    }
}

/// Status of a request with an invalid typed field.
pub(crate) fn of_request(field: &'static str, error: &TypedError) -> Status {
    Status::invalid_argument(format!("{field}: {error}"))
}

/// Status of a reply whose values do not fit its typed field.
pub(crate) fn of_reply(field: &'static str, error: &ReplyError) -> Status {
    Status::out_of_range(format!("{field}: {error}"))
}

/// Status of a message with an invalid gRPC frame.
pub(crate) fn of_frame(method: &Method, error: FrameError) -> Status {
    of_framed(method.path, error)
}

/// The same, for a method path.
pub(crate) fn of_framed(path: &str, error: FrameError) -> Status {
    match error {
        FrameError::Compressed => Status::failed_precondition(format!(
            "{path}: the message is compressed, so its fields cannot be read: send it without compression, \
             or use gzip and a build with the feature gzip"
        )),
        FrameError::Damaged => Status::invalid_argument(format!("{path}: {error}")),
        FrameError::Unpacked(_) => Status::resource_exhausted(format!("{path}: {error}")),
        FrameError::Length { .. } => Status::internal(format!("{path}: {error}")),
        FrameError::TooLong(_) => Status::out_of_range(format!("{path}: {error}")),
    }
}

/// Status of a call for which the transport failed. The transport's own timer fires for a deadline that the caller set;
/// tonic reports this as CANCELLED.
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

/// Status of a call whose deadline has passed.
pub(crate) fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("the deadline of the call has passed")
}
