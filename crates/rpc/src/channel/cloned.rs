//! Cloned calls: by frames to the pool if they fit, else by gRPC to one of its servers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use pathcall_driver::clone::CloneCallError;
use pathcall_endpoint::clone::{CloneCall, CloneOptions, Hedge, HedgeAfter, MESSAGE_MAX, Pushback, StartError};
use pathcall_proto::manifest::Cloned;
use tonic::Status;
use tonic::body::Body;

use super::Inner;
use super::pool::{PoolMembership, PoolSession, PoolState};
use crate::cloned::{self, Reply};
use crate::deadline::Deadline;
use crate::headers;
use crate::message::frame;
use crate::process_timeout;
use crate::status::deadline_exceeded;

/// Timeout of a call by frames whose stub has no deadline; it then goes by gRPC.
pub(super) const NO_DEADLINE: Duration = Duration::from_secs(3600);
/// Time limit for the first answer of a session; after it the call goes by gRPC.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(1);
/// Maximum number of retries of a gRPC call that reaches none of the pool's servers.
pub(super) const GRPC_RETRIES_MAX: u32 = 3;
/// Pause before the first retry.
pub(super) const GRPC_RETRY_PAUSE: Duration = Duration::from_millis(100);

impl Inner {
    /// Makes a call of a method with the option `clone`.
    pub(super) async fn cloned(
        self: Arc<Self>,
        method: &'static Cloned,
        request: http::Request<Body>,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        let Some(pool) = &self.pool else { return self.plain(request).await };
        let (parts, body) = request.into_parts();
        pool.note_call(method, &parts.headers);
        let cost = headers::decode_cost(&parts.headers)?;
        let body = body.collect().await?.to_bytes();
        while let PoolState::Frames(session) = pool.state().await {
            // A compressed message cannot be read; gRPC carries it as it is.
            let Some(encoded) = encode(&parts, deadline, &body) else { break };
            match self.by_frames(method, &session, encoded, deadline, cost).await {
                FrameOutcome::Replied(response) => return Ok(response),
                FrameOutcome::Failed(status) => return Err(status),
                FrameOutcome::ByGrpc => break,
                FrameOutcome::Retry => {}
            }
        }
        Box::pin(self.by_grpc(method, pool, &parts, body, deadline)).await
    }

    async fn by_frames(
        &self,
        method: &'static Cloned,
        session: &PoolSession,
        request: Bytes,
        deadline: Deadline,
        cost: Option<u16>,
    ) -> FrameOutcome {
        self.counters.cloned.add();
        let budget = self.catalogue.nth_cloned(method).and_then(|nth| u8::try_from(nth).ok()).unwrap_or(u8::MAX);
        let left = deadline.left();
        let options = options(method, self.override_cloned, left.unwrap_or(NO_DEADLINE));
        let options = CloneOptions { budget, cost: cost.unwrap_or(method.cost), timed: left.is_some(), ..options };
        let mut asked = pin!(session.call(CloneCall { request, options }));
        let answer = if session.has_answers() {
            asked.await
        } else {
            match process_timeout::timeout(FIRST_ANSWER_MAX, &mut asked).await {
                Ok(answer) => answer,
                // Frames are delivered, but this call is slow: its server reports that it works on it, or other calls
                // have had answers.
                Err(_) if session.has_received() => asked.await,
                Err(_) => {
                    session.end();
                    return FrameOutcome::ByGrpc;
                }
            }
        };
        match answer {
            None => FrameOutcome::Retry,
            Some(Ok(answer)) => match cloned::decode_reply(answer.reply) {
                Ok(Reply::Response(response)) => FrameOutcome::Replied(response),
                Ok(Reply::TooLong) => FrameOutcome::ByGrpc,
                Err(damaged) => FrameOutcome::Failed(Status::internal(format!("{}: {damaged}", method.path))),
            },
            Some(Err(CloneCallError::Refused(StartError::CallsFull(calls)))) => {
                FrameOutcome::Failed(Status::resource_exhausted(format!(
                    "{}: too many calls in progress: {calls}, the most allowed",
                    method.path
                )))
            }
            Some(Err(CloneCallError::Refused(StartError::TooLong(_) | StartError::NoServers))) => FrameOutcome::ByGrpc,
            Some(Err(CloneCallError::Failed(_))) if deadline.left().is_some() => {
                FrameOutcome::Failed(deadline_exceeded())
            }
            Some(Err(CloneCallError::Failed(_) | CloneCallError::Stopped)) => FrameOutcome::ByGrpc,
        }
    }

    /// Makes the call by gRPC to the server that is followed; then to others if that server is unreachable or returns a
    /// non-fatal status.
    async fn by_grpc(
        &self,
        method: &Cloned,
        pool: &PoolMembership,
        parts: &http::request::Parts,
        body: Bytes,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        self.counters.plain.add();
        let mut again = 0;
        let mut attempts = method.hedging.map_or(1, |hedging| hedging.max_attempts);
        loop {
            let (mut failed, mut non_fatal) = (None, None);
            let mut pause = Duration::ZERO;
            for transport in pool.transports() {
                let mut request = http::Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
                tokio::time::sleep(std::mem::take(&mut pause)).await;
                deadline.write_to(request.headers_mut());
                match transport.call(request).await {
                    Ok(response) if attempts > 1 && is_non_fatal(method, &response) => {
                        pause = match headers::pushback(response.headers()) {
                            Some(Pushback::After(pause)) if pause < deadline.left().unwrap_or(NO_DEADLINE) => pause,
                            Some(Pushback::After(_) | Pushback::Never) => return Ok(response),
                            None => Duration::ZERO,
                        };
                        attempts -= 1;
                        non_fatal = Some(response);
                    }
                    Ok(response) => return Ok(response),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(response) = non_fatal {
                return Ok(response);
            }
            again += 1;
            if again > GRPC_RETRIES_MAX {
                return Err(failed.unwrap_or_else(|| Status::unavailable("no server of the pool is known")));
            }
            tokio::time::sleep(GRPC_RETRY_PAUSE * again).await;
        }
    }
}

/// Whether the response has a status that is not fatal by the method's hedging policy (gRPC A6): another server may be
/// called.
fn is_non_fatal(method: &Cloned, response: &http::Response<Body>) -> bool {
    let non_fatal = Status::from_header_map(response.headers());
    non_fatal.zip(method.hedging).is_some_and(|(status, hedging)| hedging.is_non_fatal(status.code() as i32 as u8))
}

/// Result of a call by frames.
enum FrameOutcome {
    Replied(http::Response<Body>),
    Failed(Status),
    ByGrpc,
    /// The session has ended without a result.
    Retry,
}

/// Encodes the request for frames; `None` if it does not fit.
fn encode(parts: &http::request::Parts, deadline: Deadline, body: &Bytes) -> Option<Bytes> {
    let message = frame::open(body).ok()?;
    let encoded = cloned::encode_request(parts.uri.path(), &parts.headers, deadline.left(), &message).ok()?;
    (encoded.len() <= MESSAGE_MAX).then_some(encoded)
}

/// Options of a call: those of its method, or those of its channel.
pub(super) fn options(method: &Cloned, channel: Option<CloneOptions>, deadline: Duration) -> CloneOptions {
    let hedge = method.hedging.map(|hedging| Hedge {
        after: match hedging.share {
            0 => HedgeAfter::Delay(Duration::from_nanos(hedging.delay_ns)),
            share => HedgeAfter::Share(share),
        },
        max_attempts: hedging.max_attempts,
    });
    let Some(options) = channel else {
        return CloneOptions {
            automatic: method.automatic,
            clone: method.clone,
            balance: method.balance,
            hedge,
            cancel: method.cancel,
            deadline,
            ..CloneOptions::default()
        };
    };
    CloneOptions {
        hedge: options.hedge.map(|usual| hedge.unwrap_or(usual)),
        cancel: method.cancel,
        deadline,
        ..options
    }
}

#[cfg(test)]
mod tests {
    use pathcall_endpoint::clone::Balance;
    use pathcall_proto::manifest::{HedgeBudgetConfig, Hedging};

    use super::*;

    const METHOD: Cloned = Cloned {
        path: "/a.S/M",
        automatic: false,
        clone: true,
        balance: Balance::Shortest,
        budget: HedgeBudgetConfig { share: 1.0, burst: 500.0, per_second: 100.0 },
        cost: 1,
        hedging: None,
        cancel: true,
        workers: 0,
        streaming: false,
    };

    #[test]
    fn channel_options_override_method_options() {
        let deadline = Duration::from_secs(7);
        let own = options(&METHOD, None, deadline);
        let expected = CloneOptions {
            clone: true,
            balance: Balance::Shortest,
            cancel: true,
            hedge: None,
            deadline,
            ..CloneOptions::default()
        };
        assert_eq!(own, expected);
        let hedging = Some(Hedging { delay_ns: 5_000_000, share: 0, max_attempts: 3, non_fatal: 0 });
        let hedge = Hedge { after: HedgeAfter::Delay(Duration::from_millis(10)), max_attempts: 2 };
        let slow = CloneOptions { clone: false, hedge: Some(hedge), ..CloneOptions::default() };
        let hedged = options(&Cloned { hedging, ..METHOD }, Some(slow), deadline);
        assert_eq!(hedged.hedge, Some(Hedge { after: HedgeAfter::Delay(Duration::from_millis(5)), max_attempts: 3 }));
        let learned = hedging.map(|hedging| Hedging { share: 50, ..hedging });
        let learned = options(&Cloned { hedging: learned, ..METHOD }, None, deadline).hedge;
        assert_eq!(learned, Some(Hedge { after: HedgeAfter::Share(50), max_attempts: 3 }));
        let random = options(&Cloned { hedging, ..METHOD }, Some(CloneOptions { hedge: None, ..slow }), deadline);
        assert_eq!((random.clone, random.balance, random.hedge), (false, Balance::Random, None));
    }
}
