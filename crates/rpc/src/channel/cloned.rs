//! Calls that a pool of servers answers: by frames if they fit, else by gRPC to one of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use pathcall_endpoint::clone::{Ask, AskError, Balance, Hedge, MESSAGE_MAX, Options};
use pathcall_endpoint::driver::clone::CallError;
use pathcall_proto::manifest::{self, Cloned};
use tonic::Status;
use tonic::body::Body;

use super::Inner;
use super::pool::{Pool, Session, State};
use crate::awake;
use crate::cloned::reply::{self, Reply};
use crate::cloned::request;
use crate::deadline::Deadline;
use crate::message::frame;
use crate::status::deadline_exceeded;

/// A call whose stub sets no deadline waits so long for an answer by frames, then goes by gRPC.
const NO_DEADLINE: Duration = Duration::from_secs(3600);
/// Until a frame has come back, a call waits so long for one, then goes by gRPC.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(1);
/// A call by gRPC that reaches none of the pool's servers is made again so often.
const AGAIN_MAX: u32 = 3;
/// Pause before that.
const AGAIN_PAUSE: Duration = Duration::from_millis(100);

impl Inner {
    /// Makes a call of a method that may be done twice.
    pub(super) async fn cloned(
        self: Arc<Self>,
        method: &'static Cloned,
        request: http::Request<Body>,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        let Some(pool) = &self.pool else { return self.plain(request).await };
        let (parts, body) = request.into_parts();
        pool.offer(method, &parts.headers);
        let body = body.collect().await?.to_bytes();
        while let State::Frames(session) = pool.state().await {
            // What is compressed can't be looked into, and need not be.
            let Some(sealed) = seal(&parts, deadline, &body) else { break };
            match self.by_frames(method, &session, sealed, deadline).await {
                Outcome::Replied(response) => return Ok(response),
                Outcome::Failed(status) => return Err(status),
                Outcome::ByGrpc => break,
                Outcome::Again => {}
            }
        }
        Box::pin(self.by_grpc(method, pool, &parts, body, deadline)).await
    }

    async fn by_frames(
        &self,
        method: &'static Cloned,
        session: &Session,
        request: Bytes,
        deadline: Deadline,
    ) -> Outcome {
        self.counters.cloned.add();
        let purse = self.catalogue.nth_cloned(method).and_then(|nth| u8::try_from(nth).ok()).unwrap_or(u8::MAX);
        let left = deadline.left();
        let options = options(method, self.override_cloned, left.unwrap_or(NO_DEADLINE));
        let options = Options { purse, timed: left.is_some(), ..options };
        let mut asked = pin!(session.ask(Ask { request, options }));
        let answer = if session.has_heard() {
            asked.await
        } else {
            match awake::timeout(FIRST_ANSWER_MAX, &mut asked).await {
                Ok(answer) => answer,
                // Frames get through, and this is a slow call: its server says so, or others have had answers.
                Err(_) if session.anything_came() => asked.await,
                Err(_) => {
                    session.give_up();
                    return Outcome::ByGrpc;
                }
            }
        };
        match answer {
            None => Outcome::Again,
            Some(Ok(answer)) => match reply::open(answer.reply) {
                Ok(Reply::Response(response)) => Outcome::Replied(response),
                Ok(Reply::TooLong) => Outcome::ByGrpc,
                Err(damaged) => Outcome::Failed(Status::internal(format!("{}: {damaged}", method.path))),
            },
            Some(Err(CallError::Refused(AskError::CallsFull(calls)))) => Outcome::Failed(Status::resource_exhausted(
                format!("{}: {calls} calls are in progress, as many as may be", method.path),
            )),
            Some(Err(CallError::Refused(AskError::TooLong(_) | AskError::NoServers))) => Outcome::ByGrpc,
            Some(Err(CallError::Failed(_))) if deadline.left().is_some() => Outcome::Failed(deadline_exceeded()),
            Some(Err(CallError::Failed(_) | CallError::Stopped)) => Outcome::ByGrpc,
        }
    }

    /// By gRPC, to the server that is followed; to others when that is gone, or says what is not fatal, which does no harm.
    async fn by_grpc(
        &self,
        method: &Cloned,
        pool: &Pool,
        parts: &http::request::Parts,
        body: Bytes,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        self.counters.plain.add();
        let mut again = 0;
        let mut attempts = method.hedging.map_or(1, |hedging| hedging.max_attempts);
        loop {
            let (mut failed, mut said) = (None, None);
            for transport in pool.transports() {
                let mut request = http::Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
                deadline.put(request.headers_mut());
                match transport.call(request).await {
                    Ok(response) if attempts > 1 && goes_on(method, &response) => {
                        attempts -= 1;
                        said = Some(response);
                    }
                    Ok(response) => return Ok(response),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(response) = said {
                return Ok(response);
            }
            again += 1;
            if again > AGAIN_MAX {
                return Err(failed.unwrap_or_else(|| Status::unavailable("no server of the pool is known")));
            }
            tokio::time::sleep(AGAIN_PAUSE * again).await;
        }
    }
}

/// Whether a server says what leaves the call to others, by the method's policy (gRPC A6).
fn goes_on(method: &Cloned, response: &http::Response<Body>) -> bool {
    let said = Status::from_header_map(response.headers());
    said.zip(method.hedging).is_some_and(|(status, hedging)| hedging.goes_on(status.code() as i32 as u8))
}

/// What became of a call by frames.
enum Outcome {
    Replied(http::Response<Body>),
    Failed(Status),
    ByGrpc,
    /// The session is over, and nothing is known of the call.
    Again,
}

/// The request as it travels in frames, if it does.
fn seal(parts: &http::request::Parts, deadline: Deadline, body: &Bytes) -> Option<Bytes> {
    let message = frame::open(body).ok()?;
    let sealed = request::seal(parts.uri.path(), &parts.headers, deadline.left(), &message).ok()?;
    (sealed.len() <= MESSAGE_MAX).then_some(sealed)
}

/// How a call is made: as its method says, or as its channel does.
fn options(method: &Cloned, channel: Option<Options>, deadline: Duration) -> Options {
    let hedge = method
        .hedging
        .map(|hedging| Hedge { delay: Duration::from_nanos(hedging.delay_ns), max_attempts: hedging.max_attempts });
    let Some(options) = channel else {
        let balance = match method.balance {
            manifest::Balance::Random => Balance::Random,
            manifest::Balance::Shortest => Balance::Shortest,
            manifest::Balance::RoundRobin => Balance::RoundRobin,
        };
        return Options { clone: method.clone, balance, hedge, cancel: method.cancel, deadline, ..Options::default() };
    };
    Options { hedge: options.hedge.map(|usual| hedge.unwrap_or(usual)), cancel: method.cancel, deadline, ..options }
}

#[cfg(test)]
mod tests {
    use pathcall_proto::manifest::Hedging;

    use super::*;

    const METHOD: Cloned = Cloned {
        path: "/a.S/M",
        clone: true,
        balance: manifest::Balance::Shortest,
        budget: 1.0,
        hedging: None,
        cancel: true,
        workers: 0,
    };

    #[test]
    fn a_call_is_made_as_its_method_says_or_as_its_channel_does() {
        let deadline = Duration::from_secs(7);
        let own = options(&METHOD, None, deadline);
        let expected = Options {
            clone: true,
            balance: Balance::Shortest,
            cancel: true,
            hedge: None,
            deadline,
            ..Options::default()
        };
        assert_eq!(own, expected);
        let hedging = Some(Hedging { delay_ns: 5_000_000, max_attempts: 3, non_fatal: 0 });
        let unhurried = Hedge { delay: Duration::from_millis(10), max_attempts: 2 };
        let slow = Options { clone: false, hedge: Some(unhurried), ..Options::default() };
        let hedged = options(&Cloned { hedging, ..METHOD }, Some(slow), deadline);
        assert_eq!(hedged.hedge, Some(Hedge { delay: Duration::from_millis(5), max_attempts: 3 }));
        let random = options(&Cloned { hedging, ..METHOD }, Some(Options { hedge: None, ..slow }), deadline);
        assert_eq!((random.clone, random.balance, random.hedge), (false, Balance::Random, None));
    }
}
